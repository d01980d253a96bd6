-- distributions_normal.lua -- Normal and its kin with a location and a scale, uniform numbers.

local flow = require "flow"
local check = require "flow.check"
local D = require "flow.distributions"

local shapes, constraints = D._shapes, D.constraints
local pi = math.pi

local M = {}

local LocationScale = D._class("LocationScale", nil, {loc = 0, scale = 0})
LocationScale.has_rsample = true
function LocationScale:init(loc, scale, validate_args)
    self.loc, self.scale = shapes.together(self.name, loc, scale)
    self:_open(shapes.of(self.loc), {}, validate_args, {scale = constraints.positive, loc = constraints.real})
end
function LocationScale.get_support() return constraints.real end
function LocationScale:get_mean() return self.loc end
function LocationScale:get_mode() return self.loc end
-- Values in units of the scale from the location.
function LocationScale:_standard(value) return (value - self.loc) / self.scale end

local function location_scale(name)
    M[name] = D._class(name, LocationScale, {loc = 0, scale = 0})
    M[name].init = LocationScale.init
    return M[name]
end

local function signature(class, usage) check.constructor(class, usage .. ", validate_args: boolean?)") end
local PARAMETER = ": tensor or number"

-- ---- Normal ----

local Normal = location_scale "Normal"
signature(Normal, "Normal(loc" .. PARAMETER .. ", scale" .. PARAMETER)

function Normal:get_variance() return self.scale * self.scale end
function Normal:get_stddev() return self.scale end

function Normal:rsample(shape)
    return flow.randn_like(self.loc:expand(self:_extended(shape))) * self.scale + self.loc
end

function Normal:log_prob(value)
    self:_check_value(value)
    local z = self:_standard(value)
    return z * z * -0.5 - self.scale:log() - 0.5 * math.log(2 * pi)
end

function Normal:entropy() return self.scale:log() + 0.5 * (1 + math.log(2 * pi)) end

function Normal:cdf(value)
    self:_check_value(value)
    return (self:_standard(value) / math.sqrt(2)):erf() * 0.5 + 0.5
end

function Normal:icdf(value) return self.loc + self.scale * (value * 2 - 1):erfinv() * math.sqrt(2) end

-- ---- LogNormal ----

local LogNormal = location_scale "LogNormal"
signature(LogNormal, "LogNormal(loc" .. PARAMETER .. ", scale" .. PARAMETER)

function LogNormal.get_support() return constraints.positive end
function LogNormal:get_mean() return (self.loc + self.scale * self.scale / 2):exp() end
function LogNormal:get_mode() return (self.loc - self.scale * self.scale):exp() end
function LogNormal:get_variance()
    local square = self.scale * self.scale
    return square:expm1() * (self.loc * 2 + square):exp()
end
function LogNormal:rsample(shape) return D._borrow(Normal, "rsample", self, shape):exp() end

function LogNormal:log_prob(value)
    self:_check_value(value)
    local log = value:log()
    local z = self:_standard(log)
    return z * z * -0.5 - self.scale:log() - 0.5 * math.log(2 * pi) - log
end

function LogNormal:entropy() return D._borrow(Normal, "entropy", self) + self.loc end
function LogNormal:cdf(value)
    self:_check_value(value)
    return (self:_standard(value:log()) / math.sqrt(2)):erf() * 0.5 + 0.5
end
function LogNormal:icdf(value) return D._borrow(Normal, "icdf", self, value):exp() end

-- ---- the absolute values of Normal and Cauchy ----

-- A class of a scale alone.
local function half(name)
    local class = D._class(name, nil, {scale = 0})
    class.has_rsample = true
    function class:init(scale, validate_args)
        self.scale = shapes.together(name, scale)
        self:_open(shapes.of(self.scale), {}, validate_args, {scale = constraints.positive})
    end
    function class.get_support() return constraints.nonnegative end
    function class:get_mode() return flow.zeros_like(self.scale) end
    signature(class, name .. "(scale" .. PARAMETER)
    M[name] = class
    return class
end

local HalfNormal = half "HalfNormal"
function HalfNormal:get_mean() return self.scale * math.sqrt(2 / pi) end
function HalfNormal:get_variance() return self.scale * self.scale * (1 - 2 / pi) end
function HalfNormal:rsample(shape)
    return (flow.randn_like(self.scale:expand(self:_extended(shape))) * self.scale):abs()
