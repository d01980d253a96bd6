-- elementwise_spec.lua -- the values of every elementwise op against plain Lua: dtypes, NaN, infinities, signed zeros, integer
-- division, wrapping. Accuracy: elementwise_accuracy_spec.lua; sizes and layouts: elementwise_bits_spec.lua.
local flow = require "flow"
local cases = require "tests.elementwise_cases"
local ref = require "tests.reference"
local support = require "tests.support"

local inf, nan = math.huge, 0 / 0
local message = support.message_of
local interesting, whole_numbers, column, row, same = cases.interesting, cases.whole_numbers, cases.column, cases.row, cases.same
local unary, predicates, title, apply = cases.unary, cases.predicates, cases.title, cases.apply
local ulps_in, slack_of = cases.ulps_in, cases.slack_of

describe("values of", function()
    for _, case in ipairs(unary) do
        it(title(case), function()
            for _, dtype in ipairs(ref.floats) do
                local x = interesting(dtype, 300)
                ref.check(apply(case, ref.tensor(x, dtype)), ref.map(case[2], x), dtype, ulps_in(case, dtype), title(case) .. " " .. dtype, slack_of(case, dtype, x))
            end
        end)
    end

    for _, case in ipairs(predicates) do
        it(case[1], function()
            for _, dtype in ipairs(ref.floats) do
                local x = interesting(dtype, 300)
                ref.check(apply(case, ref.tensor(x, dtype)), ref.map(case[2], x), "bool", 0, case[1] .. " " .. dtype)
            end
            for _, dtype in ipairs {"bool", "uint8", "int8", "int32", "int64"} do
                local x = row(whole_numbers(dtype))
                ref.check(apply(case, ref.tensor(x, dtype)), ref.map(case[2], x), "bool", 0, case[1] .. " " .. dtype)
            end
        end)
    end
end)

describe("integers:", function()
    -- Float functions of integers and booleans give float32.
    local float_functions = {}
    for _, case in ipairs(unary) do float_functions[case[1]] = case end
    for _, name in ipairs {
        "neg", "abs", "square", "sign", "relu", "clamp", "floor", "ceil", "round", "trunc", "relu6", "hardtanh", "threshold",
    } do float_functions[name] = nil end
    for name, case in pairs(float_functions) do
        it(name .. " gives float32", function()
            for _, dtype in ipairs {"bool", "uint8", "int8", "int32", "int64"} do
                local x = row(dtype == "bool" and {0, 1} or ref.lowest[dtype] < 0 and {0, 1, 2, 3, 50, -1, -2, -50} or {0, 1, 2, 3, 50})
                local got = apply(case, ref.tensor(x, dtype))
                local f = function(v) return case[2](v + 0.0) end
                ref.check(got, ref.map(f, x), "float32", ulps_in(case, "float32"), name .. " " .. dtype, slack_of(case, "float32", x))
            end
        end)
    end

    local exact = {
        {"neg", function(x) return -x end},
        {"abs", function(x) return x < 0 and -x or x end},
        {"square", function(x) return x * x end},
        {"sign", function(x) return x > 0 and 1 or x < 0 and -1 or 0 end},
        {"relu", function(x) return x < 0 and 0 or x end},
        {"clamp", function(x) return x < 2 and 2 or x > 9 and 9 or x end, nil, {args = {2, 9}}},
        {"clamp", function(x) return x < 9 and 9 or x end, nil, {args = {9}}},
        {"clamp", function(x) return x > 9 and 9 or x end, nil, {args = {nil, 9, n = 2}}},
        {"relu6", function(x) return x < 0 and 0 or x > 6 and 6 or x end},
        {"hardtanh", function(x) return x < 2 and 2 or x > 9 and 9 or x end, nil, {args = {2, 9}}},
        {"threshold", function(x) return x <= 3 and 7 or x end, nil, {args = {3, 7}}},
        {"floor", same}, {"ceil", same}, {"round", same}, {"trunc", same},
        {"bitwise_not", function(x) return ~x end},
    }
    for _, case in ipairs(exact) do
        it(title(case) .. " stays exact and wraps", function()
            for _, dtype in ipairs(ref.integers) do
                local x = row(whole_numbers(dtype))
                ref.check(apply(case, ref.tensor(x, dtype)), ref.map(case[2], x), dtype, 0, title(case) .. " " .. dtype)
            end
        end)
    end
end)

