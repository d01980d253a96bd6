-- lazy_names.lua -- names of a table whose values are loaded at their first read: a script pays for what it uses.
--
-- The metatable of such a table lists the names as __names, also once they are loaded. Those of flow and of the methods
-- are made by bind/flow.c and bind/later.c: a function that returns the list.

local M = {}

---Gives a table names that files define. The first read of one loads its file and takes all that the file returns; what
---is no table with that name in it is the value itself.
---@param t table
---@param files table<string, string> names by file: {nn_conv = "Conv1d Conv2d"} is flow.nn_conv
---@param adopt fun(value: any)? called with each value before it is stored
---@return table t
function M.add(t, files, adopt)
    local meta, home, names = getmetatable(t) or {}, {}, {}
    for file, list in pairs(files) do
        for name in list:gmatch "%S+" do home[name], names[#names + 1] = file, name end
    end
    table.sort(names)
    meta.__names = names
    meta.__index = setmetatable({}, {__index = function(_, name)
        if not home[name] then return nil end
        local result = require("flow." .. home[name])
        if type(result) ~= "table" or rawget(result, name) == nil then result = {[name] = result} end
        for key, value in next, result do
            if adopt then adopt(value) end
            t[key] = value
        end
        return result[name]
    end})
    return setmetatable(t, meta)
end

---The names that t loads at their first read; an empty list for most values.
---@return string[]
function M.of(t)
    local meta = type(t) == "table" and getmetatable(t)
    local names = type(meta) == "table" and rawget(meta, "__names") or {}
    if type(names) ~= "function" then return names end
    if debug.getinfo(names, "S").what ~= "C" then return {} end     -- code of a script is not called
    meta.__names = names()
    return meta.__names
end

---t's own field of that name, loaded if that happens at its first read; nil when there is none.
---@param t table
---@param name any
function M.get(t, name)
    local value = rawget(t, name)
    if value ~= nil then return value end
    for _, later in ipairs(M.of(t)) do
        if later == name then return t[name] end
    end
end

return M
