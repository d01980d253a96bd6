-- elementwise_accuracy_spec.lua -- how far float32 and float64 are off, in units of the last place, and values known to 40 digits.
local flow = require "flow"
local cases = require "tests.elementwise_cases"
local support = require "tests.support"

local inf, nan = math.huge, 0 / 0
local promised = cases.promised

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
