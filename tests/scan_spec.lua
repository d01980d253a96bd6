-- scan_spec.lua -- cumsum against plain Lua, over dtypes, layouts and sizes around the tiles and segments of its kernels;
-- gradients, parts, errors.
local flow = require "flow"
local ref = require "tests.reference"
local support = require "tests.support"

local text = support.shape_text

-- Along every axis in every layout, forwards and, as the gradient of a weighted sum, backwards.
local function check(a, dtype, ulps, slack)
    local sum_dtype = ref.is_float(dtype) and dtype or "int64"
    for axis = -#a.shape, math.max(#a.shape, 1) - 1 do
        local want = ref.lines(a, axis, ref.cumsum)
        for _, layout in ipairs(ref.layouts(ref.tensor(a, dtype))) do
            ref.check(layout[2]:cumsum(axis), want, sum_dtype, ulps, ("%s %s along %d, %s"):format(dtype, text(a.shape), axis, layout[1]), slack)
        end
    end
end

describe("cumsum", function()
    it("of every dtype, shape and layout", function()
        local random = ref.generator(1)
        for _, shape in ipairs {{}, {0}, {1}, {7}, {31}, {33}, {300}, {2, 0}, {0, 3}, {3, 5}, {5, 9}, {4, 1, 9}, {2, 17, 3}, {3, 2, 12}} do
            for _, dtype in ipairs(ref.dtypes) do
                local a = ref.array(shape, function() return ref.round(dtype, ref.is_float(dtype) and random() * 4 or math.floor(random() * 100)) end)
                check(a, dtype, ref.is_float(dtype) and 1 or 0, dtype == "float64" and 1e-13 or ref.is_float(dtype) and 1e-6 or nil)
            end
        end
    end)

    -- Lines that are cut, and whole numbers, so that every order of adding gives the same.
    it("of lines longer than a segment", function()
        for _, case in ipairs {{{70001}, 0}, {{3, 66000}, 1}, {{66000, 3}, 0}, {{9000, 10}, 0}, {{300, 600}, 0}, {{2, 200, 700}, 1}} do
            local shape, axis = case[1], case[2]
            for _, dtype in ipairs {"int8", "int64", "float32", "float64"} do
                local x = flow.arange(ref.count(shape)):reshape(shape):remainder(7):sub(3):to(dtype)
                local want = ref.lines(ref.of(x), axis, ref.cumsum)
                local sum_dtype = ref.is_float(dtype) and dtype or "int64"
                ref.check(x:cumsum(axis), want, sum_dtype, 0, text(shape) .. " " .. dtype)
                ref.check(x:transpose(0, -1):contiguous():transpose(0, -1):cumsum(axis), want, sum_dtype, 0, text(shape) .. " turned, " .. dtype)
            end
        end
    end)

    it("adds halves in a wider type", function()
        local line = flow.ones({3000}, {dtype = "float16"}):cumsum(0)
        assert.are.equal(3000, line[-1]:item())
        assert.are.equal(2048, flow.ones({4096}, {dtype = "bfloat16"}):cumsum(0)[2047]:item())
        assert.are.equal(4096, flow.ones({4096}, {dtype = "bfloat16"}):cumsum(0)[4095]:item())
    end)

    it("of integers wraps in int64", function()
        local got = flow.tensor({math.maxinteger, 1, 1}):cumsum(0)
        assert.are.same({math.maxinteger, math.mininteger, math.mininteger + 1}, got:totable())
        assert.are.same({255, 510}, flow.tensor({255, 255}, {dtype = "uint8"}):cumsum(0):totable())
        assert.are.same({1, 1, 2}, flow.tensor({true, false, true}):cumsum(0):totable())
    end)

    it("keeps what is no number to what comes after it", function()
        local inf, nan = math.huge, 0 / 0
        for _, dtype in ipairs(ref.floats) do
            for _, n in ipairs {5, 40} do
                local x = flow.ones({n}, {dtype = dtype})
                x[2], x[4] = inf, -inf
                local got = x:cumsum(0):to("float64"):totable()
                assert.are.same({1, 2, inf, inf}, {table.unpack(got, 1, 4)})
                for i = 5, n do assert.are_not.equal(got[i], got[i]) end
                x[0] = nan
                assert.are.equal(n, x:cumsum(0):ne(x:cumsum(0)):to("int64"):sum():item())
            end
        end
    end)

    it("has the sum from the other end as its gradient", function()
        local x = flow.randn({2, 600, 9}, {dtype = "float64"}):requires_grad_(true)
        local weight = flow.randn({2, 600, 9}, {dtype = "float64"})
        for axis = 0, 2 do
            local want = weight:flip(axis):cumsum(axis):flip(axis)
            support.close(want, flow.grad((x:cumsum(axis) * weight):sum(), {x})[1], 1e-12, "along " .. axis)
        end
    end)

    it("says what is wrong", function()
        local x = flow.zeros(2, 3)
        for _, case in ipairs {
            {"cumsum: axis 2 is out of range for shape [2, 3] (-2 to 1)", function() x:cumsum(2) end},
            {"cumsum: missing argument 'axis': cumsum(x, axis: axis, dtype: dtype)", function() x:cumsum() end},
            {"cumsum: axis 1 is out of range for shape [] (-1 to 0)", function() flow.tensor(1):cumsum(1) end},
        } do assert.are.equal(case[1], support.message_of(case[2])) end
    end)
end)

describe("cumsum of a global tensor", function()
    teardown(function() flow._testing.set_world(1, 0) end)

    it("keeps a split of other axes and a partial sum, and joins a split of its own", function()
        flow._testing.set_world(2, 0)
        local p = flow.placement("cpu", {0, 1})
        local function sbp(from, dtype) return tostring(flow.zeros({4, 6}, {placement = p, sbp = from, dtype = dtype}):cumsum(1).sbp) end
        assert.are.equal("S(0)", sbp "S(0)")
        assert.are.equal("P", sbp "P")
        assert.are.equal("P", sbp("P", "int64"))
        assert.are.equal("B", sbp "B")
    end)
end)
