-- nn_init.lua -- flow.nn.init: initialisers of weights.

local flow = require "flow"
local check = require "flow.check"
local lazy_names = require "flow.lazy_names"

local init = {}

-- Fans of a weight: inputs and outputs of one unit; at least 1, which matters to weights without elements alone.
local function fans(who, t)
    if t:dim() < 2 then check.fail("%s: t must be a weight of two axes or more, got %s", who, check.shape(t)) end
    local field = 1
    for axis = 2, t:dim() - 1 do field = field * t:size(axis) end
    return math.max(t:size(1) * field, 1), math.max(t:size(0) * field, 1)
end

function init.constant(t, value)
    local _ <close> = flow.no_grad()
    return t:fill_(value)
end

function init.zeros(t) return init.constant(t, 0) end
function init.ones(t) return init.constant(t, 1) end

---Uniform in [low, high).
function init.uniform(t, low, high)
    local _ <close> = flow.no_grad()
    return t:uniform_(low, high)
end

function init.normal(t, mean, std)
    local _ <close> = flow.no_grad()
    return t:normal_(mean, std)
end

---Gain of the layer before a nonlinearity, as PyTorch's calculate_gain.
function init.gain(nonlinearity, slope)
    if nonlinearity == "relu" then return math.sqrt(2) end
    if nonlinearity == "tanh" then return 5 / 3 end
    if nonlinearity == "leaky_relu" then return math.sqrt(2 / (1 + slope ^ 2)) end
    return nonlinearity == "selu" and 3 / 4 or 1
end

function init.kaiming_uniform(t, gain)
    local bound = (gain or math.sqrt(2)) * math.sqrt(3 / fans("kaiming_uniform", t))
    return init.uniform(t, -bound, bound)
end

function init.kaiming_normal(t, gain)
    return init.normal(t, 0, (gain or math.sqrt(2)) / math.sqrt((fans("kaiming_normal", t))))
end

function init.xavier_uniform(t, gain)
    local fan_in, fan_out = fans("xavier_uniform", t)
    local bound = gain * math.sqrt(6 / (fan_in + fan_out))
    return init.uniform(t, -bound, bound)
end

function init.xavier_normal(t, gain)
    local fan_in, fan_out = fans("xavier_normal", t)
    return init.normal(t, 0, gain * math.sqrt(2 / (fan_in + fan_out)))
end

check.takes(init, {
    "constant(t: tensor, value: number)", "zeros(t: tensor)", "ones(t: tensor)",
    "uniform(t: weight, low: number = 0, high: number = 1)",
    "normal(t: weight, mean: number = 0, std: number >= 0 = 1)",
    "gain(nonlinearity: linear|conv1d|conv2d|conv3d|sigmoid|tanh|relu|leaky_relu|selu, slope: number = 0.01)",
    "kaiming_uniform(t: weight, gain: number >= 0?)", "kaiming_normal(t: weight, gain: number >= 0?)",
    "xavier_uniform(t: weight, gain: number >= 0 = 1)", "xavier_normal(t: weight, gain: number >= 0 = 1)",
})

lazy_names.add(init, {
    nn_init_more = "constant_ zeros_ ones_ uniform_ normal_ xavier_uniform_ xavier_normal_ calculate_gain " ..
        "kaiming_uniform_ kaiming_normal_ eye_ dirac_ orthogonal_ sparse_ trunc_normal_",
})
return check.strict("nn.init", init)
