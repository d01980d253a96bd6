-- indexing.lua -- x[key] and x[key] = value where the key holds tensors: positions (integers) or masks (bool).
--
-- index.c has made views of the numbers and ranges of the key; what is left is x and pairs (axis, tensor). Masks become
-- positions of their true elements. One tensor of positions is an index_select; several are broadcast together and
-- become positions on one axis that stands for theirs.

local flow = require "flow"
local check = require "flow.check"

local M = {}

local integers = {int64 = true, int32 = true, int8 = true, uint8 = true}

local function shape_text(t) return tostring(t.shape) end

-- The mask covers axes axis .. axis + mask.ndim - 1 of x.
local function check_mask(x, mask, axis)
    if mask.ndim == 0 then check.fail("index: a mask needs at least one axis") end
    for i = 0, mask.ndim - 1 do
        if mask:size(i) ~= x:size(axis + i) then
            check.fail("index: a mask of shape %s does not fit axes %d to %d of shape %s", shape_text(mask), axis,
                axis + mask.ndim - 1, shape_text(x))
        end
    end
end

-- Positions, axis by axis, of the true elements of a mask.
local function mask_positions(x, mask, axis)
    check_mask(x, mask, axis)
    local found, list = mask:nonzero(), {}
    for i = 0, mask.ndim - 1 do list[i + 1] = {axis = axis + i, at = found:select(1, i)} end
    return list
end

-- The pairs as a list of {axis =, at = int64 tensor}.
local function read_pairs(x, given)
    local list = {}
    for i = 1, #given, 2 do
        local axis, t = given[i], given[i + 1]
        if t.dtype == "bool" then
            for _, entry in ipairs(mask_positions(x, t, axis)) do list[#list + 1] = entry end
        elseif integers[t.dtype] then
            list[#list + 1] = {axis = axis, at = t:to("int64")}
        else
            check.fail("index: a tensor of positions must be of integers or bool, got %s", t.dtype)
        end
    end
    return list
end

-- Positions from the front, all within the axis.
local function checked(x, entry)
    local size, at = x:size(entry.axis), entry.at
    if at:numel() == 0 then return at end
    local low, high = at:min():item(), at:max():item()
    if low < -size or high >= size then
        check.fail("index: position %d is out of range for axis %d of shape %s", low < -size and low or high, entry.axis,
            shape_text(x))
    end
    if low < 0 then return flow.where(at:lt(0), at + size, at) end
    return at
end

-- All positions broadcast to one shape.
local function broadcast(x, list)
    local sum
    for _, entry in ipairs(list) do
        entry.at = checked(x, entry)
        local zero = entry.at * 0
        sum = sum and sum + zero or zero
    end
    for _, entry in ipairs(list) do entry.at = entry.at + sum end
    return sum.shape
end

local function adjacent(list)
    for i = 2, #list do
        if list[i].axis ~= list[i - 1].axis + 1 then return false end
    end
    return true
end

-- x with the axes of the list moved to the front, when they do not stand side by side.
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

---What x[key] is: x after views, given = {axis, tensor, axis, tensor, ...}.
function M.get(x, given)
    local list = read_pairs(x, given)
    local result = broadcast(x, list)
    x = bring_together(x, list)
    local first, last = list[1].axis, list[#list].axis
    local place = list[1].at
    for i = 2, #list do place = place * x:size(list[i].axis) + list[i].at end
    local sizes = {}
    for i = 0, first - 1 do sizes[#sizes + 1] = x:size(i) end
    for _, n in ipairs(result) do sizes[#sizes + 1] = n end
    for i = last + 1, x.ndim - 1 do sizes[#sizes + 1] = x:size(i) end
    return x:flatten(first, last):index_select(first, place:flatten()):reshape(sizes)
end

-- A mask of x's own leading shape and one number: no positions are needed.
local function fill_mask(x, axis, mask, value)
    check_mask(x, mask, axis)
    local sizes = {}
    for i = 1, axis do sizes[i] = 1 end
    for i = 1, mask.ndim do sizes[#sizes + 1] = mask:size(i - 1) end
    for _ = axis + mask.ndim + 1, x.ndim do sizes[#sizes + 1] = 1 end
    x:masked_fill_(mask:reshape(sizes), value)
end

-- x[..., positions, ...] = value for every combination in turn; later ones win, as with equal positions.
local function write_each(x, list, shape, value)
    local columns, count = {}, 1
    for _, n in ipairs(shape) do count = count * n end
    for i, entry in ipairs(list) do columns[i] = entry.at:reshape({count}):totable() end
    local rows
    if flow.is_tensor(value) and value.ndim > 0 then
        local sizes, first, last = {}, list[1].axis, list[#list].axis
        for i = 0, first - 1 do sizes[#sizes + 1] = x:size(i) end
        for _, n in ipairs(shape) do sizes[#sizes + 1] = n end
        for i = last + 1, x.ndim - 1 do sizes[#sizes + 1] = x:size(i) end
        rows = value:expand(sizes):flatten(first, first + #shape - 1)
    end
    for k = 1, count do
        local target = x
        for i = #list, 1, -1 do target = target:select(list[i].axis, columns[i][k]) end
        if rows then target:copy_(rows:select(list[1].axis, k - 1))
        elseif flow.is_tensor(value) then target:copy_(value)
        else target:fill_(value) end
    end
end

---x[key] = value.
function M.set(x, given, value)
    if type(value) == "table" then value = flow.tensor(value, {dtype = x.dtype}) end
    if not flow.is_tensor(value) and type(value) ~= "number" and type(value) ~= "boolean" then
        check.fail("index: the value assigned must be a tensor, a number or a list, got %s", type(value))
    end
    if #given == 2 and given[2].dtype == "bool" and not flow.is_tensor(value) then
        return fill_mask(x, given[1], given[2], value)
    end
    local list = read_pairs(x, given)
    local shape = broadcast(x, list)
    if #shape == 0 then shape = {1} end
    write_each(bring_together(x, list), list, shape, value)
end

return M
