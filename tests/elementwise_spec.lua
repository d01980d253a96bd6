-- elementwise_spec.lua -- the values of every elementwise op against plain Lua: dtypes, sizes, layouts,
-- NaN, infinities, signed zeros, integer division, wrapping.
local flow = require "flow"
local ref = require "tests.reference"
local support = require "tests.support"

local inf, nan = math.huge, 0 / 0
local message = support.message_of

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

-- float32 against float64, which is the C library's, over all exponents and around 0; in units of the last place.
describe("float32 is accurate:", function()
    local count = 30000
    flow.manual_seed(5)
    local bits = flow.randint(-(1 << 31), 1 << 31, {count})
    local exponent, rest = bits:bitwise_and(0x7f800000) // 0x800000 - 127, bits:bitwise_and(0x7fffff):to("float64") * 2.0 ^ -23
    local magnitudes = flow.where(exponent:eq(-127), rest * 2.0 ^ -126, (rest + 1) * exponent:to("float64"):exp2()):masked_select(exponent:ne(128))
    local plain = flow.rand({count}, {dtype = "float64"}) * 2 - 1
    local x = flow.cat({magnitudes, -magnitudes, plain, plain * 20, plain * 100}):to("float32")

    for name, bound in pairs {
        exp = 1, exp2 = 1.1, expm1 = 1.6, log = 1, log2 = 1.1, log10 = 2.4, log1p = 1.5, sin = 1.6, cos = 1.6, tan = 3.6, tanh = 2.4, erf = 1.3,
        asin = 1, acos = 1, atan = 1, sinh = 2, cosh = 2, sqrt = 0.5, rsqrt = 1.6, reciprocal = 0.5, softplus = 2,
    } do
        bound = math.max(bound, promised[name] and promised[name][1] + 0.5 or 0) -- of the rounded one
        it(("%s within %.1f"):format(name, bound), function()
            local got, want = x[name](x):to("float64"), x:to("float64")[name](x:to("float64"))
            local rounded = want:to("float32"):to("float64")
            local finite = rounded:isfinite()
            local unit = (want:abs():clamp(2.0 ^ -126):log2():floor() - 23):exp2()
            local off = ((got - want):abs() / unit):masked_fill(finite:logical_not(), 0.0)
            local worst, at = off:max(0)
            assert(worst:item() <= bound, ("%s(%.9g) is %.9g, off by %.2f"):format(name, x[at:item()]:item(), got[at:item()]:item(), worst:item()))
            local special = got:eq(rounded):logical_or(got:isnan():logical_and(rounded:isnan()))
            assert.is_true(special:logical_or(finite):all():item())
        end)
    end
end)

