-- function_spec.lua -- a backward in Lua, hooks of modules, gradient checks, the first NaN of a backward.
local flow = require "flow"
local support = require "tests.support"
local nn = flow.nn
local fails, message_of = support.fails, support.message_of

local function leaf(...) return flow.tensor({...}, {requires_grad = true}) end
local function double(...) return flow.tensor({...}, {dtype = "float64"}) end

-- x^2 by a function of its own.
local function square_of(counter)
    return flow.autograd_function {
        name = "square",
        forward = function(ctx, x) ctx:save(x) return x * x end,
        backward = function(ctx, g)
            if counter then counter[1] = counter[1] + 1 end
            return g * ctx.saved[1] * 2
        end,
    }
end

describe("flow.autograd_function", function()
    local square = square_of()

    it("gives the gradient that backward returns", function()
        local x = leaf(1.0, 2.0, 3.0)
        local y = square(x)
        assert.is_true(y.requires_grad)
        assert.is_false(y.is_leaf);
        (y * flow.tensor {1.0, 10.0, 100.0}):sum():backward()
        assert.are.same({2, 40, 600}, x.grad:totable())
    end)

    it("has gradients of gradients where backward is made of ops", function()
        assert.is_true(flow.gradcheck(square, double(1, -2, 3), {order = 2}))
        local sigmoid = flow.autograd_function {
            forward = function(ctx, x) local y = x:sigmoid(); ctx:save(y); return y end,
            backward = function(ctx, g) return g * ctx.saved[1] * (1 - ctx.saved[1]) end,
        }
        assert.is_true(flow.gradcheck(sigmoid, double(0.3, -2), {order = 2}))
    end)

    it("takes any arguments, gives several results, and knows which gradients are needed", function()
        local needs
        local f = flow.autograd_function {
            forward = function(ctx, x, factor, y, labels)
                ctx.factor = factor
                ctx:save(x, y, (x * y))
                return x * factor, y + x, labels
            end,
            backward = function(ctx, g, h, k)
                needs = {table.unpack(ctx.needs)}
                assert.are.equal("int64", k.dtype)
                return g * ctx.factor + h, nil, ctx.needs[3] and h or nil
            end,
        }
        local x, y = leaf(1.0, 2.0), flow.tensor {3.0, 4.0}
        local a, b, labels = f(x, 5, y, flow.tensor {1, 2})
        assert.are.same({5, 10}, a:totable())
        assert.are.equal("int64", labels.dtype)
        b:sum():backward() -- nothing used a: its gradient is zeros
        assert.are.same({1, 1}, x.grad:totable())
        assert.are.same({true, false, false, false}, needs)
        y.requires_grad = true
        a, b = f(x, 5, y, flow.tensor {1, 2});
        (a:sum() + b:sum()):backward()
        assert.are.same({1, 1}, y.grad:totable())
    end)

    it("hands back an argument as a tensor of its own", function()
        local reverse = flow.autograd_function {
            forward = function(_, x) return x end, backward = function(_, g) return -g end,
        }
        local x = leaf(1.0, 2.0)
        local y = reverse(x)
        assert.is_false(rawequal(x, y))
        y:sum():backward()
        assert.are.same({-1, -1}, x.grad:totable())
        y:mul_(3)
        assert.are.same({1, 2}, x:detach():totable())
    end)

    it("records nothing without a gradient to give", function()
        assert.is_false(square(flow.ones(2)).requires_grad)
        assert.is_false(flow.no_grad(square, leaf(1.0)).requires_grad)
    end)

    it("frees what it saved with the graph", function()
        local f = flow.autograd_function {
            forward = function(ctx, x) local y = x * 2; ctx:save(y, x); return y end,
            backward = function(_, g) return g * 2 end,
        }
        local x = leaf(1.0)
        local before = support.settled_memory "cpu"
        for _ = 1, 50 do f(x) end
        f(x):backward()
        x.grad = nil
        local after = support.settled_memory "cpu"
        assert.are.equal(before.tensors, after.tensors)
    end)

    it("runs in flow.checkpoint, in coroutines and twice with retain_graph", function()
        local counter = {0}
        local f = square_of(counter)
        local x = leaf(1.0, 2.0)
        flow.checkpoint(function(t) return f((t * 2):exp():log()) end, x):sum():backward()
        flow.testing.assert_close(x.grad, flow.tensor {8.0, 16.0})
        local y = coroutine.wrap(function() return f(x):sum() end)()
        y:backward(nil, {retain_graph = true})
        y:backward()
        assert.are.equal(3, counter[1])
        fails("backward: the graph of sum has been freed by an earlier backward", y.backward, y)
    end)

    it("is a part of what flow.capture replays", function()
        local counter = {0}
        local f, w = square_of(counter), leaf(1.0, 2.0)
        local step = flow.capture(function(x)
            w.grad = nil
            f(w * x):sum():backward()
            return w.grad
        end)
        for i = 1, 4 do
            local g = step(flow.tensor {1.0 * i, 1.0})
            assert.are.same({2.0 * i * i, 4}, g:totable())
        end
        assert.is_true(counter[1] <= 2, "backward ran at every call")
    end)

    it("is refused by flow.trace where gradients are recorded", function()
        fails("square: a program keeps ops, and no backward in Lua; call it inside flow.no_grad(), or make an op of it " ..
            "with flow.op", flow.trace, function(x) return square(x) end, {flow.spec {2}})
        local p = flow.trace(function(x) return flow.no_grad(square, x) end, {flow.spec {2}})
        assert.are.same({9, 4}, p(flow.tensor {3.0, 2.0}):totable())
    end)

    it("finds what was changed in place", function()
        local x = leaf(1.0, 2.0)
        local y = x * 1
        local z = square(y)
        y:mul_(2)
        assert.is_truthy(message_of(function() z:sum():backward() end):find("of square (float32[2]), needed for its gradient, was changed in place", 1, true))
    end)

    it("refuses what cannot be", function()
        fails("autograd_function: missing argument 'backward'", flow.autograd_function, {forward = print})
        fails("autograd_function: unknown option 'backwards'; did you mean 'backward'?", flow.autograd_function,
            {forward = print, backwards = print})
        fails("autograd_function: forward must be a function, got 1", flow.autograd_function, 1, print)
        local x = leaf(1.0, 2.0)
        local function try(forward, backward)
            local y = flow.autograd_function {forward = forward, backward = backward or function(_, g) return g end}(x)
            y:sum():backward()
        end
        fails("autograd_function: forward must return 1 to 4 tensors, got 0 values", try, function() end)
        fails("autograd_function: forward must return tensors, result 1 is 3", try, function() return 3 end)
        fails("autograd_function: forward changed argument 1 in place; let it work on a clone()", try,
            function(_, t) return t:mul_(2) + 1 end)
        fails("autograd_function: ctx.kept is a tensor; keep it with ctx:save(...), for backward in ctx.saved", try,
            function(ctx, t) ctx.kept = t; return t * 2 end)
        for _, key in ipairs {"save", "saved", "needs"} do
            fails("autograd_function: ctx." .. key .. " is not for forward to set; keep tensors with ctx:save(...)", try,
                function(ctx, t) ctx[key] = 5; return t * 2 end)
        end
        fails("save: argument 2 must be a tensor, got 3", try, function(ctx, t) ctx:save(t, 3); return t * 2 end)
        fails("save: called before; write one ctx:save(...) with all tensors", try, function(ctx, t)
            ctx:save(t)
            ctx:save(t)
        end)
        fails("save: a method is called with a colon, ctx:save(...)", try, function(ctx, t) ctx.save(t) end)
        local function twice(_, t) return t * 2 end
        fails("error in the backward of autograd_function: ", try, twice, function() error "no" end)
        fails("it returned float32[3] (local) as the gradient of float32[2] (local)", try, twice, function() return flow.ones(3) end)
        fails("it must return tensors or nil as gradients, got boolean", try, twice, function() return true end)
        fails("it must return a gradient for each of the 1 argument of forward, got 2", try, twice, function(_, g) return g, g end)
        fails("it returned nothing; it must return a gradient for each argument of forward, nil for none", try, twice, function() end)
        local product = flow.autograd_function {forward = function(_, a, b) return a * b end, backward = function(_, g) return g end}
        local a, b = flow.ones(2, {requires_grad = true}), flow.ones(2, {requires_grad = true})
        fails("it must return a gradient for each argument of forward, nil for none; it returned 1, argument 2 needs one",
            function() product(a, b):sum():backward() end)
        product(a, 2):sum():backward()                  -- a number needs none
        assert.are.same({1, 1}, a.grad:totable())
        fails("save: forward saves; backward finds it in ctx.saved", try, twice, function(ctx, g) ctx:save(g) end)
    end)
end)

