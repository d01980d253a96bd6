-- distributions_discrete.lua -- distributions of counts, and of successes by probabilities or logits.

local flow = require "flow"
local check = require "flow.check"
local D = require "flow.distributions"

local shapes, constraints = D._shapes, D.constraints

local M = {}

-- log(1 + exp(x))
local function softplus(x) return x:clamp(0) + (-x:abs()):exp():log1p() end

-- A class with a parameter `probs` or `logits`; the other one is computed when it is read. support: nil if it is the
-- class's own.
local function by_probability(name, support)
    local class = D._class(name, nil, {probs = 0, logits = 0})
    function class:get_probs() return self.logits:sigmoid() end
    function class:get_logits()
        local p = shapes.inside(self.name, self.probs)
        return p:log() - (-p):log1p()
    end
    if support then function class.get_support() return support end end
    M[name] = class
    return class
end

-- Sets probs or logits and opens; others: names of the class's other parameters, which broadcast with it.
local function open(self, probs, logits, validate, wanted, others)
    if (probs == nil) == (logits == nil) then
        check.fail("%s: takes probs or logits, one of them, got %s", self.name, probs and "both" or "none")
    end
    local key = probs and "probs" or "logits"
    if others then
        self[others], self[key] = shapes.together(self.name, self[others], probs or logits)
    else
        self[key] = shapes.together(self.name, probs or logits)
    end
    self:_open(shapes.of(self[key]), {}, validate, wanted or {probs = constraints.unit_interval})
end

local BY = "probs: tensor or number?, logits: tensor or number?, validate_args: boolean?)"

-- The value that logits and a target of zeros and ones have in a binary cross entropy.
local function cross_entropy(logits, value) return softplus(logits) - logits * value end

-- ---- Bernoulli ----

local Bernoulli = by_probability("Bernoulli", constraints.boolean)
Bernoulli.has_enumerate_support = true
function Bernoulli:init(probs, logits, validate_args) open(self, probs, logits, validate_args) end
check.constructor(Bernoulli, "Bernoulli(" .. BY)
function Bernoulli:get_mean() return self.probs end
function Bernoulli:get_variance() return self.probs * (1 - self.probs) end
function Bernoulli:get_mode()
    local p = self.probs
    return flow.where(p:eq(0.5), 0 / 0, p:ge(0.5):to(p.dtype))
end
function Bernoulli:sample(shape)
    return flow.no_grad(function() return self.probs:expand(self:_extended(shape)):bernoulli() end)
end
function Bernoulli:log_prob(value)
    self:_check_value(value)
    return -cross_entropy(self.logits, value)
end
function Bernoulli:entropy() return cross_entropy(self.logits, self.probs) end

-- The values of a support of n values from 0, before the batch's axes.
local function enumerated(self, like, n, expand)
    local shape = {n}
    for i = 1, #self.batch_shape do shape[i + 1] = 1 end
    local values = flow.arange(n):to(like.dtype):to(like.device):reshape(shape)
    if expand == false then return values end
    return values:expand(shapes.join({n}, self.batch_shape))
end
function Bernoulli:enumerate_support(expand)
    return enumerated(self, rawget(self, "probs") or self.logits, 2, expand)
end

-- ---- Geometric: failures before the first success ----

local Geometric = by_probability("Geometric", constraints.nonnegative_integer)
function Geometric:init(probs, logits, validate_args)
    open(self, probs, logits, validate_args, {probs = constraints.positive})
end
check.constructor(Geometric, "Geometric(" .. BY)
function Geometric:get_mean() return 1 / self.probs - 1 end
function Geometric:get_mode() return flow.zeros_like(self.probs) end
function Geometric:get_variance() return (1 / self.probs - 1) / self.probs end
function Geometric:sample(shape)
    return flow.no_grad(function()
        local probs = self.probs:expand(self:_extended(shape))
        local times = flow.zeros_like(probs):contiguous():exponential_()
        return (times / -(-probs):log1p()):floor()
    end)
