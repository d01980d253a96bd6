-- complete.lua -- what Tab offers: names of globals, fields and methods of an expression, keys and forms of indexing.
--
-- The expression before the cursor is read backwards from its last token. It is evaluated as far as that runs no code
-- of the user's: names, fields and constant keys are read raw or through __index tables, and of a call only what it
-- returns is inferred: a tensor from an op, an object from a class, a string from a function of strings.

local flow = require "flow"
local lazy_names = require "flow.lazy_names"
local module = require "flow.module"

local is_tensor = flow.is_tensor

local keywords = {}
for word in ("and break do else elseif end false for function goto if in local nil not or repeat return then true " ..
    "until while"):gmatch "%a+" do keywords[word] = true end

-- ---- tokens ----

local operators = {"...", "..", "==", "~=", "<=", ">=", "//", "::", "<<", ">>"}

-- The end of a string or comment in long brackets that opens at `at`; nil: it is none; false: it does not end.
local function long_end(text, at)
    local level = text:match("^%[(=*)%[", at)
    if not level then return nil end
    local _, stop = text:find("]" .. level .. "]", at, true)
    return stop or false
end

local function quoted_end(text, at)
    local quote, i = text:sub(at, at), at + 1
    while i <= #text do
        local c = text:sub(i, i)
        if c == quote then return i end
        if c == "\n" then return false end
        i = i + (c == "\\" and 2 or 1)
    end
    return false
end

local function comment_end(text, at)
    local stop = long_end(text, at + 2)
    if stop ~= nil then return stop end
    return text:find("\n", at, true) or false
end

