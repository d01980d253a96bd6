-- distributions_gamma.lua -- distributions made of gamma numbers, and others of positive numbers and of angles.

local flow = require "flow"
local check = require "flow.check"
local D = require "flow.distributions"

local shapes, constraints = D._shapes, D.constraints
local positive = constraints.positive
local pi = math.pi

local M = {}

-- A class of two positive parameters.
local function pair(name, first, second)
    local class = D._class(name, nil, {[first] = 0, [second] = 0})
    class.has_rsample = true
    function class:init(a, b, validate_args)
        self[first], self[second] = shapes.together(name, a, b)
        self:_open(shapes.of(self[first]), {}, validate_args, {[first] = positive, [second] = positive})
    end
    check.constructor(class,
        ("%s(%s: tensor or number, %s: tensor or number, validate_args: boolean?)"):format(name, first, second))
    M[name] = class
    return class
end

-- Uniform numbers in (0, 1) of a tensor's shape.
local function uniform(like)
    return flow.rand_like(like):clamp(2 ^ -26, 1 - 2 ^ -24)
end

-- ---- Gamma, Chi2, Exponential ----

local Gamma = pair("Gamma", "concentration", "rate")
function Gamma.get_support() return constraints.nonnegative end
function Gamma:get_mean() return self.concentration / self.rate end
function Gamma:get_mode() return ((self.concentration - 1) / self.rate):clamp(0) end
function Gamma:get_variance() return self.concentration / (self.rate * self.rate) end
function Gamma:rsample(shape)
    local numbers = self.concentration:expand(self:_extended(shape)):contiguous():standard_gamma()
    return (numbers / self.rate):clamp(1.1754943508222875e-38)
end
function Gamma:log_prob(value)
    self:_check_value(value)
    return flow.xlogy(self.concentration, self.rate) + flow.xlogy(self.concentration - 1, value) - self.rate * value
        - self.concentration:lgamma()
end
function Gamma:entropy()
    local a = self.concentration
    return a - self.rate:log() + a:lgamma() + (1 - a) * a:digamma()
end
function Gamma:cdf(value)
    self:_check_value(value)
    return flow.igamma(self.concentration, self.rate * value)
end

local Chi2 = D._class("Chi2", Gamma, {concentration = 0, rate = 0})
M.Chi2 = Chi2
function Chi2:init(df, validate_args)
    df = shapes.together("Chi2", df)
    self.concentration, self.rate = shapes.together("Chi2", df * 0.5, 0.5)
    self:_open(shapes.of(df), {}, validate_args, {concentration = positive})
end
function Chi2:get_df() return self.concentration * 2 end
check.constructor(Chi2, "Chi2(df: tensor or number, validate_args: boolean?)")

local Exponential = D._class("Exponential", nil, {rate = 0})
M.Exponential = Exponential
Exponential.has_rsample = true
function Exponential:init(rate, validate_args)
    self.rate = shapes.together("Exponential", rate)
    self:_open(shapes.of(self.rate), {}, validate_args, {rate = positive})
end
check.constructor(Exponential, "Exponential(rate: tensor or number, validate_args: boolean?)")
function Exponential.get_support() return constraints.nonnegative end
function Exponential:get_mean() return 1 / self.rate end
function Exponential:get_mode() return flow.zeros_like(self.rate) end
function Exponential:get_stddev() return 1 / self.rate end
function Exponential:get_variance() return 1 / (self.rate * self.rate) end
function Exponential:rsample(shape)
    return flow.zeros_like(self.rate:expand(self:_extended(shape))):contiguous():exponential_() / self.rate
end
function Exponential:log_prob(value)
    self:_check_value(value)
    return self.rate:log() - self.rate * value
end
function Exponential:entropy() return 1 - self.rate:log() end
function Exponential:cdf(value)
    self:_check_value(value)
    return -(-self.rate * value):expm1()
