-- nn_activation.lua -- activations and dropouts of flow.nn beside those that nn.lua has.

local flow = require "flow"
local define = require "flow.nn_class"
local init = require "flow.nn_init"
local module = require "flow.module"

local classes = {}

-- Name, function, parameters of both. In place the method with an underscore is called.
local functions = {
    {"ELU", "elu", "alpha: number = 1", "inplace"},
    {"CELU", "celu", "alpha: number = 1", "inplace"},
    {"SELU", "selu", "", "inplace"},
    {"LeakyReLU", "leaky_relu", "negative_slope: number = 0.01", "inplace"},
    {"Hardtanh", "hardtanh", "min_val: number = -1, max_val: number = 1", "inplace"},
    {"ReLU6", "relu6", "", "inplace"},
    {"Hardsigmoid", "hardsigmoid", "", "inplace"},
    {"Hardswish", "hardswish", "", "inplace"},
    {"Mish", "mish", "", "inplace"},
    {"Threshold", "threshold", "threshold: number, value: number", "inplace"},
    {"Hardshrink", "hardshrink", "lambd: number = 0.5"},
    {"Softshrink", "softshrink", "lambd: number = 0.5"},
    {"Tanhshrink", "tanhshrink", ""},
    {"Softplus", "softplus", "beta: number = 1, threshold: number = 20"},
    {"Softsign", "softsign", ""},
    {"LogSigmoid", "logsigmoid", ""},
    {"GLU", "glu", "axis: integer = -1"},
    {"Softmin", "softmin", "axis: integer = -1"},
    {"LogSoftmax", "log_softmax", "axis: integer = -1"},
}

local function join(a, b) return a == "" and b or a .. ", " .. b end

for _, row in ipairs(functions) do
    local name, op, parameters, in_place = row[1], flow[row[2]], row[3], row[4]
    local first, second = parameters:match "^([%w_]+): [^,]*,? ?([%w_]*)"
    local method = in_place and row[2] .. "_"
    local function forward(self, x)
        local f = method and self.inplace and x[method] or op
        if not first then return f(x) end
        if second == "" then return f(x, self[first]) end
        return f(x, self[first], self[second])
    end
    local all = in_place and join(parameters, "inplace: boolean = false") or parameters
    classes[name] = define(name, all, "x: tensor", forward, true)
end

---Softmax over the channels of images [n, channels, height, width], or of one image without n.
classes.Softmax2d = define("Softmax2d", "", "x: tensor", function(_, x) return flow.softmax(x, -3) end)

-- ---- activations that depend on training ----

-- Dropouts: `op(x, p, training)`; in place x takes the result.
local function dropout(name, op)
    classes[name] = define(name, "p: number 0..1 = 0.5, inplace: boolean = false", "x: tensor", function(self, x)
        local y = op(x, self.p, self.training)
        return self.inplace and self.training and x:copy_(y) or y
    end, true)
end
dropout("Dropout1d", flow.dropout1d)
dropout("Dropout2d", flow.dropout2d)
dropout("Dropout3d", flow.dropout3d)
dropout("AlphaDropout", flow.alpha_dropout)
dropout("FeatureAlphaDropout", flow.feature_alpha_dropout)

classes.RReLU = define("RReLU", "lower: number = 0.125, upper: number = 0.3333333333333333, inplace: boolean = false",
    "x: tensor", function(self, x)
        local y = flow.rrelu(x, self.lower, self.upper, self.training)
        return self.inplace and x:copy_(y) or y
    end, true)

-- ---- activations with parameters ----

---x where positive, else weight * x: one weight for all, or one for each channel.
---@class flow.nn.PReLU: flow.nn.Module
local PReLU = module.Module:extend("PReLU")
classes.PReLU = PReLU

---@param count integer? 1, or the number of channels
---@param value number? that the weights begin with
function PReLU:init(count, value)
    self.weight = module.Parameter(init.constant(flow.empty(count), value))
end

function PReLU:forward(x) return flow.prelu(x, self.weight) end

function PReLU:extra() return ("num_parameters=%d"):format(self.weight:numel()) end

module.signatures(PReLU, "PReLU(num_parameters: integer >= 1 = 1, init: number = 0.25)", "forward(x: tensor)")

return classes
