-- shaping_spec.lua -- rows, ranges and new axes in an index, operators on bits, dtypes, tensors from tensors, and the words
-- of errors of what shaping.lua, dtypes.lua and the ops that write by index refuse. Values: tests/peer/cases_indexing.py.
local flow = require "flow"
local support = require "tests.support"
local message = support.message_of

local x = flow.arange(12):reshape(3, 4)

local function is(want, t) assert.are.same(want, t:totable()) end

describe("an index", function()
    it("has ranges that are open at an end", function()
        is({{4, 5, 6, 7}, {8, 9, 10, 11}}, x[{{1}}])
        is({{4, 5, 6, 7}, {8, 9, 10, 11}}, x[{{1, nil}}])
        is({{0, 1, 2, 3}}, x[{{nil, 1}}])
        is({{0, 1, 2, 3}, {8, 9, 10, 11}}, x[{{nil, nil, 2}}])
    end)

    it("makes new axes", function()
        assert.are.equal("[3, 1, 4]", tostring(x[{{}, flow.newaxis, {}}].shape))
        assert.are.equal("[1, 3, 4]", tostring(x[flow.newaxis].shape))
        local y = x:clone()
        y[{0, flow.newaxis, {1, 3}}] = flow.tensor {{7, 8}}
        is({0, 7, 8, 3}, y[0])
        for key, shape in pairs {[":, newaxis"] = "[3, 1, 4]", [":, None"] = "[3, 1, 4]", ["None, 0:2 , newaxis, ..."] = "[1, 2, 1, 4]",
            newaxis = "[1, 3, 4]", ["...,None"] = "[3, 4, 1]"} do
            assert.are.equal(shape, tostring(x[key].shape), key)
        end
        y["0, None, 1:3"] = 5
        is({0, 5, 5, 3}, y[0])
        assert.are.equal('index: ": None" is not an index; an index is like "0, 1:3, :, -1"', message(function() return x[": None"] end))
        assert.are.equal("tensor has no method or field 'newaxes'", (message(function() return x.newaxes end):gsub(";.*", "")))
    end)

    it("may be a mask without axes", function()
        is({{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}}}, x[flow.tensor(true)])
        assert.are.equal("[0, 3, 4]", tostring(x[flow.tensor(false)].shape))
        local y = x:clone()
        y[flow.tensor(false)] = 1
        assert.is_true(y == x)
        y[flow.tensor(true)] = 1
        is({1, 1, 1, 1}, y[2])
    end)
end)

