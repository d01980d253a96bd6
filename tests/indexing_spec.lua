-- x[key] and x[key] = value.
local flow = require "flow"
local message = require("tests.support").message_of

local function grid() return flow.arange(24):view(2, 3, 4) end

describe("reading", function()
    -- {key as a list or number, the same as text, shape, first and last value}
    local cases = {
        {0, "0", {3, 4}, 0, 11},
        {-1, "-1", {3, 4}, 12, 23},
        {{1, 2}, "1, 2", {4}, 20, 23},
        {{1, 2, 3}, "1,2,3", {}, 23, 23},
        {{{}, 0}, ":, 0", {2, 4}, 0, 15},
        {{0, {1, 3}}, "0, 1:3", {2, 4}, 4, 11},
        {{0, {1, 99}}, "0, 1:", {2, 4}, 4, 11},
        {{0, {-2, -1}}, "0, -2:-1", {1, 4}, 4, 7},
        {{0, {2, 1}}, "0, 2:1", {0, 4}},
        {{{}, {}, {0, 4, 2}}, ":, :, ::2", {2, 3, 2}, 0, 22},
        {{"...", 1}, "..., 1", {2, 3}, 1, 21},
        {{0, "...", {1, 3}}, "0, ..., 1:3", {3, 2}, 1, 10},
        {{"..."}, "...", {2, 3, 4}, 0, 23},
        {{}, ":", {2, 3, 4}, 0, 23},
        {{{1, 2}, ":2"}, "1:2, :2", {1, 2, 4}, 12, 19},
    }
    it("makes views with lists and with text", function()
        for _, case in ipairs(cases) do
            for k = 1, 2 do
                local x = grid()
                local y = x[case[k]]
                assert.are.same(case[3], y.shape, case[2])
                local values = y:contiguous():view(-1):totable()
                assert.are.equal(case[4], values[1], case[2])
                assert.are.equal(case[5], values[#values], case[2])
                if #values > 0 then
                    y:fill_(-5)
                    assert.are.equal(-5 * #values, flow.where(x:lt(0), x, 0):sum():item(), case[2] .. ": a view")
                end
            end
        end
    end)

    it("gathers with tensors of positions", function()
        local x = grid()
        assert.are.same({x[1]:totable(), x[0]:totable()}, x[flow.tensor({1, 0})]:totable())
        local rows = x[{{}, flow.tensor({-1, 0})}]:totable()
        assert.are.same({{{8, 9, 10, 11}, {0, 1, 2, 3}}, {{20, 21, 22, 23}, {12, 13, 14, 15}}}, rows)
        assert.are.same({{0, 1}, {2, 0}}, flow.arange(3)[flow.tensor({{0, 1}, {2, 0}})]:totable())
        assert.are.same({3, 4}, x[flow.tensor(1)].shape)
        assert.are.same({7, 6}, x[{0, 1, flow.tensor({3, 2})}]:totable())
    end)

    it("puts several tensors together", function()
        local x = grid()
        assert.are.same({{4, 5, 6, 7}, {20, 21, 22, 23}}, x[{flow.tensor({0, 1}), flow.tensor({1, -1})}]:totable())
        assert.are.same({{0, 4, 8}, {15, 19, 23}}, x[{flow.tensor({0, 1}), {}, flow.tensor({0, 3})}]:totable())
        assert.are.same({{1, 2}, {13, 14}}, x[{flow.tensor({{0}, {1}}), 0, flow.tensor({1, 2})}]:totable())
    end)

    it("takes what a mask keeps", function()
        local x = flow.arange(6):view(2, 3)
        assert.are.same({4, 5}, x[x:gt(3)]:totable())
        assert.are.same({{3, 4, 5}}, x[flow.tensor({false, true})]:totable())
        assert.are.same({{0, 2}, {3, 5}}, x[{{}, flow.tensor({true, false, true})}]:totable())
        assert.are.same({0}, x[x:gt(9)].shape)
    end)

    it("has a gradient", function()
        local x = flow.zeros({3, 2}, {requires_grad = true})
        local y = x[{{1, 3}, 0}]:sum() + x[flow.tensor({0, 0})]:sum() + x[x:ge(0)]:sum()
        y:backward()
        assert.are.same({{3, 3}, {2, 1}, {2, 1}}, x.grad:totable())
    end)
end)

describe("writing", function()
    it("goes through views, for numbers, tensors and lists", function()
        local x = flow.zeros({2, 3}, {dtype = "int64"})
        x[0] = 1
        x[{1, {0, 2}}] = flow.tensor({7, 8})
        x["1, 2"] = 9
        assert.are.same({{1, 1, 1}, {7, 8, 9}}, x:totable())
        x[1] = {4, 5, 6}
        x["..., 0"] = {2, 3}
        assert.are.same({{2, 1, 1}, {3, 5, 6}}, x:totable())
        x["..."] = flow.tensor(1)
        assert.are.equal(6, x:sum():item())
    end)

    it("goes to positions and masks", function()
        local x = flow.zeros({3, 2}, {dtype = "int64"})
        x[flow.tensor({0, -1})] = flow.tensor({{1, 2}, {3, 4}})
        assert.are.same({{1, 2}, {0, 0}, {3, 4}}, x:totable())
        x[x:eq(0)] = 9
        x[{{}, flow.tensor({1})}] = 5
        assert.are.same({{1, 5}, {9, 5}, {3, 5}}, x:totable())
        x[x:eq(5)] = {10, 20, 30}
        assert.are.same({{1, 10}, {9, 20}, {3, 30}}, x:totable())
        x[{flow.tensor({0, 2}), flow.tensor({1, 0})}] = {-1, -2}
        assert.are.same({{1, -1}, {9, 20}, {-2, 30}}, x:totable())
        local y = x:t()
        y[{flow.tensor({0, 1}), flow.tensor({0, 2})}] = 0
        assert.are.same({{0, -1}, {9, 20}, {-2, 0}}, x:totable())
    end)

    it("is recorded", function()
        local x = flow.ones({2, 2}, {requires_grad = true})
        local y = x * 3
        y[0] = 0
        y:sum():backward()
        assert.are.same({{0, 0}, {3, 3}}, x.grad:totable())
        assert.is_false((pcall(function() x[0] = 1 end)))
    end)
end)

describe("a wrong key", function()
    local x = grid()
    -- {function, message}
    local cases = {
        {function() return x[5] end, "index: position 5 is out of range for axis 0 of [2, 3, 4]"},
        {function() return x[-3] end, "index: position -3 is out of range for axis 0 of [2, 3, 4]"},
        {function() return x[1.5] end, "index: a position must be a whole number, got 1.5"},
        {function() return x[0 / 0] end, "index: a position must be a whole number, got nan"},
        {function() return x[true] end,
            'index: entry 1 must be a number, a range {a, b}, {}, "..." or a tensor, got boolean'},
        {function() return x[{0, {1, stop = 2}}] end,
            "index: a range has no key 'stop'; it is {first, end} or {first, end, step}"},
        {function() return x[{0, {1, 2, 3, 4}}] end, "index: a range holds at most 3 numbers, got 4"},
        {function() return x[{0, {1, "b"}}] end, "index: a range must hold whole numbers, number 2 is string"},
        {function() return x["0,,1"] end, 'index: "0,,1" is not an index; an index is like "0, 1:3, :, -1"'},
        {function() return x["1-2"] end, 'index: "1-2" is not an index; an index is like "0, 1:3, :, -1"'},
        {function() return x["0:2:0"] end, "index: step 0 must be at least 1"},
        {function() return x["0, 0, 0, 0"] end, "index: 4 entries for a tensor of shape [2, 3, 4]"},
        {function() return x["..., ..."] end, 'index: "..." may occur once'},
        {function() return flow.tensor(1)[0] end, "index: x has no axes"},
        {function() return x[flow.tensor {1, 2}] end, "index: position 2 (element 1 of the index) is out of range for an axis of size 2"},
        {function() x[flow.tensor {true}] = 1 end, "index: mask [1] does not fit x [2, 3, 4] from axis 0 on"},
        {function() x[x:gt(21)] = flow.zeros(4) end, "index: value [4] does not broadcast to [2]"},
        {function() x[flow.tensor {0, 1}] = flow.zeros(5) end, "index: value [5] does not broadcast to [2, 3, 4]"},
        {function() return x[{flow.tensor {0, 1}, flow.tensor {0, 1, 2}}] end, "index: positions of shapes [2] and [3] do not broadcast"},
        {function() return x[{flow.tensor {0, 1}, flow.tensor {0, 3}}] end,
            "index: position 3 (element 1 of the index) is out of range for an axis of size 3"},
        {function() x[{flow.tensor {0, 1}, flow.tensor {0, 2}}] = flow.zeros(3) end, "index: value [3] does not broadcast to [2, 4]"},
        {function() x[0] = flow.zeros(5) end, "index: src [5] does not broadcast to x [3, 4]"},
        {function()
            local w = flow.zeros(3, {requires_grad = true})
            w[w:gt(-1)] = 2
        end, "index: this tensor is a leaf that requires grad, and cannot be changed in place; do it inside flow.no_grad()"},
        {function() x[0] = "a" end, "index: the value assigned must be a tensor, a number or a list, got string"},
        {function() x[0] = {1, {2}} end, "tensor: data[2] must be a number, got a list"},
        {function() x.shape = 1 end,
            "a tensor's field 'shape' cannot be assigned; only requires_grad and grad can be"},
        {function() x.shap = 1 end, "tensor has no method or field 'shap'; did you mean 'shape'?"},
        {function() return x.matmull end, "tensor has no method or field 'matmull'; did you mean 'matmul'?"},
        {function() return x:qqqqqq() end, "tensor has no method or field 'qqqqqq'"},
    }
    it("is an error that says what is right", function()
        for _, case in ipairs(cases) do assert.are.equal(case[2], message(case[1])) end
    end)

    it("names the user's line", function()
        local ok, text = pcall(function() return x.matmull end)
        assert.is_false(ok)
        assert.truthy(text:find("indexing_spec.lua:%d+: tensor has no method"))
    end)
end)

describe("masks", function()
    for _, shape in ipairs {{7}, {3, 5}, {2, 3, 4}, {1, 9}, {4, 1}, {0, 3}, {2, 0}} do
        for _, most in ipairs {-9, 0, 0.8, 9} do
            it(("of %s, true above %g: positions in order"):format(table.concat(shape, "x"), most), function()
                local mask = flow.randn(table.unpack(shape)):gt(most)
                local flat, want = mask:reshape(-1):totable(), {}
                for i, is_true in ipairs(flat) do
                    local rest, row = i - 1, {}
                    for a = #shape, 1, -1 do row[a], rest = rest % shape[a], rest // shape[a] end
                    if is_true then want[#want + 1] = row end
                end
                local positions = mask:nonzero()
                assert.are.same({#want, #shape}, {positions.shape[1], positions.shape[2]})
                if #want > 0 then assert.are.same(want, positions:totable()) end
                assert.are.equal(#want, flow.arange(#flat):masked_select(mask:reshape(-1)):numel())
            end)
        end
    end
end)

describe("unique_consecutive", function()
    local x = flow.tensor {2, 2, 5, 2, 2, 2, 7}

    it("gives the first of each run, and what is asked for", function()
        local values, inverse, counts = x:unique_consecutive(true, true)
        assert.are.same({2, 5, 2, 7}, values:totable())
        assert.are.same({0, 0, 1, 2, 2, 2, 3}, inverse:totable())
        assert.are.same({2, 1, 3, 1}, counts:totable())
        assert.are.same({2, 5, 2, 7}, (x:unique_consecutive()):totable())
        local _, lengths = x:unique_consecutive {return_counts = true}
        assert.are.same({2, 1, 3, 1}, lengths:totable())
    end)

    it("of slices", function()
        local values, counts = flow.tensor {{1, 2}, {1, 2}, {0, 5}}:unique_consecutive {axis = 0, return_counts = true}
        assert.are.same({{1, 2}, {0, 5}}, values:totable())
        assert.are.same({2, 1}, counts:totable())
    end)
end)

describe("index_select", function()
    local layouts = {
        whole = function(x) return x end,
        transposed = function(x) return x:transpose(0, -1) end,
        expanded = function(x) return x:unsqueeze(1):expand(x:size(0), 5, x:size(1), x:size(2)) end,
        spread = function(x) return flow.stack({x, x}, -1):select(-1, 0) end,
        narrowed = function(x) return x:narrow(1, 1, 2) end,
    }
    for name, layout in pairs(layouts) do
        it("gives the slices of a tensor that is " .. name .. " along each axis", function()
            for _, dtype in ipairs {"float32", "float64", "bfloat16", "uint8"} do
                local x = layout(flow.arange(60):view(4, 3, 5):to(dtype))
                for axis = 0, x.ndim - 1 do
                    local index = flow.tensor {0, x:size(axis) - 1, 0}
                    local picked = x:index_select(axis, index)
                    for j = 0, 2 do assert.are.equal(x:select(axis, index[j]:item()), picked:select(axis, j)) end
                end
            end
        end)
    end
end)
