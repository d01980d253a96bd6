-- nn_containers.lua -- containers of flow.nn by name, and of parameters.

local check = require "flow.check"
local class = require "flow.module_class"
local module = require "flow.module"
local ordered = require "flow.ordered"

local Module = module.Module

-- ---- by name ----

-- Entries given as {name = value} (in the order of names), or as a list of {name, value}.
local function entries(who, given)
    if module.is_module(given) then
        check.fail("%s: takes a table by names, got %s; write {name = ...}", who, check.got(given))
    end
    local list = {}
    if #given > 0 then
        for i, pair in ipairs(given) do
            if type(pair) ~= "table" or type(pair[1]) ~= "string" or pair[2] == nil then
                check.fail("%s: entry %d must be {name, value}", who, i)
            end
            list[i] = {pair[1], pair[2]}
        end
        return list
    end
    for _, name in ipairs(check.sorted_keys(given)) do list[#list + 1] = {name, given[name]} end
    return list
end

-- The fields of one kind, in order.
local function parts(self, kind)
    local result = ordered.new()
    for _, key in ipairs(self[class.ORDER]) do
        local value = self[class.FIELDS][key]
        if self[class.KINDS][key] == kind and value ~= nil then result[key] = value end
    end
    return result
end

-- Gives a class the methods that read its parts of `kind`.
local function add_readers(Dict, kind)
    ---Names and values in order: `for name, value in dict:items() do`; pairs(dict) walks the same, #dict counts them.
    function Dict:items() return parts(self, kind) end

    function Dict:__len() return #parts(self, kind) end

    function Dict:__pairs() return pairs(parts(self, kind)) end

    function Dict:keys()
        local list = {}
        for key in parts(self, kind) do list[#list + 1] = key end
        return list
    end

    function Dict:values()
        local list = {}
        for _, value in parts(self, kind) do list[#list + 1] = value end
        return list
    end

    function Dict:has(key) return parts(self, kind)[key] ~= nil end

    ---The value of a name, nil when there is none.
    function Dict:get(key) return parts(self, kind)[key] end
end

-- Gives the class `name` the methods that change it; register(self, who, name, value) registers a part.
local function add_writers(Dict, name, register)
    local function put(self, who, key, value)
        if type(rawget(Dict, key)) == "function" then
            check.fail("%s: '%s' is a method of dictionaries; an entry needs another name", who, key)
        end
        register(self, who, key, value)
    end

    local function put_all(self, who, given)
        for _, entry in ipairs(entries(who, given)) do put(self, who, entry[1], entry[2]) end
    end

    function Dict:init(given) put_all(self, name, given or {}) end

    ---Gives a name a value.
    function Dict:set(key, value)
        put(self, name .. ":set", key, value)
        return self
    end

    ---Takes a name out; returns its value.
    function Dict:pop(key)
        local value = self:get(key)
        if value == nil then
            check.fail("%s:pop: there is no %s%s", name, check.quote(key), check.suggest(key, self:keys()))
        end
        self[key] = nil
        return value
    end

    function Dict:update(given)
        put_all(self, name .. ":update", given)
        return self
    end

    function Dict:clear()
        for _, key in ipairs(self:keys()) do self[key] = nil end
        return self
    end
end

-- A class of parts of `kind` by name; register(self, who, name, value) registers one.
local function dictionary(name, kind, register)
    local Dict = Module:extend(name)
    add_readers(Dict, kind)
    add_writers(Dict, name, register)
    check.constructor(Dict, name .. "(given: table?)", module.is_module)
    check.methods(Dict, "dict", {"items()", "keys()", "values()", "has(key: string)", "get(key: string)",
        "set(key: string, value: any)", "pop(key: string)", "update(given: table)", "clear()"}, module.is_module)
    return Dict
end

---Modules by name: nn.ModuleDict {conv = a, pool = b}, dict.conv, dict:get "conv".
---@class flow.nn.ModuleDict: flow.nn.Module
local ModuleDict = dictionary("ModuleDict", "module", function(self, who, name, value)
    if not module.is_module(value) then
        check.fail("%s: '%s' must be a module, got %s%s", who, name, check.got(value), class.class_hint(value))
    end
    self:register_module(name, value)
end)

-- A tensor as a parameter: a leaf that requires grad stays itself.
local function as_parameter(who, t)
    if not check.is_tensor(t) then check.fail("%s: takes tensors, got %s", who, check.got(t)) end
    return t.requires_grad and t.is_leaf and t or module.Parameter(t)
end

---Parameters by name.
---@class flow.nn.ParameterDict: flow.nn.Module
local ParameterDict = dictionary("ParameterDict", "parameter", function(self, who, name, value)
    self:register_parameter(name, as_parameter(who, value))
end)

-- ---- by number ----

---A list of parameters, list[1] .. list[#list].
---@class flow.nn.ParameterList: flow.nn.Module
local ParameterList = Module:extend("ParameterList")

---@param list any[]?
function ParameterList:init(list)
    self:extend_by(list or {})
end

function ParameterList:append(t)
    self[#self + 1] = as_parameter("ParameterList:append", t)
    return self
end

---Appends all tensors of a list.
function ParameterList:extend_by(list)
    local made = {}
    for i, t in ipairs(list) do made[i] = as_parameter("ParameterList:extend_by", t) end
    for _, t in ipairs(made) do self[#self + 1] = t end
    return self
end

check.constructor(ParameterList, "ParameterList(list: list?)", module.is_module)
check.methods(ParameterList, "list", {"append(t: tensor)", "extend_by(list: list)"}, module.is_module)

return {ModuleDict = ModuleDict, ParameterDict = ParameterDict, ParameterList = ParameterList}
