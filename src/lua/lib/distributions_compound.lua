-- distributions_compound.lua -- distributions made of others.

local flow = require "flow"
local check = require "flow.check"
local D = require "flow.distributions"

local shapes = D._shapes

local M = {}

local function no_grad(f) return flow.no_grad(f) end

-- ---- Independent: the last axes of the batch become the event's ----

local Independent = D._class("Independent", nil, {})
M.Independent = Independent
function Independent:init(base_distribution, reinterpreted_batch_ndims, validate_args)
    local base, count = base_distribution, reinterpreted_batch_ndims
    if count > #base.batch_shape then
        check.fail("Independent: reinterpreted_batch_ndims %d is more than the %d axes of the batch", count,
            #base.batch_shape)
    end
    self.base_dist, self.reinterpreted_batch_ndims, self.has_rsample = base, count, base.has_rsample
    self.has_enumerate_support = base.has_enumerate_support
    local rest = #base.batch_shape - count
    self:_open(shapes.part(base.batch_shape, 1, rest),
        shapes.join(shapes.part(base.batch_shape, rest + 1), base.event_shape), validate_args)
end
check.constructor(Independent,
    "Independent(base_distribution: distribution, reinterpreted_batch_ndims: integer >= 0, validate_args: boolean?)")
function Independent:get_support()
    local support = self.base_dist.support
    return support and D.constraints.independent(support, self.reinterpreted_batch_ndims)
end
for _, name in ipairs {"mean", "variance", "mode"} do
    Independent["get_" .. name] = function(self) return self.base_dist[name] end
end
function Independent:sample(shape) return self.base_dist:sample(shape) end
function Independent:rsample(shape) return self.base_dist:rsample(shape) end
function Independent:log_prob(value)
    return shapes.sum_last(self.base_dist:log_prob(value), self.reinterpreted_batch_ndims)
end
function Independent:entropy() return shapes.sum_last(self.base_dist:entropy(), self.reinterpreted_batch_ndims) end
function Independent:enumerate_support(expand)
    if self.reinterpreted_batch_ndims > 0 then
        check.fail "Independent: has no enumerate_support of several axes, whose values are too many"
    end
    return self.base_dist:enumerate_support(expand)
end
function Independent:expand(batch_shape)
    local all = shapes.join(batch_shape, shapes.part(self.event_shape, 1, self.reinterpreted_batch_ndims))
    return Independent(self.base_dist:expand(all), self.reinterpreted_batch_ndims, self._validate)
end

-- ---- MixtureSameFamily ----

local Mixture = D._class("MixtureSameFamily", nil, {})
M.MixtureSameFamily = Mixture
function Mixture:init(mixture_distribution, component_distribution, validate_args)
    local mixture, component = mixture_distribution, component_distribution
    local batch = component.batch_shape
    if not mixture._categories then
        check.fail("MixtureSameFamily: mixture_distribution must be Categorical, got %s", mixture.name)
    end
    if #batch < 1 or batch[#batch] ~= mixture._categories then
        check.fail("MixtureSameFamily: the last axis of the components' batch [%s] must have the %d categories of the "
            .. "mixture", table.concat(batch, ", "), mixture._categories)
    end
    self.mixture_distribution, self.component_distribution = mixture, component
    self:_open(shapes.part(batch, 1, #batch - 1), component.event_shape, validate_args)
end
check.constructor(Mixture,
    "MixtureSameFamily(mixture_distribution: distribution, component_distribution: distribution, " ..
        "validate_args: boolean?)")
function Mixture:get_support() return self.component_distribution.support end
-- Weights with axes for the event.
function Mixture:_weights()
    local probs = self.mixture_distribution.probs
    for _ = 1, #self.event_shape do probs = probs:unsqueeze(-1) end
    return probs
end
function Mixture:_axis() return -1 - #self.event_shape end
function Mixture:get_mean() return (self:_weights() * self.component_distribution.mean):sum(self:_axis()) end
function Mixture:get_variance()
    local weights, axis = self:_weights(), self:_axis()
    local inside = (weights * self.component_distribution.variance):sum(axis)
    local d = self.component_distribution.mean - self.mean:unsqueeze(axis)
    return inside + (weights * d * d):sum(axis)
end
function Mixture:cdf(value)
    local each = self.component_distribution:cdf(value:unsqueeze(self:_axis()))
    return (each * self.mixture_distribution.probs):sum(-1)
end
function Mixture:log_prob(value)
    self:_check_value(value)
    local each = self.component_distribution:log_prob(value:unsqueeze(self:_axis()))
    return (each + self.mixture_distribution.logits:log_softmax(-1)):logsumexp(-1)
end
function Mixture:sample(shape)
    return no_grad(function()
        local choice = self.mixture_distribution:sample(shape)
        local samples = self.component_distribution:sample(shape)
        local axis = samples.ndim - 1 - #self.event_shape
        choice = choice:unsqueeze(-1)
        for _ = 1, #self.event_shape do choice = choice:unsqueeze(-1) end
        local size = shapes.of(samples)
        size[axis + 1] = 1
        return samples:gather(axis, choice:expand(size)):squeeze(axis)
    end)
end
function Mixture:expand(batch_shape)
    local all = shapes.join(batch_shape, {self.mixture_distribution._categories})
    return Mixture(self.mixture_distribution:expand(batch_shape), self.component_distribution:expand(all),
        self._validate)
end

-- ---- TransformedDistribution ----

local Transformed = D._class("TransformedDistribution", nil, {})
M.TransformedDistribution = Transformed
function Transformed:init(base_distribution, transforms, validate_args)
    local T = D.transforms
    if getmetatable(transforms) ~= nil then transforms = {transforms} end
    local all = T.ComposeTransform(transforms)
    local base = base_distribution
    -- events that a transform takes together are one event of the base too
    local shape = shapes.join(base.batch_shape, base.event_shape)
    if #shape < all.domain_dim then
        check.fail("TransformedDistribution: the transforms take %d axes, the base has %d", all.domain_dim, #shape)
    end
    local more = all.domain_dim - #base.event_shape
    if more > 0 then base = D.Independent(base, more, validate_args) end
    self.base_dist, self.transforms, self.has_rsample = base, transforms, base.has_rsample
    local after = all:forward_shape(shape)
    local events = all.codomain_dim + math.max(#base.event_shape - all.domain_dim, 0)
    self:_open(shapes.part(after, 1, #after - events), shapes.part(after, #after - events + 1), validate_args)
end
check.constructor(Transformed,
    "TransformedDistribution(base_distribution: distribution, transforms: value, validate_args: boolean?)")
function Transformed:_forward(x)
    for _, t in ipairs(self.transforms) do x = t(x) end
    return x
end
function Transformed:sample(shape)
    return no_grad(function() return self:_forward(self.base_dist:sample(shape)) end)
end
function Transformed:rsample(shape) return self:_forward(self.base_dist:rsample(shape)) end
function Transformed:log_prob(value)
    self:_check_value(value)
    local total, events, y = 0, #self.event_shape, value
    for i = #self.transforms, 1, -1 do
        local t = self.transforms[i]
        local x = t:_inverse(y)
        events = events + t.domain_dim - t.codomain_dim
        total = total - shapes.sum_last(t:log_abs_det_jacobian(x, y), events - t.domain_dim)
        y = x
    end
    return shapes.sum_last(self.base_dist:log_prob(y), events - #self.base_dist.event_shape) + total
end
-- The order of values is turned where the signs of all transforms together are negative.
local function turned(transforms, value)
    local sign = 1
    for _, t in ipairs(transforms) do
        if not t.sign then check.fail("%s: has no cdf, as %s is not monotonic", "TransformedDistribution", t.name) end
        sign = t.sign * sign
    end
    if type(sign) == "number" then return sign == 1 and value or 1 - value end
    return sign:sign() * (value - 0.5) + 0.5
end
function Transformed:cdf(value)
    for i = #self.transforms, 1, -1 do value = self.transforms[i]:_inverse(value) end
    return turned(self.transforms, self.base_dist:cdf(value))
end
function Transformed:icdf(value) return self:_forward(self.base_dist:icdf(turned(self.transforms, value))) end
function Transformed:expand(batch_shape)
    local shape = shapes.join(batch_shape, self.event_shape)
    for i = #self.transforms, 1, -1 do shape = self.transforms[i]:inverse_shape(shape) end
    local base = self.base_dist
    return Transformed(base:expand(shapes.part(shape, 1, #shape - #base.event_shape)), self.transforms, self._validate)
end

return M
