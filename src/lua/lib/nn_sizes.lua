-- nn_sizes.lua -- sizes of windows, as layers of flow.nn take them: one number for all axes, or a list.

local check = require "flow.check"
local module = require "flow.module"

local M = {}

local AXES = {"length", "rows, columns", "depth, rows, columns"}

local function is_size(value)
    return math.type(value) and math.tointeger(value) ~= nil or type(value) == "table" and not module.is_module(value)
end

-- Types of signatures: `single` for one axis, `pair` for two, `triple` for three.
M.types = {"single", "pair", "triple"}
for axes, name in ipairs(M.types) do
    check.define_type(name, ("a whole number or {%s}"):format(AXES[axes]), is_size)
end
check.define_type("sides", "a whole number or a list of two for each axis", is_size)

---A size as a list of one number for each axis.
---@param who string
---@param name string
---@param value integer|integer[]
---@param least integer
---@param axes integer
---@return integer[]
function M.read(who, name, value, least, axes)
    local list = {}
    if type(value) ~= "table" then
        for i = 1, axes do list[i] = value end
    elseif #value == axes then
        list = value
    else
        check.fail("%s: %s must be one number or {%s}, got %d numbers", who, name, AXES[axes], #value)
    end
    local result = {}
    for i = 1, axes do result[i] = check.integer(who, name, list[i], least) end
    return result
end

---"3", or "3x2" where the axes differ; words as they are.
---@param sizes integer[]|string
---@return string
function M.text(sizes)
    if type(sizes) == "string" then return sizes end
    for i = 2, #sizes do
        if sizes[i] ~= sizes[1] then return table.concat(sizes, "x") end
    end
    return tostring(sizes[1])
end

return M