---- functions of two numbers ----

local function fmod(x, y)
    if x ~= x or y ~= y or x == inf or x == -inf or y == 0 then return nan end
    if y == inf or y == -inf then return x end
    local r = math.fmod(x, y)
    return r == 0 and (1 / x < 0 and -0.0 or 0.0) or r
end

local function remainder(x, y)
    local rest = fmod(x, y)
    if rest ~= 0 and rest == rest and (rest < 0) ~= (y < 0) then rest = rest + y end
    return rest
end

local function larger(x, y) return (x ~= x and x) or (y ~= y and y) or (x > y and x) or y end
local function smaller(x, y) return (x ~= x and x) or (y ~= y and y) or (x < y and x) or y end

-- name, f, {ulps}, opts
local binary = {
    {"add", function(x, y) return x + y end},
    {"sub", function(x, y) return x - y end},
    {"mul", function(x, y) return x * y end},
    {"div", function(x, y) return x / y end},
    {"fmod", fmod},
    {"remainder", remainder},
    {"pow", function(x, y) return x ^ y end, {1, 1}},
    {"maximum", larger, nil, {zeros = true}},
    {"minimum", smaller, nil, {zeros = true}},
    {"atan2", math.atan, {1, 1}},
}

local few = {0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2.5, 3, 7, -7, 1e-3, 1e4, -300, inf, -inf, nan}

