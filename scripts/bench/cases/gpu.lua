-- gpu.lua -- ops on the GPU. A case is its own description: "name,dtype,AxBxC" and what else the op takes, so that the peer
-- (peer_gpu.py) builds the same from the same words.

local flow = require "flow"
local nn, optim = flow.nn, flow.optim

if os.getenv "BENCH_TF32" == "1" then flow.set_float32_matmul_precision "high" end

local function randn(shape, dtype, wants)
    return flow.randn(shape, {device = "cuda"}):to(dtype):detach():requires_grad_(wants or false)
end

-- A case that calls f.
local function loop(f)
    return function(count)
        for _ = 1, count do f() end
    end
end

-- The backward pass of y alone.
local function backward(y, leaves)
    local g = randn(y.shape, y.dtype)
    return loop(function() flow.grad(y, leaves, {grad_outputs = g, retain_graph = true}) end)
end

local ops = {}

function ops.copy(dtype, shape)
    local x, y = randn(shape, dtype), randn(shape, dtype)
    return loop(function() y:copy_(x) end)
end

for name, f in pairs {
    add = function(x, y) return x + y end, mulnum = function(x) return x * 1.5 end, exp = function(x) return x:exp() end,
    gelu = function(x) return flow.gelu(x) end, tanh = function(x) return x:tanh() end,
    where = function(x, y) return flow.where(x:gt(0), x, y) end,
    relu = function(x) return x:relu() end, masked_fill = function(x, y) return x:masked_fill(y:gt(0), 0) end,
    sum = function(x) return x:sum() end, sumlast = function(x) return x:sum(-1) end, sumfirst = function(x) return x:sum(0) end,
    summiddle = function(x) return x:sum(1) end, mean = function(x) return x:mean(-1) end, max = function(x) return x:max(-1) end,
    argmax = function(x) return x:argmax(-1) end, norm = function(x) return x:norm() end, var = function(x) return x:var(-1) end,
    summany = function(x) return x:sum({0, 2}) end, logsumexp = function(x) return x:logsumexp(-1) end,
    sort = function(x) return x:sort(-1) end, topk = function(x) return x:topk(math.min(40, x:size(-1)), -1) end,
    cumsum = function(x) return x:cumsum(-1) end, max_pool2d = function(x) return flow.max_pool2d(x, 2) end,
    rep = function(x) return x:rep(2, 1) end,
    softmax = function(x) return x:softmax(-1) end, log_softmax = function(x) return x:log_softmax(-1) end,
    dropout = function(x) return x:dropout(0.1) end, cast = function(x) return x:to("bfloat16") end,
    add_ = function(x, y) return x:add_(y) end, view = function(x) return x:view(-1) end,
} do
    ops[name] = function(dtype, shape)
        local x, y = randn(shape, dtype), randn(shape, dtype)
        return function(count)
            for _ = 1, count do f(x, y) end
        end
    end
end

-- Factors of symmetric positive matrices, far from singular; x: right-hand sides.
local linalg = flow.linalg
for name, f in pairs {
    cholesky = function(a) return linalg.cholesky(a) end, inv = function(a) return linalg.inv(a) end, solve = linalg.solve,
    qr = function(a) return linalg.qr(a) end, eigh = function(a) return linalg.eigh(a) end,
    svd = function(a) return linalg.svd(a, false) end,
} do
    ops[name] = function(dtype, shape)
        local x = randn(shape, dtype)
        local n = x:size(-1)
        local a = x:matmul(x.mT) / n + flow.eye(n, {dtype = dtype, device = "cuda"})
        return loop(function() f(a, x) end)
    end
end

-- Chains. A copy of one element has the whole result computed, and nothing waits for it.
for name, f in pairs {
    norm7 = function(x, y) return (x * x + y * y):clamp(1e-6):sqrt() / (1 + (x - y):abs()) end,
    muladd = function(x, y) return x * y + x end,
    gate = function(x, y) return (x * y + x):tanh() * y:sigmoid() + (-x * x):exp() end,
} do
    ops[name] = function(dtype, shape)
        local x, y = randn(shape, dtype), randn(shape, dtype)
        return loop(function() f(x, y):narrow(0, 0, 1):clone() end)
    end
end

