-- elementwise_bits_spec.lua -- an element has the same bits in any size and layout, among others, on any thread; 16-bit floats are those
-- of float32, rounded.
local flow = require "flow"
local cases = require "tests.elementwise_cases"
local ref = require "tests.reference"
local support = require "tests.support"

local interesting, unary, title, apply = cases.interesting, cases.unary, cases.title, cases.apply

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
