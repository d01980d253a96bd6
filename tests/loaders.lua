-- loaders.lua -- what the specs of data.loader share: datasets, a transform that draws, and what an epoch gives.
local flow = require "flow"
local assert = require "luassert"
local data = flow.data

local M = {}

-- Fails unless f raises `message` at a line of the tests.
function M.fails(message, f, ...)
    local ok, got = pcall(f, ...)
    assert.is_false(ok)
    assert.matches("tests/[%w_]+%.lua:%d+: ", got)
    assert.are.equal(message, (got:gsub("^.-:%d+: ", "", 1)))
end

-- A dataset of a function of the position.
function M.items(count, get) return setmetatable({get = get}, {__len = function() return count end}) end

function M.squares(count)
    return M.items(count, function(_, i) return {x = flow.full({2}, i * i), label = i, name = "n" .. i} end)
end

-- The values of a field of all batches.
function M.all(loader, field)
    local list = {}
    for batch in loader do
        for _, v in ipairs(batch[field]:totable()) do list[#list + 1] = v end
    end
    return list
end

-- Images and labels; a transform that mirrors, scales and draws.
function M.images(count)
    return data.tensors(flow.arange(count * 12):view(count, 2, 6):to("float32"), flow.arange(count))
end

function M.augment(item, random, scale)
    local x = item[1]
    if random() < 0.5 then x = x:flip(1) end
    x = x:narrow(1, random(0, 2), 4):mul(scale):add(random:normal(0, 2))
    return {x = x, label = item[2], draw = random(1000), name = "n" .. item[2], odd = item[2] % 2 == 1}
end

-- All that an epoch gives, as text.
function M.transcript(loader)
    local list = {}
    for batch in loader do
        for _, field in ipairs {"x", "label", "draw", "odd"} do
            local t = batch[field]
            list[#list + 1] = ("%s %s %s"):format(t.dtype, table.concat(t.shape, "x"), flow.data.hash(t:tobytes()))
        end
        list[#list + 1] = table.concat(batch.name, " ")
    end
    return table.concat(list, "\n")
end

return M
