-- Tensors as strings of bytes and back, and large lists of numbers.

local flow = require "flow"

local function fails(message, f, ...)
    local ok, got = pcall(f, ...)
    assert.is_false(ok)
    assert.are.equal(message, (got:gsub("^[^ ]*:%d+: ", "")))
end

describe("x:tobytes", function()
    local formats = {
        {"float32", "<ffffff"}, {"float64", "<dddddd"}, {"int64", "<i8i8i8i8i8i8"}, {"int32", "<i4i4i4i4i4i4"},
        {"int8", "<bbbbbb"}, {"uint8", "<BBBBBB"},
    }
    for _, case in ipairs(formats) do
        local dtype, format = case[1], case[2]
        it("gives what string.unpack reads, of " .. dtype, function()
            local x = flow.tensor({{1, 2, 3}, {4, 5, 6}}, {dtype = dtype})
            assert.are.same({1, 2, 3, 4, 5, 6, #x:tobytes() + 1}, {string.unpack(format, x:tobytes())})
            assert.are.equal(string.pack(format, 1, 4, 2, 5, 3, 6), x:t():tobytes())
            assert.are.equal(x:tobytes(), flow.frombytes(x:tobytes(), dtype, {2, 3}):tobytes())
        end)
    end

    it("gives bools and halves, scalars and tensors without elements", function()
        assert.are.equal("\1\0\1", flow.tensor({true, false, true}):tobytes())
        assert.are.equal("\0\x3c\0\xc0", flow.tensor({1, -2}, {dtype = "float16"}):tobytes())
        assert.are.equal("\x80\x3f\0\xc0", flow.tensor({1, -2}, {dtype = "bfloat16"}):tobytes())
        assert.are.equal(string.pack("<i8", 7), flow.tensor(7):tobytes())
        assert.are.equal("", flow.zeros(0, 3):tobytes())
    end)

    it("gives the elements of every layout, computed or not yet", function()
        local x = flow.arange(24, {dtype = "float32"}):reshape(2, 3, 4)
        for _, view in ipairs {x, x:permute(2, 0, 1), x[{{}, 1}], x[{1, {0, 3, 2}}], x:flip(2), flow.ones(1, 3):expand(4, 3)} do
            local flat, n = view:reshape(-1):totable(), view:numel()
            assert.are.equal(string.pack("<" .. ("f"):rep(n), table.unpack(flat)), view:tobytes())
        end
        local large = flow.ones(1 << 16) * 2 + 1
        assert.are.equal(string.pack("<f", 3):rep(1 << 16), large:tobytes())
    end)

    it("refuses what has no bytes", function()
        fails("tobytes: x must be a tensor, got number", flow._methods.tobytes, 3)
        fails("tobytes: too many arguments: x:tobytes()", function() flow.ones(2):tobytes(1) end)
        local ok, message = pcall(function() flow.ones(2, {device = "meta"}):tobytes() end)
        assert.is_false(ok)
        assert.is_truthy(message:find("tobytes: float32[2] on meta", 1, true), message)
    end)
end)

describe("flow.frombytes", function()
    it("makes a tensor of its own", function()
        local x = flow.frombytes(string.pack("<ff", 1.5, -2), "float32")
        assert.are.same({1.5, -2}, x:totable())
        x:mul_(2)
        assert.are.same({3, -4}, x:totable())
        assert.are.equal(5, flow.frombytes(string.pack("<d", 5), "float64", {}):item())
        assert.are.same({{}, {}}, flow.frombytes("", "int64", {2, 0}):totable())
        assert.are.same({true, false}, flow.frombytes("\1\0", "bool"):totable())
    end)

    it("takes options", function()
        local x = flow.frombytes(string.pack("<ff", 1, 2), "float32", {2}, {requires_grad = true})
        x:sum():backward()
        assert.are.same({1, 1}, x.grad:totable())
        local p = flow.placement("cpu", {0})
        assert.is_true(flow.frombytes("ab", "uint8", nil, {placement = p, sbp = "S(0)"}).is_global)
    end)

    for _, case in ipairs {
        {"frombytes: s must be a string, got nil", nil, "float32"},
        {"frombytes: s must be a string, got number", 12, "float32"},
        {"frombytes: dtype must be a string, got nil", "abcd", nil},
        {"frombytes: unknown dtype 'float23'; did you mean 'float32'?", "abcd", "float23"},
        {"frombytes: float32[2, 3] takes 24 bytes, s has 4", "abcd", "float32", {2, 3}},
        {"frombytes: float32[1] takes 4 bytes, s has 5", "abcde", "float32"},
        {"frombytes: shape must be a list of whole numbers, got string", "abcd", "float32", "1"},
        {"frombytes: size -1 in shape [-1] is negative", "abcd", "float32", {-1}},
        {"frombytes: a bool is a byte 0 or 1; byte 2 of s is 7", "\1\7", "bool"},
        {"frombytes: the dtype is the second argument, not an option", "\1", "bool", {1}, {dtype = "int8"}},
        {"frombytes: unknown option 'devise'; did you mean 'device'?", "\1", "bool", {1}, {devise = "cpu"}},
        {"frombytes: too many arguments: frombytes(s, dtype, shape, options)", "\1", "bool", {1}, {}, 5},
    } do
        it("refuses: " .. case[1], function() fails(case[1], flow.frombytes, table.unpack(case, 2, 6)) end)
    end
end)

describe("large lists", function()
    local function list(n, f)
        local t = {}
        for i = 1, n do t[i] = f(i) end
        return t
    end

    it("become tensors, whatever is in them", function()
        for _, n in ipairs {1, 31, 32, 33, 64, 65, 1000} do
            for _, dtype in ipairs {"float32", "float64", "int64", "int32", "float16"} do
                local numbers = list(n, function(i) return i % 50 end)
                assert.are.same(numbers, flow.tensor(numbers, {dtype = dtype}):totable())
            end
            local mixed = list(n, function(i) if i % 3 == 0 then return i % 2 == 0 end return i end)
            local want = list(n, function(i) if i % 3 == 0 then return i % 2 == 0 and 1 or 0 end return i end)
            assert.are.same(want, flow.tensor(mixed, {dtype = "int64"}):totable())
            local floats = list(n, function(i) return i == n and 2.5 or i end)
            assert.are.equal("float32", flow.tensor(floats).dtype)
            assert.are.same(list(n, function(i) return i == n and 2 or i end),
                flow.tensor(floats, {dtype = "int64"}):totable())
        end
        local rows = list(5, function(i) return list(70, function(j) return i * j end) end)
        assert.are.same(rows, flow.tensor(rows):totable())
    end)

    it("say where they are wrong", function()
        local numbers = list(100, function(i) return i end)
        numbers[77] = "x"
        fails("tensor: data[77] must be a number, a boolean or a list, got string", flow.tensor, numbers)
        numbers[77] = {1}
        fails("tensor: data[77] must be a number, got a list", flow.tensor, numbers)
        numbers[77] = flow.ones(1)
        fails("tensor: data[77] is a tensor; put tensors together with flow.stack or flow.cat", flow.tensor, numbers)
        numbers[77] = 1e20
        fails("tensor: data[77] = 1e+20 does not fit into int64", flow.tensor, numbers, {dtype = "int64"})
        fails("tensor: data[1][77] = 300 does not fit into uint8", flow.tensor,
            {list(100, function(i) return i == 77 and 300 or i end)}, {dtype = "uint8"})
        fails("tensor: data[2] has 99 values, the lists before it have 100", flow.tensor,
            {list(100, math.abs), list(99, math.abs)})
        fails("tensor: data[2][40] must be a number, a boolean or a list, got nil", flow.tensor,
            {list(100, math.abs), list(100, function(i) if i ~= 40 then return i end end)})
    end)
end)
