-- indexing.lua -- x[key] and x[key] = value where the key holds several tensors: positions (integers) or masks (bool).
--
-- index.c has made views of the numbers and ranges of the key; the rest is x and pairs (axis, tensor). Masks become
-- positions of their true elements; all positions are broadcast together and become positions on one axis that
-- stands for theirs. Axes that do not stand side by side are moved to the front, as in PyTorch.

local flow = require "flow"
local check = require "flow.check"

local M = {}

local integers = {int64 = true, int32 = true, int8 = true, uint8 = true}

-- The pairs as a list of {axis =, at = int64 tensor}, one for every axis.
local function read_pairs(given)
    local list = {}
    for i = 1, #given, 2 do
        local axis, t = given[i], given[i + 1]
        if t.dtype == "bool" then
            local found = t:nonzero()
            for k = 0, t.ndim - 1 do list[#list + 1] = {axis = axis + k, at = found:select(1, k)} end
        elseif integers[t.dtype] then
            list[#list + 1] = {axis = axis, at = t:to("int64")}
        else
            check.fail("index: a tensor of positions must be of integers or bool, got %s", t.dtype)
        end
    end
    return list
end

local function adjacent(list)
    for i = 2, #list do
        if list[i].axis ~= list[i - 1].axis + 1 then return false end
    end
    return true
end

-- x with the indexed axes in front, unless they stand side by side.
local function bring_together(x, list)
    if adjacent(list) then return x end
    local order, taken = {}, {}
    for i, entry in ipairs(list) do
        order[i], taken[entry.axis] = entry.axis, true
    end
    for axis = 0, x.ndim - 1 do
        if not taken[axis] then order[#order + 1] = axis end
    end
    for i, entry in ipairs(list) do entry.axis = i - 1 end
    return x:permute(order)
end

local function check_broadcast(a, b)
    for k = 1, math.min(a.ndim, b.ndim) do
        local n, m = a:size(-k), b:size(-k)
        if n ~= m and n ~= 1 and m ~= 1 then
            check.fail("index: positions of shapes %s and %s do not broadcast", check.shape(a), check.shape(b))
        end
    end
end

-- Positions on the axis that the indexed axes are when merged; each is checked against its own axis.
local function merged_positions(x, list)
    local place = 0
    for i, entry in ipairs(list) do
        local size = x:size(entry.axis)
        for j = 1, i - 1 do check_broadcast(list[j].at, entry.at) end
        place = place * size + flow._op.wrap_index(entry.at, size)
    end
    return place
end

-- x with axes first .. last as one: a view when that is possible (then true is returned too).
local function merge(x, first, last)
    local sizes = {}
    for axis = 0, x.ndim - 1 do
        if axis <= first or axis > last then sizes[#sizes + 1] = x:size(axis)
        else sizes[#sizes] = sizes[#sizes] * x:size(axis) end
    end
    local is_view, view = pcall(x.view, x, sizes)
    if is_view then return view, true end
    return x:reshape(sizes), false
end

-- The key that has a tensor on an axis.
local function key_of(axis, t)
    local key = {}
    for i = 1, axis do key[i] = {} end
    key[axis + 1] = t
    return key
end

---The value of x[key]: x after views, given = {axis, tensor, axis, tensor, ...}.
function M.get(x, given)
    local list = read_pairs(given)
    x = bring_together(x, list)
    local first, last = list[1].axis, list[#list].axis
    return merge(x, first, last)[key_of(first, merged_positions(x, list))]
end

---x[key] = value.
function M.set(x, given, value)
    local list = read_pairs(given)
    x = bring_together(x, list)
    local first, last = list[1].axis, list[#list].axis
    local flat, is_view = merge(x, first, last)
    flat[key_of(first, merged_positions(x, list))] = value
    if not is_view then x:copy_(flat:reshape(x.shape)) end
end

---x[key] = value where the key cuts an axis that is split over ranks, so that a view would be a copy: the value is
---written into a whole tensor on every rank, and x takes its part.
function M.place(x, key, value)
    local sbp = {}
    for k = 1, #x.placement.hierarchy do sbp[k] = flow.sbp.broadcast end
    local function whole(dtype) return flow.zeros(x.shape, {dtype = dtype, placement = x.placement, sbp = sbp}) end
    local mask, values = whole "bool", whole(x.dtype)
    mask[key] = true
    values[key] = value
    x:copy_(flow.where(mask, values, x))
end

-- The tensors of index_put as pairs for read_pairs: one for each axis from 0 on, a mask for as many as it has.
local function pairs_of(who, indices)
    local given, axis = {}, 0
    for i, t in ipairs(flow.is_tensor(indices) and {indices} or indices) do
        if not flow.is_tensor(t) then check.fail("%s: index %d must be a tensor, got %s", who, i, check.got(t)) end
        if t.dtype:find "float" then check.fail("%s: index %d must be of integers or bool, got %s", who, i, t.dtype) end
        given[#given + 1], given[#given + 2] = axis, t
        axis = axis + (t.dtype == "bool" and t.ndim or 1)
    end
    if axis == 0 then check.fail("%s: needs at least one index", who) end
    return given
end

-- x[indices] += values: an element with several values gets all of them.
local function accumulate_at(x, list, values)
    local flat, is_view = merge(x, list[1].axis, list[#list].axis)
    local positions = merged_positions(x, list)
    local region, rows = {table.unpack(positions.shape)}, {positions:numel()}
    for axis = 1, flat.ndim - 1 do region[#region + 1], rows[#rows + 1] = flat:size(axis), flat:size(axis) end
    if not flow.is_tensor(values) then
        values = flow._op.full_like(x, values):reshape(-1):narrow(0, 0, 1):reshape({})
    end
    flat:index_add_(0, positions:reshape(-1), values:to(x.dtype):expand(region):reshape(rows))
    if not is_view then x:copy_(flat:reshape(x.shape)) end
end

local function put_at(who, x, indices, values, accumulate)
    local given = pairs_of(who, indices)
    if accumulate then accumulate_at(x, read_pairs(given), values)
    else x[flow.is_tensor(indices) and indices or {table.unpack(indices)}] = values end
    return x
end

---Writes values at the positions of the indices, tensors of positions or masks for the first axes, as
---x[indices] = values does; accumulate: they are added to what is there, all of them where positions are equal.
function M.index_put_(x, indices, values, accumulate) return put_at("index_put_", x, indices, values, accumulate) end

---x with values at the positions of the indices: see x:index_put_.
function M.index_put(x, indices, values, accumulate)
    return put_at("index_put", x:clone(), indices, values, accumulate)
end

check.takes(M, {
    "index_put(x: tensor, indices: tensor or list, values: value, accumulate: boolean = false)",
    "index_put_(x: tensor, indices: tensor or list, values: value, accumulate: boolean = false)",
})

return M
