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

-- The layer that `part` is with this number of inputs, in eval if `part` is.
local function layer_of(part, inputs)
    local args = part.arguments
    local layer = flow.nn[getmetatable(part).becomes](inputs, table.unpack(args, 1, args.n))
    return layer:train(part.training)
end

-- ---- before the first call ----

-- The lazy modules among a module and those below it, as {module, name}.
local function lazy_parts(net)
    local list = {}
    class.walk(net, function(name, part)
        if getmetatable(part).becomes then list[#list + 1] = {part, name} end
    end)
    return list
end

local before = {}

-- An optimizer made of the other parameters would never train the ones that are still to be made.
function before.refuse(net, who)
    local first = lazy_parts(net)[1]
    if not first then return end
    local kind, name = class.class_name(first[1]), first[2]
    check.fail("%s: %s has no weights yet; run the net once on a batch first", who,
        name == "" and kind or ("%s (%s)"):format(check.quote(name), kind))
end

-- The number of inputs by the weight, or the running mean, that a state has under that name; nil: it has none.
local function inputs_in(part, state, name)
    local t = state[class.join(name, "weight")] or state[class.join(name, "running_mean")]
    if not (check.is_tensor(t) or require("flow.checkpoint").is_stored(t)) then return nil end
    local real, args = getmetatable(part).becomes, part.arguments
    if real:find "Norm" or real:find "Transpose" then return t.shape[1] end
    local last = args[args.n]
    return t.shape[2] and t.shape[2] * (type(last) == "table" and last.groups or 1)
end

-- Numbers of inputs by lazy module, as a state has them under the names that name_of gives; how many there are.
local function all_inputs(parts, state, name_of)
    local inputs, count = {}, 0
    for _, entry in ipairs(parts) do
        local n = inputs_in(entry[1], state, name_of(entry[2]))
        inputs[entry[1]], count = n, count + (n and 1 or 0)
    end
    return inputs, count
end

-- Makes the layers of which a state has the weights, by flow's names or, where more are found by them, by PyTorch's.
function before.make(net, state)
    local parts = lazy_parts(net)
    local inputs, count = all_inputs(parts, state, function(name) return name end)
    local shifted, more = all_inputs(parts, state, module.counted_from_0)
    if more > count then inputs = shifted end
    for _, entry in ipairs(parts) do
        local part = entry[1]
        if inputs[part] then class.become(part, layer_of(part, inputs[part])) end
    end
end

-- ---- classes ----

-- A class that becomes `real` at its first call, when the number of inputs is known.
local function lazy(name, real, spatial)
    local Lazy = module.Module:extend(name)
    Lazy.becomes = real

    function Lazy:init(...)
        class.lazy = before
        self.arguments = table.pack(...)
    end

    -- The layer is made where x is, in eval if this module is.
    function Lazy:forward(x, ...)
        local axis = axis_of(x, spatial)
        if x.ndim == 0 or axis >= x.ndim then
            check.fail("%s: x has no axis of inputs, got %s", name, check.shape(x))
        end
        local layer = layer_of(self, x:size(axis))
        if x.is_global then
            layer:to_global{placement = x.placement, sbp = "B"}
        elseif x.device ~= "cpu" then
            layer:to(x.device)
        end
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
