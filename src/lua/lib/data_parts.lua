-- data_parts.lua -- datasets made of others: some of the items of one, several one after the other, items drawn by
-- weight. They give batches or items, as the datasets do that they are made of.

local flow = require "flow"
local check = require "flow.check"

local parts = {}

local function has(dataset, name)
    local ok, method = pcall(function() return dataset[name] end)
    return ok and type(method) == "function"
end

check.define_type("dataset", "a dataset", function(value)
    return (type(value) == "table" or type(value) == "userdata") and not check.is_tensor(value)
        and (has(value, "batch") or has(value, "get"))
end)

local function check_positions(positions)
    local fits = check.is_tensor(positions) and positions.ndim == 1 and not positions.is_global
        and positions.dtype:find "int"
    if not fits then
        check.fail("batch: positions must be a 1-D local tensor of whole numbers, got %s", check.got(positions))
    end
end

-- A dataset of `count` items; place_of(positions, pass) gives the place of positions in another one.
local function redirected(dataset, count, place_of, at_once)
    local self = {_at_once = at_once}
    if has(dataset, "batch") then
        function self:batch(positions, pass) -- luacheck: ignore self
            check_positions(positions)
            return dataset:batch(place_of(positions, pass), pass)
        end
    end
    if has(dataset, "get") then
        function self:get(position, pass) -- luacheck: ignore self
            return dataset:get(place_of(flow.tensor({position}, {dtype = "int64"}), pass):item(), pass)
        end
    end
    return setmetatable(self, {__len = function() return count end})
end

