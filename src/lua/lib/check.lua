-- check.lua -- the errors of the Lua modules: at the script's line, with "did you mean".
--
-- Functions check their arguments by their signatures, written as a module's last statements:
--
--     check.takes(data, {"windows(tokens: tensor, length: integer >= 1, {stride: integer >= 1 = 1})"})
--     check.methods(Loader, "loader", {"next()", "load_state(state: table)"})
--     check.constructor(Linear, "Linear(inputs: integer >= 1, outputs: integer >= 1, {bias: boolean = true})")
--
-- Each replaces the functions by ones that call them with arguments that fit: a missing one, one too many, one of a
-- wrong type or out of bounds, an unknown option is an error that names the function and the argument, and a method
-- called without its object says to use a colon. A signature is parsed at the first call.
--
--     name: type            any, tensor, weight (a tensor of floats), number, integer, boolean, string, function,
--                           table, list (a table that is no object), value (any, but for a table that names
--                           arguments), placement, sbp, or one that define_type made
--     integer >= 1          a bound; number 0..1: both
--     none|tanh             one of these words
--     integer or table      either
--     type?                 may be nil;  type = default: nil stands for the default (a number, a word, true or false)
--     ...: type             any number of them
--     {name: type, ...}     options, last: the function gets a table of them with the defaults filled in, always. Those
--                           of a constructor may also follow the arguments in their order: Conv2d(3, 8, 3, 1, 1)
--
-- Whole numbers arrive as integers. As with ops, a table with named keys may come last and name any of the arguments.
-- Messages begin with the text before the parenthesis; the function is found by the word after its last dot.

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

