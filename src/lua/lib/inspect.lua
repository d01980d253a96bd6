-- inspect.lua -- values as the interactive session prints them: tables as Lua writes them, kept short.
--
-- Every rank makes the text, and all of them put together that of a global tensor: what is written, and in which
-- order, must depend on nothing that differs between ranks, such as addresses and the order of `next`. So what lies
-- under a key that is an object is not looked into.

local flow = require "flow"
local help = require "flow.help"

local M = {}

local DEPTH, ENTRIES, WIDTH = 3, 24, 76

local function is_word(key) return type(key) == "string" and key:find("^[%a_][%w_]*$") end

local function is_object(key)
    return type(key) ~= "number" and type(key) ~= "string" and type(key) ~= "boolean"
end

-- "float32[2, 3]", "table": a value that is not looked into.
local function kind_text(value)
    if not flow.is_tensor(value) then return is_object(value) and type(value) or tostring(value) end
    return ("%s[%s]"):format(value.dtype, table.concat(value.shape, ", "))
end

local function key_text(key)
    if is_word(key) then return key .. " = " end
    return ("[%s] = "):format(type(key) == "string" and ("%q"):format(key) or kind_text(key))
end

-- Keys beyond the list part, in an order that does not change from run to run.
local function other_keys(t, length)
    local keys = {}
    for key in next, t do
        if math.type(key) ~= "integer" or key < 1 or key > length then keys[#keys + 1] = key end
    end
    table.sort(keys, function(a, b)
        local number_a, number_b = type(a) == "number", type(b) == "number"
        if number_a and number_b then return a < b end
        if number_a ~= number_b then return number_a end
        return kind_text(a) < kind_text(b)
    end)
    return keys
end

local text_of

local function entries_of(t, depth, seen)
    local entries, length = {}, rawlen(t)
    for i = 1, math.min(length, ENTRIES) do entries[i] = text_of(rawget(t, i), depth + 1, seen) end
    local keys = other_keys(t, length)
    for _, key in ipairs(keys) do
        if #entries >= ENTRIES then break end
        local value = rawget(t, key)
        local text = is_object(key) and kind_text(value) or text_of(value, depth + 1, seen)
        entries[#entries + 1] = key_text(key) .. text
    end
    local hidden = length + #keys - #entries
    if hidden > 0 then entries[#entries + 1] = ("... %d more"):format(hidden) end
    return entries
end

-- On one line if it fits, else one entry a line.
local function join(entries, depth)
    if #entries == 0 then return "{}" end
    local flat = "{" .. table.concat(entries, ", ") .. "}"
    if #flat + 4 * depth <= WIDTH and not flat:find("\n", 1, true) then return flat end
    local indent = (" "):rep(4 * (depth + 1))
    return "{\n" .. indent .. table.concat(entries, ",\n" .. indent) .. "\n" .. (" "):rep(4 * depth) .. "}"
end

function text_of(value, depth, seen)
    local kind = type(value)
    if kind == "string" then return ("%q"):format(value):gsub("\\\n", "\\n") end
    local meta = getmetatable(value)
    if kind ~= "table" or (type(meta) == "table" and meta.__tostring) then
        local text = tostring(value)
        return (text:gsub("\n", "\n" .. (" "):rep(4 * depth)))
    end
    if seen[value] then return "{...}" end
    if depth >= DEPTH then return next(value) == nil and "{}" or tostring(value) end
    seen[value] = true
    local text = join(entries_of(value, depth, seen), depth)
    seen[value] = nil
    return text
end

---The text of one value; a string is its own text.
---@param value any
---@return string
function M.text(value)
    if type(value) == "string" then return value end
    return (text_of(value, 0, {}))
end

-- The texts of several values: on one line when they are short. decorate: changes the text of a tensor.
local function texts_of(decorate, ...)
    local texts, lines = {}, false
    for i = 1, select("#", ...) do
        local value = select(i, ...)
        texts[i] = M.text(value)
        lines = lines or texts[i]:find("\n", 1, true)
        if decorate and flow.is_tensor(value) then texts[i] = decorate(texts[i]) end
    end
    return table.concat(texts, lines and "\n" or "\t")
end

---The text of several values.
---@return string
function M.texts(...)
    return texts_of(nil, ...)
end

-- Shows the dtype, shape and place that follow a tensor's values in a weaker colour.
local function dim_kind(text)
    return (text:gsub("(%l+%d*%[[%d, ]*%] on .*)$", "\27[2m%1\27[0m"))
end

---Prints values as the session does, on rank 0. A function, class or module of flow alone prints its help.
---@param colours boolean true if the terminal shows them
function M.show(colours, ...)
    local text = select("#", ...) == 1 and help.of_part(...) or texts_of(colours and dim_kind, ...)
    local ok, message = pcall(flow.print, text)
    if not ok then error(("error calling 'print' (%s)"):format(message), 0) end
end

return M
