-- elementwise_cases.lua -- elementwise ops as functions of plain Lua, and numbers to try them with: what the specs of
-- elementwise ops share.
local ref = require "tests.reference"
local support = require "tests.support"

local inf, nan = math.huge, 0 / 0

---- inputs ----

-- Numbers worth looking at, then magnitudes from tiny to huge, then ordinary ones; rounded to the dtype.
local function interesting(dtype, count)
    local list = {0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 3, -3, 2, inf, -inf, nan, 88.5, -88.5, 0.1, 20.5, -103.5}
    local random = ref.generator(7)
    while #list < count do
        local r = random()
        if #list % 3 == 0 then list[#list + 1] = (r < 0 and -1 or 1) * 10.0 ^ (random() * (dtype == "float16" and 5 or 38))
        else list[#list + 1] = r * 10 end
    end
    local a = {shape = {count}}
    for i = 1, count do a[i] = ref.round(dtype, list[i]) end
    return a
end

local function whole_numbers(dtype)
    if dtype == "bool" then return {0, 1} end
    local low, high = ref.lowest[dtype], ref.highest[dtype]
    local list = {low, low + 1, low + 7, high, high - 1, high - 6, 0, 1, 2, 3, 7, 10, 100}
    if low < 0 then for _, v in ipairs {-1, -2, -3, -7, -10, -100} do list[#list + 1] = v end end
    return list
end

local function column(list) return table.move(list, 1, #list, 1, {shape = {#list, 1}}) end
local function row(list) return table.move(list, 1, #list, 1, {shape = {#list}}) end

---- functions of one number ----

local function gelu(x) return x * (x < 0 and ref.erfc(-x * 0.70710678118654752) / 2 or (1 + ref.erf(x * 0.70710678118654752)) / 2) end
local function gelu_tanh(x) return x * ref.sigmoid(2 * 0.79788456080286536 * (x + 0.044715 * x * x * x)) end
local function log_of(base) return function(x) return x < 0 and nan or base and math.log(x, base) or math.log(x) end end
local function same(x) return x end

-- name, f, {ulps in float32, in float64}, opts: slack (relative to |x|), args, wide (false: only |x| <= 10 is tried)
local unary = {
    {"neg", function(x) return -x end},
    {"abs", function(x) return x == 0 and 0.0 or math.abs(x) end},
    {"square", function(x) return x * x end},
    {"sign", function(x) return x > 0 and 1 or x < 0 and -1 or 0 end},
    {"reciprocal", function(x) return 1 / x end},
    {"sqrt", function(x) return x < 0 and nan or x == 0 and x or math.sqrt(x) end},
    {"rsqrt", function(x) return x == 0 and 1 / x or 1 / math.sqrt(x) end, {1, 2}},
    {"exp", math.exp, {1, 1}},
    {"exp2", function(x) return 2.0 ^ x end, {1, 1}},
    {"expm1", ref.expm1, {2, 4}},
    {"log", log_of(), {1, 1}},
    {"log2", log_of(2), {2, 2}},
    {"log10", log_of(10), {3, 2}},
    {"log1p", function(x) return x < -1 and nan or ref.log1p(x) end, {2, 2}},
    {"sin", math.sin, {2, 1}},
    {"cos", math.cos, {2, 1}},
    {"tan", math.tan, {4, 3}},
    {"asin", math.asin, {1, 1}},
    {"acos", math.acos, {1, 1}},
    {"atan", math.atan, {1, 1}},
    {"sinh", ref.sinh, {3, 4}},
    {"cosh", ref.cosh, {2, 4}},
    {"tanh", ref.tanh, {3, 4}},
    {"sigmoid", ref.sigmoid, {3, 3}},
    {"erf", ref.erf, {2, 8}},
    {"relu", function(x) return x < 0 and 0 or x end},
    {"leaky_relu", function(x) return x > 0 and x or x * 0.125 end, {0, 0}, {args = {0.125}}},
    {"elu", function(x) return x > 0 and x or 2 * ref.expm1(x) end, {3, 4}, {args = {2}}},
    {"celu", function(x) return x > 0 and x or 2 * ref.expm1(x / 2) end, {3, 4}, {args = {2}}},
    {"selu", function(x) return 1.0507009873554805 * (x > 0 and x or 1.6732632423543772 * ref.expm1(x)) end, {4, 5}},
    {"hardtanh", function(x) return x ~= x and x or math.max(-1.5, math.min(x, 2)) end, {0, 0}, {args = {-1.5, 2}}},
    {"relu6", function(x) return x < 0 and 0 or x > 6 and 6 or x end},
    {"hardsigmoid", function(x) return x ~= x and x or math.max(0, math.min(x + 3, 6)) / 6 end, {1, 1}, {slack = 1e-7}},
    {"hardswish", function(x) return x == -inf and nan or x * ((x ~= x and x or math.max(0, math.min(x + 3, 6))) / 6) end, {2, 2}, {slack = 1e-7}},
    {"hardshrink", function(x) return x >= -1.5 and x <= 1.5 and 0 or x end, {0, 0}, {args = {1.5}}},
    {"softshrink", function(x) return x > 1.5 and x - 1.5 or x < -1.5 and x + 1.5 or x ~= x and x or 0 end, {0, 0}, {args = {1.5}}},
    {"softsign", function(x) return x / (1 + math.abs(x)) end, {1, 1}},
    {"logsigmoid", function(x) return (x < 0 and x or 0) - ref.log1p(math.exp(-math.abs(x))) end, {3, 4}},
    {"threshold", function(x) return x <= 0.5 and -2 or x end, {0, 0}, {args = {0.5, -2}}},
    {"softplus", function(x) return x > 20 and x or ref.log1p(math.exp(x)) end, {4, 4}},
    {"softplus", function(x) return 2 * x > 3 and x or ref.log1p(math.exp(2 * x)) / 2 end, {4, 4}, {args = {2, 3}}},
    {"gelu", gelu, {4, 8}, {slack = 2}},
    {"gelu", gelu_tanh, {4, 8}, {slack = 2, args = {"tanh"}}},
    {"silu", function(x) return x / (1 + math.exp(-x)) end, {3, 3}, {slack = 1e-30}},
    {"clamp", function(x) return x ~= x and x or math.max(-1.5, math.min(x, 2)) end, {0, 0}, {args = {-1.5, 2}}},
    {"clamp", function(x) return x ~= x and x or math.max(-1.5, x) end, {0, 0}, {args = {-1.5}}},
    {"clamp", function(x) return x ~= x and x or math.min(x, 2) end, {0, 0}, {args = {nil, 2, n = 2}}},
    {"floor", function(x) return ref.is_finite(x) and x ~= 0 and math.abs(x) < 2 ^ 52 and math.floor(x) + 0.0 or x end},
    {"ceil", function(x) return ref.is_finite(x) and x ~= 0 and math.abs(x) < 2 ^ 52 and (x > -1 and x < 0 and -0.0 or math.ceil(x) + 0.0) or x end},
    {"round", function(x) return x == 0 and x or ref.is_finite(x) and x < 0 and -ref.round_even(-x) or ref.round_even(x) end},
    {"trunc", function(x)
        if not ref.is_finite(x) or x == 0 or math.abs(x) >= 2 ^ 52 then return x end
        return x < 0 and (x > -1 and -0.0 or math.ceil(x) + 0.0) or math.floor(x) + 0.0
    end},
}

local predicates = {
    {"isnan", function(x) return x ~= x and 1 or 0 end},
    {"isinf", function(x) return (x == inf or x == -inf) and 1 or 0 end},
    {"isfinite", function(x) return ref.is_finite(x) and 1 or 0 end},
    {"logical_not", function(x) return x == 0 and 1 or 0 end},
}

local function arguments(case) return case[4] and case[4].args or {} end

local function title(case)
    local list = {}
    local args = arguments(case)
    for i = 1, args.n or #args do list[i] = tostring(args[i]) end
    return case[1] .. (#list > 0 and "(" .. table.concat(list, ", ") .. ")" or "")
end

local function apply(case, x)
    local args = arguments(case)
    return x[case[1]](x, table.unpack(args, 1, args.n or #args))
end

-- The errors that CUDA allows its functions (CUDA C++ Programming Guide, "Mathematical Functions": ulps in float32, in
-- float64), if they are larger than the CPU's. softplus is two of them.
local promised = support.on_gpu and {
    exp = {2, 1}, exp2 = {2, 1}, rsqrt = {2, 1}, sin = {2, 2}, cos = {2, 2}, tan = {4, 2}, asin = {2, 2}, acos = {2, 2}, atan = {2, 2},
    sinh = {3, 2}, cosh = {2, 2}, erf = {2, 2}, softplus = {4, 2}, pow = {4, 2}, atan2 = {3, 2},
} or {}

local function ulps_in(case, dtype)
    local ulps, bound = case[3] or {0, 0}, promised[case[1]] or {0, 0}
    ulps = {math.max(ulps[1], bound[1]), math.max(ulps[2], bound[2])}
    if dtype == "float64" then return ulps[2] end
    if dtype == "float32" then return ulps[1] end
    return ulps[1] > 0 and 1 or 0 -- computed in float32, then rounded
end

-- Elements that cancellation may put off by parts of the argument.
local function slack_of(case, dtype, x)
    local factor = case[4] and case[4].slack
    if not factor then return nil end
    local epsilon = ref.epsilon(dtype == "float64" and dtype or "float32")
    return function(i) return ref.is_finite(x[i]) and math.abs(x[i]) * factor * epsilon or 0 end
end

return {
    interesting = interesting, whole_numbers = whole_numbers, column = column, row = row, same = same, unary = unary, predicates = predicates,
    title = title, apply = apply, promised = promised, ulps_in = ulps_in, slack_of = slack_of,
}
