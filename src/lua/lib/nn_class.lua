-- nn_class.lua -- classes of flow.nn that are options around one function: a line for each of them.
--
--     define("Softshrink", "lambd: number = 0.5", "x: tensor", function(self, x)
--         return flow.softshrink(x, self.lambd)
--     end)
--
-- The parameters of the constructor, written as in check.lua, become fields of the module; tensors become buffers.

local check = require "flow.check"
local module = require "flow.module"

local is_module = require("flow.module_class").is_module      -- module's own checks its argument, at every call

-- The names of a list of parameters, and which of them are tensors.
local function names_of(parameters)
    local names, tensors = {}, {}
    for name, kind in parameters:gmatch "([%w_]+): (%w+)" do
        names[#names + 1] = name
        tensors[name] = kind == "tensor" or nil
    end
    return names, tensors
end

-- "alpha=1, inplace=true": the text of a module; switches that are off are left out.
local function text_of(self, shown)
    local parts = {}
    for _, name in ipairs(shown) do
        local value = self[name]
        if math.type(value) then value = ("%.4g"):format(value) end
        if value then parts[#parts + 1] = ("%s=%s"):format(name, value) end
    end
    return table.concat(parts, ", ")
end

---A class whose objects have the parameters as fields.
---@param name string
---@param parameters string of the constructor
---@param operands string of forward
---@param forward function
---@param shown boolean? the parameters are part of the text
---@return table class
return function(name, parameters, operands, forward, shown)
    local class = module.Module:extend(name)
    local names, tensors = names_of(parameters)
    class.forward = forward
    function class:init(...)
        for i, field in ipairs(names) do
            local value = select(i, ...)
            if tensors[field] then self:register_buffer(field, value) else self[field] = value end
        end
    end
    if shown then function class:extra() return text_of(self, names) end end
    check.constructor(class, ("%s(%s)"):format(name, parameters), is_module)
    check.methods(class, "layer", {("forward(%s)"):format(operands)}, is_module)
    return class
end
