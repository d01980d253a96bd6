-- formula_spec.lua -- elementwise ops from one line: values, gradients and signatures against the ops they are made of.
local flow = require "flow"
local support = require "tests.support"
local fails = support.fails

local count = 0
local function define(formula, more)
    count = count + 1
    local def = {name = "formula" .. count, formula = formula}
    for key, value in pairs(more or {}) do def[key] = value end
    return flow.op(def), def.name
end

describe("a formula", function()
    it("is a function and a method with attributes, in place too", function()
        local f, name = define("x * sigmoid(beta * x)", {attrs = "beta: float = 1"})
        local x = flow.randn(5)
        assert.is_true(flow.allclose(f(x, 2), x * (x * 2):sigmoid(), {rtol = 1e-6}))
        assert.is_true(flow.allclose(x[name](x), f(x, {beta = 1})))
        assert.are.equal(name .. "(x, beta: float = 1)\n    Elementwise: x * sigmoid(beta * x)\n    has a gradient; in place: x:" ..
            name .. "_()", require("flow.help").of_callable(f))
        local y = x:clone()
        assert.is_true(rawequal(y, y[name .. "_"](y, 3)))
        assert.are.equal(f(x, 3), y)
        assert.are.equal("float32", f(flow.tensor {1, 2}).dtype)
        assert.are.equal("float16", f(x:to "float16").dtype)
    end)

    for _, text in ipairs {
        "x", "-x", "x + 1", "x + y", "x^3 - y^2", "where(x > y, x, y * 2)", "clamp(x, 0.7, 1)", "gelu(x) / y", "atan2(x, y)",
        "exp(-x^2) * y", "maximum(x, y)", "leaky_relu(x - 1, 0.2)", "x * y * x / (1 + y)", "log(x) * k", "masked_fill(x, x > 1, 3)",
        "softplus(x * k) + erf(y)", "x ^ y", "2 ^ x", "tanh(x) * tanh(x)", "lerp(x, y, 0.3)", "x * (k * 2 + exp(k))", "relu(x - k) * pi",
        "where(logical_and(x > 0.7, y <= 1), x, 0)", "abs(x - y) + floor(x)", "x * (y > 1)", "1 / (1 + exp(-k * (x - y)))",
        "x > 0.5", "(x > 0) * (y < 1)",
    } do
        it("passes the tests of built-in ops: " .. text, function()
            local _, name = define(text, text:find "%f[%w]k%f[%W]" and {attrs = "k: float = 1.5"})
            assert.is_true(flow.testing.check_op(name))
        end)
    end

    it("gives small, large and strided operands the same bits", function()
        local f = define "x * sigmoid(x + y) - exp(-y)"
        local x, y = flow.randn(300, 200), flow.randn(300, 1)
        local large = f(x, y)
        assert.are.equal(large:narrow(0, 7, 3), f(x:narrow(0, 7, 3), y:narrow(0, 7, 3)))
        assert.are.equal(large, f(support.strided(x), y))
        assert.are.equal(large:t(), f(x:t(), y:t()))
        assert.are.same({}, f(flow.zeros(0), flow.zeros(0)):totable())
        assert.are.equal(f(x, 2), f(x, flow.full({300, 200}, 2)))
        local before = flow._testing.engine "auto"
        local text = tostring(flow.explain(function() return f(x, y):sum() end)) -- in one pass with what reads it
        flow._testing.engine(before)
        assert.is_truthy(os.getenv "FLOW_FUSE" == "0" or text:find("one pass of 60000 elements, 1 of", 1, true), text)
    end)

    it("is one op of a captured and of a traced program", function()
        local f, name = define "x * tanh(softplus(x))"
        local step = flow.capture(function(x) return f(x):sum() end)
        for _ = 1, 3 do
            local x = flow.randn(9)
            assert.are.equal(f(x):sum(), step(x))
        end
        local p = flow.trace(function(x) return f(x):sum() end, {flow.spec({3}, {requires_grad = true})})
        local x = flow.randn(3, {requires_grad = true})
        f(x):sum():backward()
        assert.is_true(flow.allclose(x.grad, (p:backward()(x:detach()))))
        assert.is_truthy(tostring(p:backward()):find(name .. "_grad_x", 1, true))
    end)

    it("has gradients of long formulas, of the third order, and of its own", function()
        local long = "x"
        for i = 1, 8 do long = ("tanh(%s * 0.5 + x / %d)"):format(long, i) end
        local f = define(long .. " + 2 ^ x * sinh(k)", {attrs = "k: float = 0.5"})
        assert.is_true(flow.gradcheck(f, flow.randn(3):to "float64", {order = 2}))
        local cube = define "x^4"
        local x = flow.tensor({2.0}, {requires_grad = true})
        local g = flow.grad(cube(x), x, {create_graph = true})
        local h = flow.grad(g, x, {create_graph = true})
        assert.are.equal(48, flow.grad(h, x):item())
        local through = define("round(x)", {backward = {"g"}})
        through(x):sum():backward()
        assert.are.equal(1, x.grad:item())
        assert.is_false(define("x * 2", {backward = false})(x).requires_grad)
        x.grad = nil
    end)

    it("keeps what its gradients would compute again", function()
        local f, name = define("x * sigmoid(beta * x) + tanh(y) * exp(x)", {attrs = "beta: float = 1"})
        local function ops(x, y, beta)
            if not flow.is_tensor(y) then y = flow.tensor(y, {dtype = x.dtype}) end
            return x * flow.sigmoid(x * (beta or 1)) + flow.tanh(y) * flow.exp(x)
        end
        local function gradients(g, x, y, ...)
            x, y = x:clone():requires_grad_(), flow.is_tensor(y) and y:clone():requires_grad_() or y
            local out = g(x, y, ...)
            out:square():sum():backward()
            return {out:detach(), x.grad, flow.is_tensor(y) and y.grad or flow.zeros(1)}
        end
        local options = {atol = 1e-5, rtol = 1e-5}
        for _, n in ipairs {1, 5, 700, 1024, 3000, 40000} do
            for _, dtype in ipairs {"float32", "float64"} do
                local x, y = flow.randn(n, {dtype = dtype}), flow.randn(n, {dtype = dtype})
                for _, case in ipairs {{x, y, 1}, {x, y, 1.5}, {x, x, 2}, {x, 0.5, 1}, {x, y:narrow(0, 0, 1), 1}, {x:view(-1, 1), y:narrow(0, 0, 1), 3}} do
                    local got, want = gradients(f, table.unpack(case)), gradients(ops, table.unpack(case))
                    for i = 1, 3 do assert.is_true(flow.allclose(got[i], want[i], options), ("%d %s"):format(n, dtype)) end
                end
            end
        end
        local x, y = flow.randn(4):to "float64", flow.randn(4):to "float64"
        assert.is_true(flow.gradcheck(f, {x, y}, {order = 2}))
        local low = flow.randn(9):to "bfloat16"
        assert.is_true(flow.allclose(gradients(f, low, low)[2]:to "float32", gradients(ops, low, low)[2]:to "float32", {atol = 0.2, rtol = 0.1}))
        local everywhere = {placement = flow.placement("cpu", {0}), sbp = "S(0)"}
        local whole = gradients(f, x:to_global(everywhere), y:to_global(everywhere))
        assert.is_true(flow.allclose(whole[2]:to_local(), gradients(f, x, y)[2]))
        local saved = flow.explain(function() f(x:requires_grad_(), y):sum():backward() end)
        x.requires_grad = false
        assert.is_truthy(tostring(saved):find(name .. "_grad_x_kept", 1, true), tostring(saved))
    end)

    it("gives what its ops give, and gradients of zeros", function()
        local names = setmetatable({pi = math.pi}, {__index = flow})
        local function both(text, values)
            local list = {}
            for i, f in ipairs {define(text), function(x)
                names.x = x
                return load("return " .. text, text, "t", names)()
            end} do
                local x = flow.tensor(values, {requires_grad = true})
                local y = f(x)
                y:sum():backward()
                list[2 * i - 1], list[2 * i] = tostring(y:detach()), tostring(x.grad)
            end
            assert.are.equal(list[3], list[1], text)
            assert.are.equal(list[4], list[2], text)
        end
        for _, text in ipairs {
            "x * 1e30 * 1e30", "1 / (0 - x)", "1 / (x + 0)", "1 / (x - 0)", "x * 0.1 * 3 * 1e8", "x ^ 2", "x ^ 0", "x ^ 1", "x * 2 * 3",
            "floor(x)", "ceil(x) + x", "round(x)", "trunc(x)", "sign(x)", "0 * x", "x - x", "sqrt(x) * 0", "floor(sqrt(x))", "0 / x",
        } do both(text, {0.0, -0.0, 1.7, 3e19}) end
        local x = flow.tensor({-2.0}, {requires_grad = true})
        local g = flow.grad(define "abs(x)"(x), x, {create_graph = true})
        assert.are.equal(0, flow.grad(g, x):item())
    end)

    it("promotes integers, bools and conditions as its ops do", function()
        local x, y = flow.tensor({16777217, 9007199254740993}, {dtype = "int64"}), flow.tensor({1.5, -2.0}, {dtype = "float16"})
        local m, f = flow.tensor {true, false}, flow.tensor {1.0, 4.0}
        for _, case in ipairs {
            {"x + 1", x + 1, x}, {"x * 2 - 1", x * 2 - 1, x}, {"x * 1.0", x * 1.0, x}, {"x / 1", x / 1, x}, {"x", x, x}, {"abs(x)", x:abs(), x},
            {"x ^ 2", (x - x + 3) ^ 2, x - x + 3}, {"x < 3", f:lt(3), f}, {"x < 9007199254740993", x:lt(9007199254740993), x},
            {"tanh(x) + y", x:tanh() + y, x, y}, {"x + y", x + y, x, y}, {"where(m, x, y)", flow.where(m, x, f), m, x, f},
            {"where(x > 16777217, x, 0)", flow.where(x:gt(16777217), x, 0), x}, {"(x > 2) * y", flow.gt(f, 2) * f, f, f},
            {"x * m", f * m, f, m}, {"exp(x)", x:exp(), x}, {"logical_and(x > 2, y < 5)", f:gt(2):logical_and(f:lt(5)), f, f},
            {"x * k", x * 3, x, 3}, {"(x > 0) + (x > 2)", f:gt(0) + f:gt(2), f}, {"x * ((x > 0) + (x > 2))", f * (f:gt(0) + f:gt(2)), f},
            {"maximum(x > 5, x > 2) * x", f:gt(2) * f, f}, {"where(x > 2, x > 3, x > 0) + x", flow.where(f:gt(2), f:gt(3), f:gt(0)) + f, f},
        } do
            local op = define(case[1], {attrs = case[1] == "x * k" and "k: int = 1" or nil})
            local got = op(table.unpack(case, 3))
            assert.are.equal(case[2].dtype, got.dtype, case[1])
            assert.are.equal(tostring(case[2]), tostring(got), case[1])
            assert.are.equal(case[2], got, case[1])
        end
        local same = define "x"
        same(x):add_(1)
        assert.are.equal(16777217, x[0]:item())
        local g = flow.tensor({2.0}, {requires_grad = true})
        define "x * y"(flow.tensor {3}, g):backward()
        assert.are.equal(3, g.grad:item())
        local _, name = define "x + 1"
        fails("a formula of integers has no loop in place; write x:copy_(" .. name .. "(x))", function() x[name .. "_"](x) end)
    end)

    it("takes its operands from sig, too", function()
        local f = define("y - x", {sig = ("formula%d(x, y|n)"):format(count + 1)})
        assert.are.same({2, 1}, f(flow.tensor {1.0, 2.0}, 3):totable())
    end)

    it("names the place of an error", function()
        local function bad(message, formula, more)
            fails(message, define, formula, more)
        end
        bad("op: formula 'x *', character 4: a name, a number or ( is expected, got 'the end'", "x *")
        bad("op: formula 'sgmoid(x)', character 1: unknown function 'sgmoid'; did you mean 'sigmoid'?", "sgmoid(x)")
        bad("op: formula 'x + (y', character 7: ) is expected, got 'the end'", "x + (y")
        bad("op: formula 'x $ y', character 3: an operator is expected, got '$'", "x $ y")
        bad("op: formula '1 + 2': has no operand", "1 + 2")
        bad("op: formula 'clamp(x, x)', character 1: min of clamp must be a number or an attribute", "clamp(x, x)")
        bad("op: formula 'exp(x, 1)', character 1: exp(x) takes 1 argument, got 2", "exp(x, 1)")
        bad("op: formula '1.2.3 * x', character 1: '1.2.3' is no number", "1.2.3 * x")
        bad("op: formula 'x * sum(x)', character 5: 'sum' is not elementwise; an op with forward may call it", "x * sum(x)")
        bad("op: formula 'max(x, y)', character 1: unknown function 'max'; write maximum(x, y)", "max(x, y)")
        bad("op: formula 'x % 2', character 3: an operator is expected, got '%'; write remainder(x, y)", "x % 2")
        bad("op: formula 'x and y', character 3: an operator is expected, got 'and'; write logical_and(x, y)", "x and y")
        bad("op: formula 'where(x != y, x, y)', character 9: ) is expected, got '!'; write ~=", "where(x != y, x, y)")
        bad("op: formula 'x * beat': does not use the attribute 'beta'; did you mean 'beat'?", "x * beat", {attrs = "beta: float = 1"})
        bad("op: formula 'tanh_backward(x, x)', character 1: unknown function 'tanh_backward'", "tanh_backward(x, x)")
        bad("op: formula '', character 1: a name, a number or ( is expected, got 'the end'", "")
        bad("character 5: unknown name 'z'", "x + z", {sig = ("formula%d(x)"):format(count + 1)})
        bad("op: attribute 'k' of a formula must be a number", "x * k", {attrs = "k: dtype"})
        bad("an unknown type", "x * k", {attrs = "k: flot"})
        bad("op: attrs are part of sig; write one of them", "x", {attrs = "k: float", sig = "f(x)"})
        bad("character 1: where(cond, x, y) takes 3 arguments, got 2", "where(x, y)")
        bad("(b: int = 1.5)': a default that does not fit the type at '1.5)'", "x * b", {attrs = "b: int = 1.5"})
        bad("op: attrs: 'b' has no type; write b: float", "x * b", {attrs = "b"})
        for _, sign in ipairs {"-", "(", "x ^ ", "exp("} do
            bad("...', character " .. 100 * #sign + 1 .. ": more than 100 levels of parentheses and signs", sign:rep(300000) .. "x")
        end
        local sum = {}
        for i = 1, 3000 do sum[i] = "x * " .. i end
        bad("more than 1000 steps, one kernel runs 40", table.concat(sum, " + "))
        bad("op: a formula needs no forward", "x", {forward = print})
        bad("op: a formula has no lists of tensors", "x", {sig = ("formula%d(x...)"):format(count + 1)})
        bad("has 41 steps, one kernel runs 40", "x" .. (" + x * 2"):rep(0) .. (" + sin(x"):rep(20) .. (")"):rep(20) .. " * 3")
        fails("op: 'own' needs forward or formula", flow.op, {name = "own"})
        fails("op: attrs belong to a formula; write them into sig", flow.op, {name = "own", forward = print,
            attrs = "k: float"})
        local f = define "x * y"
        fails("shapes [2] and [3] do not broadcast", f, flow.ones(2), flow.ones(3))
        fails("must be a tensor, got number", f, 2, flow.ones(3))
    end)
end)
