-- deterministic.lua FILE -- results that depend on the seed alone, saved by name for random_spec.lua to compare: "random..."
-- and "sum..." are the same on every CPU level, "vectors..." on the levels of AVX, all are the same for any number of
-- threads. Sizes are large and odd, so that work is cut and vectors have tails.
local flow = require "flow"

flow.manual_seed(1234)
local out = {}
local n = 150001

---- random numbers ----

for _, dtype in ipairs {"float16", "bfloat16", "float32", "float64"} do
    out["random.rand." .. dtype] = flow.rand({n}, {dtype = dtype})
    out["random.randn." .. dtype] = flow.randn({n}, {dtype = dtype})
end
out["random.randint"] = flow.randint(-5, 1000, {n})
out["random.wide"] = flow.randint(-1 << 40, 1 << 45, {n})
out["random.bytes"] = flow.randint(0, 256, {n}, {dtype = "uint8"})
out["random.randperm"] = flow.randperm(n)
out["random.bernoulli"] = flow.bernoulli(flow.rand(n))
out["random.dropout"] = flow.ones(301, 499):dropout(0.3)
out["random.uniform_"] = flow.zeros(301, 499):t():uniform_(-2, 3)
out["random.normal_"] = flow.zeros(301, 500):narrow(1, 0, 499):normal_(1, 4)

---- sums: the same on every level ----

local x = flow.randn(301, 499)
local whole = flow.randint(-1000, 1000, {301, 499})
for _, axes in ipairs {{}, {0}, {1}} do
    local name = "." .. (axes[1] or "all")
    out["sum.sum" .. name] = x:sum(axes)
    out["sum.mean" .. name] = x:mean(axes)
    out["sum.var" .. name] = x:var(axes)
    out["sum.norm" .. name] = x:norm(2, axes)
    out["sum.amax" .. name] = x:amax(axes)
    out["sum.whole" .. name] = whole:sum(axes)
    out["sum.large" .. name] = x:rep(4, 1):sum(axes)
    out["logsumexp" .. name] = x:logsumexp(axes)
end
out["sum.argmax"] = x:argmax(1)
out["sum.turned"] = x:t():sum(0)

---- elementwise ----

for _, name in ipairs {"exp", "tanh", "gelu", "sigmoid", "erf", "sin", "square", "neg"} do out["map." .. name] = x[name](x) end
out["map.log"] = x:abs():log()
out["map.pow"] = x:abs() ^ 1.7
out["map.add"] = x + x:t():reshape(301, 499)
out["map.stretched"] = x * x[0] + x[{{}, {0, 1}}]
out["map.half"] = (x:to("float16") * 3):to("bfloat16"):exp()

-- The functions with code of their own for vectors of AVX-512.
local wide = flow.cat({x * 1e-30, x * 1e-3, x, x * 10, x * 40, x * 1e30}, 0)
for _, name in ipairs {"exp", "tanh", "sigmoid", "silu"} do out["vectors." .. name] = wide[name](wide) end

---- rows, losses, attention: forward and backward ----

local function with_gradients(name, f, ...)
    local leaves = {...}
    for i, t in ipairs(leaves) do
        leaves[i] = t:detach():clone()
        leaves[i].requires_grad = true
    end
    local y = f(table.unpack(leaves))
    y:backward(flow.randn(y.shape))
    out[name] = y:detach()
    for i, t in ipairs(leaves) do out[name .. ".grad" .. i] = t.grad end
end

with_gradients("softmax.1", function(t) return t:softmax(1) end, x)
with_gradients("softmax.0", function(t) return t:log_softmax(0) end, x)
with_gradients("layer_norm", function(t, w, b) return flow.layer_norm(t, 499, w, b) end, x, flow.randn(499), flow.randn(499))
with_gradients("cross_entropy", function(t) return flow.cross_entropy(t, flow.arange(301) % 499, {label_smoothing = 0.1}) end, x)
with_gradients("mse_loss", function(t) return flow.mse_loss(t, x * 2) end, x)
with_gradients("bce", function(t) return flow.binary_cross_entropy_with_logits(t, x:sigmoid()) end, x)
with_gradients("embedding", function(w) return flow.embedding(flow.randint(0, 50, {4000}), w) end, flow.randn(50, 33))
with_gradients("index_select", function(t) return t:index_select(0, flow.randint(0, 301, {2000})) end, x)
with_gradients("gather", function(t) return t:gather(1, flow.randint(0, 499, {301, 700})) end, x)
with_gradients("stretch", function(t, row) return t * row end, x, flow.randn(499))
with_gradients("attention", function(q, k, v)
    return flow.scaled_dot_product_attention(q, k, v, {is_causal = true, dropout = 0.2})
end, flow.randn(2, 3, 130, 16), flow.randn(2, 3, 130, 16), flow.randn(2, 3, 130, 16))
with_gradients("small products", function(a, b) return a:matmul(b) end, flow.randn(40, 17, 33), flow.randn(40, 33, 19))

---- optimizers ----

for _, name in ipairs {"AdamW", "SGD"} do
    local parameters = {flow.randn(301, 499), flow.randn(7), flow.randn(33, 3)}
    for _, p in ipairs(parameters) do p.requires_grad = true end
    local options = name == "SGD" and {lr = 0.1, momentum = 0.9, nesterov = true} or {lr = 0.01, weight_decay = 0.1}
    local opt = flow.optim[name](parameters, options)
    for _ = 1, 3 do
        for _, p in ipairs(parameters) do p.grad = flow.randn(p.shape) end
        out[name .. ".norm"] = flow.optim.clip_grad_norm(parameters, 1.0)
        opt:step()
    end
    for i, p in ipairs(parameters) do out[name .. "." .. i] = p:detach() end
end

flow.save(arg[1], out)
