-- data_spec.lua -- the loader and random numbers on several ranks: the same order and the same numbers everywhere.
local flow = require "flow"
local ranks = require "tests.ranks.support"
local data = flow.data

local everywhere = flow.placement.all "cpu"

-- All ranks must have gathered the same as rank 0.
local function same_everywhere(list)
    local all = ranks.share({list})
    for r = 2, ranks.world do assert.are.same(all[1][1], all[r][1]) end
end

describe("the loader", function()
    local set = data.tensors(flow.arange(23), flow.arange(46):view(23, 2))

    it("gives every rank the order of one", function()
        local list = {}
        for _ = 1, 2 do
            for batch in data.loader(set, {batch_size = 5, shuffle = true, seed = 9}) do
                for _, v in ipairs(batch[1]:totable()) do list[#list + 1] = v end
            end
        end
        same_everywhere(list)
    end)

    it("shuffles alike on all ranks, and on any number of them, where it has no seed", function()
        local function first() return data.loader(set, {batch_size = 5, shuffle = true}):next()[1]:totable() end
        same_everywhere(first())
        flow.manual_seed(11)
        assert.are.same({4, 5, 21, 22, 20}, first())
    end)

    it("splits a batch into rows that are together what one rank gets", function()
        for _, size in ipairs {1, 4, 6, 23} do
            local options = {batch_size = size, shuffle = true, seed = 4}
            local plain = data.loader(set, options)
            options.placement, options.sbp = everywhere, "S(0)"
            local loader = data.loader(set, options)
            for _ = 1, #plain + 2 do
                local want, got = plain:next(), loader:next()
                assert.are.equal("S(0)", tostring(got[2].sbp))
                assert.are.same(want[1]:totable(), got[1]:totable())
                assert.are.same(want[2]:totable(), got[2]:totable())
                local again = data.loader(set, options)
                again:load_state(loader:state())
                assert.are.same(loader:state(), again:state())
            end
        end
    end)

    it("communicates nothing", function()
        local loader = data.loader(set, {batch_size = 6, placement = everywhere, sbp = "S(0)"})
        assert.are.equal(0, #flow.explain(function() loader:next() end).collectives)
    end)
end)

describe("records", function()
    -- Every rank packs the same items, under a name of its own.
    local path = ("%s/records-%d"):format(os.getenv "RANKS_FOLDER", ranks.rank)
    local items = {}
    for i = 0, 22 do items[i + 1] = {n = i, x = flow.full({2}, i, {dtype = "float32"})} end

    setup(function() data.pack(items, path) end)
    teardown(function() os.remove(path) end)

    it("are shared out by part_index, all of them once", function()
        local part = data.records(path, {part_index = flow.rank(), num_parts = flow.world_size()})
        local seen = {}
        for r = 1, ranks.world do
            local mine = r - 1 == ranks.rank and part:batch(flow.arange(#part)).n:totable() or {}
            table.move(ranks.share({mine})[r][1], 1, 23, #seen + 1, seen)
        end
        assert.are.same(flow.arange(23):totable(), seen)
    end)

    it("are rows of global batches, of which each rank reads its own", function()
        local options = {batch_size = 6, shuffle = true, seed = 4}
        local plain = data.loader(data.records(path), options)
        options.placement, options.sbp = everywhere, "S(0)"
        local loader = data.loader(data.records(path), options)
        for _ = 1, #plain + 1 do
            local want, got = plain:next(), loader:next()
            assert.are.same(want.n:totable(), got.n:totable())
            assert.are.same(want.x:totable(), got.x:totable())
        end
    end)
end)

describe("the default generator", function()
    it("has one state on all ranks, with a seed and without", function()
        local function halves()
            local state = flow.default_generator():state()
            return state.seed >> 32, state.seed & 0xffffffff, state.counter
        end
        same_everywhere {halves()}
        flow.randn(3)
        flow.randn({4, 2}, {placement = everywhere, sbp = "S(0)"})
        flow.ones(5):dropout(0.5)
        same_everywhere {halves()}
        same_everywhere(flow.rand(8):totable())
        flow.manual_seed(7)
        same_everywhere {halves()}
    end)
end)

describe("images", function()
    -- Every rank makes the same files, in a folder of its own.
    local folder = ("%s/images-%d"):format(os.getenv "RANKS_FOLDER", ranks.rank)

    it("are drawn alike whatever rank makes them", function()
        os.execute(("mkdir -p %s/a %s/b"):format(folder, folder))
        for i = 1, 5 do
            local x = (flow.arange(3 * 20 * 30) * i % 251):view(3, 20, 30):to("uint8")
            data.save_png(("%s/%s/%d.png"):format(folder, i < 3 and "a" or "b", i), x)
        end
        local set = data.images(folder, {augment = {data.random_resized_crop(8), data.random_horizontal_flip()}})
        local options = {batch_size = 5, shuffle = true, seed = 3}
        local want = data.loader(set, options):next()
        options.placement, options.sbp = everywhere, "S(0)"
        local got = data.loader(set, options):next()
        assert.are.equal("S(0)", tostring(got[1].sbp))
        assert.are.same(want[1]:totable(), got[1]:totable())
        assert.are.same(want[2]:totable(), got[2]:totable())
        os.execute("rm -r " .. folder)
    end)
end)
