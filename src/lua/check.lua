-- check.lua -- what the Lua modules say when something is wrong: at the user's line, with "did you mean".

local flow = require "flow"

local io_ = flow._io

local M = {}

M.is_tensor = flow.is_tensor

---The user's nearest line as "train.lua:41: ", "" when there is none.
local function where()
    local level = 3
    local info = debug.getinfo(level, "Sl")
    while info do
        if info.currentline > 0 and info.source:sub(1, 6) ~= "=flow." then
            return ("%s:%d: "):format(info.short_src, info.currentline)
        end
        level = level + 1
        info = debug.getinfo(level, "Sl")
    end
    return ""
end

---Raises an error at the nearest line that is not one of ours.
---@param format string
function M.fail(format, ...)
    error(where() .. format:format(...), 0)
end

---"; did you mean 'x'?" or ""
---@param word any
---@param names string[]
---@return string
function M.suggest(word, names)
    return io_.suggest(tostring(word), names)
end

---The keys of a table as text, sorted.
---@return string[]
function M.sorted_keys(t)
    local keys = {}
    for key in pairs(t) do keys[#keys + 1] = key end
    table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
    return keys
end

---Makes reading a name that a table (a module, or a class that is its objects' __index) does not have an error.
---@param name string
---@param t table
---@return table t
function M.strict(name, t)
    local meta = getmetatable(t) or {}
    local inherited = meta.__index
    function meta.__index(_, key)
        local value = inherited and inherited[key]
        if value ~= nil or type(key) ~= "string" or key:sub(1, 1) == "_" then return value end
        M.fail("%s has no '%s'%s", name, key, M.suggest(key, M.sorted_keys(t)))
    end
    return setmetatable(t, meta)
end

---Default of an option that may be left out.
M.none = setmetatable({}, {__name = "none"})

---What is wrong with a value for an option whose default is `default`, or nil.
local function wrong_type(value, default)
    if default == M.none or type(value) == type(default) then return value ~= value and "a number" or nil end
    return "a " .. type(default)
end

---The given options with defaults filled in; an unknown key or a wrong type is an error.
---@param who string
---@param given table?
---@param defaults table
---@return table
function M.options(who, given, defaults)
    if given == nil then given = {} end
    if type(given) ~= "table" then M.fail("%s: options are a table, got %s", who, type(given)) end
    local result = {}
    for key, default in pairs(defaults) do
        if default ~= M.none then result[key] = default end
    end
    for _, key in ipairs(M.sorted_keys(given)) do
        local default = defaults[key]
        if default == nil then
            M.fail("%s: unknown option '%s'%s", who, tostring(key), M.suggest(key, M.sorted_keys(defaults)))
        end
        local expected = wrong_type(given[key], default)
        if expected then M.fail("%s: %s must be %s, got %s", who, key, expected, tostring(given[key])) end
        result[key] = given[key]
    end
    return result
end

---A whole number >= least.
---@return integer
function M.integer(who, name, value, least)
    local whole = math.type(value) and math.tointeger(value)
    if not whole or whole < least then
        M.fail("%s: %s must be a whole number >= %d, got %s", who, name, least, tostring(value))
    end
    return whole
end

---A number in [least, most].
---@return number
function M.number(who, name, value, least, most)
    if type(value) ~= "number" or not (value >= least and value <= most) then
        if most == math.huge then M.fail("%s: %s must be a number >= %g, got %s", who, name, least, tostring(value)) end
        M.fail("%s: %s must be a number in [%g, %g], got %s", who, name, least, most, tostring(value))
    end
    return value
end

---"[2, 3]"
---@return string
function M.shape(t)
    return "[" .. table.concat(t.shape, ", ") .. "]"
end

---"tensor" for tensors, else Lua's type.
---@return string
function M.type(value)
    return M.is_tensor(value) and "tensor" or type(value)
end

---A tensor.
---@return any
function M.tensor(who, name, value)
    if not M.is_tensor(value) then M.fail("%s: %s must be a tensor, got %s", who, name, type(value)) end
    return value
end

return M
