-- json.lua -- JSON in which numbers come back as they were: integers to 64 bits, floats to the last bit.
--
-- encode writes the keys of plain tables sorted, those of ordered ones in their order. decode gives plain tables; null
-- becomes json.null. An empty table is written as [].

local check = require "flow.check"
local ordered = require "flow.ordered"

local M = {}

---What JSON's null is in Lua.
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
    local text = ("%.17g"):format(x)
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
        if type(key) ~= "string" then check.fail("json: a key is %s, not a string", tostring(key)) end
        parts[#parts + 1] = encode_string(key) .. ":" .. encode_value(value, depth)
    end
    if ordered.is(map) then
        for key, value in map do add(key, value) end
    else
        for _, key in ipairs(check.sorted_keys(map)) do add(key, map[key]) end
    end
    return "{" .. table.concat(parts, ",") .. "}"
end

---A table whose keys are 1 .. n.
---@return boolean
function M.is_list(t)
    if ordered.is(t) then return false end
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
    check.refuse_colon("encode", value)
    return encode_value(value, 1)
end

-- ---- reading ----

local function decode_error(text, at, what)
    local _, lines = text:sub(1, at):gsub("\n", "\n")
    check.fail("json: %s at byte %d (line %d)", what, at, lines + 1)
end

local function skip_space(text, at)
    return text:find("[^ \t\r\n]", at) or #text + 1
end

local unescapes = {b = "\b", f = "\f", n = "\n", r = "\r", t = "\t", ['"'] = '"', ["\\"] = "\\", ["/"] = "/"}

-- The character of \uXXXX at `at` (which points behind the u) and the position after it; surrogates are joined.
local function decode_unicode(text, at)
    local code = tonumber(text:match("^%x%x%x%x", at) or decode_error(text, at, "a bad \\u escape"), 16)
    if code < 0xd800 or code > 0xdfff then return utf8.char(code), at + 4 end
    local low = text:match("^\\u([dD][c-fC-F]%x%x)", at + 4)
    if code > 0xdbff or not low then decode_error(text, at, "half a surrogate pair") end
    return utf8.char(0x10000 + (code - 0xd800) * 0x400 + tonumber(low, 16) - 0xdc00), at + 10
end

local function decode_string(text, at)
    local parts, from = {}, at + 1
    while true do
        local stop = text:find('["\\%c]', from) or decode_error(text, #text, "a string without end")
        parts[#parts + 1] = text:sub(from, stop - 1)
        local character = text:sub(stop, stop)
        if character == '"' then return table.concat(parts), stop + 1 end
        local escaped = text:sub(stop + 1, stop + 1)
        if character ~= "\\" then
            if character ~= "\127" then decode_error(text, stop, "a control character in a string") end
            parts[#parts + 1], from = character, stop + 1
        elseif escaped == "u" then
            parts[#parts + 1], from = decode_unicode(text, stop + 2)
        else
            parts[#parts + 1] = unescapes[escaped] or decode_error(text, stop, "a bad escape")
            from = stop + 2
        end
    end
end

local function decode_number(text, at)
    local number = text:match("^-?%d+%.?%d*[eE]?[+-]?%d*", at) or decode_error(text, at, "an unexpected character")
    local value = tonumber(number)
    if not value or number:find("^%-?0%d") or number:find("%.$") or number:find("%.[eE]") then
        decode_error(text, at, "a bad number")
    end
    return value, at + #number
end

local decode_value

local function decode_list(text, at, depth)
    local list = {}
    at = skip_space(text, at + 1)
    if text:sub(at, at) == "]" then return list, at + 1 end
    while true do
        list[#list + 1], at = decode_value(text, at, depth)
        at = skip_space(text, at)
        local mark = text:sub(at, at)
        if mark == "]" then return list, at + 1 end
        if mark ~= "," then decode_error(text, at, "a list without , or ]") end
        at = at + 1
    end
end

local function decode_map(text, at, depth)
    local map = {}
    at = skip_space(text, at + 1)
    if text:sub(at, at) == "}" then return map, at + 1 end
    while true do
        at = skip_space(text, at)
        if text:sub(at, at) ~= '"' then decode_error(text, at, "a key that is no string") end
        local key
        key, at = decode_string(text, at)
        if map[key] ~= nil then decode_error(text, at, ("the key %q twice"):format(key)) end
        at = skip_space(text, at)
        if text:sub(at, at) ~= ":" then decode_error(text, at, "a key without :") end
        map[key], at = decode_value(text, at + 1, depth)
        at = skip_space(text, at)
        local mark = text:sub(at, at)
        if mark == "}" then return map, at + 1 end
        if mark ~= "," then decode_error(text, at, "an object without , or }") end
        at = at + 1
    end
end

local words = {["true"] = true, ["false"] = false, null = M.null}

function decode_value(text, at, depth)
    if depth > DEPTH then decode_error(text, at, "too many nested lists and objects") end
    at = skip_space(text, at)
    local first = text:sub(at, at)
    if first == "{" then return decode_map(text, at, depth + 1) end
    if first == "[" then return decode_list(text, at, depth + 1) end
    if first == '"' then return decode_string(text, at) end
    local word = text:match("^%a+", at)
    if word and words[word] ~= nil then return words[word], at + #word end
    return decode_number(text, at)
end

---@param text string
---@return any
function M.decode(text)
    check.refuse_colon("decode", text)
    local value, at = decode_value(text, 1, 1)
    at = skip_space(text, at)
    if at <= #text then decode_error(text, at, "text after the value") end
    return value
end

return check.strict("json", M)
