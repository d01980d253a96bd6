-- cli.lua -- options of scripts.
--
--     local options = flow.cli.parse(arg, "train.lua: trains a GPT on text", {
--         {"--layers N", 4, "transformer blocks"},
--         {"--data FILE...", nil, "text to learn from"},
--     })
--
-- The word behind a name stands for the option's value: N a whole number >= 1, C a count (>= 0), I any whole number,
-- X a number >= 0, D a device that can be used here, anything else text; with "..." all words until the next option; no
-- word: a switch. Of an option given twice the last counts. --help prints the list.

local flow = require "flow"
local check = require "flow.check"

local cli = {}

-- Each gives the value, or nil and what it takes, or nil, nil and what is wrong.
local readers = {
    N = function(text)
        local n = math.tointeger(tonumber(text))
        return n and n >= 1 and n or nil, "a whole number >= 1"
    end,
    C = function(text)
        local n = math.tointeger(tonumber(text))
        return n and n >= 0 and n or nil, "a whole number >= 0"
    end,
    I = function(text) return math.tointeger(tonumber(text)), "a whole number" end,
    X = function(text)
        local x = tonumber(text)
        return x and x >= 0 and x < math.huge and x + 0.0 or nil, "a number >= 0"
    end,
    D = function(text)
        local there, message = pcall(flow.empty, 0, {device = text})
        if there then return text end
        return nil, nil, (message:gsub("^.-:%d+: ", ""):gsub("^empty: ", ""))
    end,
}

local function parse_spec(specs)
    local list, by_name, flags = {}, {}, {}
    for i, spec in ipairs(specs) do
        local flag, word = spec[1]:match("^(%-%-[%w-]+) ?(.*)$")
        local option = {
            flag = flag, key = flag:sub(3):gsub("-", "_"), head = spec[1], default = spec[2], help = spec[3],
            several = word:sub(-3) == "...", word = word:gsub("%.%.%.$", ""),
        }
        list[i], by_name[flag], flags[i] = option, option, flag
    end
    flags[#flags + 1] = "--help"
    return list, by_name, flags
end

local function read_value(option, text)
    local reader = readers[option.word]
    if not reader then return text end
    local value, expected, wrong = reader(text)
    if wrong then return nil, ("%s: %s"):format(option.flag, wrong) end
    if value == nil then return nil, ("%s takes %s, got '%s'"):format(option.flag, expected, text) end
    return value
end

-- Values of one option from argument i on: the value and the position after it, or nil and a message.
local function take(option, args, i, attached)
    if option.word == "" then
        if attached then return nil, option.flag .. " takes no value" end
        return true, i
    end
    if attached then
        local value, message = read_value(option, attached)
        if value == nil then return nil, message end
        return option.several and {value} or value, i
    end
    local values = {}
    while args[i] and args[i]:sub(1, 2) ~= "--" and (option.several or #values == 0) do
        local value, message = read_value(option, args[i])
        if value == nil then return nil, message end
        values[#values + 1] = value
        i = i + 1
    end
    if #values == 0 then return nil, ("%s needs a value"):format(option.head) end
    return option.several and values or values[1], i
end

---The help text.
---@return string
function cli.help(about, specs)
    local lines, width = {about, "", "options:"}, #"--help"
    for _, spec in ipairs(specs) do width = math.max(width, #spec[1]) end
    local function add(head, text) lines[#lines + 1] = "  " .. head .. (" "):rep(width - #head) .. "  " .. text end
    for _, spec in ipairs(specs) do
        local default = (spec[2] ~= nil and spec[2] ~= false) and (" (default: %s)"):format(spec[2]) or ""
        add(spec[1], (spec[3] or "") .. default)
    end
    add("--help", "prints this")
    return table.concat(lines, "\n")
end

---Reads arguments. Returns a table of values by name (`-` becomes `_`), the set of those given, and the words that
---belong to no option; or nil and a message. `help` is true if --help was given.
---@param args string[]
---@param specs table[]
---@return table? values
---@return table|string given
---@return string[]? words
function cli.read(args, specs)
    local list, by_name, flags = parse_spec(specs)
    local values, given, words = {}, {}, {}
    for _, option in ipairs(list) do values[option.key] = option.default end
    local i = 1
    while args[i] do
        local flag, attached = args[i]:match("^(%-%-[^=]+)=(.*)$")
        flag = flag or args[i]
        local option = by_name[flag]
        if option then
            local value, after = take(option, args, i + 1, attached)
            if value == nil then return nil, after end
            values[option.key], given[option.key], i = value, true, after
        elseif flag == "--help" or flag == "-h" then
            values.help, i = true, i + 1
        elseif flag:sub(1, 1) == "-" and #flag > 1 then
            return nil, ("unknown option '%s'%s"):format(flag, check.suggest(flag, flags))
        else
            words[#words + 1], i = flag, i + 1
        end
    end
    return values, given, words
end

---Ends the script with a message and status 1.
---@param args string[]
---@param message string
function cli.stop(args, message)
    if flow.rank() == 0 then io.stderr:write((args[0] or "script"):match("[^/]*$"), ": ", message, "\n") end
    os.exit(1, true)
end

---As read, for a script: on --help prints the help and ends the program; on an error prints it and ends the program
---with status 1. `most`: words allowed beside the options (default 0).
---@param args string[]
---@param about string
---@param specs table[]
---@param most integer?
function cli.parse(args, about, specs, most)
    local values, given, words = cli.read(args, specs)
    if values and not values.help and #words > most then
        values, given = nil, ("unexpected '%s'"):format(words[most + 1])
    end
    if values and not values.help then return values, given, words end
    if not values then cli.stop(args, given .. " (see --help)") end
    if flow.rank() == 0 then print(cli.help(about, specs)) end
    os.exit(0, true)
end

local function is_list_of(value, test)
    if not check.is("list", value) then return false end
    for i = 1, #value do
        if not test(value[i]) then return false end
    end
    return true
end

check.define_type("words", "a list of strings, as arg", function(value)
    return is_list_of(value, function(word) return type(word) == "string" end)
end)
check.define_type("options", 'a list of {"--layers N", default, "what it is for"}', function(value)
    return is_list_of(value, function(spec)
        local head = type(spec) == "table" and rawget(spec, 1)
        return type(head) == "string" and head:find("^%-%-[%w-]") ~= nil and type(rawget(spec, 3) or "") == "string"
    end)
end)
check.takes(cli, {
    "help(about: string, specs: options)", "read(args: words, specs: options)", "stop(args: words, message: string)",
    "parse(args: words, about: string, specs: options, most: integer >= 0 = 0)",
})

return check.strict("cli", cli)
