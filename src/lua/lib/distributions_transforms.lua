-- distributions_transforms.lua -- flow.distributions.transforms: invertible functions that carry distributions.
--
-- A transform t has t(x), t.inv, and the logarithm of the volume it gives to a small cube at x:
-- t:log_abs_det_jacobian(x, y) with y = t(x). Its events have t.domain_dim axes before and t.codomain_dim after it.

local flow = require "flow"
local check = require "flow.check"
local D = require "flow.distributions"

local shapes = D._shapes

local M = {}

local Transform = {name = "Transform", domain_dim = 0, codomain_dim = 0, bijective = true}
M.Transform = Transform

local Inverse

local function index_of(class)
    return function(self, key)
        if key == "inv" then return Inverse(self) end
        return class[key]
    end
end

local usages = {
    log_abs_det_jacobian = "log_abs_det_jacobian(x: tensor, y: tensor)", forward_shape = "forward_shape(shape: list)",
    inverse_shape = "inverse_shape(shape: list)",
}

-- A class gets its methods by this: they check their object and their arguments.
local function define(new, name, value)
    rawset(new, name, value)
    if usages[name] then check.methods(new, "transform", {usages[name]}) end
end

local function class(name)
    local new = {name = name, __name = "transforms." .. name}
    new.__index = index_of(new)
    new.__call = function(self, ...)
        local x = ...
        if select("#", ...) ~= 1 or not check.is_tensor(x) then
            check.fail("%s: takes one tensor, got %s", name, select("#", ...) > 1 and "more" or check.got(x))
        end
        return self:_call(x)
    end
    M[name] = new
    return setmetatable(new, {__index = Transform, __newindex = define, __call = function(self, ...)
        local t = setmetatable({}, self)
        if self.init then t:init(...) end
        return t
    end})
end

function Transform.forward_shape(_, shape) return shape end
function Transform.inverse_shape(_, shape) return shape end
function Transform:_inverse() check.fail("%s: has no inverse", self.name) end
function Transform:log_abs_det_jacobian() check.fail("%s: has no log_abs_det_jacobian", self.name) end

local is_transform = check.methods(Transform, "transform", {
    usages.log_abs_det_jacobian, usages.forward_shape, usages.inverse_shape,
})
check.define_type("transform", "a transform", is_transform)

-- The inverse of a transform.
Inverse = class "InverseTransform"
function Inverse:init(base)
    self.base, self.domain_dim, self.codomain_dim = base, base.codomain_dim, base.domain_dim
    self.bijective, self.sign = base.bijective, base.sign
end
check.constructor(Inverse, "InverseTransform(base: transform)")
Inverse.__index = function(self, key)
    if key == "inv" then return rawget(self, "base") end
    return Inverse[key]
end
function Inverse:_call(y) return self.base:_inverse(y) end
function Inverse:_inverse(x) return self.base(x) end
function Inverse:log_abs_det_jacobian(y, x) return -self.base:log_abs_det_jacobian(x, y) end
function Inverse:forward_shape(shape) return self.base:inverse_shape(shape) end
function Inverse:inverse_shape(shape) return self.base:forward_shape(shape) end

-- ---- of each number ----

-- A transform of each number without parameters.
local function simple(name, forward, backward, volume, sign)
    local new = class(name)
    new.sign = sign or 1
    function new._call(_, x) return forward(x) end
    function new._inverse(_, y) return backward(y) end
    function new.log_abs_det_jacobian(_, x, y) return volume(x, y) end
end

local function softplus(x) return x:clamp(0) + (-x:abs()):exp():log1p() end
local LOG_2 = math.log(2)

simple("ExpTransform", function(x) return x:exp() end, function(y) return y:log() end, function(x) return x end)
simple("SigmoidTransform", function(x) return x:sigmoid() end, function(y) return y:log() - (-y):log1p() end,
    function(x) return -softplus(-x) - softplus(x) end)
simple("TanhTransform", function(x) return x:tanh() end, function(y) return (y:log1p() - (-y):log1p()) * 0.5 end,
    function(x) return (LOG_2 - x - softplus(x * -2)) * 2 end)
simple("SoftplusTransform", softplus, function(y) return (-(-y):expm1()):log() + y end,
    function(x) return -softplus(-x) end)

local Abs = class "AbsTransform"
Abs.bijective = false
function Abs._call(_, x) return x:abs() end
function Abs._inverse(_, y) return y end

local Affine = class "AffineTransform"
function Affine:init(loc, scale, event_dim)
    self.loc, self.scale = loc, scale
    self.domain_dim, self.codomain_dim = event_dim, event_dim
    self.sign = type(scale) == "number" and (scale > 0 and 1 or scale < 0 and -1 or 0) or scale
