-- data_transform_spec.lua -- the loader's transforms: in this process and in workers, with their random numbers.
local flow = require "flow"
local loaders = require "tests.loaders"
local support = require "tests.support"
local data, fails, items, all = flow.data, loaders.fails, loaders.items, loaders.all
local images, augment, transcript = loaders.images, loaders.augment, loaders.transcript

describe("a transform", function()
    local function run(workers, prefetch, more)
        local o = {batch_size = 4, shuffle = true, seed = 3, transform = augment, args = {0.5}, workers = workers, prefetch = prefetch}
        for key, value in pairs(more or {}) do o[key] = value end
        return transcript(data.loader(images(10), o))
    end

    it("gives the same bits in the script and in any number of workers, however far ahead", function()
        local want = run(0, 0)
        assert.are.equal(3, select(2, want:gsub("float32", "")))
        for _, workers in ipairs {0, 1, 4} do
            for _, prefetch in ipairs {0, 2, 8} do assert.are.equal(want, run(workers, prefetch)) end
        end
        assert.are_not.equal(want, run(1, 2, {seed = 4}))
        local loader = data.loader(images(10), {transform = augment, args = {0.5}, workers = 1, seed = 3, batch_size = 10})
        assert.are_not.equal(transcript(loader), transcript(loader))       -- epochs draw anew
    end)

    it("draws for an item by its position, not by its place in a batch or in the epoch", function()
        local function draws(options)
            local loader, by_label = data.loader(images(10), options), {}
            for batch in loader do
                for i, label in ipairs(batch.label:totable()) do by_label[label + 1] = batch.draw[i - 1]:item() end
            end
            return by_label
        end
        local function options(size, shuffle)
            return {batch_size = size, shuffle = shuffle, seed = 9, transform = augment, args = {1}, workers = 2}
        end
        assert.are.same(draws(options(10, false)), draws(options(3, true)))
    end)

    it("sees rows of tensors, rows of lists, and what get gives", function()
        local set = setmetatable({batch = function(_, p) return {x = p * 2, names = {"a", "b", "c"}} end}, {__len = function() return 3 end})
        local function join(item) return {text = item.names .. item.x} end
        local items_set = items(3, function(_, i) return {x = 2 * i, names = ("abc"):sub(i + 1, i + 1), t = flow.ones(2, 2):t()} end)
        for _, dataset in ipairs {set, items_set} do
            for _, workers in ipairs {0, 2} do
                local batch = data.loader(dataset, {batch_size = 3, transform = join, workers = workers}):next()
                assert.are.same({"a0", "b2", "c4"}, batch.text)
            end
        end
    end)

    it("sees the same rows of tensors that are read where they lie, and of others", function()
        local grid = flow.arange(40 * 1024):to "float32":view(10, 4096)
        local sets = {
            {grid, flow.arange(10)}, {flow.arange(40960):to "float16":view(4096, 10):t()}, {(grid * 2 + 1):exp()}, {flow.arange(33):view(11, 3):narrow(0, 1, 10)},
            {flow.randn(10, 2, 3):requires_grad_(), flow.arange(10):lt(5)}, {flow.arange(5):expand(10, 5)}, {flow.zeros(10, 0)},
        }
        local function f(item, random) return {item[1], item[2] == nil and 0 or item[2], random()} end
        for i, tensors in ipairs(sets) do
            local set = data.tensors(table.unpack(tensors))
            local gathered = setmetatable({batch = function(_, p) return set:batch(p) end}, {__len = function() return 10 end})
            for _, workers in ipairs {0, 2} do
                local o = {batch_size = 4, shuffle = true, seed = i, pad_last = true, transform = f, workers = workers}
                local got = data.loader(set, o)
                for want in data.loader(gathered, o) do
                    local batch = got:next()
                    for k = 1, 3 do
                        assert.are.equal(want[k].dtype, batch[k].dtype)
                        assert.are.same(want[k]:totable(), batch[k]:totable())
                    end
                end
                assert.are.equal(3, got.position)
            end
        end
    end)

    it("sees a dataset's tensors as they were when the batch was asked for", function()
        for _, workers in ipairs {0, 1} do
            local x = flow.zeros(8, 5000)
            local loader = data.loader(data.tensors(x), {batch_size = 2, transform = function(item) return item end,
                workers = workers, prefetch = 2})
            local sums = {loader:next()[1]:sum():item()}
            x:add_(1)
            for i = 2, 4 do sums[i] = loader:next()[1]:sum():item() end
            assert.are.same({0, 0, 0, 10000}, sums)
        end
    end)

    it("is given what the dataset's own `batch` gives", function()
        local function first(dataset)
            return data.loader(dataset, {batch_size = 2, transform = function(item) return item end, workers = 1}):next()[1]:totable()
        end
        local function doubled(_, positions) return {positions * 2} end
        local set = data.tensors(flow.arange(4))
        assert.are.same({0, 1}, first(set))
        assert.are.same({0, 2}, first(setmetatable({batch = doubled}, {__index = set, __len = function() return 4 end})))
        rawset(set, "batch", doubled)
        assert.are.same({0, 2}, first(set))
        local cut = data.tensors(flow.arange(4), flow.arange(4))
        cut.tensors[2] = flow.arange(1)
        fails("loader: position 1 is outside the 1 rows of a field", first, cut)
    end)

    it("makes tensors of every dtype and shape that are batched", function()
        local set = data.tensors(flow.arange(3))
        local function f(item)
            local array = require "flow.array"
            local i = item[1]
            return {array.zeros({2, 3}, "uint8"):fill(i), array.new({i, i}, "float64"), array.zeros(0), array.new{i}:to "bool",
                array.zeros({}, "float16"), i / 2}
        end
        for _, workers in ipairs {0, 1} do
            local batch = data.loader(set, {batch_size = 3, transform = f, workers = workers}):next()
            local seen = {}
            for i, t in ipairs(batch) do seen[i] = t.dtype .. " " .. table.concat(t.shape, "x") end
            assert.are.same({"uint8 3x2x3", "float64 3x2", "float32 3x0", "bool 3x1", "float16 3", "float32 3"}, seen)
            assert.are.same({{0, 0}, {1, 1}, {2, 2}}, batch[2]:totable())
        end
    end)

    it("may leave items that collate puts together", function()
        local function pad(list)
            local whole = flow.zeros(#list, 3)
            for i, item in ipairs(list) do whole[{i - 1, {0, item.x:size(0)}}] = item.x end
            return {whole}
        end
        local function ragged(item) return {x = require "flow.array".zeros(item[1] + 1):fill(1)} end
        for _, workers in ipairs {0, 2} do
            local o = {batch_size = 3, transform = ragged, workers = workers}
            local message = "loader: field 'x' is float32 of shape [1] in item 0 and float32 of shape [2] in item 1; " ..
                "make them alike in transform, or give collate"
            local loader = data.loader(data.tensors(flow.arange(3)), o)
            fails(message, loader.next, loader)
            o.collate = pad
            loader = data.loader(data.tensors(flow.arange(3)), o)
            assert.are.same({{1, 0, 0}, {1, 1, 0}, {1, 1, 1}}, loader:next()[1]:totable())
        end
    end)

    it("raises its errors with the item and the line, when the batch's turn comes", function()
        local function f(item)
            if item[1] % 5 == 4 then error("bad " .. item[1]) end
            return item
        end
        for _, workers in ipairs {0, 1, 3} do
            local loader = data.loader(data.tensors(flow.arange(10)), {batch_size = 2, transform = f, workers = workers})
            assert.are.same({0, 1}, loader:next()[1]:totable())
            assert.are.same({2, 3}, loader:next()[1]:totable())
            local ok, message = pcall(loader.next, loader)
            assert.is_false(ok)
            assert.matches("loader: item 4: tests/data_transform_spec.lua:%d+: bad 4$", message)
            assert.are.same({6, 7}, loader:next()[1]:totable())
            local skips = data.loader(data.tensors(flow.arange(10)),
                {batch_size = 4, transform = f, workers = workers, skip_errors = true})
            assert.are.same({0, 1, 2, 3, 5, 6, 7, 8}, all(skips, 1))
            assert.are.equal(2, skips.skipped)
            assert.matches("item 9: .*bad 9$", skips.problem)
        end
    end)

    for _, case in ipairs {
        {"no item", function() return 3 end, "transform must give an item, a table of arrays, numbers, strings and booleans; got number"},
        {"a table in a table", function() return {x = {1}} end, "field 'x' is a table; an item holds arrays, numbers, strings " ..
            "and booleans (require \"flow.array\".new(list) makes an array)"},
        {"another key", function() return {[1.5] = 1} end, "a field of an item must have a name or a number, got a key of type number"},
        {"an error that is no text", function() error {} end, "an error that is a table"},
        {"too much memory", function() return {require "flow.array".zeros(1 << 50)} end, "not enough memory"},
    } do
        it("that gives " .. case[1] .. " is reported", function()
            if os.getenv "ASAN_OPTIONS" and case[1] == "too much memory" then return end    -- that is a report of its own
            for _, workers in ipairs {0, 1} do
                local loader = data.loader(data.tensors(flow.arange(2)), {transform = case[2], workers = workers})
                local ok, message = pcall(loader.next, loader)
                assert.is_false(ok)
                assert.is_truthy(message:find("loader: item 0: ", 1, true), message)
                assert.is_truthy(message:find(case[3], 1, true), message)
            end
        end)
    end

    it("has no script around it in a worker", function()
        for message, f in pairs {
            ["flow cannot be required here: a function of data.loader runs beside it, and sees its tensors as arrays"] =
                function() return {require "flow"} end,
            ["os.exit: a function of data.loader cannot end the process"] = function() os.exit(1) end,
            ["os.execute: a function of data.loader cannot run it, as Ctrl-C would be lost meanwhile; run the command " ..
                "before, or with io.popen(command):close()"] = function() os.execute("true") end,
            ["math.random draws differently in every worker and every run; use random, the second argument of the function"] =
                function() return {math.random()} end,
        } do
            local loader = data.loader(data.tensors(flow.arange(2)), {transform = f, workers = 1})
            local ok, got = pcall(loader.next, loader)
            assert.is_false(ok)
            assert.is_truthy(got:find(message, 1, true), got)
        end
    end)
end)

describe("random", function()
    local function draw(f, count, pass)
        local g = data.generate(count, f, {args = {}})
        local list = {}
        for i = 0, count - 1 do list[i + 1] = g:get(i, pass or {seed = 1, epoch = 0})[1] end
        return list
    end

    it("is like math.random, and more", function()
        local low, high, sum, squares_sum = 1, 0, 0, 0
        for _, v in ipairs(draw(function(_, random) return {random()} end, 2000)) do
            low, high, sum = math.min(low, v), math.max(high, v), sum + v
        end
        assert.is_true(low >= 0 and low < 0.01 and high < 1 and high > 0.99 and math.abs(sum / 2000 - 0.5) < 0.03)
        local counts = {0, 0, 0}
        for _, v in ipairs(draw(function(_, random) return {random(3)} end, 3000)) do counts[v] = counts[v] + 1 end
        for _, n in ipairs(counts) do assert.is_true(n > 850 and n < 1150) end
        for _, v in ipairs(draw(function(_, random) return {random(-2, 2)} end, 100)) do assert.is_true(v >= -2 and v <= 2) end
        sum = 0
        for _, v in ipairs(draw(function(_, random) return {random:normal(1, 2)} end, 4000)) do
            sum, squares_sum = sum + v, squares_sum + v * v
        end
        assert.is_true(math.abs(sum / 4000 - 1) < 0.15 and math.abs(squares_sum / 4000 - 5) < 0.5)
        for _, v in ipairs(draw(function(_, random) return {random:uniform(3, 4)} end, 100)) do assert.is_true(v >= 3 and v < 4) end
        assert.is_true(math.type(draw(function(_, random) return {random(math.mininteger, math.maxinteger)} end, 1)[1]) == "integer")
    end)

    it("depends on the seed, the epoch and the position", function()
        local function f(_, random) return {random()} end
        local want = draw(f, 5)
        assert.are.same(want, draw(f, 5))
        assert.are_not.same(want, draw(f, 5, {seed = 2, epoch = 0}))
        assert.are_not.same(want, draw(f, 5, {seed = 1, epoch = 1}))
        assert.are_not.equal(want[1], want[2])
        assert.are.equal(want[3], data.random({seed = 1, epoch = 0}, 2)())
    end)

    it("refuses what math.random refuses", function()
        local g = data.generate(1, function(_, random) return {random(3, 2)} end)
        assert.matches("random: the interval from 3 to 2 is empty", select(2, pcall(g.get, g, 0)))
        g = data.generate(1, function(_, random) return {random(1, 2, 3)} end)
        assert.matches("random: takes no number, one or two", select(2, pcall(g.get, g, 0)))
    end)
end)

describe("a loader with workers", function()
    local function slow(item)
        local start = os.clock()
        while os.clock() - start < 0.01 do end
        return item
    end

    it("makes batches ready before they are asked for", function()
        local loader = data.loader(data.tensors(flow.arange(8)), {batch_size = 2, transform = slow, workers = 1, prefetch = 2})
        loader:next()
        local ahead = loader.pass.ahead
        assert.are.equal(2, #ahead)
        local function ready(batch) return not batch.job or batch.job:done() end
        for _ = 1, 500 do
            if ready(ahead[2]) then break end
            flow.engine.push {run = function() local s = os.clock() while os.clock() - s < 0.001 do end end}:wait()
        end
        assert.is_true(ready(ahead[1]) and ready(ahead[2]))
    end)

    it("runs inner loops and several loaders at once", function()
        local a = data.loader(images(6), {batch_size = 2, transform = augment, args = {1}, workers = 2, seed = 1})
        local count = 0
        for outer in a do
            for inner in a do
                count = count + outer.x:size(0) * inner.x:size(0)
                if inner.label[0]:item() == 2 then break end
            end
        end
        assert.are.equal(3 * 2 * 4, count)
    end)

    it("keeps nothing when it is dropped, a thousand times", function()
        local set = images(8)
        local function once()
            local loader = data.loader(set, {batch_size = 2, transform = augment, args = {1}, workers = 2, prefetch = 3})
            loader:next()
        end
        local function resident() return tonumber(flow.data.read("/proc/self/status"):match "VmRSS:%s*(%d+)") end
        local function measure() return support.settled_memory().tensors, resident() end
        for _ = 1, 50 do once() end
        local tensors, pages = measure()
        for i = 1, 1000 do
            once()
            if i % 50 == 0 then collectgarbage() end
        end
        local tensors_now, pages_now = measure()
        assert.are.equal(tensors, tensors_now)
        local sanitized = os.getenv "ASAN_OPTIONS" or os.getenv "TSAN_OPTIONS"      -- they keep what was freed
        local limit = sanitized and math.huge or 8000       -- a state that is kept has 30 KiB
        assert.is_true(pages_now - pages < limit, ("%d KiB"):format(pages_now - pages))
    end)
end)
