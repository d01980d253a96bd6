-- flip_spec.lua -- flip and roll against plain Lua, over dtypes and layouts; gradients are the registry's, parts and errors here.
local flow = require "flow"
local ref = require "tests.reference"
local support = require "tests.support"

local text = support.shape_text

-- An array that counts, and its tensor.
local function counting(shape, dtype)
    local most = dtype == "bool" and 2 or 101
    local a = ref.array(shape, function(i) return i % most end)
    return a, ref.tensor(a, dtype)
end

-- `f(tensor)` in every layout and dtype is `want(array)`.
local function each(shape, what, f, want)
    for _, dtype in ipairs(ref.dtypes) do
        local a, t = counting(shape, dtype)
        local expected = want(a)
        for _, layout in ipairs(ref.layouts(t)) do
            local got = f(layout[2])
            assert.is_true(got:is_contiguous())
            ref.check(got, expected, dtype, 0, ("%s of %s %s, %s"):format(what, dtype, text(shape), layout[1]))
        end
    end
end

-- The axes of a shape in all ways.
local function sets(ndim)
    local list = {}
    for mask = 0, (1 << ndim) - 1 do
        local axes = {}
        for axis = 0, ndim - 1 do if mask >> axis & 1 == 1 then axes[#axes + 1] = axis % 2 == 0 and axis or axis - ndim end end
        list[#list + 1] = axes
    end
    return list
end

describe("flip", function()
    it("turns any axes round", function()
        for _, shape in ipairs {{}, {0}, {1}, {9}, {0, 3}, {3, 1}, {3, 5}, {17, 33}, {2, 3, 5}} do
            for _, axes in ipairs(sets(#shape)) do
                each(shape, "flip " .. text(axes), function(t) return t:flip(axes) end, function(a) return ref.flip(a, axes) end)
            end
        end
    end)

    it("takes axes as numbers or as a list", function()
        local x = flow.arange(6):reshape(2, 3)
        assert.are.same({{5, 4, 3}, {2, 1, 0}}, x:flip(0, 1):totable())
        assert.are.same({{5, 4, 3}, {2, 1, 0}}, flow.flip(x, {-2, -1}):totable())
        assert.are.same({{0, 1, 2}, {3, 4, 5}}, x:flip({}):totable())
        assert.are.equal(7, flow.tensor(7):flip(0):item())
    end)

    it("is a copy", function()
        local x = flow.zeros(1, 3)
        x:flip(0):fill_(1)
        x:flip({}):fill_(1)
        assert.are.equal(0, x:sum():item())
    end)

    it("large, along each axis", function()
        local x = flow.randn(300, 70, 130)
        for axis = 0, 2 do
            local positions = flow.arange(x:size(axis) - 1, -1, -1)
            assert.is_true(x:flip(axis):eq(x:index_select(axis, positions)):all():item())
        end
        assert.is_true(x:transpose(0, 2):flip(0, 2):eq(x:flip(0, 2):transpose(0, 2)):all():item())
    end)

    it("says what is wrong", function()
        local x = flow.zeros(2, 3)
        assert.are.equal("flip: axis 2 is out of range for shape [2, 3] (-2 to 1)", support.message_of(function() x:flip(2) end))
        assert.are.equal("flip: axis 1 is named twice", support.message_of(function() x:flip(1, -1) end))
    end)
end)

describe("roll", function()
    it("moves along any axes", function()
        for _, shape in ipairs {{0}, {1}, {9}, {0, 3}, {3, 1}, {3, 5}, {2, 3, 5}} do
            for _, axes in ipairs(sets(#shape)) do
                for _, shift in ipairs {0, 1, -2, 7} do
                    local shifts = {}
                    for i = 1, #axes do shifts[i] = shift + i - 1 end
                    each(shape, ("roll %s %s"):format(text(shifts), text(axes)), function(t) return t:roll(shifts, axes) end,
                        function(a) return ref.roll(a, shifts, axes) end)
                end
            end
        end
    end)

    it("moves all elements as one line without axes", function()
        for _, shape in ipairs {{}, {0}, {5}, {3, 5}, {2, 3, 4}} do
            for _, shift in ipairs {0, 1, -4, 100} do
                each(shape, "roll " .. shift, function(t) return t:roll(shift) end, function(a)
                    return ref.array(a.shape, function(i) return a[(i - shift) % #a + 1] end)
                end)
            end
        end
    end)

    it("adds the shifts of an axis that is named twice", function()
        local x = flow.arange(5)
        assert.are.same({3, 4, 0, 1, 2}, x:roll({3, -1}, {0, 0}):totable())
        assert.are.same({4, 0, 1, 2, 3}, x:roll(math.mininteger + (5 - math.mininteger % 5 + 1) % 5, 0):totable())
        assert.are.same({4, 0, 1, 2, 3}, x:roll(1, 0):totable())
    end)

    it("says what is wrong", function()
        local x = flow.zeros(2, 3)
        for _, case in ipairs {
            {"roll: axis 2 is out of range for shape [2, 3] (-2 to 1)", function() x:roll(1, 2) end},
            {"roll: there must be one shift for each axis, got 2 for 1", function() x:roll({1, 2}, 0) end},
            {"roll: there must be one shift for each axis, got 1 for 2", function() x:roll(1, {0, 1}) end},
            {"roll: without axes there must be one shift, got 2", function() x:roll({1, 2}) end},
        } do assert.are.equal(case[1], support.message_of(case[2])) end
    end)
end)

describe("flip and roll of global tensors", function()
    teardown(function() flow._testing.set_world(1, 0) end)

    it("keep a split of other axes and every partial", function()
        flow._testing.set_world(2, 1)
        local p = flow.placement("cpu", {0, 1})
        for _, f in ipairs {function(x) return x:flip(1) end, function(x) return x:roll(2, 1) end} do
            for _, sbp in ipairs {"S(0)", "P", "P(max)", "P(min)", "B"} do
                assert.are.equal(sbp, tostring(f(flow.zeros({4, 6}, {placement = p, sbp = "B"}):to_global{sbp = sbp}).sbp))
            end
        end
    end)
end)
