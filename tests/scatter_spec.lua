-- scatter_spec.lua -- scatter and scatter_add against plain Lua, over dtypes, layouts and sizes; equal places, gradients, parts,
-- errors.
local flow = require "flow"
local ref = require "tests.reference"
local support = require "tests.support"

local text = support.shape_text

-- {shape of x, axis, shape of the index, shape of src}
local cases = {
    {{5}, 0, {3}, {3}}, {{5}, -1, {9}, {9}}, {{3, 4}, 1, {3, 6}, {3, 6}}, {{3, 4}, 0, {2, 4}, {2, 4}}, {{3, 4}, 0, {7, 2}, {8, 5}}, {{3, 4}, -1, {2, 3}, {3, 4}},
    {{2, 3, 5}, 1, {2, 4, 5}, {2, 4, 5}}, {{2, 3, 5}, 0, {1, 2, 3}, {2, 2, 4}}, {{2, 3, 5}, 2, {2, 3, 1}, {2, 3, 1}}, {{6, 130}, 0, {4, 130}, {4, 130}},
    {{3, 4}, 0, {0, 4}, {1, 4}}, {{0, 4}, 1, {0, 2}, {0, 2}}, {{}, 0, {}, {}},
}

-- Arrays of a case; the positions repeat.
local function operands(case, dtype, seed)
    local random = ref.generator(seed)
    local shape, axis, index_shape, src_shape = table.unpack(case)
    local function number() return dtype == "bool" and math.floor(random() + 1) or ref.round(dtype, math.floor(random() * 100)) end
    local size = shape[axis % math.max(#shape, 1) + 1] or 1
    return ref.array(shape, number), ref.array(index_shape, function() return math.floor((random() + 1) / 2 * size) end), ref.array(src_shape, number)
end

-- `name` and its form in place give `want` in every layout.
local function check(name, t, axis, index, src, want, what)
    for i, x in ipairs(ref.layouts(t)) do
        local other = flow.is_tensor(src) and ref.layouts(src)
        local value = other and other[(i - 1) % #other + 1][2] or src
        local before = x[2]:clone()
        ref.check(x[2][name](x[2], axis, index, value), want, t.dtype, 0, what .. ", " .. x[1])
        assert.is_true(ref.same_bits(before, x[2]), what .. " writes to x")
        x[2][name .. "_"](x[2], axis, index, value)
        ref.check(x[2], want, t.dtype, 0, what .. " in place, " .. x[1])
    end
end

describe("scatter", function()
    it("writes elements, the last of equal places", function()
        for n, case in ipairs(cases) do
            for _, dtype in ipairs(ref.dtypes) do
                local a, index, src = operands(case, dtype, n)
                local what = ("scatter %s into %s %s along %d"):format(text(case[3]), dtype, text(case[1]), case[2])
                check("scatter", ref.tensor(a, dtype), case[2], ref.tensor(index, n % 2 == 0 and "int64" or "uint8"), ref.tensor(src, dtype),
                    ref.scatter(a, case[2], index, src), what)
            end
        end
    end)

    it("reads an expanded index as one that is written out", function()
        for _, dtype in ipairs{"float32", "bfloat16", "int64"} do
            for axis, kept in ipairs{{5, 1}, {1, 7}} do
                local rows = flow.randint(0, 4, kept, {dtype = axis == 1 and "int64" or "int32"})
                local index, src = rows:expand(5, 7), flow.randint(-9, 9, {5, 7}):to(dtype)
                local x = flow.ones({5, 7}, {dtype = dtype})
                for _, name in ipairs{"scatter", "scatter_add"} do
                    for along = 0, 1 do
                        local what = ("%s of %s along %d"):format(name, dtype, along)
                        assert.is_true(ref.same_bits(x[name](x, along, index:clone(), src), x[name](x, along, index, src)), what)
                    end
                end
                for along = 0, 1 do
                    local whole, written = flow.ones({5, 7}, {requires_grad = true}), flow.ones({5, 7}, {requires_grad = true})
                    whole:gather(along, index):sum():backward()
                    written:gather(along, index:clone()):sum():backward()
                    assert.is_true(ref.same_bits(written.grad, whole.grad), "gradient of gather along " .. along)
                end
            end
        end
        assert.has_error(function() flow.zeros(3, 4):scatter_add(0, flow.tensor{{1}, {3}, {5}}:expand(3, 4), flow.ones(3, 4)) end,
            "scatter_add: index[1, 0] is 3, but this axis of x has 3 positions (0 to 2)")
    end)

    it("writes a number", function()
        for n, case in ipairs(cases) do
            for _, dtype in ipairs(ref.dtypes) do
                local a, index = operands(case, dtype, n)
                check("scatter", ref.tensor(a, dtype), case[2], ref.tensor(index, "int32"), 1, ref.scatter(a, case[2], index, 1), dtype .. " " .. text(case[1]))
            end
        end
        assert.are.same({{0, 1.5}, {1.5, 0}}, flow.zeros(2, 2):scatter(1, flow.tensor{{1}, {0}}, 1.5):totable())
        assert.are.same({false, true}, flow.zeros({2}, {dtype = "bool"}):scatter(0, flow.tensor{1}, true):totable())
    end)

    it("large, with lines of both kinds", function()
        for _, case in ipairs {{{300, 400}, 0, {500, 400}, {500, 400}}, {{300, 400}, 1, {300, 500}, {300, 500}}, {{100000}, 0, {150000}, {150000}}} do
            local a, index, src = operands(case, "float32", 3)
            check("scatter", ref.tensor(a, "float32"), case[2], ref.tensor(index, "int64"), ref.tensor(src, "float32"),
                ref.scatter(a, case[2], index, src), text(case[1]))
        end
    end)

    it("gives what is written its gradient, and takes it from what was there", function()
        local x = flow.randn({3, 4}, {requires_grad = true})
        local src = flow.randn({3, 3}, {requires_grad = true})
        local index = flow.tensor{{2, 0}, {1, 3}}
        local weight = flow.randn(3, 4)
        local function gradients(y) return flow.grad((y * weight):sum(), {x, src}) end
        local got = gradients(x:scatter(1, index, src))
        assert.is_true(ref.same_bits(weight:scatter(1, index, 0), got[1]))
        assert.is_true(ref.same_bits(flow.zeros(3, 3):scatter(0, flow.tensor{{0, 0}, {1, 1}}, weight:gather(1, index)), got[2]))
        local in_place = gradients((x * 1):scatter_(1, index, src))
        assert.is_true(ref.same_bits(got[1], in_place[1]) and ref.same_bits(got[2], in_place[2]))
    end)

    it("says what is wrong", function()
        local x, at = flow.zeros(2, 3), flow.tensor{{0, 1}}
        for _, case in ipairs {
            {"scatter: index must be integers, got float32[1]", function() x:scatter(0, flow.zeros(1), 1) end},
            {"scatter: axis 2 is out of range for shape [2, 3] (-2 to 1)", function() x:scatter(2, at, 1) end},
            {"scatter: index [4, 2] must have as many axes as x [2, 3] and, except along axis 1, at most the sizes of x", function() x:scatter(1, at:rep(4, 1), 1) end},
            {"scatter_: index [2] must have as many axes as x [2, 3] and, except along axis 0, at most the sizes of x", function() x:scatter_(0, at[0], 1) end},
            {"scatter: src [1, 1] must have as many axes as index [1, 2] and at least its sizes", function() x:scatter(1, at, flow.zeros(1, 1)) end},
            {"scatter: src is int64 and x float32: dtypes must be equal", function() x:scatter(1, at, at) end},
            {"scatter_: value 300 does not fit into uint8", function() x:to("uint8"):scatter_(1, at, 300) end},
            {"scatter: index[0, 1] is 3, but this axis of x has 3 positions (0 to 2)", function() x:scatter(1, flow.tensor{{0, 3}}, 1) end},
            {"scatter: index[0, 0] is -1, but this axis of x has 2 positions (0 to 1)", function() x:scatter(0, flow.tensor{{-1, 7}}, flow.zeros(1, 2)) end},
            {"scatter: axis 0 of x [0, 3] is empty, but index [1, 2] is not", function() flow.zeros(0, 3):scatter(0, at, 1) end},
        } do assert.are.equal(case[1], support.message_of(case[2])) end
    end)
end)

describe("scatter_add", function()
    it("adds up what equal places receive", function()
        for n, case in ipairs(cases) do
            for _, dtype in ipairs(ref.dtypes) do
                if dtype ~= "bool" and dtype ~= "bfloat16" then     -- whole numbers up to 256 are exact there, sums of them are not
                    local a, index, src = operands(case, dtype, n)
                    check("scatter_add", ref.tensor(a, dtype), case[2], ref.tensor(index, "int64"), ref.tensor(src, dtype), ref.scatter(a, case[2], index, src, true),
                        ("scatter_add %s into %s %s along %d"):format(text(case[3]), dtype, text(case[1]), case[2]))
                end
            end
        end
    end)

    it("rounds halves once", function()
        local ones = flow.ones({4096}, {dtype = "float16"})
        assert.are.equal(4096, flow.zeros({1}, {dtype = "float16"}):scatter_add(0, flow.zeros({4096}, {dtype = "int64"}), ones)[0]:item())
    end)

    it("has gather as its gradient", function()
        local x = flow.randn({3, 4}, {requires_grad = true})
        local src = flow.randn({2, 6}, {requires_grad = true})
        local index, weight = flow.randint(0, 4, {2, 6}), flow.randn(3, 4)
        for _, y in ipairs {x:scatter_add(1, index, src), (x * 1):scatter_add_(1, index, src)} do
            local got = flow.grad((y * weight):sum(), {x, src})
            assert.is_true(ref.same_bits(weight, got[1]) and ref.same_bits(weight:gather(1, index), got[2]))
        end
    end)

    it("says what is wrong", function()
        local x, at = flow.zeros(2, 3), flow.tensor{{0, 1}}
        for _, case in ipairs {
            {"scatter_add: src [1, 1] must have as many axes as index [1, 2] and at least its sizes", function() x:scatter_add(1, at, flow.zeros(1, 1)) end},
            {"scatter_add_: src is int64 and x float32: dtypes must be equal", function() x:scatter_add_(1, at, at) end},
            {"scatter_add: takes numbers, x is bool", function() x:gt(0):scatter_add(1, at, x:gt(0)) end},
            {"scatter_add: index[0, 1] is 3, but this axis of x has 3 positions (0 to 2)", function() x:scatter_add(1, flow.tensor{{0, 3}}, flow.ones(1, 2)) end},
            {"scatter_add: axis 1 of x [2, 0] is empty, but index [1, 2] is not", function() flow.zeros(2, 0):scatter_add(-1, at, flow.ones(1, 2)) end},
        } do assert.are.equal(case[1], support.message_of(case[2])) end
    end)
end)

describe("scatter into a global tensor", function()
    teardown(function() flow._testing.set_world(1, 0) end)

    it("makes a partial x whole, but does not write to one", function()
        flow._testing.set_world(2, 0)
        local p = flow.placement("cpu", {0, 1})
        local x = flow.zeros({2, 3}, {placement = p, sbp = "B"}):to_global{sbp = "P"}
        local index = flow.zeros({2, 1}, {placement = p, sbp = "B", dtype = "int64"})
        assert.are.equal("P", tostring(x:scatter_(1, index, flow.ones({2, 1}, {placement = p, sbp = "B"})).sbp))
        assert.are.equal("scatter_: x is float32[2, 3] on placement(\"cpu\", {0, 1}) as P and cannot be updated in that sbp; convert it with to_global first, "
            .. "or assign the result of an op", support.message_of(function() x:scatter_(1, index, 1.5) end))
        assert.is_truthy(support.message_of(function() x:scatter(1, index, 1.5) end):find("all%-reduce"))
    end)

    -- This rank's part is that part of the whole, whichever axis is split and whether or not the index covers it.
    it("keeps the split of x", function()
        local x, index, src = flow.randn(5, 6), flow.tensor{{4, 0, 4}, {1, 1, 2}, {3, 0, 0}}, flow.randn(3, 3)
        for axis = 0, 1 do
            for name, want in pairs {scatter = x:scatter(axis, index, src), scatter_add = x:scatter_add(axis, index, src)} do
                for split = 0, 1 do
                    for rank = 0, 1 do
                        flow._testing.set_world(2, rank)
                        local p = flow.placement("cpu", {0, 1})
                        local start, size = support.split(x:size(split), 2, rank)
                        local here = flow._testing.from_part(x:narrow(split, start, size):clone(), x.shape, p, ("S(%d)"):format(split))
                        local function whole(t) return flow._testing.from_part(t, t.shape, p, "B") end
                        local got = here[name .. "_"](here, axis, whole(index), whole(src))
                        assert.are.equal(("S(%d)"):format(split), tostring(got.sbp))
                        local part = got:to_local()
                        flow._testing.set_world(1, 0)
                        support.close(want:narrow(split, start, size), part, 1e-6, ("%s along %d, S(%d), rank %d"):format(name, axis, split, rank))
                    end
                end
            end
        end
    end)
end)