describe("forward hooks", function()
    local function net() return nn.Sequential(nn.Linear(2, 3), nn.ReLU()) end

    it("see and replace arguments and results, in order, until they are removed", function()
        local n, seen = net(), {}
        local x = flow.ones(1, 2)
        local plain = n(x)
        local first = n[2]:register_forward_hook(function(m, args, y)
            seen[#seen + 1] = {tostring(m), args.n, args[1].shape[2]}
            return y + 1
        end)
        local second = n[2]:register_forward_hook(function(_, _, y) return y * 2 end)
        local before = n[1]:register_forward_pre_hook(function(m, t)
            assert.are.equal(n[1], m)
            return t * 0
        end)
        assert.are.same({{"ReLU()", 1, 3}}, (function() n(x); return seen end)())
        assert.are.equal(((n[1].bias:relu() + 1) * 2):unsqueeze(0), n(x))
        before:remove()
        assert.are.equal((plain + 1) * 2, n(x))
        first:remove()
        second:remove()
        second:remove()
        assert.are.equal(plain, n(x))
        assert.are.equal(2 + 1, #seen)
    end)

    it("come before those there are with prepend", function()
        local n, order = nn.Linear(1, 1), {}
        local function note(word) return function() order[#order + 1] = word end end
        n:register_forward_hook(note "after 2")
        n:register_forward_hook(note "after 1", {prepend = true})
        n:register_forward_pre_hook(note "before 2")
        n:register_forward_pre_hook(note "before 1", {prepend = true})
        n:register_forward_hook(note "after 3", {prepend = false})
        n:register_full_backward_hook(note "backward 2")
        n:register_full_backward_hook(note "backward 1", {prepend = true})
        n(flow.ones(1, 1)):backward()
        assert.are.equal("before 1, before 2, after 1, after 2, after 3, backward 1, backward 2", table.concat(order, ", "))
        assert.are.equal("register_forward_hook: unknown option 'prepnd'; did you mean 'prepend'?",
            support.message_of(function() n:register_forward_hook(print, {prepnd = true}) end))
    end)

    it("end with the scope that closes their handle", function()
        local n, count = net(), 0
        local x = leaf(1.0, 2.0)
        do
            local hook <close> = n:register_forward_hook(function() count = count + 1 end) -- luacheck: ignore hook
            local of_gradient <close> = x:register_hook(function() count = count + 10 end) -- luacheck: ignore of_gradient
            n(flow.ones(1, 2))
            x:sum():backward()
        end
        n(flow.ones(1, 2))
        x:sum():backward()
        assert.are.equal(11, count)
    end)

    it("may remove themselves, and keep what they are given by returning nothing", function()
        local n, count, handle = net(), 0, nil
        handle = n:register_forward_hook(function() count = count + 1; handle:remove() end)
        n(flow.ones(1, 2))
        n(flow.ones(1, 2))
        assert.are.equal(1, count)
    end)

    it("make a captured step record anew", function()
        local n = net()
        local f = flow.capture(function(x) return flow.no_grad(n, x) end)
        local x = flow.ones(1, 2)
        for _ = 1, 3 do f(x) end
        local handle = n:register_forward_hook(function(_, _, y) return y + 1 end)
        assert.are.equal(flow.no_grad(n, x), f(x))
        handle:remove()
        assert.are.equal(flow.no_grad(n, x), f(x))
    end)

    it("refuse what is no function", function()
        local n = net()
        fails("register_forward_hook: f must be a function, got 1", n.register_forward_hook, n, 1)
        fails("register_forward_pre_hook: missing argument 'f'", n.register_forward_pre_hook, n)
        fails("register_forward_hook: a method is called with a colon, net:register_forward_hook(); got function as the net",
            n.register_forward_hook, print)
        local handle = n:register_forward_hook(print)
        fails("remove: a method is called with a colon, handle:remove(); got nil as the handle", handle.remove)
    end)
end)

describe("flow.gradcheck", function()
    it("says that several inputs go in a list", function()
        local x = double(2)
        fails("gradcheck: options must be a table with names, got float64 tensor; several inputs go in a list: gradcheck(f, {x, y})",
            flow.gradcheck, flow.mul, x, x)
        fails("; several inputs go in a list: gradcheck(f, {x, y})", flow.gradcheck, flow.mul, x, x, {eps = 1e-4})
        assert.is_true(flow.gradcheck(flow.mul, {x, x}))
    end)

    it("finds a wrong gradient, of the first and of the second order", function()
        local message = message_of(flow.gradcheck, function(x) return x:detach() * x end, double(2))
        assert.are.equal("gradcheck: derivative 1 of input 1 at 0 is 0.141474403, differences give 0.282948807", message)
        local cube = flow.autograd_function { -- right but for its own gradient
            forward = function(ctx, x) ctx:save(x); return x ^ 3 end,
            backward = function(ctx, g) return g * 3 * (ctx.saved[1]:detach() ^ 2) end,
        }
        assert.is_true(flow.gradcheck(cube, double(2)))
        fails("cube: derivative 2 of input 1 at 0 is", flow.gradcheck, cube, double(2), {order = 2, what = "cube"})
    end)

    it("takes lists with other values among them, and global tensors", function()
        assert.is_true(flow.gradcheck(function(x, k, y) return x * k, x:matmul(y) end,
            {flow.randn(2, 3):to "float64", 3, flow.randn(3, 2):to "float64"}, {order = 2}))
        local everywhere = {placement = flow.placement("cpu", {0}), sbp = "S(0)"}
        assert.is_true(flow.gradcheck(function(x) return x:exp() end, double(1, 2, 3):to_global(everywhere)))
    end)

    it("refuses what it cannot check", function()
        fails('gradcheck: input 1 is float32, too coarse for differences; write x:to "float64"', flow.gradcheck, print, flow.ones(2))
        fails("gradcheck: no input is a float64 tensor", flow.gradcheck, print, {1, 2})
        fails("gradcheck: f must return a float64 tensor", flow.gradcheck, function() end, double(1))
        fails("gradcheck: no result of f requires grad: it is cut off from the inputs", flow.gradcheck,
            function(x) return x:detach() end, double(1))
        fails("gradcheck: eps must be a number >= 1e-12, got 0", flow.gradcheck, flow.sin, double(1), {eps = 0})
        fails("gradcheck: tolerance must be a number >= 0, got -1", flow.gradcheck, flow.sin, double(1), {tolerance = -1})
        fails("gradcheck: order must be a whole number in [1, 2], got 3", flow.gradcheck, print, double(1), {order = 3})
    end)
end)

describe("flow.detect_anomaly", function()
    it("names the op and the line whose gradient made the first NaN", function()
        local function step()
            local x = leaf(0.0, 1.0)
            local y = x:sqrt() * 0 -- this line
            y:sum():backward()
        end
        local line = debug.getinfo(step, "S").linedefined + 2
        local message = message_of(flow.detect_anomaly, step)
        assert.are.equal(("detect_anomaly: the gradient of sqrt (tests/function_spec.lua:%d) for its operand 0 " ..
            "(float32[2]) is the first with NaN"):format(line), (message:gsub("%(%S*tests/", "(tests/")))
        step()
        assert.is_truthy(message_of(flow.detect_anomaly, function() leaf(0.0):log():backward() end):find("the gradient of log", 1, true))
        assert.is_truthy(message_of(flow.detect_anomaly, function() leaf(0.0):log():backward() end):find("an infinity", 1, true))
    end)

    it("is a scope, and names a function with a backward in Lua", function()
        local bad = flow.autograd_function {
            name = "bad", forward = function(_, x) return x * 2 end, backward = function(_, g) return g / 0 end,
        }
        local function step()
            local _ <close> = flow.detect_anomaly()
            bad(leaf(1.0)):sum():backward()
        end
        fails("the gradient of bad (", step)
        fails("detect_anomaly: takes a function, or nothing", flow.detect_anomaly, 1)
        local function infinite() leaf(0.0):log():backward() end
        flow.autograd.set_detect_anomaly(true)
        fails("the gradient of log", infinite)
        flow.set_detect_anomaly(false, infinite)
        fails("the gradient of log", infinite)
        flow.set_detect_anomaly(false)
        infinite()
        fails("set_detect_anomaly: mode must be true or false, got number", flow.set_detect_anomaly, 1)
    end)

    it("says that a captured step cannot be watched", function()
        local w = leaf(1.0)
        fails("capture: the value of a tensor is read", flow.detect_anomaly, flow.capture(function(x) (w * x):sum():backward() end), flow.ones(1))
    end)
end)

describe("comparing tensors", function()
    it("flow.equal, flow.allclose", function()
        local x = flow.tensor {1.0, 2.0}
        assert.is_true(flow.equal(x, flow.tensor {1, 2}))
        assert.is_false(flow.equal(x, flow.tensor {{1.0, 2.0}}))
        assert.is_true(flow.allclose(x, x + 1e-6))
        assert.is_false(flow.allclose(x, x + 1e-3))
        assert.is_true(flow.allclose(x, x + 1e-3, {atol = 1e-2}))
        local odd = flow.tensor {0 / 0, math.huge}
        assert.is_false(flow.allclose(odd, odd))
        assert.is_true(flow.allclose(odd, odd, {equal_nan = true}))
        assert.is_false(flow.allclose(x, flow.tensor {1.0, math.huge}))
        assert.is_true(flow.allclose(flow.zeros(0), flow.zeros(0)))
        fails("allclose: y must be a tensor, got 1", flow.allclose, x, 1)
        fails("allclose: rtol must be a number >= 0, got -1", flow.allclose, x, x, {rtol = -1})
    end)

    it("flow.testing.assert_close says what differs", function()
        local close = flow.testing.assert_close
        local x = flow.tensor {{1.0, 2.0}, {3.0, 0 / 0}}
        close(x, x + 1e-6)
        close(0.1 + 0.2, 0.3)
        fails("assert_close: its shape is [2, 2], expected [2]", close, x, flow.ones(2))
        fails("assert_close: its dtype is float32, expected float64", close, x, x:to "float64")
        fails("assert_close: it is local, expected a global (B) one", close, x,
            x:to_global {placement = flow.placement("cpu", {0}), sbp = "B"})
        fails("weights: 1 of 4 elements differ; at [1, 0] it is 3, expected 3.5 (rtol 0, atol 0.1)", close, x,
            flow.tensor {{1.0, 2.0}, {3.5, 0 / 0}}, {atol = 0.1, what = "weights"})
        fails("assert_close: 1 of 2 elements differ; at [1] it is 2, expected 3 (rtol 0, atol 0)", close, flow.tensor {1, 2}, flow.tensor {1, 3})
        fails("testing has no 'assert_clos'; did you mean 'assert_close'?", function() return flow.testing.assert_clos end)
    end)
end)
