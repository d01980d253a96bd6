-- help.lua -- help(x): what an op, a function of a module, or a word is. Texts come from the ops' descriptors and from
-- the comments above the functions of the Lua modules.

local flow = require "flow"
local check = require "flow.check"

local print = flow.print    -- all ranks of a session ask for help

local overview = [[
flowlua: Lua with tensors.

    x = flow.randn(2, 3)                 make a tensor; it prints itself
    y = (x * 2):relu():sum()             operators and methods
    x[{0, {1, 3}}]  x["0, 1:3"]          positions from 0, half-open ranges
    x.shape  x.dtype  x.requires_grad    fields

help(flow.matmul)    one function           help("soft")    functions with that word
help(flow.nn)        what a module has      Tab             completes names
]]

local function lines_of(text)
    local lines = {}
    for line in (text .. "\n"):gmatch("(.-)\n") do lines[#lines + 1] = line end
    return lines
end

-- The `---` comment above line `first` of an embedded module, and that line.
local function comment_above(module, first)
    local source = flow._source(module)
    if not source then return nil end
    local lines, comment = lines_of(source), {}
    local i = first - 1
    while i >= 1 and lines[i]:find("^%s*%-%-") do
        table.insert(comment, 1, (lines[i]:gsub("^%s*%-+ ?", "")))
        i = i - 1
    end
    return table.concat(comment, "\n"), lines[first]:gsub("^%s*local%s+", ""):gsub("^%s*", "")
end

-- Signatures and sentences of the functions that are not ops, by function.
local builtin
local function describe_builtin(f)
    if not builtin then
        builtin = {}
        for _, entry in ipairs(require "flow.builtins") do
            local path, holder = entry[1]:match("^[^(]*"), flow
            if path:sub(1, 2) == "x:" then holder, path = flow._methods, path:sub(3) end
            for name in path:gmatch("%w[%w_]*%f[.]") do holder = holder[name] end
            local name = path:match("[%w_]+$")
            builtin[holder[name]] = entry
            if holder == flow and rawget(flow._methods, name) then builtin[flow._methods[name]] = entry end
        end
    end
    return builtin[f]
end

local function print_entry(entry)
    print(entry[1])
    print("    " .. entry[2])
end

local function print_op(op)
    print(op.sig)
    print("    " .. op.doc)
    local notes = {}
    if op.differentiable then notes[#notes + 1] = "has a gradient" end
    if op.in_place then notes[#notes + 1] = ("in place: x:%s_()"):format(op.name:gsub("_$", "")) end
    if #notes > 0 then print("    " .. table.concat(notes, "; ")) end
end

local function print_function(f)
    local op = flow._describe(f)
    if op then return print_op(op) end
    local entry = describe_builtin(f)
    if entry then return print_entry(entry) end
    local info = debug.getinfo(f, "Su")
    local module = info.source:match("^=flow%.(.+)$")
    local comment, header
    if module then comment, header = comment_above(module, info.linedefined) end
    if header then
        print((header:gsub("^function [%w_]+[.:]", "")))
        if comment ~= "" then print("    " .. comment:gsub("\n", "\n    ")) end
    elseif info.what == "C" then
        print("a built-in function")
    else
        print(("a function of %d parameters, %s:%d"):format(info.nparams, info.short_src, info.linedefined))
    end
end

local function print_comment(comment)
    for line in (comment or ""):gmatch("[^\n]+") do
        if not line:find("^@class") then print("    " .. line) end
    end
end

local function is_module_class(x)
    return type(x) == "table" and type(rawget(x, "__name")) == "string" and rawget(x, "__call") ~= nil
        and type(x.init) == "function"
end

-- A class of modules: how it is made, what it says of itself, its arguments.
local function print_module_class(class)
    local info = debug.getinfo(class.init, "S")
    local module, name = info.source:match("^=flow%.(.+)$"), rawget(class, "__name")
    local comment, header
    if module then comment, header = comment_above(module, info.linedefined) end
    print(name .. (header and header:match("%(.*%)") or "(...)"))
    for i, line in ipairs(module and lines_of(flow._source(module)) or {}) do
        if line:find(('extend("%s")'):format(name), 1, true) then print_comment((comment_above(module, i))) end
    end
    if rawget(class, "init") then print_comment(comment) end
end

-- An optimizer: its options with their defaults.
local function print_optimizer(class)
    local options = {}
    for name, value in pairs(class.defaults) do
        local text = type(value) == "table" and "{" .. table.concat(value, ", ") .. "}" or tostring(value)
        options[#options + 1] = ("%s = %s"):format(name, text)
    end
    table.sort(options)
    print(("%s(parameters, options)"):format(class.name))
    print("    parameters: net:parameters(), or a list of groups {params = ..., lr = ...}")
    print("    options and their defaults: " .. table.concat(options, ", "))
end

local function public_names(t)
    local names = {}
    for key in next, t do
        if type(key) == "string" and key:sub(1, 1) ~= "_" then names[#names + 1] = key end
    end
    local meta = getmetatable(t)
    for _, name in ipairs(meta and meta.__names or {}) do
        if rawget(t, name) == nil then names[#names + 1] = name end
    end
    table.sort(names)
    return names
end

local function print_columns(names)
    local line = "   "
    for _, name in ipairs(names) do
        if #line + #name + 1 > 78 then
            print(line)
            line = "   "
        end
        line = line .. " " .. name
    end
    if line ~= "   " then print(line) end
end

-- Functions whose name or description contains the word.
local function search(word)
    local found, seen, needle = {}, {}, word:lower()
    for _, place in ipairs {{flow, "flow."}, {flow._methods, "x:"}} do
        for _, name in ipairs(public_names(place[1])) do
            local value = rawget(place[1], name)
            local op = type(value) == "function" and flow._describe(value)
            local text = op and (op.sig .. " " .. op.doc) or name
            local twin = name:match('^(.+)_$')
            if not seen[name] and not (twin and seen[twin]) and text:lower():find(needle, 1, true) then
                seen[name] = true
                found[#found + 1] = ("%s%-24s %s"):format(place[2], name, op and op.doc or "")
            end
        end
    end
    table.sort(found)
    if #found == 0 then
        local names = public_names(flow)
        table.move(public_names(flow._methods), 1, #public_names(flow._methods), #names + 1, names)
        print(("nothing about '%s'%s"):format(word, check.suggest(word, names)))
    end
    for _, line in ipairs(found) do print("    " .. line) end
end

---Prints help about a function, a module, a tensor, or the functions that mention a word.
---@param ... any
local function help(...)
    local x = ...
    if select("#", ...) == 0 then
        io.write(overview)
    elseif type(x) == "string" then
        local f = rawget(flow, x) or flow._methods[x]
        if type(f) == "function" or f == flow.placement then return help(f) end
        search(x)
    elseif type(x) == "function" then
        print_function(x)
    elseif flow.is_tensor(x) then
        print("a tensor; its methods and fields:")
        print_columns(public_names(flow._methods))
    elseif x == flow.placement then
        print_entry(describe_builtin(x))
    elseif is_module_class(x) then
        print_module_class(x)
    elseif is_module_class(getmetatable(x)) then
        print_module_class(getmetatable(x))
    elseif type(x) == "table" and type(rawget(x, "defaults")) == "table" then
        print_optimizer(x)
    elseif type(x) == "table" then
        print_columns(public_names(x))
    else
        print(("a %s: %s"):format(type(x), tostring(x)))
    end
end

return help
