-- data_loader_spec.lua -- batches that are copied to the GPU ahead of time: equal to the CPU's.
local flow = require "flow"
local cuda = require "tests.cuda.support"
local data = flow.data

local COUNT = 23
local images = data.tensors(flow.arange(COUNT * 6):view(COUNT, 2, 3):to "float32", flow.arange(COUNT))

local function transform(item, random)
    return {x = item[1]:mul(random()), label = item[2], name = "n" .. item[2]}
end

-- All of an epoch; the tensors must be on that device.
local function epoch(options, device)
    local list = {}
    for batch in data.loader(images, options) do
        local values = {}
        for key, value in pairs(batch) do
            if flow.is_tensor(value) then assert.are.equal(device, value.device) end
            values[key] = flow.is_tensor(value) and value:totable() or value
        end
        list[#list + 1] = values
    end
    return list
end

describe("a loader for the GPU", function()
    for _, case in ipairs {{"tensors", nil, 0}, {"a transform in the script", transform, 0}, {"workers", transform, 2}} do
        cuda.it("copies batches of " .. case[1], function()
            for _, prefetch in ipairs {0, 1, 4} do
                local function options(device)
                    return {batch_size = 4, shuffle = true, seed = 1, transform = case[2], workers = case[3], prefetch = prefetch, device = device}
                end
                assert.are.same(epoch(options("cpu"), "cpu"), epoch(options("cuda"), "cuda"))
            end
        end)
    end

    cuda.it("copies what was asked for ahead", function()
        local loader = data.loader(images, {batch_size = 4, device = "cuda"})
        assert.are.equal(2, loader.prefetch)
        local first = loader:next()[2]
        local second = loader.pass.ahead[1].fields[2]
        assert.are.equal("cuda", second.device)
        assert.are.same({0, 1, 2, 3}, first:totable())
        assert.are.same({4, 5, 6, 7}, loader:next()[2]:totable())
    end)

    cuda.it("makes global batches there", function()
        local place = flow.placement("cuda", {0})
        local loader = data.loader(images, {batch_size = 4, transform = transform, workers = 1, seed = 1, placement = place, sbp = "S(0)"})
        local plain = data.loader(images, {batch_size = 4, transform = transform, seed = 1})
        for batch in loader do
            local want = plain:next()
            assert.is_true(batch.x.is_global)
            assert.are.equal("cuda", batch.x.placement.type)
            assert.are.same(want.x:totable(), batch.x:totable())
            assert.are.same(want.name, batch.name)
        end
    end)

    cuda.it("takes the rows of tensors that lie there", function()
        local set = data.tensors(images.tensors[1]:to "cuda", images.tensors[2]:to "cuda")
        local o = {batch_size = 5, transform = transform, workers = 1, seed = 1}
        local want, got = data.loader(images, o), data.loader(set, o)
        for batch in got do assert.are.same(want:next().x:totable(), batch.x:totable()) end
    end)
end)