end
function Geometric:log_prob(value)
    self:_check_value(value)
    local p = self.probs
    local rest = flow.where(p:eq(1):logical_and(value:eq(0)), 0, (-p):log1p())
    return value * rest + p:log()
end
function Geometric:entropy() return cross_entropy(self.logits, self.probs) / self.probs end

-- ---- Poisson ----

local Poisson = D._class("Poisson", nil, {rate = 0})
M.Poisson = Poisson
function Poisson:init(rate, validate_args)
    self.rate = shapes.together("Poisson", rate)
    self:_open(shapes.of(self.rate), {}, validate_args, {rate = constraints.nonnegative})
end
check.constructor(Poisson, "Poisson(rate: tensor or number, validate_args: boolean?)")
function Poisson.get_support() return constraints.nonnegative_integer end
function Poisson:get_mean() return self.rate end
function Poisson:get_mode() return self.rate:floor() end
function Poisson:get_variance() return self.rate end
function Poisson:sample(shape)
    return flow.no_grad(function() return self.rate:expand(self:_extended(shape)):poisson() end)
end
function Poisson:log_prob(value)
    self:_check_value(value)
    return flow.xlogy(value, self.rate) - self.rate - (value + 1):lgamma()
end

-- ---- Binomial ----

local Binomial = by_probability("Binomial")
Binomial.params = {total_count = 0, probs = 0, logits = 0}
Binomial.has_enumerate_support = true
function Binomial:init(total_count, probs, logits, validate_args)
    self.total_count = total_count
    open(self, probs, logits, validate_args,
        {probs = constraints.unit_interval, total_count = constraints.nonnegative_integer}, "total_count")
end
check.constructor(Binomial, "Binomial(total_count: tensor or number = 1, " .. BY)
function Binomial:get_support() return constraints.integer_interval(0, self.total_count) end
function Binomial:get_mean() return self.total_count * self.probs end
function Binomial:get_mode()
    return ((self.total_count + 1) * self.probs):floor():minimum(self.total_count)
end
function Binomial:get_variance() return self.total_count * self.probs * (1 - self.probs) end
function Binomial:sample(shape)
    return flow.no_grad(function()
        local all = self:_extended(shape)
        return flow.binomial(self.total_count:expand(all), self.probs:expand(all))
    end)
end
function Binomial:log_prob(value)
    self:_check_value(value)
    local n = self.total_count
    local choices = (n + 1):lgamma() - (value + 1):lgamma() - (n - value + 1):lgamma()
    return choices + value * self.logits - n * softplus(self.logits)
end
-- The largest count, which all elements must share.
function Binomial:_count(what)
    local most = self.total_count:max():item()
    if self.total_count:min():item() ~= most then
        check.fail("Binomial: %s needs one total_count for the whole batch", what)
    end
    return math.tointeger(most)
end
function Binomial:enumerate_support(expand)
    return enumerated(self, self.total_count, 1 + self:_count "enumerate_support", expand)
end
function Binomial:entropy()
    self:_count "entropy"
    local log_prob = self:log_prob(self:enumerate_support(false))
    return -(log_prob:exp() * log_prob):sum(0)
end

-- ---- NegativeBinomial: successes before total_count failures ----

local NegativeBinomial = by_probability("NegativeBinomial", constraints.nonnegative_integer)
NegativeBinomial.params = {total_count = 0, probs = 0, logits = 0}
function NegativeBinomial:init(total_count, probs, logits, validate_args)
    self.total_count = total_count
    open(self, probs, logits, validate_args,
        {probs = constraints.unit_interval, total_count = constraints.nonnegative}, "total_count")
end
check.constructor(NegativeBinomial, "NegativeBinomial(total_count: tensor or number, " .. BY)
function NegativeBinomial:get_mean() return self.total_count * self.logits:exp() end
function NegativeBinomial:get_mode()
    return ((self.total_count - 1) * self.logits:exp()):floor():clamp(0)
