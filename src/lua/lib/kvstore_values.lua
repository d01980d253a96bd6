-- kvstore_values.lua -- Lua values as bytes, for ranks of one job: numbers, strings, tables of them, and functions.
--
-- A function goes with the locals around it that it uses, as they are now. Of these and in tables, modules (flow,
-- flow.optim, math) stand for themselves; tensors and other objects cannot go along.

local flow = require "flow"
local check = require "flow.check"

local M = {}

-- The name by which every rank finds the table, or nil.
local function module_name(value)
    for name, module in pairs(package.loaded) do
        if rawequal(module, value) then return "loaded." .. name end
    end
    for name, module in next, flow do
        if rawequal(module, value) then return "flow." .. name end
    end
end

local function module_of(name)
    local where, rest = name:match "^(%a+)%.(.*)$"
    if where == "loaded" then return package.loaded[rest] or require(rest) end
    return flow[rest]
end

local encode

local function encode_function(f, who, seen)
    local info = debug.getinfo(f, "Su")
    if info.what == "C" then
        check.fail("%s: a function that is not written in Lua cannot be sent to the servers", who)
    end
    local parts = {string.pack("<s4 I1", string.dump(f), info.nups)}
    for i = 1, info.nups do
        local name, value = debug.getupvalue(f, i)
        parts[#parts + 1] = encode(value, ("%s: the function uses %s"):format(who, check.quote(name)), seen)
    end
    return table.concat(parts)
end

local function encode_table(t, what, seen)
    local parts, count = {}, 0
    for key, value in next, t do
        parts[#parts + 1] = encode(key, what, seen) .. encode(value, what, seen)
        count = count + 1
    end
    return string.pack("<I4", count) .. table.concat(parts)
end

function encode(value, what, seen)
    local kind = math.type(value) or type(value)
    if kind == "integer" then return string.pack("<c1 i8", "i", value) end
    if kind == "float" then return string.pack("<c1 d", "d", value) end
    if kind == "string" then return string.pack("<c1 s4", "s", value) end
    if kind == "nil" or kind == "boolean" then return value == nil and "n" or value and "t" or "f" end
    local name = (kind == "table" or kind == "function") and module_name(value)
    if name then return string.pack("<c1 s4", "m", name) end
    if seen[value] then check.fail("%s, which leads to itself; it cannot be sent to the servers", what) end
    seen[value] = true
    local result
    if kind == "function" then
        result = "F" .. encode_function(value, what, seen)
    elseif kind == "table" and getmetatable(value) == nil then
        result = "T" .. encode_table(value, what, seen)
    else
        check.fail("%s, a %s; the servers have none of your tensors and objects", what, check.got(value))
    end
    seen[value] = nil
    return result
end

local decode

local function decode_function(bytes, at)
    local code, count
    code, count, at = string.unpack("<s4 I1", bytes, at)
    local f = assert(load(code, "updater", "b"))
    for i = 1, count do
        local value
        value, at = decode(bytes, at)
        debug.setupvalue(f, i, value)
    end
    return f, at
end

local function decode_table(bytes, at)
    local count, result
    count, at = string.unpack("<I4", bytes, at)
    result = {}
    for _ = 1, count do
        local key, value
        key, at = decode(bytes, at)
        value, at = decode(bytes, at)
        result[key] = value
    end
    return result, at
end

local readers = {
    i = function(bytes, at) return string.unpack("<i8", bytes, at) end,
    d = function(bytes, at) return string.unpack("<d", bytes, at) end,
    s = function(bytes, at) return string.unpack("<s4", bytes, at) end,
    n = function(_, at) return nil, at end,
    t = function(_, at) return true, at end,
    f = function(_, at) return false, at end,
    m = function(bytes, at)
        local name, after = string.unpack("<s4", bytes, at)
        return module_of(name), after
    end,
    F = decode_function, T = decode_table,
}

function decode(bytes, at)
    return readers[bytes:sub(at, at)](bytes, at + 1)
end

---The value as bytes; `who` begins the message when it cannot be.
---@return string
function M.encode(value, who)
    return encode(value, who, {})
end

---@return any
function M.decode(bytes)
    return (decode(bytes, 1))
end

---A shape as a plain list.
---@return integer[]
function M.sizes(shape)
    return table.move(shape, 1, #shape, 1, {})
end

---A key of a store as the end of a head, and back.
---@return string
function M.key_text(key)
    return type(key) == "string" and "s" .. key or "i" .. key
end

function M.key(text)
    return text:sub(1, 1) == "s" and text:sub(2) or math.tointeger(text:sub(2))
end

---@return integer
function M.hash(text)
    local h = 5381
    for i = 1, #text do h = (h * 33 + text:byte(i)) & 0x7fffffff end
    return h
end

M.DESCRIPTION = 400             -- bytes of one at most
local WORDS = 300

---Describes the keys that init makes, as a text that differs where they do.
---@return string
function M.describe(list)
    local words = {}
    for i, one in ipairs(list) do
        local key = type(one.key) == "string" and check.quote(one.key) or one.key
        words[i] = ("key %s as %s"):format(key, one.entry.text)
    end
    local text = table.concat(words, ", ")
    if #text <= WORDS then return text end
    return ("%s... (%d keys, %x)"):format(text:sub(1, WORDS), #list, M.hash(text))
end

---Bytes as a tensor, the body of a message.
---@return any
function M.to_tensor(bytes)
    return flow.frombytes(bytes, "uint8")
end

return M
