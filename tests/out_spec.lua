-- out_spec.lua -- {out = c}: results in tensors that are there already.
local flow = require "flow"
local support = require "tests.support"
local fails = support.fails
local testing = flow._testing

describe("out", function()
    local a, b = flow.randn(4, 3), flow.randn(4, 3)

    it("is written and returned, by elementwise ops, reductions, products and bodies alike", function()
        local cases = {
            {function(o) return a:add(b, o) end, a + b}, {function(o) return a:exp(o) end, a:exp()},
            {function(o) return flow.where(a:gt(0), a, b, o) end, flow.where(a:gt(0), a, b)},
            {function(o) return a:sum(0, o) end, a:sum(0)}, {function(o) return a:sum(1, true, o) end, a:sum(1, true)},
            {function(o) return a:matmul(b:t(), o) end, a:matmul(b:t())}, {function(o) return a:softmax(1, o) end, a:softmax(1)},
            {function(o) return a:gt(b, o) end, a:gt(b)}, {function(o) return a:argmax(1, o) end, a:argmax(1)},
            {function(o) return flow.cat({a, b}, 0, o) end, flow.cat({a, b}, 0)}, {function(o) return a:t():reshape({2, 6}, o) end, a:t():reshape(2, 6)},
            {function(o) return flow.arange(5, o) end, flow.arange(5)}, {function(o) return a:to("float64"):mul(2, o) end, a:to "float64" * 2},
            {function(o) return a:clamp {min = 0, out = o.out} end, a:clamp {min = 0}},
            {function(o) return flow.einsum("ij,kj->ik", {a, b}, o) end, flow.einsum("ij,kj->ik", {a, b})},
        }
        for i, case in ipairs(cases) do
            local want = case[2]
            local c = flow.zeros_like(want)
            local version, before = flow._function.version(c), flow.memory().tensors
            local got = case[1] {out = c}
            assert.is_true(rawequal(got, c), i)
            if i <= 5 and i ~= 3 then assert.are.equal(before, flow.memory().tensors, "case " .. i .. " makes a tensor") end
            support.same(want, c, "case " .. i, 1e-6)
            assert.is_true(flow._function.version(c) > version)
        end
    end)

    it("may be strided, a part, or an operand", function()
        local wide = flow.zeros(4, 6)
        a:mul(b, {out = wide:narrow(1, 1, 3)})
        assert.are.equal(a * b, wide:narrow(1, 1, 3))
        a:sum(0, {out = wide:select(0, 0):narrow(0, 0, 3)})
        assert.are.equal(a:sum(0), wide[0]:narrow(0, 0, 3))
        b:t():sum(0, {out = wide:select(1, 5)})
        assert.are.equal(b:sum(1), wide:select(1, 5))
        local x = a:clone()
        x:mul(x, {out = x})
        assert.are.equal(a * a, x)
        local square = flow.randn(4, 4)
        local want, product = square:t() + 1, square:matmul(square)
        local y, z = square:clone(), square:clone()
        y:t():add(1, {out = y})
        assert.are.equal(want, y)
        z:matmul(z, {out = z})
        assert.are.equal(product, z)
        local row = flow.arange(6):to "float32"
        row:narrow(0, 0, 5):add(1, {out = row:narrow(0, 1, 5)}) -- overlapping
        assert.are.same({0, 1, 2, 3, 4, 5}, row:totable())
    end)

    it("is the same to what was to be computed later, on large tensors and queued ops", function()
        for _, mode in ipairs {"auto", "queued", "naive"} do
            local before = testing.engine(mode)
            local o, x = flow.zeros(300, 200), flow.randn(300, 200)
            local later = o + 1
            local pending = x * 2 + 1
            x:mul(3, {out = o})
            assert.are.equal(60000, later:sum():item())
            assert.are.equal(x * 3, o)
            pending:add(pending, {out = o})
            assert.are.equal((x * 2 + 1) * 2, o)
            pending:add(o, {out = pending})
            assert.are.equal((x * 2 + 1) * 3, pending)
            testing.engine(before)
        end
    end)

    it("works in captured functions and with global tensors", function()
        local c = flow.zeros(4, 3)
        local step = flow.capture(function(x) return x:add(b, {out = c}):sum() end)
        for _ = 1, 3 do
            local x = flow.randn(4, 3)
            assert.is_true(flow.allclose((x + b):sum(), step(x), {atol = 1e-5}))
            assert.are.equal(x + b, c)
        end
        local where = {placement = flow.placement("cpu", {0}), sbp = "S(0)"}
        local x, y = a:to_global(where), flow.zeros(4, 3, where)
        x:mul(2, {out = y})
        assert.are.equal(a * 2, y:to_local())
        fails('mul: out is float32[4, 3] on placement("cpu", {0}) as B (global), the result is float32[4, 3] on placement("cpu", {0}) as S(0) (global)',
            x.mul, x, 2, {out = y:to_global {sbp = "B"}})
    end)

    it("takes no gradient, and is checked by version like any write", function()
        local leaf = flow.ones(2, {requires_grad = true})
        fails("mul: out has no gradient, and an operand requires grad; leave out away, or do it inside flow.no_grad()",
            leaf.mul, leaf, 2, {out = flow.zeros(2)})
        fails("exp: out has no gradient, and it requires grad", flow.exp, flow.ones(2), {out = leaf})
        flow.no_grad(function() leaf:mul(2, {out = leaf}) end)
        assert.are.same({2, 2}, leaf:detach():totable())
        assert.is_true(leaf:gt(1, {out = flow.zeros(2, {dtype = "bool"})}):all():item())
        local c = flow.ones(2)
        local y = leaf * c
        flow.ones(2):mul(3, {out = c})
        fails("needed for its gradient, was changed in place after it was used", function() y:sum():backward() end)
    end)

    it("refuses what does not fit", function()
        fails("add: out is float32[3] on cpu (local), the result is float32[4, 3] on cpu (local)", a.add, a, b, {out = flow.zeros(3)})
        fails("add: out is float64[4, 3] on cpu (local), the result is float32[4, 3] on cpu (local)", a.add, a, b,
            {out = flow.zeros(4, 3, {dtype = "float64"})})
        fails("add: out must be a tensor, got number", a.add, a, b, {out = 3})
        fails("add: unknown option 'oout'; did you mean 'out'?", a.add, a, b, {oout = a})
        fails("sort: takes no out", a.sort, a, {out = b})
        fails("add_: writes its operand, and takes no out", a.add_, a, b, {out = b})
        fails("add: out is expanded", a.add, a, b, {out = flow.zeros(1, 3):expand(4, 3)})
    end)

    it("is refused where it cannot be written, by the name of the function", function()
        fails("add: out is expanded (several positions share one element); give it memory with clone()", flow.add, flow.ones(3), 1,
            {out = flow.zeros(1):expand(3)})
        fails("max: takes no out", flow.max, flow.tensor {{1.0}}, 0, {out = flow.tensor {1.0}})
        local outside = flow.zeros(2)
        fails("add: out has memory, the result is on the meta device, as in a traced function", flow.trace,
            function(x) return flow.add(x, 1, {out = outside}) end, {flow.spec {2}})
    end)
end)