end

-- -inf where the value is negative.
local function only_positive(value, log_prob)
    return flow.where(value:ge(0), log_prob, -math.huge)
end

function HalfNormal:log_prob(value)
    self:_check_value(value)
    local z = value / self.scale
    return only_positive(value, z * z * -0.5 - self.scale:log() + 0.5 * math.log(2 / pi))
end
function HalfNormal:entropy() return self.scale:log() + 0.5 * math.log(pi / 2) + 0.5 end
function HalfNormal:cdf(value)
    self:_check_value(value)
    return (value / self.scale / math.sqrt(2)):erf()
end
function HalfNormal:icdf(value) return self.scale * value:erfinv() * math.sqrt(2) end

local HalfCauchy = half "HalfCauchy"
function HalfCauchy:get_mean() return flow.full_like(self.scale, math.huge) end
HalfCauchy.get_variance = HalfCauchy.get_mean
function HalfCauchy:rsample(shape)
    return (flow.zeros_like(self.scale:expand(self:_extended(shape))):contiguous():cauchy_() * self.scale):abs()
end
function HalfCauchy:log_prob(value)
    self:_check_value(value)
    local z = value / self.scale
    return only_positive(value, math.log(2 / pi) - self.scale:log() - (z * z):log1p())
end
function HalfCauchy:entropy() return self.scale:log() + math.log(2 * pi) end
function HalfCauchy:cdf(value)
    self:_check_value(value)
    return (value / self.scale):atan() * (2 / pi)
end
function HalfCauchy:icdf(value) return self.scale * (value * (pi / 2)):tan() end

-- ---- Laplace, Cauchy, Gumbel ----

local Laplace = location_scale "Laplace"
signature(Laplace, "Laplace(loc" .. PARAMETER .. ", scale" .. PARAMETER)
function Laplace:get_variance() return self.scale * self.scale * 2 end
function Laplace:get_stddev() return self.scale * math.sqrt(2) end
function Laplace:rsample(shape)
    local like = self.loc:expand(self:_extended(shape))
    local size = flow.zeros_like(like):contiguous():exponential_()
    return self.loc + self.scale * size * (flow.rand_like(like) - 0.5):sign()
end
function Laplace:log_prob(value)
    self:_check_value(value)
    return -(self.scale * 2):log() - (value - self.loc):abs() / self.scale
end
function Laplace:entropy() return (self.scale * 2):log() + 1 end
function Laplace:cdf(value)
    self:_check_value(value)
    local z = self:_standard(value)
    return 0.5 - z:sign() * (-z:abs()):expm1() * 0.5
end
function Laplace:icdf(value)
    local term = value - 0.5
    return self.loc - self.scale * term:sign() * (term:abs() * -2):log1p()
end

local Cauchy = location_scale "Cauchy"
signature(Cauchy, "Cauchy(loc" .. PARAMETER .. ", scale" .. PARAMETER)
function Cauchy:get_mean() return flow.full_like(self.loc, 0 / 0) end
function Cauchy:get_variance() return flow.full_like(self.loc, math.huge) end
function Cauchy:rsample(shape)
    return flow.zeros_like(self.loc:expand(self:_extended(shape))):contiguous():cauchy_() * self.scale + self.loc
end
function Cauchy:log_prob(value)
    self:_check_value(value)
    local z = self:_standard(value)
    return -math.log(pi) - self.scale:log() - (z * z):log1p()
end
function Cauchy:entropy() return self.scale:log() + math.log(4 * pi) end
function Cauchy:cdf(value)
    self:_check_value(value)
    return self:_standard(value):atan() / pi + 0.5
end
function Cauchy:icdf(value) return ((value - 0.5) * pi):tan() * self.scale + self.loc end

local EULER = 0.57721566490153286060

local Gumbel = location_scale "Gumbel"
signature(Gumbel, "Gumbel(loc" .. PARAMETER .. ", scale" .. PARAMETER)
function Gumbel:get_mean() return self.loc + self.scale * EULER end
function Gumbel:get_variance() return self.scale * self.scale * (pi * pi / 6) end
function Gumbel:get_stddev() return self.scale * (pi / math.sqrt(6)) end
function Gumbel:rsample(shape)
    local times = flow.zeros_like(self.loc:expand(self:_extended(shape))):contiguous():exponential_()
    return self.loc - self.scale * times:log()
