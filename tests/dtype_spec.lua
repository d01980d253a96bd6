-- dtype_spec.lua -- promotion as in PyTorch, and conversions between all dtypes, bit by bit for the 16-bit floats.
local flow = require "flow"
local process = require "tests.process"
local ref = require "tests.reference"
local support = require "tests.support"

local inf, nan = math.huge, 0 / 0
local b, u, i1, i4, i8, h, bh, f, d = table.unpack(ref.dtypes)

local function zeros(dtype, ...) return flow.zeros({...}, {dtype = dtype}) end

describe("promotion", function()
    -- Rows and columns in the order of ref.dtypes. int16, which PyTorch has for uint8 with int8, is int32 here.
    local table_of_pairs = {
        {b, u, i1, i4, i8, h, bh, f, d},
        {u, u, i4, i4, i8, h, bh, f, d},
        {i1, i4, i1, i4, i8, h, bh, f, d},
        {i4, i4, i4, i4, i8, h, bh, f, d},
        {i8, i8, i8, i8, i8, h, bh, f, d},
        {h, h, h, h, h, h, f, f, d},
        {bh, bh, bh, bh, bh, f, bh, f, d},
        {f, f, f, f, f, f, f, f, d},
        {d, d, d, d, d, d, d, d, d},
    }
    it("of all pairs", function()
        for row, x in ipairs(ref.dtypes) do
            for column, y in ipairs(ref.dtypes) do
                local what, want = x .. " with " .. y, table_of_pairs[row][column]
                assert.are.equal(want, (zeros(x, 2) + zeros(y, 2)).dtype, what)
                assert.are.equal(want, (zeros(x) + zeros(y)).dtype, what .. ", both 0-d")
                assert.are.equal(want, flow.where(zeros(b, 2), zeros(x, 2), zeros(y, 1)).dtype, "where " .. what)
                assert.are.equal(want, flow.cat({zeros(x, 2), zeros(y, 3)}).dtype, "cat " .. what)
                assert.are.equal("bool", zeros(x, 2):eq(zeros(y, 2)).dtype, "eq " .. what)
                local quotient = table_of_pairs[row][column]
                if not ref.is_float(quotient) then quotient = f end
                assert.are.equal(quotient, (zeros(x, 2) / zeros(y, 2)).dtype, "div " .. what)
            end
        end
    end)

    it("a 0-d tensor or a number only raises the category", function()
        local function category(dtype) return dtype == b and 0 or ref.is_float(dtype) and 2 or 1 end
        for _, x in ipairs(ref.dtypes) do
            for _, y in ipairs(ref.dtypes) do
                local want = category(y) > category(x) and y or x
                assert.are.equal(want, (zeros(x, 2) + zeros(y)).dtype, x .. " with 0-d " .. y)
                assert.are.equal(want, (zeros(y) + zeros(x, 0)).dtype, "0-d " .. y .. " with empty " .. x)
            end
            local with = {[1] = x == b and i8 or x, [1.5] = category(x) < 2 and f or x}
            for number, want in pairs(with) do
                assert.are.equal(want, (zeros(x, 2) + number).dtype, x .. " with a number")
                assert.are.equal(want, (number + zeros(x)).dtype, "a number with 0-d " .. x)
                assert.are.equal(want, flow.where(zeros(b, 2), zeros(x, 2), number).dtype, "where with a number, " .. x)
            end
        end
        assert.are.equal(f, flow.where(zeros(b, 2), 1, 0.5).dtype)
        assert.are.equal(i8, flow.where(zeros(b, 2), 1, 0).dtype)
        assert.are.equal(h, (zeros(i8, 2) + zeros(h) + 1.5).dtype)
    end)

    it("keeps the values", function()
        assert.are.same({254}, (flow.tensor({255}, {dtype = u}) + flow.tensor({-1}, {dtype = i1})):totable())
        assert.are.same({2049}, (flow.tensor({2048}, {dtype = h}) + flow.tensor({1.0}, {dtype = f})):totable())
        assert.are.same({1 + 2 ^ -40}, (flow.tensor({1}, {dtype = bh}) + flow.tensor({2 ^ -40}, {dtype = d})):totable())
        assert.are.same({16777216}, (flow.tensor({16777217}) + flow.tensor({0.0})):totable()) -- int64 with float32 is float32
    end)
end)

