-- views_spec.lua -- views, copies, joins and picking by index against plain Lua, over dtypes, layouts and sizes around the
-- blocks of the copy kernels. shape_spec.lua has the small examples and the parts of other ranks.
local flow = require "flow"
local ref = require "tests.reference"
local support = require "tests.support"
local message = support.message_of
local text = support.shape_text

-- An array that counts, wrapped into the dtype, and its tensor.
local function counting(shape, dtype)
    local exact = {bool = 2, float16 = 2048, bfloat16 = 256}
    local a = ref.array(shape, function(i) return ref.round(dtype, exact[dtype] and i % exact[dtype] or i) end)
    return a, ref.tensor(a, dtype)
end

local function permutations(n)
    if n == 0 then return {{}} end
    local list = {}
    for _, rest in ipairs(permutations(n - 1)) do
        for at = 1, n do
            local p = table.move(rest, 1, #rest, 1, {})
            table.insert(p, at, n - 1)
            list[#list + 1] = p
        end
    end
    return list
end

describe("storage_offset", function()
    it("is where a view begins in the memory of its base", function()
        local x = flow.arange(24):view(2, 3, 4)
        assert.are.same({0, 12, 20, 22}, {x:storage_offset(), x[1]:storage_offset(), x[{1, 2}]:storage_offset(), x[{1, 2, {2, 4}}]:storage_offset()})
        assert.are.same(x[{1, 2}]:totable(), x:as_strided({4}, {1}, x[{1, 2}]:storage_offset()):totable())
    end)
end)

describe("permute to contiguous:", function()
    for _, shape in ipairs {{3, 4, 5}, {1, 7, 1}, {17, 2, 33}, {2, 1, 3, 2}, {3, 16, 16}, {2, 3, 4, 5}, {2, 2, 3, 2, 2}} do
        it(text(shape), function()
            for _, axes in ipairs(permutations(#shape)) do
                for _, dtype in ipairs(#shape < 4 and {"uint8", "float16", "float32", "int64"} or {"float32"}) do
                    local a, t = counting(shape, dtype)
                    local want = ref.permute(a, axes)
                    ref.check(t:permute(axes):contiguous(), want, dtype, 0, ("%s permuted by %s, %s"):format(text(shape), text(axes), dtype))
                end
            end
        end)
    end

    -- Matrices around the tiles, of every element size, from and to rows with gaps.
    it("matrices of all sizes", function()
        for _, dtype in ipairs {"uint8", "float16", "int32", "float64"} do
            for _, rows in ipairs {1, 3, 8, 15, 16, 17, 31, 64, 65, 130} do
                for _, columns in ipairs {1, 5, 8, 16, 33, 64, 67} do
                    local x = (flow.arange(rows * columns) % 251):to(dtype):reshape(rows, columns)
                    local turned = x:t():contiguous()
                    assert.is_true(turned:is_contiguous())
                    local list, got = x:to("int64"):reshape(-1):totable(), turned:to("int64"):reshape(-1):totable()
                    for i = 0, rows - 1 do
                        for j = 0, columns - 1 do
                            if list[i * columns + j + 1] ~= got[j * rows + i + 1] then error(("%s [%d, %d] at %d, %d"):format(dtype, rows, columns, i, j)) end
                        end
                    end
                    local wide = flow.zeros({columns, rows + 3}, {dtype = dtype})
                    wide:narrow(1, 2, rows):copy_(x:t())
                    assert.is_true(wide:narrow(1, 2, rows):eq(turned):all():item())
                    assert.are.equal(turned:to("int64"):sum():item(), wide:to("int64"):sum():item())
                    assert.is_true(x:narrow(1, 0, columns // 2):t():contiguous():eq(turned:narrow(0, 0, columns // 2)):all():item())
                end
            end
        end
    end)

    it("large ones, on all threads", function()
        local x = flow.arange(7 * 300 * 130, {dtype = "float32"}):reshape(7, 300, 130)
        for _, axes in ipairs(permutations(3)) do
            local y = x:permute(axes):contiguous()
            -- element (i, j, k) of x counts 39000 i + 130 j + k
            local steps, want = {39000, 130, 1}, flow.zeros(1)
            for axis = 0, 2 do
                local line = flow.arange(x:size(axes[axis + 1]), {dtype = "float32"}) * steps[axes[axis + 1] + 1]
                want = want:unsqueeze(-1) + line
                want = axis == 0 and want:reshape(-1) or want
            end
            assert.is_true(y:eq(want):all():item(), text(axes))
        end
    end)
end)

it("eight axes are read in any order", function()
    local x = flow.arange(256, {dtype = "float32"}):reshape(2, 2, 2, 2, 2, 2, 2, 2)
    local a, random = ref.of(x), ref.generator(4)
    for i = 1, 20 do
        local axes = {0, 1, 2, 3, 4, 5, 6, 7}
        for j = 8, 2, -1 do
            local k = math.floor((random() + 1) / 2 * j) + 1
            axes[j], axes[k] = axes[k], axes[j]
        end
        local y, b, one = x:permute(axes), ref.permute(a, axes), i % 8
        ref.check(y:contiguous(), b, "float32", 0, text(axes))
        ref.check(y + x, ref.map(function(p, q) return p + q end, b, a), "float32", 0, text(axes) .. " added")
        ref.check(y:sum({one, (one + 3) % 8}), ref.reduce(b, {one, (one + 3) % 8}, false, ref.sum), "float32", 0, text(axes) .. " summed")
        ref.check(y:argmax(one), ref.reduce(b, {one}, false, function(list) return list[1] >= list[2] and 0 or 1 end), "int64", 0, text(axes) .. " argmax")
        ref.check(y:softmax(one), ref.lines(b, one, ref.softmax), "float32", 8, text(axes) .. " softmax", 1e-9)
    end
    assert.are.equal("unsqueeze: a tensor has at most 8 axes", message(function() x:unsqueeze(0) end))
    assert.are.equal("stack: a tensor has at most 8 axes", message(function() flow.stack({x, x}) end))
end)

describe("copies between dtypes and layouts", function()
    it("copy_ and contiguous", function()
        for _, shape in ipairs {{5, 33}, {3, 4, 17}, {40, 2}} do
            for _, from in ipairs(ref.dtypes) do
                local t = (flow.arange(ref.count(shape)) % (from == "bool" and 2 or 100)):to(from):reshape(shape)
                local a = ref.of(t)
                for _, to in ipairs {"bool", "uint8", "int64", "bfloat16", "float32"} do
                    for _, layout in ipairs(ref.layouts(t)) do
                        local whole = flow.zeros({shape[1], shape[2] + 2, shape[3] or 1}, {dtype = to})
                        local target = whole:narrow(1, 1, shape[2]):reshape(shape)
                        if #shape == 3 then target = whole:narrow(1, 1, shape[2]) end
                        local values = ref.map(function(v) return ref.is_float(to) and v or ref.round(to, math.tointeger(v)) end, a)
                        target:copy_(layout[2])
                        ref.check(target:contiguous(), values, to, 0, ("%s to %s, %s"):format(from, to, layout[1]))
                    end
                end
            end
        end
    end)
end)

describe("reshape and view", function()
    it("count in row-major order", function()
        local a = counting({2, 3, 4}, "int64")
        local t = ref.tensor(a, "int64")
        for _, case in ipairs {{{24}, {24}}, {{-1}, {24}}, {{4, -1}, {4, 6}}, {{-1, 3, 4}, {2, 3, 4}}, {{1, 24, 1}, {1, 24, 1}}, {{2, 2, 3, 2}, {2, 2, 3, 2}}} do
            for _, layout in ipairs(ref.layouts(t)) do
                ref.check(layout[2]:reshape(case[1]), table.move(a, 1, #a, 1, {shape = case[2]}), "int64", 0, text(case[1]) .. " " .. layout[1])
            end
        end
        assert.are.same({0, 5}, flow.zeros(5, 0):reshape(0, 5).shape)
        assert.are.same({0}, flow.zeros(5, 0):reshape(-1).shape)
        assert.are.same({}, flow.zeros(1, 1):reshape({}).shape)
        assert.are.same({1}, flow.tensor(1.0):reshape(-1).shape)
        assert.are.same({1}, flow.tensor(1.0):flatten().shape)
        assert.are.same({2, 12}, flow.zeros(2, 3, 4):flatten(-2).shape)
        assert.are.same({6, 4}, flow.zeros(2, 3, 4):flatten(0, 1).shape)
    end)

    it("view takes what strides allow", function()
        local t = flow.arange(24):reshape(2, 3, 4)
        assert.are.same({12, 4, 2, 1}, t:view(2, 3, 2, 2):stride())
        assert.are.same({12, 4, 2, 1}, t:narrow(2, 0, 2):view(2, 3, 1, 2):stride())
        assert.are.same({0, 1, 4, 5, 8, 9}, t:narrow(2, 0, 2):select(0, 0):reshape(-1):totable())
        assert.are.same({1, 4}, t:permute(2, 0, 1):view(4, 6):stride())
        assert.are.equal("view: [3, 2] with strides [4, 1] cannot be viewed as [6]; use reshape", message(function() t:narrow(2, 0, 2)[0]:view(6) end))
    end)
end)

describe("expand, narrow, slice, select, diagonal", function()
    it("expand", function()
        for _, case in ipairs {{{3}, {2, 3}}, {{3, 1}, {3, 5}}, {{1, 3, 1}, {4, 2, 3, 5}}, {{}, {2, 2}}, {{1}, {0}}, {{3}, {0, 3}}, {{2, 3}, {2, 3}}} do
            local a, t = counting(case[1], "float32")
            local y = t:expand(case[2])
            ref.check(y, ref.broadcast(a, case[2]), "float32", 0, text(case[2]))
            ref.check(y:contiguous(), ref.broadcast(a, case[2]), "float32", 0, text(case[2]))
            ref.check(y:clone():add_(0), ref.broadcast(a, case[2]), "float32", 0, text(case[2]))
        end
        assert.are.same({2, 3}, flow.zeros(3):expand(2, -1).shape)
    end)

    it("slices as Lua would count them", function()
        local x = flow.arange(7)
        for start = -9, 9 do
            for stop = -9, 9 do
                for step = 1, 3 do
                    local first, last = start < 0 and start + 7 or start, stop < 0 and stop + 7 or stop
                    first, last = math.min(math.max(first, 0), 7), math.min(math.max(last, 0), 7)
                    local want = {}
                    for i = first, last - 1, step do want[#want + 1] = i end
                    local got = x:slice(0, start, stop, step)
                    assert.are.same(want, got:totable(), ("%d:%d:%d"):format(start, stop, step))
                    assert.are.same(want, x[{{start, stop, step}}]:totable())
                    assert.are.same(want, x[("%d:%d:%d"):format(start, stop, step)]:totable())
                end
            end
        end
    end)

    it("diagonals", function()
        local a, t = counting({4, 6}, "int64")
        for offset = -6, 8 do
            local want = {}
            for i = 0, 3 do
                if i + offset >= 0 and i + offset < 6 then want[#want + 1] = a[i * 6 + i + offset + 1] end
            end
            assert.are.same(want, t:diagonal(offset):totable())
            assert.are.same(want, t:t():diagonal(-offset):totable())
            assert.are.same(want, t:t():diagonal(offset, 1, 0):totable())
        end
        local cube = flow.arange(24):reshape(2, 3, 4)
        assert.are.same({{4, 9}, {16, 21}}, cube:diagonal(1, 2, 1):totable())
        assert.are.same({3, 2}, cube:diagonal(0, 0, 2).shape)
    end)

    it("tril and triu keep one side", function()
        for _, dtype in ipairs {"float32", "bool", "int64", "bfloat16"} do
            for _, shape in ipairs {{1, 1}, {3, 4}, {5, 2}, {2, 17, 16}, {0, 3}, {3, 0}} do
                local a, t = counting(shape, dtype)
                for offset = -4, 4 do
                    local function kept(lower)
                        local zero = ref.is_float(dtype) and 0.0 or 0
                        return ref.array(shape, function(i)
                            local at = ref.unravel(shape, i)
                            local distance = at[#at] - at[#at - 1]
                            if lower then return distance <= offset and a[i + 1] or zero end
                            return distance >= offset and a[i + 1] or zero
                        end)
                    end
                    for _, layout in ipairs(ref.layouts(t)) do
                        ref.check(layout[2]:tril(offset), kept(true), dtype, 0, ("tril %d %s %s"):format(offset, text(shape), layout[1]))
                        ref.check(layout[2]:triu(offset), kept(false), dtype, 0, ("triu %d %s %s"):format(offset, text(shape), layout[1]))
                    end
                end
            end
        end
    end)
end)

describe("chunk and split", function()
    local function sizes(list) -- of {x:chunk(...)}
        local out = {}
        for i, t in ipairs(list) do out[i] = t:size(0) end
        return out
    end
    it("sizes", function()
        local x = flow.arange(10)
        for _, case in ipairs {
            {{x:chunk(3)}, {4, 4, 2}}, {{x:chunk(7)}, {2, 2, 2, 2, 2}}, {{x:chunk(12)}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}}, {{x:chunk(1)}, {10}},
            {{flow.zeros(0):chunk(3)}, {0, 0, 0}}, {{x:split(4)}, {4, 4, 2}}, {{x:split(10)}, {10}}, {{x:split(11)}, {10}}, {{x:split({3, 0, 7})}, {3, 0, 7}},
            {{flow.zeros(0):split(3)}, {0}},
        } do
            assert.are.same(case[2], sizes(case[1]))
            if case[1][1]:numel() > 0 then assert.are.same(x:totable(), flow.cat(case[1]):totable()) end
        end
    end)

    it("are views along any axis", function()
        local x = flow.zeros(2, 5)
        select(2, x:chunk(2, 1)):fill_(1)
        assert.are.same({{0, 0, 0, 1, 1}, {0, 0, 0, 1, 1}}, x:totable())
        x:split({1, 4}, -1):fill_(7)
        assert.are.same({{7, 0, 0, 1, 1}, {7, 0, 0, 1, 1}}, x:totable())
    end)
end)

describe("cat and stack", function()
    it("along every axis, of every layout", function()
        for _, dtype in ipairs {"float32", "uint8", "float16", "int64"} do
            for axis = 0, 2 do
                local shapes = {{2, 3, 5}, {2, 3, 5}, {2, 3, 5}}
                shapes[2][axis + 1], shapes[3][axis + 1] = 0, 17
                local arrays, tensors = {}, {}
                for i, shape in ipairs(shapes) do arrays[i], tensors[i] = counting(shape, dtype) end
                local total = arrays[1].shape[axis + 1] + 17
                local shape = {2, 3, 5}
                shape[axis + 1] = total
                local want = ref.array(shape, function(index)
                    local at = ref.unravel(shape, index)
                    local own = shapes[1][axis + 1]
                    if at[axis + 1] < own then return ref.at(arrays[1], at) end
                    at[axis + 1] = at[axis + 1] - own
                    return ref.at(arrays[3], at)
                end)
                for _, layout in ipairs(ref.layouts(tensors[3])) do
                    ref.check(flow.cat({tensors[1], tensors[2], layout[2]}, axis), want, dtype, 0, "cat " .. layout[1])
                    ref.check(flow.cat({tensors[1], tensors[2], layout[2]}, axis - 3), want, dtype, 0, "cat " .. layout[1])
                end
            end
        end
        assert.are.same({2, 3}, flow.cat({flow.zeros(0, 3), flow.zeros(2, 3)}).shape)
        assert.are.same({0, 3}, flow.cat({flow.zeros(0, 3)}).shape)
    end)

    it("stack puts a new axis anywhere", function()
        local x, y = flow.arange(6):reshape(2, 3), flow.arange(6, 12):reshape(2, 3)
        for axis = -3, 2 do
            local s = flow.stack({x, y}, axis)
            assert.are.same(x:totable(), s:select(axis, 0):totable())
            assert.are.same(y:totable(), s:select(axis, 1):totable())
        end
        assert.are.same({1, 2.5}, flow.stack({flow.tensor(1), flow.tensor(2.5)}):totable())
        assert.are.same({2, 0}, flow.stack({flow.zeros(0), flow.zeros(0)}).shape)
        local many = {}
        for i = 1, 100 do many[i] = flow.full({3}, i) end
        assert.are.equal(3 * 5050, flow.stack(many):sum():item())
        assert.are.equal(3 * 5050, flow.cat(many):sum():item())
    end)

    it("rep and tile", function()
        for _, case in ipairs {{{3}, {2}}, {{3}, {2, 2}}, {{2, 3}, {1, 2}}, {{2, 3}, {2, 0}}, {{2, 1, 2}, {3, 1, 2}}, {{}, {3}}, {{1, 33}, {2, 3}}} do
            local a, t = counting(case[1], "int64")
            local padded = table.move(a, 1, #a, 1, {shape = {}})
            for i = 1, #case[2] do padded.shape[i] = a.shape[i - (#case[2] - #a.shape)] or 1 end
            local shape = {}
            for i, n in ipairs(padded.shape) do shape[i] = n * case[2][i] end
            local want = ref.array(shape, function(index)
                local at = ref.unravel(shape, index)
                for i = 1, #at do at[i] = at[i] % padded.shape[i] end
                return ref.at(padded, at)
            end)
            ref.check(t:rep(case[2]), want, "int64", 0, "rep " .. text(case[2]))
            ref.check(flow["repeat"](t, case[2]), want, "int64", 0, "repeat " .. text(case[2]))
            ref.check(t:tile(case[2]), want, "int64", 0, "tile " .. text(case[2]))
        end
        assert.are.same({{0, 1, 0, 1}, {2, 3, 2, 3}}, flow.arange(4):reshape(2, 2):tile(2):totable())
    end)
end)

describe("gather, index_select, embedding, masks", function()
    it("gather along every axis", function()
        local random = ref.generator(5)
        for _, dtype in ipairs {"float32", "int64", "uint8", "float16", "bool"} do
            for axis = 0, 2 do
                local a, t = counting({3, 4, 5}, dtype)
                local shape = {3, 2, 5}
                shape[axis + 1] = 7
                local index = ref.array(shape, function() return math.floor((random() + 1) / 2 * a.shape[axis + 1]) end)
                local want = ref.array(shape, function(i)
                    local at = ref.unravel(shape, i)
                    at[axis + 1] = index[i + 1]
                    return ref.at(a, at)
                end)
                for _, layout in ipairs(ref.layouts(t)) do
                    for _, order in ipairs(ref.layouts(ref.tensor(index, "int64"))) do
                        ref.check(layout[2]:gather(axis, order[2]), want, dtype, 0, ("gather %d %s %s %s"):format(axis, dtype, layout[1], order[1]))
                    end
                end
                ref.check(t:gather(axis - 3, ref.tensor(index, "int32")), want, dtype, 0, "gather with int32")
            end
        end
    end)

    it("index_select along every axis", function()
        local picked = {2, 0, 2, 1}
        for _, dtype in ipairs {"float32", "int64", "uint8", "bfloat16", "bool"} do
            for axis = 0, 2 do
                local a, t = counting({3, 4, 17}, dtype)
                local shape = {3, 4, 17}
                shape[axis + 1] = #picked
                local want = ref.array(shape, function(i)
                    local at = ref.unravel(shape, i)
                    at[axis + 1] = picked[at[axis + 1] + 1]
                    return ref.at(a, at)
                end)
                for _, layout in ipairs(ref.layouts(t)) do
                    for _, kind in ipairs {"int64", "int32", "uint8"} do
                        ref.check(layout[2]:index_select(axis, flow.tensor(picked, {dtype = kind})), want, dtype, 0,
                            ("index_select %d %s %s"):format(axis, dtype, layout[1]))
                    end
                end
            end
        end
        assert.are.same({0, 3}, flow.zeros(2, 3):index_select(0, flow.zeros({0}, {dtype = "int64"})).shape)
        assert.are.same({2, 1}, flow.zeros(2, 3):index_select(1, flow.tensor(2)).shape)
    end)

    it("embedding", function()
        local a, t = counting({6, 5}, "float32")
        for _, shape in ipairs {{}, {4}, {2, 3}, {0}, {2, 1, 2}} do
            local index = ref.array(shape, function(i) return i * 5 % 6 end)
            local full = table.move(shape, 1, #shape, 1, {})
            full[#full + 1] = 5
            local want = ref.array(full, function(i) return a[index[i // 5 + 1] * 5 + i % 5 + 1] end)
            for _, layout in ipairs(ref.layouts(t)) do
                ref.check(flow.embedding(ref.tensor(index, "int64"), layout[2]), want, "float32", 0, "embedding " .. text(shape) .. layout[1])
            end
        end
        -- rows that are used twice add up in the gradient, on all threads too
        for _, n in ipairs {7, 30000} do
            local weight = flow.zeros({5, 9}, {requires_grad = true})
            flow.embedding(flow.arange(n) % 4, weight):sum():backward()
            local counts = {}
            for i = 0, 4 do counts[i + 1] = i < 4 and n // 4 + (i < n % 4 and 1 or 0) or 0 end
            assert.are.same(counts, weight.grad:amax(1):totable())
            assert.are.same(counts, weight.grad:amin(1):totable())
        end
    end)

    it("masks", function()
        local random = ref.generator(8)
        for _, shape in ipairs {{1}, {17}, {3, 5}, {2, 3, 33}, {0}, {70, 70}} do
            local mask = ref.array(shape, function() return random() > 0.3 and 1 or 0 end)
            local a, t = counting(shape, "float32")
            local want, where = {}, {}
            for i = 1, #a do
                if mask[i] == 1 then
                    want[#want + 1] = a[i]
                    where[#where + 1] = ref.unravel(shape, i - 1)
                end
            end
            for _, layout in ipairs(ref.layouts(t)) do
                for _, other in ipairs(ref.layouts(ref.tensor(mask, "bool"))) do
                    assert.are.same(want, layout[2]:masked_select(other[2]):totable())
                    assert.are.same(want, layout[2][other[2]]:totable())
                    assert.are.same({#where, #shape}, other[2]:nonzero().shape)
                    if #where > 0 then assert.are.same(where, other[2]:nonzero():totable()) end
                end
            end
        end
        assert.are.same({{1}, {3}}, flow.tensor({0.0, -1.5, -0.0, 0 / 0}):nonzero():totable())
    end)
end)

describe("writing converts", function()
    local mask = flow.tensor({true, true, false})
    for name, key in pairs {["a position"] = 1, ["a range"] = {{0, 2}}, positions = flow.tensor({0, 1}), ["a mask"] = mask} do
        it("at " .. name, function()
            for _, case in ipairs {
                {"int64", {1, 2, 3}, 0.5, 0}, {"int64", {1, 2, 3}, flow.tensor(-7.9), -7}, {"uint8", {1, 2, 3}, true, 1}, {"bool", {false, false, false}, 2, true},
                {"bool", {true, true, true}, 0, false}, {"bool", {false, false, false}, 0.25, true}, {"bool", {true, true, true}, flow.tensor(0.0), false},
                {"float32", {1, 2, 3}, true, 1}, {"float16", {1, 2, 3}, 0.1, ref.round("float16", 0.1)}, {"float32", {1, 2, 3}, flow.tensor(5), 5},
            } do
                local x = flow.tensor(case[2], {dtype = case[1]})
                x[key] = case[3]
                assert.are.equal(case[1], x.dtype)
                assert.are.equal(case[4], x[1]:item())
                assert.are.equal(case[2][3], x[2]:totable())
            end
        end)
    end
end)

describe("messages", function()
    local x = flow.zeros(2, 3)
    local function index(list) return flow.tensor(list) end
    for _, case in ipairs {
        {"reshape: [2, 3] with 6 elements cannot become [-1, 4]", function() x:reshape(-1, 4) end},
        {"reshape: -1 in [-1, 0] is ambiguous, because [0, 3] has no elements", function() flow.zeros(0, 3):reshape(-1, 0) end},
        {"reshape: size -3 of [2, -3] is negative", function() x:reshape(2, -3) end},
        {"reshape: size must be a whole number or a list of them, got string", function() x:reshape("a") end},
        {"reshape: size must be a whole number, got 1.5", function() x:reshape(2, 1.5) end},
        {"expand: size -1 of [-1, 2, 3] is not allowed for a new axis", function() x:expand(-1, 2, 3) end},
        {"expand: [2, 3] has more axes than [3]", function() x:expand(3) end},
        {"expand: size -2 of [-2] is negative", function() flow.zeros(3):expand(-2) end},
        {"transpose: axis 2 is out of range for shape [2, 3] (-2 to 1)", function() x:transpose(0, 2) end},
        {"transpose: missing argument 'axis1': transpose(x, axis0: axis, axis1: axis)", function() x:transpose(0) end},
        {"t: takes a matrix, x is [2, 3, 4]; use transpose(axis0, axis1)", function() flow.zeros(2, 3, 4):t() end},
        {"unsqueeze: axis 4 is out of range for [2, 3] (-3 to 2)", function() x:unsqueeze(4) end},
        {"squeeze: axis 2 is out of range for shape [2, 3] (-2 to 1)", function() x:squeeze(2) end},
        {"flatten: start_axis 2 comes after end_axis 1", function() flow.zeros(2, 3, 4):flatten(2, 1) end},
        {"narrow: start 4 is out of range for axis 1 of [2, 3]", function() x:narrow(1, 4, 0) end},
        {"narrow: start -4 is out of range for axis 1 of [2, 3]", function() x:narrow(1, -4, 1) end},
        {"narrow: length -1 is negative", function() x:narrow(1, 0, -1) end},
        {"select: position -3 is out of range for axis 0 of [2, 3]", function() x:select(0, -3) end},
        {"select: x has no axes", function() flow.tensor(1):select(0, 0) end},
        {"diagonal: needs two axes, x is [3]", function() flow.zeros(3):diagonal() end},
        {"diagonal: axis 1 is named twice", function() x:diagonal(0, 1, 1) end},
        {"tril: takes matrices, x is [3]", function() flow.zeros(3):tril() end},
        {"chunk: count must be at least 1, got 0", function() x:chunk(0) end},
        {"chunk: x has no axes", function() flow.tensor(1):chunk(2) end},
        {"split: size must be at least 1, got 0", function() x:split(0) end},
        {"split: the sizes must add up to 2, the size of axis 0", function() x:split({1, 2}) end},
        {"split: size -1 is negative", function() x:split({1, -1, 2}) end},
        {"cat: xs[1] is [2, 3] and xs[2] is [2]: only axis 0 may differ", function() flow.cat({x, flow.zeros(2)}) end},
        {"cat: axis 2 is out of range for shape [2, 3] (-2 to 1)", function() flow.cat({x, x}, 2) end},
        {"cat: entry 2 of xs must be a tensor, got number", function() flow.cat({x, 3}) end},
        {"cat: xs must be a list of tensors, got tensor; write flow.cat({x, y})", function() flow.cat(x, x) end},
        {"cat: tensors without axes cannot be joined; use stack", function() flow.cat({flow.tensor(1), flow.tensor(2)}) end},
        {"stack: xs[1] is [2, 3] and xs[2] is [3, 2]: shapes must be equal", function() flow.stack({x, flow.zeros(3, 2)}) end},
        {"stack: needs at least one tensor", function() flow.stack({}) end},
        {"stack: axis 3 is out of range for [2, 3] (-3 to 2)", function() flow.stack({x, x}, 3) end},
        {"rep: repeats must not be negative, one is -1", function() x:rep(2, -1) end},
        {"gather: index[0, 0] is 3, but this axis of x has 3 positions (0 to 2)", function() x:gather(1, index {{3}}) end},
        {"gather: index[0, 0] is -1, but this axis of x has 3 positions (0 to 2)", function() x:gather(1, index {{-1}}) end},
        {"gather: index [1] must have as many axes as x [2, 3] and, except along axis 1, at most the sizes of x", function() x:gather(1, index {0}) end},
        {"gather: index [3, 1] must have as many axes as x [2, 3] and, except along axis 1, at most the sizes of x", function() x:gather(1, index {{0}, {0}, {0}}) end},
        {"gather: index must be integers, got float32[2, 3]", function() x:gather(1, flow.zeros(2, 3)) end},
        {"gather: axis must be a whole number, got tensor", function() x:gather(index {{0}}, 1) end},
        {"index_select: index[0] is 3, but this axis of x has 3 positions (0 to 2)", function() x:index_select(1, index {3}) end},
        {"index_select: index[0] is -1, but this axis of x has 3 positions (0 to 2)", function() x:index_select(1, index {-1}) end},
        {"index_select: index must be 1-D, got [1, 1]", function() x:index_select(1, index {{0}}) end},
        {"index_select: index must be integers, got float32[1]", function() x:index_select(1, index {0.5}) end},
        {"index_select: index must be a tensor, got number", function() x:index_select(1, 0) end},
        {"embedding: indices[0] is 6, but weight has 2 rows (0 to 1)", function() flow.embedding(index {6}, x) end},
        {"embedding: indices[0] is -1, but weight has 2 rows (0 to 1)", function() flow.embedding(index {-1}, x) end},
        {"embedding: indices must be integers, got float32[2]", function() flow.embedding(flow.zeros(2), x) end},
        {"embedding: weight must be [rows, width], got [3]", function() flow.embedding(index {0}, flow.zeros(3)) end},
        {"masked_select: shapes [2, 3] and [2] do not broadcast", function() x:masked_select(index {true, false}) end},
        {"masked_select: mask must be bool, not float32", function() x:masked_select(x) end},
    } do
        it(case[1], function() assert.are.equal(case[1], message(case[2])) end)
    end
end)