-- A message of a function that another one of ours called names that one too, as those of ops do: who wrote
-- linalg.cond(A, 3) reads "linalg.cond: linalg.matrix_norm: ...".
local function with_caller(message)
    local called, inner = io_.called()
    if called == "" or called == inner or message:sub(1, #inner + 1) ~= inner .. ":" then return message end
    return called .. ": " .. message
end

---Raises an error at the nearest line that is not one of ours. Text that the message quotes of a file cannot fill the
---screen or change the terminal: it is cut, and control characters are escaped.
---@param format string
function M.fail(format, ...)
    error(where() .. io_.clean(with_caller(format:format(...)), "\n\t"), 0)
end

---"; did you mean 'x'?" or ""
---@param word any
---@param names string[]
---@param place string? where it was looked for, "nn" or "optim", for advice to scripts ported from PyTorch
---@param elsewhere string? the path of the same name in another table
---@return string
function M.suggest(word, names, place, elsewhere)
    return io_.suggest(tostring(word), names, place, elsewhere)
end

local TEXT_LIMIT = 40       -- of what is shown of a string

---A number by string.format, for what is read again: with a point, whatever locale the program has set.
function M.digits(format, number) return (format:format(number):gsub("[^%w+-]+", ".")) end

---A string as messages show it: in quotes, cut, without control characters.
---@param text string
---@return string
function M.quote(text)
    if #text > TEXT_LIMIT then text = text:sub(1, TEXT_LIMIT) .. "..." end
    return "'" .. text:gsub("%c", "?") .. "'"
end

-- Tables of functions, also those of the objects of a class -> the name that scripts write.
local owners = setmetatable({[flow] = "flow"}, {__mode = "k"})

---The value as text, for "must be ..., got %s": numbers and words as they are, of other values the kind.
---@return string
function M.got(value)
    if type(value) == "number" then return value ~= value and "nan" or tostring(value) end
    if type(value) == "string" then return M.quote(value) end
    if type(value) == "boolean" then return tostring(value) end
    if M.is_tensor(value) then return value.dtype .. " tensor" end
    local meta = debug.getmetatable(value)
    local name = type(meta) == "table" and (rawget(meta, "__name") or owners[meta])
    return type(name) == "string" and name or type(value)
end

---The keys of a table as text, sorted.
---@return string[]
function M.sorted_keys(t)
    local keys = {}
    for key in pairs(t) do keys[#keys + 1] = key end
    table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
    return keys
end

---An error when a function of a module (not one of its objects) is called as nn:pin(x): its first argument is then the
---module. Called by the function itself. The message has the name it was called by: it may have several, of which
---the table may hold only those that were read.
---@param name string of the function in its module
---@param first any the first argument
---@param kind string? what it is, default a function
function M.refuse_colon(name, first, kind)
    local owner = owners[first]
    if not owner then return end
    local called = debug.getinfo(2, "n")
    if called.namewhat == "method" then name = called.name
    elseif called.namewhat ~= "" then return end
    if rawget(first, name) == nil then return end
    M.fail("%s.%s is a %s: write %s.%s(...), with a dot", owner, name, kind or "function", owner, name)
end

---The holder of a missing field, for messages: a function of ours that reads an argument is named before it.
---@param name string
---@return string
function M.read_by(name)
    local called = io_.called()
    return called == "" and name or called .. ": " .. name
end

---Makes reading a name that a table (a module, or a class that is its objects' __index) does not have an error.
---@param name string
---@param t table
---@param hint string? what to write in place of a number or another key that is no name: "; write x"
---@return table t
function M.strict(name, t, hint)
    local meta = getmetatable(t) or {}
    local inherited = meta.__index
    function meta.__index(_, key)
        local value = inherited and inherited[key]
        if value ~= nil or type(key) == "string" and key:sub(1, 1) == "_" then return value end
        local what = M.read_by(name)
        if type(key) ~= "string" then M.fail("%s has no [%s]%s", what, M.got(key), hint or "") end
        local names = M.sorted_keys(t)
        table.move(meta.__names or {}, 1, #(meta.__names or {}), #names + 1, names)
        local elsewhere = require("flow.elsewhere").find(key, name)
        M.fail("%s has no %s%s", what, M.quote(key), M.suggest(key, names, name, elsewhere))
    end
    owners[t] = name
    return setmetatable(t, meta)
end

---Default of an option that may be left out.
M.none = setmetatable({}, {__name = "none"})

---The objection to a value for an option whose default is `default`, or nil.
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
            M.fail("%s: unknown option %s%s", who, M.quote(tostring(key)), M.suggest(key, M.sorted_keys(defaults)))
        end
        local expected = wrong_type(given[key], default)
        if expected then M.fail("%s: %s must be %s, got %s", who, key, expected, M.got(given[key])) end
        result[key] = given[key]
    end
    return result
end

---A whole number; least: the smallest, if there is one.
---@return integer
function M.integer(who, name, value, least)
    local whole = math.type(value) and math.tointeger(value)
    if not whole or least and whole < least then
        M.fail("%s: %s must be a whole number%s, got %s", who, name, least and " >= " .. least or "", M.got(value))
    end
    return whole
end

---A number in [least, most].
---@return number
function M.number(who, name, value, least, most)
    if type(value) ~= "number" or not (value >= least and value <= most) then
        if most == math.huge then M.fail("%s: %s must be a number >= %g, got %s", who, name, least, M.got(value)) end
        M.fail("%s: %s must be a number in [%g, %g], got %s", who, name, least, most, M.got(value))
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
    if not M.is_tensor(value) then M.fail("%s: %s must be a tensor, got %s", who, name, M.got(value)) end
    return value
end

-- ---- signatures ----

local function always() return true end

-- Types by name: the expected value in messages, and the test.
local types = {
    any = {"anything", always},
    value = {"anything", always},
    tensor = {"a tensor", M.is_tensor},
    number = {"a number", function(value) return type(value) == "number" and value == value end},
    integer = {"a whole number", function(value) return math.type(value) and math.tointeger(value) ~= nil end},
    boolean = {"true or false", function(value) return type(value) == "boolean" end},
    string = {"a string", function(value) return type(value) == "string" end},
    weight = {"a tensor of floats", function(value) return M.is_tensor(value) and value.dtype:find("float") ~= nil end},
    table = {"a table", function(value) return type(value) == "table" end},
    ["function"] = {"a function", function(value)
        local meta = type(value) == "table" and getmetatable(value)
        return type(value) == "function" or type(meta) == "table" and rawget(meta, "__call") ~= nil
    end},
}

-- True if the value, or each entry of a list of them, is an sbp or the text of one.
local function is_sbp(value, nested)
    if type(value) == "string" then return true end
    if type(value) == "userdata" then return debug.getmetatable(value) == debug.getmetatable(flow.sbp.broadcast) end
    if type(value) ~= "table" or getmetatable(value) ~= nil or nested or #value == 0 then return false end
    for i = 1, #value do
        if not is_sbp(value[i], true) then return false end
    end
    return true
end
types.list = {"a table", function(value)
    local meta = getmetatable(value)
    return type(value) == "table" and (meta == nil or type(meta) == "table" and rawget(meta, "__is_list") == true)
end}
types.sbp = {'an sbp, as "S(0)", "B" or a list of them', is_sbp}
types.placement = {"a placement, as flow.placement gives", function(value)
    return type(value) == "userdata" and debug.getmetatable(value) == debug.getmetatable(flow.placement.all("cpu"))
end}

---True if the value is of that type.
---@return boolean
function M.is(name, value)
    return types[name][2](value)
end

---A type for signatures.
---@param name string
---@param expected string as in "must be ..."
---@param test fun(value: any): boolean
---@param hint (fun(value: any): string)? what to write in place of a value that is none: "; write x" or ""
function M.define_type(name, expected, test, hint)
    types[name] = {expected, test, hint}
end

-- One alternative of a type: {expected, test, hint = see define_type, integer = may it have to become one}.
local function parse_alternative(text)
    if text:find("|", 1, true) then
        local words, list = {}, {}
        for word in text:gmatch("[^|]+") do words[word], list[#list + 1] = true, word end
        return {"one of " .. text, function(value) return words[value] ~= nil end, words = list}
    end
    local name, low, high = text:match("^(%w+) (%S+)%.%.(%S+)$")
    if not name then name, low = text:match("^(%w+) >= (%S+)$") end
    local kind = assert(types[name or text], text)
    local result = {kind[1], kind[2], hint = kind[3], integer = (name or text) == "integer", kind = name or text}
    if not low then return result end
    local least, most = tonumber(low), tonumber(high or math.huge)
    result[1] = kind[1] .. (high and (" in [%s, %s]"):format(low, high) or " >= " .. low)
    result[2] = function(value) return kind[2](value) and value >= least and value <= most end
    return result
end

local constants = {["true"] = true, ["false"] = false}

-- "integer >= 1 = 1" -> {name =, optional =, default =, expected =, the alternatives}
local function parse_parameter(text)
    local name, kind = text:match("^([%w_.]+): (.+)$")
    local p = {name = assert(name, text), optional = false}
    local before, default = kind:match("^(.-) = (.+)$")
    if before then
        p.optional, kind, p.default = true, before, constants[default]
        if p.default == nil then p.default = math.tointeger(default) or tonumber(default) or default end
    elseif kind:sub(-1) == "?" then
        p.optional, kind = true, kind:sub(1, -2)
    end
    local expected = {}
    for alternative in (kind .. " or "):gmatch("(.-) or ") do
        p[#p + 1] = parse_alternative(alternative)
        expected[#p] = p[#p][1]
        p.words = p.words or p[#p].words
        p.integer = p.integer or p[#p].integer
        p.hint = p.hint or p[#p].hint
    end
    p.expected = table.concat(expected, " or ")
    return p
end

local function parse_list(text)
    local list = {}
    for one in text:gmatch("%s*([^,]+)") do list[#list + 1] = parse_parameter(one) end
    return list
end

-- The signature as {who =, usage =, options = list or nil, rest = parameter or nil, names =, the parameters}
local function parse(usage)
    local who, inside = usage:match("^([%w_.]+)%((.*)%)$")
    local positional, options = inside:match("^(.-),?%s*{(.*)}$")
    local s = parse_list(positional or inside)
    s.who, s.usage, s.options, s.names = who, usage, options and parse_list(options), {}
    if #s > 0 and s[#s].name == "..." then s.rest = table.remove(s) end
    for i, p in ipairs(s) do s.names[i] = p.name end
    for _, p in ipairs(s.options or {}) do s.names[#s.names + 1] = p.name end
    return s
end

local function fits(parameter, value)
    for i = 1, #parameter do
        if parameter[i][2](value) then return true end
    end
    return false
end

local function wrong(signature, p, name, value)
    local hint = p.hint and p.hint(value) or p.words and type(value) == "string" and M.suggest(value, p.words) or ""
    M.fail("%s: %s must be %s, got %s%s", signature.who, name, p.expected, M.got(value), hint)
end

-- The value of a parameter that was given `value`.
local function read(signature, parameter, value, given, name)
    if value == nil and parameter.optional then return parameter.default end
    if value == nil and not given then M.fail("%s: missing argument '%s'", signature.who, parameter.name) end
    if not fits(parameter, value) then wrong(signature, parameter, name or parameter.name, value) end
    if parameter.integer and math.type(value) == "float" then return math.tointeger(value) or value end
    return value
end

-- A table that names arguments; an empty one names none.
local function is_named(value)
    if type(value) ~= "table" or getmetatable(value) ~= nil or #value > 0 then return false end
    for key in pairs(value) do
        if type(key) == "string" then return true end
    end
    return next(value) == nil
end

local function position_of(list, name)
    for i, p in ipairs(list) do
        if p.name == name then return i end
    end
end

-- Types of lists, also those of sizes of kernels (nn_sizes.lua). A table that names arguments is none of them.
local LISTS = {list = true, single = true, pair = true, triple = true, value = true}

-- True if a key of the table is one of the signature's names, or one that scripts write in place of it. A constructor's
-- lists have no names at all.
local function names_argument(signature, value)
    if not is_named(value) or next(value) == nil then return false end
    if signature.in_order then return true end
    for key in pairs(value) do
        for _, name in ipairs(signature.names) do
            if key == name then return true end
        end
        if type(key) == "string" and M.suggest(key, signature.names, signature.who) ~= "" then return true end
    end
    return false
end

-- True if the value is one of the parameter's own, and no table that names arguments.
local function is_own(signature, parameter, value)
    for i = 1, #parameter do
        local one = parameter[i]
        if one[2](value) and not (LISTS[one.kind] and names_argument(signature, value)) then return true end
    end
    return false
end

-- "; write Linear(...):to "float64"" for an option of PyTorch's modules that those of flow do not have, else nil.
local function moved_hint(s, key, value)
    if s.in_order ~= "module" or key ~= "dtype" and key ~= "device" then return nil end
    return ('; write %s(...):to "%s"'):format(s.who, type(value) == "string" and value or key)
end

-- Puts what the table names among the arguments and into the options.
local function spread_named(s, named, args, given, options)
    for _, key in ipairs(M.sorted_keys(named)) do
        if type(key) ~= "string" then M.fail("%s: options must have names, got a key of type %s", s.who, type(key)) end
        local i = position_of(s, key)
        if i and i <= given then M.fail("%s: '%s' is given twice", s.who, key) end
        if i then
            args[i] = named[key]
        elseif s.options and position_of(s.options, key) then
            options[key] = named[key]
        else
            local hint = moved_hint(s, key, named[key]) or M.suggest(key, s.names, s.who)
            M.fail("%s: unknown option %s%s", s.who, M.quote(key), hint)
        end
    end
end

-- An error where the table names an option that was given in order.
local function refuse_twice(signature, named, given)
    for i = #signature + 1, given do
        local name = signature.options[i - #signature].name
        if named[name] ~= nil then M.fail("%s: '%s' is given twice", signature.who, name) end
    end
end

-- "; several inputs go in a list: gradcheck(f, {x, y})" where the last parameter, a plural, may be a list and its
-- second entry stands behind it.
local function list_hint(signature, value)
    local p, names = signature[#signature], {}
    if not p or p.name:sub(-1) ~= "s" or not M.is_tensor(value) then return "" end
    if not (fits(p, value) and fits(p, {})) then return "" end
    for i = 1, #signature - 1 do names[i] = signature[i].name end
    names[#signature] = "{x, y}"
    return ("; several %s go in a list: %s(%s)"):format(p.name, signature.who, table.concat(names, ", "))
end

-- Takes the options that follow the arguments in their order out of args. Returns how many arguments there are.
local function take_ordered(signature, args, given, options)
    for i = #signature + 1, given do
        options[signature.options[i - #signature].name], args[i] = args[i], nil
    end
    return math.min(given, #signature)
end

-- The arguments that the function gets.
local function bind(s, ...)
    local args, given, options = {...}, select("#", ...), {}
    local count, last = #s, args[select("#", ...)]
    local most = count + (s.in_order and s.options and #s.options or 0)
    local may_name = given > count and given <= most + 1
        or given > 0 and given <= count and not is_own(s, s[given], last)
    if may_name and not s.rest and is_named(last) then
        args[given], given = nil, given - 1
        if given > count then
            refuse_twice(s, last, given)
            given = take_ordered(s, args, given, options)
        end
        spread_named(s, last, args, given, options)
    elseif given > count and given <= most then
        given = take_ordered(s, args, given, options)
    elseif given == count + 1 and s.options then
        if last ~= nil then
            M.fail("%s: options must be a table with names, got %s%s", s.who, M.got(last), list_hint(s, last))
        end
        given = given - 1
    end
    if given > count and not s.rest then
        M.fail("%s: too many arguments: %s%s", s.who, s.usage, list_hint(s, args[count + 1]))
    end
    for i = 1, count do args[i] = read(s, s[i], args[i], i <= given) end
    for i = count + 1, s.rest and given or 0 do args[i] = read(s, s.rest, args[i], true, "argument " .. i) end
    if not s.options then return table.unpack(args, 1, s.rest and math.max(count, given) or count) end
    for _, p in ipairs(s.options) do options[p.name] = read(s, p, options[p.name], true) end
    args[count + 1] = options
    return table.unpack(args, 1, count + 1)
end

-- Wrappers of functions -> {the function, its signature}
local originals = setmetatable({}, {__mode = "k"})

---The function that `f` checks the arguments of (f itself when there is none), and its signature.
---@return function, string?
function M.original(f)
    local entry = originals[f]
    if entry then return entry[1], entry[2] end
    return f, nil
end

---Help, completion and messages take `f` for that function, around which it is written.
---@param f function
---@param like function
---@return function f
function M.stands_for(f, like)
    originals[f] = originals[like] or {like}
    return f
end

-- A signature may be broken into lines.
local function one_line(usage)
    return usage:find("\n", 1, true) and usage:gsub("%s+", " ") or usage
end

-- "init.ones_(x: tensor)" -> "init.ones_", "ones_"
local function names_of(usage)
    local who = usage:sub(1, usage:find("(", 1, true) - 1)
    return who, who:find(".", 1, true) and who:match("[%w_]+$") or who
end

-- Arguments as they are. A stand-in calls no function last: its frame, which has the name, would be gone.
local function results(...) return ... end

-- Notes what stands in for f.
local function stands_in(stand_in, f, usage, who)
    originals[stand_in] = {f, usage}
    if who ~= "forward" then io_.names[stand_in] = who end      -- messages name the layer's op
    return stand_in
end

-- f as the function `name` without an object.
local function checked(f, name, usage, who)
    local s
    return stands_in(function(...)
        if owners[(...)] then M.refuse_colon(name, (...)) end
        s = s or parse(usage)
        return results(f(bind(s, ...)))
    end, f, usage, who)
end

-- For fast calls: the wrapper of a method that needs one tensor only -> the method itself, which may be
-- called on an object of its class with a tensor, and nothing else, without more checks.
M.takes_tensor = setmetatable({}, {__mode = "k"})

-- True if a function of this signature may be called without arguments, all of them nil.
local function is_bare(usage)
    return usage:find("[(?]%)$") ~= nil and not usage:find("[^?],")
end

-- f as the method `name` of objects for which is(self) holds; in_order: its options may be given in their order.
local function checked_method(f, name, usage, who, object, is, in_order)
    local s, bare
    local stand_in = stands_in(function(self, ...)
        if not is(self) then
            M.fail("%s: a method is called with a colon, %s:%s(); got %s as the %s", who, object, name, M.got(self),
                object)
        end
        if select("#", ...) == 0 then
            if bare == nil then bare = is_bare(usage) end
            if bare then return results(f(self)) end
        end
        if not s then
            s = parse(usage)
            s.in_order = in_order
        end
        return results(f(self, bind(s, ...)))
    end, f, usage, who)
    if name ~= "forward" then return stand_in end
    local first, rest = usage:match("^[%w_.]+%([%w_]+: (%a+)(.*)%)$")
    if (first == "tensor" or first == "any") and (rest == "" or rest:find("^, [^,]+%?$")) then
        M.takes_tensor[stand_in] = f
    end
    return stand_in
end

---Gives functions of a table their signatures.
---@param t table
---@param signatures string[]
function M.takes(t, signatures)
    for _, usage in ipairs(signatures) do
        local who, name = names_of(usage)
        t[name] = checked(assert(rawget(t, name), name), name, one_line(usage), who)
    end
end

-- True if getmetatable(value) is this class, or has it as __index at any depth.
local function instance_test(class)
    local known     -- the last metatable found to be
    return function(value)
        local first = type(value) == "table" and getmetatable(value)
        if first and first == known then return true end
        local meta = first
        while type(meta) == "table" and meta ~= class do
            local above = getmetatable(meta)
            meta = above and above.__index
        end
        if meta == class then known = first end
        return meta == class
    end
end

---Gives methods of a class their signatures, in which the object is not named.
---@param class table
---@param object string what messages call one: "loader" in "loader:next()"
---@param signatures string[]
---@param is fun(value: any): boolean? is this an object of the class? Left out: by its metatables
---@return fun(value: any): boolean is
function M.methods(class, object, signatures, is)
    is = is or instance_test(class)
    for _, usage in ipairs(signatures) do
        local who, name = names_of(usage)
        class[name] = checked_method(assert(rawget(class, name), name), name, one_line(usage), who, object, is)
    end
    return is
end

---Gives `init` of a class of modules its signature. Options may follow the arguments in their order, PyTorch's.
---@param class table
---@param usage string
---@param is fun(value: any): boolean?
function M.constructor(class, usage, is)
    class.init = checked_method(rawget(class, "init"), "init", one_line(usage), names_of(usage), "module",
        is or instance_test(class), is and "module" or true)
end

return M
