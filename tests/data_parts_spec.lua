-- data_parts_spec.lua -- datasets made of others.
local flow = require "flow"
local support = require "tests.support"

local data, message = flow.data, support.message_of
local numbers = data.tensors(flow.arange(10))

local function all(dataset, opts)
    local list = {}
    for batch in data.loader(dataset, opts or {batch_size = 4}) do
        for _, value in ipairs(batch[1]:totable()) do list[#list + 1] = value end
    end
    return list
end

describe("datasets of others:", function()
    it("subset", function()
        assert.are.same({3, 1, 1}, all(data.subset(numbers, {3, 1, 1})))
        assert.are.equal("subset: positions must be from 0 to 9", message(function() data.subset(numbers, {10}) end))
    end)

    it("random_split has every item once, in the order of the seed", function()
        local one, two = data.random_split(numbers, {7, 3}, {seed = 1})
        local again = data.random_split(numbers, {0.7, 0.3}, {seed = 1})
        assert.are.same({7, 3}, {#one, #two})
        assert.are.same(all(one), all(again))
        local found = table.move(all(two), 1, 3, 8, all(one))
        table.sort(found)
        assert.are.same(all(numbers), found)
        assert.are.equal("random_split: sizes must add up to 10, the items there are, or shares to 1; they add up to 9",
            message(function() data.random_split(numbers, {4, 5}) end))
    end)

    it("concat", function()
        local both = data.concat(numbers, data.tensors(flow.tensor {20, 21}))
        assert.are.equal(12, #both)
        assert.are.same({20, 0, 21, 9}, both:batch(flow.tensor {10, 0, 11, 9})[1]:totable())
        assert.are.same({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 21}, all(both))
        local shuffled = all(both, {batch_size = 5, shuffle = true, seed = 3})
        table.sort(shuffled)
        assert.are.same({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 21}, shuffled)
    end)

    it("weighted draws anew for each epoch", function()
        local some = data.weighted(numbers, {0, 0, 1, 0, 3, 0, 0, 0, 0, 0}, 400)
        local loader, counts = data.loader(some, {batch_size = 100, seed = 5}), {}
        local epochs = {}
        for e = 1, 2 do
            epochs[e] = {}
            for batch in loader do table.move(batch[1]:totable(), 1, 100, #epochs[e] + 1, epochs[e]) end
        end
        for _, value in ipairs(epochs[1]) do counts[value] = (counts[value] or 0) + 1 end
        assert.are.equal(400, counts[2] + counts[4])
        assert.is_true(counts[4] > 250 and counts[4] < 350)
        assert.are_not.same(epochs[1], epochs[2])
        local once = all(data.weighted(numbers, flow.ones(10), 10, {replacement = false}))
        table.sort(once)
        assert.are.same(all(numbers), once)
        assert.are.equal("weighted: 3 items cannot be drawn without replacement from 2",
            message(function() data.weighted(numbers, {1, 1, 0, 0, 0, 0, 0, 0, 0, 0}, 3, {replacement = false}) end))
    end)
end)
