-- distributions_categorical.lua -- choices among categories, and their continuous relaxations.

local flow = require "flow"
local check = require "flow.check"
local D = require "flow.distributions"

local shapes, constraints = D._shapes, D.constraints

local M = {}

-- A class of categories along the last axis of probs or logits. event: true if that is the event's axis.
local function by_categories(name, parent, event)
    local class = D._class(name, parent, {probs = 1, logits = 1})
    function class:init(probs, logits, validate_args)
        if (probs == nil) == (logits == nil) then
            check.fail("%s: takes probs or logits, one of them, got %s", name, probs and "both" or "none")
        end
        local given = probs or logits
        if given.ndim < 1 then check.fail("%s: takes probabilities with at least one axis", name) end
        if probs then
            self._raw = probs
            self.probs = probs / probs:sum(-1, true)
        else
            self.logits = logits - logits:logsumexp(-1, true)
        end
        local shape = shapes.of(given)
        self._categories = shape[#shape]
        self:_open(shapes.part(shape, 1, #shape - 1), event and {shape[#shape]} or {}, validate_args,
            {probs = constraints.simplex})
    end
    check.constructor(class, name .. "(probs: tensor?, logits: tensor?, validate_args: boolean?)")
    M[name] = class
    return class
end

-- ---- Categorical ----

local Categorical = by_categories("Categorical")
Categorical.has_enumerate_support = true
function Categorical:get_probs() return self.logits:softmax(-1) end
function Categorical:get_logits()
    return shapes.inside(self.name, self.probs):log()
end
function Categorical:get_support() return constraints.integer_interval(0, self._categories - 1) end
function Categorical:get_param_shape() return shapes.join(self.batch_shape, {self._categories}) end
-- Without an order there is no mean.
function Categorical:get_mean() return flow.full_like(self.probs:select(-1, 0), 0 / 0) end
Categorical.get_variance = Categorical.get_mean
function Categorical:get_mode() return self.probs:argmax(-1) end

-- Positions [sample shape, batch].
function Categorical:_positions(shape)
    local probs = self.probs
    local list, count = shapes.sizes(self.name, shape), 1
    for _, n in ipairs(list) do count = count * n end
    local rows = probs:reshape(-1, self._categories)
    local drawn = rows:multinomial(math.max(count, 1), true):t()
    if count == 0 then drawn = drawn:narrow(0, 0, 0) end
    return drawn:reshape(shapes.join(list, self.batch_shape))
end
function Categorical:sample(shape)
    return flow.no_grad(function() return self:_positions(shape) end)
end
function Categorical:log_prob(value)
    self:_check_value(value)
    local index, logits = value:to "int64":unsqueeze(-1), self.logits
    local batch = shapes.broadcast(shapes.of(value), self.batch_shape, self.name)
    index = index:expand(shapes.join(batch, {1}))
    return logits:expand(shapes.join(batch, {self._categories})):gather(-1, index):squeeze(-1)
end
function Categorical:entropy()
    return -(self.logits:clamp(-3.4028234663852886e38) * self.probs):sum(-1)
end
function Categorical:enumerate_support(expand)
    local shape = {self._categories}
    for i = 1, #self.batch_shape do shape[i + 1] = 1 end
    local values = flow.arange(self._categories):to(self.probs.device):reshape(shape)
    if expand == false then return values end
    return values:expand(shapes.join({self._categories}, self.batch_shape))
end

-- ---- OneHotCategorical ----

local OneHot = by_categories("OneHotCategorical", Categorical, true)
function OneHot.get_support() return constraints.one_hot end
function OneHot:get_mean() return self.probs end
function OneHot:get_variance() return self.probs * (1 - self.probs) end
-- Zeros with a 1 at each position [...], of a dtype.
local function one_hot(positions, n, dtype)
    return positions:unsqueeze(-1):eq(flow.arange(n):to(positions.device)):to(dtype)
end
function OneHot:get_mode() return one_hot(self.probs:argmax(-1), self._categories, self.probs.dtype) end
function OneHot:sample(shape)
    return flow.no_grad(function()
        return one_hot(self:_positions(shape), self._categories, self.probs.dtype)
    end)
end
function OneHot:log_prob(value)
    self:_check_value(value)
    local shape = shapes.join(shapes.broadcast(shapes.part(shapes.of(value), 1, value.ndim - 1), self.batch_shape,
        self.name), {self._categories})
    return self.logits:expand(shape):gather(-1, value:expand(shape):argmax(-1, true)):squeeze(-1)
end
function OneHot:enumerate_support(expand)
    local values = one_hot(flow.arange(self._categories):to(self.probs.device), self._categories, self.probs.dtype)
    local shape = {self._categories}
    for i = 1, #self.batch_shape do shape[i + 1] = 1 end
    shape[#shape + 1] = self._categories
    values = values:reshape(shape)
    if expand == false then return values end
    return values:expand(shapes.join({self._categories}, self.batch_shape, {self._categories}))
end

local Straight = by_categories("OneHotCategoricalStraightThrough", OneHot, true)
Straight.has_rsample = true
function Straight:rsample(shape)
    local samples, probs = self:sample(shape), self.probs
    return samples + (probs - probs:detach())
end

-- ---- Multinomial: counts ----

local Multinomial = by_categories("Multinomial", Categorical, true)
local open = rawget(Multinomial, "init")
function Multinomial:init(total_count, probs, logits, validate_args)
    open(self, probs, logits, validate_args)
    self.total_count = total_count
end
check.constructor(Multinomial,
    "Multinomial(total_count: integer >= 0 = 1, probs: tensor?, logits: tensor?, validate_args: boolean?)")
Multinomial.has_enumerate_support = false
function Multinomial:get_support()
    local total = self.total_count
    return {text = "counts that add up to total_count", event_dim = 1, is_discrete = true, check = function(x)
        return x:ge(0):all(-1):logical_and(x:sum(-1):le(total))
    end}
end
function Multinomial.get_mode() check.fail "Multinomial: has no mode" end
function Multinomial.enumerate_support() check.fail "Multinomial: has no enumerate_support" end
function Multinomial:get_mean() return self.probs * self.total_count end
function Multinomial:get_variance() return self.probs * (1 - self.probs) * self.total_count end
function Multinomial:sample(shape)
    return flow.no_grad(function()
        local positions = self:_positions(shapes.join(self.total_count, shapes.sizes(self.name, shape)))
        return one_hot(positions, self._categories, self.probs.dtype):sum(0)
    end)
end
function Multinomial:log_prob(value)
    self:_check_value(value)
    local factor = (value:sum(-1) + 1):lgamma() - (value + 1):lgamma():sum(-1)
    local logits = self.logits
    logits = flow.where(value:eq(0):logical_and(logits:eq(-math.huge)), 0, logits)
    return factor + (logits * value):sum(-1)
end
function Multinomial:entropy()
    local n = self.total_count
    local own = D._borrow(Categorical, "entropy", self) * n - math.log(1)
    local counts = flow.arange(1, n + 1):to(self.probs.dtype):to(self.probs.device)
    local shape = {n}
    for i = 1, #self.batch_shape + 1 do shape[i + 1] = 1 end
    local binomial = D.Binomial(n, {probs = self.probs, validate_args = false})
    local weights = binomial:log_prob(counts:reshape(shape)):exp()
    local rest = (weights * (counts + 1):lgamma():reshape(shape)):sum(0):sum(-1)
    local all = 0
    for i = 2, n do all = all + math.log(i) end
    return own - all + rest
end
function Multinomial.enumerate_support() check.fail "Multinomial: has no enumerate_support" end

-- ---- relaxations ----

local function uniform(like) return flow.rand_like(like):clamp(2 ^ -26, 1 - 2 ^ -24) end

local RelaxedOneHot = by_categories("RelaxedOneHotCategorical", Categorical, true)
local open_relaxed = rawget(RelaxedOneHot, "init")
RelaxedOneHot.has_rsample, RelaxedOneHot.has_enumerate_support = true, false
function RelaxedOneHot:init(temperature, probs, logits, validate_args)
    open_relaxed(self, probs, logits, validate_args)
    self.temperature = shapes.together("RelaxedOneHotCategorical", temperature)
end
local RELAXED = "(temperature: tensor or number, probs: tensor%s?, logits: tensor%s?, validate_args: boolean?)"
check.constructor(RelaxedOneHot, "RelaxedOneHotCategorical" .. RELAXED:format("", ""))
function RelaxedOneHot.get_support() return constraints.simplex end
function RelaxedOneHot:rsample(shape)
    local logits = self.logits:expand(self:_extended(shape))
    local scores = (logits - (-uniform(logits):log()):log()) / self.temperature
    return scores:softmax(-1)
end
function RelaxedOneHot:sample(shape)
    return flow.no_grad(function() return self:rsample(shape) end)
end
function RelaxedOneHot:log_prob(value)
    self:_check_value(value)
    local k, log = self._categories, value:log()
    local score = self.logits - log * self.temperature
    score = (score - score:logsumexp(-1, true)):sum(-1)
    local factorial = 0
    for i = 2, k - 1 do factorial = factorial + math.log(i) end
    return score + self.temperature:log() * (k - 1) + factorial - log:sum(-1)
end
for _, name in ipairs {"mean", "variance", "mode"} do
    RelaxedOneHot["get_" .. name] = function() check.fail("RelaxedOneHotCategorical: has no %s", name) end
end
for _, name in ipairs {"entropy", "enumerate_support"} do
    RelaxedOneHot[name] = function() check.fail("RelaxedOneHotCategorical: has no %s", name) end
end

local RelaxedBernoulli = D._class("RelaxedBernoulli", nil, {probs = 0, logits = 0})
M.RelaxedBernoulli = RelaxedBernoulli
RelaxedBernoulli.has_rsample = true
function RelaxedBernoulli:init(temperature, probs, logits, validate_args)
    local base = D.Bernoulli(probs, logits, validate_args)
    self.probs, self.logits = rawget(base, "probs"), rawget(base, "logits")
    self.temperature = shapes.together("RelaxedBernoulli", temperature)
    self:_open(base.batch_shape, {}, validate_args)
end
check.constructor(RelaxedBernoulli, "RelaxedBernoulli" .. RELAXED:format(" or number", " or number"))
function RelaxedBernoulli:get_probs() return self.logits:sigmoid() end
function RelaxedBernoulli:get_logits() return D._borrow(D.Bernoulli, "get_logits", self) end
function RelaxedBernoulli.get_support() return constraints.unit_interval end
function RelaxedBernoulli:rsample(shape)
    local logits = self.logits:expand(self:_extended(shape))
    local u = uniform(logits)
    return ((logits + u:log() - (-u):log1p()) / self.temperature):sigmoid()
end
function RelaxedBernoulli:log_prob(value)
    self:_check_value(value)
    local x = value:log() - (-value):log1p()
    local d = self.logits - x * self.temperature
    local softplus = d:clamp(0) + (-d:abs()):exp():log1p()
    return self.temperature:log() + d - softplus * 2 - value:log() - (-value):log1p()
end

return M
