-- recompute_spec.lua -- flow.checkpoint: the gradients, random numbers and errors that there are without it, less memory.
local flow = require "flow"
local support = require "tests.support"
local nn, optim = flow.nn, flow.optim
local message_of = support.message_of

local function leaf(...) return flow.randn({...}, {requires_grad = true}) end

-- Calls f as it is.
local function plain(f, ...) return f(...) end

local function same(expected, got)
    assert.are.equal(#expected, #got)
    for i, t in ipairs(expected) do assert.are.same(t:totable(), got[i]:totable(), "gradient " .. i) end
end

-- The gradients of `leaves` after body(call), once with plain calls and once with checkpoints; both draw the same.
local function compare(leaves, body)
    local results, states = {}, {}
    for i, call in ipairs {plain, flow.checkpoint} do
        flow.manual_seed(5)
        for _, x in ipairs(leaves) do x.grad = nil end
        body(call)
        results[i], states[i] = {}, flow.default_generator():state()
        for k, x in ipairs(leaves) do results[i][k] = x.grad end
    end
    same(results[1], results[2])
    assert.are.same(states[1], states[2])
end

-- A function with dropout, and how often it was called.
local function counted(W)
    local count = {0}
    return function(x)
        count[1] = count[1] + 1
        return x:matmul(W):tanh():dropout(0.3):sigmoid()
    end, count
end

describe("flow.checkpoint", function()
    local W, V, x, f, count

    before_each(function()
        flow.manual_seed(2)
        W, V, x = leaf(6, 6), leaf(6, 6), leaf(3, 6)
        f, count = counted(W)
    end)

    it("gives the gradients of a plain call, with the same dropout, and calls f twice", function()
        compare({W, V, x}, function(call)
            count[1] = 0
            local y = call(f, x)
            assert.are.equal(1, count[1]);
            (y:matmul(V):square():sum() + flow.rand(1):sum()):backward()
            assert.are.equal(call == plain and 1 or 2, count[1])
        end)
    end)

    it("calls f once where nothing was left out", function()
        local y = flow.checkpoint(function(a) count[1] = count[1] + 1; return (a + 1):sum() end, x)
        y:backward()
        assert.are.equal(1, count[1])
    end)

    it("takes modules, and gives their parameters gradients", function()
        local block = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Dropout(0.4), nn.Linear(12, 6), nn.LayerNorm(6))
        local leaves = {x}
        for _, p in ipairs(block:parameters()) do leaves[#leaves + 1] = p end
        compare(leaves, function(call) call(block, call(block, x)):square():sum():backward() end)
    end)

    it("passes on several results, and values that are no tensors", function()
        local t = {}
        local a, b, c, d, n = flow.checkpoint(function(u, k, s, w) return u:exp(), k, nil, s, select("#", u, k, s, w) end,
            x, 7, t, nil)
        assert.are.same(x:exp():totable(), a:totable())
        assert.are.equal(7, b)
        assert.is_nil(c)
        assert.are.equal(t, d)
        assert.are.equal(4, n)
        assert.are.equal(0, select("#", flow.checkpoint(function() end)))
    end)

    it("takes arguments without a gradient, and lists", function()
        local mask, indices = flow.randn(3, 6):gt(0), flow.tensor {2, 0, 1}
        compare({W, x}, function(call)
            local y = call(function(list, m, i, scale)
                return flow.index_select(list[1]:matmul(W):masked_fill(m, 0):sigmoid() * scale, 0, i):tanh()
            end, {x}, mask, indices, 2.5)
            y:sum():backward()
        end)
    end)

    it("serves a backward through a part of the results", function()
        compare({W, x}, function(call)
            local a, b, c = call(function(u)
                local h = f(u)
                return h:exp(), h:square():sigmoid(), h:detach()
            end, x);
            (b * c):sum():backward()
            assert.is_false(a:isnan():any():item())
        end)
    end)

    it("leaves flow.grad, and tensors shared with code outside, as they are", function()
        compare({W}, function(call)
            local h = x * 2
            local y = call(function(u) return f(u) + h end, h)
            local g = flow.grad((y * h):sum() + W:square():sum(), {x, W, h}, {retain_graph = true})
            W.grad = g[2] + g[1]:sum() + g[3]:sum();
            (y * h):sum():backward()
        end)
    end)

    it("runs again at every backward of a retained graph, and keeps nothing in between", function()
        compare({W, x}, function(call)
            count[1] = 0
            local y = call(f, x):sum()
            y:backward({retain_graph = true})
            y:backward()
            assert.are.equal(call == plain and 1 or 3, count[1])
        end)
        local y = flow.checkpoint(f, x):sum()
        y:backward()
        assert.are.equal("backward: the graph of sum has been freed by an earlier backward; use {retain_graph = true} " ..
            "in the earlier one (FLOW_RETAIN_GRAPH in C)", message_of(y.backward, y))
    end)

    it("can be differentiated twice", function()
        compare({W, x}, function(call)
            local y = call(function(u) return f(call(f, u)):exp() end, x):sum()
            local g = flow.grad(y, {W, x}, {create_graph = true});
            (g[1]:square():sum() + g[2]:exp():sum()):backward()
        end)
    end)

    it("can be nested, and the inner function then runs once more", function()
        compare({W, V, x}, function(call)
            count[1] = 0
            local y = call(function(u)
                local h = call(f, u)
                h = call(function(v) return call(f, v):matmul(V):exp() end, h)
                return call(f, h):square()
            end, x)
            y:mean():backward()
            assert.are.equal(call == plain and 3 or 10, count[1])
        end)
    end)

    it("allows a backward inside f", function()
        compare({W, x}, function(call)
            local y = call(function(u)
                local v = u:detach():requires_grad_()
                local g = flow.grad(f(v):sum(), v, {create_graph = true})
                return (g * u):tanh()
            end, x)
            y:sum():backward()
        end)
    end)

    it("is a plain call without gradients", function()
        flow.no_grad(function()
            local y = flow.checkpoint(f, x)
            assert.is_false(y.requires_grad)
        end)
        local y = flow.checkpoint(f, x:detach()) -- f records all the same, for W
        y:sum():backward()
        assert.are.equal(3, count[1])
    end)

    it("keeps no_grad and enable_grad inside f", function()
        compare({W, x}, function(call)
            local y = call(function(u)
                local h = f(u)
                local s = flow.no_grad(function() return h:sum() end)
                local _ <close> = flow.no_grad()
                local e = flow.enable_grad(function() return (h * s):exp() end)
                assert.is_false(flow.is_grad_enabled())
                return e
            end, x)
            flow.no_grad(function() flow.enable_grad(function() y:sum():backward() end) end)
        end)
    end)

    it("does not matter to later draws of any generator", function()
        local states = {}
        for i, call in ipairs {plain, flow.checkpoint} do
            local g, k = flow.generator(3), flow.generator(4)
            flow.manual_seed(8)
            local y = flow.with_generator(k, function()
                return call(function(u)
                    local h = u:matmul(W):dropout(0.5) * flow.rand(3, 6)
                    h = flow.with_generator(g, function() return h:sigmoid():dropout(0.2) end)
                    return (h * flow.randn_like(h)):exp()
                end, x)
            end)
            flow.rand(2)
            W.grad = nil
            y:sum():backward()
            states[i] = {g:state(), k:state(), flow.default_generator():state(), flow.rand(2):totable(),
                W.grad:totable()}
        end
        assert.are.same(states[1], states[2])
    end)

    it("does not seed again what f seeds", function()
        local states = {}
        for i, call in ipairs {plain, flow.checkpoint} do
            local g = flow.generator(3)
            local y = call(function(u)
                flow.manual_seed(1)
                g:manual_seed(4)
                g:load_state {seed = 9, counter = 100}
                return flow.with_generator(g, function() return u:matmul(W):dropout(0.5):sigmoid() end)
            end, x)
            flow.rand(3)
            W.grad = nil
            y:sum():backward()
            states[i] = {g:state(), flow.default_generator():state(), W.grad:totable()}
        end
        assert.are.same(states[1], states[2])
    end)

    it("works inside coroutines, each with its own scopes", function()
        compare({W, x}, function(call)
            local co = coroutine.wrap(function()
                local _ <close> = flow.no_grad()
                coroutine.yield(call(f, x))
                flow.enable_grad(function() coroutine.yield(call(f, x)) end)
            end)
            assert.is_false(co().requires_grad)
            local y = co()
            local inner = call(function(u)
                local step = coroutine.wrap(function() coroutine.yield(f(u)); return f(u) end)
                return step() * step()
            end, x)
            coroutine.wrap(function() (y * inner):sum():backward() end)()
        end)
    end)

    it("refuses to yield out of f", function()
        local co = coroutine.create(function() flow.checkpoint(coroutine.yield, 1) end)
        local ok, message = coroutine.resume(co)
        assert.is_false(ok)
        assert.is_truthy(message:find("attempt to yield across a C-call boundary", 1, true), message)
        assert.are.equal(3, #flow.checkpoint(f, x))
    end)

    it("lets hooks run once", function()
        local seen = 0
        compare({W, x}, function(call)
            seen = 0
            local y = call(function(u)
                local h = u:matmul(W):sigmoid()
                if h.requires_grad then h:register_hook(function(g) seen = seen + 1; return g * 2 end) end
                return h:exp()
            end, x)
            y:sum():backward()
            assert.are.equal(1, seen)
        end)
    end)

    it("takes views and writes in place of f's own tensors", function()
        compare({W, x}, function(call)
            local y = call(function(u)
                local h = u:matmul(W)
                h[1]:mul_(h[0] + 1)
                h:select(1, 2):sigmoid_()
                local k = h * 2
                k:add_(1)
                local v = k:transpose(0, 1)
                v:narrow(0, 1, 3):mul_(v:narrow(0, 0, 3):clone())
                return (k * h:relu()):tanh_()
            end, x * 1)
            y:square():sum():backward()
        end)
    end)

    it("serves attention and convolutions", function()
        local q, image, kernel = leaf(2, 2, 5, 4), leaf(1, 2, 6, 6), leaf(3, 2, 3, 3)
        compare({q, image, kernel}, function(call)
            local a = call(function(u)
                return flow.scaled_dot_product_attention(u, u:tanh(), u:exp(), {is_causal = true, dropout = 0.2})
            end, q)
            local c = call(function(u) return flow.max_pool2d(flow.conv2d(u:sigmoid(), kernel):relu(), 2):exp() end, image);
            (a:sum() + c:square():sum()):backward()
        end)
    end)

    it("works on meta of every float type", function()
        for _, dtype in ipairs {"float64", "float16", "bfloat16"} do
            local u = flow.randn({4, 6}, {dtype = dtype, requires_grad = true})
            compare({u}, function(call)
                call(function(a) return a:exp():to("float32"):tanh():dropout(0.5):to(dtype):sigmoid() end, u):sum():backward()
            end)
        end
    end)

    it("releases f and what it was called with", function()
        local weak = setmetatable({}, {__mode = "k"})
        local before
        for i = 1, 3 do
            if i == 2 then before = support.settled_memory().live_bytes end
            local key = {}
            weak[key] = true
            local big = flow.randn({64, 64}, {requires_grad = true})
            flow.checkpoint(function(a) return key and a:exp():sigmoid() end, big):sum():backward()
            local y = flow.checkpoint(function(a) return key and a:exp():sigmoid() end, big) -- never goes back
            assert.is_true(y.requires_grad)
        end
        assert.is_true(support.settled_memory().live_bytes <= before + 4096, "bytes that stay")
    end)
end)

describe("flow.checkpoint refuses", function()
    local W, x

    -- The error of the second run, without its position and module.
    local function reason(y, ...)
        local text = message_of(y.backward, y, ...)
        local inner, count = text:gsub("^error in a function that flow.checkpoint computes again: [^:]*:%d+: ", "")
        assert.are.equal(1, count, text)
        return (inner:gsub("^in Sequential[^:]*: ", ""))
    end

    before_each(function() W, x = leaf(6, 6), leaf(3, 6) end)

    it("what cannot be called", function()
        assert.are.equal("checkpoint: f must be a function or a module, got tensor", message_of(flow.checkpoint, x))
        assert.are.equal("checkpoint: f must be a function or a module, got nil", message_of(flow.checkpoint, nil))
        assert.are.equal("checkpoint: f must be a function or a module, got nothing", message_of(flow.checkpoint))
        assert.are.equal("flow.checkpoint is a function: write flow.checkpoint(...), with a dot",
            message_of(function() flow:checkpoint(math.abs) end))
    end)

    it("a write to an argument before backward", function()
        local u = flow.randn(3, 6)
        local y = flow.checkpoint(function(a) return (a + W[0]):sigmoid():exp() end, u):sum()
        u:add_(1)
        assert.are.equal("backward: argument 1 of flow.checkpoint (float32[3, 6]), needed to compute its function " ..
            "again, was changed in place after it was used; change a clone() of it instead", message_of(y.backward, y))
    end)

    it("a write to a variable of f or to a parameter before backward", function()
        local u = flow.randn(3, 6)
        local y = flow.checkpoint(function() return (W[0] + u):sigmoid():exp() end):sum()
        u:add_(1)
        assert.are.equal("backward: variable 'u' of flow.checkpoint (float32[3, 6]), needed to compute its function " ..
            "again, was changed in place after it was used; change a clone() of it instead", message_of(y.backward, y))
        local net = {b = leaf(6)}
        y = flow.checkpoint(function(a) return (a + net.b):sigmoid():exp() end, x):sum()
        flow.no_grad(function() net.b:add_(1) end)
        assert.are.equal("input 1 of add (float32[6]) was changed in place after it was used; change a clone() of it " ..
            "instead", reason(y))
    end)

    it("a write to an argument by f", function()
        assert.are.equal("checkpoint: the function changed argument 2 in place, and would do so again when it is " ..
            "computed again; let it work on a clone()",
            message_of(flow.checkpoint, function(a, b) return a:exp():sigmoid() * b:add_(1) end, x, flow.zeros(6)))
    end)

    it("a variable that is another tensor by then", function()
        local h = x
        for _ = 1, 2 do h = flow.checkpoint(function() return h:matmul(W):sigmoid():exp() end) end
        local y = h:sum()
        assert.are.equal("backward: variable 'h' was assigned to after flow.checkpoint had called the function that " ..
            "reads it; pass it as an argument, or use a local variable that stays as it is",
            message_of(y.backward, y))
        h = nil
    end)

    it("another shape, another op or other operands the second time", function()
        local second = false
        local function changing(make)
            second = false
            local y = flow.checkpoint(make, x):sum()
            second = true
            return reason(y)
        end
        assert.are.equal(("narrow gives float32[3, 5] on %s, and gave float32[3, 4] on %s the first time"):format(x.device,
            x.device), changing(function(a) return a:narrow(1, 0, second and 5 or 4):exp():sigmoid() end))
        assert.are.equal("it computes tanh, and computed exp the first time; it must compute the same both times",
            changing(function(a) return (second and a:tanh() or a:exp()):sigmoid() end))
        assert.are.equal("input 0 of exp is not what it was the first time; what changes in between must be an argument",
            changing(function(a)
            local b, c = a:sigmoid(), a:sigmoid()
            return (second and b or c):exp():tanh()
        end))
        assert.are.equal("input 1 of mul is not what it was the first time; what changes in between must be an argument",
            changing(function(a) return (a * (second and 2 or 3)):exp():tanh() end))
        second = false
        local y = flow.checkpoint(function(a) return second and a:exp() or a:exp():tanh():sigmoid() end, x):sum()
        second = true
        assert.are.equal("checkpoint: the function computes less when it runs again (1 ops with a gradient, 3 the first " ..
            "time); it must compute the same both times", message_of(y.backward, y))
    end)

    it("a module whose mode changed", function()
        local net = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.Sigmoid())
        local y = flow.checkpoint(net, x):sum()
        net:eval()
        assert.are.equal("it computes sigmoid, and computed dropout_apply the first time; it must compute the same both times",
            reason(y, {retain_graph = true}))
        net:train()
        y:backward()
    end)

    it("f's own errors, at f's line", function()
        local fail = false
        local function f(a)
            local h = a:exp()
            if fail then h = h:matmul(flow.ones(5)) end
            return h:tanh():sigmoid()
        end
        local y = flow.checkpoint(f, x):sum()
        fail = true
        local ok, message = pcall(y.backward, y, {retain_graph = true})
        assert.is_false(ok)
        assert.is_truthy(message:find("error in a function that flow.checkpoint computes again: %S*recompute_spec.lua:%d+: " ..
            "matmul: "), message)
        fail = false
        y:backward()
        ok, message = pcall(flow.checkpoint, function() error("no result", 0) end)
        assert.is_false(ok)
        assert.are.equal("no result", message)
        assert.are.equal(3, #flow.checkpoint(f, x))
    end)

    it("no pcall in f: what ends the second run passes through it", function()
        compare({W, x}, function(call)
            local y = call(function(a)
                local ok, h = pcall(function() return a:matmul(W):sigmoid():exp() end)
                return ok and h or a
            end, x)
            y:sum():backward()
        end)
    end)
end)

describe("training with flow.checkpoint", function()
    local Block = nn.Module:extend "Block"
    function Block:init(width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.CausalSelfAttention(width, 4, {dropout = 0.1})
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(0.1)
    end
    function Block:forward(x)
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.mlp(self.norm2(x)))
    end

    it("has the bits of 100 steps without", function()
        local sums = {}
        for i, call in ipairs {plain, flow.checkpoint} do
            flow.manual_seed(4)
            local blocks, head = nn.ModuleList(), nn.Linear(16, 5)
            for _ = 1, 3 do blocks:append(Block(16)) end
            local net = nn.Sequential(blocks[1], blocks[2], blocks[3], head)
            local optimizer = optim.AdamW(net:parameters(), {lr = 1e-3})
            local x, y = flow.randn(2, 8, 16), flow.randint(0, 5, {16})
            local losses = {}
            for step = 1, 100 do
                local h = x
                for _, block in ipairs(blocks) do h = call(block, h) end
                local loss = flow.cross_entropy(head(h):flatten(0, 1), y)
                optimizer:zero_grad()
                loss:backward()
                optimizer:step()
                losses[step] = loss:item()
            end
            sums[i] = {losses, flow.rand(4):totable(), blocks[1].mlp[1].weight:totable()}
        end
        assert.are.same(sums[1], sums[2])
    end)
end)
