-- help.lua -- help(x): what an op, a function of a module, or a word is. Texts come from the ops' descriptors and from
-- the comments above the functions of the Lua modules.

local flow = require "flow"

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
    local info = debug.getinfo(f, "Su")
    local module = info.source:match("^=flow%.(.+)$")
    local comment, header
    if module then comment, header = comment_above(module, info.linedefined) end
    if header then
        print(header)
        if comment ~= "" then print("    " .. comment:gsub("\n", "\n    ")) end
    elseif info.what == "C" then
        print("a built-in function")
    else
        print(("a function of %d parameters, %s:%d"):format(info.nparams, info.short_src, info.linedefined))
    end
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
    if #found == 0 then print(("nothing about '%s'"):format(word)) end
    for _, line in ipairs(found) do print("    " .. line) end
end

---Prints help about a function, a module, a tensor, or the functions that mention a word.
---@param ... any
return function(...)
    local x = ...
    if select("#", ...) == 0 then
        io.write(overview)
    elseif type(x) == "string" then
        local f = rawget(flow, x) or flow._methods[x]
        if type(f) == "function" then print_function(f) else search(x) end
    elseif type(x) == "function" then
        print_function(x)
    elseif flow.is_tensor(x) then
        print("a tensor; its methods and fields:")
        print_columns(public_names(flow._methods))
    elseif type(x) == "table" then
        print_columns(public_names(x))
    else
        print(("a %s: %s"):format(type(x), tostring(x)))
    end
end