end
check.constructor(Affine,
    "AffineTransform(loc: tensor or number, scale: tensor or number, event_dim: integer >= 0 = 0)")
function Affine:_call(x) return x * self.scale + self.loc end
function Affine:_inverse(y) return (y - self.loc) / self.scale end
function Affine:log_abs_det_jacobian(x)
    local log = type(self.scale) == "number" and flow.full_like(x, math.log(math.abs(self.scale)))
        or self.scale:abs():log():expand(shapes.broadcast(shapes.of(x), shapes.of(self.scale), "AffineTransform"))
    return shapes.sum_last(log, self.domain_dim)
end

local Power = class "PowerTransform"
function Power:init(exponent) self.exponent = exponent end
check.constructor(Power, "PowerTransform(exponent: tensor or number)")
Power.sign = 1
function Power:_call(x) return x ^ self.exponent end
function Power:_inverse(y) return y ^ (1 / self.exponent) end
function Power:log_abs_det_jacobian(x, y) return (y * self.exponent / x):abs():log() end

local Cumulative = class "CumulativeDistributionTransform"
Cumulative.sign = 1
function Cumulative:init(distribution) self.distribution = distribution end
check.constructor(Cumulative, "CumulativeDistributionTransform(distribution: distribution)")
function Cumulative:_call(x) return self.distribution:cdf(x) end
function Cumulative:_inverse(y) return self.distribution:icdf(y) end
function Cumulative:log_abs_det_jacobian(x) return self.distribution:log_prob(x) end

-- ---- of vectors and matrices ----

local Softmax = class "SoftmaxTransform"
Softmax.domain_dim, Softmax.codomain_dim, Softmax.bijective = 1, 1, false
function Softmax._call(_, x) return x:softmax(-1) end
function Softmax._inverse(_, y) return y:log() end

-- n real numbers as n + 1 shares: each takes a part of what is left.
local Stick = class "StickBreakingTransform"
Stick.domain_dim, Stick.codomain_dim = 1, 1
-- The logarithm of how many shares each number begins.
local function offsets(x, n)
    return (n - flow.arange(n)):to(x.dtype):to(x.device):log()
end
function Stick._call(_, x)
    local z = (x - offsets(x, x:size(-1))):sigmoid()
    local left = (-z):log1p():cumsum(-1):exp()
    local one = flow.ones_like(x:narrow(-1, 0, 1))
    return flow.cat({z, one}, -1) * flow.cat({one, left}, -1)
end
function Stick._inverse(_, y)
    local n = y:size(-1) - 1
    local front = y:narrow(-1, 0, n)
    local left = (1 - front:cumsum(-1)):clamp(1.1754943508222875e-38)
    return front:log() - left:log() + offsets(y, n)
end
function Stick.log_abs_det_jacobian(_, x, y)
    local n = x:size(-1)
    x = x - offsets(x, n)
    return (-x - softplus(-x) + y:narrow(-1, 0, n):log()):sum(-1)
