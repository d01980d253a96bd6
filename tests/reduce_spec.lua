-- reduce_spec.lua -- reductions and softmax against plain Lua: axes, dtypes, layouts, sizes, NaN, empty tensors, ties.
local flow = require "flow"
local ref = require "tests.reference"
local support = require "tests.support"

local inf, nan = math.huge, 0 / 0
local function message(f)
    local ok, text = pcall(f)
    assert.is_false(ok)
    return (text:gsub("^.-:%d+: ", ""))
end

local function greater(a, b) return a > b end
local function less(a, b) return a < b end

---- references of one list ----

local function sum(list) return ref.sum(list) end
local function mean(list) return #list == 0 and nan or ref.sum(list) / #list end
local function prod(list)
    local p = 1
    for _, x in ipairs(list) do p = p * x end
    return p
end
local function var(correction)
    return function(list)
        local center, squares = mean(list), {}
        for i, x in ipairs(list) do squares[i] = (x - center) ^ 2 end
        return #list <= correction and (#list == 0 and nan or #list == correction and nan or inf) or ref.sum(squares) / (#list - correction)
    end
end
local function std(list) return math.sqrt(var(1)(list)) end
local function largest(list) return (ref.extreme(list, greater)) end
local function smallest(list) return (ref.extreme(list, less)) end
local function any(list)
    for _, x in ipairs(list) do if x ~= 0 then return 1 end end
    return 0
end
local function all(list)
    for _, x in ipairs(list) do if x == 0 then return 0 end end
    return 1
end
local function norm(p)
    return function(list)
        local powers = {}
        for i, x in ipairs(list) do powers[i] = p == 0 and (x ~= 0 and 1 or 0) or math.abs(x) ^ p end
        return p == 0 and ref.sum(powers) or ref.sum(powers) ^ (1 / p)
    end
end
local function absolute(f)
    return function(list)
        local out = {}
        for i, x in ipairs(list) do out[i] = math.abs(x) end
        return f(out)
    end
end

---- ops: name, call(x, axes, keepdim), reference, {ulps in float32, in float64} ----

local method = support.reduction

local ops = {
    {"sum", method "sum", sum, {4, 4}, same = true},
    {"mean", method "mean", mean, {4, 4}, float_only = true},
    {"prod", method "prod", prod, {8, 16}},
    {"amax", method "amax", largest, {0, 0}, keeps = true, not_empty = true},
    {"amin", method "amin", smallest, {0, 0}, keeps = true, not_empty = true},
    {"any", method "any", any, {0, 0}, bool = true},
    {"all", method "all", all, {0, 0}, bool = true},
    {"var", function(x, axes, keepdim) return x:var(axes, 1, keepdim) end, var(1), {8, 16}, float_only = true},
    {"var, correction 0.5", function(x, axes, keepdim) return x:var(axes, 0.5, keepdim) end, var(0.5), {8, 16}, float_only = true},
    {"var, correction 0", function(x, axes, keepdim) return x:var(axes, 0, keepdim) end, var(0), {8, 16}, float_only = true},
    {"std", function(x, axes, keepdim) return x:std(axes, 1, keepdim) end, std, {8, 16}, float_only = true},
    {"norm", method("norm", 2), norm(2), {4, 4}, float_only = true},
    {"norm 1", method("norm", 1), norm(1), {4, 4}, float_only = true},
    {"norm 0", method("norm", 0), norm(0), {0, 0}, float_only = true},
    {"norm 3", method("norm", 3), norm(3), {8, 16}, float_only = true},
    {"norm 0.5", method("norm", 0.5), norm(0.5), {16, 32}, float_only = true},
    {"norm inf", method("norm", inf), absolute(largest), {0, 0}, float_only = true, not_empty = true},
    {"norm -inf", method("norm", -inf), absolute(smallest), {0, 0}, float_only = true, not_empty = true},
    {"logsumexp", method "logsumexp", ref.logsumexp, {8, 16}, float_only = true},
}