-- Numbers and what functions of them are, to 40 digits, rounded.
local digits = {
    log = {{1e-310, -713.8013788281542}, {0.1, -2.3025850929940455}, {0.99999, -1.0000050000287824e-05},
        {1.0000001, 9.999999505838704e-08}, {3, 1.0986122886681098}, {1e300, 690.7755278982137}},
    log2 = {{1e-310, -1029.7977094150824}, {0.7, -0.5145731728297583}, {1.4142, 0.49998616442187416}, {8, 3.0}, {1e300, 996.5784284662087}},
    log10 = {{1e-310, -310.0}, {0.7, -0.1549019599857432}, {1.3, 0.11394335230683679}, {1000, 3.0}, {1e300, 300.0}},
    log1p = {{-0.999, -6.907755278982136}, {-1e-9, -1.0000000005000001e-09}, {1e-20, 1e-20}, {0.5, 0.4054651081081644},
        {1e9, 20.72326583794641}, {1e300, 690.7755278982137}},
    exp2 = {{-1073.5, 5e-324}, {-0.3, 0.8122523963562356}, {0.4, 1.3195079107728942}, {10, 1024.0}, {1023.9, 1.6773070034857416e308}},
    expm1 = {{-50, -1.0}, {-0.7, -0.5034146962085905}, {-1e-12, -9.999999999995e-13}, {1e-300, 1e-300}, {0.38, 0.4622845894342245},
        {709.7, 1.6549840276802644e308}},
    sinh = {{-710.3, -1.507788755590971e308}, {-1e-9, -1e-09}, {0.7, 0.7585837018395335}, {1.1, 1.335647470124177}, {20, 242582597.70489514}},
    cosh = {{-710.3, 1.507788755590971e308}, {1e-9, 1.0}, {0.7, 1.255169005630943}, {3, 10.067661995777765}},
    sin = {{1e-300, 1e-300}, {0.9, 0.7833269096274834}, {3.141592653589793, 1.2246467991473532e-16}, {-22, 0.008851309290403876},
        {355, -3.014435335948845e-05}, {99999.5, 0.5104916150747798}},
    cos = {{1e-300, 1.0}, {0.9, 0.6216099682706644}, {1.5707963267948966, 6.123233995736766e-17}, {-22, -0.9999608263946371},
        {355, -0.999999999545659}, {99999.5, -0.8598827309222711}},
    tan = {{1e-300, 1e-300}, {0.9, 1.2601582175503392}, {1.5707963267948966, 1.633123935319537e16}, {-22, -0.00885165604168446},
        {355, 3.0144353373184265e-05}},
    asin = {{1e-300, 1e-300}, {-0.4, -0.41151684606748806}, {0.7071, 0.7853885733974476}, {0.9999999, 1.5703491131957876}, {1, 1.5707963267948966}},
    acos = {{1e-300, 1.5707963267948966}, {-0.4, 1.9823131728623846}, {0.7071, 0.785407753397449}, {0.9999999, 0.00044721359910904126},
        {-0.9999999, 3.141145439990684}},
    asinh = {{1e-300, 1e-300}, {-0.4, -0.3900353197707153}, {3, 1.8184464592320668}, {1e12, 28.324168296488494}, {-1e300, -691.4686750787737}},
    acosh = {{1.0000001, 0.0004472135919037347}, {1.5, 0.9624236501192069}, {30, 4.0940666686320855}, {1e300, 691.4686750787737}},
    atanh = {{1e-300, 1e-300}, {-0.4, -0.42364893019360184}, {0.9, 1.4722194895832204}, {0.9999999, 8.40562139102231}},
    erf = {{1e-300, 1.1283791670955126e-300}, {-0.4, -0.42839235504666845}, {0.91, 0.8018828257659413}, {1.5, 0.9661051464753108},
        {5.5, 0.9999999999999927}},
    erfc = {{-3, 1.9999779095030015}, {0.3, 0.6713732405408726}, {0.6, 0.3961439091520741}, {2, 0.004677734981047266},
        {10, 2.088487583762545e-45}, {26.5, 2.2109076642637343e-307}},
    erfinv = {{1e-300, 8.86226925452758e-301}, {-0.4, -0.37080715859355795}, {0.6, 0.5951160814499948}, {0.9999, 2.75106390571208},
        {0.9999999999999999, 5.8635847487551676}},
    lgamma = {{1e-310, 713.8013788281542}, {0.1, 2.252712651734206}, {0.999999, 5.772164873855652e-07},
        {1.0000001, -5.772155829918507e-08}, {1.46, -0.12148500100400743}, {1.9999999, -4.2278430309861296e-08},
        {2.0000001, 4.227843666532498e-08}, {2.5, 0.2846828704729192}, {3.7, 1.428072326665388},
        {7.99, 8.50501160608848}, {8, 8.525161361065415}, {100.5, 361.4355404677776},
        {1e+300, 6.897755278982137e+302}, {-1e-300, 690.7755278982137}, {-0.3, 1.4648400508576025},
        {-1.7, 0.9218446876946375}, {-2.3, 0.36956666345500805}, {-3.2, -0.37243213612996867},
        {-7.5, -8.404537371451598}, {-8.5, -10.544603534947868}, {-30.3, -74.32837301253049},
        {-10000000000.5, -220258509322.20462}},
}

