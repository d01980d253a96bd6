-- creation_spec.lua -- tensors out of numbers, lists and sizes: values, dtypes, and what is refused with which words.
-- shape_spec.lua has the parts of other ranks.
local flow = require "flow"
local ref = require "tests.reference"
local support = require "tests.support"

local inf, nan = math.huge, 0 / 0

local function list(t) return t:to("float64"):totable() end

describe("lists", function()
    for _, case in ipairs {
        {"int64", {1, 2}, {2}, {1, 2}}, {"float32", {1, 2.0}, {2}, {1, 2}},
        {"float32", {0.5}, {1}, {0.5}}, {"bool", {true, false}, {2}, {true, false}},
        {"int64", {true, 1}, {2}, {1, 1}}, {"float32", {true, 1.5}, {2}, {1, 1.5}}, {"float32", {}, {0}},
        {"float32", {{}, {}}, {2, 0}}, {"int64", {{1, 2, 3}, {4, 5, 6}}, {2, 3}},
        {"int64", {{{1}}}, {1, 1, 1}}, {"int64", 5, {}}, {"float32", 5.0, {}}, {"bool", true, {}},
    } do
        it("give " .. case[1] .. " of shape " .. table.concat(case[3], ", "), function()
            local t = flow.tensor(case[2])
            assert.are.equal(case[1], t.dtype)
            assert.are.same(case[3], t.shape)
            if case[4] then assert.are.same(case[4], t:totable()) end
        end)
    end

    it("keep every value of every dtype", function()
        for dtype, low in pairs(ref.lowest) do
            local values = {low, low + 1, 0, 1, ref.highest[dtype] - 1, ref.highest[dtype]}
            assert.are.same(values, flow.tensor(values, {dtype = dtype}):totable())
        end
        local values = {0.1, -1e300, 5e-324, inf, -inf, 1 / 3}
        assert.are.same(values, flow.tensor(values, {dtype = "float64"}):totable())
        assert.is_true(flow.tensor({nan}):isnan():item())
        assert.are.equal(-inf, 1 / flow.tensor({-0.0}):item())
        assert.are.same({2, -2, 0}, flow.tensor({2.9, -2.9, 0.5}, {dtype = "int32"}):totable())
        assert.are.same({true, false, true}, flow.tensor({0.5, 0, nan}, {dtype = "bool"}):totable())
        assert.are.same({inf, 65504}, list(flow.tensor({65520, 65519}, {dtype = "float16"})))
    end)

    it("of other tensors are copies", function()
        local x = flow.tensor {1, 2}
        local y = flow.tensor(x)
        y[0] = 9
        assert.are.same({1, 2}, x:totable())
        assert.are.equal("float64", flow.tensor(x, {dtype = "float64"}).dtype)
    end)

    it("come back as they went in", function()
        local nested = {{{1, 2}, {3, 4}, {5, 6}}, {{7, 8}, {9, 10}, {11, 12}}}
        assert.are.same(nested, flow.tensor(nested):totable())
        assert.are.same(nested, flow.tensor(nested):transpose(0, 2):contiguous():transpose(0, 2):totable())
        assert.are.equal("integer", math.type(flow.tensor(3):totable()))
        assert.are.equal("float", math.type(flow.tensor(3.0):item()))
        assert.are.same({}, flow.zeros(0):totable())
        assert.are.same({{}, {}}, flow.zeros(2, 0):totable())
    end)
end)

describe("sizes", function()
    it("are numbers or a list", function()
        for _, make in ipairs {flow.zeros, flow.ones, flow.rand, flow.randn, flow.empty} do
            assert.are.same({2, 3}, make(2, 3).shape)
            assert.are.same({2, 3}, make({2, 3}).shape)
            assert.are.same({}, make({}).shape)
            assert.are.same({0}, make(0).shape)
            assert.are.same({2, 3}, make(2, 3, {dtype = "float64"}).shape)
            assert.are.equal("float64", make({2, 3}, {dtype = "float64"}).dtype)
            assert.are.equal("float32", make(2).dtype)
        end
    end)

    it("fill every dtype", function()
        for _, dtype in ipairs(ref.dtypes) do
            for _, n in ipairs {0, 1, 7, 33, 1000, 200000} do
                assert.are.equal(0, flow.zeros({n}, {dtype = dtype}):ne(0):sum():item())
                assert.are.equal(n, flow.ones({n}, {dtype = dtype}):eq(1):sum():item())
                assert.are.equal(n, flow.full({n}, 1, {dtype = dtype}):eq(1):sum():item())
            end
            local x = flow.ones({3, 4}, {dtype = dtype})
            x:t():narrow(0, 1, 2):zero_()
            assert.are.equal(6, x:ne(0):sum():item())
            x:t():narrow(0, 1, 2):fill_(1)
            assert.are.equal(12, x:ne(0):sum():item())
            for name, sum in pairs {zeros_like = 0, ones_like = 12} do
                local like = flow[name](x)
                assert.are.equal(dtype, like.dtype)
                assert.are.equal(sum, like:ne(0):sum():item())
            end
            assert.are.same({3, 4}, flow.empty_like(x).shape)
            assert.are.equal("int8", flow.full_like(x, 7, {dtype = "int8"}).dtype)
            assert.are.equal(dtype == "bool" and 1 or 7, flow.full_like(x, 7)[{2, 3}]:to("int64"):item())
        end
    end)
end)

