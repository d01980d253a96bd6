-- elementwise_rules_spec.lua -- elementwise ops beside their values: numbers, edges, broadcasting, in place, corners, messages.
local flow = require "flow"
local ref = require "tests.reference"
local support = require "tests.support"

local inf, nan = math.huge, 0 / 0
local message = support.message_of

describe("Lua numbers", function()
    it("are exact in the tensor's dtype", function()
        assert.are.equal(0.1, (flow.zeros({1}, {dtype = "float64"}) + 0.1):item())
        assert.are.equal(9007199254740993, (flow.zeros({1}, {dtype = "int64"}) + 9007199254740993):item())
        assert.are.equal(math.mininteger, (flow.zeros({1}, {dtype = "int64"}) + math.mininteger):item())
        assert.is_true(flow.full({1}, 9007199254740993):eq(9007199254740993):item())
        assert.is_false(flow.full({1}, 9007199254740993):eq(9007199254740992):item())
        assert.are.equal(9007199254740993, flow.where(flow.tensor {true}, flow.tensor {1}, 0):mul(9007199254740993):item())
    end)

    it("stand on either side", function()
        local x = flow.tensor {1, 2, 4}
        assert.are.same({9, 8, 6}, (10 - x):totable())
        assert.are.same({10, 5, 2}, (10 // x):totable())
        assert.are.same({0, 0, 2}, (10 % x):totable())
        assert.are.same({3, 9, 81}, (3 ^ x):totable())
        assert.are.same({8, 4, 2}, (8 / x):totable())
        assert.are.same({-1, -2, -4}, (-x):totable())
        assert.are.same({2, 2, 4}, flow.maximum(2, x):totable())
        assert.are.same({true, false, false}, flow.gt(2, x):totable())
        assert.are.same({9, 9, 9}, flow.where(x:gt(0), 9, x):totable())
        assert.are.same({9, 9, 5}, flow.where(x:lt(4), 9, 5):totable())
    end)

    it("that an integer dtype lacks are compared as numbers", function()
        local x = flow.tensor({0, 100, 255}, {dtype = "uint8"})
        assert.are.same({true, true, true}, x:lt(300):totable())
        assert.are.same({true, true, true}, x:gt(-1):totable())
        assert.are.same({false, false, false}, x:eq(256):totable())
        assert.are.same({true, true, true}, flow.gt(256, x):totable())
        assert.are.same({true, true, true}, x:lt(flow.tensor(300)):totable())
        assert.are.same({false, true, true}, x:logical_and(256):totable())
    end)
end)

describe("edges:", function()
    local function list(t) return t:totable() end
    it("clamp", function()
        assert.are.same({2, 2, 2}, list(flow.tensor({1, 2, 9}):clamp(5, 2))) -- the upper bound wins
        assert.are.same({9007199254740993}, list(flow.tensor({0}):clamp(9007199254740993)))
        assert.are.same({9007199254740993}, list(flow.tensor({math.maxinteger}):clamp(0, 9007199254740993)))
        assert.are.same({2, 7}, list(flow.tensor({1, 7}):clamp(2.0, inf)))
        assert.are.same({math.mininteger, math.maxinteger}, list(flow.tensor({math.mininteger, math.maxinteger}):clamp(math.mininteger, math.maxinteger)))
        assert.are.same({0, 255}, list(flow.tensor({0, 255}, {dtype = "uint8"}):clamp(-5, 300)))
        assert.are.same({false, true}, list(flow.tensor({nan, 1.0}):clamp(0, 2):eq(1)))
        assert.are.equal("clamp: max = 2.5 is not an integer, but x is int64; convert x to a float first", message(function() flow.tensor({1}):clamp(0, 2.5) end))
    end)

    it("clamp by tensors", function()
        local x = flow.tensor {{1.0, 5.0, nan}, {-2.0, 2.0, 0.0}}
        local low, high = flow.tensor {0.0, 3.0, 1.0}, flow.tensor {{2.0}, {1.0}}
        assert.are.same({{1, 2}, {0, 1}}, list(x:clamp(low, high):narrow(1, 0, 2))) -- the upper bound wins
        assert.are.same({{false, false, true}, {false, false, false}}, list(x:clamp(low, high):isnan()))
        assert.are.same({true, true}, list(flow.tensor {1.0, 1.0}:clamp(flow.tensor {nan, 0}, flow.tensor {2, nan}):isnan()))
        for _, y in ipairs {x:clamp(nil, high), x:clamp {max = high}, flow.clip(x, nil, high), x:clamp_max(high)} do
            assert.are.same({{1, 2}, {-2, 1}}, list(y:narrow(1, 0, 2)))
        end
        for _, y in ipairs {x:clamp(low), x:clamp {min = low}, flow.clamp(x, low, nil), x:clamp_min(low)} do
            assert.are.same({{1, 5}, {0, 3}}, list(y:narrow(1, 0, 2)))
        end
        assert.are.same({{1, 1.5}, {0, 1.5}}, list(x:clamp(low, 1.5):narrow(1, 0, 2)))
        assert.are.same({{1, 2}, {0.5, 1}}, list(x:clamp {min = 0.5, max = high}:narrow(1, 0, 2)))
        local whole = flow.tensor {1, 2, math.maxinteger}
        assert.are.same({2, 2, math.maxinteger - 1}, list(whole:clamp(flow.tensor {2, 2, 2}, flow.tensor(math.maxinteger - 1))))
        assert.are.equal("float32", whole:clamp(flow.tensor {0.5, 0.5, 0.5}).dtype)
        local z, out = x:clone(), flow.zeros(2, 3)
        assert.are.equal(z, z:clamp_(low, high):clamp_(flow.tensor(1.5)))
        assert.are.same({{1.5, 2}, {1.5, 1.5}}, list(z:narrow(1, 0, 2)))
        x:clamp(low, high, {out = out})
        assert.are.same({{1, 2}, {0, 1}}, list(out:narrow(1, 0, 2)))
    end)

    -- Of three values each of x, the lower and the upper bound, in this order; PyTorch 2.15 has these numbers.
    it("clamp by tensors: gradients", function()
        local columns = {{}, {}, {}}
        for _, x in ipairs {-1.0, 0.0, nan} do
            for _, low in ipairs {-1.0, 0.0, nan} do
                for _, high in ipairs {-1.0, 0.0, nan} do
                    for i, v in ipairs {x, low, high} do table.insert(columns[i], v) end
                end
            end
        end
        local t = {}
        for i = 1, 3 do t[i] = flow.tensor(columns[i]):requires_grad_() end
        for _, case in ipairs {
            {t[1]:clamp(t[2], t[3]), {1, .5, 1, 0, 0, 0, 1, 1, 1, 0, .5, 1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
                {0, .5, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
                {0, 0, 0, 1, 0, 0, 0, 0, 0, 1, .5, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0}},
            {t[1]:clamp(t[2]), {.5, .5, .5, 0, 0, 0, 1, 1, 1, 1, 1, 1, .5, .5, .5, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
                {.5, .5, .5, 1, 1, 1, 1, 1, 1, 0, 0, 0, .5, .5, .5, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
        } do
            local grads = flow.grad(case[1]:sum(), t, {allow_unused = true})
            for i = 2, #case do assert.are.same(case[i], list(grads[i - 1])) end
        end
        local x, low = flow.zeros(2, 3):requires_grad_(), flow.ones(3):requires_grad_()
        assert.are.same({2, 2, 2}, list(flow.grad(x:clamp(low, 2):sum(), {low})[1]))
        assert.are.same({2, 2, 2}, list(flow.grad((x + 0):clamp_(low, 2):sum(), {low})[1])) -- needs what x was
    end)

    it("where takes one side only", function()
        local picked = flow.where(flow.tensor {true, false}, flow.tensor {1.0, nan}, flow.tensor {inf, 2.0})
        assert.are.same({1, 2}, list(picked))
        assert.are.same({{1, 5}, {6, 2}}, list(flow.where(flow.tensor {{true, false}, {false, true}}, flow.tensor {1, 2}, flow.tensor {{5}, {6}})))
        assert.are.equal("where: the condition must be bool, it is int64", message(function() flow.where(flow.tensor {1}, 1, 2) end))
    end)

    it("masked_fill keeps the dtype", function()
        local mask = flow.tensor {true, false}
        assert.are.same({-inf, 1}, list(flow.tensor({0.5, 1.0}):masked_fill(mask, -inf)))
        assert.are.same({7, 1}, list(flow.tensor({0, 1}, {dtype = "int8"}):masked_fill(mask, 7)))
        assert.are.equal("int8", flow.tensor({0, 1}, {dtype = "int8"}):masked_fill(mask, 7).dtype)
        assert.are.same({{3, 0}, {3, 0}}, list(flow.zeros(2, 2):masked_fill(mask, flow.tensor(3.0))))
        assert.are.equal("masked_fill: x is int64 and cannot hold a value of float32", message(function() flow.tensor({1, 2}):masked_fill(mask, 0.5) end))
    end)

    it("lerp", function()
        local x, y = flow.tensor {0.0, 10.0}, flow.tensor {10.0, 20.0}
        assert.are.same({2.5, 12.5}, list(x:lerp(y, 0.25)))
        assert.are.same({10, 20}, list(x:lerp(y, 1)))
        assert.are.same({5, 10}, list(x:lerp(y, flow.tensor {0.5, 0.0})))
    end)

    it("powers", function()
        local x = flow.tensor({-2.0, 0.0, 4.0, -8.0}, {dtype = "float64"})
        assert.are.same({4, 0, 16, 64}, list(x ^ 2))
        assert.are.same({1, 1, 1, 1}, list(x ^ 0))
        assert.are.same({-8, 0, 64, -512}, list(x ^ 3))
        assert.are.same({-0.5, inf, 0.25, -0.125}, list(x ^ -1))
        assert.are.equal(2, (x ^ 0.5)[2]:item())
        assert.is_true((x ^ 0.5)[0]:isnan():item())
        assert.are.equal(inf, (flow.tensor({-inf}) ^ 0.5):item()) -- as in C, unlike sqrt
        assert.are.equal(1, (flow.tensor({nan}) ^ 0):item())
        assert.are.equal(1, (1 ^ flow.tensor({nan})):item())
    end)
end)

describe("broadcasting", function()
    for _, shapes in ipairs {
        {{3, 4}, {4}}, {{3, 1}, {1, 4}}, {{}, {2, 3}}, {{2, 3}, {}}, {{}, {}}, {{1}, {5}}, {{2, 1, 3}, {4, 1}}, {{0, 3}, {1, 3}}, {{0}, {1}},
        {{2, 1, 1, 3}, {5, 2, 1, 1, 1}}, {{1, 300}, {7, 1}}, {{7, 300}, {300}}, {{7, 300}, {7, 1}},
    } do
        it(("[%s] with [%s]"):format(table.concat(shapes[1], ", "), table.concat(shapes[2], ", ")), function()
            local random = ref.generator(3)
            for _, dtype in ipairs {"float32", "int32", "float16"} do
                local function numbers() return ref.round(dtype, math.floor(random() * 100)) end
                local x, y = ref.array(shapes[1], numbers), ref.array(shapes[2], numbers)
                for _, a in ipairs(ref.layouts(ref.tensor(x, dtype))) do
                    for _, b in ipairs(ref.layouts(ref.tensor(y, dtype))) do
                        local what = ("%s and %s"):format(a[1], b[1])
                        ref.check(a[2] + b[2], ref.map(function(p, q) return p + q end, x, y), dtype, 0, "add " .. what)
                        ref.check(a[2]:lt(b[2]), ref.map(function(p, q) return p < q and 1 or 0 end, x, y), "bool", 0, "lt " .. what)
                        ref.check(flow.where(a[2]:gt(0), a[2], b[2]), ref.map(function(p, q) return p > 0 and p or q end, x, y), dtype, 0, "where " .. what)
                    end
                end
            end
        end)
    end
end)

describe("in place", function()
    it("writes through views, converts and broadcasts", function()
        local x = flow.arange(12, {dtype = "float32"}):reshape(3, 4)
        x:t():narrow(0, 1, 2):add_(flow.tensor {100, 200, 300})
        assert.are.same({{0, 101, 102, 3}, {4, 205, 206, 7}, {8, 309, 310, 11}}, x:totable())
        x:mul_(0):clamp_(1):exp_():sub_(x:clone())
        assert.are.equal(0, x:abs():sum():item())
    end)

    it("reads what it overwrites first", function()
        local x = flow.arange(6, {dtype = "float32"})
        x:narrow(0, 1, 5):add_(x:narrow(0, 0, 5))
        assert.are.same({0, 1, 3, 5, 7, 9}, x:totable())
        local square = flow.arange(9, {dtype = "int64"}):reshape(3, 3)
        square:add_(square:t())
        assert.are.same({{0, 4, 8}, {4, 8, 12}, {8, 12, 16}}, square:totable())
    end)

    it("gives logic as numbers of x's dtype", function()
        local x = flow.tensor {0.5, 0.0}
        x:logical_not_()
        assert.are.equal("float32", x.dtype)
        assert.are.same({0, 1}, x:totable())
    end)

    for _, case in ipairs {
        {"add_: x is int64[1] and the result is float32; write x = x:add(...)", function() flow.tensor({1}):add_(1.5) end},
        {"add_: x is float32[3] and the result has shape [2, 3]; write x = x:add(...)", function() flow.zeros(3):add_(flow.zeros(2, 3)) end},
        {"add_: this tensor is expanded (several positions share one element), so it cannot be written in place; use clone() first",
            function() flow.zeros(1):expand(3):add_(1) end},
    } do
        it("refuses: " .. case[1], function() assert.are.equal(case[1], message(case[2])) end)
    end
end)

describe("gradients at corners", function() -- those of PyTorch
    for _, case in ipairs {
        {"x:abs()", {0, -0.0, 1, -1, 2, -2, 0.5, 100, -100}, {0, 0, 1, -1, 1, -1, 1, 1, -1}},
        {"x:sign()", {0, -0.0, 1, -1, 2, -2, 0.5, 100, -100}, {0, 0, 0, 0, 0, 0, 0, 0, 0}},
        {"x:relu()", {0, -0.0, 1, -1, 2, -2, 0.5, 100, -100}, {0, 0, 1, 0, 1, 0, 1, 1, 0}},
        {"x:square()", {0, -0.0, 1, -1, 2, -2, 0.5, 100, -100}, {0, 0, 2, -2, 4, -4, 1, 200, -200}},
        {"x:round()", {0, -0.0, 1, -1, 2, -2, 0.5, 100, -100}, {0, 0, 0, 0, 0, 0, 0, 0, 0}},
        {"x:sqrt()", {0, 1, 4, -1, inf}, {inf, 0.5, 0.25, nan, 0}},
        {"x:rsqrt()", {0, 1, 4, -1, inf}, {-inf, -0.5, -0.0625, nan, 0}},
        {"x:log()", {0, 1, 4, -1, inf}, {inf, 1, 0.25, -1, 0}},
        {"x:reciprocal()", {0, 1, 4, -1, inf}, {-inf, -1, -0.0625, -1, 0}},
        {"x:gelu()", {0, -0.0, 1, -1, 2, -2, 0.5, 30, -30}, {0.5, 0.5, 1.08331547, -0.0833154706, 1.0852318, -0.0852318011, 0.867495125, 1, 0}},
        {"x:silu()", {0, -0.0, 1, -1, 2, -2, 0.5, 100, -100}, {0.5, 0.5, 0.927670512, 0.0723294881, 1.09078425, -0.0907842488, 0.739961187, 1, 0}},
        {"x:gelu('tanh')", {0, -0.0, 1, -1, 2, -2, 0.5, 30, -30}, {0.5, 0.5, 1.08296408, -0.0829640838, 1.08609926, -0.0860992566, 0.867369904, 1, 0}},
        {"x:softplus()", {0, -0.0, 1, -1, 2, -2, 0.5, 100, 20, 20.1}, {0.5, 0.5, 0.731058579, 0.268941421, 0.880797078, 0.119202922, 0.622459331, 1, 0.999999998, 1}},
        {"x:elu()", {0, -0.0, 1, -1, 2, -2, 0.5}, {1, 1, 1, 0.367879441, 1, 0.135335283, 1}},
        {"x:leaky_relu()", {0, -0.0, 1, -1, 2, -2, 0.5}, {0.01, 0.01, 1, 0.01, 1, 0.01, 1}},
        {"x:clamp(-1,1)", {0, -0.0, 1, -1, 2, -2, 0.5, inf, -inf, nan}, {1, 1, 0, 0, 0, 0, 1, 0, 0, 0}},
        {"x:clamp(0)", {0, -0.0, 1, -1, 2, -2, 0.5, inf, -inf, nan}, {0, 0, 1, 0, 1, 0, 1, 1, 0, 0}},
        {"x:clamp(nil,0.5)", {0, -0.0, 1, -1, 2, -2, 0.5, inf, -inf, nan}, {1, 1, 0, 1, 0, 1, 0, 0, 1, 0}},
        {"x:clamp(1,1)", {0, 1, 2}, {0, 0, 0}},
        {"x:clamp(0.1,0.1)", {0.1}, {0}},
        {"x:clamp(2,1)", {0, -0.0, 1, -1, 2, -2, 0.5}, {0, 0, 0, 0, 0, 0, 0}},
        {"x^0", {0, 1, 2, -2}, {0, 0, 0, 0}},
        {"x^1", {0, 1, 2, -2}, {1, 1, 1, 1}},
        {"x^2", {0, 1, 2, -2}, {0, 2, 4, -4}},
        {"x^3", {0, 1, 2, -2}, {0, 3, 12, 12}},
        {"x^0.5", {0, 1, 2, -2}, {inf, 0.5, 0.353553391, nan}},
        {"x^-1", {0, 1, 2, -2}, {-inf, -1, -0.25, -0.25}},
        {"x^2.5", {0, 1, 2, -2}, {0, 2.5, 7.07106781, nan}},
        {"2^x", {0, -0.0, 1, -1, 2, -2, 0.5}, {0.693147181, 0.693147181, 1.38629436, 0.34657359, 2.77258872, 0.173286795, 0.980258143}},
        {"0^x", {1, 2, 0, -1}, {0, 0, 0, -inf}},
        {"flow.pow(x*0,x)", {1, 2, -2}, {0, 0, nan}},
        {"x/0", {1, 0}, {inf, inf}},
        {"1/x", {0, 2}, {-inf, -0.25}},
        {"x%3", {0, -0.0, 1, -1, 2, -2, 0.5}, {1, 1, 1, 1, 1, 1, 1}},
        {"x:fmod(3)", {0, -0.0, 1, -1, 2, -2, 0.5}, {1, 1, 1, 1, 1, 1, 1}},
        {"x:remainder(-3)", {4, -4}, {1, 1}},
        {"flow.fmod(1,x)", {0.1, -0.1, 0.3, 2}, {-9, 9, -3, 0}}, -- 1 / 0.1 is rounded to 10
        {"flow.remainder(1,x)", {0.1, -0.1, 0.3, 2, -2}, {-9, 10, -3, 0, 1}},
        {"flow.fmod(x,x)", {0.1, -0.3, 7}, {0, 0, 0}},
        {"flow.maximum(x,0)", {0, -0.0, 1, -1, 2, -2, 0.5}, {0.5, 0.5, 1, 0, 1, 0, 1}},
        {"flow.minimum(x,1)", {0, -0.0, 1, -1, 2, -2, 0.5}, {1, 1, 0.5, 1, 0, 1, 1}},
        {"flow.maximum(x,x)", {0, -0.0, 1, -1, 2, -2, 0.5}, {1, 1, 1, 1, 1, 1, 1}},
        {"flow.where(x:gt(0),x,x*2)", {0, -0.0, 1, -1, 2, -2, 0.5}, {2, 2, 1, 2, 1, 2, 1}},
        {"flow.where(x:gt(0),x:sqrt(),0.0)", {4, 0, -1}, {0.25, nan, nan}},
        {"x:masked_fill(x:gt(0),5)", {0, -0.0, 1, -1, 2, -2, 0.5}, {1, 1, 0, 1, 0, 1, 0}},
        {"x:lerp(x*2,0.7)", {1, 2}, {1.7, 1.7}},
        {"x:atan2(x*0)", {1, -2, 0}, {0, 0, 0}},
        {"flow.atan2(x*0,x)", {1, -2, 0}, {0, 0, 0}},
        {"x:asin()", {0, 1, 0.5}, {1, inf, 1.15470054}},
        {"x:log1p()", {0, -1, 1}, {1, inf, 0.5}},
    } do
        it(case[1], function()
            for dtype, eps in pairs {float64 = 1e-8, float32 = 1e-6} do support.check_gradient(case[1], dtype, case[2], case[3], eps) end
        end)
    end
end)

describe("NaN", function()
    local x = flow.tensor {nan, inf, -inf, 1.5}

    it("and infinities become other numbers", function()
        for dtype, most in pairs {float32 = 0x1.fffffep127, float16 = 65504, float64 = 0x1.fffffffffffffp1023} do
            assert.are.same({0, most, -most, 1.5}, x:to(dtype):nan_to_num():totable())
        end
        assert.are.same({1, 2, 3, 1.5}, x:nan_to_num(1, 2, 3):totable())
        assert.are.same({1, 2, -2, 1.5}, x:nan_to_num(1, 2, -2):totable())
        assert.are.same({7, 8}, flow.tensor {7, 8}:nan_to_num():totable())
    end)

    it("gets no gradient, and what is replaced neither", function()
        local leaf = x:clone():requires_grad_()
        for _, numbers in ipairs {{}, {0, inf}, {0, 5, -7}} do     -- nor does an infinity that stays one
            leaf:nan_to_num(table.unpack(numbers)):sum():backward()
            assert.are.same({0, 0, 0, 1}, leaf.grad:totable())
            leaf.grad = nil
        end
        leaf:nansum():backward()
        assert.are.same({0, 1, 1, 1}, leaf.grad:totable())
    end)

    it("is left out of sums and means", function()
        local y = flow.tensor {{nan, 1, 2}, {nan, nan, nan}}
        assert.are.same({3, 0}, y:nansum(1):totable())
        assert.are.equal(1.5, y:nanmean():item())
        assert.are.equal(5, flow.tensor {2, 3}:nansum():item())
        assert.are.equal(inf, x[{{0, 2}}]:nansum():item())
        assert.are.equal("float64", y:nansum{dtype = "float64"}.dtype)
    end)

    it("is left out of long sums as zeros would be, in every layout", function()
        for _, dtype in ipairs {"float16", "bfloat16", "float32", "float64"} do
            local numbers = flow.randint(-3, 4, {40, 3, 700}):to(dtype)
            local is_nan = flow.randn(40, 3, 700):gt(1)
            local zeros, y = numbers:masked_fill(is_nan, 0), numbers:masked_fill(is_nan, nan)
            for _, axes in ipairs {{0}, {1}, {2}, {0, 2}, {0, 1, 2}} do
                local want = zeros:sum(axes)
                assert.is_true(y:nansum(axes) == want, dtype)
                assert.is_true(y:transpose(0, 2):contiguous():transpose(0, 2):nansum(axes) == want, dtype)
                assert.is_true(y:mul(1):nansum(axes) == want, dtype)      -- of what is not computed yet
            end
        end
    end)
end)

describe("quotients of integers", function()
    local RANGES = {int8 = {-128, 127}, uint8 = {0, 255}, int32 = {-0x80000000, 0x7fffffff}, int64 = {math.mininteger, math.maxinteger}}

    -- Every pair of the corners, and pairs in between.
    local function pairs_of(low, high)
        local corners, x, y = {low, low + 1, high // 3, high // 2, high - 1, high, 1, 2, 3, 7}, {}, {}
        if low < 0 then table.move({-1, -2, -3, -7}, 1, 4, #corners + 1, corners) end
        local function add(a, b) if b ~= 0 then x[#x + 1], y[#y + 1] = a, b end end
        for _, a in ipairs(corners) do
            for _, b in ipairs(corners) do add(a, b) end
        end
        for i = 1, 2000 do add(math.random(low, high), math.random(low, high) >> i % 2 * 3 & 0x7fffffff) end
        return x, y
    end

    for dtype, range in pairs(RANGES) do
        it("are exact: " .. dtype, function()
            local low, high = range[1], range[2]
            local a, b = pairs_of(low, high)
            local x, y = flow.tensor(a, {dtype = "int64"}):to(dtype), flow.tensor(b, {dtype = "int64"}):to(dtype)
            a, b = x:totable(), y:totable()
            local function wrapped(v) return dtype == "int64" and v or (v - low) % (high - low + 1) + low end
            local quotients, rests, remainders = (x // y):totable(), x:fmod(y):totable(), (x % y):totable()
            for i = 1, #a do
                if b[i] ~= 0 then
                    assert.are.equal(wrapped(a[i] // b[i]), quotients[i])
                    assert.are.equal(wrapped(a[i] % b[i]), remainders[i])
                    assert.are.equal(wrapped(math.fmod(a[i], b[i])), rests[i])
                end
            end
        end)
    end

    it("by zero are an error", function()
        for dtype in pairs(RANGES) do
            for _, op in ipairs {"floor_divide", "remainder", "fmod"} do
                local x, y = flow.ones({40}, {dtype = dtype}), flow.ones({40}, {dtype = dtype})
                y[33] = 0
                assert.are.equal(op .. ": division by zero", message(function() return flow[op](x, y) end))
            end
        end
    end)
end)

-- Narrow floats: the row's result for float32, rounded. Lengths fall on both sides of the blocks of the loops, of the
-- operands that are done at once, and of tiles.
describe("float16 and bfloat16", function()
    local UNARY = {"neg", "abs", "relu", "sqrt", "rsqrt", "square", "sign", "floor", "exp", "log", "sin", "gelu", "silu", "isnan", "isfinite"}
    local BINARY = {"add", "sub", "mul", "div", "maximum", "fmin", "copysign", "hypot", "pow", "fmod", "floor_divide", "atan2", "gt", "eq"}

    local function same(x, y)
        return x.dtype == y.dtype and flow.logical_or(x:eq(y), flow.logical_and(x:ne(x), y:ne(y))):all():item()
    end

    for _, dtype in ipairs {"float16", "bfloat16"} do
        for _, n in ipairs {1, 31, 32, 33, 100, 700, 9000, 40001} do
            it(("of %d elements: %s is float32, rounded"):format(n, dtype), function()
                local function wide(x) return type(x) == "number" and x or x:to "float32" end
                local function narrow(x) return x.dtype == "bool" and x or x:to(dtype) end
                local x, y = flow.randn(n):to(dtype), (flow.randn(n) * 3):to(dtype)
                for _, op in ipairs(UNARY) do assert.is_true(same(flow[op](x), narrow(flow[op](wide(x)))), op) end
                for _, op in ipairs(BINARY) do
                    for _, other in ipairs {y, 2, 0.1} do
                        if other == y or (op ~= "hypot" and op ~= "fmin") then
                            assert.is_true(same(flow[op](x, other), narrow(flow[op](wide(x), wide(other)))), op)
                        end
                    end
                end
                assert.is_true(same(flow.addcmul(x, y, x), narrow(flow.addcmul(wide(x), wide(y), wide(x)))))
                assert.is_true(same(flow.where(x:gt(y), x, y), narrow(flow.where(x:gt(y), wide(x), wide(y)))))
            end)
        end
    end
end)

describe("messages", function()
    for _, case in ipairs {
        {"add: shapes [2, 3] and [2, 4] do not broadcast", function() return flow.zeros(2, 3) + flow.zeros(2, 4) end},
        {"sub: takes no bool tensors", function() return flow.tensor {true} - flow.tensor {true} end},
        {"neg: takes no bool tensors", function() return -flow.tensor {true} end},
        {"bitwise_and: takes no float32 tensors", function() return flow.zeros(2):bitwise_and(1) end},
        {"where: shapes [2] and [3] do not broadcast", function() return flow.where(flow.tensor {true, false}, flow.zeros(3), 0) end},
        {"add: y must be a tensor or a number, got table; flow.tensor makes one of a list", function() return flow.zeros(2) + {} end},
        {"add: y must be a tensor or a number, got string", function() return flow.zeros(2) + "x" end},
        {"add: y must be a tensor or a number, got nil", function() return flow.zeros(2) + nil end},
        {"exp: x must be a tensor, got number; write x:exp(...) or flow.exp(x, ...)", function() return flow.exp(3) end},
        {"exp: missing argument 'x' (a method is called with a colon: x:exp())", function() return flow.exp() end},
        {"gelu: approximate must be one of none|tanh, got 'tan'; did you mean 'tanh'?", function() return flow.zeros(2):gelu("tan") end},
        {"clamp: unknown option 'mim'; did you mean 'min'?", function() return flow.zeros(2):clamp({mim = 0}) end},
        {"clamp: min must be a number, got string", function() return flow.zeros(2):clamp("a") end},
        {"clamp: max must be a tensor or a number, got string", function() return flow.zeros(2):clamp(flow.zeros(2), "a") end},
        {"clamp: shapes [2] and [3] do not broadcast", function() return flow.zeros(2):clamp(flow.zeros(3), 1) end},
        {"clamp: maximum: shapes [2] and [3] do not broadcast", function() return flow.zeros(2):clamp(flow.zeros(3)) end},
        {"clamp_: x is float32[2] and the result has shape [3, 2]; write x = x:clamp(...)",
            function() return flow.zeros(2):clamp_(flow.zeros(3, 2)) end},
        {"clamp: too many arguments: clamp(x, min|number?, max|number?)", function() return flow.zeros(2):clamp(flow.zeros(2), 1, 2) end},
        {"tensor has no method or field 'sigmoidd'; did you mean 'sigmoid'?", function() return flow.zeros(2):sigmoidd() end},
    } do
        it(case[1], function() assert.are.equal(case[1], message(case[2])) end)
    end
end)
