-- json.lua -- JSON in which numbers come back as they were: integers to 64 bits, floats to the last bit.
--
-- encode writes the keys of plain tables sorted, those of ordered ones in their order. decode gives plain tables; null
-- becomes json.null. An empty table is written as [].

local flow = require "flow"
local check = require "flow.check"
local ordered = require "flow.ordered"

local io_ = flow._io

local M = {}

---The value that stands for JSON's null.
M.null = setmetatable({}, {__name = "json.null", __tostring = function() return "null" end})

local DEPTH = 200

-- ---- writing ----

local escapes = {
    ['"'] = '\\"', ["\\"] = "\\\\", ["\b"] = "\\b", ["\f"] = "\\f", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t",
}

local function escape(character)
    return escapes[character] or ("\\u%04x"):format(character:byte())
end

local function encode_string(s)
    if not utf8.len(s) then check.fail("json: a string is not UTF-8") end
    return '"' .. s:gsub('[%c"\\\127]', escape) .. '"'
end

local function encode_number(x)
    if math.type(x) == "integer" then return ("%d"):format(x) end
    if x ~= x or x == math.huge or x == -math.huge then check.fail("json: %s is no JSON number", tostring(x)) end
    local text = check.digits("%.17g", x)
    return text:find("[.e]") and text or text .. ".0"
end

local encode_value

local function encode_list(list, depth)
    local parts = {}
    for i = 1, #list do parts[i] = encode_value(list[i], depth) end
    return "[" .. table.concat(parts, ",") .. "]"
end

local function encode_map(map, depth)
    local parts = {}
    local function add(key, value)
        if type(key) ~= "string" then check.fail("json: a key is %s, not a string", check.got(key)) end
        if key:find("\0", 1, true) then check.fail("json: a key contains a NUL, which no reader takes") end
        parts[#parts + 1] = encode_string(key) .. ":" .. encode_value(value, depth)
    end
    if ordered.is(map) then
        for key, value in map do add(key, value) end
    else
        for _, key in ipairs(check.sorted_keys(map)) do add(key, map[key]) end
    end
    return "{" .. table.concat(parts, ",") .. "}"
end

---True for a table whose keys are 1 .. n.
---@return boolean
function M.is_list(t)
    if type(t) ~= "table" or ordered.is(t) then return false end
    local count = 0
    for _ in pairs(t) do count = count + 1 end
    return count == #t
end

local encoders = {
    boolean = tostring,
    number = encode_number,
    string = encode_string,
    table = function(t, depth)
        if t == M.null then return "null" end
        if depth > DEPTH then check.fail("json: nested deeper than %d tables", DEPTH) end
        return M.is_list(t) and encode_list(t, depth + 1) or encode_map(t, depth + 1)
    end,
}

function encode_value(value, depth)
    local encoder = encoders[type(value)]
    if not encoder then check.fail("json: cannot write a %s", type(value)) end
    return encoder(value, depth)
end

---@param value any
---@return string
function M.encode(value)
    return encode_value(value, 1)
end

-- ---- reading ----

---@param text string
---@return any
function M.decode(text)
    return io_.json(text, M.null)
end

check.takes(M, {"decode(text: string)", "encode(value: any)"})

return check.strict("json", M)