end
function NegativeBinomial:get_variance() return self.mean / (-self.logits):sigmoid() end
function NegativeBinomial:sample(shape)
    return flow.no_grad(function()
        local all = self:_extended(shape)
        local numbers = self.total_count:expand(all):contiguous():standard_gamma()
        return (numbers * self.logits:exp()):poisson()
    end)
end
function NegativeBinomial:log_prob(value)
    self:_check_value(value)
    local n = self.total_count
    local factor = (n + value):lgamma() - (value + 1):lgamma() - n:lgamma()
    factor = flow.where((n + value):eq(0), 0, factor)
    return factor - n * softplus(self.logits) - value * softplus(-self.logits)
end

-- ---- ContinuousBernoulli ----

-- Near a half the formulas are 0 / 0: their series stand in.
local ContinuousBernoulli = by_probability("ContinuousBernoulli", constraints.unit_interval)
ContinuousBernoulli.has_rsample = true
function ContinuousBernoulli:init(probs, logits, lims, validate_args)
    self._lims = lims or {0.499, 0.501}
    open(self, probs, logits, validate_args)
    if probs then self.probs = shapes.inside(self.name, self.probs) end
end
check.constructor(ContinuousBernoulli, "ContinuousBernoulli(probs: tensor or number?, logits: tensor or number?, "
    .. "lims: list?, validate_args: boolean?)")

-- True outside of the limits, where the formula holds, and probabilities with which it can be computed everywhere.
function ContinuousBernoulli:_cut()
    local p = self.probs
    local outside = p:le(self._lims[1]):logical_or(p:gt(self._lims[2]))
    return outside, flow.where(outside, p, self._lims[1])
end
function ContinuousBernoulli:_log_constant()
    local outside, p = self:_cut()
    local below, above = flow.where(p:le(0.5), p, 0), flow.where(p:ge(0.5), p, 1)
    local log = ((-p):log1p() - p:log()):abs():log()
        - flow.where(p:le(0.5), (below * -2):log1p(), (above * 2 - 1):log())
    local x = self.probs - 0.5
    local square = x * x
    return flow.where(outside, log, (square * (104 / 45) + 4 / 3) * square + math.log(2))
end
function ContinuousBernoulli:get_mean()
    local outside, p = self:_cut()
    local x = self.probs - 0.5
    return flow.where(outside, p / (p * 2 - 1) + 1 / ((-p):log1p() - p:log()),
        (x * x * (16 / 45) + 1 / 3) * x + 0.5)
end
function ContinuousBernoulli:get_variance()
    local outside, p = self:_cut()
    local x = self.probs - 0.5
    local square, log = x * x, (-p):log1p() - p:log()
    return flow.where(outside, p * (p - 1) / ((1 - p * 2) * (1 - p * 2)) + 1 / (log * log),
        1 / 12 - (1 / 15 - square * (128 / 945)) * square)
end
function ContinuousBernoulli:rsample(shape)
    return self:icdf(flow.rand_like(self.probs:expand(self:_extended(shape))):clamp(2 ^ -26, 1 - 2 ^ -24))
end
function ContinuousBernoulli:log_prob(value)
    self:_check_value(value)
    return self:_log_constant() - cross_entropy(self.logits, value)
end
function ContinuousBernoulli:cdf(value)
    self:_check_value(value)
    local outside, p = self:_cut()
    local inner = (p ^ value * (1 - p) ^ (1 - value) + p - 1) / (p * 2 - 1)
    local result = flow.where(outside, inner, value)
    return flow.where(value:le(0), 0, flow.where(value:ge(1), 1, result))
end
function ContinuousBernoulli:icdf(value)
    local outside, p = self:_cut()
    local inner = ((value * (p * 2 - 1) - p):log1p() - (-p):log1p()) / (p:log() - (-p):log1p())
    return flow.where(outside, inner, value)
end
function ContinuousBernoulli:entropy()
    local rest = (-self.probs):log1p()
    return self.mean * (rest - self.probs:log()) - self:_log_constant() - rest
end

return M