local function result_dtype(op, dtype)
    if op.bool then return "bool" end
    if ref.is_float(dtype) or op.keeps then return dtype end
    return "int64"
end

local function ulps(op, dtype)
    if dtype == "float64" then return op[4][2] end
    return dtype == "float32" and op[4][1] or op[4][1] > 0 and 1 or 0
end

-- Small numbers around 1, few enough of them away from 0 that products stay finite.
local function numbers(dtype, shape, seed)
    local random = ref.generator(seed or 1)
    return ref.array(shape, function()
        local r = random()
        if dtype == "bool" then return r > -0.4 and 1 or 0 end
        if ref.is_float(dtype) then return ref.round(dtype, r + (r < 0 and -0.5 or 0.5)) end
        return math.floor(ref.lowest[dtype] < 0 and r * 4 or (r + 1) * 2)
    end)
end

-- The allowance for rounding of a sum whose terms cancel: parts of the largest element, times their number.
local function slack(op, dtype, x, count)
    if not ref.is_float(dtype) or op[4][1] == 0 then return nil end
    local top = 0
    for _, v in ipairs(x) do top = math.max(top, ref.is_finite(v) and math.abs(v) or 0) end
    return top * math.sqrt(math.max(count, 1)) * ref.epsilon(dtype == "float64" and dtype or "float32")
end

local function check(op, dtype, x, t, axes, keepdim, what)
    local want = ref.reduce(x, axes, keepdim, op[3])
    local count = #x / math.max(#want, 1)
    ref.check(op[2](t, axes, keepdim), want, result_dtype(op, dtype), ulps(op, dtype), what, slack(op, dtype, x, count))
end

local function axes_text(axes) return axes and "{" .. table.concat(axes, ", ") .. "}" or "all" end

