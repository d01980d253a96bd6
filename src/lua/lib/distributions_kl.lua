-- distributions_kl.lua -- Kullback and Leibler's divergences of pairs of distributions.

local flow = require "flow"
local check = require "flow.check"
local D = require "flow.distributions"

local shapes = D._shapes
local pi, EULER = math.pi, 0.57721566490153286060

local function rule(p, q, f) D.register_kl(D[p], D[q or p], f) end

local function square(x) return x * x end

-- p log(p / q), 0 where p is 0, infinite where q alone is.
local function relative(p, q)
    local value = flow.where(p:eq(0), 0, p * (p / q):log())
    return flow.where(q:eq(0):logical_and(p:gt(0)), math.huge, value)
end

local function infinite(x) return flow.full_like(x, math.huge) end

-- ---- locations and scales ----

local function normals(p, q)
    local ratio = square(p.scale / q.scale)
    return (ratio + square((p.loc - q.loc) / q.scale) - 1 - ratio:log()) * 0.5
end
rule("Normal", "Normal", normals)
rule("LogNormal", "LogNormal", normals)
rule("HalfNormal", "HalfNormal", function(p, q)
    local ratio = square(p.scale / q.scale)
    return (ratio - 1 - ratio:log()) * 0.5
end)
rule("Laplace", "Laplace", function(p, q)
    local ratio, distance = p.scale / q.scale, (p.loc - q.loc):abs()
    return -ratio:log() + distance / q.scale + ratio * (-distance / p.scale):exp() - 1
end)
rule("Cauchy", "Cauchy", function(p, q)
    return (square(p.scale + q.scale) + square(p.loc - q.loc)):log() - (p.scale * q.scale * 4):log()
end)
rule("Gumbel", "Gumbel", function(p, q)
    local ratio, distance = p.scale / q.scale, q.loc / q.scale - p.loc / q.scale
    return -ratio:log() - distance + ratio * EULER + (distance + (ratio + 1):lgamma()):exp() - (1 + EULER)
end)
rule("Uniform", "Uniform", function(p, q)
    local value = ((q.high - q.low) / (p.high - p.low)):log()
    return flow.where(q.low:gt(p.low):logical_or(q.high:lt(p.high)), math.huge, value)
end)
rule("Uniform", "Normal", function(p, q)
    local width = p.high - p.low
    local spread = square(width) / 12 + square((p.high + p.low - q.loc * 2) / 2)
    return (math.sqrt(2 * pi) * q.scale / width):log() + spread / square(q.scale) * 0.5
end)
rule("Laplace", "Normal", function(p, q)
    local ratio = square(p.scale / q.scale)
    return -ratio:log() * 0.5 + math.log(pi / 2) * 0.5 + ratio + square(p.loc - q.loc) / square(q.scale) * 0.5 - 1
end)
rule("Normal", "Laplace", function(p, q)
    local z, ratio = (p.loc - q.loc) / p.scale, p.scale / q.scale
    local mean = math.sqrt(2 / pi) * (z * z * -0.5):exp() + z * (z / math.sqrt(2)):erf()
    return -ratio:log() + ratio * mean - 0.5 * math.log(pi / 2) - 0.5
end)
rule("Normal", "Gumbel", function(p, q)
    local a, b = p.loc / q.scale, square(p.scale / q.scale)
    local c = q.loc / q.scale
    return a - c + (-a + b * 0.5 + c):exp() - b:log() * 0.5 - 0.5 * (1 + math.log(2 * pi))
end)

-- ---- gamma and its kin ----

