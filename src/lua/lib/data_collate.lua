-- data_collate.lua -- items put together to a batch: tensors of equal shape are stacked, numbers and booleans become a
-- tensor, strings a list. A batch has the fields of its items.

local flow = require "flow"
local check = require "flow.check"

local M = {}

-- The kind of a field of an item; nil: it cannot be in one.
local function kind_of(value)
    if check.is_tensor(value) then return "tensor" end
    local kind = type(value)
    return (kind == "number" or kind == "string" or kind == "boolean") and kind or nil
end

local function name_of(key)
    return type(key) == "string" and check.quote(key) or tostring(key)
end

local function describe(value)
    if check.is_tensor(value) then return ("%s of shape %s"):format(value.dtype, check.shape(value)) end
    return "a " .. type(value)
end

---An error unless the value is an item: a table of tensors, numbers, strings and booleans.
---@param item any
---@param number integer of the item, for the message
---@param who string? what the message begins with, "loader" unless given
function M.check_item(item, number, who)
    who = who or "loader"
    if type(item) ~= "table" then
        check.fail("%s: item %d must be a table of tensors, numbers and strings, got %s", who, number, check.got(item))
    end
    for _, key in ipairs(check.sorted_keys(item)) do
        if not kind_of(item[key]) then
            check.fail("%s: field %s of item %d must be a tensor, a number, a string or a boolean, got %s", who,
                name_of(key), number, check.got(item[key]))
        end
    end
end

local function alike(a, b)
    local kind = kind_of(a)
    return kind == kind_of(b) and (kind ~= "tensor" or a.dtype == b.dtype and a.shape == b.shape)
end

-- The fields `key` of all items in a list; an error names two items that differ.
local function column(items, numbers, key, who)
    local first, list = items[1][key], {}
    for i, item in ipairs(items) do
        local value = item[key]
        if value == nil then
            check.fail("%s: item %d has no field %s, which item %d has", who, numbers[i], name_of(key), numbers[1])
        end
        if not alike(first, value) then
            local advice = "make them alike in transform, or give collate"
            check.fail("%s: field %s is %s in item %d and %s in item %d; %s", who, name_of(key), describe(first),
                numbers[1], describe(value), numbers[i], advice)
        end
        list[i] = value
    end
    return list
end

local function check_keys(items, numbers, who)
    for i = 2, #items do
        for key in next, items[i] do
            if items[1][key] == nil then
                check.fail("%s: item %d has a field %s, which item %d has not", who, numbers[i], name_of(key),
                    numbers[1])
            end
        end
    end
end

---The batch of a list of items.
---@param items table[]
---@param numbers integer[] of the items, for messages
---@param who string? as of check_item
---@return table
function M.stack(items, numbers, who)
    local batch = {}
    who = who or "loader"
    check_keys(items, numbers, who)
    for _, key in ipairs(check.sorted_keys(items[1])) do
        local list = column(items, numbers, key, who)
        local kind = kind_of(list[1])
        if kind == "tensor" then batch[key] = flow.stack(list, 0)
        else batch[key] = kind == "string" and list or flow.tensor(list) end
    end
    return batch
end

return M