---The items of a dataset at these positions, in their order; one may occur several times.
---@param dataset any
---@param positions any a list, or a tensor of whole numbers
function parts.subset(dataset, positions)
    local at = check.is_tensor(positions) and positions or flow.tensor(positions, {dtype = "int64"})
    if at.ndim ~= 1 or not at.dtype:find "int" then
        check.fail("subset: positions must be a list of whole numbers, got %s", check.got(positions))
    end
    if at:numel() > 0 and (at:min():item() < 0 or at:max():item() >= #dataset) then
        check.fail("subset: positions must be from 0 to %d", #dataset - 1)
    end
    at = at:to "int64"
    return redirected(dataset, at:numel(), function(positions_) return at:index_select(0, positions_:to "int64") end,
        has(dataset, "batch") and dataset._at_once)
end

-- Whole sizes from sizes, or from shares that add up to 1: the rest of rounding goes to the first ones.
local function sizes_of(sizes, total)
    local sum, whole, list = 0, true, {}
    for i, size in ipairs(sizes) do
        if type(size) ~= "number" or size < 0 then
            check.fail("random_split: size %d must be a number from 0 on, got %s", i, check.got(size))
        end
        sum, whole = sum + size, whole and math.type(size) == "integer"
    end
    if whole and sum == total then return sizes end
    if whole or math.abs(sum - 1) > 1e-9 then
        check.fail("random_split: sizes must add up to %d, the items there are, or shares to 1; they add up to %s",
            total, tostring(sum))
    end
    local left = total
    for i, share in ipairs(sizes) do
        list[i] = math.floor(total * share)
        left = left - list[i]
    end
    for i = 0, left - 1 do list[i % #list + 1] = list[i % #list + 1] + 1 end
    return list
end

---A dataset's items in a random order, cut into datasets of these sizes (or shares): a result for each.
---@param dataset any
---@param sizes number[]
---@param opts {seed: integer}? of the order; default: a number of the default generator
function parts.random_split(dataset, sizes, opts)
    local list, at, out = sizes_of(sizes, #dataset), 0, {}
    local generator = opts.seed and flow.generator(opts.seed) or flow.default_generator()
    local order = flow.with_generator(generator, flow.randperm, #dataset)
    for i, size in ipairs(list) do
        out[i] = parts.subset(dataset, order:narrow(0, at, size))
        at = at + size
    end
    return table.unpack(out)
end

-- The positions by dataset, as {dataset, positions in it, places in the batch}.
local function spread(datasets, positions)
    local list, start = {}, 0
    for _, dataset in ipairs(datasets) do
        local stop = start + #dataset
        local places = positions:ge(start):logical_and(positions:lt(stop)):nonzero():squeeze(1)
        if places:numel() > 0 then
            list[#list + 1] = {dataset, positions:index_select(0, places) - start, places}
        end
        start = stop
    end
    return list
end

local function batch_of(datasets, positions, pass)
    local fields, places, count = {}, {}, nil
    for i, part in ipairs(spread(datasets, positions:to "int64")) do
        local batch = part[1]:batch(part[2], pass)
        places[i] = part[3]
        if count and #batch ~= count then
            check.fail("concat: batches have %d fields and %d", count, #batch)
        end
        count = #batch
        for k = 1, count do
            fields[k] = fields[k] or {}
            fields[k][i] = batch[k]
        end
    end
    local order, out = flow.cat(places, 0):argsort(0), {}
    for k, list in ipairs(fields) do
        local joined = flow.cat(list, 0)
        out[k] = joined:index_select(0, order:to(joined.device))
    end
    return out
end

---The items of several datasets one after the other.
---@param ... any
function parts.concat(...)
    local datasets, count, whole, single, at_once = {...}, 0, true, true, true
    if #datasets == 0 then check.fail("concat: takes one dataset or more") end
    for _, dataset in ipairs(datasets) do
        count = count + #dataset
        whole, single = whole and has(dataset, "batch"), single and has(dataset, "get")
        at_once = at_once and whole and dataset._at_once == true
    end
    if not whole and not single then
        check.fail("concat: some of the datasets give batches alone, others items alone")
    end
    local self = {_at_once = at_once}
    if whole then
        function self:batch(positions, pass) -- luacheck: ignore self
            check_positions(positions)
            return batch_of(datasets, positions, pass)
        end
    end
    if single then
        function self:get(position, pass) -- luacheck: ignore self
            for _, dataset in ipairs(datasets) do
                if position < #dataset then return dataset:get(position, pass) end
                position = position - #dataset
            end
            check.fail("get: there is no such item; the dataset has %d", count)
        end
    end
    return setmetatable(self, {__len = function() return count end})
end

---`count` items of a dataset that are drawn by weight anew for each epoch, by the loader's seed. Without replacement
---each item occurs once at most.
---@param dataset any
---@param weights any a list, or a tensor: one for each item
---@param count integer
---@param opts {replacement: boolean}?
function parts.weighted(dataset, weights, count, opts)
    local w = check.is_tensor(weights) and weights:to "float64" or flow.tensor(weights, {dtype = "float64"})
    if w.ndim ~= 1 or w:numel() ~= #dataset then
        check.fail("weighted: weights must be %d numbers, one for each item, got %s", #dataset, check.shape(w))
    end
    if w:min():item() < 0 or w:sum():item() <= 0 then
        check.fail("weighted: weights must not be negative, and some must be larger than 0")
    end
    if not opts.replacement and w:gt(0):sum():item() < count then
        check.fail("weighted: %d items cannot be drawn without replacement from %d", count,
            math.tointeger(w:gt(0):sum():item()))
    end
    local drawn, key                                                -- of the epoch that was asked for last
    local function place_of(positions, pass)
        pass = pass or {seed = 0, epoch = 0}
        local this = pass.seed .. " " .. pass.epoch
        if this ~= key then
            local generator = flow.generator(pass.seed ~ (pass.epoch + 1) * 0x9E3779B97F4A7C15 & math.maxinteger)
            drawn, key = flow.with_generator(generator, flow.multinomial, w, count, opts.replacement), this
        end
        return drawn:index_select(0, positions:to "int64")
    end
    return redirected(dataset, count, place_of, false)
end

check.takes(parts, {
    "subset(dataset: dataset, positions: tensor or list)",
    "random_split(dataset: dataset, sizes: list, {seed: integer?})", "concat(...: dataset)",
    "weighted(dataset: dataset, weights: tensor or list, count: integer >= 1, {replacement: boolean = true})",
})
return parts