rule("Gamma", "Gamma", function(p, q)
    return q.concentration * (p.rate / q.rate):log() + q.concentration:lgamma() - p.concentration:lgamma()
        + (p.concentration - q.concentration) * p.concentration:digamma()
        + (q.rate - p.rate) * (p.concentration / p.rate)
end)
rule("Exponential", "Exponential", function(p, q)
    local ratio = q.rate / p.rate
    return ratio - ratio:log() - 1
end)
rule("Exponential", "Gamma", function(p, q)
    local ratio = q.rate / p.rate
    return -q.concentration * ratio:log() + ratio + q.concentration:lgamma() + q.concentration * EULER - (1 + EULER)
end)
rule("Gamma", "Exponential", function(p, q)
    return -p:entropy() - q.rate:log() + q.rate * p.concentration / p.rate
end)
rule("Beta", "Beta", function(p, q)
    local a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    local whole, other = a + b, c + d
    return c:lgamma() + d:lgamma() + whole:lgamma() - other:lgamma() - a:lgamma() - b:lgamma()
        + (a - c) * a:digamma() + (b - d) * b:digamma() + (other - whole) * whole:digamma()
end)
rule("Dirichlet", "Dirichlet", function(p, q)
    local a, b = p.concentration, q.concentration
    local whole = a:sum(-1)
    return whole:lgamma() - b:sum(-1):lgamma() - (a:lgamma() - b:lgamma()):sum(-1)
        + ((a - b) * (a:digamma() - whole:digamma():unsqueeze(-1))):sum(-1)
end)
rule("Pareto", "Pareto", function(p, q)
    local ratio = p.scale / q.scale
    local value = q.alpha * ratio:log() + (p.alpha / q.alpha):log() + q.alpha / p.alpha - 1
    return flow.where(p.scale:lt(q.scale), math.huge, value)
end)

-- ---- counts and categories ----

rule("Bernoulli", "Bernoulli", function(p, q)
    local a, b = p.probs, q.probs
    return relative(a, b) + relative(1 - a, 1 - b)
end)
rule("Binomial", "Binomial", function(p, q)
    local n = p.total_count
    local value = n * (p.probs * (p.logits - q.logits) + (-p.probs):log1p() - (-q.probs):log1p())
    return flow.where(n:gt(q.total_count), math.huge, value)
end)
rule("Categorical", "Categorical", function(p, q)
    local value = p.probs * (p.logits - q.logits)
    value = flow.where(q.probs:eq(0), math.huge, value)
    return flow.where(p.probs:eq(0), 0, value):sum(-1)
end)
rule("Geometric", "Geometric", function(p, q) return -p:entropy() - (-q.probs):log1p() / p.probs - q.logits end)
rule("Poisson", "Poisson", function(p, q) return p.rate * (p.rate:log() - q.rate:log()) - (p.rate - q.rate) end)
rule("ContinuousBernoulli", "ContinuousBernoulli", function(p, q)
    return p.mean * (p.logits - q.logits) + p:_log_constant() + (-p.probs):log1p() - q:_log_constant()
        - (-q.probs):log1p()
end)

-- ---- by moments of p: KL = -entropy(p) - the mean of log q under p ----

-- Means of log x.
local mean_log = {}
function mean_log.Beta(p) return p.concentration1:digamma() - (p.concentration1 + p.concentration0):digamma() end
function mean_log.Pareto(p) return p.scale:log() + 1 / p.alpha end
function mean_log.Uniform(p) return (flow.xlogy(p.high, p.high) - flow.xlogy(p.low, p.low)) / (p.high - p.low) - 1 end

-- Means of exp(-x / s).
local mean_exp = {}
function mean_exp.Exponential(p, s) return p.rate / (p.rate + 1 / s) end
function mean_exp.Gamma(p, s) return (1 + 1 / (p.rate * s)) ^ -p.concentration end
function mean_exp.Uniform(p, s) return s / (p.high - p.low) * ((-p.low / s):exp() - (-p.high / s):exp()) end

-- Means of -log q.
local crossed = {}
function crossed.Exponential(p, q) return q.rate * p.mean - q.rate:log() end
function crossed.Normal(p, q)
    local distance = p.variance + square(p.mean - q.loc)
    return distance / square(q.scale) * 0.5 + q.scale:log() + 0.5 * math.log(2 * pi)
end
function crossed.ContinuousBernoulli(p, q) return -p.mean * q.logits - (-q.probs):log1p() - q:_log_constant() end
function crossed.Gamma(p, q)
    return q.concentration:lgamma() - q.concentration * q.rate:log() - (q.concentration - 1) * mean_log[p.name](p)
        + q.rate * p.mean
end
function crossed.Gumbel(p, q)
    return q.scale:log() + (p.mean - q.loc) / q.scale + (q.loc / q.scale):exp() * mean_exp[p.name](p, q.scale)
end
function crossed.Pareto(p, q) return (q.alpha + 1) * mean_log[p.name](p) - q.alpha:log() - q.alpha * q.scale:log() end
function crossed.Beta(p, q)
    local a, b, mirrored = q.concentration1, q.concentration0, {low = 1 - p.high, high = 1 - p.low}
    return a:lgamma() + b:lgamma() - (a + b):lgamma() - (a - 1) * mean_log.Uniform(p)
        - (b - 1) * mean_log.Uniform(mirrored)