describe("conversion", function()
    -- The element after a conversion: integers wrap, floats lose their fraction on the way to an integer.
    local function converted(from, to, v)
        if to == b then return v ~= 0 and 1 or 0 end
        if not ref.is_float(to) and ref.is_float(from) then v = math.tointeger(v < 0 and math.ceil(v) or math.floor(v)) end
        return ref.round(to, ref.is_float(to) and v + 0.0 or v)
    end

    for _, from in ipairs(ref.dtypes) do
        it("from " .. from, function()
            local list
            if from == b then list = {0, 1}
            elseif ref.is_float(from) then list = {0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, 99.9, -99.9, 0.1, 100.5, 2049, 60000, 0.0001}
            else list = {ref.lowest[from], ref.highest[from], 0, 1, 5, 100, ref.highest[from] - 1, ref.highest[from] // 3} end
            local x = {shape = {#list}}
            for i, v in ipairs(list) do x[i] = ref.round(from, v) end
            for _, to in ipairs(ref.dtypes) do
                local narrow = {uint8 = true, int8 = true} -- floats outside an integer's range have no defined value
                local y = {shape = x.shape}
                for i, v in ipairs(x) do
                    local fits = not (ref.is_float(from) and ref.lowest[to]) or (v > ref.lowest[to] - 1 and v < ref.highest[to] + 1)
                    y[i] = (fits or not narrow[to]) and converted(from, to, v) or false
                end
                local t = ref.tensor(x, from)
                for _, layout in ipairs(ref.layouts(t:reshape(1, #list))) do
                    local got = layout[2]:to(to)
                    assert.are.equal(to, got.dtype)
                    local values = ref.of(got)
                    for i, want in ipairs(y) do
                        if want then assert.are.equal(want, values[i], ("%s to %s, %s: %.17g"):format(from, to, layout[1], x[i])) end
                    end
                end
            end
        end)
    end

    it("of every float16 and bfloat16 there is", function()
        -- the bits as integers, read from a file of raw numbers through safetensors
        local path = os.tmpname()
        for _, dtype in ipairs {h, bh} do
            local header = ('{"x":{"dtype":"%s","shape":[65536],"data_offsets":[0,131072]}}'):format(dtype == h and "F16" or "BF16")
            local parts = {string.pack("<I8", #header), header}
            for i = 0, 65535 do parts[#parts + 1] = string.pack("<I2", i) end
            process.write(path, table.concat(parts))
            local x = flow.load(path).x
            local bits, bias, mantissa = dtype == h and 5 or 8, dtype == h and 15 or 127, dtype == h and 10 or 7
            local list = x:to(d):totable()
            for i = 0, 65535 do
                local sign, e, m = i >> 15, (i >> mantissa) & ((1 << bits) - 1), i & ((1 << mantissa) - 1)
                local want
                if e == (1 << bits) - 1 then want = m == 0 and inf or nan
                elseif e == 0 then want = m * 2.0 ^ (1 - bias - mantissa)
                else want = (1 + m * 2.0 ^ -mantissa) * 2.0 ^ (e - bias) end
                if sign == 1 then want = -want end
                if list[i + 1] ~= want and want == want then error(("%s 0x%04x is %g, expected %g"):format(dtype, i, list[i + 1], want)) end
            end
            for _, through in ipairs {f, d} do assert.is_true(ref.same_bits(x, x:to(through):to(dtype)), through) end
            -- halfway between neighbours: to even; a little beyond: to the nearer
            local positive = x:narrow(0, 0, 32768)
            local low = positive:masked_select(positive:isfinite()):to(d)
            local up = flow.cat({low:narrow(0, 1, low:numel() - 1), flow.tensor({2.0 ^ (dtype == h and 16 or 128)}, {dtype = d})})
            local even = (flow.arange(low:numel()) % 2):eq(0)
            local middle = (low + up) / 2
            local function rounds(to, values, want, what)
                assert.is_true(values:to(to):to(dtype):to(d):eq(want:to(dtype):to(d)):all():item(), dtype .. " " .. what .. " from " .. to)
                assert.is_true((-values):to(to):to(dtype):to(d):eq(-want:to(dtype):to(d)):all():item(), dtype .. " -" .. what .. " from " .. to)
            end
            rounds(f, middle, flow.where(even, low, up), "halves")
            rounds(d, middle, flow.where(even, low, up), "halves")
            rounds(f, low + (up - low) * 0.53125, up, "more than half")
            rounds(f, low + (up - low) * 0.46875, low, "less than half")
        end
        os.remove(path)
    end)

    it("of neighbours is that of elements which lie apart", function()
        for _, n in ipairs {1, 15, 16, 33, 600, 1100} do
            local values = flow.randn(n) * 100
            values[0] = inf
            for _, from in ipairs(ref.dtypes) do
                local x = (ref.is_float(from) and values or values:clamp(-99, 99)):to(from)
                for _, to in ipairs(ref.dtypes) do
                    local y = (ref.is_float(to) or not ref.is_float(from)) and x or x:clamp(-100, 100)
                    local apart = flow.stack({y, y}, 1):select(1, 0)
                    assert.is_true(y:to(to):equal(apart:to(to)), ("%d of %s to %s"):format(n, from, to))
                end
            end
        end
    end)
    it("of large integers rounds to nearest", function()
        assert.are.same({16777216, 16777218, 16777220}, flow.tensor({16777217, 16777218, 16777219}):to(f):to(d):totable())
        assert.are.same({9007199254740992, 9007199254740996}, flow.tensor({9007199254740993, 9007199254740995}):to(d):totable())
        assert.are.same({2048, 2052, inf}, flow.tensor({2049, 2051, 70000}):to(h):to(d):totable())
        assert.are.equal(2.0 ^ 63, flow.tensor(math.maxinteger):to(f):item())
    end)

    it("wraps integers and keeps NaN true", function()
        assert.are.same({255, 0, 44, 128}, flow.tensor({-1, 256, 300, -128}):to(u):totable())
        assert.are.same({-1, 0, 44, -128}, flow.tensor({-1, 256, 300, 128}):to(i1):totable())
        assert.are.same({-1, 0, 1}, flow.tensor({2 ^ 32 - 1 | 0, 1 << 32, (1 << 32) + 1}):to(i4):totable())
        assert.are.same({true, true, false, false, true}, flow.tensor({nan, inf, 0.0, -0.0, 1e-40}):to(b):totable())
    end)

    it("is no work when nothing changes, and has a gradient", function()
        local x = flow.randn(3, {requires_grad = true})
        x:to(d):mul(2):sum():backward()
        assert.are.same({2, 2, 2}, x.grad:totable())
        assert.are.equal(f, x.grad.dtype)
        assert.is_true(rawequal(x:to(f), x) or x:to(f):eq(x):all():item())
    end)

    for _, case in ipairs {
        {"to: unknown dtype or device 'float23'; did you mean 'float32'?", function() flow.zeros(2):to("float23") end},
        {"to: unknown dtype or device 'cdua'; did you mean 'cuda'?", function() flow.zeros(2):to("cdua") end},
        {"zeros: unknown dtype 'int16'; there are bool, uint8, int8, int32, int64, float16, bfloat16, float32 and float64",
            function() flow.zeros(2, {dtype = "int16"}) end},
        {"zeros: unknown option 'dtpe'; did you mean 'dtype'?", function() flow.zeros(2, {dtpe = "int8"}) end},
        {"zeros: dtype must be a string, got number", function() flow.zeros(2, {dtype = 8}) end},
        {"cast: unknown dtype 'in32'; did you mean 'int32'?", function() flow.zeros(2):cast("in32") end},
        {"to: takes a dtype, a device, a tensor or {dtype =, device =}, got number", function() flow.zeros(2):to(3) end},
        {"to: a dtype or a device is missing", function() flow.zeros(2):to() end},
    } do
        it("says: " .. case[1], function()
            assert.are.equal(case[1], support.error_of(case[2]))
        end)
    end
end)

describe("the default dtype", function()
    local function made()
        local list = {}
        for i, x in ipairs {
            flow.zeros(2), flow.rand(2), flow.randn(2), flow.full({2}, 0.5), flow.linspace(0, 1, 2), flow.arange(0, 1, 0.5),
            flow.eye(2), flow.tensor {1.5}, flow.tensor {}, flow.spec {2}, flow.hann_window(4), flow.normal(0, 1, {2}),
            flow.arange(3) * 0.5, flow.arange(3) / 2, flow.arange(3):sqrt(), flow.arange(40000):sqrt() + 1,
            flow.nn.Linear(1, 1).weight, flow.distributions.Normal(0, 1):sample(),
        } do list[i] = x.dtype end
        return list
    end
    local function every(dtype)
        local list = {}
        for i = 1, 18 do list[i] = dtype end
        return list
    end
    after_each(function() flow.set_default_dtype "float32" end)

    it("is that of new floats and of what integers become", function()
        assert.are.same(every "float32", made())
        flow.set_default_dtype "float64"
        assert.are.equal("float64", flow.get_default_dtype())
        assert.are.same(every "float64", made())
        assert.are.equal(math.sqrt(2), flow.arange(3):sqrt()[2]:item())
        assert.are.equal("float64", flow.result_type(1.5, flow.arange(2)))
        flow.set_default_dtype "bfloat16"
        assert.are.same(every "bfloat16", made())
        flow.set_default_dtype "float32"
        assert.are.same(every "float32", made())
    end)

    it("leaves integers, other floats and what says its dtype alone", function()
        flow.set_default_dtype "float64"
        assert.are.equal("int64 int64 float32 float16 float32", table.concat({
            flow.arange(3).dtype, flow.tensor {1}.dtype, (zeros("float32", 2) * 0.5).dtype, (zeros("float16", 2) + 1).dtype,
            flow.zeros_like(zeros("float32", 2)).dtype}, " "))
    end)

    it("is one of those for which a function is captured", function()
        for _, strict in ipairs {true, false} do
            local scale = flow.capture(function(x) return flow.ones(2) * x end, {strict = strict})
            local x = flow.tensor {1, 2}
            for _, dtype in ipairs {"float32", "float64", "float32", "float64"} do
                flow.set_default_dtype(dtype)
                for _ = 1, 3 do assert.are.equal(dtype, scale(x).dtype) end
            end
        end
    end)

    it("is a float", function()
        assert.are.equal("set_default_dtype: dtype must be a float, got int64",
            support.error_of(function() flow.set_default_dtype "int64" end))
    end)
end)

describe("the default device", function()
    it("is where tensors are made", function()
        if os.getenv "FLOW_TEST_DEVICE" then return pending "the specs choose the device" end
        assert.are.equal("cpu", flow.get_default_device())
        flow.set_default_device "meta"
        local x, device = flow.zeros(2), flow.get_default_device()
        flow.set_default_device "cpu"
        assert.are.equal("meta meta cpu", x.device .. " " .. device .. " " .. flow.zeros(2).device)
    end)
end)
