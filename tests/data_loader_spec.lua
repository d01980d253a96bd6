-- data_loader_spec.lua -- the loader's batches: asked for ahead, of single items, padded, resumed, after errors.
local flow = require "flow"
local data = flow.data

-- Fails unless f raises `message` at a line of this file.
local function fails(message, f, ...)
    local ok, got = pcall(f, ...)
    assert.is_false(ok)
    assert.matches("^tests/data_loader_spec.lua:%d+: ", got)
    assert.are.equal(message, (got:gsub("^.-:%d+: ", "", 1)))
end

-- A dataset of a function of the position.
local function items(count, get) return setmetatable({get = get}, {__len = function() return count end}) end

local function squares(count)
    return items(count, function(_, i) return {x = flow.full({2}, i * i), label = i, name = "n" .. i} end)
end

local function all(loader, field)
    local list = {}
    for batch in loader do
        for _, v in ipairs(batch[field]:totable()) do list[#list + 1] = v end
    end
    return list
end

describe("a loader of single items", function()
    it("stacks tensors, makes tensors of numbers and booleans, and lists of strings", function()
        local set = items(3, function(_, i) return {flow.full({2}, i), i, i / 2, i > 1, "s" .. i} end)
        local batch = data.loader(set, {batch_size = 3}):next()
        assert.are.same({{0, 0}, {1, 1}, {2, 2}}, batch[1]:totable())
        assert.are.same({"int64", "float32", "bool"}, {batch[2].dtype, batch[3].dtype, batch[4].dtype})
        assert.are.same({0, 0.5, 1}, batch[3]:totable())
        assert.are.same({false, false, true}, batch[4]:totable())
        assert.are.same({"s0", "s1", "s2"}, batch[5])
    end)

    it("keeps the names of fields", function()
        local batch = data.loader(squares(5), {batch_size = 2}):next()
        assert.are.same({{0, 0}, {1, 1}}, batch.x:totable())
        assert.are.same({0, 1}, batch.label:totable())
        assert.are.same({"n0", "n1"}, batch.name)
    end)

    it("gives collate the items", function()
        local set = items(3, function(_, i) return {flow.ones(i + 1)} end)
        local function pad(list)
            local whole = flow.zeros(#list, 3)
            for i, item in ipairs(list) do whole[{i - 1, {0, item[1]:size(0)}}] = item[1] end
            return {whole}
        end
        local batch = data.loader(set, {batch_size = 3, collate = pad}):next()
        assert.are.same({{1, 0, 0}, {1, 1, 0}, {1, 1, 1}}, batch[1]:totable())
        fails("loader: collate must give a table, got nil", function()
            data.loader(set, {collate = function() end}):next()
        end)
    end)

    for _, case in ipairs {
        {"shapes", function(_, i) return {x = flow.ones(i + 2)} end,
            "loader: field 'x' is float32 of shape [2] in item 0 and float32 of shape [3] in item 1; " ..
            "make them alike in transform, or give collate"},
        {"dtypes", function(_, i) return {flow.ones(2, {dtype = i > 0 and "int64" or "uint8"})} end,
            "loader: field 1 is uint8 of shape [2] in item 0 and int64 of shape [2] in item 1; " ..
            "make them alike in transform, or give collate"},
        {"kinds", function(_, i) return {i > 0 and "a" or 1} end,
            "loader: field 1 is a number in item 0 and a string in item 1; make them alike in transform, or give collate"},
        {"fewer fields", function(_, i) return {1, i == 0 and 1 or nil} end, "loader: item 1 has no field 2, which item 0 has"},
        {"more fields", function(_, i) return {1, x = i > 0 and 1 or nil} end,
            "loader: item 1 has a field 'x', which item 0 has not"},
        {"no table", function() return 3 end, "loader: item 0 must be a table of tensors, numbers and strings, got 3"},
        {"another value", function() return {x = {1}} end,
            "loader: field 'x' of item 0 must be a tensor, a number, a string or a boolean, got table"},
        {"an error", function(_, i) if i == 1 then error("boom", 0) end return {1} end, "loader: item 1: boom"},
    } do
        it("names the items that cannot be put together: " .. case[1], function()
            local loader = data.loader(items(2, case[2]), {batch_size = 2})
            fails(case[3], loader.next, loader)
        end)
    end

    it("tells datasets the seed, the epoch and the position", function()
        local seen = {}
        local set = items(2, function(_, i, pass)
            seen[#seen + 1] = ("%d %d %d"):format(pass.seed, pass.epoch, i)
            return {i}
        end)
        local loader = data.loader(set, {seed = 7})
        all(loader, 1)
        all(loader, 1)
        assert.are.same({"7 0 0", "7 0 1", "7 1 0", "7 1 1"}, seen)
        flow.manual_seed(12)
        assert.are.equal(12, data.loader(set):state().seed)
    end)
end)

describe("batches asked for ahead", function()
    it("are asked for in order, as many as prefetch says", function()
        for _, prefetch in ipairs {0, 1, 2, 8} do
            local asked = {}
            local set = setmetatable({batch = function(_, p)
                asked[#asked + 1] = p[0]:item()
                return {p}
            end}, {__len = function() return 10 end})
            local loader, given = data.loader(set, {batch_size = 2, prefetch = prefetch}), 0
            for batch in loader do
                given = given + 1
                assert.are.equal(given * 2 - 2, batch[1][0]:item())
                assert.are.equal(math.min(5, given + prefetch), #asked)
                assert.are.equal(given * 2, loader:state().items)
            end
            assert.are.same({0, 2, 4, 6, 8}, asked)
        end
    end)

    it("are the same, whatever their number", function()
        local want = all(data.loader(squares(23), {batch_size = 4, shuffle = true, seed = 5, prefetch = 0}), "label")
        for _, prefetch in ipairs {1, 2, 8} do
            assert.are.same(want, all(data.loader(squares(23), {batch_size = 4, shuffle = true, seed = 5, prefetch = prefetch}), "label"))
        end
    end)

    it("may come in the same table each time", function()
        local rows = {}
        local set = setmetatable({batch = function(_, p) rows[1] = p return rows end}, {__len = function() return 6 end})
        assert.are.same({0, 1, 2, 3, 4, 5}, all(data.loader(set, {batch_size = 2, prefetch = 2}), 1))
    end)

    it("are dropped with the loader, and when a loop begins anew", function()
        local alive = setmetatable({}, {__mode = "k"})
        local set = setmetatable({batch = function(_, p)
            local x = p * 2
            alive[x] = true
            return {x}
        end}, {__len = function() return 100 end})
        local loader = data.loader(set, {batch_size = 2, prefetch = 3})
        for _ = 1, 2 do
            for batch in loader do
                if batch then break end
            end
        end
        collectgarbage()
        collectgarbage()
        local count = 0
        for _ in next, alive do count = count + 1 end
        assert.are.equal(3, count)
        loader = nil -- luacheck: ignore 311
        collectgarbage()
        collectgarbage()
        assert.is_nil(next(alive))
    end)

    it("raise an error when their turn comes, and the loader goes on after it", function()
        local set = items(8, function(_, i)
            if i == 4 then error "broken" end
            return {i}
        end)
        local loader = data.loader(set, {batch_size = 2, prefetch = 8})
        assert.are.same({0, 1}, loader:next()[1]:totable())
        assert.are.same({2, 3}, loader:next()[1]:totable())
        local ok, message = pcall(loader.next, loader)
        assert.is_false(ok)
        assert.matches("loader: item 4: tests/data_loader_spec.lua:%d+: broken$", message)
        assert.are.equal(6, loader:state().items)
        assert.are.same({6, 7}, loader:next()[1]:totable())
        local seen = {}
        assert.is_false((pcall(function() for batch in loader do seen[#seen + 1] = batch[1]:totable() end end)))
        assert.are.same({{0, 1}, {2, 3}}, seen)
    end)

    it("leave out items that fail, and count them", function()
        local set = items(9, function(_, i)
            if i % 4 == 0 or i == 5 then error("no " .. i, 0) end
            return {i}
        end)
        for _, prefetch in ipairs {0, 2} do
            local loader, seen = data.loader(set, {batch_size = 2, skip_errors = true, prefetch = prefetch}), {}
            for batch in loader do seen[#seen + 1] = batch[1]:totable() end
            assert.are.same({{1}, {2, 3}, {6, 7}}, seen)
            assert.are.equal(4, loader.skipped)
            assert.matches("loader: item 8: no 8$", loader.problem)
        end
    end)
end)

describe("the last batch", function()
    local set = data.tensors(flow.arange(10))

    local function batches(options)
        local list, loader = {}, data.loader(set, options)
        for batch in loader do list[#list + 1] = table.concat(batch[1]:totable(), " ") .. " /" .. loader.real end
        return list
    end

    it("is short, left out, or filled up from the beginning of the epoch", function()
        assert.are.same({"0 1 2 3 /4", "4 5 6 7 /4", "8 9 /2"}, batches {batch_size = 4})
        assert.are.same({"0 1 2 3 /4", "4 5 6 7 /4"}, batches {batch_size = 4, drop_last = true})
        assert.are.same({"0 1 2 3 /4", "4 5 6 7 /4", "8 9 0 1 /2"}, batches {batch_size = 4, pad_last = true})
        assert.are.same({"0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 /10"}, batches {batch_size = 24, pad_last = true})
        local shuffled = batches {batch_size = 4, pad_last = true, shuffle = true, seed = 3}
        assert.are.equal(shuffled[1]:match("^%d+ %d+"), shuffled[3]:match("(%d+ %d+) /2"))
    end)
end)

describe("a state", function()
    local set = data.tensors(flow.arange(50))

    it("counts items, so that another batch size goes on where it was taken", function()
        local function make(size) return data.loader(set, {batch_size = size, shuffle = true, seed = 4}) end
        local whole = all(make(1), 1)
        for given = 0, 6 do
            local first, seen = make(7), {}
            for _ = 1, given do
                for _, v in ipairs(first:next()[1]:totable()) do seen[#seen + 1] = v end
            end
            local second = make(5)
            second:load_state(first:state())
            assert.are.equal(given * 7, second:state().items)
            for batch in second do
                for _, v in ipairs(batch[1]:totable()) do seen[#seen + 1] = v end
            end
            assert.are.same(whole, seen)
            assert.are.equal(1, second.epoch)
        end
    end)

    it("of an older version counts batches", function()
        local loader = data.loader(set, {batch_size = 7})
        loader:load_state({epoch = 0, position = 2, seed = 0, begun = 1})
        assert.are.equal(14, loader:next()[1][0]:item())
    end)

    it("of a larger dataset is refused", function()
        fails("load_state: the state stands at item 60 of a dataset; this one has 50", function()
            data.loader(set):load_state({epoch = 0, position = 1, items = 60, seed = 0})
        end)
    end)
end)

describe("options", function()
    local set = data.tensors(flow.arange(10))
    local everywhere = flow.placement.all "cpu"
    for _, case in ipairs {
        {{prefetch = -1}, "loader: prefetch must be a whole number >= 0, got -1"},
        {{prefetch = 1.5}, "loader: prefetch must be a whole number >= 0, got 1.5"},
        {{collate = 3}, "loader: collate must be a function, got 3"},
        {{pad_last = true, drop_last = true}, "loader: drop_last leaves out the batch that pad_last fills up; give one"},
        {{device = "tpu"}, "loader: unknown device 'tpu'; a device is \"cpu\", \"cuda\", \"cuda:1\" or \"meta\""},
        {{device = "cpu", placement = everywhere, sbp = "B"}, "loader: a placement says the device; leave out device"},
        {{skip_errors = true}, "loader: skip_errors needs single items, and this dataset has batches only; " ..
            "give it dataset:get(position)"},
        {{collate = print}, "loader: collate needs single items, and this dataset has batches only; " ..
            "give it dataset:get(position)"},
        {{skip_errors = true, placement = everywhere, sbp = "B"},
            "loader: skip_errors and a placement do not go together: ranks would have rows of different batches"},
    } do
        it("are checked: " .. case[2], function() fails(case[2], data.loader, set, case[1]) end)
    end
end)
