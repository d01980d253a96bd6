-- distributions_more.lua -- distributions that gamma and normal numbers become by a formula.

local flow = require "flow"
local check = require "flow.check"
local D = require "flow.distributions"

local shapes, constraints = D._shapes, D.constraints
local positive = constraints.positive
local TINY = 1.1754943508222875e-38

local M = {}

local function square(x) return x * x end

-- ---- FisherSnedecor: the ratio of two variances ----

local Fisher = D._class("FisherSnedecor", nil, {df1 = 0, df2 = 0})
M.FisherSnedecor = Fisher
Fisher.has_rsample = true
function Fisher:init(df1, df2, validate_args)
    self.df1, self.df2 = shapes.together("FisherSnedecor", df1, df2)
    self:_open(shapes.of(self.df1), {}, validate_args, {df1 = positive, df2 = positive})
end
check.constructor(Fisher,
    "FisherSnedecor(df1: tensor or number, df2: tensor or number, validate_args: boolean?)")
function Fisher.get_support() return positive end
-- df2 where it is above `least`, else NaN: moments that do not exist.
function Fisher:_above(least) return flow.where(self.df2:gt(least), self.df2, 0 / 0) end
function Fisher:get_mean()
    local df2 = self:_above(2)
    return df2 / (df2 - 2)
end
function Fisher:get_mode()
    local mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
    return flow.where(self.df1:gt(2), mode, 0 / 0)
end
function Fisher:get_variance()
    local df2 = self:_above(4)
    return square(df2) * 2 * (self.df1 + df2 - 2) / (self.df1 * square(df2 - 2) * (df2 - 4))
end
function Fisher:rsample(shape)
    local function numbers(df) return D.Gamma(df * 0.5, df, false):rsample(shape) end
    return (numbers(self.df1) / numbers(self.df2)):clamp(TINY)
end
function Fisher:log_prob(value)
    self:_check_value(value)
    local a, b, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
    return (a + b):lgamma() - a:lgamma() - b:lgamma() + a * ratio:log() + (a - 1) * value:log()
        - (a + b) * (ratio * value):log1p()
end

-- ---- InverseGamma ----

local Inverse = D._class("InverseGamma", nil, {concentration = 0, rate = 0})
M.InverseGamma = Inverse
Inverse.has_rsample = true
function Inverse:init(concentration, rate, validate_args)
    self.concentration, self.rate = shapes.together("InverseGamma", concentration, rate)
    self:_open(shapes.of(self.rate), {}, validate_args, {concentration = positive, rate = positive})
end
check.constructor(Inverse,
    "InverseGamma(concentration: tensor or number, rate: tensor or number, validate_args: boolean?)")
function Inverse.get_support() return positive end
function Inverse:get_mean()
    return flow.where(self.concentration:gt(1), self.rate / (self.concentration - 1), math.huge)
end
function Inverse:get_mode() return self.rate / (self.concentration + 1) end
function Inverse:get_variance()
    local a = self.concentration
    return flow.where(a:gt(2), square(self.rate) / (square(a - 1) * (a - 2)), math.huge)
end
function Inverse:rsample(shape) return 1 / D._borrow(D.Gamma, "rsample", self, shape) end
function Inverse:log_prob(value)
    self:_check_value(value)
    local a = self.concentration
    return flow.xlogy(a, self.rate) - (a + 1) * value:log() - self.rate / value - a:lgamma()
end
function Inverse:cdf(value)
    self:_check_value(value)
    return flow.igammac(self.concentration, self.rate / value)
end
function Inverse:entropy()
    local a = self.concentration
    return a + self.rate:log() + a:lgamma() - (a + 1) * a:digamma()
end

-- ---- LogisticNormal: shares of normal numbers ----

local Logistic = D._class("LogisticNormal", D.TransformedDistribution, {})
M.LogisticNormal = Logistic
function Logistic:init(loc, scale, validate_args)
    local base = D.Normal(loc, scale, validate_args)
    if #base.batch_shape == 0 then base = base:expand {1} end
    D.TransformedDistribution.init(self, base, D.transforms.StickBreakingTransform(), validate_args)
end
check.constructor(Logistic, "LogisticNormal(loc: tensor or number, scale: tensor or number, validate_args: boolean?)")
function Logistic.get_support() return constraints.simplex end
function Logistic:get_loc() return self.base_dist.base_dist.loc end
function Logistic:get_scale() return self.base_dist.base_dist.scale end

-- ---- GeneralizedPareto: values above a threshold ----

local Tail = D._class("GeneralizedPareto", nil, {loc = 0, scale = 0, concentration = 0})
M.GeneralizedPareto = Tail
Tail.has_rsample = true
function Tail:init(loc, scale, concentration, validate_args)
    self.loc, self.scale, self.concentration = shapes.together("GeneralizedPareto", loc, scale, concentration)
    self:_open(shapes.of(self.loc), {}, validate_args, {scale = positive})
end
check.constructor(Tail, "GeneralizedPareto(loc: tensor or number, scale: tensor or number, "
    .. "concentration: tensor or number, validate_args: boolean?)")
function Tail:get_support()
    local bounded = self.concentration:lt(0)
    local high = flow.where(bounded, self.loc - self.scale / self.concentration, math.huge)
    return constraints.interval(self.loc, high)
end
-- True if the concentration is 0, where the tail is an exponential one; and a concentration to divide by elsewhere.
function Tail:_kinds()
    local zero = self.concentration:abs():le(1e-8)
    return zero, flow.where(zero, 1, self.concentration)
end
function Tail:get_mean()
    local valid = self.concentration:lt(1)
    local mean = self.loc + self.scale / (1 - flow.where(valid, self.concentration, 0.5))
    return flow.where(valid, mean, 0 / 0)
end
function Tail:get_mode() return self.loc end
function Tail:get_variance()
    local valid = self.concentration:lt(0.5)
    local c = flow.where(valid, self.concentration, 0.25)
    return flow.where(valid, square(self.scale) / (square(1 - c) * (1 - c * 2)), 0 / 0)
end
function Tail:entropy() return self.scale:log() + self.concentration + 1 end
function Tail:rsample(shape) return self:icdf(flow.rand_like(self.loc:expand(self:_extended(shape)))) end
function Tail:log_prob(value)
    self:_check_value(value)
    local z, zero, c = (value - self.loc) / self.scale, self:_kinds()
    return -self.scale:log() - flow.where(zero, z, (1 / c + 1) * (c * z):log1p())
end
---The logarithm of the probability of a larger value.
function Tail:log_survival_function(value)
    self:_check_value(value)
    local z, zero, c = (value - self.loc) / self.scale, self:_kinds()
    return flow.where(zero, -z, -(c * z):log1p() / c)
end
function Tail:log_cdf(value) return (-self:log_survival_function(value):exp()):log1p() end
function Tail:cdf(value) return self:log_cdf(value):exp() end
function Tail:icdf(value)
    local log, zero, c = (-value):log1p(), self:_kinds()
    return self.loc + self.scale * flow.where(zero, -log, (-c * log):expm1() / c)
end

return M
