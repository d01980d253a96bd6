-- own_op_spec.lua -- flow.op: ops from Lua are like the built-in ones.
local flow = require "flow"
local support = require "tests.support"
local testing = flow._testing
local fails = support.fails

local placement = flow.placement("cpu", {0})

flow.op {
    name = "own_swish", sig = "own_swish(x, ~beta: float = 1)", doc = "x * sigmoid(beta * x).",
    forward = function(x, beta) return x * (x * beta):sigmoid() end,
    backward = function(ctx, g)
        local s = (ctx.x * ctx.beta):sigmoid()
        return g * (s + ctx.beta * ctx.x * s * (1 - s))
    end,
    saves = {"x"},
    sbp = {"S(0) -> S(0)", "S(1) -> S(1)", "S(-1) -> S(-1)"},
    samples = {"flow.randn(3)", "flow.randn(2, 3), 2", "flow.randn(2, 3, 2), {beta = 0.5}"},
}

-- Products of rows: infer, sbp and results of its own.
local inferred = {}
flow.op {
    name = "own_outer", sig = "own_outer(x, y, keepdim: bool = false)", doc = "Outer product, and the sum of x.", results = 2,
    infer = function(x, y, keepdim)
        inferred[#inferred + 1] = {x.shape[1], y.shape[1], keepdim}
        if x.ndim ~= 1 or y.ndim ~= 1 then error("takes two vectors", 0) end
        return {shape = {x.shape[1], y.shape[1]}, dtype = x.dtype}, {shape = keepdim and {1} or {}, dtype = x.dtype}
    end,
    sbp = function(x)
        return x.dtype == "float64" and {"S(0), B -> S(0), P", "P, B -> P, P"} or {"S(0), B -> S(0), P"}
    end,
    forward = function(x, y, keepdim) return x:unsqueeze(1) * y, x:sum(0, keepdim) end,
    backward = function(ctx, g, h) return g:matmul(ctx.y) + h:reshape(1), ctx.x:matmul(g) end,
    samples = {"flow.randn(4), flow.randn(3)", "flow.randn(2), flow.randn(5), true"},
}

flow.op {
    name = "own_product", sig = "own_product(x, y|n)", doc = "Product, with gradients as text.",
    forward = function(x, y) return x * y end, backward = {"g * y", "g * x"},
    sbp = {"S(0), S(0) -> S(0)", "P, B -> P", "B, P -> P"},
    samples = {"flow.randn(3, 2), flow.randn(3, 2)", "flow.randn(3, 2), flow.randn(2)", "flow.randn(4), 3"},
}

flow.op {
    name = "own_total", sig = "own_total(x, ys...)", doc = "A sum of tensors.", forward = function(x, ys)
        for _, y in ipairs(ys) do x = x + y end
        return x
    end,
    backward = function(ctx, g)
        local list = {}
        for i = 1, #ctx.ys do list[i] = g end
        return g, list
    end,
    samples = {"flow.randn(3), {flow.randn(3), flow.randn(3)}"}, sbp = {"S(0), S(0) -> S(0)", "P, P -> P"},
}

flow.op {name = "own_auto", doc = "Its gradient is that of the ops in forward.", forward = function(x) return x:exp() * x end,
    samples = {"flow.randn(3)"}, sbp = {"S(0) -> S(0)"}}

describe("flow.op", function()
    it("makes a function and a method with attributes, help and suggestions", function()
        local x = flow.randn(3)
        assert.are.equal(x * (x * 2):sigmoid(), x:own_swish(2))
        assert.are.equal(x:own_swish(2), flow.own_swish(x, {beta = 2}))
        assert.is_true(flow.has "own_swish" and flow.has "x:own_swish")
        assert.are.equal("own_swish(x, beta: float = 1)\n    x * sigmoid(beta * x).\n    has a gradient",
            require("flow.help").of_callable(flow.own_swish))
        fails("own_swish: unknown option 'bta'; did you mean 'beta'?", flow.own_swish, x, {bta = 1})
        fails("own_swish: beta must be a number, got string", flow.own_swish, x, "2")
        fails("own_swish: too many arguments: own_swish(x, beta: float = 1)", flow.own_swish, x, 1, 2)
        fails("own_swish: missing argument 'x' (a method is called with a colon: x:own_swish())", flow.own_swish)
        fails("tensor has no method or field 'own_swash'; did you mean 'own_swish'?", function() return x:own_swash() end)
    end)

    for _, name in ipairs {"own_swish", "own_outer", "own_product", "own_total", "own_auto"} do
        it("passes the tests of built-in ops: " .. name, function()
            assert.is_true(flow.testing.check_op(name))
            assert.is_true(flow.testing.check_op(flow[name]))
        end)
    end

    it("takes gradients as text with any names, strings, comments, keys and functions of flow", function()
        local x, y = flow.tensor({2.0}, {requires_grad = true}), flow.tensor({3.0}, {requires_grad = true})
        local function gradients(name, sig, backward)
            x.grad, y.grad = nil, nil
            flow.op {name = name, sig = name .. sig, forward = function(a, b) return a * b end, backward = backward}(x, y):backward()
            return x.grad:item(), y.grad:item()
        end
        assert.are.same({3, 2}, {gradients("own_digits", "(x1, x2)", {"g*x2", "g*x1"})})
        assert.are.same({3, 2}, {gradients("own_prefix", "(x, x2)", {"g*x2", "g*x"})})
        assert.are.same({3, 2}, {gradients("own_through", "(x, y)", {"flow.log(flow.exp(g * y))", "g1:to('float32') * x"})})
        assert.are.same({30, 2}, {gradients("own_marks", "(x, y)", {"g * y * 1e1 -- ten\n", "where(x:gt(0), g, zeros({1})) * x:sum{axis = 0} * #'z\\'z' / #[[zzz]]"})})
    end)

    it("infers once for a kind of arguments", function()
        local x, y = flow.randn(7), flow.randn(6)
        local before = #inferred
        for _ = 1, 3 do flow.own_outer(x, y, true) end
        assert.are.equal(before + 1, #inferred)
        assert.are.same({7, 6, true}, inferred[#inferred])
        fails("own_outer: takes two vectors", flow.own_outer, flow.ones(2, 2), y)
    end)

    it("takes and gives global tensors through its signatures", function()
        local x = flow.randn(4, 2):to_global {placement = placement, sbp = "S(0)"}
        local y = x:own_swish()
        assert.are.equal("S(0)", tostring(y.sbp[1]))
        assert.are.equal(x:to_local():own_swish(), y:to_local())
        local leaf = flow.randn(4, {requires_grad = true, placement = placement, sbp = "S(0)"})
        leaf:own_auto():sum():backward() -- recorded as its ops
        assert.are.equal("S(0)", tostring(leaf.grad.sbp[1]))
        assert.is_true(flow.allclose(leaf.grad, leaf:exp() * (leaf + 1)))
        local text = tostring(flow.explain(function() return x:own_swish() end))
        assert.is_truthy(text:find("own_swish(float32[4, 2] S(0)) -> float32[4, 2] S(0)", 1, true))
    end)

    it("boxes what comes in another SBP, as for any op", function()
        testing.set_world(2, 0)
        local pair = flow.placement("cpu", {0, 1})
        local x = flow.ones(4, {placement = pair, sbp = "B"})
        local y = flow.ones(3, {placement = pair, sbp = "S(0)"})
        local text = tostring(flow.explain(function() return (flow.own_outer(x, y)) end))
        testing.set_world(1, 0)
        assert.is_truthy(text:find("S(0) -> B", 1, true), text)
    end)

    it("runs in captured and in traced programs", function()
        local step = flow.capture(function(x) return x:own_swish(2):sum() end)
        for _ = 1, 3 do
            local x = flow.randn(5)
            assert.are.equal(x:own_swish(2):sum(), step(x))
        end
        local p = flow.trace(function(x) return x:own_swish(3):sum() end, {flow.spec({3}, {requires_grad = true})})
        assert.is_truthy(tostring(p):find("own_swish(x, beta = 3)", 1, true))
        local x = flow.randn(3, {requires_grad = true})
        x:own_swish(3):sum():backward()
        assert.is_true(flow.allclose(x.grad, (p:backward()(x:detach()))))
        local q = flow.trace(function(t) return t:own_auto():sum() end, {flow.spec({3}, {requires_grad = true})})
        x.grad = nil
        x:own_auto():sum():backward()
        assert.is_true(flow.allclose(x.grad, (q:backward()(x:detach()))))
        local path = os.tmpname()
        p:save(path)
        assert.are.equal(p(x), flow.program(path)(x))
        os.remove(path)
    end)

    it("may be replaced where that is asked for", function()
        local function define(factor, replace)
            return flow.op {name = "own_again", forward = function(x) return x * factor end, replace = replace}
        end
        define(2)
        local x = flow.ones(1, {requires_grad = true})
        local function call(t) return t:own_again() end
        local programs = {flow.trace(call, {flow.spec {1}}), flow.capture(call)}
        local path = os.tmpname()
        programs[1]:save(path)
        programs[3] = flow.program(path)
        for _, program in ipairs(programs) do program(flow.ones(1)) end
        local y = x:own_again()
        fails("op: 'own_again' is defined already; another name, or replace = true for the new one in its place", define, 3)
        define(3, true)
        assert.are.equal(3, x:own_again():item())
        for i, program in ipairs(programs) do assert.are.equal(2, program(flow.ones(1)):item(), i) end -- with what it was made
        assert.are.equal(3, flow.program(path)(flow.ones(1)):item())
        os.remove(path)
        y:backward()
        assert.are.equal(2, x.grad:item())
        fails("op: 'end' is a word of Lua; an op needs another name", flow.op, {name = "end", formula = "x * 2"})
        fails("op: flow has 'relu' already; an op of your own needs another name", flow.op,
            {name = "relu", forward = print, replace = true})
        fails("op: flow has 'shape' already", flow.op, {name = "shape", forward = print})
    end)

    it("has no limit, and a definition that fails leaves nothing", function()
        for i = 1, 600 do
            flow.op {name = "own_many", forward = function(x) return x * i end, replace = true}
            fails("own_bad: sbp 'Q -> B'", flow.op, {name = "own_bad", forward = print, sbp = {"Q -> B"}})
        end
        assert.are.equal(600, flow.own_many(flow.ones(1)):item())
        for _ = 1, 2000 do -- beyond the table of signatures
            flow.op {name = "own_many", forward = function(x) return x end, replace = true}
        end
        assert.are.equal(1, flow.own_many(flow.ones(1)):item())
    end)

    it("names what is wrong with a definition", function()
        local function bad(message, def)
            def.name, def.forward = def.name or "own_bad", def.forward or print
            fails(message, flow.op, def)
            assert.is_false(flow.has "own_bad")
        end
        fails("op: name must be a string, got nil", flow.op, {forward = print})
        fails("op: 'own_bad' needs forward or formula", flow.op, {name = "own_bad"})
        bad("op: unknown option 'foward'; did you mean 'forward'?", {foward = print})
        bad("op: a name is lower-case letters, digits and _, at most 40, got 'Bad name'", {name = "Bad name"})
        fails("op: a name is lower-case letters, digits and _, at most 40, got ''", flow.op, {name = ""})
        bad("op: 'own_': a name with _ at its end is for what changes its operand", {name = "own_"})
        bad("op: the signature must begin with the name 'own_bad', got 'good'", {sig = "good(x)"})
        bad("signature 'own_bad(x': , or ) is missing at '' (character 10)", {sig = "own_bad(x"})
        bad("signature 'own_bad(x, y: flot)': an unknown type", {sig = "own_bad(x, y: flot)"})
        bad("signature 'own_bad(x, y: int = z)': a default that does not fit the type at 'z)' (character 21)",
            {sig = "own_bad(x, y: int = z)"})
        bad("signature 'own_bad(x, x)': a name that is there already", {sig = "own_bad(x, x)"})
        bad("signature 'own_bad(xs..., y)': a list of tensors must be the last tensor", {sig = "own_bad(xs..., y)"})
        bad("signature 'own_bad(~x)': ~ is for attributes", {sig = "own_bad(~x)"})
        bad("an op takes at least one tensor", {sig = "own_bad(a: int)"})
        bad("'t' cannot be text; name the words: t: one|two", {sig = "own_bad(x, t: text)"})
        bad("options are for ops that make tensors", {sig = "own_bad(x, options)"})
        bad("a parameter cannot be called 'out'", {sig = "own_bad(x, out)"})
        for _, name in ipairs {"g", "g1", "g4"} do
            bad("a parameter cannot be called '" .. name .. "'", {sig = "own_bad(x, " .. name .. ")"})
        end
        bad("op: doc must not contain a zero byte", {doc = "d\0d"})
        bad("own_bad: sbp 'S(0) S(0)': -> is expected behind 1 operand", {sbp = {"S(0) S(0)"}})
        bad("own_bad: sbp 'Q -> B': S(axis), B, P, P(max) or P(min) is expected at 'Q -> B'", {sbp = {"Q -> B"}})
        bad("own_bad: sbp 'B -> B, B': 1 operand and 1 result are expected", {sbp = {"B -> B, B"}})
        bad('own_bad: sbp must be a list of rows as "S(0), B -> S(0)", row 1 is number', {sbp = {1}})
        bad('op: saves[1] must be a tensor of the signature or "out", got \'y\'', {saves = {"y"}})
        bad("op: backward must hold 1 expression, one for each tensor, got 2", {backward = {"g", "g"}})
        bad("op: gradient 1 of own_bad ('g * z') names 'z', which is no parameter, result or function", {backward = {"g * z"}})
        bad("op: gradient 1 of own_bad:1: ", {backward = {"g *"}})
        bad("op: gradient 1 of own_bad ('g * 2, 99') must be one expression", {backward = {"g * 2, 99"}})
        bad("op: gradient 1 of own_bad ('g2 * 2') names 'g2', which is no parameter, result or function", {backward = {"g2 * 2"}})
        bad("op: gradient 1 of own_bad ('g:sum() + su') names 'su'", {backward = {"g:sum() + su"}})
        bad("op: gradient 1 of own_bad ('g * x2') names 'x2'", {backward = {"g * x2"}})
        bad("op: sample 1:1: ", {samples = {"flow.("}})
        bad("op: results must be a whole number in [1, 4], got 5", {results = 5})
    end)

    it("names what is wrong in a call", function()
        local count = 0
        local function try(def, ...)
            count = count + 1
            def.name = "own_try" .. count
            def.sig = def.name .. (def.sig or "(x)")
            return flow.op(def)(...)
        end
        local x = flow.ones(2)
        local function same(t) return t * 1 end
        fails("forward must return 1 tensor, got 0 values", try, {forward = function() end}, x)
        fails("forward must return tensors, result 1 is number", try, {forward = function() return 1 end}, x)
        fails("own_try3: forward gave float32[1, 2] on cpu (local) as result 1, infer says float32[2]", try,
            {forward = function(t) return t:unsqueeze(0) end}, x)
        fails("own_try4: infer must return {shape =, dtype =} for each result, result 1 is nil", try,
            {forward = same, infer = function() end}, x)
        fails("own_try5: infer must return {shape =, dtype =}, the shape of result 1 is number", try,
            {forward = same, infer = function() return {shape = 3} end}, x)
        fails("own_try6: unknown dtype 'floot'", try,
            {forward = same, infer = function(t) return {shape = t.shape, dtype = "floot"} end}, x)
        fails("attempt to index a nil value", try,
            {forward = function(t) return (nil).x, t end}, x)
        fails("own_try8: shapes [2] and [3] do not broadcast", try, {sig = "(x, y)", forward = same}, x, flow.ones(3))
        local leaf = flow.ones(2, {requires_grad = true})
        fails("error in the backward of own_try9: it returned float32[3] (local) as the gradient of float32[2] (local)",
            function() try({forward = same, backward = function() return flow.ones(3) end}, leaf):sum():backward() end)
        fails("infer must return {shape =, dtype =} for each result, 1 in all, got 2 values", try,
            {forward = same, infer = function(t) return t, t end}, x)
        fails("it must return a gradient for each of the 1 operand, got 2",
            function() try({forward = same, backward = function(_, g) return g, g end}, leaf):sum():backward() end)
        fails("it returned nothing; it must return a gradient for each of the 1 operand, nil for none",
            function() try({forward = same, backward = function() end}, leaf):sum():backward() end)
        local function one_of_two(a, b)
            try({sig = "(x, y)", forward = function(t, u) return t * u end, backward = function(_, g) return g end}, a, b):sum():backward()
        end
        fails("it must return a gradient for each operand, nil for none; it returned 1, 'y' needs one",
            function() one_of_two(leaf, flow.ones(2, {requires_grad = true})) end)
        one_of_two(leaf, flow.ones(2))                  -- y needs none
        assert.is_false(try({forward = same, backward = false}, leaf).requires_grad)
        local shared = try({forward = function(t) return t end}, x)
        shared:add_(1)
        assert.are.same({1, 1}, x:totable())
        fails("forward changed t in place; let it work on a clone()", try,
            {sig = "(x, t)", forward = function(_, t) return t:mul_(2) + 0 end}, x, flow.ones(2))
        fails("forward changed ts in place", try, {sig = "(x, ts...)", forward = function(_, ts) ts[2]:mul_(2) return ts[1] + 0 end},
            x, {x, flow.ones(2)})
    end)

    it("gives every result memory of its own", function()
        local count = 0
        local function results(forward, n, x)
            count = count + 1
            return flow.op {name = "own_memory" .. count, forward = forward, results = n,
                infer = n > 1 and function(t) return t, t end or nil}(x)
        end
        local kept = flow.zeros(4)
        for _, x in ipairs {flow.ones(4), flow.ones(4, {requires_grad = true})} do
            for i, forward in ipairs {
                function(t) local r = t * 2; return r, r end, function(t) local r = t * 2; return r, r:view(4) end,
                function(t) local r = t * 2; return r:view(4), r end, function(t) return kept, t * 2 end,
                function() return kept, kept:view(4) end, function(t) kept:add_(0); return kept, t end,
            } do
                local first, second = results(forward, 2, x)
                flow.no_grad(function() first:add_(1) end)
                assert.is_true(flow.allclose(second, flow.full({4}, i == 5 and 0 or i == 6 and 1 or 2)), i)
                assert.are.same({0, 0, 0, 0}, kept:totable())
            end
        end
        local x = flow.ones(50000)
        local y = results(function(t) local r = t * 2; kept = r:view(50000); return r end, 1, x)
        y:add_(1)
        assert.are.equal(2, kept[0]:item())
    end)
end)

describe("flow.testing.check_op", function()
    it("finds a wrong gradient, a wrong signature, missing samples and documentation", function()
        local function define(more)
            local def = {name = "own_wrong", forward = function(x) return x * x end, doc = "Wrong somewhere.",
                samples = {"flow.randn(3)"}, replace = true}
            for key, value in pairs(more) do def[key] = value end
            flow.op(def)
        end
        local function try() flow.testing.check_op "own_wrong" end
        define {backward = {"g * x"}}
        fails("own_wrong: derivative 1 of input 1 at 0 is", try)
        define {sbp = {"P -> P"}}
        fails("own_wrong (P) over 2 -> P: element ", try)
        define {sbp = {"S(0) -> S(0)", "S(-1) -> S(-1)", "S(1) -> S(1)"}}
        fails("check_op: own_wrong: row 3 of sbp splits an axis that no sample has", try)
        define {sbp = {"S(0) -> S(0)", "S(1) -> S(1)"}, samples = {"flow.randn(3)", "flow.randn(2, 3)"}}
        assert.is_true(flow.testing.check_op "own_wrong")
        define {samples = {}}
        fails("check_op: own_wrong has no samples", try)
        define {doc = ""}
        fails("check_op: own_wrong has no documentation", try)
        fails("check_op: there is no op 'nothing'", flow.testing.check_op, "nothing")
        define {}
        assert.is_true(flow.testing.check_op "own_wrong")
    end)
end)

-- Values raised by a script that are no text.
local raised = {
    table = {code = 7}, number = 42, boolean = true, ["function"] = print, ["nil"] = nil,
    speaks = setmetatable({}, {__tostring = function() return "what it says" end}),
    fails = setmetatable({}, {__tostring = function() error "its __tostring" end}),
    odd = setmetatable({}, {__tostring = function() return {} end}),
}
local which

local function raise() error(raised[which]) end
flow.op {name = "raises_forward", sig = "raises_forward(x)", infer = function(x) return {shape = x.shape} end, forward = raise}
flow.op {name = "raises_infer", sig = "raises_infer(x)", infer = raise, forward = function(x) return x + 1 end}
flow.op {name = "raises_sbp", sig = "raises_sbp(x)", sbp = raise, forward = function(x) return x + 1 end}
flow.op {name = "raises_backward", sig = "raises_backward(x)", forward = function(x) return x + 1 end, backward = raise}

describe("an error that is no text", function()
    local x = flow.tensor({1.0, 2.0}, {requires_grad = true})
    local doubles = flow.autograd_function {forward = function(_, t) return t * 2 end, backward = raise}
    local again_runs
    local function again(t)
        if again_runs then raise() end
        again_runs = true
        return t:exp():sin()
    end
    local ways = {
        forward = function() return x:raises_forward() end,
        ["forward in forward"] = function()
            flow.op {name = "raises_inside", sig = "raises_inside(x)", replace = true, infer = function(t) return {shape = t.shape} end,
                forward = function(t) return t:raises_forward() end}
            return x:raises_inside()
        end,
        infer = function() return x:raises_infer() end,
        sbp = function() return x:raises_sbp() end,
        backward = function() x:raises_backward():sum():backward() end,
        ["backward, given back"] = function() flow.grad(x:raises_backward():sum(), {x}) end,
        ["forward of a function"] = function() flow.autograd_function {forward = raise, backward = print}(x) end,
        ["backward of a function"] = function() doubles(x):sum():backward() end,
        ["gradient hook"] = function()
            local y = x * 2
            y:register_hook(raise)
            y:sum():backward()
        end,
        ["forward in a capture"] = function() flow.capture(function(t) return t:raises_forward() end)(x:detach()) end,
        ["forward in a trace"] = function()
            flow.trace(function(t) return t:raises_infer() end, {flow.spec {2}})
        end,
        ["second run of a checkpoint"] = function()
            again_runs = false
            flow.checkpoint(again, x):sum():backward()
        end,
    }
    for name, way in pairs(ways) do
        it("reaches pcall as it was raised: " .. name, function()
            for _, kind in ipairs {"table", "number", "boolean", "function", "nil", "speaks", "fails", "odd"} do
                which = kind
                local ok, value = pcall(way)
                assert.is_false(ok)
                assert.is_true(rawequal(value, raised[kind]), kind .. ": " .. type(value))
            end
            assert.are.equal(3, (flow.ones(2) + 0.5):sum():item())
        end)
    end

    it("is let go by the next one", function()
        local watched = setmetatable({}, {__mode = "v"})
        raised.watched = {}
        watched[1], which = raised.watched, "watched"
        pcall(x.raises_forward, x)
        raised.watched = nil
        collectgarbage()
        assert.is_nil(watched[1])
    end)

    it("is not raised again by another one", function()
        which = "table"
        pcall(x.raises_forward, x)
        fails("sum: axis 9 is out of range", x.sum, x, 9)
        raised.text, which = "own words", "text"
        fails("own words", x.raises_forward, x)
    end)

    it("has words where it is an empty text", function()
        local empty = flow.autograd_function {forward = function(_, t) return t * 2 end, backward = function() error("", 0) end}
        fails("error in the backward of autograd_function: an error without a text", function() empty(x):sum():backward() end)
    end)
end)

describe("a definition that cannot work", function()
    it("has no dtype to give where no tensor has one", function()
        flow.op {name = "own_count", sig = "own_count(xs...)", infer = function(xs) return {shape = {#xs}} end,
            forward = function(xs) return flow.ones(#xs) end}
        assert.are.same({1}, flow.own_count {flow.ones(2)}.shape)
        fails("own_count: infer must return a dtype where no tensor has one, result 1 has none", flow.own_count, {})
    end)

    it("has a default that is no whole number of 64 bits", function()
        fails("a default that does not fit the type at '99999999999999999999'", flow.op,
            {name = "own_far", sig = "own_far(x, k: int = 99999999999999999999)", forward = print})
    end)

    it("does not reach the functions below flow.op", function()
        assert.is_false((pcall(flow._own.define, {})))
        assert.is_false((pcall(flow._own.define, {sig = "own_none(x)"})))
        assert.is_false((pcall(flow._own.set_gradients, 1)))
        assert.is_false((pcall(flow._own.set_gradients, flow.own_count, {})))
        assert.is_false((pcall(flow._function.reaches_others, "x", {})))
        local x = flow.ones(1)
        fails("function: at most 4 results, got 5", flow._function.record, "f", {x}, {x, x, x, x, x}, {}, print)
    end)
end)