end
function Stick.forward_shape(_, shape)
    return shapes.join(shapes.part(shape, 1, #shape - 1), {shape[#shape] + 1})
end
function Stick.inverse_shape(_, shape)
    return shapes.join(shapes.part(shape, 1, #shape - 1), {shape[#shape] - 1})
end

-- The lower half of a matrix, with the exponentials of its diagonal.
local Lower = class "LowerCholeskyTransform"
Lower.domain_dim, Lower.codomain_dim = 2, 2
local function with_diagonal(x, diagonal)
    local unit = flow.eye(x:size(-1), {dtype = x.dtype}):to(x.device)
    return x:tril(-1) + diagonal:unsqueeze(-1) * unit
end
function Lower._call(_, x) return with_diagonal(x, x:diagonal(0, -2, -1):exp()) end
function Lower._inverse(_, y) return with_diagonal(y, y:diagonal(0, -2, -1):log()) end
function Lower.log_abs_det_jacobian(_, x) return x:diagonal(0, -2, -1):sum(-1) end

-- A lower triangular matrix with a positive diagonal, times its transpose.
local Definite = class "PositiveDefiniteTransform"
Definite.domain_dim, Definite.codomain_dim = 2, 2
function Definite._call(_, x)
    local factor = Lower._call(nil, x)
    return factor:matmul(factor.mT)
end
function Definite._inverse(_, y) return Lower._inverse(nil, flow.linalg.cholesky(y)) end

-- n (n - 1) / 2 real numbers as the Cholesky factor of a correlation matrix: in each row the tanh of a number is the
-- share that it takes of the length that is left.
local Correlation = class "CorrCholeskyTransform"
Correlation.domain_dim, Correlation.codomain_dim = 1, 2

-- The row-major positions in an n x n matrix of the elements below its diagonal `offset`.
local function below(x, n, offset)
    local places = flow.tril_indices(n, n, offset)
    return (places:select(0, 0) * n + places:select(0, 1)):to(x.device)
end
local function side_of(count)
    local n = math.floor((0.25 + 2 * count) ^ 0.5 + 0.5 + 0.5)
    if n * (n - 1) // 2 ~= count then
        check.fail("CorrCholeskyTransform: takes n (n - 1) / 2 numbers, got %d", count)
    end
    return n
end
local function from_matrix(x, offset)
    return x:flatten(-2):index_select(-1, below(x, x:size(-1), offset))
end
local function shifted(x)
    return flow.cat({flow.ones_like(x:narrow(-1, 0, 1)), x:narrow(-1, 0, x:size(-1) - 1)}, -1)
end
function Correlation._call(_, x)
    local n, tip = side_of(x:size(-1)), x.dtype == "float64" and 2.0 ^ -52 or 2.0 ^ -23
    local shares = x:tanh():clamp(-1 + tip, 1 - tip)
    local flat = flow.zeros(shapes.join(shapes.part(shapes.of(x), 1, x.ndim - 1), {n * n}), {dtype = x.dtype})
    local r = flat:to(x.device):index_add(-1, below(x, n, -1), shares):unflatten(-1, {n, n})
    local left = (1 - r * r):sqrt():cumprod(-1)
    return (r + flow.eye(n, {dtype = x.dtype}):to(x.device)) * shifted(left)
end
function Correlation._inverse(_, y)
    local left = shifted(1 - (y * y):cumsum(-1))
    local t = from_matrix(y, -1) / from_matrix(left, -1):sqrt()
    return (t:log1p() - (-t):log1p()) / 2
end
function Correlation.log_abs_det_jacobian(_, x, y)
    local left = 1 - (y * y):cumsum(-1)
    return from_matrix(left, -2):log():sum(-1) * 0.5 - (x + softplus(x * -2) - LOG_2):sum(-1) * 2
end
function Correlation.forward_shape(_, shape)
    local n = side_of(shape[#shape])
    return shapes.join(shapes.part(shape, 1, #shape - 1), {n, n})
end
function Correlation.inverse_shape(_, shape)
    local n = shape[#shape]
    return shapes.join(shapes.part(shape, 1, #shape - 2), {n * (n - 1) // 2})
end

-- ---- of transforms ----

local Independent = class "IndependentTransform"
function Independent:init(base_transform, reinterpreted_batch_ndims)
    self.base, self.count = base_transform, reinterpreted_batch_ndims
    self.domain_dim = base_transform.domain_dim + self.count
    self.codomain_dim, self.bijective = base_transform.codomain_dim + self.count, base_transform.bijective
    self.sign = base_transform.sign
end
check.constructor(Independent,
    "IndependentTransform(base_transform: transform, reinterpreted_batch_ndims: integer >= 0)")
function Independent:_call(x) return self.base(x) end
function Independent:_inverse(y) return self.base:_inverse(y) end
function Independent:log_abs_det_jacobian(x, y)
    return shapes.sum_last(self.base:log_abs_det_jacobian(x, y), self.count)
end
function Independent:forward_shape(shape) return self.base:forward_shape(shape) end
function Independent:inverse_shape(shape) return self.base:inverse_shape(shape) end

local Reshape = class "ReshapeTransform"
function Reshape:init(in_shape, out_shape)
    self.in_shape, self.out_shape = in_shape, out_shape
    self.domain_dim, self.codomain_dim = #in_shape, #out_shape
end
check.constructor(Reshape, "ReshapeTransform(in_shape: list, out_shape: list)")
function Reshape:forward_shape(shape)
    return shapes.join(shapes.part(shape, 1, #shape - #self.in_shape), self.out_shape)
end
function Reshape:inverse_shape(shape)
    return shapes.join(shapes.part(shape, 1, #shape - #self.out_shape), self.in_shape)
end
function Reshape:_call(x) return x:reshape(self:forward_shape(shapes.of(x))) end
function Reshape:_inverse(y) return y:reshape(self:inverse_shape(shapes.of(y))) end
function Reshape:log_abs_det_jacobian(x)
    local batch = shapes.part(shapes.of(x), 1, x.ndim - #self.in_shape)
    return shapes.sum_last(flow.zeros_like(x), #self.in_shape):reshape(batch)
end

-- A list of transforms, the argument `argument` of a class.
local function check_parts(name, argument, parts)
    for i, part in ipairs(parts) do
        if not is_transform(part) then
            check.fail("%s: entry %d of %s must be a transform, got %s", name, i, argument, check.got(part))
        end
    end
    return parts
end

local Compose = class "ComposeTransform"
function Compose:init(parts)
    check_parts("ComposeTransform", "parts", parts)
    self.parts, self.bijective, self.sign = parts, true, 1
    -- the axes of an event before and after all, where each part may have more than the one before it
    local before, after = 0, 0
    for i = #parts, 1, -1 do
        before = math.max(before + parts[i].domain_dim - parts[i].codomain_dim, parts[i].domain_dim)
        self.bijective = self.bijective and parts[i].bijective
        if type(self.sign) == "number" and parts[i].sign then self.sign = parts[i].sign * self.sign end
    end
    for _, part in ipairs(parts) do
        after = math.max(after + part.codomain_dim - part.domain_dim, part.codomain_dim)
    end
    self.domain_dim, self.codomain_dim = before, after
end
check.constructor(Compose, "ComposeTransform(parts: list)")
function Compose:_call(x)
    for _, part in ipairs(self.parts) do x = part(x) end
    return x
end
function Compose:_inverse(y)
    for i = #self.parts, 1, -1 do y = self.parts[i]:_inverse(y) end
    return y
end
function Compose:log_abs_det_jacobian(x)
    local total, dim = nil, self.domain_dim
    for _, part in ipairs(self.parts) do
        local y = part(x)
        local term = shapes.sum_last(part:log_abs_det_jacobian(x, y), dim - part.domain_dim)
        total = total and total + term or term
        dim = dim + part.codomain_dim - part.domain_dim
        x = y
    end
    return total
end
function Compose:forward_shape(shape)
    for _, part in ipairs(self.parts) do shape = part:forward_shape(shape) end
    return shape
end
function Compose:inverse_shape(shape)
    for i = #self.parts, 1, -1 do shape = self.parts[i]:inverse_shape(shape) end
    return shape
end

-- Transforms of the parts of x along an axis, whose results are put together by `join`.
local function in_parts(name, cut, join, volumes)
    local new = class(name)
    new.cut, new.join = cut, join
    function new:init(tseq, axis, lengths)
        self.parts, self.axis, self.lengths, self.bijective = check_parts(name, "tseq", tseq), axis, lengths, true
        for _, part in ipairs(tseq) do
            self.domain_dim = math.max(self.domain_dim, part.domain_dim)
            self.codomain_dim = math.max(self.codomain_dim, part.codomain_dim)
            self.bijective = self.bijective and part.bijective
        end
    end
    local function each(self, x, f)
        local results = {}
        for i, piece in ipairs(cut(self, x)) do results[i] = f(self.parts[i], piece, i) end
        return join(results, self.axis)
    end
    function new:_call(x) return each(self, x, function(part, piece) return part(piece) end) end
    function new:_inverse(y) return each(self, y, function(part, piece) return part:_inverse(piece) end) end
    function new:log_abs_det_jacobian(x, y)
        local ys, terms = cut(self, y), {}
        for i, piece in ipairs(cut(self, x)) do
            local part = self.parts[i]
            terms[i] = shapes.sum_last(part:log_abs_det_jacobian(piece, ys[i]), self.domain_dim - part.domain_dim)
        end
        return volumes(self, terms, x.ndim)
    end
    return new
end

local Stack = in_parts("StackTransform", function(self, x) return {x:unbind(self.axis)} end, flow.stack,
    function(self, terms) return flow.stack(terms, self.axis) end)
check.constructor(Stack, "StackTransform(tseq: list, axis: integer = 0)")

local Cat = in_parts("CatTransform", function(self, x)
    local lengths = self.lengths
    if not lengths then
        lengths = {}
        for i = 1, #self.parts do lengths[i] = 1 end
    end
    return {x:split(lengths, self.axis)}
end, flow.cat, function(self, terms, ndim)
    local axis = (self.axis < 0 and self.axis or self.axis - ndim) + self.domain_dim
    if axis < 0 then return flow.cat(terms, axis) end
    local sum = terms[1]                    -- the axis is one of an event
    for i = 2, #terms do sum = sum + terms[i] end
    return sum
end)
check.constructor(Cat, "CatTransform(tseq: list, axis: integer = 0, lengths: list?)")

-- The classes are names of flow.distributions too.
local names = {transforms = M}
for name, value in pairs(M) do
    if name:find "Transform$" then names[name] = value end
end

return names
