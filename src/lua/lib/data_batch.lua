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

---The rows of a batch of `count` that this rank holds. In a planned world only their places are known.
function M.own_rows(count, placement, sbp)
    local rows = flow.arange(count, {placement = placement, sbp = sbp})
    if not flow._plan.on then return rows:to_local():to("cpu") end
    for _, part in ipairs(flow._windows(rows)) do
        if part.rank == flow.rank() then return flow.arange(part.start[1], part.start[1] + part.size[1]) end
    end
    return flow.arange(0)
end

-- A copy: a dataset may give the same table each time, with other tensors.
local function copy_of(batch)
    if type(batch) ~= "table" then check.fail("loader: a dataset's batch must be a table, got %s", check.got(batch)) end
    local copy = setmetatable({}, getmetatable(batch))
    for key, value in next, batch do rawset(copy, key, value) end
    return copy
end

---True for the error that Ctrl-C becomes.
function M.is_interrupt(message)
    return type(message) == "string" and message:find("interrupted!?$") ~= nil
end

-- The error of an item: its number, and what went wrong where.
local function item_error(number, message)
    if type(message) ~= "string" or M.is_interrupt(message) then error(message, 0) end
    check.fail("loader: item %d: %s", number, message)
end

-- The row of a batch of one.
local function row(dataset, number, pass)
    local item = {}
    for key, value in next, copy_of(dataset:batch(flow.tensor {number}, pass)) do
        if check.is_tensor(value) then item[key] = value[0] else item[key] = value[1] end
    end
    return item
end

local function get(loader, number, pass)
    local dataset = loader.dataset
    local ok, item = pcall(loader.kind == "row" and row or dataset.get, dataset, number, pass)
    if not ok then item_error(number, item) end
    collate.check_item(item, number)
    return item
end

