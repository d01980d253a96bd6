-- data_loader_spec.lua -- the loader's batches: asked for ahead, of single items, padded, resumed, after errors.
local flow = require "flow"
local data = flow.data
local loaders = require "tests.loaders"

local fails, items, squares, all = loaders.fails, loaders.items, loaders.squares, loaders.all

-- The labels of the batches that a loop gives, as text.
local function labels(loader)
    local list = {}
    for batch in loader do list[#list + 1] = table.concat(batch.label:totable(), " ") end
    return table.concat(list, ", ")
end

describe("a loader with a sampler", function()
    it("gives the items at its positions, in their order", function()
        for _, sampler in ipairs {{3, 1, 1, 9, 0}, flow.tensor {3, 1, 1, 9, 0}, flow.tensor({3, 1, 1, 9, 0}, {dtype = "int32"}),
                                  function() return {3, 1, 1, 9, 0} end} do
            for _, options in ipairs {{}, {workers = 2, transform = function(item) return item end}, {prefetch = 3}} do
                options.sampler, options.batch_size = sampler, 2
                local loader = data.loader(squares(10), options)
                assert.are.equal(3, #loader)
                for _ = 1, 2 do assert.are.equal("3 1, 1 9, 0", labels(loader)) end
                options.drop_last = true
                assert.are.equal("3 1, 1 9", labels(data.loader(squares(10), options)))
            end
        end
        assert.are.equal("4, 2", labels(data.loader(squares(10), {sampler = {4, 2}})))
        assert.are.equal("", labels(data.loader(squares(10), {sampler = {}})))
    end)

    it("asks a function for the positions of each epoch, and goes on where its state was taken", function()
        local function by_epoch(epoch) return {epoch, epoch + 1, epoch + 2} end
        local function made() return data.loader(squares(12), {sampler = by_epoch, batch_size = 2}) end
        local loader = made()
        assert.are.equal("0 1, 2", labels(loader))
        assert.are.equal("1 2, 3", labels(loader))
        for given = 0, 5 do
            local first, second = made(), made()
            for _ = 1, given do first:next() end
            second:load_state(first:state())
            for _ = 1, 6 do assert.are.same(first:next().label:totable(), second:next().label:totable()) end
        end
        fails("load_state: the state stands at batch 4 of an epoch; sampler has 2", function()
            made():load_state {epoch = 0, position = 4, seed = 0}
        end)
        assert.are.equal("loader: 12 items in batches of 2 by a sampler; at epoch 0, item 0", tostring(made()))
    end)

    it("gives each rank its rows", function()
        local loader = data.loader(data.tensors(flow.arange(10)),
            {sampler = {3, 1, 9}, batch_size = 2, placement = flow.placement("cpu", {0}), sbp = "S(0)"})
        assert.are.same({3, 1, 9}, all(loader, 1))
    end)

    it("refuses other values and options", function()
        for name, value in pairs {shuffle = true, pad_last = true} do
            fails("loader: sampler says what items an epoch has; leave out " .. name, data.loader, squares(5), {sampler = {}, [name] = value})
        end
        fails("loader: sampler and batch_sampler contradict; give one", data.loader, squares(5), {sampler = {}, batch_sampler = {}})
        for shown, value in pairs {["3"] = 3, ["float32 tensor"] = flow.ones(2), table = {1, "2"}, ["nil"] = false} do
            fails("loader: sampler must give a list of positions, whole numbers from 0, got " .. shown, function()
                data.loader(squares(5), {sampler = function() return value or nil end}):next()
            end)
        end
    end)
end)

describe("a loader with a batch_sampler", function()
    local function by_epoch(epoch) return {{epoch}, {epoch + 1, epoch + 2}, {0, 0, 9}} end

    it("gives its batches, of any number of items", function()
        local lists = {{3, 1}, flow.tensor {0, 9, 9}, {5}, flow.tensor({2, 4}, {dtype = "int32"})}
        for _, options in ipairs {{}, {workers = 2, transform = function(item) return item end}, {prefetch = 3}} do
            options.batch_sampler = lists
            local loader = data.loader(squares(10), options)
            assert.are.equal(4, #loader)
            for _ = 1, 2 do assert.are.equal("3 1, 0 9 9, 5, 2 4", labels(loader)) end
        end
        local whole = data.loader(data.tensors(flow.arange(10)), {batch_sampler = lists})
        assert.are.same({3, 1, 0, 9, 9, 5, 2, 4}, all(whole, 1))
        assert.are.equal("loader: 10 items in batches of batch_sampler; at epoch 1, item 0", tostring(whole))
        assert.are.equal("", labels(data.loader(squares(10), {batch_sampler = {}})))
    end)

    it("asks a function for those of each epoch", function()
        local asked = {}
        local loader = data.loader(squares(10), {batch_sampler = function(epoch)
            asked[#asked + 1] = epoch
            return by_epoch(epoch)
        end})
        assert.are.equal(3, #loader)
        assert.are.equal("0, 1 2, 0 0 9", labels(loader))
        assert.are.equal("1, 2 3, 0 0 9", labels(loader))
        assert.are.equal("2", tostring(loader:next().label:item()))
        assert.are.same({0, 1, 2}, asked)
    end)

    it("goes on where its state was taken", function()
        for given = 0, 7 do
            local first, second = data.loader(squares(12), {batch_sampler = by_epoch}), data.loader(squares(12), {batch_sampler = by_epoch})
            for _ = 1, given do first:next() end
            second:load_state(first:state())
            for _ = 1, 8 do assert.are.same(first:next().label:totable(), second:next().label:totable()) end
        end
        fails("load_state: the state stands at batch 4 of an epoch; batch_sampler has 3", function()
            data.loader(squares(12), {batch_sampler = by_epoch}):load_state {epoch = 0, position = 4, seed = 0}
        end)
    end)

    it("gives each rank its rows", function()
        local loader = data.loader(data.tensors(flow.arange(10)), {batch_sampler = {{3, 1}, {0, 9, 9}}, placement = flow.placement("cpu", {0}), sbp = "S(0)"})
        assert.are.same({3, 1, 0, 9, 9}, all(loader, 1))
    end)

    it("refuses other batches and options", function()
        for name, value in pairs {batch_size = 4, shuffle = true, drop_last = true, pad_last = true} do
            fails("loader: batch_sampler says what items a batch has; leave out " .. name, data.loader, squares(5), {batch_sampler = {}, [name] = value})
        end
        local function next_of(sampler) return data.loader(squares(5), {batch_sampler = sampler}):next() end
        fails("loader: batch_sampler must give a list of batches, got 3", next_of, function() return 3 end)
        for shown, batch in pairs {table = {}, ["3"] = 3, ["float32 tensor"] = flow.ones(2)} do
            fails("loader: batch 2 of batch_sampler must be a list of positions, whole numbers from 0, got " .. shown, function()
                local loader = data.loader(squares(5), {batch_sampler = {{1}, batch}})
                loader:next()
                loader:next()
            end)
        end
        fails("loader: batch 1 of batch_sampler must be a list of positions, whole numbers from 0, got table", next_of, {{1, "2"}})
    end)
end)

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

    it("is asked for what it makes of items", function()
        local loader = data.loader(squares(6), {batch_size = 3, collate = function(list)
            local batch = data.default_collate(list)
            batch.sum = batch.label:sum()
            return batch
        end})
        local batch = loader:next()
        assert.are.same({{0, 1, 2}, 3, {"n0", "n1", "n2"}}, {batch.label:totable(), batch.sum:item(), batch.name})
        assert.are.same({{1, 1}, {2, 2}}, data.default_collate {flow.full({2}, 1), flow.full({2}, 2)}:totable())
        assert.are.same({{1.5, 2}, {"a", "b"}}, {data.default_collate {1.5, 2}:totable(), data.default_collate {"a", "b"}})
        fails("default_collate: items must not be empty", data.default_collate, {})
        fails("default_collate: item 1 must be a table of tensors, numbers and strings, got 0", data.default_collate, {{1}, 0})
        fails("default_collate: item 1 has no field 1, which item 0 has", data.default_collate, {{1}, {}})
        fails("default_collate: field 1 of item 1 must be a tensor, a number, a string or a boolean, got table", data.default_collate, {1, {}})
    end)

    it("takes the rows of a dataset that gives batches alone", function()
        local function pair(list) return {flow.stack {list[1][1], list[#list][1]}} end
        local batch = data.loader(data.tensors(flow.arange(5) * 2), {batch_size = 3, collate = pair}):next()
        assert.are.same({0, 4}, batch[1]:totable())
        local set = setmetatable({batch = function(_, positions)
            if positions:eq(1):any():item() then error("one") end
            return {x = positions:to("int32"), name = {"n" .. positions:sum():item()}}
        end}, {__len = function() return 3 end})
        local loader = data.loader(set, {batch_size = 3, skip_errors = true})
        batch = loader:next()
        assert.are.equal("int32", batch.x.dtype)
        assert.are.same({{0, 2}, {"n0", "n2"}, 1}, {batch.x:totable(), batch.name, loader.skipped})
    end)

    it("refuses a dataset without a size", function()
        for size, shown in pairs {ten = "'ten'", [-1] = "-1", [2.5] = "2.5"} do
            local set = setmetatable({get = print}, {__len = function() return size end})
            fails("loader: the size of a dataset, #dataset, must be a whole number >= 0, got " .. shown, data.loader, set)
        end
    end)

    it("ends early where a dataset shrinks, whenever it is asked for its size", function()
        local size, given = 10, 0
        local set = setmetatable({get = function(_, i) return {i} end}, {
            __len = function()
                size = math.max(0, size - 1)
                return size
            end,
        })
        for batch in data.loader(set, {batch_size = 2}) do given = given + #batch[1] end
        assert.is_true(given > 0 and given < 9)
    end)

    local function batches_in(loader)
        local count = 0
        for _ in loader do count = count + 1 end
        return count
    end

    it("gives nothing of an empty dataset, as a rank's part may be", function()
        local sets = {items(0, error), data.tensors(flow.zeros(0, 2)), data.generate(0, function() return {1} end)}
        for _, set in ipairs(sets) do
            for _, o in ipairs {{batch_size = 4}, {shuffle = true}, {drop_last = true}, {pad_last = true, batch_size = 2}} do
                local loader = data.loader(set, o)
                assert.are.equal(0, #loader)
                assert.are.equal(0, batches_in(loader))
                assert.are.equal(0, batches_in(loader))
                assert.is_nil(loader:next())
                loader:load_state(loader:state())
                assert.are.equal(0, batches_in(loader))
            end
        end
        local loader = data.loader(sets[2], {placement = flow.placement("cpu", {0}), sbp = "S(0)"})
        assert.are.equal(0, batches_in(loader))
    end)

    it("says in words what it is, and where it stands", function()
        local loader = data.loader(squares(10), {batch_size = 4, shuffle = true})
        assert.are.equal("loader: 10 items in batches of 4, shuffled; at epoch 0, item 0", tostring(loader))
        loader:next()
        assert.are.equal("loader: 10 items in batches of 4, shuffled; at epoch 0, item 4", tostring(loader))
        loader:next()
        loader:next()
        assert.are.equal("loader: 10 items in batches of 4, shuffled; at epoch 0, item 10", tostring(loader))
        assert.are.equal("loader: 3 items in batches of 1; at epoch 0, item 0", tostring(data.loader(squares(3))))
    end)

    it("counts batches that are larger than the dataset", function()
        local set = data.tensors(flow.arange(3))
        local loader = data.loader(set, {batch_size = math.maxinteger})
        assert.are.equal(1, #loader)
        assert.are.same({0, 1, 2}, loader:next()[1]:totable())
        local filled = data.loader(set, {batch_size = 8, pad_last = true}):next()
        assert.are.same({0, 1, 2, 0, 1, 2, 0, 1}, filled[1]:totable())
        local huge = data.loader(set, {batch_size = 1 << 58, pad_last = true})
        assert.matches("out of memory", select(2, pcall(huge.next, huge)))
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

describe("arrays", function()
    -- The result of f for the array 0..23 of shape [2, 3, 4], as a tensor.
    local function apply(f)
        local set = data.tensors(flow.arange(24):view(1, 2, 3, 4))
        return data.loader(set, {transform = f, workers = 1}):next()[1][0]
    end
    local x = flow.arange(24):view(2, 3, 4)
    for _, case in ipairs {
        {"reshape", function(item) return {item[1]:reshape(4, -1)} end, x:view(4, 6)},
        {"reshape of a list", function(item) return {item[1]:reshape{24}} end, x:view(24)},
        {"permute", function(item) return {item[1]:permute(2, 0, 1)} end, x:permute(2, 0, 1)},
        {"narrow", function(item) return {item[1]:narrow(1, 1, 2)} end, x:narrow(1, 1, 2)},
        {"narrow of the last axis", function(item) return {item[1]:narrow(-1, 0, 3)} end, x:narrow(2, 0, 3)},
        {"flip", function(item) return {item[1]:flip(-1):flip(0)} end, x:flip{0, 2}},
        {"to", function(item) return {item[1]:to "uint8"} end, x:to "uint8"},
        {"copy", function(item) local c = item[1]:copy() item[1]:fill(0) return {c} end, x},
        {"map", function(item) return {item[1]:map(function(v, i) return v * i end)} end, x * x},
        {"map to a dtype", function(item) return {item[1]:map(function(v) return v / 2 end, "float32")} end, x:to "float32" / 2},
        {"add and mul", function(item)
            return {item[1]:to "float32":mul(0.5):add(require "flow.array".new{1, 2, 3, 4})}
        end, x:to "float32" * 0.5 + flow.tensor{1, 2, 3, 4}},
        {"frombytes", function(item)
            return {require "flow.array".frombytes(item[1]:tobytes(), "int64", {24})}
        end, x:view(24)},
    } do
        it("have " .. case[1], function()
            local got = apply(case[2])
            assert.are.equal(case[3].dtype, got.dtype)
            assert.are.same(case[3].shape, got.shape)
            assert.are.same(case[3]:totable(), got:totable())
        end)
    end

    for _, case in ipairs {
        {"the array has 24 elements, the shape 10", function(item) return {item[1]:reshape(10)} end},
        {"the array has 24 elements, the shape 20", function(item) return {item[1]:reshape(5, -1)} end},
        {"size -2 is negative", function(item) return {item[1]:reshape(-2)} end},
        {"at most 8 axes, got 9", function(item) return {item[1]:reshape(1, 1, 1, 1, 1, 1, 1, 1, 24)} end},
        {"permute takes each axis from 0 to 2 once", function(item) return {item[1]:permute(0, 0, 1)} end},
        {"2 axes for an array with 3", function(item) return {item[1]:permute(0, 1)} end},
        {"narrow: 3 from 2 on of an axis of 4", function(item) return {item[1]:narrow(2, 2, 3)} end},
        {"axis 3 of an array with 3 axes", function(item) return {item[1]:flip(3)} end},
        {"there is no dtype 'int4'", function(item) return {item[1]:to "int4"} end},
        {"takes an array of floats; write a:to(\"float32\") first", function(item) return {item[1]:mul(2)} end},
        {"takes a number, or an array of the shape of the last axes",
            function(item) return {item[1]:to "float32":mul(require "flow.array".zeros(3))} end},
        {"an element must be a number or a boolean, got string", function() return {require "flow.array".new{"a"}} end},
        {"300 does not fit into uint8", function() return {require "flow.array".new({300}, "uint8")} end},
        {"the array takes 8 bytes, got 3", function() return {require "flow.array".frombytes("abc", "int64", {1})} end},
        {"array: size -1 in shape [-1] is negative", function() return {require "flow.array".zeros(-1)} end},
        {"position 24 is outside 0 to 23", function(item) return {item[1][24]} end},
    } do
        it("refuse: " .. case[1], function()
            local ok, message = pcall(apply, case[2])
            assert.is_false(ok)
            assert.is_truthy(message:find(": " .. case[1], 1, true), message)
        end)
    end
end)

describe("a dataset of a function", function()
    local function spiral(i, random, scale)
        local array = require "flow.array"
        return {x = array.new {i * scale, random()}, label = i % 2}
    end

    it("is computed in the workers, alike for any number of them", function()
        local set = data.generate(10, spiral, {args = {0.5}})
        assert.are.equal(10, #set)
        local seen
        for _, workers in ipairs {0, 1, 3} do
            local loader, text = data.loader(set, {batch_size = 4, shuffle = true, seed = 2, workers = workers}), {}
            for batch in loader do
                text[#text + 1] = batch.x:tobytes() .. batch.label:tobytes()
                assert.are.same({"float32", "int64"}, {batch.x.dtype, batch.label.dtype})
            end
            seen = seen or table.concat(text)
            assert.are.equal(seen, table.concat(text))
        end
    end)

    it("gives single items, and goes through a transform", function()
        local set = data.generate(10, spiral, {args = {0.5}})
        assert.are.equal(1.5, set:get(3, {seed = 2, epoch = 0}).x[0]:item())
        local loader = data.loader(set, {batch_size = 10, workers = 2, seed = 2, transform = function(item, random, k)
            return {item.x[1] + k, random()}
        end, args = {100}})
        local batch = loader:next()
        assert.is_true(math.abs(set:get(7, {seed = 2, epoch = 0}).x[1]:item() + 100 - batch[1][7]:item()) < 1e-4)
        assert.are_not.equal(batch[1][7]:item() - 100, batch[2][7]:item())
        fails("get: there is no item 10; the dataset has 10", set.get, set, 10)
    end)
end)

describe("the last batch", function()
    local set = data.tensors(flow.arange(10))

    local function batches(options)
        local list, loader = {}, data.loader(set, options)
        for batch in loader do list[#list + 1] = table.concat(batch[1]:totable(), " ") .. " /" .. loader.real end
        return list
    end

    it("is filled up without items that fail, which count once", function()
        local function f(item)
            if item[1] == 1 or item[1] == 8 then error "bad" end
            return item
        end
        for _, workers in ipairs {0, 2} do
            local loader = data.loader(set, {batch_size = 4, pad_last = true, skip_errors = true, transform = f, workers = workers})
            local seen = {}
            for batch in loader do seen[#seen + 1] = table.concat(batch[1]:totable(), " ") .. " /" .. loader.real end
            assert.are.same({"0 2 3 /3", "4 5 6 7 /4", "9 0 /1"}, seen)
            assert.are.equal(2, loader.skipped)
        end
    end)

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

    it("behind the last batch is refused", function()
        fails("load_state: the state stands at batch 60 of an epoch; this loader's have 50", function()
            data.loader(set):load_state({epoch = 0, position = 60, seed = 0})
        end)
    end)

    it("of a larger dataset is refused", function()
        fails("load_state: the state stands at item 60 of a dataset; this one has 50", function()
            data.loader(set):load_state({epoch = 0, position = 1, items = 60, seed = 0})
        end)
    end)

    it("of a shuffled dataset of another size is refused", function()
        local state = data.loader(set, {shuffle = true}):state()
        local larger = data.tensors(flow.arange(51))
        fails("load_state: the state is of an order of 50 items; this dataset has 51", function()
            data.loader(larger, {shuffle = true}):load_state(state)
        end)
        local appended = data.loader(larger)            -- the items keep their places
        appended:load_state(state)
        assert.are.equal(0, appended:next()[1][0]:item())
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
        {{workers = -1}, "loader: workers must be a whole number in [0, 256], got -1"},
        {{transform = 3}, "loader: transform must be a function, got 3"},
        {{transform = setmetatable({}, {__call = print})}, "loader: transform must be a Lua function, got table"},
        {{transform = print, workers = 1}, "loader: transform must be a Lua function or the text of one, got a function of C"},
        {{transform = function() return set end, workers = 1},
            "loader: transform uses the local variable 'set' of the code around it, which stays behind; pass it in args"},
        {{transform = function() end, args = {set}},
            "loader: entry 1 of args is a table; args are numbers, strings and booleans"},
        {{skip_errors = true, placement = everywhere, sbp = "B"},
            "loader: skip_errors and a placement do not go together: ranks would have rows of different batches"},
    } do
        it("are checked: " .. case[2], function() fails(case[2], data.loader, set, case[1]) end)
    end
end)

describe("a program that ends", function()
    local process = require "tests.process"
    local folder, write

    setup(function() folder, write = process.folder() end)
    teardown(function() os.execute("rm -rf " .. folder) end)

    -- The output of a script that begins with a loader of slow items, and its exit code.
    local function run(rest, before, mode)
        local script = write("ends.lua", [[
            local flow = require "flow"
            local function slow(item)
                for i = 1, item[1] < 4 and 1 or 2000000000 do local _ = {i} end
                return item
            end
            local loader = flow.data.loader(flow.data.tensors(flow.arange(100)),
                {batch_size = 2, transform = slow, workers = 2, prefetch = 4})
            ]] .. rest)
        local began = flow.progress.clock()
        local line = (before or "%s %s 2>&1; echo code $?"):format(process.flowlua, script)
        local output = process.output(("export FLOW_ENGINE=%s; %s"):format(mode or "auto", line))
        assert.is_true(flow.progress.clock() - began < process.limit(5))
        return output
    end

    it("while batches are made ends at once", function()
        assert.are.equal("0\ncode 0\n", run "print(loader:next()[1][0]:item())")
        assert.are.equal("0\ncode 3\n", run "print(loader:next()[1][0]:item()) os.exit(3)")
        assert.are.equal("0\ncode 4\n", run "print(loader:next()[1][0]:item()) os.exit(4, true)")
        assert.matches("stop.*code 1\n$", run "loader:next() error 'stop'")
        assert.are.equal("code 0\n", run "loader:next() loader = nil collectgarbage()")
    end)

    it("by Ctrl-C while it waits for a batch ends at once, and says where", function()
        for _, mode in ipairs {"auto", "queued", "naive"} do
            local output = run("for batch in loader do print(batch[1][0]:item()) end",
                "%s %s 2>&1 & pid=$!; sleep 0.5; kill -INT $pid; wait $pid; echo code $?", mode)
            assert.matches("interrupted.*ends.lua:%d+: in main chunk.*code 1\n$", output, mode)
        end
    end)
end)
