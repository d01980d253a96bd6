-- data_batch.lua -- one batch of a loader, from its positions to the tensors that a script gets.
--
-- A batch is asked for, and its fields are then there or under way: a dataset may return before the values exist. When
-- they do, they are copied to the loader's device; so a batch that was asked for ahead is there when it is given. An
-- item's number in messages is its position in the dataset.

local flow = require "flow"
local check = require "flow.check"
local collate = require "flow.data_collate"

local io_ = flow._io

local M = {}

---The rows of a batch of `count` that this rank holds.
function M.own_rows(count, placement, sbp)
    return flow.arange(count, {placement = placement, sbp = sbp}):to_local():to("cpu")
end

-- A copy: a dataset may give the same table each time, with other tensors.
local function copy_of(batch)
    if type(batch) ~= "table" then check.fail("loader: a dataset's batch must be a table, got %s", check.got(batch)) end
    local copy = setmetatable({}, getmetatable(batch))
    for key, value in next, batch do rawset(copy, key, value) end
    return copy
end

---Is this the error that Ctrl-C becomes?
function M.is_interrupt(message)
    return type(message) == "string" and message:find("interrupted!?$") ~= nil
end

-- The error of an item: its number, and what went wrong where.
local function item_error(number, message)
    if type(message) ~= "string" or M.is_interrupt(message) then error(message, 0) end
    check.fail("loader: item %d: %s", number, message)
end

local function get(loader, number, pass)
    local ok, item = pcall(loader.dataset.get, loader.dataset, number, pass)
    if not ok then item_error(number, item) end
    collate.check_item(item, number)
    return item
end

-- The items of these numbers, and the numbers again; with skip_errors without those that fail.
local function get_all(loader, numbers, pass, skipped)
    local items, kept = {}, {}
    for i, number in ipairs(numbers) do
        local ok, item = pcall(get, loader, number, pass)
        if ok then
            items[#items + 1], kept[#kept + 1] = item, number
        elseif not loader.skip_errors or M.is_interrupt(item) then
            error(item, 0)
        else
            skipped[#skipped + 1] = {place = i, message = item}
        end
    end
    return items, kept
end

local function collated(loader, items, numbers)
    if #items == 0 then return nil end
    if not loader.collate then return collate.stack(items, numbers) end
    local batch = loader.collate(items)
    if type(batch) ~= "table" then check.fail("loader: collate must give a table, got %s", check.got(batch)) end
    return batch
end

-- The batch without its rows: what a rank has that holds none of them.
local function without_rows(fields)
    for key, value in next, fields do
        if check.is_tensor(value) then fields[key] = value:narrow(0, 0, 0) else fields[key] = {} end
    end
    return fields
end

local function from_items(loader, batch, positions, pass)
    local numbers = positions:totable()
    local none = #numbers == 0
    if none then numbers[1] = batch.positions[0]:item() end
    local items, kept = get_all(loader, numbers, pass, batch.skipped)
    local fields = collated(loader, items, kept)
    batch.fields = none and without_rows(fields) or fields
end

---Asks for the items at `positions`, of which the first `real` are not there to fill the batch up.
---@param loader flow.data.Loader
---@param positions any int64 tensor, of all ranks together
---@param real integer
---@param pass {seed: integer, epoch: integer}
---@return table
function M.ask(loader, positions, real, pass)
    local batch = {positions = positions, count = positions:size(0), real = real, skipped = {}}
    local own = positions
    if loader.placement then
        batch.rows = M.own_rows(batch.count, loader.placement, loader.sbp)
        own = positions:index_select(0, batch.rows)
    end
    if loader.kind == "batch" then batch.fields = copy_of(loader.dataset:batch(own, pass))
    else from_items(loader, batch, own, pass) end
    return batch
end

local function is_ready(fields)
    for _, value in next, fields do
        if check.is_tensor(value) and not io_.ready(value) then return false end
    end
    return true
end

-- Copies the fields to the device of the batch; the ranks need not do so at the same time.
local function move(loader, batch)
    batch.moved = true
    if not loader.device then return end
    for key, value in next, batch.fields do
        if check.is_tensor(value) then batch.fields[key] = value:to(loader.device) end
    end
end

-- The field as a global tensor, of which this rank has its own rows.
local function to_global(loader, batch, value)
    local shape = value.shape
    shape[1] = batch.count
    local whole = flow.empty(shape, {placement = loader.placement, sbp = loader.sbp, dtype = value.dtype})
    if batch.rows:size(0) > 0 then whole:to_local():copy_(value) end
    return whole
end

---Brings a batch that was asked for further, without waiting.
function M.progress(loader, batch)
    if batch.fields and not batch.moved and is_ready(batch.fields) then move(loader, batch) end
end

---The batch as the script gets it, nil when all of its items were left out. Global tensors are made here, in the order
---of the fields' names: all ranks make them at the same points of the program.
function M.finish(loader, batch)
    local fields = batch.fields
    if fields and not batch.moved then move(loader, batch) end
    if fields and loader.placement then
        for _, key in ipairs(check.sorted_keys(fields)) do
            if check.is_tensor(fields[key]) then fields[key] = to_global(loader, batch, fields[key]) end
        end
    end
    return fields
end

return M