-- The items of these numbers, the numbers and their places; with skip_errors without those that fail.
local function get_all(loader, numbers, pass, skipped)
    local items, kept, places = {}, {}, {}
    for i, number in ipairs(numbers) do
        local ok, item = pcall(get, loader, number, pass)
        if ok then
            local n = #items + 1
            items[n], kept[n], places[n] = item, number, i
        elseif not loader.skip_errors or M.is_interrupt(item) then
            error(item, 0)
        else
            skipped[#skipped + 1] = {place = i, message = item}
        end
    end
    return items, kept, places
end

local function collated(loader, items, numbers)
    if #items == 0 then return nil end
    if not loader.collate then return collate.stack(items, numbers) end
    local batch = loader.collate(items)
    if type(batch) ~= "table" then check.fail("loader: collate must give a table, got %s", check.got(batch)) end
    return batch
end

-- The batch without its rows: that of a rank that holds none of them.
local function without_rows(fields)
    for key, value in next, fields do
        if check.is_tensor(value) then fields[key] = value:narrow(0, 0, 0) else fields[key] = {} end
    end
    return fields
end

-- ---- items that functions make or change: transform, data.generate ----

-- A tensor whose bytes such a function can see.
local function on_host(value)
    return value:detach():to("cpu"):contiguous()
end

-- The rows of a dataset's batch: tensors as they are, of other fields (lists) the entry of each item.
local function columns_of(fields, numbers)
    local columns, given = {}, nil
    for key, value in next, fields do
        local is_tensor = check.is_tensor(value)
        local size = is_tensor and value:dim() > 0 and value:size(0) or type(value) == "table" and #value or -1
        if size ~= #numbers then
            check.fail("loader: field %s of a dataset's batch of %d must be a tensor or a list of as many rows, got %s",
                tostring(key), #numbers, is_tensor and "shape " .. check.shape(value) or check.got(value))
        end
        if is_tensor then columns[key] = on_host(value)
        else
            given = given or {}
            for i, entry in ipairs(value) do
                given[i] = given[i] or {}
                given[i][key] = entry
            end
        end
    end
    return columns, given
end

local function given_items(loader, batch, numbers, pass)
    local items, kept, places = get_all(loader, numbers, pass, batch.skipped)
    for i, item in ipairs(items) do
        items[i] = {}
        for key, value in next, item do items[i][key] = check.is_tensor(value) and on_host(value) or value end
    end
    return items, kept, places
end

local function call_columns(dataset) return dataset:_columns() end

-- Has the crew make items that are rows of the dataset's own tensors: it reads them there, and nothing is gathered
-- before. nil: there are no such tensors.
local function make_in_place(loader, own, pass)
    local ok, columns = pcall(call_columns, loader.dataset)
    if not ok or not columns or flow._plan.on then return nil end
    return io_.make_in_place(loader.crew, own, columns, nil, pass, loader.skip_errors, not loader.collate,
        loader.device)
end

-- Has the crew make the items at these positions.
local function make(loader, batch, own, pass)
    batch.job = loader.kind == "batch" and make_in_place(loader, own, pass)
    if batch.job then return end
    local numbers, columns, given = own:totable(), {}, nil
    if loader.kind == "batch" then columns, given = columns_of(copy_of(loader.dataset:batch(own, pass)), numbers)
    elseif loader.kind == "get" then given, numbers, batch.places = given_items(loader, batch, numbers, pass) end
    batch.job = io_.make(loader.crew, numbers, columns, given, pass, loader.skip_errors, not loader.collate,
        loader.device)
end

-- Notes the items that failed, in the order of the batch.
local function note_errors(loader, batch, errors)
    for _, e in ipairs(errors) do
        local _, message = pcall(item_error, e.number, e.message)
        if not loader.skip_errors or M.is_interrupt(message) then error(message, 0) end
        local place = batch.places and batch.places[e.place] or e.place
        batch.skipped[#batch.skipped + 1] = {place = place, message = message}
    end
end

-- Waits for the crew's items and takes them into the batch.
local function take(loader, batch)
    local errors, fields, items, numbers = batch.job:take()
    note_errors(loader, batch, errors)
    fields = fields or collated(loader, items, numbers)
    batch.job:drop()
    batch.job = nil
    batch.fields = batch.none and fields and without_rows(fields) or fields
end

-- ---- the steps of a batch ----

---A batch of the dataset, as it gives it.
function M.whole(loader, positions, pass)
    local batch = loader.dataset:batch(positions, pass)
    return loader.fresh and batch or copy_of(batch)
end

---Asks for the items at `positions`, of which the first `real` are not there to fill the batch up.
---@param loader flow.data.Loader
---@param positions any int64 tensor, of all ranks together
---@param real integer
---@param pass {seed: integer, epoch: integer}
---@return table
function M.ask(loader, positions, real, pass)
    local batch = {count = positions:size(0), real = real, skipped = {}}
    local own = positions
    if loader.placement then
        batch.rows = M.own_rows(batch.count, loader.placement, loader.sbp)
        own = positions:index_select(0, batch.rows)
    end
    if loader.kind == "batch" and not loader.crew then
        batch.fields = M.whole(loader, own, pass)
        return batch
    end
    batch.none = own:size(0) == 0                       -- an item for the dtypes and shapes
    if batch.none then own = positions:narrow(0, 0, 1) end
    if loader.crew then
        make(loader, batch, own, pass)
        if loader.workers == 0 then take(loader, batch) end
    else
        local items, kept = get_all(loader, own:totable(), pass, batch.skipped)
        local fields = collated(loader, items, kept)
        batch.fields = batch.none and without_rows(fields) or fields
    end
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

-- The field as a global tensor, of which this rank has its own rows: they are not copied, so that one that failed is
-- missing in the whole.
local function to_global(loader, batch, value)
    return io_.whole(value, batch.count, loader.placement, loader.sbp)
end

---Brings a batch that was asked for further, without waiting.
function M.progress(loader, batch)
    if batch.job and batch.job:done() then take(loader, batch) end
    if batch.fields and not batch.moved and is_ready(batch.fields) then move(loader, batch) end
end

---The batch as the script gets it, nil when all of its items were left out. Global tensors are made here, in the order
---of the fields' names: all ranks make them at the same points of the program.
function M.finish(loader, batch)
    if batch.job then take(loader, batch) end
    local fields = batch.fields
    if fields and not batch.moved then move(loader, batch) end
    if fields and loader.placement then
        for _, key in ipairs(check.sorted_keys(fields)) do
            if check.is_tensor(fields[key]) then fields[key] = to_global(loader, batch, fields[key]) end
        end
    end
    return fields
end

---The script gets these fields: the error of one that it does not use is raised by flow.sync.
function M.given(fields)
    for _, value in next, fields do
        if check.is_tensor(value) then io_.given(value) end
    end
end

return M
