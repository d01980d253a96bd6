-- pad_spec.lua -- pad against plain Lua: all modes over dtypes, layouts, axes, rows that are short and long, gradients.
local flow = require "flow"
local ref = require "tests.reference"

-- {shape of x, padding}: within what reflect may do; negative numbers cut.
local cases = {
    {{5}, {2, 3}}, {{1}, {0, 0}}, {{3, 4}, {1, 2}}, {{3, 4}, {0, 0, 2, 1}}, {{3, 4}, {3, 1, 2, 0}}, {{2, 3, 4, 5}, {1, 1, 2, 2}}, {{2, 3, 4}, {0, 3, 2, 0, 1, 1}},
    {{3, 6}, {-2, 1, 1, -1}}, {{3, 90}, {1, 1, 1, 1}}, {{2, 700}, {5, 0, 1, 1}}, {{0, 4}, {1, 1}}, {{2, 3, 0}, {0, 0, 1, 1}},
}

-- The source of position `at` of an axis of n elements; nil: the fill value.
local sources = {
    constant = function(at, n) return at >= 0 and at < n and at or nil end,
    reflect = function(at, n) return at < 0 and -at or at >= n and 2 * n - 2 - at or at end,
    replicate = function(at, n) return math.max(0, math.min(n - 1, at)) end,
    circular = function(at, n) return at % n end,
}

local function around(pad, axis, ndim)
    local i = 2 * (ndim - axis)
    return pad[i + 1] or 0, pad[i + 2] or 0
end

-- Cuts a by negative padding, then pads it.
local function padded(a, pad, mode, value)
    local ndim, shape = #a.shape, {}
    for axis = 1, ndim do
        local before, after = around(pad, axis, ndim)
        shape[axis] = a.shape[axis] + before + after
    end
    local i = -1
    return ref.array(shape, function()
        i = i + 1
        local at = ref.unravel(shape, i)
        for axis = 1, ndim do
            local before, after = around(pad, axis, ndim)
            local cut, n = math.max(0, -before), a.shape[axis] + math.min(0, before) + math.min(0, after)
            local from = at and sources[mode](at[axis] - math.max(0, before), n)
            if not from then return value end
            at[axis] = from + cut
        end
        return ref.at(a, at)
    end)
end

local function operand(shape, dtype, seed)
    local random = ref.generator(seed)
    return ref.array(shape, function() return dtype == "bool" and math.floor(random() + 1) or ref.round(dtype, math.floor(random() * 100)) end)
end

describe("pad", function()
    for mode in pairs(sources) do
        it("puts elements around x: " .. mode, function()
            for n, case in ipairs(cases) do
                local constant = mode == "constant"
                for _, dtype in ipairs((constant or mode == "circular") and ref.dtypes or ref.floats) do
                    local a, value = operand(case[1], dtype, n), constant and (dtype == "bool" and true or 7) or nil
                    local want = padded(a, case[2], mode, value == true and 1 or value)
                    for _, x in ipairs(ref.layouts(ref.tensor(a, dtype))) do
                        ref.check(flow.pad(x[2], case[2], mode, value), want, dtype, 0, ("%s, case %d, %s, %s"):format(mode, n, dtype, x[1]))
                    end
                end
            end
        end)

        it("gives an element the gradients of all its copies: " .. mode, function()
            for n, case in ipairs(cases) do
                local x = flow.zeros(case[1], {dtype = "float64", requires_grad = true})
                local y = flow.pad(x, case[2], mode)
                local g = flow.randint(-9, 10, y.shape):to "float64"
                y:backward(g)
                -- The sum of all products is that of x's own: <pad(v), g> = <v, gradient>.
                local v = flow.randint(-9, 10, case[1]):to "float64"
                assert.are.equal((flow.pad(v, case[2], mode) * g):sum():item(), (v * x.grad):sum():item(), ("%s, case %d"):format(mode, n))
            end
        end)
    end
end)