end
function Gumbel:log_prob(value)
    self:_check_value(value)
    local z = -self:_standard(value)
    return z - z:exp() - self.scale:log()
end
function Gumbel:entropy() return self.scale:log() + (1 + EULER) end
function Gumbel:cdf(value)
    self:_check_value(value)
    return (-(-self:_standard(value)):exp()):exp()
end
function Gumbel:icdf(value) return self.loc - self.scale * (-value:log()):log() end

-- ---- StudentT ----

local StudentT = D._class("StudentT", nil, {df = 0, loc = 0, scale = 0})
M.StudentT = StudentT
StudentT.has_rsample = true
function StudentT:init(df, loc, scale, validate_args)
    self.df, self.loc, self.scale = shapes.together("StudentT", df, loc, scale)
    self:_open(shapes.of(self.df), {}, validate_args, {df = constraints.positive, scale = constraints.positive})
end
signature(StudentT, "StudentT(df" .. PARAMETER .. ", loc: tensor or number = 0, scale: tensor or number = 1")

function StudentT.get_support() return constraints.real end
function StudentT:get_mean() return flow.where(self.df:le(1), 0 / 0, self.loc) end
function StudentT:get_mode() return self.loc end
function StudentT:get_variance()
    local df = flow.where(self.df:gt(2), self.df, 3) -- elsewhere there is no quotient whose gradient could be NaN
    local value = self.scale * self.scale * df / (df - 2)
    return flow.where(self.df:le(1), 0 / 0, flow.where(self.df:le(2), math.huge, value))
end
function StudentT:rsample(shape)
    local df = self.df:expand(self:_extended(shape)):contiguous()
    local square = (df / 2):standard_gamma() * 2
    return self.loc + self.scale * flow.randn_like(df) * (square / df):rsqrt()
end
-- The logarithm of the density's factor.
function StudentT:_log_factor()
    return self.scale:log() + self.df:log() * 0.5 + 0.5 * math.log(pi) + (self.df / 2):lgamma()
        - ((self.df + 1) / 2):lgamma()
end
function StudentT:log_prob(value)
    self:_check_value(value)
    local z = (value - self.loc) / self.scale
    return (self.df + 1) * -0.5 * (z * z / self.df):log1p() - self:_log_factor()
end
function StudentT:entropy()
    local upper = (self.df + 1) / 2
    return self.scale:log() + upper * (upper:digamma() - (self.df / 2):digamma()) + self.df:log() * 0.5
        + (self.df / 2):lgamma() + 0.5 * math.log(pi) - upper:lgamma()
end

-- ---- Uniform ----

local Uniform = D._class("Uniform", nil, {low = 0, high = 0})
M.Uniform = Uniform
Uniform.has_rsample = true
function Uniform:init(low, high, validate_args)
    self.low, self.high = shapes.together("Uniform", low, high)
    self:_open(shapes.of(self.low), {}, validate_args, {high = constraints.greater_than(self.low)})
end
signature(Uniform, "Uniform(low" .. PARAMETER .. ", high" .. PARAMETER)

function Uniform:get_support() return constraints.interval(self.low, self.high) end
function Uniform:get_mean() return (self.high + self.low) / 2 end
function Uniform:get_mode() return flow.full_like(self.high, 0 / 0) end
function Uniform:get_stddev() return (self.high - self.low) / math.sqrt(12) end
function Uniform:get_variance()
    local width = self.high - self.low
    return width * width / 12
end
function Uniform:rsample(shape)
    return self.low + flow.rand_like(self.low:expand(self:_extended(shape))) * (self.high - self.low)
end
function Uniform:log_prob(value)
    self:_check_value(value)
    local inside = value:ge(self.low):logical_and(value:lt(self.high))
    return flow.where(inside, -(self.high - self.low):log(), -math.huge)
end
function Uniform:entropy() return (self.high - self.low):log() end
function Uniform:cdf(value)
    self:_check_value(value)
    return ((value - self.low) / (self.high - self.low)):clamp(0, 1)
end
function Uniform:icdf(value) return value * (self.high - self.low) + self.low end

return M
