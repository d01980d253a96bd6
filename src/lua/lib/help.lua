-- help.lua -- help(x): signature and sentence of a function, search for a word. Texts come from the ops' descriptors,
-- from builtins.lua and from the comments above the functions of the Lua modules.

local flow = require "flow"
local check = require "flow.check"
local lazy_names = require "flow.lazy_names"

local M = {}

local lines         -- of the text that is being made

local function print(line) lines[#lines + 1] = line end

local overview = [[
flowlua: Lua with tensors.

    x = flow.randn(2, 3)                 make a tensor; it prints itself
    y = (x * 2):relu():sum()             operators and methods
    x[{0, {1, 3}}]  x["0, 1:3"]          positions from 0, half-open ranges
    x.shape  x.dtype  x.requires_grad    fields
    x:eq(1)  x:lt(y)                     comparisons; x == 1 is always false

help(flow.matmul)    one function           help "soft"     functions with that word
help(flow.nn)        what a module has      Tab             completes names
nn  optim  data      flow.nn and so on      quit  Ctrl-D    end the session
]]

-- Lines of an embedded module, kept, because a search goes through all of its functions; nil when there is none.
local sources = {}
local function source_of(module)
    local text = not sources[module] and flow._source(module)
    if text then
        local list = {}
        for line in (text .. "\n"):gmatch("(.-)\n") do list[#list + 1] = line end
        sources[module] = list
    end
    return sources[module]
end

-- The `---` comment above line `first` of an embedded module, and that line.
local function comment_above(module, first)
    local code, comment = source_of(module), {}
    if not code then return nil end
    local i = first - 1
    while i >= 1 and code[i]:find("^%s*%-%-") do
        table.insert(comment, 1, (code[i]:gsub("^%s*%-+ ?", "")))
        i = i - 1
    end
    return table.concat(comment, "\n"), code[first]:gsub("^%s*local%s+", ""):gsub("^%s*", "")
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
            if holder == flow and flow._methods[name] then builtin[flow._methods[name]] = entry end
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

-- A function of flow's; false when it is none.
local function print_known_function(f)
    local op, entry = flow._describe((check.original(f))), describe_builtin(f)
    if op then
        print_op(op)
        return true
    elseif entry then
        print_entry(entry)
        return true
    end
    local usage
    f, usage = check.original(f)
    local info = debug.getinfo(f, "S")
    local module = info.source:match("^=flow%.(.+)$")
    if not (module and source_of(module)) then return false end
    local comment, header = comment_above(module, info.linedefined)
    print(usage or (header:gsub("^function ", ""):gsub("^[%w_]+[.:]", "")))
    if comment ~= "" then print("    " .. comment:gsub("\n", "\n    ")) end
    return true
end

local function print_function(f)
    if print_known_function(f) then return end
    local info = debug.getinfo(f, "Su")
    if info.what == "C" then
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

-- A class of modules: its constructor, its comment, its arguments.
local function print_module_class(class)
    local init, usage = check.original(class.init)
    local info = debug.getinfo(init, "S")
    local module, name = info.source:match("^=flow%.(.+)$"), rawget(class, "__name")
    local comment, header
    if module then comment, header = comment_above(module, info.linedefined) end
    print(usage or name .. (header and header:match("%(.*%)") or "(...)"))
    for i, line in ipairs(module and source_of(module) or {}) do
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
    for _, name in ipairs(lazy_names.of(t)) do
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

local function is_optimizer(x)
    return type(x) == "table" and type(rawget(x, "defaults")) == "table" and type(rawget(x, "name")) == "string"
end

-- Prints the help of a function or class of flow; false when x is neither.
local function print_callable(x)
    if type(x) == "function" then return print_known_function(x) end
    if is_module_class(x) then print_module_class(x)
    elseif is_optimizer(x) then print_optimizer(x)
    else return false end
    return true
end

-- Tables of functions, and how their names are written.
local function places()
    return {
        {flow, "flow."}, {flow._methods, "x:"}, {flow.nn, "nn."}, {flow.optim, "optim."}, {flow.data, "data."},
        {flow.linalg, "linalg."}, {flow.optim.lr_scheduler, "lr_scheduler."},
    }
end

-- The function or class that is called "softmax", "flow.softmax", "x:softmax", "Linear" or "nn.Linear"; else nil.
local function find_name(word)
    for _, place in ipairs(places()) do
        local holder, before = place[1], place[2]
        local name = word:sub(1, #before) == before and word:sub(#before + 1) or word
        local value = lazy_names.get(holder, name)
        if type(value) == "function" or value == flow.placement or is_module_class(value) or is_optimizer(value) then
            return value
        end
    end
end

-- "    flow.relu                max(x, 0)."
local function row_of(name, about)
    return (("    %-28s %s"):format(name, about:match("\n%s*([^@%s][^\n]*)") or ""):gsub("%s+$", ""))
end

local subjects = {"creation", "elements", "reductions", "views", "operations", "tables and modules", "system"}

-- The names of flow by subject.
local function print_flow()
    local names = {}
    for _, subject in ipairs(subjects) do names[subject] = {} end
    for _, name in ipairs(public_names(flow)) do
        local value = flow[name]
        local op = type(value) == "function" and flow._describe(value)
        local entry = type(value) == "function" and describe_builtin(value)
        local subject = op and op.subject or entry and entry[3]
            or type(value) == "table" and "tables and modules" or "system"
        table.insert(names[subject], name)
    end
    for _, subject in ipairs(subjects) do
        print(subject .. ":")
        print_columns(names[subject])
    end
end

-- Rows of the functions whose names contain the word, and of those that only mention it.
local function search(word)
    local named, mentioned, seen, needle = {}, {}, {}, word:lower()
    for _, place in ipairs(places()) do
        local holder, before = place[1], place[2]
        for _, name in ipairs(public_names(holder)) do
            local value = lazy_names.get(holder, name)
            local out_of_place = name:match("^(.+)_$")
            local twice = out_of_place and lazy_names.get(holder, out_of_place)
            local is_new = value ~= nil and not seen[value] and not twice
            local about = is_new and M.of_callable(value)
            if about then
                seen[value] = true
                local list = name:lower():find(needle, 1, true) and named
                    or about:lower():find(needle, 1, true) and mentioned
                if list then list[#list + 1] = row_of(before .. name, about) end
            end
        end
    end
    return named, mentioned
end

local function print_search(word)
    local named, mentioned = search(word)
    if #named + #mentioned == 0 then
        local names = public_names(flow)
        table.move(public_names(flow._methods), 1, #public_names(flow._methods), #names + 1, names)
        print(("nothing about '%s'%s"):format(word, check.suggest(word, names)))
    end
    for _, row in ipairs(named) do print(row) end
    if #mentioned > 0 then print(("functions that mention '%s':"):format(word)) end
    for _, row in ipairs(mentioned) do print(row) end
end

local print_help
function print_help(...)
    local x = ...
    local named = type(x) == "string" and find_name(x)
    if select("#", ...) == 0 then
        print((overview:gsub("\n$", "")))
    elseif named then
        print_help(named)
    elseif type(x) == "string" then
        print_search(x)
    elseif type(x) == "function" then
        print_function(x)
    elseif flow.is_tensor(x) then
        print("a tensor; its methods and fields:")
        print_columns(public_names(flow._methods))
        print("x == y is one boolean, true for equal tensors. x == 1 is always false: x:eq(1) compares elements.")
        print("Every tensor counts as true: write `if x:gt(0):all():item() then`, not `if x:gt(0) then`.")
    elseif x == flow then
        print_flow()
    elseif x == flow.placement then
        print_entry(describe_builtin(x))
    elseif is_module_class(getmetatable(x)) then
        print_module_class(getmetatable(x))
    elseif not print_callable(x) and type(x) == "table" then
        print_columns(public_names(x))
    elseif type(x) ~= "table" then
        print(("a %s: %s"):format(type(x), tostring(x)))
    end
end

-- The output of `printer` about x as one text; nil when it returns false.
local function text_by(printer, x)
    local outer = lines
    lines = {}
    local text = printer(x) ~= false and table.concat(lines, "\n") or nil
    lines = outer
    return text
end

---The help text of a function or class of flow; nil for any other value.
---@param x any
---@return string?
function M.of_callable(x) return text_by(print_callable, x) end

---The same also for a module, such as flow.nn: the names in it.
---@param x any
---@return string?
function M.of_part(x)
    for name, module in next, package.loaded do
        local is_it = type(x) == "table" and rawequal(module, x) and name:find "^flow%f[.%z]"
        if is_it then return text_by(print_help, x) end
    end
    return M.of_callable(x)
end

---Prints help about a function, a module, a tensor, or the functions that mention a word, on rank 0.
---@param ... any
function M.help(...)
    lines = {}
    print_help(...)
    flow.print(table.concat(lines, "\n"))
end

return M