describe("iteration", function()
    it("goes through the rows, from 0", function()
        local seen = {}
        for i, row in pairs(x) do seen[#seen + 1] = i + row[1]:item() end
        assert.are.same({1, 6, 11}, seen)
        local sums = {}
        for row in x:iter() do sums[#sums + 1] = row:sum():item() end
        assert.are.same({6, 22, 38}, sums)
    end)
end)

describe("operators", function()
    it("work on bits and on truth values", function()
        is({{0, 1, 0, 1}}, x[{{0, 1}}] & 1)
        is({{8, 9, 10, 11}}, x[{{0, 1}}] | 8)
        is({{1, 0, 3, 2}}, x[{{0, 1}}] ~ 1)
        is({{-1, -2, -3, -4}}, ~x[{{0, 1}}])
        is({{0, 4, 8, 12}}, x[{{0, 1}}] << 2)
        is({{0, 0, 1, 1}}, x[{{0, 1}}] >> 1)
        is({false, false, true, true}, x[0]:gt(1) & ~x[0]:gt(3))
    end)
end)

describe("where", function()
    it("of a condition alone gives positions", function()
        local rows, columns = flow.where(x:gt(9))
        is({2, 2}, rows)
        is({2, 3}, columns)
        is({{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 10, 11}}, x:where(x:gt(9), 0))
    end)
end)

describe("dtypes", function()
    it("promote", function()
        local cases = {{"int8", "uint8", "int32"}, {"float16", "bfloat16", "float32"}, {"int64", "float16", "float16"}, {"bool", "uint8", "uint8"}}
        for _, case in ipairs(cases) do
            assert.are.equal(case[3], flow.promote_types(case[1], case[2]))
            assert.are.equal(case[3], flow.promote_types(case[2], case[1]))
            local a, b = flow.ones(2, {dtype = case[1]}), flow.ones(2, {dtype = case[2]})
            assert.are.equal((a + b).dtype, flow.result_type(a, b))
        end
        assert.are.equal("float32", flow.result_type(x, 1.5))
        assert.are.equal("float16", flow.result_type(flow.ones(2, {dtype = "float16"}), flow.tensor(1.5), 2))
        assert.is_true(flow.can_cast("int8", "float16"))
        assert.is_false(flow.can_cast("float32", "int64"))
        assert.is_true(flow.isdtype("uint8", {"bool", "integral"}))
    end)

    it("have limits", function()
        assert.are.equal(65504, flow.finfo("float16").max)
        assert.are.equal(2.0 ^ -52, flow.finfo("float64").eps)
        assert.are.equal(-128, flow.iinfo("int8").min)
    end)

    it("of lists with tensors are those of the tensors", function()
        is({1.5, 2}, flow.tensor {flow.tensor(1.5), 2})
        assert.are.equal("int64", flow.tensor({{flow.tensor(1)}, {flow.tensor(2)}}).dtype)
        assert.are.equal("float64", flow.tensor({flow.tensor(1, {dtype = "float64"})}).dtype)
    end)
end)

describe("tensors like another", function()
    it("have its dtype and place", function()
        local h = flow.ones(2, {dtype = "float16"})
        for _, t in ipairs {h:new_zeros(2, 3), h:new_ones({2, 3}), h:new_full({2, 3}, 7), h:new_empty(2, 3), h:new_tensor {{1, 2, 3}, {4, 5, 6}}} do
            assert.are.equal("float16 [2, 3]", t.dtype .. " " .. tostring(t.shape))
        end
        assert.are.equal("int64", h:new_zeros(2, {dtype = "int64"}).dtype)
        assert.is_true(rawequal(h, flow.as_tensor(h)))
        assert.is_false(rawequal(h, flow.asarray(h, {copy = true})))
    end)
end)

describe("what does not fit", function()
    local i = flow.tensor {0, 1}
    local cases = {
        {function() x:index_add(0, i, flow.ones(3, 4, {dtype = "int64"})) end,
            "index_add: source must be [2, 4], as many slices of x as the index names, got [3, 4]"},
        {function() x:index_add(0, flow.tensor {7}, x[{{0, 1}}]) end, "index_add: index[0] is 7, but this axis of x has 3 positions (0 to 2)"},
        {function() x:index_copy(0, i, flow.ones(2, 4)) end, "index_copy: source is float32 and x int64: dtypes must be equal"},
        {function() x:index_fill(0, flow.tensor {1.5}, 1) end, "index_fill: index must be integers with one axis, got float32[1]"},
        {function() x:take(flow.tensor {12}) end, "take: index: position 12 (element 0 of the index) is out of range for an axis of size 12"},
        {function() x:put(i, flow.tensor {1}) end, "put: source has 1 elements and index 2; there must be as many"},
        {function() x:unflatten(1, {3, 2}) end, "unflatten: sizes [3, 2] do not multiply up to 4, the size of axis 1"},
        {function() x:movedim({0, 1}, {1}) end, "movedim: source names 2 axes and destination 1; there must be as many"},
        {function() x:unfold(1, 5, 1) end, "unfold: size 5 must be from 0 to 4, the size of axis 1 of [3, 4]"},
        {function() x:as_strided({3, 3}, {4, 2}) end, "as_strided: size, stride and offset reach beyond the 12 elements of x"},
        {function() x:select_scatter(i, 0, 0) end, "select_scatter: src must be [4], as what it replaces, got [2]"},
        {function() x:scatter_reduce(0, x, x, "max") end, "scatter_reduce: reduce must be one of sum|prod|mean|amax|amin, got 'max'"},
        {function() x:repeat_interleave(-1) end, "repeat_interleave: repeats must not be negative, got -1"},
        {function() flow.hstack {1} end, "hstack: entry 1 must be a tensor, got 1"},
        {function() flow.hstack {n = x} end, "hstack: needs at least one tensor"},
        {function() flow.broadcast_shapes({2}, {3}) end, "broadcast_shapes: shapes [2] and [3] do not broadcast"},
        {function() flow.meshgrid(i, {indexing = "yx"}) end, "meshgrid: indexing must be \"ij\" or \"xy\", got 'yx'"},
        {function() x:tensor_split(0) end, "tensor_split: takes a number of pieces from 1 on or a list of positions, got 0"},
        {function() x:tensor_split({1, "a"}) end, "tensor_split: takes a number of pieces from 1 on or a list of positions, got table"},
        {function() x:tensor_split({1.5}) end, "tensor_split: takes a number of pieces from 1 on or a list of positions, got table"},
        {function() x:hsplit({at = 1}) end, "hsplit: takes a number of pieces from 1 on or a list of positions, got table"},
        {function() x:vsplit(flow.ones(2, 2)) end, "vsplit: takes a number of pieces from 1 on or a list of positions, got float32 tensor"},
        {function() x:index_put({}, 1) end, "index_put: needs at least one index"},
        {function() x:index_put(flow.nn.ReLU(), 1) end, "index_put: indices must be a tensor or a table, got ReLU"},
        {function() flow.one_hot(flow.tensor {true}) end, "one_hot: x must have an integer dtype, got bool tensor"},
        {function() flow.one_hot(flow.tensor {1.5}, 3) end, "one_hot: x must have an integer dtype, got float32 tensor"},
        {function() flow.GradScaler():scale(flow.nn.ReLU()) end, "scale: loss must be a tensor or a table, got ReLU"},
        {function() flow.GradScaler():scale {flow.ones(1), {true}} end, "scale: loss must be a tensor or a list of tensors, the list has a boolean"},
        {function()
            local losses = {flow.ones(1)}
            losses[2] = losses
            flow.GradScaler():scale(losses)
        end, "scale: a value is nested deeper than 60 tables, or contains itself"},
        {function() flow.broadcast_tensors(x, i) end, "broadcast_tensors: broadcast_shapes: shapes [3, 4] and [2] do not broadcast"},
        {function() flow.linalg.cond(flow.ones(2, 2), 3) end,
            'linalg.cond: linalg.matrix_norm: ord must be "fro", "nuc", 1, -1, 2, -2, math.huge or -math.huge, got 3'},
        {function() flow.finfo("int8") end, "finfo: takes a float dtype, got int8; write flow.iinfo"},
        {function() flow.promote_types("float", "int8") end, "promote_types: unknown dtype 'float'; it is called 'float32' here"},
    }
    it("is an error that says what would", function()
        for _, case in ipairs(cases) do assert.are.equal(case[2], (support.message_of(case[1]):gsub("^.-:%d+: ", ""))) end
    end)
end)