end
function crossed.Uniform(_, q) return (q.high - q.low):log() end

-- True where p has values outside of the support of q.
local function outside_unit(p) return p.low:lt(0):logical_or(p.high:gt(1)) end
local function unit_outside(_, q) return q.low:gt(0):logical_or(q.high:lt(1)) end
local function negative(p) return p.low:lt(0) end
local outside = {
    Beta = {Uniform = unit_outside}, ContinuousBernoulli = {Uniform = unit_outside},
    Uniform = {
        Beta = outside_unit, ContinuousBernoulli = outside_unit, Exponential = negative, Gamma = negative,
        Pareto = function(p, q) return p.low:lt(q.scale) end,
    },
}

for p, list in pairs {
    Beta = "ContinuousBernoulli Exponential Gamma Normal Uniform", ContinuousBernoulli = "Exponential Normal Uniform",
    Exponential = "Gumbel Normal", Gamma = "Gumbel Normal", Gumbel = "Normal", Pareto = "Exponential Gamma Normal",
    Uniform = "Beta ContinuousBernoulli Exponential Gamma Gumbel Pareto",
} do
    for q in list:gmatch "%S+" do
        local away = outside[p] and outside[p][q]
        rule(p, q, function(a, b)
            local value = crossed[q](a, b) - a:entropy()
            return away and flow.where(away(a, b), math.huge, value) or value
        end)
    end
end

-- Pairs without a common support.
for p, list in pairs {
    Poisson = "Bernoulli Binomial", Exponential = "Beta ContinuousBernoulli Pareto Uniform",
    Gamma = "Beta ContinuousBernoulli Pareto Uniform", Beta = "Pareto", ContinuousBernoulli = "Pareto",
    Gumbel = "Beta ContinuousBernoulli Exponential Gamma Pareto Uniform",
    Laplace = "Beta ContinuousBernoulli Exponential Gamma Pareto Uniform",
    Normal = "Beta ContinuousBernoulli Exponential Gamma Pareto Uniform", Pareto = "Beta ContinuousBernoulli Uniform",
} do
    for q in list:gmatch "%S+" do
        rule(p, q, function(a)
            return infinite(rawget(a, "rate") or rawget(a, "loc") or rawget(a, "alpha") or rawget(a, "concentration1")
                or a.probs)
        end)
    end
end
rule("Bernoulli", "Poisson", function(p, q) return -p:entropy() - (p.probs * q.rate:log() - q.rate) end)

-- ---- vectors, and distributions made of others ----

local function half_log_det(scale_tril) return scale_tril:diagonal(0, -2, -1):log():sum(-1) end
local function normal_vectors(p, q)
    local n = p.event_shape[1]
    local batch = shapes.broadcast(p.batch_shape, q.batch_shape, "kl_divergence")
    local function whole(x) return x:expand(shapes.join(batch, {n, n})) end
    local mine, other = p.scale_tril, q.scale_tril
    local inner = flow.linalg.solve_triangular(whole(other), whole(mine), {upper = false})
    local d = (q.loc - p.loc):expand(shapes.join(batch, {n}))
    local z = flow.linalg.solve_triangular(whole(other), d:unsqueeze(-1), {upper = false})
    return half_log_det(other) - half_log_det(mine) + ((inner * inner):sum {-1, -2} + (z * z):sum {-1, -2} - n) * 0.5
end
for _, p in ipairs {"MultivariateNormal", "LowRankMultivariateNormal"} do
    for _, q in ipairs {"MultivariateNormal", "LowRankMultivariateNormal"} do rule(p, q, normal_vectors) end
end
rule("Independent", "Independent", function(p, q)
    if p.reinterpreted_batch_ndims ~= q.reinterpreted_batch_ndims then
        check.fail("kl_divergence: Independent of %d and of %d axes", p.reinterpreted_batch_ndims,
            q.reinterpreted_batch_ndims)
    end
    return shapes.sum_last(D.kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)
end)
rule("TransformedDistribution", "TransformedDistribution", function(p, q)
    if #p.transforms ~= #q.transforms then check.fail "kl_divergence: the two distributions have other transforms" end
    return D.kl_divergence(p.base_dist, q.base_dist)
end)

return D
