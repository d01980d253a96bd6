-- func_spec.lua -- flow.func.vmap, gradients of what is around a function, flow.autograd: what errors say. tests/peer has
-- the numbers beside PyTorch.
local flow = require "flow"
local support = require "tests.support"
local nn, func = flow.nn, flow.func

local message = support.message_of

describe("vmap", function()
    it("calls the function for each item and stacks what it returns", function()
        local calls = 0
        local f = flow.vmap(function(x, factor)
            calls = calls + 1
            return {sum = x:sum() * factor, label = calls}
        end, {in_dims = {0, false}})
        local y = f(flow.arange(6):view(3, 2), 10)
        assert.are.same({10, 50, 90}, y.sum:totable())
        assert.are.same({1, 2, 3}, y.label:totable())
    end)

    it("runs an ensemble of modules", function()
        flow.manual_seed(1)
        local nets = {nn.Linear(3, 2), nn.Linear(3, 2)}
        local parameters, buffers = func.stack_module_state(nets)
        assert.are.equal("2 2 3", table.concat(parameters.weight.shape, " "))
        assert.is_nil(next(buffers))
        local base, x = nets[1]:clone(), flow.randn(4, 3)
        local y = flow.vmap(function(p) return func.functional_call(base, p, x) end)(parameters)
        for i, net in ipairs(nets) do flow.testing.assert_close(net(x), y[i - 1]) end
        y:sum():backward()
        assert.are.same({{4, 4}, {4, 4}}, parameters.bias.grad:totable())
    end)

    it("draws random numbers as it is told", function()
        local x = flow.zeros(4, 8)
        local function draw(row) return row + flow.rand(8) end
        assert.are.equal('vmap: the function draws random numbers; write randomness = "different" or "same"',
            message(function() flow.vmap(draw)(x) end))
        local same = flow.vmap(draw, {randomness = "same"})(x)
        assert.is_true(flow.equal(same[0], same[3]))
        local different = flow.vmap(draw, {randomness = "different"})(x)
        assert.is_false(flow.equal(different[0], different[3]))
    end)

    it("refuses what is no batch", function()
        local function same(x) return x end
        for want, f in pairs {
            ["func.stack_module_state: entry 2 must be a module, got 3"] = function()
                func.stack_module_state {nn.Linear(2, 3), 3}
            end,
            ["vmap: the axes of the items have sizes 2 and 3"] = function()
                flow.vmap(function(x, y) return x + y end)(flow.ones(2), flow.ones(3))
            end,
            ["vmap: in_dims has axis 1 for a tensor [2]"] = function() flow.vmap(same, {in_dims = 1})(flow.ones(2)) end,
            ["vmap: in_dims has 2 entries for 1 arguments"] = function() flow.vmap(same, {in_dims = {0, 0}})(flow.ones(2)) end,
            ["vmap: in_dims names no axis of a tensor"] = function() flow.vmap(same, {in_dims = {false}})(flow.ones(2)) end,
            ["vmap: the batch is empty"] = function() flow.vmap(same)(flow.ones(0, 2)) end,
            ["vmap: the function must return tensors, numbers or tables of them, got 'x'"] = function()
                flow.vmap(function() return "x" end)(flow.ones(2))
            end,
        } do assert.are.equal(want, message(f)) end
    end)
end)

describe("gradients of functions", function()
    it("are differentiable by what the function has used from around it", function()
        local w = flow.tensor({2.0, 3}, {requires_grad = true})
        local g = func.grad(function(x) return (w * x * x):sum() end)(flow.tensor {1.0, 2})
        g:sum():backward()
        assert.are.same({2, 4}, w.grad:totable())
        assert.is_false(func.grad(function(x) return (x * x):sum() end)(flow.tensor {1.0}).requires_grad)
        assert.is_false(flow.no_grad(func.grad(function(x) return (w * x):sum() end), flow.tensor {1.0, 2}).requires_grad)
    end)
end)

describe("flow.autograd", function()
    it("has functions of functions, detached unless told otherwise", function()
        local x = flow.tensor({1.0, 2}, {requires_grad = true})
        local F = flow.autograd.functional
        local function square(t) return t * t end
        assert.is_false(F.jacobian(square, x).requires_grad)
        assert.is_true(F.jacobian(square, x, {create_graph = true}).requires_grad)
        local rows = F.hessian(function(a, b) return (a * b):sum() end, {x, x})
        assert.are.same({{1, 0}, {0, 1}}, rows[1][2]:totable())
        for _, inputs in ipairs {x, {x}} do
            assert.are.equal("autograd.functional.hessian: the function must return a tensor with one element, got [2]",
                message(function() F.hessian(square, inputs) end))
        end
        assert.are.equal("autograd.functional.vjp: v may be left out where the result has one element only",
            message(function() F.vjp(square, x) end))
        for _, name in ipairs {"jvp", "hvp", "vhp"} do
            assert.are.equal(("autograd.functional.%s: v may be left out where the input has one element only"):format(name),
                message(function() F[name](square, x) end))
        end
        assert.are.equal("autograd.functional.vhp: the function must return a tensor with one element, got [2]",
            message(function() F.vhp(square, x, x) end))
        local _, product = F.vhp(function(t) return t:pow(3):sum() end, x, flow.tensor {1.0, 0})
        assert.are.same({6, 0}, product:totable())
        assert.are.equal("autograd.backward: tensor 1 is [2]; grad_tensors must have its gradient",
            message(function() flow.autograd.backward(x) end))
    end)
end)

describe("set_grad_enabled", function()
    it("holds for a function, until closed, or from there on", function()
        assert.is_false(flow.set_grad_enabled(false, flow.is_grad_enabled))
        do
            local _ <close> = flow.set_grad_enabled(false)
            assert.is_false(flow.is_grad_enabled())
        end
        assert.is_true(flow.is_grad_enabled())
        flow.set_grad_enabled(false)
        assert.is_false(flow.is_grad_enabled())
        flow.set_grad_enabled(true)
        assert.are.equal("set_grad_enabled: enabled must be true or false, got number",
            message(function() flow.set_grad_enabled(1) end))
    end)
end)

describe("flow.autograd.gradgradcheck", function()
    local x = flow.tensor({0.5, -1.5}, {dtype = "float64"}):requires_grad_()
    local message_of = require("tests.support").message_of

    it("compares gradients of two orders with differences", function()
        assert.is_true(flow.autograd.gradgradcheck(function(y) return y ^ 3 end, x))
        local detached = flow.autograd_function(function(ctx, y)
            ctx:save(y)
            return y ^ 3
        end, function(ctx, g) return g * (ctx.saved[1]:square() * 3):detach() end)
        assert.is_true(flow.autograd.gradcheck(detached, x))
        assert.is_truthy(message_of(function() flow.autograd.gradgradcheck(detached, x) end):find("gradgradcheck: derivative 2 of input 1", 1, true))
    end)
end)