describe("reductions:", function()
    for _, op in ipairs(ops) do
        it(op[1] .. " over dtypes and axes", function()
            for _, dtype in ipairs(ref.dtypes) do
                if ref.is_float(dtype) or not op.float_only then
                    local x = numbers(dtype, {3, 4, 5})
                    local t = ref.tensor(x, dtype)
                    for _, axes in ipairs {false, {0}, {1}, {2}, {-1}, {0, 2}, {2, 0}, {0, -2}, {0, 1, 2}} do
                        for _, keepdim in ipairs {false, true} do
                            local what = ("%s %s over %s%s"):format(op[1], dtype, axes_text(axes), keepdim and ", keepdim" or "")
                            check(op, dtype, x, t, axes or nil, keepdim, what)
                        end
                    end
                end
            end
        end)

        it(op[1] .. " over sizes and layouts", function()
            for _, n in ipairs {1, 2, 7, 15, 16, 17, 31, 33, 65, 1000, 2049} do
                for _, dtype in ipairs(op.float_only and {"float32", "float64"} or {"float32", "int64"}) do
                    local x = numbers(dtype, {n}, n)
                    local what = ("%s %s of %d"):format(op[1], dtype, n)
                    if op[1] == "prod" and n > 33 then break end
                    check(op, dtype, x, ref.tensor(x, dtype), nil, false, what)
                    check(op, dtype, x, ref.tensor(x, dtype), {0}, true, what)
                end
            end
            for _, shape in ipairs {{2, 33, 5}, {17, 3, 2}, {1, 65, 1}, {4, 1, 40}, {2, 3, 2, 3, 2}} do
                local x = numbers("float32", shape, 5)
                for _, layout in ipairs(ref.layouts(ref.tensor(x, "float32"))) do
                    for _, axes in ipairs {false, {0}, {1}, {-1}, {0, -1}} do
                        check(op, "float32", x, layout[2], axes or nil, false,
                            ("%s of [%s] %s over %s"):format(op[1], table.concat(shape, ", "), layout[1], axes_text(axes)))
                    end
                end
            end
        end)

        it(op[1] .. " of stretched and 0-d tensors", function()
            local x = numbers("float32", {3, 1})
            local wide = ref.broadcast(x, {3, 20})
            local t = ref.tensor(x, "float32"):expand(3, 20)
            for _, axes in ipairs {false, {0}, {1}} do
                if op[1] ~= "prod" then check(op, "float32", wide, t, axes or nil, false, op[1] .. " of a stretched tensor") end
            end
            local one = {shape = {}, 1.25}
            for _, axes in ipairs {false, {0}, {-1}} do
                check(op, "float32", one, flow.tensor(1.25), axes or nil, false, op[1] .. " of a 0-d tensor")
                check(op, "float32", one, flow.tensor(1.25), axes or nil, true, op[1] .. " of a 0-d tensor")
            end
        end)

        if not op.not_empty then
            it(op[1] .. " of nothing", function()
                for _, shape in ipairs {{0}, {0, 3}, {3, 0}, {2, 0, 3}} do
                    local x = {shape = shape}
                    for _, axes in ipairs {false, {0}, {-1}} do
                        check(op, "float32", x, flow.zeros(shape), axes or nil, false, ("%s of [%s] over %s"):format(op[1], table.concat(shape, ", "), axes_text(axes)))
                    end
                end
            end)
        end
    end

    -- Large tensors are cut into segments: the sum of a whole is that of its parts.
    it("large ones", function()
        local n = 300000
        local x = flow.arange(n, {dtype = "float64"}) % 1000
        local whole = x:to("int64"):sum():item()
        assert.are.equal(n // 1000 * 499500, whole)
        for _, dtype in ipairs {"float32", "float64", "int32", "int64"} do
            local t = x:to(dtype)
            assert.are.equal(whole, t:sum():item(), "sum " .. dtype)
            assert.are.equal(whole, t:reshape(3, n // 3):sum({0, 1}):item())
            assert.are.equal(999, t:amax():item())
            assert.are.equal(0, t:amin():item())
            assert.are.equal(999, t:argmax():item())
            assert.are.equal(0, t:argmin():item())
            assert.is_true(t:ne(1000):all():item())
            assert.is_false(t:eq(1000):any():item())
            assert.are.same({whole // 3, whole // 3, whole // 3}, t:reshape(3, n // 3):sum(1):totable())
            local columns = t:reshape(n // 1000, 1000):sum(0)
            assert.is_true(columns:eq((flow.arange(1000) * (n // 1000)):to(columns.dtype)):all():item())
            assert.is_true(columns:eq(t:reshape(n // 1000, 1000):t():contiguous():sum(1)):all():item())
        end
        local values = x:to("float32")
        assert.is_true(math.abs(values:mean():item() - 499.5) < 1e-3)
        assert.is_true(math.abs(values:var():item() / (999999 / 12 * n / (n - 1)) - 1) < 1e-6)
        assert.is_true(math.abs(values:norm():item() / math.sqrt(332833500.0 * (n // 1000)) - 1) < 1e-6)
        assert.is_true(math.abs(values:logsumexp():item() - (999 + math.log((n // 1000) / (1 - math.exp(-1))))) < 1e-3)
    end)

    it("sums of floats are accurate", function()
        local x = flow.full({1000000}, 0.1)
        assert.is_true(math.abs(x:sum():item() - 1000000 * flow.tensor(0.1):item()) < 0.1)
        assert.are.equal(4096, flow.full({4096}, 1, {dtype = "float16"}):sum():item())
        assert.are.equal(256, flow.full({1000}, 256, {dtype = "float16"}):mean():item()) -- the sum alone would overflow
        assert.are.equal(500, flow.tensor({300, 400}, {dtype = "float16"}):norm():item())
        local shifted = flow.tensor({10000001, 10000002, 10000003}, {dtype = "float32"})
        assert.are.equal(1, shifted:var():item())
    end)
end)

describe("edges:", function()
    local function list(t) return t:totable() end
    it("NaN and infinities", function()
        local x = flow.tensor({{1.0, nan, 3.0}, {inf, 2.0, -inf}, {-inf, -inf, -inf}})
        assert.is_true(x:amax(1):isnan()[0]:item())
        assert.are.same({inf, -inf}, list(x:amax(1):narrow(0, 1, 2)))
        assert.is_true(x:amin(1):isnan()[0]:item())
        assert.are.same({true, true, false}, list(x:sum(1):isnan()))
        assert.are.same({1, 0, 0}, list(x:argmax(1)))
        assert.are.same({1, 2, 0}, list(x:argmin(1)))
        assert.are.same({true, false, false}, list(x:logsumexp(1):isnan()))
        assert.are.same({inf, -inf}, list(x:logsumexp(1):narrow(0, 1, 2)))
        assert.is_true(x:max():isnan():item())
        assert.is_true(x:min():isnan():item())
        assert.is_true(flow.tensor({nan}):any():item())
        assert.is_true(flow.tensor({nan}):all():item())
        assert.are.equal(inf, flow.tensor({nan, inf}):narrow(0, 1, 1):norm():item())
        assert.is_true(flow.tensor({inf, 1.0}):var():isnan():item())
        for _, n in ipairs {5, 17, 100, 5000, 200000} do -- wherever it is
            for _, at in ipairs {0, n // 2, n - 1} do
                local y = flow.zeros(n)
                y[at] = nan
                assert.are.equal(at, y:argmax():item())
                assert.are.equal(at, y:argmin():item())
                assert.is_true(y:amax():isnan():item() and y:amin():isnan():item() and y:sum():isnan():item())
                y[n - 1] = nan -- a second one changes nothing
                assert.are.equal(at, y:argmax():item())
            end
        end
    end)

    it("the extreme of a row is found wherever it is", function()
        for _, dtype in ipairs {"float32", "float64", "bfloat16", "int64"} do
            for _, n in ipairs {1, 7, 8, 15, 16, 17, 63, 64, 65, 127, 130, 255, 257} do
                local ones = flow.eye(n, nil, {dtype = dtype})
                assert.is_true((ones - 2):amax(1):eq(-1):all():item() and (2 - ones):amin(1):eq(1):all():item())
                assert.are.same(list(flow.arange(n)), list((ones - 2):argmax(1)))
                if dtype ~= "int64" then
                    local nans = (ones - 2) / (1 - ones) * (1 - ones)
                    assert.is_true(nans:amax(1):isnan():all():item() and nans:amin(1):isnan():all():item())
                end
            end
        end
    end)

    it("ties go to the lowest position", function()
        assert.are.equal(0, flow.tensor({2, 1, 2}):argmax():item())
        assert.are.same({1, 0}, list(flow.tensor({{1, 3, 3}, {2, 2, 1}}):argmax(1)))
        assert.are.equal(0, flow.zeros(100000):argmax():item())
        assert.are.equal(0, flow.zeros(100000):argmin():item())
        assert.are.equal(3, flow.tensor({{1, 2, 0}, {5, 5, 1}}):argmax():item())
        local x = flow.zeros(70, 90)
        x[{{}, 41}] = 1
        x[{{}, 77}] = 1
        assert.is_true(x:argmax(1):eq(41):all():item())
        assert.is_true(x:t():argmax(0):eq(41):all():item())
    end)

    it("max and min along an axis give values and positions", function()
        local x = flow.tensor({{3, 1, 2}, {4, 9, 9}})
        local values, positions = x:max(1)
        assert.are.same({3, 9}, list(values))
        assert.are.same({0, 1}, list(positions))
        assert.are.equal("int64", positions.dtype)
        values, positions = x:min(0, true)
        assert.are.same({{3, 1, 2}}, list(values))
        assert.are.same({{0, 0, 0}}, list(positions))
        values, positions = x:max(-1, {keepdim = true})
        assert.are.same({{3}, {9}}, list(values))
        assert.are.same({{0}, {1}}, list(positions))
        assert.are.equal(9, x:max():item())
        assert.are.equal(1, x:min():item())
        values, positions = flow.tensor(3.0):max(0)
        assert.are.equal(3, values:item())
        assert.are.equal(0, positions:item())
        assert.are.same({{false, true, true}}, list(flow.tensor({{false, true, true}}):max(0):reshape(1, 3)))
        for _, dtype in ipairs {"uint8", "int8", "int32", "float16", "bfloat16", "float64", "bool"} do
            local y = flow.tensor({{0, 1}, {1, 0}}):to(dtype)
            values, positions = y:max(1)
            assert.are.equal(dtype, values.dtype)
            assert.are.same({1, 0}, list(positions))
            assert.are.same({1, 1}, list(values:to("int64")))
            assert.are.equal(dtype, y:max().dtype)
        end
        local whole = flow.tensor({math.mininteger, 5, math.maxinteger})
        assert.are.same({math.mininteger, math.maxinteger}, {whole:min():item(), whole:max():item()})
    end)

    it("integers add without loss and wrap", function()
        assert.are.equal(510, flow.tensor({255, 255}, {dtype = "uint8"}):sum():item())
        assert.are.equal("int64", flow.tensor({255, 255}, {dtype = "uint8"}):sum().dtype)
        assert.are.equal(2, flow.tensor({true, true, false}):sum():item())
        assert.are.equal(-300, flow.tensor({-128, -128, -44}, {dtype = "int8"}):sum():item())
        assert.are.equal(4294967294, flow.tensor({2147483647, 2147483647}, {dtype = "int32"}):sum():item())
        assert.are.equal(9007199254740993 * 3, flow.full({3}, 9007199254740993):sum():item())
        assert.are.equal(0, flow.full({4}, 1 << 62):sum():item())
        assert.are.equal(1000000, flow.tensor({100, 100, 100}, {dtype = "int8"}):prod():item())
        assert.are.equal(2 ^ 40 | 0, flow.full({40}, 2):prod():item())
    end)

    it("options may be named", function()
        local x = flow.ones(2, 3)
        assert.are.same({2, 1}, x:sum(1, {keepdim = true}).shape)
        assert.are.same({1, 1}, x:sum({keepdim = true}).shape)
        assert.are.same({3}, x:sum({axis = 0}).shape)
        assert.are.same({2}, flow.sum(x, -1).shape)
    end)
end)

---- softmax ----

describe("softmax", function()
    for _, name in ipairs {"softmax", "log_softmax"} do
        it(name, function()
            local random = ref.generator(9)
            for _, shape in ipairs {{1}, {7}, {17}, {33}, {1000}, {3, 5}, {5, 16}, {2, 31, 3}, {4, 65}, {0, 3}, {3, 0}, {2, 1, 4}} do
                for _, dtype in ipairs(ref.floats) do
                    local x = ref.array(shape, function() return ref.round(dtype, random() * 8) end)
                    for axis = -1, #shape - 1 do
                        local want = ref.lines(x, axis, ref[name])
                        for _, layout in ipairs(ref.layouts(ref.tensor(x, dtype))) do
                            local loose = dtype == "float64" and 1e-14 or 1e-6
                            ref.check(layout[2][name](layout[2], axis), want, dtype, dtype == "float64" and 16 or dtype == "float32" and 16 or 1,
                                ("%s %s [%s] along %d, %s"):format(name, dtype, table.concat(shape, ", "), axis, layout[1]), name == "log_softmax" and loose or 1e-9)
                        end
                    end
                end
            end
        end)
    end

    it("at the edges", function()
        local function same(want, got)
            got = got:to("float64"):totable()
            for i, v in ipairs(want) do assert.is_true(got[i] == v or (v ~= v and got[i] ~= got[i]), ("element %d is %g, expected %g"):format(i - 1, got[i], v)) end
        end
        same({0.5, 0.5}, flow.tensor({1e30, 1e30}):softmax(0))
        same({1, 0}, flow.tensor({1000.0, -1000.0}):softmax(0))
        same({0, -2000}, flow.tensor({1000.0, -1000.0}):log_softmax(0))
        same({0, 1, 0}, flow.tensor({-inf, 3.0, -inf}):softmax(0))
        same({-inf, 0, -inf}, flow.tensor({-inf, 3.0, -inf}):log_softmax(0))
        same({nan, nan}, flow.tensor({-inf, -inf}):softmax(0))
        same({nan, nan}, flow.tensor({-inf, -inf}):log_softmax(0))
        same({nan, nan}, flow.tensor({inf, 1.0}):softmax(0))
        same({nan, nan, nan}, flow.tensor({nan, 1.0, 2.0}):softmax(0))
        same({nan, nan, nan}, flow.tensor({1.0, nan, 2.0}):log_softmax(0))
        assert.are.equal(1, flow.tensor(3.0):softmax(0):item())
        assert.are.equal(0, flow.tensor(3.0):log_softmax(-1):item())
        for _, n in ipairs {16, 17, 40, 1000} do -- a NaN anywhere in a long row, and rows around it untouched
            local x = flow.zeros(3, n)
            x[{1, n - 1}] = nan
            local y = x:softmax(1)
            assert.is_true(y[1]:isnan():all():item())
            assert.is_false(y[0]:isnan():any():item() or y[2]:isnan():any():item())
            assert.is_true(math.abs(y[0]:sum():item() - 1) < 1e-5)
        end
    end)

    it("of many rows on all threads", function()
        local line = ref.array({40}, function(i) return ref.round("float32", math.sin(i * 3) * 5) end)
        local one = ref.tensor(line, "float32"):softmax(0)
        ref.check(one, ref.lines(line, 0, ref.softmax), "float32", 16, "softmax")
        local many = ref.tensor(line, "float32"):expand(8000, 40):softmax(1)
        assert.is_true(many:eq(one):all():item())
        assert.is_true(ref.tensor(line, "float32"):unsqueeze(1):expand(40, 8000):softmax(0):sub(one:unsqueeze(1)):abs():amax():item() < 1e-7)
    end)
end)

describe("gradients at corners", function() -- those of PyTorch
    for _, case in ipairs {
        {"x:amax()", {1, 3, 3, 2}, {0, 0.5, 0.5, 0}},
        {"x:max()", {1, 3, 3, 2}, {0, 0.5, 0.5, 0}},
        {"(x:max(0))", {1, 3, 3, 2}, {0, 1, 0, 0}},
        {"x:amin()", {1, 1, 3, 2}, {0.5, 0.5, 0, 0}},
        {"(x:min(0))", {1, 1, 3, 2}, {1, 0, 0, 0}},
        {"x:prod()", {2, 0, 3}, {0, 6, 0}},
        {"x:prod()", {0, 0, 3}, {0, 0, 0}},
        {"x:prod()", {2, 4, 3}, {12, 6, 8}},
        {"x:norm(1)", {3, -4, 0}, {1, -1, 0}},
        {"x:norm(1)", {2, -2, 2}, {1, -1, 1}},
        {"x:norm(2)", {3, -4, 0}, {0.6, -0.8, 0}},
        {"x:norm(2)", {2, -2, 2}, {0.577350269, -0.577350269, 0.577350269}},
        {"x:norm(3)", {3, -4, 0}, {0.444851352, -0.790846848, 0}},
        {"x:norm(3)", {2, -2, 2}, {0.480749857, -0.480749857, 0.480749857}},
        {"x:norm(0.5)", {3, -4, 0}, {2.15470054, -1.8660254, 0}},
        {"x:norm(0.5)", {2, -2, 2}, {3, -3, 3}},
        {"x:norm(math.huge)", {3, -4, 0}, {0, -1, 0}},
        {"x:norm(math.huge)", {2, -2, 2}, {0.333333333, -0.333333333, 0.333333333}},
        {"x:norm(-math.huge)", {3, -4, 0}, {0, 0, 0}},
        {"x:norm(-math.huge)", {2, -2, 2}, {0.333333333, -0.333333333, 0.333333333}},
        {"x:norm()", {0, 0}, {0, 0}},
        {"x:std()", {1, 1, 1}, {0, 0, 0}},
        {"x:std()", {1, 2, 4}, {-0.43643578, -0.109108945, 0.545544726}},
        {"x:var()", {1, 2, 4}, {-1.33333333, -0.333333333, 1.66666667}},
        {"x:mean()", {1, 2}, {0.5, 0.5}},
        {"x:logsumexp(0)", {1, 2, -inf}, {0.268941421, 0.731058579, 0}},
        {"x:logsumexp(0)", {-inf, -inf}, {nan, nan}},
        {"x:softmax(0)", {1, 2, -inf}, {0, 0, 0}},
        {"x:log_softmax(0)", {1, 2, -inf}, {0.193175736, -1.19317574, 1}},
        {"x:logsumexp(0)", {inf, 1}, {nan, 0}},
    } do
        it(case[1], function()
            for dtype, eps in pairs {float64 = 1e-8, float32 = 1e-6} do support.check_gradient(case[1], dtype, case[2], case[3], eps) end
        end)
    end
end)

describe("messages", function()
    for _, case in ipairs {
        {"sum: axis 0 is named twice", function() flow.zeros(2, 3):sum({0, -2}) end},
        {"sum: axis 2 is out of range for shape [2, 3] (-2 to 1)", function() flow.zeros(2, 3):sum(2) end},
        {"sum: axis 1 is out of range for shape [] (-1 to 0)", function() flow.tensor(1.0):sum(1) end},
        {"sum: axis must be a whole number or a list of them, got string", function() flow.zeros(2, 3):sum("0") end},
        {"sum: axis must be a whole number, got 0.5", function() flow.zeros(2, 3):sum(0.5) end},
        {"sum: unknown option 'axes'; did you mean 'axis'?", function() flow.zeros(2, 3):sum({axes = 0}) end},
        {"mean: takes a float tensor, x is int64[2]; write x:to(\"float32\")", function() flow.tensor({1, 2}):mean() end},
        {"var: takes a float tensor, x is bool[1]; write x:to(\"float32\")", function() flow.tensor({true}):var() end},
        {"norm: takes a float tensor, x is int64[2]; write x:to(\"float32\")", function() flow.tensor({1, 2}):norm() end},
        {"logsumexp: takes a float tensor, x is int64[2]; write x:to(\"float32\")", function() flow.tensor({1, 2}):logsumexp() end},
        {"softmax: takes a float tensor, x is int64[2]; write x:to(\"float32\")", function() flow.tensor({1, 2}):softmax(0) end},
        {"softmax: axis 1 is out of range for shape [2] (-1 to 0)", function() flow.zeros(2):softmax(1) end},
        {"softmax: missing argument 'axis': softmax(x, axis: axis)", function() flow.zeros(2):softmax() end},
        {"max: axis 0 of [0, 3] is empty, so there is no result", function() flow.zeros(0, 3):max(0) end},
        {"max: axis 0 of [0] is empty, so there is no result", function() flow.zeros(0):max() end},
        {"min: axis 1 of [3, 0] is empty, so there is no result", function() flow.zeros(3, 0):min(1) end},
        {"amax: axis 0 of [0] is empty, so there is no result", function() flow.zeros(0):amax() end},
        {"argmax: axis 0 of [0] is empty, so there is no result", function() flow.zeros(0):argmax() end},
        {"max: axis 5 is out of range for shape [2] (-1 to 0)", function() flow.zeros(2):max(5) end},
        {"max: axis must be a whole number, got string", function() flow.zeros(2):max("a") end},
        {"min: missing argument 'axis': min(x, axis: axis, keepdim: bool = false)", function() flow.zeros(2):min({keepdim = true}) end},
        {"min: unknown option 'keepdm'; did you mean 'keepdim'?", function() flow.zeros(2):min(0, {keepdm = true}) end},
    } do
        it(case[1], function() assert.are.equal(case[1], message(case[2])) end)
    end
end)

describe("a split axis of 16-bit floats", function()
    local place = flow.placement("cpu", {0})
    local function split(t) return t:to_global {placement = place, sbp = "S(0)"} end

    -- {name, of x: 40 times 300 or -250; its squares and cubes leave the range of float16}
    for _, case in ipairs {
        {"norm", function(x) return x:norm() end}, {"norm of 3", function(x) return x:norm(3) end}, {"std", function(x) return x:std() end},
        {"var", function(x) return x:var() end},
    } do
        it("is reduced in float32: " .. case[1], function()
            for _, dtype in ipairs {"float16", "bfloat16"} do
                local x = flow.full({40}, 300, {dtype = dtype})
                x[{{0, 20}}] = -250
                local want, got = case[2](x), case[2](split(x))
                assert.are.equal(dtype, got.dtype)
                assert.are.equal(want:item(), got:item(), dtype)
            end
        end)
    end

    it("may have more elements than the largest float16", function()
        local x = flow.zeros({70000}, {dtype = "float16"})
        assert.are.equal(x:logsumexp():item(), split(x):logsumexp():item())
        assert.are.equal(x:softmax(0)[0]:item(), split(x):softmax(0)[0]:item())
        assert.are.equal(x:log_softmax(0)[0]:item(), split(x):log_softmax(0)[0]:item())
    end)
end)

describe("trapezoid", function()
    -- Of a list: the areas between neighbours, at positions x or dx apart.
    local function integral(y, x, dx)
        local total = 0
        for i = 2, #y do total = total + (y[i] + y[i - 1]) / 2 * (x and x[i] - x[i - 1] or dx) end
        return total
    end

    for _, dtype in ipairs {"float32", "float64", "float16", "int64"} do
        for _, n in ipairs {1, 2, 3, 17} do
            it(("of %d positions, %s"):format(n, dtype), function()
                local y, x = (flow.randn(2, n) * 4):to(dtype), flow.randn(n)
                local within = dtype == "float16" and 0.15 or 1e-4
                for i = 0, 1 do
                    local line, places = y[i]:totable(), x:totable()
                    assert.is_near(integral(line, nil, 0.25), y:trapezoid({dx = 0.25})[i]:item(), within)
                    assert.is_near(integral(line, places), y:trapezoid(x)[i]:item(), within)
                    assert.is_near(integral(line, places), y:t():trapezoid(x, {axis = 0})[i]:item(), within)
                end
            end)
        end
    end
end)

describe("what is folded in the order of memory", function()
    it("has the results of a contiguous copy, in any order of axes", function()
        flow.manual_seed(15)
        for _, dtype in ipairs {"float32", "float64", "bfloat16", "int64"} do
            local x = (flow.randn(6, 70, 40) * 9):to(dtype)
            local ways = {
                x:permute(2, 0, 1), x:permute(1, 2, 0), x:permute(2, 1, 0), x:transpose(0, 1), x:flip {0, 2}:permute(2, 1, 0),
                x[{{}, {0, 1}}]:expand(6, 70, 40), x[{{}, {}, {0, 1}}]:expand(6, 70, 40):permute(2, 0, 1), x[{{}, {}, {0, 20}}]:permute(2, 1, 0),
            }
            for i, view in ipairs(ways) do
                local copy = view:contiguous()
                for _, axes in ipairs {{0, 1, 2}, {0, 1}, {0, 2}, {1, 2}, {2}} do
                    for _, name in ipairs {"sum", "amax", "amin", "count_nonzero"} do
                        local got, want = view[name](view, axes), copy[name](copy, axes)
                        local room = name ~= "sum" and 0 or dtype == "float64" and 1e-9 or dtype == "float32" and 1e-2 or dtype == "bfloat16" and 40 or 0
                        assert.is_true((got:double() - want:double()):abs():amax():item() <= room, ("%s of %s, way %d"):format(name, dtype, i))
                    end
                end
                assert.are.equal(copy:argmax():item(), view:argmax():item())
                if dtype == "float64" then
                    assert.is_true(math.abs(view:var():item() - copy:var():item()) < 1e-9)
                    assert.is_true(math.abs(view:norm():item() - copy:norm():item()) < 1e-9)
                end
            end
        end
    end)
end)
