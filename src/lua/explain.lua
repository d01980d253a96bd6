-- explain.lua -- flow.explain(f): which ops f ran, the SBP that was chosen for each, what had to move, and what else
-- was possible. It records the real dispatch while f runs; nothing is guessed.

local flow = require "flow"
local check = require "flow.check"

local M = {}

---@class flow.Explained
---@field op string
---@field line string of the script
---@field inputs {text: string, boxed_to: string?, bytes: integer, steps: string?}[]
---@field outputs string[]
---@field bytes integer the most any one rank moves
---@field ways {chosen: boolean, bytes: integer, inputs: string, outputs: string}[]

local function fields_of(line)
    local fields = {}
    for field in (line .. "\t"):gmatch("(.-)\t") do fields[#fields + 1] = field end
    return fields
end

local readers = {}

function readers.op(list, fields)
    list[#list + 1] = {op = fields[2], line = fields[3], inputs = {}, outputs = {}, bytes = 0, ways = {}}
end

readers["in"] = function(list, fields)
    local entry, boxed = list[#list], fields[3] ~= ""
    local input = {text = fields[2], bytes = math.tointeger(fields[4])}
    if boxed then input.boxed_to, input.steps = fields[3], fields[5] end
    entry.inputs[#entry.inputs + 1] = input
    entry.bytes = entry.bytes + input.bytes
end

function readers.out(list, fields) table.insert(list[#list].outputs, fields[2]) end

function readers.way(list, fields)
    table.insert(list[#list].ways, {
        chosen = fields[2] == "1", bytes = math.tointeger(fields[3]), inputs = fields[4], outputs = fields[5],
    })
end

local function parse(text)
    local list = {}
    for line in text:gmatch("[^\n]+") do
        local fields = fields_of(line)
        readers[fields[1]](list, fields)
    end
    return list
end

-- ---- as text ----

local function bytes_text(n)
    if n < 10000 then return ("%d bytes"):format(n) end
    if n < 10000000 then return ("%.1f KB"):format(n / 1e3) end
    return ("%.1f MB"):format(n / 1e6)
end

local function describe(entry, lines)
    local names = {}
    for i, input in ipairs(entry.inputs) do names[i] = input.text end
    lines[#lines + 1] = ("%s  %s(%s) -> %s"):format(entry.line, entry.op, table.concat(names, ", "),
        table.concat(entry.outputs, ", "))
    for i, input in ipairs(entry.inputs) do
        if input.boxed_to then
            lines[#lines + 1] = ("    input %d boxed to %s: %s, %s"):format(i, input.boxed_to,
                input.steps == "" and "nothing moves" or input.steps, bytes_text(input.bytes))
        end
    end
    for _, way in ipairs(entry.ways) do
        lines[#lines + 1] = ("    %s %s -> %s  %s"):format(way.chosen and "*" or " ", way.inputs, way.outputs,
            bytes_text(way.bytes))
    end
end

local meta = {}

function meta.__tostring(list)
    local lines, moved = {}, 0
    for _, entry in ipairs(list) do
        describe(entry, lines)
        moved = moved + entry.bytes
    end
    lines[#lines + 1] = ("%d ops, %s moved"):format(#list, bytes_text(moved))
    if list.error then lines[#lines + 1] = "stopped by an error: " .. list.error end
    return table.concat(lines, "\n")
end

---Runs f and returns what happened: a list that prints as a report.
---@param f function
---@param ... any arguments of f
---@return flow.Explained[]
function M.explain(f, ...)
    if type(f) ~= "function" then check.fail("explain: takes a function, got %s", type(f)) end
    flow._explain(true)
    local ok, message = pcall(f, ...)
    local list = parse(flow._explain(false))
    if not ok then list.error = tostring(message) end
    return setmetatable(list, meta)
end

return M
