-- accumulate_spec.lua -- products that are added to the sum of a leaf's gradients, in .grad or within a backward pass.
local flow = require "flow"
local nn = flow.nn
local support = require "tests.support"

local op = flow._op

-- Names of the ops that f runs.
local function ops_of(f) return tostring(flow.explain(f)) end

-- Gradients of the leaves after a backward pass of each of the losses, and the sums of the gradients of single passes.
local function both(leaves, losses)
    local sums = {}
    for i, w in ipairs(leaves) do
        w.grad = nil
        for _, loss in ipairs(losses) do
            local g = flow.grad(loss(), w, {allow_unused = true})
            if g then sums[i] = sums[i] and sums[i] + g or g end
        end
    end
    for _, loss in ipairs(losses) do loss():backward() end
    local got = {}
    for i, w in ipairs(leaves) do got[i], w.grad = w.grad, nil end
    return got, sums
end

describe("a product is added to gradients", function()
    local cases = {
        {"linear", {20, 12}, function(x, w) return flow.nn.pin(op.linear(x, w), "B") end},
        {"linear with relu", {20, 12}, function(x, w) return op.linear_relu(x, w) end},
        {"linear with gelu", {20, 12}, function(x, w) return op.linear_gelu(x, w) end},
        {"matmul", {12, 20}, function(x, w) return x:matmul(w) end},
        {"matmul from the left", {20, 9}, function(x, w) return w:matmul(x:reshape(9, -1)) end},
        {"matmul, transposed", {20, 12}, function(x, w) return x:matmul(w:t()) end},
    }
    for _, dtype in ipairs {"float32", "float64", "bfloat16"} do
        for _, case in ipairs(cases) do
            for _, rows in ipairs {{9}, {3, 9}, {0, 9}, {1}} do
                it(("%s, %s, rows %s"):format(case[1], dtype, table.concat(rows, "x")), function()
                    local sizes = table.move(rows, 1, #rows, 1, {})
                    sizes[#sizes + 1] = 12
                    if case[1]:find "left" and rows[1] ~= 9 then return end
                    local w = flow.randn(case[2], {dtype = dtype}):requires_grad_()
                    local losses = {}
                    for i = 1, 3 do
                        local x = flow.randn(sizes, {dtype = dtype})
                        losses[i] = function() return case[3](x, w):square():sum() end
                    end
                    local got, want = both({w}, losses)
                    local tolerance = dtype == "bfloat16" and 2 or dtype == "float32" and 1e-3 or 1e-9
                    assert.is_true(flow.allclose(got[1]:to "float64", want[1]:to "float64", {atol = tolerance, rtol = tolerance / 10}))
                end)
            end
        end
    end

    it("from the second backward pass on, by the kernel itself", function()
        local w, x = flow.randn(16, 16):requires_grad_(), flow.randn(10, 16)
        local function pass() op.linear(x, w):sum():backward() end
        assert.is_nil(ops_of(pass):find("contract_rows_add", 1, true))
        assert.is_truthy(ops_of(pass):find("contract_rows_add", 1, true))
        local few = flow.randn(7, 16) -- of which a sum afterwards is faster
        assert.is_nil(ops_of(function() op.linear(few, w):sum():backward() end):find("contract_rows_add", 1, true))
    end)

    it("of several uses of a leaf within one pass", function()
        local w, x = flow.randn(16, 16):requires_grad_(), flow.randn(10, 16)
        local function loss() return x:matmul(w):tanh():matmul(w):tanh():matmul(w):sum() end
        assert.is_truthy(ops_of(function() loss():backward() end):find("gemm_add", 1, true))
        local got, want = both({w}, {loss, loss})
        assert.is_true(flow.allclose(got[1], want[1], {atol = 1e-4}))
        local y = flow.randn(12, 12):to("float64"):requires_grad_()
        assert.is_true(flow.gradcheck(function(t) return t:matmul(t):matmul(t) end, y:detach()))
    end)

    it("without memory for the product", function()
        local w, x = flow.randn(512, 512):requires_grad_(), flow.randn(16, 512)
        local function pass() op.linear(x, w):sum():backward() end
        pass()
        support.settled_memory("cpu")
        local before = flow.memory {device = "cpu"}.live_bytes
        flow.memory {device = "cpu", reset_peak = true}
        pass()
        assert.is_true(flow.memory {device = "cpu"}.peak_bytes - before < 512 * 512 * 4)
    end)

    it("but hooks, flow.grad and gradients with a graph see them apart", function()
        local w, x = flow.randn(16, 16):requires_grad_(), flow.randn(10, 16)
        local function loss() return op.linear(x, w):square():sum() end
        loss():backward()
        local first = w.grad:clone()
        assert.is_true(flow.allclose(flow.grad(loss(), w), first, {atol = 1e-4}))
        assert.is_true(w.grad == first)
        local seen
        w:register_hook(function(g) seen = g:clone() end)
        loss():backward()
        assert.is_true(flow.allclose(seen, first, {atol = 1e-4}))
        assert.is_true(flow.allclose(w.grad, first * 2, {atol = 1e-3}))
        local v = flow.randn(16, 16):requires_grad_()
        local function squares() return op.linear(x, v):square():sum() end
        squares():backward(nil, {create_graph = true})
        local slope = v.grad
        squares():backward(nil, {create_graph = true})
        assert.is_true(v.grad.requires_grad)
        assert.is_true(flow.allclose(v.grad:detach(), slope:detach() * 2, {atol = 1e-3}))
        v.grad = nil        -- its graph holds v: a cycle
    end)

    it("of a captured function as of the function itself", function()
        flow.manual_seed(5)
        local net = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 16))
        local xs = {}
        for i = 1, 6 do xs[i] = flow.randn(12, 24) end
        local function pass(x)
            local loss = net(x):square():mean()
            loss:backward()
            return loss:detach()
        end
        local function run(f)
            net:zero_grad()
            for i = 1, 6 do f(xs[i]) end
            local list = {}
            for _, p in net:named_parameters() do list[#list + 1] = p.grad:clone() end
            return list
        end
        local eager = run(pass)
        local captured = run(flow.capture(pass))
        for i = 1, #eager do assert.is_true(flow.allclose(eager[i], captured[i], {atol = 1e-6})) end
    end)
end)