describe("float64 is accurate:", function()
    for name, pairs_of in pairs(digits) do
        it(name, function()
            local x, want = {}, {}
            for i, pair in ipairs(pairs_of) do x[i], want[i] = pair[1], pair[2] end
            for _, copies in ipairs {1, 7} do -- vectors, and what is left of them
                local list = {}
                for _ = 1, copies do table.move(x, 1, #x, #list + 1, list) end
                local got = flow[name](flow.tensor(list, {dtype = "float64"})):totable()
                for i, y in ipairs(got) do
                    local right = want[(i - 1) % #x + 1]
                    assert.is_true(math.abs(y - right) <= 4 * 2.0 ^ -52 * math.abs(right) + 2.0 ^ -1074,
                        ("%s(%.17g) is %.17g, not %.17g"):format(name, list[i], y, right))
                end
            end
        end)
    end

    it("lgamma where it is infinite, and where it passes 0", function()
        local zero = -2.4570247382208005 -- lgamma is 5.6e-17 there, and at -3.1435 near its next zero
        local x = flow.tensor({0, -0.0, -1, -7, -8, -2.0 ^ 60, inf, -inf, 1e306, 0 / 0, 1, 2, zero, -3.1435}, {dtype = "float64"})
        local got = flow.lgamma(x):totable()
        for i = 1, 8 do assert.are.equal(inf, got[i]) end
        assert.are.equal(inf, got[9])
        assert.is_true(got[10] ~= got[10])
        assert.are.equal(0, got[11])
        assert.are.equal(0, got[12])
        assert.is_true(math.abs(got[13]) < 1e-15)
        assert.is_true(math.abs(got[14] - 0.0006296328816886808) < 1e-15)
    end)

    it("powers and their gradients: an element has the same bits among others", function()
        local function all(x, y, g)
            local a, b = x:clone():requires_grad_(), y:clone():requires_grad_()
            local z = a ^ b
            z:backward(g)
            return {z:detach(), a.grad, b.grad}
        end
        for _, dtype in ipairs {"float32", "float64", "float16", "bfloat16"} do
            local n = 200
            local x, y, g = (flow.rand(n) * 4):to(dtype), (flow.randn(n) * 3):to(dtype), flow.randn(n):to(dtype)
            for i, exponent in ipairs {0, 1, 2, 3, -1, 0.5, -0.5, 4} do y[i * 20] = exponent end
            g[20] = -inf
            local together = all(x, y, g)
            for i = 0, n - 1 do
                local others = flow.tensor({-1, 0, inf, nan}, {dtype = dtype})
                local alone = all(flow.cat {others, x:narrow(0, i, 1)}, flow.cat {others, y:narrow(0, i, 1)},
                    flow.cat {others, g:narrow(0, i, 1)})
                for k, t in ipairs(together) do
                    assert.are.equal(t[i]:tobytes(), alone[k][4]:tobytes(), ("%s %d %d: %s"):format(dtype, k, i, t[i]:item()))
                end
            end
            assert.are.equal(0, together[2][20]:item()) -- of x^0, whatever comes in
        end
    end)

    it("powers: whole ones are exact, others close", function()
        for base = 2, 40 do
            local x, list = flow.full({13}, base, {dtype = "float64"}), {}
            for k = 0, 12 do list[k + 1] = k end
            local got = (x ^ flow.tensor(list, {dtype = "float64"})):totable()
            for k = 0, 12 do
                local off = math.abs(got[k + 1] / base ^ k - 1)
                if base ^ k < 2.0 ^ 53 then assert.is_true(off <= (support.on_gpu and 2 or 0) * 2.0 ^ -52, ("%d ^ %d is %.17g"):format(base, k, got[k + 1])) end
            end
        end
        for _, case in ipairs {{1e-300, 0.5}, {2, 1023.75}, {2, -1074}, {0.9, 5000.5}, {1e308, 1.5}, {1.0000001, -1e9}} do
            local x, y = case[1], case[2]
            local got = (flow.tensor({x, x}, {dtype = "float64"}) ^ flow.tensor({y, y - 1}, {dtype = "float64"})):totable()
            for i = 1, 2 do
                local right = x ^ (y - i + 1)
                assert.is_true(right == got[i] or math.abs(got[i] / right - 1) < 4 * 2.0 ^ -52, ("%g ^ %g is %g"):format(x, y, got[i]))
            end
        end
    end)

    it("powers of negative numbers: the sign of odd ones, NaN where they are not whole", function()
        local exponents = {-1e300, -2.0 ^ 53, -7.5, -5, -4, -1e-300, 0, 1e-300, 0.75, 4, 5, 7, 7.5, 2.0 ^ 53 - 1, 2.0 ^ 53, 1e300, inf, -inf}
        for dtype, epsilon in pairs {float64 = 2.0 ^ -52, float32 = 2.0 ^ -23} do
            for _, base in ipairs {-inf, -3, -1.5, -1, -0.75, -2.0 ^ -140, -0.0, 0, 0.75, inf, nan} do
                local y = flow.tensor(exponents, {dtype = dtype})
                local got, whole = (flow.full_like(y, base) ^ y):totable(), y:totable()
                for i, exponent in ipairs(whole) do
                    local right = flow.tensor(base ^ exponent, {dtype = dtype}):item()
                    local equal = got[i] == right and 1 / got[i] == 1 / right or got[i] ~= got[i] and right ~= right
                    assert.is_true(equal or math.abs(got[i] / right - 1) < 4 * epsilon,
                        ("%s: %g ^ %g is %g, not %g"):format(dtype, base, exponent, got[i], right))
                end
            end
        end
    end)
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
        assert.are.equal("pow: integers to negative integer powers are not allowed", message(function() return (x ^ -1):totable() end))
        assert.are.same({0.25}, (flow.tensor {4.0} ^ -1):totable())
    end)
end)

---- sizes, layouts, broadcasting ----

local period = 1000
local sizes = {0, 1, 7, 15, 16, 17, 31, 33, 65, 1000}

-- Every element has the bits it has in a whole: at any place in a vector, in any layout, on any thread.
local function same_everywhere(what, f, make)
    local x = make(period)
    local whole = f(x)
    for _, n in ipairs(sizes) do
        for _, start in ipairs {0, 3} do
            local length = math.min(n, period - start)
            local part = f(x:narrow(0, start, length))
            assert(ref.same_bits(whole:narrow(0, start, length), part), ("%s: %d elements from %d on"):format(what, n, start))
        end
    end
    assert(ref.same_bits(whole[1], f(x[1])), what .. ": 0-d")
    local cube = x:reshape(10, 4, 25)
    for _, layout in ipairs(ref.layouts(cube)) do
        assert(ref.same_bits(whole:reshape(10, 4, 25), f(layout[2])), what .. ": " .. layout[1])
    end
    local tall = f(x:narrow(0, 0, 20):unsqueeze(1):expand(20, 40))
    assert(ref.same_bits(whole:narrow(0, 0, 20):unsqueeze(1):expand(20, 40):contiguous(), tall), what .. ": stretched inside")
    local wide = f(x:unsqueeze(0):expand(130, period))
    assert(ref.same_bits(whole:unsqueeze(0):expand(130, period):contiguous(), wide), what .. ": stretched outside")
    local large = f(x:rep(130))
    assert(ref.same_bits(whole:rep(130), large), what .. ": on all threads")
end

describe("the same bits everywhere:", function()
    for _, dtype in ipairs {"float32", "float64", "bfloat16"} do
        local x = ref.tensor(interesting(dtype, period), dtype)
        for _, case in ipairs(unary) do
            if dtype == "float32" or case[1] == "exp" or case[1] == "gelu" then
                it(title(case) .. " " .. dtype, function()
                    same_everywhere(title(case), function(t) return apply(case, t) end, function() return x end)
                end)
            end
        end
    end

    for _, name in ipairs {"add", "mul", "div", "pow", "maximum", "remainder", "lt", "atan2"} do
        it(name, function()
            local y = ref.tensor(interesting("float32", period), "float32")
            local function f(t) return flow[name](t, t:to("float64"):mul(0.7):add(0.3):to("float32")) end
            same_everywhere(name, f, function() return y end)
        end)
    end

    it("integers", function()
        for _, dtype in ipairs {"uint8", "int8", "int32", "int64", "bool"} do
            local x = ref.tensor(ref.array({period}, function(i) return ref.round(dtype, i * 37 - 500) end), dtype)
            same_everywhere("add " .. dtype, function(t) return t + t end, function() return x end)
            same_everywhere("ne " .. dtype, function(t) return t:ne(1) end, function() return x end)
            if dtype ~= "bool" then same_everywhere("floor_divide " .. dtype, function(t) return t // 7 end, function() return x end) end
        end
    end)
end)

describe("bfloat16 rounds what float32 gives:", function()
    local unary_ops = {"neg", "abs", "relu", "exp", "sigmoid", "silu", "gelu", "sqrt", "reciprocal", "floor", "square", "isnan"}
    local pair_ops = {"add", "sub", "mul", "div", "maximum", "copysign", "lt", "eq", "logaddexp"}
    for _, n in ipairs {3, 33, 700, 70000} do
        it(n .. " elements", function()
            local x, y = (flow.randn(n) * 3):to("bfloat16"), flow.randn(n):to("bfloat16")
            local wide_x, wide_y = x:to("float32"), y:to("float32")
            local mask = y:gt(0)
            flow.sync()
            local function agree(what, want, got)
                local dtype = want.dtype == "bool" and "bool" or "bfloat16"
                assert.are.equal(dtype, got.dtype, what)
                assert(ref.same_bits(want:to(dtype), got), what)
            end
            for _, name in ipairs(unary_ops) do agree(name, flow[name](wide_x), flow[name](x)) end
            for _, name in ipairs(pair_ops) do agree(name, flow[name](wide_x, wide_y), flow[name](x, y)) end
            for _, number in ipairs {2.5, 0.1} do
                agree("add " .. number, wide_x + number, x + number)
                agree("mul " .. number, wide_x * number, x * number)
                agree("lt " .. number, wide_x:lt(number), x:lt(number))
                agree("where " .. number, flow.where(mask, wide_x, number), flow.where(mask, x, number))
            end
            agree("addcmul", flow.addcmul(wide_x, wide_y, wide_y, 0.3), flow.addcmul(x, y, y, 0.3))
            agree("mixed", wide_x * wide_y, (x * wide_y):to("bfloat16"))
            local tall = x:narrow(0, 0, 3):unsqueeze(1):expand(3, n)
            agree("stretched", tall:to("float32") * wide_y, tall * y)
            local chain = (wide_x * wide_y):to("bfloat16")
            agree("a chain", (chain:to("float32") + wide_x):to("bfloat16"):to("float32"):relu(), (x * y + x):relu())
        end)
    end
end)

describe("polygamma(1, x)", function()
    it("has known values", function()
        local pi2 = math.pi ^ 2
        local x = flow.tensor({1, 0.5, 2, -0.5, 1e-3, 12.25, 1e4, 0, -3, math.huge}, {dtype = "float64"})
        local want = {pi2 / 6, pi2 / 2, pi2 / 6 - 1, pi2 / 2 + 4, 1000001.6425331958, 0.0850551429881636, 1.0000500016666667e-4,
            math.huge, math.huge, 0}
        for _, dtype in ipairs {"float32", "float64"} do
            local got = flow.polygamma(1, x:to(dtype)):totable()
            for i, v in ipairs(want) do
                local error = v == got[i] and 0 or math.abs(got[i] / v - 1)
                assert(error < (dtype == "float32" and 1e-6 or 2e-14), ("%s: %.17g is not %.17g"):format(dtype, got[i], v))
            end
        end
    end)
end)

describe("polygamma of an order whose factorial no float holds", function()
    it("ends, with no finite value", function()
        for _, dtype in ipairs {"float32", "float64"} do
            local x = flow.tensor({0.5, 1, -1.5}, {dtype = dtype})
            for _, order in ipairs {171, 2 ^ 31} do
                assert.is_false(flow.polygamma(order, x):isfinite():any():item(), dtype .. ", " .. order)
            end
        end
    end)
end)

describe("x ^ -0.5", function()
    it("is that of C at the edges", function()
        for _, dtype in ipairs {"float32", "float64"} do
            local x = flow.tensor({4, 0.25, 0, -0.0, math.huge, -math.huge, -1, 0 / 0}, {dtype = dtype})
            for _, y in ipairs {-0.5, flow.full({8}, -0.5, {dtype = dtype})} do
                local got = (x ^ y):totable()
                for i, v in ipairs {0.5, 2, math.huge, math.huge, 0, 0} do assert.are.equal(v, got[i]) end
                assert(got[7] ~= got[7] and got[8] ~= got[8])
            end
        end
    end)
end)

describe("signs of 16-bit floats", function()
    it("are those of float32, of zeros, infinities and NaN too", function()
        local list = {0, -0.0, math.huge, -math.huge, 0 / 0, 1.5, -2.25, 6e-8, -6e-8, 3e4}
        for _, dtype in ipairs {"bfloat16", "float16"} do
            for _, copies in ipairs {1, 7, 2000} do
                local x = flow.tensor(list):to(dtype):rep(copies)
                local y = x:roll(3)
                for name, f in pairs {
                    neg = function(a) return -a end,
                    abs = function(a) return a:abs() end,
                    copysign = function(a, b) return a:copysign(b) end,
                } do
                    local got, want = f(x, y), f(x:float(), y:float()):to(dtype)
                    assert.are.equal(dtype, got.dtype)
                    assert.is_true(got:eq(want):logical_or(x:isnan()):all():item(), name)
                    assert.is_true(got:isnan():equal(x:isnan()), name)
                    assert.is_true(got:signbit():eq(want:signbit()):logical_or(x:isnan()):all():item(), name)
                end
            end
        end
    end)
end)

describe("rows beside what is broadcast to them", function()
    -- One op on rows as they lie (tiles.c, run_flat_rows): an operand of one element a row is repeated.
    it("give the same bits as beside the expanded operand", function()
        flow.manual_seed(8)
        for _, dtype in ipairs {"float32", "float64", "bfloat16", "int64"} do
            for _, shape in ipairs {{70, 128}, {9, 1000}, {3, 5, 600}, {4, 3000}, {2, 3, 4, 700}} do
                local x = (flow.randn(shape) * 9):to(dtype)
                local others = {}
                for mask = 1, (1 << #shape) - 1 do
                    local small = {}
                    for i, size in ipairs(shape) do small[i] = mask >> (i - 1) & 1 == 1 and 1 or size end
                    others[mask] = (flow.randn(small) * 9):to(dtype)
                end
                for _, y in ipairs(others) do
                    local full = y:expand(shape):contiguous()
                    assert.is_true((x - y):equal(x - full))
                    assert.is_true((y - x):equal(full - x))
                    assert.is_true(x:lt(y):equal(x:lt(full)))
                    assert.is_true(flow.where(y:gt(0), x, y):equal(flow.where(full:gt(0), x, full)))
                    assert.is_true(x:clone():mul_(y):equal(x * full))
                    assert.is_true(y:float():pow(2):add(x:float()):equal(full:float():pow(2):add(x:float())))
                end
            end
        end
    end)
end)

describe("few elements", function()
    -- They take a shorter way (infer.c, choose_flat).
    it("give the same bits beside a number as beside a tensor of it", function()
        for _, dtype in ipairs {"float32", "float64", "bfloat16", "int64"} do
            for _, n in ipairs {0, 1, 3, 16, 63, 64, 65, 200} do
                local x = (flow.arange(n) - 3):to(dtype)
                for _, number in ipairs {2, -3, 1.1, 0 / 0, 2 ^ 53 + 2} do
                    if dtype:find "float[36]" or math.type(number) == "integer" then
                        local full = flow.full({n}, number, {dtype = dtype})
                        local where = ("%s %d %s"):format(dtype, n, number)
                        support.same_bits(x + full, x + number, where)
                        support.same_bits(full - x, number - x, where)
                        support.same_bits(flow.maximum(x, full), x:clone():maximum_(number), where)
                        support.same_bits(x * full, x:clone():mul_(number), where)
                        support.same_bits(x:ge(full), x:ge(number), where)
                    end
                end
                support.same_bits(x * flow.ones_like(x), x * true, dtype)
            end
            local strided = flow.arange(32):to(dtype):view(8, 4):t()
            support.same_bits(strided + flow.full_like(strided, 2), strided + 2, "strided")
            support.same_bits(flow.full({4, 8}, 6, {dtype = dtype}), strided:mul_(0):add_(6), "strided")
        end
    end)
end)