describe("arange and linspace", function()
    for _, case in ipairs {
        {{5}, {0, 1, 2, 3, 4}, "int64"}, {{0}, {}, "int64"}, {{2, 7}, {2, 3, 4, 5, 6}, "int64"}, {{7, 2, -2}, {7, 5, 3}, "int64"}, {{3, 3}, {}, "int64"},
        {{0, 7, 3}, {0, 3, 6}, "int64"}, {{-3, 3, 2}, {-3, -1, 1}, "int64"}, {{2.5}, {0, 1, 2}, "float32"}, {{0.0, 3}, {0, 1, 2}, "float32"},
        {{1, 2, 0.25}, {1, 1.25, 1.5, 1.75}, "float32"}, {{1, -1, -0.5}, {1, 0.5, 0, -0.5}, "float32"},
        {{5, {dtype = "float16"}}, {0, 1, 2, 3, 4}, "float16"}, {{0, 1, 0.3, {dtype = "float64"}}, {0, 0.3, 0.6, 0.3 * 3}, "float64"},
        {{250, 256, {dtype = "uint8"}}, {250, 251, 252, 253, 254, 255}, "uint8"},
    } do
        it("arange gives " .. #case[2] .. " numbers of " .. case[3], function()
            local t = flow.arange(table.unpack(case[1]))
            assert.are.equal(case[3], t.dtype)
            assert.are.same(case[2], list(t))
        end)
    end

    it("large ones count without drifting", function()
        local x = flow.arange(300001)
        assert.are.equal(300000, x[300000]:item())
        assert.are.equal(300000 * 300001 // 2, x:sum():item())
        local y = flow.arange(0, 100, 1e-3, {dtype = "float64"})
        assert.are.equal(100000, y:numel())
        assert.are.equal(99999 * 1e-3, y[99999]:item())
        assert.are.equal(9007199254740993, flow.arange(9007199254740993, 9007199254740995)[0]:item())
    end)

    it("linspace includes both ends", function()
        for _, n in ipairs {0, 1, 2, 3, 5, 1000, 1001} do
            for _, dtype in ipairs {"float32", "float64"} do
                local t = list(flow.linspace(-1, 0.7, n, {dtype = dtype}))
                assert.are.equal(n, #t)
                for i, v in ipairs(t) do
                    local want = n == 1 and -1 or -1 + 1.7 * (i - 1) / (n - 1)
                    assert.is_true(math.abs(v - want) <= 2 * ref.epsilon(dtype))
                end
                if n > 1 then assert.are.equal(ref.round(dtype, 0.7), t[n]) end
            end
        end
        assert.are.same({0, 2, 5, 7, 10}, flow.linspace(0, 10, 5, {dtype = "int64"}):totable())
    end)

    it("eye", function()
        for _, dtype in ipairs(ref.dtypes) do
            for _, shape in ipairs {{3, 3}, {2, 5}, {5, 2}, {0, 3}, {3, 0}, {1, 1}} do
                local one, zero = ref.is_float(dtype) and 1.0 or 1, ref.is_float(dtype) and 0.0 or 0
                local want = ref.array(shape, function(i) return i // shape[2] == i % shape[2] and one or zero end)
                ref.check(flow.eye(shape[1], shape[2], {dtype = dtype}), want, dtype, 0, "eye " .. dtype)
            end
        end
        assert.are.same({4, 4}, flow.eye(4).shape)
    end)
end)

describe("options", function()
    it("say device and gradient", function()
        local x = flow.zeros(2, {requires_grad = true, device = "cpu"})
        assert.is_true(x.requires_grad and x.is_leaf)
        assert.are.equal("cpu", x.device)
        assert.is_false(flow.zeros(2).requires_grad)
    end)
end)

describe("messages", function()
    local cyclic = {}
    cyclic[1] = cyclic
    for _, case in ipairs {
        {"zeros: missing argument 'size': zeros(size: sizes, options)", function() flow.zeros() end},
        {"zeros: size must be a whole number, got 2.5", function() flow.zeros(2.5) end},
        {"zeros: size must be a whole number, got nan", function() flow.zeros(nan) end},
        {"zeros: size must be a whole number or a list of them, got string", function() flow.zeros("a") end},
        {"zeros: size must hold whole numbers, number 2 is table", function() flow.zeros({2, {3}}) end},
        {"zeros: size -1 in shape [2, -1] is negative", function() flow.zeros(2, -1) end},
        {"zeros: shape [1099511627776, 1099511627776] has too many elements (2^59 or more)", function() flow.zeros(1 << 40, 1 << 40) end},
        {"zeros: size holds at most 8 numbers, got 9", function() flow.zeros(1, 1, 1, 1, 1, 1, 1, 1, 1) end},
        {"zeros: too many arguments: zeros(size: sizes, options)", function() flow.zeros({2, 3}, 4) end},
        {"zeros: unknown device 'gpu'; a device is \"cpu\", \"cuda\", \"cuda:1\" or \"meta\"", function() flow.zeros(2, {device = "gpu"}) end},
        {"full: missing argument 'value': full(size: sizes, value: scalar, options)", function() flow.full({2}) end},
        {"full: value must be a number, got string", function() flow.full({2}, "a") end},
        {"full: value 300 does not fit into uint8", function() flow.full({2}, 300, {dtype = "uint8"}) end},
        {"full: value -1 does not fit into uint8", function() flow.full({2}, -1, {dtype = "uint8"}) end},
        {"full: value nan does not fit into int32", function() flow.full({2}, nan, {dtype = "int32"}) end},
        {"full: value 1e+10 does not fit into int32", function() flow.full({2}, 1e10, {dtype = "int32"}) end},
        {"full_like: value 128 does not fit into int8", function() flow.full_like(flow.zeros({2}, {dtype = "int8"}), 128) end},
        {"fill_: value -129 does not fit into int8", function() flow.zeros({2}, {dtype = "int8"}):fill_(-129) end},
        {"fill_: value inf does not fit into int64", function() flow.tensor({1}):fill_(inf) end},
        {"index: value 256 does not fit into uint8", function() flow.zeros({2}, {dtype = "uint8"})[0] = 256 end},
        {"index: value 256 does not fit into uint8", function() flow.zeros({2}, {dtype = "uint8"})[flow.tensor({0})] = 256 end},
        {"index: value 256 does not fit into uint8", function() flow.zeros({2}, {dtype = "uint8"})[flow.tensor({true, false})] = 256 end},
        {"masked_fill: value 3000000000 does not fit into int32", function() flow.zeros({1}, {dtype = "int32"}):masked_fill(flow.tensor({true}), 3000000000) end},
        {"arange: missing argument 'start': arange(start: scalar, stop: scalar = nil, step: scalar = 1, options)", function() flow.arange() end},
        {"arange: start must be a number, got string", function() flow.arange("a") end},
        {"arange: from 1 to 0 with step 1 never ends", function() flow.arange(1, 0) end},
        {"arange: from 0.5 to 1 with step -0.1 never ends", function() flow.arange(0.5, 1, -0.1) end},
        {"arange: needs finite numbers, got 0, inf, 1", function() flow.arange(inf) end},
        {"arange: needs finite numbers, got 0, nan, 1", function() flow.arange(nan) end},
        {"arange: 'step' is given twice", function() flow.arange(0, 10, 2, {step = 3}) end},
        {"linspace: steps -1 is negative", function() flow.linspace(0, 1, -1) end},
        {"eye: n must be a whole number, got 2.5", function() flow.eye(2.5) end},
        {"eye: size -1 in shape [-1, -1] is negative", function() flow.eye(-1) end},
        {"tensor: data is missing: flow.tensor(number, boolean or nested list, options)", function() flow.tensor() end},
        {"tensor: data must be a number, a boolean or a list, got string", function() flow.tensor("x") end},
        {"tensor: data must be a number, a boolean or a list, got nil", function() flow.tensor(nil) end},
        {"tensor: data[2] must be a number, a boolean or a list, got string", function() flow.tensor({1, "x"}) end},
        {"tensor: data[2] has 1 values, the lists before it have 2", function() flow.tensor({{1, 2}, {3}}) end},
        {"tensor: data[2] must be a list, got number", function() flow.tensor({{1, 2}, 3}) end},
        {"tensor: data is a table without a list part", function() flow.tensor({a = 1}) end},
        {"tensor: data[1][1][1][1][1][1][1][1] is nested deeper than 8 lists (does a list hold itself?)", function() flow.tensor(cyclic) end},
        {"tensor: data[1] is a tensor; put tensors together with flow.stack or flow.cat", function() flow.tensor({flow.zeros(2)}) end},
        {"tensor: data[1] = 300 does not fit into uint8", function() flow.tensor({300}, {dtype = "uint8"}) end},
        {"tensor: data[1] = nan does not fit into int32", function() flow.tensor({nan}, {dtype = "int32"}) end},
        {"requires_grad: only float tensors have gradients, this is int64", function() flow.tensor({1}, {requires_grad = true}) end},
        {"zeros_like: x must be a tensor, got number", function() flow.zeros_like(3) end},
    } do
        it(case[1], function()
            assert.are.equal(case[1], support.error_of(case[2]))
        end)
    end
end)