local function operator_at(text, at)
    for _, operator in ipairs(operators) do
        if text:sub(at, at + #operator - 1) == operator then return operator end
    end
    return text:sub(at, at)
end

-- Kind and end of the token at a position that is no blank. "open": a string that does not end.
local function token_at(text, at)
    local c = text:sub(at, at)
    if text:sub(at, at + 1) == "--" then return "comment", comment_end(text, at) end
    if c:find "[%a_]" then return "name", select(2, text:find("^[%w_]+", at)) end
    if text:find("^%.?%d", at) then return "number", select(2, text:find("^%.?%d[%w.]*", at)) end
    if c == '"' or c == "'" then
        local stop = quoted_end(text, at)
        return stop and "string" or "open", stop or #text
    end
    local stop = long_end(text, at)
    if stop ~= nil then return stop and "string" or "open", stop or #text end
    return "operator", at + #operator_at(text, at) - 1
end

---@class token
---@field kind string
---@field text string
---@field start integer
---@field stop integer

-- The tokens of a text; nil when it ends in a comment.
---@return token[]?
local function tokens_of(text)
    local tokens, at = {}, 1
    while true do
        at = text:find("%S", at)
        if not at then return tokens end
        local kind, stop = token_at(text, at)
        if not stop then return nil end
        if kind == "name" and keywords[text:sub(at, stop)] then kind = "keyword" end
        if kind ~= "comment" then
            tokens[#tokens + 1] = {kind = kind, text = text:sub(at, stop), start = at, stop = stop}
        end
        at = stop + 1
    end
end

local closers = {[")"] = "(", ["]"] = "[", ["}"] = "{"}

-- True if an expression can end with this token.
local function is_end(token)
    return token ~= nil and (token.kind == "name" or token.kind == "string" or closers[token.text] ~= nil)
end

-- Index of the bracket that the one at i closes; nil when there is none.
local function opener(tokens, i)
    local depth = 0
    for j = i, 1, -1 do
        local text = tokens[j].kind == "operator" and tokens[j].text
        if closers[text] then depth = depth + 1 end
        if text == "(" or text == "[" or text == "{" then depth = depth - 1 end
        if depth == 0 then return tokens[j].text == closers[tokens[i].text] and j or nil end
    end
end

-- ---- facts of a value ----
--
-- A table with one of: value, the value itself; tensor = true, some tensor; object, the class of some object. nil:
-- nothing is known.

local SOME_TENSOR, SOME_STRING = {tensor = true}, {value = ""}

local function is_some_tensor(known)
    return known ~= nil and (known.tensor or is_tensor(known.value)) or false
end

-- The table in which names that a value does not have itself are looked up.
local function next_table(value)
    local meta = debug.getmetatable(value)
    if type(meta) ~= "table" then return nil end
    if module.is_module(value) then return meta end
    local index = rawget(meta, "__index")
    return type(index) == "table" and index or nil
end

-- value[key] without running code of the user's; nil when there is none.
local function lookup(value, key)
    for _ = 1, 16 do
        if value == nil then return nil end
        local fields = module.is_module(value) and module.fields(value) or value
        local found = type(fields) == "table" and lazy_names.get(fields, key)
        if found ~= nil and found ~= false then return found end
        value = next_table(value)
    end
end

-- Kinds of the fields of a tensor that is not known itself.
local tensor_fields = {grad = SOME_TENSOR, dtype = SOME_STRING, device = SOME_STRING}

local function known_value(value)
    if value ~= nil then return {value = value} end
end

local function field_of(known, name)
    if not known then return nil end
    if is_some_tensor(known) then
        local method = flow._methods[name]
        if type(method) == "function" then return {value = method} end
        if method == nil or known.tensor then return tensor_fields[name] end
        return known_value(known.value[name])
    end
    return known_value(lookup(known.object or known.value, name))
end

local function element_of(known, key)
    if not known then return nil end
    if is_some_tensor(known) then return SOME_TENSOR end
    if key == nil or known.object then return nil end
    return known_value(lookup(known.value, key))
end

-- Functions that are no ops and return a tensor, and those that return a string.
local returned
local function returned_by(f)
    if not returned then
        returned = {}
        for name in ("tensor max min detach to to_global to_local requires_grad_"):gmatch "%S+" do
            for _, holder in ipairs {flow, flow._methods} do
                local function_ = lazy_names.get(holder, name)
                if function_ then returned[function_] = SOME_TENSOR end
            end
        end
        for name in ("char format gsub lower rep reverse sub upper"):gmatch "%S+" do
            returned[string[name] or ""] = SOME_STRING
        end
    end
    return returned[f] or flow._describe(f) and SOME_TENSOR or nil
end

local function is_class(value)
    return type(value) == "table" and (rawget(value, "__call") ~= nil and module.is_class(value)
        or type(rawget(value, "defaults")) == "table")
end

-- The result of calling a value.
local function result_of(known)
    if not known then return nil end
    local value = known.value
    if type(value) == "function" then return returned_by(value) end
    if is_class(value) then return {object = value} end
    if module.is_module(value) or known.object and module.is_class(known.object) then return SOME_TENSOR end
end

-- ---- expressions ----

local suffixed

-- The result of a call whose callee ends at token i, and where the expression begins.
local function call(tokens, i)
    local known, first
    if tokens[i].kind == "name" and i > 2 and tokens[i - 1].text == ":" then
        known, first = suffixed(tokens, i - 2)
        known = field_of(known, tokens[i].text)
    else
        known, first = suffixed(tokens, i)
    end
    return result_of(known), first
end

-- The constant that the tokens a..b are; nil when they are none.
local function constant(tokens, a, b)
    if a > b then return nil end
    local text = tokens[b].text
    if tokens[b].kind == "string" and a == b then return load("return " .. text, "=key", "t", {})() end
    if tokens[b].kind ~= "number" or b - a > 1 or (b > a and tokens[a].text ~= "-") then return nil end
    return tonumber((a < b and "-" or "") .. text)
end

local arithmetic = {}
for operator in ("+ - * / // % ^"):gmatch "%S+" do arithmetic[operator] = true end

-- Indices of the tokens with which the operands of a sum or product a..b end; nil when it is no such thing.
local function operand_ends(tokens, a, b)
    local ends, depth = {}, 0
    for i = a, b do
        local token = tokens[i]
        local text = token.kind == "operator" and token.text
        if closers[text] then depth = depth - 1 end
        if depth == 0 then
            if arithmetic[text] and i > a and (is_end(tokens[i - 1]) or tokens[i - 1].kind == "number") then
                ends[#ends + 1] = i - 1
            elseif token.kind == "keyword" or text == "," or text and text:find "^[<>=~]" then
                return nil
            end
        end
        if text == "(" or text == "[" or text == "{" then depth = depth + 1 end
    end
    ends[#ends + 1] = b
    return ends
end

-- The value of an expression in parentheses, as far as it is known.
local function expression(tokens, a, b)
    local ends = operand_ends(tokens, a, b)
    if not ends then return nil end
    for _, i in ipairs(ends) do
        local known, first = suffixed(tokens, i)
        if #ends == 1 and first == a or is_some_tensor(known) then return #ends == 1 and known or SOME_TENSOR end
    end
end

-- An expression that ends with a closing bracket, at i.
local function bracketed(tokens, i)
    local j = opener(tokens, i)
    if not j then return nil, i end
    local applied, text = is_end(tokens[j - 1]), tokens[i].text
    if text == "]" then
        if not applied then return nil, j end
        local known, first = suffixed(tokens, j - 1)
        return element_of(known, constant(tokens, j + 1, i - 1)), first
    end
    if applied then return call(tokens, j - 1) end
    return text == ")" and expression(tokens, j + 1, i - 1) or nil, j
end

-- The value, as far as it is known, of the longest expression of names, calls and indexing that ends at token i, and
-- the index of its first token.
function suffixed(tokens, i)
    local token, before = tokens[i], tokens[i - 1]
    if closers[token.text] and token.kind == "operator" then return bracketed(tokens, i) end
    if token.kind == "string" then
        if is_end(before) then return call(tokens, i - 1) end
        return {value = constant(tokens, i, i)}, i
    end
    if token.kind ~= "name" then return nil, i end
    if not (before and before.text == "." and i > 2) then return known_value(lookup(_G, token.text)), i end
    local known, first = suffixed(tokens, i - 2)
    return field_of(known, token.text), first
end

-- ---- completions ----

-- names[name] = true for the string keys that fit; methods: functions alone.
local function gather_table(names, t, methods)
    for key, value in next, t do
        if type(key) == "string" and (not methods or type(value) == "function") then names[key] = true end
    end
end

-- Names of the fields and methods of what is known.
local function names_in(known, methods)
    local names, value = {}, nil
    if known then value = is_some_tensor(known) and flow._methods or known.object or known.value end
    for _ = 1, 16 do
        if value == nil then break end
        local fields = module.is_module(value) and module.fields(value) or value
        if type(fields) == "table" then gather_table(names, fields, methods) end
        local all_fit = not methods or rawequal(value, flow._methods)
        for _, name in ipairs(all_fit and lazy_names.of(value) or {}) do names[name] = true end
        value = next_table(value)
    end
    return names
end

-- The words `head .. name`, sorted, for the names that begin with what is typed.
local function words_of(names, head, typed)
    local words = {}
    for name in next, names do
        if name:find "^[%a_][%w_]*$" and name:sub(1, #typed) == typed and (typed ~= "" or name:sub(1, 1) ~= "_") then
            words[#words + 1] = head .. name
        end
    end
    table.sort(words)
    return words
end

local function sorted_keys(t)
    local numbers, strings = {}, {}
    for key in next, t do
        if math.type(key) == "integer" then numbers[#numbers + 1] = key end
        if type(key) == "string" and not key:find "[%c\\]" then strings[#strings + 1] = key end
    end
    table.sort(numbers)
    table.sort(strings)
    return numbers, strings
end

-- Keys of a table; typed: nothing, or a string that does not end.
local function words_of_keys(t, head, typed)
    local words, quote = {}, typed:match "^['\"]" or '"'
    local numbers, strings = sorted_keys(t)
    for _, key in ipairs(typed == "" and numbers or {}) do words[#words + 1] = ("%s%d]"):format(head, key) end
    for _, key in ipairs(strings) do
        local word = quote .. key .. quote .. "]"
        if not key:find(quote, 1, true) and word:sub(1, #typed) == typed then words[#words + 1] = head .. word end
    end
    return words
end

local forms = {
    {"0]", "position 0 of axis 0; -1 is the last"},
    {"{{0, 2}}]", "positions 0 and 1 of axis 0"},
    {"{0, {1, 3}}]", "position 0 of axis 0, positions 1 and 2 of axis 1"},
    {"{{}, 0}]", "all of axis 0, position 0 of axis 1"},
    {'"0, 1:3"]', "the same as a text"},
    {'"..., -1"]', "the last position of the last axis"},
    {"mask]", "the elements where a bool tensor is true"},
    {"positions]", "the positions of axis 0 in an int64 tensor"},
}

local function words_of_forms(head, typed)
    local words, notes = {}, {}
    for _, form in ipairs(forms) do
        if form[1]:sub(1, #typed) == typed then
            words[#words + 1], notes[#notes + 1] = head .. form[1], form[2]
        end
    end
    return words, notes
end

-- The keys that fit between the brackets that open at token i.
local function complete_key(text, tokens, i, typed)
    local known, first = suffixed(tokens, i - 1)
    local start = tokens[first].start
    local head = text:sub(start, #text - #typed)
    if is_some_tensor(known) then
        local words, notes = words_of_forms(head, typed)
        return words, start, #head - 1, notes
    end
    local t = known and known.value
    if module.is_module(t) then t = table.move(module.fields(t), 1, #t, 1, {}) end
    return type(t) == "table" and words_of_keys(t, head, typed) or {}, start, #head - 1
end

local function complete_field(text, tokens, i, typed)
    local known, first = suffixed(tokens, i - 1)
    local start = tokens[first].start
    local head = text:sub(start, #text - #typed)
    return words_of(names_in(known, tokens[i].text == ":"), head, typed), start, #head
end

local function complete_global(start, typed)
    local names = names_in({value = _G}, false)
    for word in next, keywords do names[word] = true end
    return words_of(names, "", typed), start, 0
end

---Completes a text for Tab: whole words, the position in the text that they replace from, the number of bytes of each
---that need not be shown, and a note for each if they have one.
---@param text string
---@return string[] words
---@return integer start
---@return integer hidden
---@return string[]? notes
return function(text)
    local tokens = tokens_of(text)
    if not tokens then return {}, #text + 1, 0 end
    local n = #tokens
    local last, typed, start = tokens[n], "", #text + 1
    if last and last.stop == #text and (last.kind == "name" or last.kind == "keyword" or last.kind == "open") then
        typed, start, n = last.text, last.start, n - 1
    end
    local separator = tokens[n] and tokens[n].kind == "operator" and tokens[n].text
    local applied = n > 1 and is_end(tokens[n - 1])
    local opened = last and last.kind == "open"
    if separator == "[" and applied and (typed == "" or opened) then return complete_key(text, tokens, n, typed) end
    if opened then return {}, start, 0 end
    if separator == "." or separator == ":" then
        if applied then return complete_field(text, tokens, n, typed) end
        return {}, start, 0
    end
    return complete_global(start, typed)
end
