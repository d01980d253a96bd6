-- data_sampler.lua -- the batches of positions that a script's own `sampler` or `batch_sampler` gives a loader.

local flow = require "flow"
local check = require "flow.check"

local M = {}

-- A list or tensor of positions as an int64 tensor of one axis; false for any other value.
local function tensor_of(positions)
    if check.is_tensor(positions) then
        return positions.ndim == 1 and positions.dtype:find "int" and positions:to "int64"
    end
    if not check.is("list", positions) then return false end
    for _, position in ipairs(positions) do
        if math.type(position) ~= "integer" then return false end
    end
    return flow.tensor(positions, {dtype = "int64"})
end

-- A batch_sampler: the positions of `sampler`, in its order, `size` to a batch.
local function in_batches(sampler, size, drop_last)
    return function(epoch)
        local list = sampler
        if check.is("function", sampler) then list = sampler(epoch) end
        local positions = tensor_of(list)
        if not positions then
            check.fail("loader: sampler must give a list of positions, whole numbers from 0, got %s", check.got(list))
        end
        local out, total = {}, #positions
        for first = 0, total - (drop_last and size or 1), size do
            out[#out + 1] = positions:narrow(0, first, math.min(size, total - first))
        end
        return out
    end
end

---The batch_sampler of a loader with these options, false: it has none. Options that contradict it are an error.
---@param o table the loader's options
function M.of(o)
    if o.sampler and o.batch_sampler then check.fail("loader: sampler and batch_sampler contradict; give one") end
    for _, name in ipairs(o.batch_sampler and {"batch_size", "shuffle", "drop_last", "pad_last"} or {}) do
        if o[name] then check.fail("loader: batch_sampler says what items a batch has; leave out %s", name) end
    end
    for _, name in ipairs(o.sampler and {"shuffle", "pad_last"} or {}) do
        if o[name] then check.fail("loader: sampler says what items an epoch has; leave out %s", name) end
    end
    return o.batch_sampler or o.sampler and in_batches(o.sampler, o.batch_size or 1, o.drop_last) or false
end

---The batches of an epoch, a list of lists or tensors of positions. The last list is kept in loader.sampled.
---@param loader flow.data.Loader one with a batch_sampler
---@param epoch integer
function M.batches(loader, epoch)
    local kept, sampler = loader.sampled, loader.batch_sampler
    if kept and kept.epoch == epoch then return kept.batches end
    local list = sampler
    if check.is("function", sampler) then list = sampler(epoch) end
    if not check.is("list", list) then
        check.fail("loader: batch_sampler must give a list of batches, got %s", check.got(list))
    end
    loader.sampled = {epoch = epoch, batches = list}
    return list
end

---Batch `number` of the list, from 1, as a tensor of positions.
---@param list any[]
---@param number integer
function M.positions(list, number)
    local positions = tensor_of(list[number])
    if not positions or #positions == 0 then
        check.fail("loader: batch %d of batch_sampler must be a list of positions, whole numbers from 0, got %s",
            number, check.got(list[number]))
    end
    return positions
end

return M
