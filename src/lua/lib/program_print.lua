-- program_print.lua -- a program as text: a line for each step, in columns.
--
-- The values a step makes, the op with its operands and the attributes that are not their defaults, shape, dtype, SBP
-- where some value is global, bytes of this rank's part and the line of the script. In-place ops end in _ and name the
-- value that they write.

local check = require "flow.check"
local bytes_text = require("flow.show").bytes

local M = {}

local function number_text(x)
    return math.type(x) == "float" and check.digits("%.6g", x) or tostring(x)
end

---An attribute as text: {2, 3}, 0.5, mean.
function M.attribute(value)
    if type(value) == "table" then return "{" .. table.concat(value, ", ") .. "}" end
    return type(value) == "number" and number_text(value) or tostring(value)
end

local defaults = {}

-- The defaults of an op's attributes, as its signature writes them.
local function defaults_of(op)
    if defaults[op] then return defaults[op] end
    local found, sig = {}, require("flow")._trace.signature(op) or ""
    for name, value in sig:gmatch("([%w_]+): [%w|]+ = ([^,)]+)") do found[name] = value end
    defaults[op] = found
    return found
end

---The attributes and options of a step that say something, in the order of their names: {"axis = {0}"}.
---@return string[]
function M.attributes(step)
    local parts, usual = {}, defaults_of(step.op)
    for _, name in ipairs(check.sorted_keys(step.attrs)) do
        local value = step.attrs[name]
        local text = M.attribute(value)
        local default = usual[name]
        local is_default = default == text or (tonumber(default) and tonumber(default) == tonumber(text))
        if not is_default then parts[#parts + 1] = ("%s = %s"):format(name, text) end
    end
    for _, name in ipairs(check.sorted_keys(step.options)) do
        local value = step.options[name]
        if value ~= "meta" and not (name == "placement" and value.type == "meta") then
            parts[#parts + 1] = ("%s = %s"):format(name, tostring(value))
        end
    end
    return parts
end

---The names of a step's operands.
---@return string[]
function M.operands(program, step)
    local parts = {}
    for k = 1, step.n do
        local operand = step.operands[k]
        parts[k] = operand.value and program.values[operand.value].name
            or operand.number ~= nil and number_text(operand.number) or "nil"
    end
    while parts[#parts] == "nil" do parts[#parts] = nil end
    return parts
end

local function call_text(program, step)
    local parts = M.operands(program, step)
    for _, text in ipairs(M.attributes(step)) do parts[#parts + 1] = text end
    local text = table.concat(parts, ", ")
    return ("%s%s(%s)"):format(step.op, step.in_place and "_" or "", text)
end

local function shape_text(shape) return "[" .. table.concat(shape, ", ") .. "]" end

-- The row of a step for its result number k.
local function row_of(program, step, k, global)
    local value = program.values[step.outputs[k]]
    local row = {value and value.name or "", k <= 1 and call_text(program, step) or ""}
    if not value then return row end
    row[3], row[4] = shape_text(value.shape), value.dtype
    if global then row[#row + 1] = value.sbp and tostring(value.sbp) or "" end
    row[#row + 1] = bytes_text(value.bytes)
    row[#row + 1] = k <= 1 and step.line or ""
    return row
end

---Rows of text as lines, each column as wide as its widest entry of at most 60 characters. right: columns to align so.
function M.columns(rows, right)
    local widths, lines = {}, {}
    for _, row in ipairs(rows) do
        for i, text in ipairs(row) do
            local length = utf8.len(text) or #text
            if length <= 60 then widths[i] = math.max(widths[i] or 0, length) end
        end
    end
    for i, row in ipairs(rows) do
        local parts = {}
        for k, text in ipairs(row) do
            local pad = (" "):rep((widths[k] or 0) - (utf8.len(text) or #text))
            parts[k] = right and right[k] and pad .. text or text .. pad
        end
        lines[i] = (table.concat(parts, "  "):gsub("%s+$", ""))
    end
    return lines
end

local function listed(program, list)
    local parts = {}
    for i, entry in ipairs(list) do
        local value = program.values[entry.value]
        local sbp = value.sbp and " as " .. tostring(value.sbp) or ""
        parts[i] = ("%s: %s%s%s"):format(entry.name, value.dtype, shape_text(value.shape), sbp)
    end
    return table.concat(parts, ", ")
end

local function returned(program)
    local names = {}
    for i, output in ipairs(program.outputs) do
        local value = program.values[output.value]
        names[i] = output.name == value.name and value.name or ("%s (%s)"):format(value.name, output.name)
    end
    return table.concat(names, ", ")
end

---@param program flow.Program
---@return string
function M.text(program)
    local global, weights, rows = false, 0, {}
    for _, value in ipairs(program.values) do global = global or value.sbp ~= nil end
    for _, weight in ipairs(program.weights) do weights = weights + program.values[weight.value].bytes end
    rows[1] = {"value", "op", "shape", "dtype"}
    if global then table.insert(rows[1], "sbp") end
    table.insert(rows[1], "bytes")
    table.insert(rows[1], "line")
    for _, step in ipairs(program.steps) do
        for k = 1, math.max(1, #step.outputs) do rows[#rows + 1] = row_of(program, step, k, global) end
    end
    local lines = {("program(%s)"):format(listed(program, program.inputs))}
    if #program.weights > 0 then
        lines[2] = ("weights: %d, %s"):format(#program.weights, bytes_text(weights))
        for _, weight in ipairs(program.weights) do
            lines[#lines + 1] = "    " .. listed(program, {weight})
        end
    end
    if #program.steps > 0 then
        for _, line in ipairs(M.columns(rows)) do lines[#lines + 1] = line end
    end
    lines[#lines + 1] = "returns " .. returned(program)
    return table.concat(lines, "\n")
end

return check.strict("program_print", M)