describe("pairs:", function()
    for _, case in ipairs(binary) do
        it(case[1], function()
            for _, dtype in ipairs(ref.floats) do
                local x, y = column(few), row(few)
                for i = 1, #few do x[i], y[i] = ref.round(dtype, x[i]), ref.round(dtype, y[i]) end
                local got = flow[case[1]](ref.tensor(x, dtype), ref.tensor(y, dtype))
                if case[4] and case[4].zeros then got = got + 0 end -- the larger of two zeros is not specified
                local want = ref.map(case[2], x, y)
                if case[4] and case[4].zeros then want = ref.map(function(v) return v + 0.0 end, want) end
                ref.check(got, want, dtype, ulps_in(case, dtype), case[1] .. " " .. dtype)
            end
        end)
    end

    it("floor_divide", function()
        for _, dtype in ipairs(ref.floats) do
            local list = {0.5, -0.5, 1, -1, 2, -2.5, 3, 7, -7, 300, -300, 0.125}
            local got = flow.floor_divide(ref.tensor(column(list), dtype), ref.tensor(row(list), dtype))
            ref.check(got, ref.map(function(x, y) return math.floor(x / y) + 0.0 end, column(list), row(list)), dtype, 0, "floor_divide " .. dtype)
        end
        local function edge(x, y) return (flow.tensor({x}, {dtype = "float64"}) // flow.tensor({y}, {dtype = "float64"})):item() end
        assert.are.equal(inf, edge(1.0, 0.0))
        assert.are.equal(-inf, edge(-1.0, 0.0))
        assert.are.equal(0, edge(3.0, inf))
        assert.are.equal(-1, edge(-3.0, inf))
        assert.are.equal(9, edge(1.0, 0.1)) -- as in Python: 0.1 is a little more than a tenth
        for _, p in ipairs {{0.0, 0.0}, {nan, 1.0}, {1.0, nan}, {inf, 1.0}} do assert.is_true(edge(p[1], p[2]) ~= edge(p[1], p[2])) end
    end)

    local comparisons = {
        eq = function(x, y) return x == y end, ne = function(x, y) return x ~= y end,
        lt = function(x, y) return x < y end, le = function(x, y) return x <= y end,
        gt = function(x, y) return x > y end, ge = function(x, y) return x >= y end,
    }
    for name, f in pairs(comparisons) do
        it(name, function()
            local function number(x, y) return f(x, y) and 1 or 0 end
            for _, dtype in ipairs(ref.dtypes) do
                local list = ref.is_float(dtype) and few or whole_numbers(dtype)
                local x, y = column(list), row(list)
                for i = 1, #list do x[i], y[i] = ref.round(dtype, x[i]), ref.round(dtype, y[i]) end
                ref.check(flow[name](ref.tensor(x, dtype), ref.tensor(y, dtype)), ref.map(number, x, y), "bool", 0, name .. " " .. dtype)
            end
        end)
    end

    local logic = {
        logical_and = function(x, y) return x ~= 0 and y ~= 0 end,
        logical_or = function(x, y) return x ~= 0 or y ~= 0 end,
        logical_xor = function(x, y) return (x ~= 0) ~= (y ~= 0) end,
    }
    for name, f in pairs(logic) do
        it(name, function()
            local function number(x, y) return f(x, y) and 1 or 0 end
            for _, dtype in ipairs(ref.dtypes) do
                local list = ref.is_float(dtype) and {0.0, -0.0, 0.25, -1, nan, inf} or whole_numbers(dtype)
                local got = flow[name](ref.tensor(column(list), dtype), ref.tensor(row(list), dtype))
                ref.check(got, ref.map(number, column(list), row(list)), "bool", 0, name .. " " .. dtype)
            end
        end)
    end
end)

describe("integer pairs:", function()
    local function not_zero(list)
        local kept = {}
        for _, v in ipairs(list) do if v ~= 0 then kept[#kept + 1] = v end end
        return kept
    end
    local function power(x, y)
        local p = 1
        for _ = 1, y do p = p * x end
        return p
    end
    local function rest(x, y) return y == -1 and 0 or math.fmod(x, y) end
    local small = {0, 1, 2, 3, 5, 7, 31}
    -- name, f, divisors
    for _, case in ipairs {
        {"add", function(x, y) return x + y end},
        {"sub", function(x, y) return x - y end},
        {"mul", function(x, y) return x * y end},
        {"fmod", rest, not_zero},
        {"remainder", function(x, y) return x % y end, not_zero},
        {"floor_divide", function(x, y) return x // y end, not_zero},
        {"pow", power, function() return small end},
        {"maximum", function(x, y) return x > y and x or y end},
        {"minimum", function(x, y) return x < y and x or y end},
        {"bitwise_and", function(x, y) return x & y end},
        {"bitwise_or", function(x, y) return x | y end},
        {"bitwise_xor", function(x, y) return x ~ y end},
    } do
        it(case[1], function()
            for _, dtype in ipairs(ref.integers) do
                local x = whole_numbers(dtype)
                local y = case[3] and case[3](x) or x
                local got = flow[case[1]](ref.tensor(column(x), dtype), ref.tensor(row(y), dtype))
                ref.check(got, ref.map(case[2], column(x), row(y)), dtype, 0, case[1] .. " " .. dtype)
            end
        end)
    end

    it("div is a true quotient in float32", function()
        for _, dtype in ipairs(ref.integers) do
            local x = {1, 7, 100, 3}
            local got = flow.div(ref.tensor(column(x), dtype), ref.tensor(row(x), dtype))
            ref.check(got, ref.map(function(a, b) return a / b end, column(x), row(x)), "float32", 0, "div " .. dtype)
        end
        assert.are.equal(inf, (flow.tensor {1} / flow.tensor {0}):item())
    end)

    it("booleans add and multiply as or and and", function()
        local x, y = flow.tensor {false, false, true, true}, flow.tensor {false, true, false, true}
        local function list(t) return t:totable() end
        assert.are.same({false, true, true, true}, list(x + y))
        assert.are.same({false, false, false, true}, list(x * y))
        assert.are.same({false, true, true, true}, list(flow.maximum(x, y)))
        assert.are.same({false, false, false, true}, list(flow.minimum(x, y)))
        assert.are.same({false, false, false, true}, list(x:bitwise_and(y)))
        assert.are.same({false, true, true, true}, list(x:bitwise_or(y)))
        assert.are.same({false, true, true, false}, list(x:bitwise_xor(y)))
        assert.are.same({true, true, false, false}, list(x:bitwise_not()))
        assert.are.same({false, false, true, true}, list(x:sign()))
    end)

    it("division by zero and negative powers are errors", function()
        local x, zero = flow.tensor {5, 6}, flow.tensor {1, 0}
        for _, name in ipairs {"floor_divide", "remainder", "fmod"} do
            assert.are.equal(name .. ": division by zero", message(function() return flow[name](x, zero):totable() end))
            assert.are.equal(name .. ": division by zero", message(function() return flow[name](x, 0):totable() end))
        end
        assert.are.equal("pow: integers to negative integer powers are not allowed; write x:to(\"float32\") first", message(function() return (x ^ -1):totable() end))
        assert.are.same({0.25}, (flow.tensor {4.0} ^ -1):totable())
    end)
end)
