-- plan_machine.lua -- the ranks that a plan is made for: the rates at which one of them computes, reads and sends, and
-- what it holds.
--
-- A file of --machine is Lua that returns such a table; missing fields are the default's. Its only global is math.

local check = require "flow.check"

local M = {}

---@class flow.plan.Machine
---@field name string
---@field flops table<string, number> by dtype, of a rank in a second; float32's serves those that are not there
---@field memory number bytes that a rank reads and writes in a second
---@field memory_per_rank number bytes
---@field ranks_per_host integer
---@field links {host: flow.plan.Link, network: flow.plan.Link} inside a host, and between hosts
---@class flow.plan.Link
---@field bandwidth number bytes that a rank sends in a second while it receives as many
---@field latency number seconds

-- By NVIDIA's data sheets: dense products, NVLink and a network of 400 Gbit/s in each direction.
local DEFAULT = {
    name = "H100 SXM, 8 of a host",
    flops = {float64 = 67e12, float32 = 67e12, bfloat16 = 989e12, float16 = 989e12},
    memory = 3.35e12, memory_per_rank = 80e9, ranks_per_host = 8,
    links = {host = {bandwidth = 450e9, latency = 5e-6}, network = {bandwidth = 50e9, latency = 10e-6}},
}

local function fail(path, message, ...) check.fail("--machine %s: %s", path, message:format(...)) end

-- A copy of `default` in which what `given` has is `given`'s; `name` is where in the file it is.
local function merged(path, default, given, name)
    local dot = name == "" and "" or name .. "."
    if type(given) ~= "table" then
        fail(path, "%s must be a table, got %s", name == "" and "what it returns" or name, check.got(given))
    end
    local known, result = {}, {}
    for key, value in pairs(default) do
        known[#known + 1] = key
        result[key] = type(value) == "table" and merged(path, value, {}, dot .. key) or value
    end
    for key, value in pairs(given) do
        local like = default[key]
        if like == nil then
            table.sort(known)
            fail(path, "unknown field '%s'%s", dot .. tostring(key), check.suggest(tostring(key), known))
        elseif type(like) == "table" then result[key] = merged(path, like, value, dot .. key)
        elseif type(like) == "string" and type(value) ~= "string" then
            fail(path, "%s must be a string, got %s", dot .. key, check.got(value))
        elseif type(like) == "number" and not (math.type(value) and value > 0 and value < math.huge) then
            fail(path, "%s must be a number > 0, got %s", dot .. key, check.got(value))
        elseif math.type(like) == "integer" and not math.tointeger(value) then
            fail(path, "%s must be a whole number, got %s", dot .. key, check.got(value))
        else result[key] = math.type(like) == "integer" and math.tointeger(value) or value end
    end
    return result
end

---The machine of a file; nil: the default.
---@param path string?
---@return flow.plan.Machine
function M.read(path)
    if not path then return merged("", DEFAULT, {}, "") end
    local chunk, message = loadfile(path, "t", {math = math})
    if not chunk then fail(path, "%s", message) end
    local ran, given = pcall(chunk)
    if not ran then fail(path, "%s", tostring(given)) end
    local machine = merged(path, DEFAULT, given, "")
    if given.name == nil then machine.name = path end
    return machine
end

return M
