-- nn_init_more.lua -- initialisers of flow.nn.init by PyTorch's names and arguments, and those that are seldom used.
-- All of them change t in place and return it.

local flow = require "flow"
local check = require "flow.check"
local init = require "flow.nn_init"

local M = {}

function M.constant_(t, value) return init.constant(t, value) end
function M.zeros_(t) return init.zeros(t) end
function M.ones_(t) return init.ones(t) end
function M.uniform_(t, low, high) return init.uniform(t, low, high) end
function M.normal_(t, mean, std) return init.normal(t, mean, std) end
function M.xavier_uniform_(t, gain) return init.xavier_uniform(t, gain) end
function M.xavier_normal_(t, gain) return init.xavier_normal(t, gain) end

---The gain of the layer before a nonlinearity.
function M.calculate_gain(nonlinearity, param) return init.gain(nonlinearity, param) end

-- sqrt(fan): kaiming's standard deviation is gain / this.
local function root_of_fan(who, t, mode)
    if t:dim() < 2 then check.fail("%s: t must be a weight of two axes or more, got %s", who, check.shape(t)) end
    local field = 1
    for axis = 2, t:dim() - 1 do field = field * t:size(axis) end
    return math.sqrt(math.max(field * t:size(mode == "fan_in" and 1 or 0), 1))
end

function M.kaiming_uniform_(t, a, mode, nonlinearity)
    local bound = math.sqrt(3) * init.gain(nonlinearity, a) / root_of_fan("kaiming_uniform_", t, mode)
    return init.uniform(t, -bound, bound)
end

function M.kaiming_normal_(t, a, mode, nonlinearity)
    return init.normal(t, 0, init.gain(nonlinearity, a) / root_of_fan("kaiming_normal_", t, mode))
end

---Ones on the diagonal of a matrix, zeros elsewhere.
function M.eye_(t)
    local _ <close> = flow.no_grad()
    if t:dim() ~= 2 then check.fail("eye_: t must be a matrix, got %s", check.shape(t)) end
    t:zero_()
    t:diagonal():fill_(1)
    return t
end

---A convolution that gives its input back, in each of the groups: ones in the middle of the window.
function M.dirac_(t, groups)
    local _ <close> = flow.no_grad()
    local n, inputs = t:dim(), t:dim() > 1 and t:size(1)
    if n < 3 or n > 5 then check.fail("dirac_: t must be the weight of a convolution, got %s", check.shape(t)) end
    if t:size(0) % groups ~= 0 then
        check.fail("dirac_: %d outputs cannot be divided into %d groups", t:size(0), groups)
    end
    t:zero_()
    local middle = t
    for axis = n - 1, 2, -1 do middle = middle:select(axis, t:size(axis) // 2) end
    local outputs = t:size(0) // groups
    for g = 0, groups - 1 do
        middle:narrow(0, g * outputs, outputs):diagonal():narrow(0, 0, math.min(outputs, inputs)):fill_(1)
    end
    return t
end

---Rows (or columns, where there are more rows) that are orthonormal, times gain; axes from the second one on are one.
function M.orthogonal_(t, gain)
    local _ <close> = flow.no_grad()
    if t:dim() < 2 then check.fail("orthogonal_: t must have two axes or more, got %s", check.shape(t)) end
    if t:numel() == 0 then return t end
    local rows, columns = t:size(0), t:numel() // t:size(0)
    local random = flow.randn(rows, columns)
    if rows < columns then random = random:t() end
    local q, r = flow.linalg.qr(random:contiguous())
    q = q * r:diagonal():sign()
    if rows < columns then q = q:t() end
    return t:copy_((q * gain):reshape(t.shape):to(t.dtype))
end

---Normal numbers, of which this share of each column is 0.
function M.sparse_(t, sparsity, std)
    local _ <close> = flow.no_grad()
    if t:dim() ~= 2 then check.fail("sparse_: t must be a matrix, got %s", check.shape(t)) end
    local rows, columns = t:size(0), t:size(1)
    local zeros = math.ceil(sparsity * rows)
    t:normal_(0, std)
    for c = 0, columns - 1 do
        if zeros > 0 then t:select(1, c)[flow.randperm(rows):narrow(0, 0, zeros)] = 0 end
    end
    return t
end

-- Of a normal distribution: the share below x.
local function below(x)
    return (1 + flow.tensor(x / math.sqrt(2), {dtype = "float64"}):erf():item()) / 2
end

-- x with erf(x) = y, for all elements: a first guess (Winitzki's) and Newton's steps.
local function inverse_erf(y)
    local l = (1 - y * y):log()
    local half = l / 2 + 2 / (math.pi * 0.147)
    local x = ((half * half - l / 0.147):sqrt() - half):sqrt() * y:sign()
    for _ = 1, 3 do x = x - (x:erf() - y) * (x * x):exp() * (math.sqrt(math.pi) / 2) end
    return x
end

---Normal numbers within [a, b].
function M.trunc_normal_(t, mean, std, a, b)
    local _ <close> = flow.no_grad()
    local low, high = below((a - mean) / std), below((b - mean) / std)
    local share = t:to("float64"):uniform_(2 * low - 1, 2 * high - 1)
    local x = inverse_erf(share:clamp(-1 + 1e-15, 1 - 1e-15)) * (std * math.sqrt(2)) + mean
    return t:copy_(x:clamp(a, b):to(t.dtype))
end

check.takes(M, {
    "constant_(t: tensor, value: number)", "zeros_(t: tensor)", "ones_(t: tensor)",
    "uniform_(t: weight, low: number = 0, high: number = 1)",
    "normal_(t: weight, mean: number = 0, std: number >= 0 = 1)",
    "xavier_uniform_(t: weight, gain: number >= 0 = 1)", "xavier_normal_(t: weight, gain: number >= 0 = 1)",
    "calculate_gain(nonlinearity: linear|conv1d|conv2d|conv3d|sigmoid|tanh|relu|leaky_relu|selu, param: number = 0.01)",
    "kaiming_uniform_(t: weight, a: number = 0, mode: fan_in|fan_out = fan_in, " ..
        "nonlinearity: linear|conv1d|conv2d|conv3d|sigmoid|tanh|relu|leaky_relu|selu = leaky_relu)",
    "kaiming_normal_(t: weight, a: number = 0, mode: fan_in|fan_out = fan_in, " ..
        "nonlinearity: linear|conv1d|conv2d|conv3d|sigmoid|tanh|relu|leaky_relu|selu = leaky_relu)",
    "eye_(t: tensor)", "dirac_(t: tensor, groups: integer >= 1 = 1)", "orthogonal_(t: weight, gain: number = 1)",
    "sparse_(t: weight, sparsity: number 0..1, std: number >= 0 = 0.01)",
    "trunc_normal_(t: weight, mean: number = 0, std: number >= 0 = 1, a: number = -2, b: number = 2)",
})

return M
