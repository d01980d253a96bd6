-- nested.lua -- values that are tensors or nested tables of them: their tensors, and the same with others in place.

local check = require "flow.check"

local M = {}

local DEPTH = 60        -- of tables

---The level of what is in a table that lies at `level`, from 0; an error for tables that are too deep.
---@param level integer
---@return integer
function M.deeper(level)
    if level == DEPTH then
        check.fail("%s nested deeper than %d tables, or contains itself", check.read_by "a value is", DEPTH)
    end
    return level + 1
end

local function leaves(value, list, level)
    if check.is_tensor(value) then list[#list + 1] = value
    elseif type(value) == "table" then
        local next_level = M.deeper(level)
        for _, key in ipairs(check.sorted_keys(value)) do leaves(value[key], list, next_level) end
    end
    return list
end

---The tensors; those of a table in the order of its keys.
---@return flow.Tensor[]
function M.leaves(value)
    return leaves(value, {}, 0)
end

local function replaced(value, next, level)
    if check.is_tensor(value) then return next(value) end
    if type(value) ~= "table" then return value end
    local out, next_level = {}, M.deeper(level)
    for _, key in ipairs(check.sorted_keys(value)) do out[key] = replaced(value[key], next, next_level) end
    return out
end

---The value with next(x) in place of each tensor x, in that order.
---@param next fun(x: flow.Tensor): any
function M.replaced(value, next)
    return replaced(value, next, 0)
end

return M
