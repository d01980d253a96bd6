-- distributions.lua -- flow.distributions: probability distributions under the names of torch.distributions.
--
-- A distribution has parameters that are broadcast to batch_shape, and samples of event_shape each. PyTorch's
-- properties are fields here (d.mean, d.variance, d.batch_shape). This file has the common base; the families lie in
-- files that are loaded at the first use of a name.

local flow = require "flow"
local check = require "flow.check"
local lazy_names = require "flow.lazy_names"

local M = {}

-- ---- shapes and parameters ----

local shapes = {}
M._shapes = shapes

---Lists, and numbers in their places, one after the other, as one list.
---@return integer[]
function shapes.join(...)
    local all = {}
    for _, list in ipairs {...} do
        if math.type(list) == "integer" then all[#all + 1] = list else table.move(list, 1, #list, #all + 1, all) end
    end
    return all
end

---Sizes that a script gave: a list, one number, or nothing for none.
---@return integer[]
function shapes.sizes(who, given)
    local list = math.type(given) == "integer" and {given} or given or {}
    for i = 1, #list do
        if math.type(list[i]) ~= "integer" or list[i] < 0 then
            check.fail("%s: the sizes of a shape must be whole numbers >= 0, size %d is %s", who, i, check.got(list[i]))
        end
    end
    return list
end

---The entries i to j of a list.
---@return integer[]
function shapes.part(list, i, j) return table.move(list, i, j or #list, 1, {}) end

---The shape that two shapes broadcast to.
---@return integer[]
function shapes.broadcast(a, b, who)
    local result, n = {}, math.max(#a, #b)
    for i = 1, n do
        local x, y = a[#a - n + i] or 1, b[#b - n + i] or 1
        if x ~= y and x ~= 1 and y ~= 1 then
            check.fail("%s: parameters of shapes [%s] and [%s] do not broadcast", who, table.concat(a, ", "),
                table.concat(b, ", "))
        end
        result[i] = x == 1 and y or x
    end
    return result
end

local EPS = {float32 = 2 ^ -23, float64 = 2 ^ -52, float16 = 2 ^ -10, bfloat16 = 2 ^ -7}

---Probabilities away from 0 and 1, so that logarithms are finite.
---@return table
function shapes.inside(who, probs)
    local eps = EPS[probs.dtype]
    if not eps then check.fail("%s: probs must be a floating tensor, got %s", who, check.got(probs)) end
    return probs:clamp(eps, 1 - eps)
end

---The shape of a tensor as a list.
---@return integer[]
function shapes.of(x) return table.move(x.shape, 1, x.ndim, 1, {}) end

-- Numbers as tensors like the tensors among the values.
local function as_tensors(values)
    local like
    for i = 1, values.n do
        if check.is_tensor(values[i]) then like = like or values[i] end
    end
    local opts = {dtype = like and (like.dtype:find "float" and like.dtype) or flow.get_default_dtype()}
    if like and like.is_global then
        opts.placement, opts.sbp = like.placement, "B"
    elseif like then
        opts.device = like.device
    end
    for i = 1, values.n do
        if type(values[i]) == "number" then values[i] = flow.full({}, values[i], opts) end
    end
end

---Tensors and numbers as tensors of one shape.
---@return table ...
function shapes.together(who, ...)
    local values, shape = table.pack(...), {}
    as_tensors(values)
    for i = 1, values.n do shape = shapes.broadcast(shape, shapes.of(values[i]), who) end
    for i = 1, values.n do values[i] = values[i]:expand(shape) end
    return table.unpack(values, 1, values.n)
end

---The sum over the last n axes.
---@return table
function shapes.sum_last(x, n)
    if n == 0 then return x end
    local axes = {}
    for i = 1, n do axes[i] = -i end
    return x:sum(axes)
end

-- ---- constraints ----

-- A constraint says which values are allowed: test(x) is a tensor of bools, one per event of `event_dim` axes.
local constraints = {}
M.constraints = constraints

local function constraint(text, test, event_dim, discrete)
    event_dim = event_dim or 0
    local function check_value(x)
        if not check.is_tensor(x) then check.fail("constraints.check: value must be a tensor, got %s", check.got(x)) end
        if x.ndim < event_dim then
            check.fail("constraints.check: value must have at least %d %s, got %s", event_dim,
                event_dim == 1 and "axis" or "axes", check.shape(x))
        end
        return test(x)
    end
    return {text = text, check = check_value, event_dim = event_dim, is_discrete = discrete or false}
end

local function is_constraint(value) return type(value) == "table" and rawget(value, "check") ~= nil end
check.define_type("constraint", "a constraint", is_constraint)

local function is_float(x) return x.dtype:find "float" ~= nil end
local function whole(x) return x:eq(is_float(x) and x:floor() or x) end

-- A matrix as linear algebra takes it.
local function as_matrix(x) return x.dtype == "float64" and x or x:to "float32" end

-- True for each of the matrices that is equal to its transpose, but for rounding.
local function symmetric(x)
    x = as_matrix(x)
    if x:size(-1) ~= x:size(-2) then return x:ne(x):any(-1):any(-1):logical_and(false) end
    return (x - x:transpose(-1, -2)):abs():le(1e-6):all(-1):all(-1)
end

constraints.real = constraint("a real number", function(x) return x:eq(x) end)
constraints.real_vector = constraint("a real vector", function(x) return x:eq(x):all(-1) end, 1)
constraints.positive = constraint("positive", function(x) return x:gt(0) end)
constraints.nonnegative = constraint("not negative", function(x) return x:ge(0) end)
constraints.unit_interval = constraint("in [0, 1]", function(x) return x:ge(0):logical_and(x:le(1)) end)
constraints.boolean = constraint("0 or 1", function(x) return x:eq(0):logical_or(x:eq(1)) end, 0, true)
constraints.nonnegative_integer = constraint("a whole number from 0 on",
    function(x) return whole(x):logical_and(x:ge(0)) end, 0, true)
constraints.positive_integer = constraint("a whole number from 1 on",
    function(x) return whole(x):logical_and(x:ge(1)) end, 0, true)
constraints.simplex = constraint("not negative with sum 1", function(x)
    return x:ge(0):all(-1):logical_and((x:sum(-1) - 1):abs():lt(1e-6))
end, 1)
constraints.one_hot = constraint("one 1 among zeros", function(x)
    return x:eq(0):logical_or(x:eq(1)):all(-1):logical_and(x:sum(-1):eq(1))
end, 1, true)
constraints.lower_cholesky = constraint("a lower triangular matrix with a positive diagonal", function(x)
    return x:tril():eq(x):all(-1):all(-1):logical_and(x:diagonal(0, -2, -1):gt(0):all(-1))
end, 2)
constraints.lower_triangular = constraint("a lower triangular matrix", function(x)
    return x:tril():eq(x):all(-1):all(-1)
end, 2)
constraints.corr_cholesky = constraint("the Cholesky factor of a correlation matrix", function(x)
    local rounding = 10 * x:size(-1) * (x.dtype == "float64" and 2.0 ^ -52 or 2.0 ^ -23)
    local unit = ((x * x):sum(-1) - 1):abs():le(rounding):all(-1)
    return constraints.lower_cholesky.check(x):logical_and(unit)
end, 2)
constraints.square = constraint("a square matrix", function(x)
    local good = x:eq(x):all(-1):all(-1)
    return good:logical_or(good:logical_not()):logical_and(x:size(-1) == x:size(-2))
end, 2)
constraints.symmetric = constraint("a symmetric matrix", symmetric, 2)
constraints.positive_semidefinite = constraint("a positive semidefinite matrix", function(x)
    x = as_matrix(x)
    local good = symmetric(x)
    if x:size(-1) ~= x:size(-2) then return good end
    x = flow.where(good:unsqueeze(-1):unsqueeze(-1), x, 0) -- eigvalsh takes no NaN, which no symmetric matrix has
    return good:logical_and((flow.linalg.eigvalsh(x)):ge(-1e-6):all(-1))
end, 2)
constraints.positive_definite = constraint("a positive definite matrix", function(x)
    x = as_matrix(x)
    local good = symmetric(x)
    if x:size(-1) ~= x:size(-2) then return good end
    local _, info = flow.linalg.cholesky_ex(x)
    return good:logical_and(info:eq(0))
end, 2)

-- A constraint between bounds, which transforms to it must know.
local function bounded(test, low, high)
    local made = constraint("in the support", test)
    made.low, made.high = low, high
    return made
end

---Between two bounds, both included.
function constraints.interval(low, high)
    return bounded(function(x) return x:ge(low):logical_and(x:le(high)) end, low, high)
end
---From `low` on, below `high`.
function constraints.half_open_interval(low, high)
    return bounded(function(x) return x:ge(low):logical_and(x:lt(high)) end, low, high)
end
---From `low` on.
function constraints.greater_than_eq(low) return bounded(function(x) return x:ge(low) end, low) end
---Above `low`.
function constraints.greater_than(low) return bounded(function(x) return x:gt(low) end, low) end
---Below `high`.
function constraints.less_than(high) return bounded(function(x) return x:lt(high) end, nil, high) end
---Whole numbers between two bounds, both included.
function constraints.integer_interval(low, high)
    return constraint("a whole number in the support",
        function(x) return whole(x):logical_and(x:ge(low)):logical_and(x:le(high)) end, 0, true)
end
---The last n axes of a value of `base` are one event.
function constraints.independent(base, n)
    local made = constraint(base.text, function(x)
        local good = base.check(x)
        for _ = 1, n do good = good:all(-1) end
        return good
    end, base.event_dim + n, base.is_discrete)
    made.base, made.count = base, n
    return made
end
check.takes(constraints, {
    "constraints.interval(low: number or tensor, high: number or tensor)",
    "constraints.half_open_interval(low: number or tensor, high: number or tensor)",
    "constraints.less_than(high: number or tensor)",
    "constraints.greater_than_eq(low: number or tensor)", "constraints.greater_than(low: number or tensor)",
    "constraints.integer_interval(low: number or tensor, high: number or tensor)",
    "constraints.independent(base: constraint, n: integer >= 0)",
})

-- ---- the class of all ----

local default_validate = true

---Sets the default of validate_args: true: distributions check parameters and values, which reads them.
---@param value boolean
function M.set_default_validate_args(value) default_validate = value end

local Distribution = {name = "Distribution", has_rsample = false, has_enumerate_support = false}
M.Distribution = Distribution

-- A field that is no method: the result of get_name.
local function index_of(class)
    return function(self, key)
        local value = class[key]
        if value ~= nil then return value end
        local get = type(key) == "string" and class["get_" .. key]
        if get then return get(self) end
        if type(key) ~= "string" or key:sub(1, 1) == "_" or key == "is_global" then return nil end
        check.fail("%s has no '%s'", class.name, key)
    end
end

-- Usages of methods that any class may have; get_name() is a field.
local usages = {}
for _, usage in ipairs {
    "sample(shape: list or integer?)", "rsample(shape: list or integer?)", "log_prob(value: tensor)", "entropy()",
    "cdf(value: tensor)", "icdf(value: tensor)", "enumerate_support(expand: boolean = true)", "perplexity()",
    "expand(batch_shape: list or integer)", "log_survival_function(value: tensor)",
    "log_cdf(value: tensor)",
} do usages[usage:match "^[%w_]+"] = usage end

-- A class gets its methods by this: they check their object and their arguments.
local function define(class, name, value)
    rawset(class, name, value)
    local usage = usages[name] or type(name) == "string" and name:find "^get_" and name .. "()"
    if usage and type(value) == "function" then check.methods(class, "distribution", {usage}) end
end

---The method of a class for an object of another one.
function M._borrow(class, name, self, ...)
    return (check.original(class[name]))(self, ...)
end

---A class of distributions below `parent`. params: names of parameters and how many axes of each are of the event.
---@param name string
---@param parent table?
---@return table
function M._class(name, parent, params)
    local class = {name = name, params = params}
    class.__index = index_of(class)
    class.__name = "distributions." .. name
    class.__tostring = function(self) return self:_text() end
    return setmetatable(class, {__index = parent or Distribution, __newindex = define, __call = function(self, ...)
        local d = setmetatable({}, self)
        d:init(...)
        return d
    end})
end

-- Reads a tensor of bools; one without values passes.
local function all_true(x)
    return x.device == "meta" or x:numel() == 0 or x:all():item()
end

-- True if x is as wanted. Not checked in a function that is captured: a replay reads nothing.
local function is_good(wanted, x)
    return flow._program.recording or all_true(wanted.check(x))
end

---Sets shapes, and checks the parameters that `wanted` has constraints for.
function Distribution:_open(batch_shape, event_shape, validate, wanted)
    self.batch_shape, self.event_shape = batch_shape, event_shape or {}
    if validate == nil then validate = default_validate end
    self._validate = validate
    if not validate then return end
    for _, name in ipairs(check.sorted_keys(wanted or {})) do
        local value = rawget(self, name)
        if value and not is_good(wanted[name], value) then
            check.fail("%s: %s must be %s", self.name, name, wanted[name].text)
        end
    end
end

---The shape of samples.
function Distribution:_extended(shape)
    return shapes.join(shapes.sizes(self.name, shape), self.batch_shape, self.event_shape)
end

---An error where a value is not in the support.
function Distribution:_check_value(value)
    if not self._validate then return end
    local shape, own = shapes.of(value), shapes.join(self.batch_shape, self.event_shape)
    local events = #self.event_shape
    for i = 1, events do
        if shape[#shape - i + 1] ~= self.event_shape[events - i + 1] then
            check.fail("%s: a value of shape [%s] does not have the event shape [%s]", self.name,
                table.concat(shape, ", "), table.concat(self.event_shape, ", "))
        end
    end
    shapes.broadcast(shape, own, self.name .. ": value and distribution")
    local support = self.support
    if support and not is_good(support, value) then
        check.fail("%s: a value must be %s", self.name, support.text)
    end
end

function Distribution.get_support() return nil end

---Samples without gradients.
function Distribution:sample(shape)
    return flow.no_grad(function() return self:rsample(shape) end)
end

---Samples that are differentiable in the parameters.
function Distribution:rsample()
    check.fail("%s: has no rsample; sample has no gradients", self.name)
end

for _, name in ipairs {"log_prob", "entropy", "cdf", "icdf", "enumerate_support"} do
    Distribution[name] = function(self) check.fail("%s: has no %s", self.name, name) end
end
for _, name in ipairs {"mean", "variance", "mode"} do
    Distribution["get_" .. name] = function(self) check.fail("%s: has no %s", self.name, name) end
end
function Distribution:get_stddev() return self.variance:sqrt() end

---exp of the entropy.
function Distribution:perplexity() return self:entropy():exp() end

---The same distribution for a larger batch.
function Distribution:expand(batch_shape)
    batch_shape = shapes.sizes(self.name, batch_shape)
    local other = setmetatable({}, getmetatable(self))
    for key, value in next, self do other[key] = value end
    for name, events in next, self.params do
        local value = rawget(self, name)
        if value then
            local shape = shapes.of(value)
            other[name] = value:expand(shapes.join(batch_shape, shapes.part(shape, #shape - events + 1)))
        end
    end
    other.batch_shape = batch_shape
    if other._expanded then other:_expanded(self) end
    return other
end

function Distribution:_text()
    return ("%s(batch_shape = {%s}, event_shape = {%s})"):format(self.name, table.concat(self.batch_shape, ", "),
        table.concat(self.event_shape, ", "))
end

local own = {"get_mean()", "get_variance()", "get_mode()", "get_stddev()", "get_support()"}
for name, usage in next, usages do
    if rawget(Distribution, name) then own[#own + 1] = usage end
end
local is_distribution = check.methods(Distribution, "distribution", own)
check.define_type("distribution", "a distribution", is_distribution)

-- ---- Kullback and Leibler's divergence ----

local rules = {}

---Registers f(p, q) as the divergence of a class of distributions from another; the most special pair counts.
---@param p table class
---@param q table class
---@param f function
function M.register_kl(p, q, f)
    rules[p] = rules[p] or {}
    rules[p][q] = f
end

local function parent_of(class)
    local meta = getmetatable(class)
    return meta and meta.__index
end

---The Kullback-Leibler divergence of p from q.
---@param p table distribution
---@param q table distribution
---@return table
function M.kl_divergence(p, q)
    require "flow.distributions_kl"
    local first = getmetatable(p)
    while first do
        local second = rules[first] and getmetatable(q)
        while second do
            if rules[first][second] then return rules[first][second](p, q) end
            second = parent_of(second)
        end
        first = parent_of(first)
    end
    check.fail("kl_divergence: there is no rule for %s and %s; write flow.distributions.register_kl(P, Q, f)",
        check.got(p), check.got(q))
end

check.takes(M, {
    "distributions.set_default_validate_args(value: boolean)",
    "distributions.register_kl(p: table, q: table, f: function)",
    "distributions.kl_divergence(p: any, q: any)",
})

lazy_names.add(M, {
    distributions_normal = "Normal LogNormal HalfNormal Laplace Cauchy HalfCauchy StudentT Uniform Gumbel",
    distributions_gamma = "Gamma Chi2 Exponential Beta Dirichlet Weibull Pareto Kumaraswamy VonMises",
    distributions_discrete = "Bernoulli Geometric Poisson Binomial NegativeBinomial ContinuousBernoulli",
    distributions_categorical = "Categorical OneHotCategorical OneHotCategoricalStraightThrough Multinomial "
        .. "RelaxedBernoulli RelaxedOneHotCategorical",
    distributions_multivariate = "MultivariateNormal LowRankMultivariateNormal",
    distributions_compound = "Independent MixtureSameFamily TransformedDistribution",
    distributions_more = "FisherSnedecor InverseGamma LogisticNormal GeneralizedPareto",
    distributions_matrix = "Wishart LKJCholesky",
    distributions_transforms = "transforms AbsTransform AffineTransform CatTransform ComposeTransform "
        .. "CorrCholeskyTransform CumulativeDistributionTransform ExpTransform IndependentTransform "
        .. "LowerCholeskyTransform PositiveDefiniteTransform PowerTransform ReshapeTransform SigmoidTransform "
        .. "SoftmaxTransform SoftplusTransform StackTransform StickBreakingTransform TanhTransform",
    distributions_registry = "biject_to transform_to",
})

return check.strict("distributions", M)
