-- nn_lazy.lua -- layers that take their number of inputs from their first input, and then are the layer itself.

local flow = require "flow"
local check = require "flow.check"
local class = require "flow.module_class"
local module = require "flow.module"

-- Name of the lazy class, the class that it becomes, spatial axes behind the channels (nil: the last axis counts).
local rows = {
    {"LazyLinear", "Linear"},
    {"LazyConv1d", "Conv1d", 1}, {"LazyConv2d", "Conv2d", 2}, {"LazyConv3d", "Conv3d", 3},
    {"LazyConvTranspose1d", "ConvTranspose1d", 1}, {"LazyConvTranspose2d", "ConvTranspose2d", 2},
    {"LazyConvTranspose3d", "ConvTranspose3d", 3},
    {"LazyBatchNorm1d", "BatchNorm1d", "channels"}, {"LazyBatchNorm2d", "BatchNorm2d", "channels"},
    {"LazyBatchNorm3d", "BatchNorm3d", "channels"},
    {"LazyInstanceNorm1d", "InstanceNorm1d", 1}, {"LazyInstanceNorm2d", "InstanceNorm2d", 2},
    {"LazyInstanceNorm3d", "InstanceNorm3d", 3},
}

-- The axis whose size is the number of inputs.
local function axis_of(x, spatial)
    if not spatial then return -1 end
    return spatial == "channels" and 1 or x.ndim - spatial - 1
end

-- A class that becomes `real` at its first call, when the number of inputs is known.
local function lazy(name, real, spatial)
    local Lazy = module.Module:extend(name)

    function Lazy:init(...) self.arguments = table.pack(...) end

    -- The layer is made where x is, in eval if this module is.
    function Lazy:forward(x, ...)
        local axis = axis_of(x, spatial)
        if x.ndim == 0 or axis >= x.ndim then
            check.fail("%s: x has no axis of inputs, got %s", name, check.shape(x))
        end
        local args = self.arguments
        local layer = flow.nn[real](x:size(axis), table.unpack(args, 1, args.n))
        if x.is_global then
            layer:to_global{placement = x.placement, sbp = "B"}
        elseif x.device ~= "cpu" then
            layer:to(x.device)
        end
        layer:train(self.training)
        class.become(self, layer)
        return self.forward(self, x, ...)
    end

    local _, usage = check.original(flow.nn[real].init)
    local rest = usage:match "^%w+%([^,)]+,?%s*(.*)$"       -- without its inputs
    check.constructor(Lazy, name .. "(" .. rest, module.is_module)
    check.methods(Lazy, "layer", {"forward(x: tensor, ...: any)"}, module.is_module)
    return Lazy
end

local classes = {}
for _, row in ipairs(rows) do
    if flow.has("nn." .. row[2]) then classes[row[1]] = lazy(table.unpack(row)) end
end
return classes