end
function Exponential:icdf(value) return -(-value):log1p() / self.rate end

-- ---- Dirichlet, Beta ----

local Dirichlet = D._class("Dirichlet", nil, {concentration = 1})
M.Dirichlet = Dirichlet
Dirichlet.has_rsample = true
function Dirichlet:init(concentration, validate_args)
    if concentration.ndim < 1 then check.fail "Dirichlet: concentration must have at least one axis" end
    self.concentration = concentration
    local shape = shapes.of(concentration)
    self:_open(shapes.part(shape, 1, #shape - 1), {shape[#shape]}, validate_args,
        {concentration = constraints.independent(positive, 1)})
end
check.constructor(Dirichlet, "Dirichlet(concentration: tensor, validate_args: boolean?)")
function Dirichlet.get_support() return constraints.simplex end
function Dirichlet:get_mean() return self.concentration / self.concentration:sum(-1, true) end
function Dirichlet:get_mode()
    local above = (self.concentration - 1):clamp(0)
    local mode = above / above:sum(-1, true)
    local edge = self.concentration:lt(1):all(-1, true)
    local largest = self.concentration:argmax(-1, true)
    local corner = flow.zeros_like(mode):scatter(-1, largest, flow.ones_like(mode):narrow(-1, 0, 1))
    return flow.where(edge, corner, mode)
end
function Dirichlet:get_variance()
    local total = self.concentration:sum(-1, true)
    return self.concentration * (total - self.concentration) / (total * total * (total + 1))
end
-- Gamma numbers, divided by their sum.
local function shares(concentration)
    local numbers = concentration:contiguous():standard_gamma():clamp(1.1754943508222875e-38)
    return numbers / numbers:sum(-1, true)
end
function Dirichlet:rsample(shape) return shares(self.concentration:expand(self:_extended(shape))) end
function Dirichlet:log_prob(value)
    self:_check_value(value)
    return flow.xlogy(self.concentration - 1, value):sum(-1) + self.concentration:sum(-1):lgamma()
        - self.concentration:lgamma():sum(-1)
end
function Dirichlet:entropy()
    local a, k = self.concentration, self.event_shape[1]
    local total = a:sum(-1)
    return a:lgamma():sum(-1) - total:lgamma() - (k - total) * total:digamma() - ((a - 1) * a:digamma()):sum(-1)
end

local Beta = pair("Beta", "concentration1", "concentration0")
function Beta.get_support() return constraints.unit_interval end
function Beta:_both() return flow.stack({self.concentration1, self.concentration0}, -1) end
function Beta:get_mean() return self.concentration1 / (self.concentration1 + self.concentration0) end
function Beta:get_mode()
    return Dirichlet(self:_both(), {validate_args = false}).mode:select(-1, 0)
end
function Beta:get_variance()
    local total = self.concentration1 + self.concentration0
    return self.concentration1 * self.concentration0 / (total * total * (total + 1))
end
function Beta:rsample(shape)
    local both = self:_both()
    return shares(both:expand(shapes.join(self:_extended(shape), {2}))):select(-1, 0)
end
function Beta:log_prob(value)
    self:_check_value(value)
    local a, b = self.concentration1, self.concentration0
    return flow.xlogy(a - 1, value) + flow.xlogy(b - 1, 1 - value) + (a + b):lgamma() - a:lgamma() - b:lgamma()
end
function Beta:entropy() return Dirichlet(self:_both(), {validate_args = false}):entropy() end

-- ---- Weibull, Pareto, Kumaraswamy ----

local EULER = 0.57721566490153286060

local Weibull = pair("Weibull", "scale", "concentration")
function Weibull.get_support() return constraints.positive end
function Weibull:get_mean() return self.scale * (1 / self.concentration + 1):lgamma():exp() end
function Weibull:get_mode()
    return self.scale * ((self.concentration - 1) / self.concentration) ^ (1 / self.concentration)
end
function Weibull:get_variance()
    local one, two = (1 / self.concentration + 1):lgamma(), (2 / self.concentration + 1):lgamma()
    return self.scale * self.scale * (two:exp() - (one * 2):exp())
end
function Weibull:rsample(shape)
    local times = flow.zeros_like(self.scale:expand(self:_extended(shape))):contiguous():exponential_()
    return self.scale * times ^ (1 / self.concentration)
end
function Weibull:log_prob(value)
    self:_check_value(value)
    local z = value / self.scale
    return self.concentration:log() - self.scale:log() + (self.concentration - 1) * z:log() - z ^ self.concentration
end
function Weibull:entropy()
    return EULER * (1 - 1 / self.concentration) + (self.scale / self.concentration):log() + 1
end
function Weibull:cdf(value)
    self:_check_value(value)
    return -(-((value / self.scale) ^ self.concentration)):expm1()
end
function Weibull:icdf(value) return self.scale * (-(-value):log1p()) ^ (1 / self.concentration) end

local Pareto = pair("Pareto", "scale", "alpha")
function Pareto:get_support() return constraints.greater_than_eq(self.scale) end
function Pareto:get_mean()
    local a = self.alpha:clamp(1)
    return a * self.scale / (a - 1)
end
function Pareto:get_mode() return self.scale end
function Pareto:get_variance()
    local a = self.alpha:clamp(2)
    return self.scale * self.scale * a / ((a - 1) * (a - 1) * (a - 2))
end
function Pareto:rsample(shape)
    local times = flow.zeros_like(self.scale:expand(self:_extended(shape))):contiguous():exponential_()
    return self.scale * (times / self.alpha):exp()
end
function Pareto:log_prob(value)
    self:_check_value(value)
    return self.alpha:log() + self.alpha * self.scale:log() - (self.alpha + 1) * value:log()
end
function Pareto:entropy() return (self.scale / self.alpha):log() + (1 / self.alpha + 1) end
function Pareto:cdf(value)
    self:_check_value(value)
    return 1 - (self.scale / value) ^ self.alpha
end
function Pareto:icdf(value) return self.scale * (1 - value) ^ (-1 / self.alpha) end

local Kumaraswamy = pair("Kumaraswamy", "concentration1", "concentration0")
function Kumaraswamy.get_support() return constraints.unit_interval end
-- The n-th moment.
function Kumaraswamy:_moment(n)
    local a = n / self.concentration1 + 1
    local b = self.concentration0
    return (a:lgamma() + b:lgamma() - (a + b):lgamma()):exp() * b
end
function Kumaraswamy:get_mean() return self:_moment(1) end
function Kumaraswamy:get_mode()
    local a, b = self.concentration1, self.concentration0
    local mode = ((a - 1) / (a * b - 1)) ^ (1 / a)
    return flow.where(a:lt(1):logical_or(b:lt(1)), 0 / 0, mode)
end
function Kumaraswamy:get_variance()
    local mean = self:_moment(1)
    return self:_moment(2) - mean * mean
end
function Kumaraswamy:rsample(shape)
    return self:icdf(uniform(self.concentration1:expand(self:_extended(shape))))
end
function Kumaraswamy:log_prob(value)
    self:_check_value(value)
    local a, b = self.concentration1, self.concentration0
    return a:log() + b:log() + flow.xlogy(a - 1, value) + (b - 1) * (-(value ^ a)):log1p()
end
function Kumaraswamy:entropy()
    local a, b = 1 - 1 / self.concentration1, 1 - 1 / self.concentration0
    local harmonic = (self.concentration0 + 1):digamma() + EULER
    return b + a * harmonic - self.concentration1:log() - self.concentration0:log()
end
function Kumaraswamy:cdf(value)
    self:_check_value(value)
    return 1 - (1 - value ^ self.concentration1) ^ self.concentration0
end
function Kumaraswamy:icdf(value)
    return (-((-value):log1p() / self.concentration0):expm1()) ^ (1 / self.concentration1)
end

-- ---- VonMises ----

-- The logarithm of the modified Bessel function of order 0 or 1: polynomials of Abramowitz and Stegun 9.8.
local SMALL = {
    [0] = {1.0, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.360768e-1, 0.45813e-2},
    {0.5, 0.87890594, 0.51498869, 0.15084934, 0.2658733e-1, 0.301532e-2, 0.32411e-3},
}
local LARGE = {
    [0] = {0.39894228, 0.1328592e-1, 0.225319e-2, -0.157565e-2, 0.916281e-2, -0.2057706e-1, 0.2635537e-1, -0.1647633e-1,
        0.392377e-2},
    {0.39894228, -0.3988024e-1, -0.362018e-2, 0.163801e-2, -0.1031555e-1, 0.2282967e-1, -0.2895312e-1, 0.1787654e-1,
        -0.420059e-2},
}

-- list[1] + list[2] x + ..., by Horner.
local function polynomial(x, list)
    local sum = list[#list]
    for i = #list - 1, 1, -1 do sum = sum * x + list[i] end
    return sum
end

-- Of tensors x >= 0.
local function log_bessel(x, order)
    local near, far = x:clamp(nil, 3.75), x:clamp(3.75)
    local y = near / 3.75
    local small = polynomial(y * y, SMALL[order])
    small = order == 1 and (near * small):log() or small:log()
    return flow.where(x:lt(3.75), small, far - far:log() * 0.5 + polynomial(3.75 / far, LARGE[order]):log())
end

local VonMises = D._class("VonMises", nil, {loc = 0, concentration = 0})
M.VonMises = VonMises
function VonMises:init(loc, concentration, validate_args)
    self.loc, self.concentration = shapes.together("VonMises", loc, concentration)
    self:_open(shapes.of(self.loc), {}, validate_args, {concentration = positive})
end
check.constructor(VonMises, "VonMises(loc: tensor or number, concentration: tensor or number, validate_args: boolean?)")
function VonMises.get_support() return constraints.real end
function VonMises:get_mean() return self.loc end
function VonMises:get_mode() return self.loc end
function VonMises:get_variance()
    return 1 - (log_bessel(self.concentration, 1) - log_bessel(self.concentration, 0)):exp()
end
function VonMises:log_prob(value)
    self:_check_value(value)
    return self.concentration * (value - self.loc):cos() - math.log(2 * pi) - log_bessel(self.concentration, 0)
end
-- Best and Fisher's rejection (1979): all elements try as often as the slowest may need; a try is taken with a
-- probability of two thirds at least, so 40 leave none.
local function angles(self, shape)
    local kappa = self.concentration:expand(self:_extended(shape)):to "float64"
    local tau = (kappa * kappa * 4 + 1):sqrt() + 1
    local rho = (tau - (tau * 2):sqrt()) / (kappa * 2)
    local r = flow.where(kappa:lt(1e-5), 1 / kappa + kappa, (rho * rho + 1) / (rho * 2))
    local angle, done = flow.zeros_like(kappa), flow.zeros_like(kappa):gt(0)
    for _ = 1, 40 do
        local z = (uniform(kappa) * pi):cos()
        local f = (r * z + 1) / (r + z)
        local c = kappa * (r - f)
        local u = uniform(kappa)
        local good = (c * (2 - c) - u):gt(0):logical_or(((c / u):log() + 1 - c):ge(0))
        local try = (uniform(kappa) - 0.5):sign() * f:clamp(-1, 1):acos()
        angle = flow.where(good:logical_and(done:logical_not()), try, angle)
        done = done:logical_or(good)
    end
    return ((angle + (self.loc + pi)) % (2 * pi) - pi):to(self.loc.dtype)
end
function VonMises:sample(shape)
    return flow.no_grad(function() return angles(self, shape) end)
end

return M
