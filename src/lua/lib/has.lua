-- has.lua -- flow.has(name): true if such a function, module, method or field exists; never an error.

local flow = require "flow"
local check = require "flow.check"
local lazy_names = require "flow.lazy_names"

-- The member of `holder` (flow, a module, a class) under that name: its own or inherited, without any call.
local function member(holder, word)
    if type(holder) ~= "table" or word:sub(1, 1) == "_" then return nil end
    local value = lazy_names.get(holder, word)
    if value ~= nil or holder == flow then return value end
    local meta = getmetatable(holder)
    return meta and member(rawget(meta, "__index"), word)
end

---True if flow has a function, module or class of that name ("matmul", "flow.nn.Linear"), or a tensor a method or field
---("x:sum", "x.shape").
---@param name string
---@return boolean
local function has(name)
    check.refuse_colon("has", name)
    if type(name) ~= "string" then
        check.fail('has: name must be a string, as "matmul", "nn.Linear" or "x:sum", got %s', check.type(name))
    end
    local method = name:match("^x[:.](.*)$")
    if method then return flow._methods[method] ~= nil end
    local value = flow
    name = name:match("^flow%.(.+)$") or name
    for word in (name .. "."):gmatch("(.-)%.") do
        value = member(value, word)
        if value == nil then return false end
    end
    return true
end

return {has = has}