-- x + row, x + y transposed
function ops.addrow(dtype, shape)
    local x, row = randn(shape, dtype), randn({shape[#shape]}, dtype)
    return loop(function() local _ = x + row end)
end

function ops.addturned(dtype, shape)
    local x, y = randn(shape, dtype), randn({shape[2], shape[1]}, dtype):t()
    return loop(function() local _ = x + y end)
end

-- A row that is every row of x, written out.
function ops.expand(dtype, shape)
    local row = randn({shape[#shape]}, dtype)
    return loop(function() row:expand(shape):contiguous() end)
end

function ops.expand_backward(dtype, shape)
    local row = randn({shape[#shape]}, dtype, true)
    return backward(row:expand(shape), {row})
end

for _, name in ipairs {"softmax", "log_softmax"} do
    ops[name .. "_backward"] = function(dtype, shape)
        local x = randn(shape, dtype, true)
        return backward(flow[name](x, -1), {x})
    end
end

local function normed(dtype, shape)
    local n = shape[#shape]
    local x, weight, bias = randn(shape, dtype, true), randn({n}, dtype, true), randn({n}, dtype, true)
    return function() return flow.layer_norm(x, {n}, weight, bias) end, {x, weight, bias}
end

function ops.layer_norm(dtype, shape)
    local f = normed(dtype, shape)
    return loop(function() flow.no_grad(f) end)
end

function ops.layer_norm_backward(dtype, shape)
    local f, leaves = normed(dtype, shape)
    return backward(f(), leaves)
end

function ops.cross_entropy(dtype, shape)
    local x, y = randn(shape, dtype, true), flow.randint(0, shape[2], {shape[1]}, {device = "cuda"})
    return loop(function()
        flow.cross_entropy(x, y):backward()
        x.grad = nil
    end)
end

function ops.permute(dtype, shape, axes)
    local view = randn(shape, dtype):permute(axes)
    return loop(function() view:contiguous() end)
end

function ops.matmul(dtype, shape)   -- m x n x k
    local a, b = randn({shape[1], shape[3]}, dtype), randn({shape[3], shape[2]}, dtype)
    return loop(function() a:matmul(b) end)
end

function ops.linear(dtype, shape)   -- rows, in, out
    local x, weight, bias = randn({shape[1], shape[2]}, dtype), randn({shape[3], shape[2]}, dtype), randn({shape[3]}, dtype)
    return loop(function() flow.linear(x, weight, bias) end)
end

function ops.bmm(dtype, shape)      -- batch, m, n, k
    local a, b = randn({shape[1], shape[2], shape[4]}, dtype), randn({shape[1], shape[4], shape[3]}, dtype)
    return loop(function() a:bmm(b) end)
end

-- images, channels of x and of y, rows = columns of an image, of the window
local function convolution(dtype, shape, wants)
    local images, channels, out, size, window = table.unpack(shape)
    local x, weight = randn({images, channels, size, size}, dtype, wants), randn({out, channels, window, window}, dtype, wants)
    return function() return flow.conv2d(x, weight, nil, 1, window // 2) end, {x, weight}
end

function ops.conv2d(dtype, shape) return loop((convolution(dtype, shape))) end

function ops.conv2d_backward(dtype, shape)
    local f, leaves = convolution(dtype, shape, true)
    return backward(f(), leaves)
end

function ops.max_pool2d_backward(dtype, shape)
    local x = randn(shape, dtype, true)
    return backward(flow.max_pool2d(x, 2), {x})
end

local function attention(dtype, shape, wants)
    local q, k, v = randn(shape, dtype, wants), randn(shape, dtype, wants), randn(shape, dtype, wants)
    return function() return flow.scaled_dot_product_attention(q, k, v, {is_causal = true}) end, {q, k, v}
end

function ops.attention(dtype, shape) return loop((attention(dtype, shape))) end

function ops.attention_backward(dtype, shape)
    local f, leaves = attention(dtype, shape, true)
    return backward(f(), leaves)
end

function ops.embedding(dtype, shape) -- rows of the table, width, number of indices
    local weight, at = randn({shape[1], shape[2]}, dtype), flow.randint(0, shape[1], {shape[3]}, {device = "cuda"})
    return loop(function() flow.embedding(at, weight) end)
end

function ops.embedding_backward(dtype, shape)
    local weight, at = randn({shape[1], shape[2]}, dtype, true), flow.randint(0, shape[1], {shape[3]}, {device = "cuda"})
    return backward(flow.embedding(at, weight), {weight})
end

function ops.index_select(dtype, shape)     -- every row, in random order
    local x, order = randn(shape, dtype), flow.randperm(shape[1]):to("cuda")
    return loop(function() x:index_select(0, order) end)
end

-- Copies between host and device; `pinned`: the peer's host memory is pinned.
function ops.to_device(dtype, shape)
    local x = flow.randn(shape):to(dtype)
    return loop(function() x:to("cuda") end)
end

function ops.to_host(dtype, shape)
    local x = randn(shape, dtype)
    return loop(function() x:to("cpu") end)
end

function ops.item(dtype, shape)
    local x = randn(shape, dtype)[0]
    return loop(function() x:item() end)
end

function ops.randn(dtype, shape)
    return loop(function() flow.randn(shape, {device = "cuda", dtype = dtype}) end)
end

function ops.rand(dtype, shape)
    return loop(function() flow.rand(shape, {device = "cuda", dtype = dtype}) end)
end

-- Parameters with gradients: those of a GPT's blocks, depth x width, or one of that many elements.
local function parameters_of(dtype, shape)
    local list = {}
    local function add(...)
        local p = randn({...}, dtype, true)
        p.grad = flow.randn_like(p)
        list[#list + 1] = p
    end
    if #shape == 1 then add(shape[1]) else
        local d = shape[2]
        for _ = 1, shape[1] do
            for _, size in ipairs {{d}, {d}, {3 * d, d}, {3 * d}, {d, d}, {d}, {d}, {d}, {4 * d, d}, {4 * d}, {d, 4 * d}, {d}} do
                add(table.unpack(size))
            end
        end
    end
    return list
end

for name, make in pairs {
    sgd = function(list) return optim.SGD(list, {lr = 1e-4, momentum = 0.9}) end,
    adam = function(list) return optim.Adam(list, {lr = 1e-4}) end,
    adamw = function(list) return optim.AdamW(list, {lr = 1e-4}) end,
} do
    ops[name] = function(dtype, shape)
        local optimizer = make(parameters_of(dtype, shape))
        return loop(function() optimizer:step() end)
    end
end

function ops.clip(dtype, shape)
    local list = parameters_of(dtype, shape)
    return loop(function() optim.clip_grad_norm(list, 1) end)
end

-- ---- whole steps ----

local Block = nn.Module:extend("Block")

function Block:init(width, heads, dropout)
    self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
    self.attention = nn.CausalSelfAttention(width, heads, {dropout = dropout})
    self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
    self.dropout = nn.Dropout(dropout)
end

function Block:forward(x)
    x = x + self.dropout(self.attention(self.norm1(x)))
    return x + self.dropout(self.mlp(self.norm2(x)))
end

local GPT = nn.Module:extend("GPT")

function GPT:init(characters, layers, width, heads, context, dropout, tied)
    self.characters, self.positions = nn.Embedding(characters, width), nn.Embedding(context, width)
    self.dropout, self.blocks = nn.Dropout(dropout), nn.ModuleList()
    for _ = 1, layers do self.blocks:append(Block(width, heads, dropout)) end
    self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, characters, {bias = not tied})
    if tied then self.head.weight = self.characters.weight end
end

function GPT:forward(x)
    local h = self.dropout(self.characters(x) + self.positions(flow.arange(x:size(1), {device = "cuda"})))
    for _, block in ipairs(self.blocks) do h = block(h) end
    return self.head(self.norm(h))
end

-- shape: characters, layers, width, heads, context, batch; dropout in percent, 1 where the head is the table of characters, and 1
-- for a captured step. Reading the loss is part of a step.
function ops.gpt(dtype, shape, extra)
    local characters, layers, width, heads, context, batch = table.unpack(shape)
    local model = GPT(characters, layers, width, heads, context, extra[1] / 100, extra[2] == 1):to("cuda"):to(dtype)
    local optimizer = optim.AdamW(model:parameters(), {lr = 1e-4, betas = {0.9, 0.99}, weight_decay = 0.1})
    local text = flow.randint(0, characters, {100000})
    local loader = flow.data.loader(flow.data.windows(text, context), {batch_size = batch, shuffle = true})
    local function step(x, y)
        local loss = flow.cross_entropy(model(x):flatten(0, 1), y:flatten())
        optimizer:zero_grad()
        loss:backward()
        optim.clip_grad_norm(model:parameters(), 1)
        optimizer:step()
        return loss
    end
    if extra[3] == 1 then step = flow.capture(step) end
    return loop(function()
        local piece = loader:next()
        step(piece[1]:to("cuda"), piece[2]:to("cuda")):item()
    end)
end

-- ---- words to cases ----

local function numbers(text)
    local list = {}
    for n in (text or ""):gmatch("%d+") do list[#list + 1] = math.tointeger(n) end
    return list
end

return setmetatable({}, {__index = function(_, case)
    local name, dtype, shape, extra = case:match("^([^,]+),([^,]+),([^,]+),?(.*)$")
    if not ops[name] then return nil end
    return function() return ops[name](dtype, numbers(shape), numbers(extra)) end
end})
