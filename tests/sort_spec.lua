-- sort_spec.lua -- sort, topk and argsort against plain Lua: order, ties, NaN, axes, dtypes, layouts, long rows, gradients.
local flow = require "flow"
local ref = require "tests.reference"
local support = require "tests.support"

local inf, nan = math.huge, 0 / 0

-- Positions (from 0) of the elements in order: NaN counts as the largest, equal elements by position.
local function order(list, descending)
    local at = {}
    for i = 1, #list do at[i] = i - 1 end
    local function before(a, b)
        local x, y = list[a + 1], list[b + 1]
        if descending then x, y = y, x end
        if x ~= x or y ~= y then
            if x ~= x and y ~= y then return a < b end
            return y ~= y
        end
        if x == y then return a < b end
        return x < y
    end
    table.sort(at, before)
    return at
end

-- The first k of each line in order: arrays of values and of positions.
local function expected(x, axis, k, descending)
    local a = ref.of(x)
    local positions = ref.lines(a, axis, function(list) return order(list, descending) end)
    local places = ref.lines(a, axis, function(list)
        local out = {}
        for i, at in ipairs(order(list, descending)) do out[i] = list[at + 1] end
        return out
    end)
    local shape = table.move(a.shape, 1, #a.shape, 1, {})
    if #shape > 0 then shape[axis % #shape + 1] = k end
    local function first(from)
        return ref.array(shape, function(i) return ref.at(from, ref.unravel(shape, i)) end)
    end
    return first(places), first(positions)
end

local function check(what, x, axis, k, descending, values, positions)
    local want, at = expected(x, axis, k, descending)
    ref.check(values, want, x.dtype, 0, what)
    ref.check(positions, at, "int64", 0, what .. ": positions")
end

local function check_all(what, x, axis)
    local n = x.ndim == 0 and 1 or x:size(axis)
    for _, down in ipairs {false, true} do
        local name = ("%s, axis %d, %s"):format(what, axis, down and "down" or "up")
        check("sort " .. name, x, axis, n, down, x:sort(axis, down))
        ref.check(x:argsort(axis, down), select(2, expected(x, axis, n, down)), "int64", 0, "argsort " .. name)
        for _, k in ipairs {0, 1, n // 2, n} do
            if x.ndim > 0 or k == 1 then check(("topk %d %s"):format(k, name), x, axis, k, down, x:topk(k, axis, down)) end
        end
    end
end

-- Few different values, so that there are ties.
local function values(dtype, ...)
    if dtype == "bool" then return flow.randint(0, 2, {...}):to "bool" end
    local x = flow.randint(-4, 5, {...})
    if dtype == "uint8" then x = x + 4 end
    return ref.is_float(dtype) and (x * 0.75):to(dtype) or x:to(dtype)
end

describe("sort and topk", function()
    it("give what plain Lua gives, in every dtype, layout and along every axis", function()
        flow.manual_seed(1)
        for _, dtype in ipairs(ref.dtypes) do
            for _, sizes in ipairs {{7}, {60}, {3, 5}, {2, 60, 3}, {4, 1, 6}} do
                for _, layout in ipairs(ref.layouts(values(dtype, table.unpack(sizes)))) do
                    for axis = 0, #sizes - 1 do check_all(dtype .. " " .. layout[1], layout[2], axis) end
                end
            end
        end
    end)

    it("take the extremes of integers and the numbers that are none", function()
        for _, dtype in ipairs(ref.integers) do
            local low, high = ref.lowest[dtype], ref.highest[dtype]
            check_all(dtype, flow.tensor({high, 0, low, 1, high, low, high - 1, low + 1}, {dtype = dtype}), 0)
        end
        for _, dtype in ipairs(ref.floats) do
            local top = ref.largest(dtype)
            local x = flow.tensor({1, nan, -inf, inf, -nan, 0.0, top, -0.0, -top, inf, -1, 2.0 ^ -24, nan, -2.0 ^ -24}, {dtype = dtype})
            check_all(dtype, x, 0)
            check_all(dtype .. ", longer", x:rep(40), 0)
        end
    end)

    it("tell zeros apart by their position only", function()
        local v, at = flow.sort(flow.tensor {0.0, -0.0, 0.0, -0.0})
        assert.are.same({0, 1, 2, 3}, at:totable())
        assert.are.same({inf, -inf, inf, -inf}, (1 / v):totable())
        assert.are.same({0, 1}, select(2, flow.topk(flow.tensor {-0.0, 0.0, -0.0}, 2)):totable())
    end)

    it("take long rows, one and many, by way of the team", function()
        flow.manual_seed(2)
        for _, case in ipairs {{"float32", 1, 70001}, {"float64", 1, 66000}, {"int8", 2, 70000}, {"bfloat16", 17, 66000}} do
            local dtype, rows, n = table.unpack(case)
            local x = (flow.randn(rows, n) * 20):to(dtype)
            for _, down in ipairs {false, true} do
                local v, at = x:sort(1, down)
                local name = ("%s %dx%d"):format(dtype, rows, n)
                assert.is_true(x:gather(1, at):eq(v):all():item(), name .. ": values")
                local left, right = v:narrow(1, 0, n - 1), v:narrow(1, 1, n - 1)
                local ordered = down and left:gt(right) or left:lt(right)
                local tied = left:eq(right):logical_and(at:narrow(1, 0, n - 1):lt(at:narrow(1, 1, n - 1)))
                assert.is_true(ordered:logical_or(tied):all():item(), name .. ": order")
                for _, k in ipairs {1, 10, 3000, 40000} do
                    local first, where = x:topk(k, 1, down)
                    assert.is_true(first:eq(v:narrow(1, 0, k)):all():item(), name .. ": topk " .. k)
                    assert.is_true(where:eq(at:narrow(1, 0, k)):all():item(), name .. ": topk " .. k .. ": positions")
                end
            end
        end
    end)

    it("keep the first k of rows that get better and better", function()
        local x = flow.arange(5000)
        assert.are.same({4999, 4998, 4997}, select(2, x:topk(3)):totable())
        assert.are.same({0, 1, 2}, select(2, x:topk(3, 0, false)):totable())
        assert.are.same({0, 1, 2}, select(2, (-x):topk(3)):totable())
    end)

    it("do not depend on the number of threads", function()
        local x = flow.randint(0, 50, {200000})
        local threads = flow.get_num_threads and flow.get_num_threads()
        flow.set_num_threads(1)
        local _, one = x:sort()
        flow.set_num_threads(3)
        local _, three = x:sort()
        flow.set_num_threads(threads or 2)
        assert.is_true(one:eq(three):all():item())
    end)

    it("take empty tensors and those without axes", function()
        local v, at = flow.zeros(3, 0):sort()
        assert.are.same({{3, 0}, {3, 0}, "int64"}, {v.shape, at.shape, at.dtype})
        v, at = flow.zeros(0, 4):topk(2)
        assert.are.same({{0, 2}, {0, 2}}, {v.shape, at.shape})
        v, at = flow.zeros(0, 4):topk(0, 0)
        assert.are.same({{0, 4}, {0, 4}}, {v.shape, at.shape})
        v, at = flow.tensor(2.5):sort()
        assert.are.same({{}, 2.5, 0}, {v.shape, v:item(), at:item()})
        v, at = flow.tensor(7):topk(1, -1, false)
        assert.are.same({{}, 7, 0}, {v.shape, v:item(), at:item()})
    end)

    it("are differentiated by putting gradients back where the values came from", function()
        local x = flow.tensor({{3, 1, 2}, {5, 6, 4}}, {dtype = "float32", requires_grad = true})
        local v = x:sort(1)
        ;(v * flow.tensor {1, 10, 100}):sum():backward()
        assert.are.same({{100, 1, 10}, {10, 100, 1}}, x.grad:totable())
        x.grad = nil
        ;(x:topk(1, 0) * flow.tensor {1, 2, 3}):sum():backward()
        assert.are.same({{0, 0, 0}, {1, 2, 3}}, x.grad:totable())
    end)

    it("say what is wrong", function()
        local x = flow.zeros(3, 4)
        for _, case in ipairs {
            {"sort: axis 2 is out of range for shape [3, 4] (-2 to 1)", function() x:sort(2) end},
            {"topk: axis -3 is out of range for shape [3, 4] (-2 to 1)", function() x:topk(1, -3) end},
            {"topk: k is 5, but axis 1 of [3, 4] has 4 elements", function() x:topk(5) end},
            {"topk: k is -1, but axis 0 of [3, 4] has 3 elements", function() x:topk(-1, 0) end},
            {"topk: k is 2, but axis 0 of [] has 1 elements", function() flow.tensor(1):topk(2) end},
            {"topk: missing argument 'k': topk(x, k: int, axis: axis = -1, largest: bool = true, sorted: bool = true)", function() x:topk() end},
            {"sort: descending must be true or false, got number", function() x:sort(0, 1) end},
        } do assert.are.equal(case[1], support.message_of(case[2])) end
    end)
end)

describe("searchsorted", function()
    -- The first element that is not below the value, with right the first that is above it.
    local function place(line, value, right)
        for i, v in ipairs(line) do
            if right and v > value or not right and v >= value then return i - 1 end
        end
        return #line
    end

    it("finds the places of plain Lua, in lines of any length", function()
        flow.manual_seed(14)
        for _, dtype in ipairs {"float32", "float64", "int64", "bfloat16"} do
            for _, n in ipairs {0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 33, 100} do
                local sorted = flow.randint(-20, 20, {2, n}):to(dtype):sort(1)
                local looked_for = flow.randint(-22, 22, {2, 60}):to(dtype)
                for _, right in ipairs {false, true} do
                    local got = flow.searchsorted(sorted, looked_for, {right = right}):totable()
                    local lines, first = sorted:totable(), flow.searchsorted(sorted[0], looked_for, {right = right}):totable()
                    for r, row in ipairs(looked_for:totable()) do
                        for i, v in ipairs(row) do
                            assert.are.equal(place(lines[r] or {}, v, right), got[r][i])
                            assert.are.equal(place(lines[1] or {}, v, right), first[r][i])
                        end
                    end
                end
            end
        end
    end)

    it("puts infinities at the ends, and NaN behind all", function()
        local line, looked_for = flow.tensor {-inf, -1, 0, 0, inf}, flow.tensor {-inf, 0, inf, nan}
        assert.are.same({0, 2, 4, 5}, flow.searchsorted(line, looked_for):totable())
        assert.are.same({1, 4, 5, 5}, flow.searchsorted(line, looked_for, {right = true}):totable())
        assert.are.same({1, 3, 1}, flow.searchsorted(flow.tensor {1, 2, nan}, flow.tensor {2, nan, 2}):totable())
    end)
end)
