-- data_loader_spec.lua -- the loader on several ranks: each makes its own rows, and together they are what one rank
-- makes, whatever the number of ranks, also when an epoch goes on with another number.
local flow = require "flow"
local ranks = require "tests.ranks.support"
local data = flow.data

local COUNT = 23
local set = setmetatable({}, {__len = function() return COUNT end})

-- Items that depend on what a dataset may draw with.
function set:get(i, pass) -- luacheck: ignore 212
    return {x = flow.full({2}, i + 100 * pass.epoch + 1000 * pass.seed), label = i}
end

local function first(count)
    local list = {}
    for r = 0, count - 1 do list[#list + 1] = r end
    return flow.placement("cpu", list)
end

local function make(count, size, options)
    local o = {batch_size = size, shuffle = true, seed = 4, placement = count and first(count), sbp = count and "S(0)"}
    for key, value in pairs(options or {}) do o[key] = value end
    return data.loader(set, o)
end

local function take(list, loader, count)
    for _ = 1, count do
        local batch = loader:next()
        for i, v in ipairs(batch.label:totable()) do list[#list + 1] = v + 1000 * batch.x:totable()[i][2] end
    end
    return list
end

describe("a loader of items", function()
    it("gives batches whose rows are together what one rank gets", function()
        for size = 1, 7, 2 do
            local want = take({}, make(nil, size), 9)
            for count = 1, ranks.world do
                for _, prefetch in ipairs {0, 3} do
                    assert.are.same(want, take({}, make(count, size, {prefetch = prefetch}), 9))
                end
            end
        end
    end)

    it("fills the last batch up alike", function()
        local want = take({}, make(nil, 5, {pad_last = true}), 5)
        assert.are.equal(25, #want)
        assert.are.same(want, take({}, make(ranks.world, 5, {pad_last = true}), 5))
    end)

    it("goes on with other ranks and another batch size, and loses and repeats nothing", function()
        local whole = take({}, make(nil, 1), COUNT)
        for from = 1, ranks.world do
            for to = 1, ranks.world do
                local loader, again = make(from, 6), make(to, 4)
                local seen = take({}, loader, 2)
                again:load_state(loader:state())
                take(seen, again, 2)
                local last = make(nil, 3)
                last:load_state(again:state())
                take(seen, last, 1)
                assert.are.same(whole, seen)
                assert.are.equal(COUNT, last:state().items)
            end
        end
    end)

    it("runs transforms that draw alike on all ranks and in any number of workers", function()
        local function transform(item, random)
            return {x = item.x:to "float32":mul(2):add(random(1000)), label = item.label}
        end
        local function options(workers) return {transform = transform, workers = workers} end
        local want = take({}, make(nil, 5, options(0)), 9)
        for count = 1, ranks.world do
            for _, workers in ipairs {0, 2} do
                assert.are.same(want, take({}, make(count, 5, options(workers)), 9))
            end
        end
    end)
end)

describe("a loader of items, one of which fails on one rank", function()
    if ranks.world == 1 then return end

    it("lets no rows of different batches meet", function()
        local all = flow.placement.all "cpu"
        local last = ranks.world - 1
        local loader = data.loader(data.tensors(flow.arange(6 * ranks.world)), {
            batch_size = 2 * ranks.world, placement = all, sbp = "S(0)", workers = 1, args = {2 * last},
            transform = function(item, _, bad)
                if item[1] == bad then error "broken" end
                return item
            end,
        })
        local ok, batch = pcall(loader.next, loader)
        assert.are.equal(ranks.rank ~= last, ok)
        if not ok then
            assert.matches(("loader: item %d: .*data_loader_spec%%.lua:%%d+: broken$"):format(2 * last), batch)
            batch = loader:next()
        end
        local message
        ok, message = pcall(function() return batch[1]:to_global{sbp = "B"}:to_local():sum():item() end)
        assert.is_false(ok)
        assert.matches("the ranks run different programs: rank 0 %S+ a loader's batch, rank " .. last
            .. " %S+ a loader's batch that failed there", message)
        loader:load_state {epoch = 0, position = 2, items = 4 * ranks.world, seed = 0, begun = 1}
        local rows = loader:next()[1]:to_global{sbp = "B"}:to_local()
        assert.are.same(flow.arange(4 * ranks.world, 6 * ranks.world):totable(), rows:totable())
    end)
end)

describe("a loader of images, one of which is damaged", function()
    local folder

    setup(function()
        folder = os.tmpname()
        os.remove(folder)
        assert(os.execute("mkdir -p " .. folder))
        for i = 0, 7 do
            data.save_png(("%s/%d.png"):format(folder, i), flow.full({3, 4, 4}, 10 * i, {dtype = "uint8"}))
        end
        local file = assert(io.open(folder .. "/6.png", "w"))
        file:write "not a picture"
        file:close()
    end)
    teardown(function() os.execute("rm -rf " .. folder) end)

    -- The errors of this rank over all ranks: which use of a batch failed, and whether flow.sync reported one.
    local function errors_of(use)
        local all, failed, said = flow.placement.all "cpu", 0, nil
        local loader = data.loader(data.images(folder, {size = 4}), {batch_size = 8, placement = all, sbp = "S(0)"})
        local ok, message = pcall(function()
            for batch in loader do
                local done, why = pcall(use, batch[1])
                if not done then failed, said = failed + 1, why end
            end
        end)
        if not ok then failed, said = failed + 1, message end
        ok, message = pcall(flow.sync)
        if not ok then said = message end
        if said then assert.matches("6%.png: not a JPEG or PNG file", said) end
        local counts = flow.tensor {failed, ok and 0 or 1}
        return counts:to_global({placement = all, sbp = "P"}):to_global({placement = all, sbp = "B"}):totable()
    end

    it("gives a batch that has no value on its rank, and sound rows on the others", function()
        assert.are.same({1, 0}, errors_of(function(x)
            for _, row in ipairs(x:to_local():totable()) do
                local number = row[1][1][1] * 255 / 10
                assert.is_true(math.abs(number - math.floor(number + 0.5)) < 1e-3)
            end
        end))
    end)

    it("has its error reported by flow.sync on that rank, where nothing is read", function()
        local counts = errors_of(function() end)
        assert.are.equal(1, counts[1] + counts[2])
    end)
end)
