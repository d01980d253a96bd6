-- distributions_matrix.lua -- distributions of matrices: covariances, and factors of correlations.

local flow = require "flow"
local check = require "flow.check"
local D = require "flow.distributions"

local shapes, constraints = D._shapes, D.constraints
local LOG_2, LOG_PI = math.log(2), math.log(math.pi)
local TINY = 1.1754943508222875e-38

local M = {}

-- Sums over i < p of f(x - i / 2), for the gamma function of matrices and its derivative.
local function ladder(f, x, p)
    local sum = f(x)
    for i = 1, p - 1 do sum = sum + f(x - i / 2) end
    return sum
end

local function log_gamma_of_matrices(x, p) return ladder(flow.lgamma, x, p) + p * (p - 1) / 4 * LOG_PI end

local function as_matrices(x) return x:unsqueeze(-1):unsqueeze(-1) end

-- Of an x [..., n]: matrices with it on the diagonal.
local function diagonal(x)
    return x:unsqueeze(-1) * flow.eye(x:size(-1), flow.nn.like(x, {dtype = x.dtype}))
end

-- ---- Wishart: sums of products of normal vectors with themselves ----

local Wishart = D._class("Wishart", nil, {df = 0, scale_tril = 2, covariance_matrix = 2, precision_matrix = 2})
M.Wishart = Wishart
Wishart.has_rsample = true

-- The lower factor of the covariance that one of three matrices says.
local function factor_of(n, covariance_matrix, precision_matrix, scale_tril)
    if scale_tril then return scale_tril end
    return D.MultivariateNormal(flow.zeros(n, flow.nn.like(covariance_matrix or precision_matrix,
        {dtype = (covariance_matrix or precision_matrix).dtype})), covariance_matrix, precision_matrix, nil,
        false).scale_tril
end

function Wishart:init(df, covariance_matrix, precision_matrix, scale_tril, validate_args)
    local given = {}
    for _, matrix in ipairs {covariance_matrix or false, precision_matrix or false, scale_tril or false} do
        if matrix then given[#given + 1] = matrix end
    end
    if #given ~= 1 then
        check.fail("Wishart: takes one of covariance_matrix, precision_matrix, scale_tril, got %d", #given)
    end
    local matrix, shape = given[1], shapes.of(given[1])
    local n = shape[#shape]
    if #shape < 2 or shape[#shape - 1] ~= n then
        check.fail("Wishart: the matrix must be [..., n, n], got %s", check.shape(matrix))
    end
    self.matrix = matrix
    self:_open({}, {n, n}, validate_args,
        {matrix = scale_tril and constraints.lower_cholesky or constraints.positive_definite})
    self.matrix = nil
    if type(df) == "number" then df = flow.full({}, df, flow.nn.like(matrix, {dtype = matrix.dtype})) end
    local batch = shapes.broadcast(shapes.of(df), shapes.part(shape, 1, #shape - 2), "Wishart")
    self.df = df:expand(batch)
    self.scale_tril = factor_of(n, covariance_matrix, precision_matrix, scale_tril):expand(shapes.join(batch, {n, n}))
    for name, own in pairs {covariance_matrix = covariance_matrix, precision_matrix = precision_matrix} do
        self[name] = own:expand(shapes.join(batch, {n, n}))
    end
    self:_open(batch, {n, n}, validate_args, {df = constraints.greater_than(n - 1)})
end
check.constructor(Wishart, "Wishart(df: tensor or number, covariance_matrix: tensor?, precision_matrix: tensor?, "
    .. "scale_tril: tensor?, validate_args: boolean?)")
function Wishart.get_support() return constraints.positive_definite end
function Wishart:get_covariance_matrix() return self.scale_tril:matmul(self.scale_tril.mT) end
function Wishart:get_precision_matrix() return self.scale_tril:cholesky_inverse() end
function Wishart:get_mean() return as_matrices(self.df) * self.covariance_matrix end
function Wishart:get_mode()
    local factor = self.df - (self.event_shape[1] + 1)
    return as_matrices(flow.where(factor:gt(0), factor, 0 / 0)) * self.covariance_matrix
end
function Wishart:get_variance()
    local V = self.covariance_matrix
    local variances = V:diagonal(0, -2, -1)
    return as_matrices(self.df) * (V * V + variances:unsqueeze(-1) * variances:unsqueeze(-2))
end
-- Bartlett's decomposition: L A A^T L^T, where A has normal numbers below the roots of chi-squared ones.
function Wishart:rsample(shape)
    local n = self.event_shape[1]
    local steps = flow.arange(n, flow.nn.like(self.df, {dtype = self.df.dtype}))
    local roots = D.Chi2(self.df:unsqueeze(-1) - steps, false):rsample(shape):clamp(TINY):sqrt()
    local noise = flow.randn_like(self.scale_tril:expand(self:_extended(shape))):tril(-1)
    local factor = self.scale_tril:matmul(noise + diagonal(roots))
    return factor:matmul(factor.mT)
end
-- The logarithm of the root of the determinant of the covariance.
function Wishart:_half_log_det() return self.scale_tril:diagonal(0, -2, -1):log():sum(-1) end
function Wishart:log_prob(value)
    self:_check_value(value)
    local nu, p = self.df, self.event_shape[1]
    local _, log_det = flow.linalg.slogdet(value)
    local factor = self.scale_tril
    local batch = shapes.broadcast(self.batch_shape, shapes.part(shapes.of(value), 1, value.ndim - 2), "Wishart")
    local whole = shapes.join(batch, {p, p})
    local ratio = value:expand(whole):cholesky_solve(factor:expand(whole))
    return -nu * (self:_half_log_det() + p * LOG_2 / 2) - log_gamma_of_matrices(nu / 2, p)
        + (nu - p - 1) / 2 * log_det - ratio:diagonal(0, -2, -1):sum(-1) / 2
end
function Wishart:entropy()
    local nu, p = self.df, self.event_shape[1]
    return (self:_half_log_det() + p * LOG_2 / 2) * (p + 1) + log_gamma_of_matrices(nu / 2, p)
        - (nu - p - 1) / 2 * ladder(flow.digamma, nu / 2, p) + nu * p / 2
end

-- ---- LKJCholesky: the Cholesky factors of random correlations (Lewandowski, Kurowicka and Joe, 2009) ----

local LKJ = D._class("LKJCholesky", nil, {concentration = 0})
M.LKJCholesky = LKJ
function LKJ:init(dim, concentration, validate_args)
    self.dim, self.concentration = dim, shapes.together("LKJCholesky", concentration)
    self:_open(shapes.of(self.concentration), {dim, dim}, validate_args, {concentration = constraints.positive})
end
check.constructor(LKJ, "LKJCholesky(dim: integer >= 2, concentration: tensor or number = 1, validate_args: boolean?)")
function LKJ.get_support() return constraints.corr_cholesky end
-- The onion method: row i is a random direction of i numbers, whose length is the root of a beta number.
local function onion(self, shape)
    local n, c = self.dim, self.concentration
    local steps = (flow.arange(n, flow.nn.like(c, {dtype = c.dtype})) - 1):clamp(0)
    local lengths = D.Beta(steps + 0.5, (c + 0.5 * (n - 2)):unsqueeze(-1) - steps * 0.5, false):sample(shape)
    local like = c:expand(shapes.join(self.batch_shape)):unsqueeze(-1):unsqueeze(-1)
    local directions = flow.randn_like(like:expand(self:_extended(shape))):tril(-1)
    directions = directions / directions:norm(2, -1, true):clamp(TINY)
    local rows = lengths:sqrt():unsqueeze(-1) * directions
    return rows + diagonal((1 - (rows * rows):sum(-1)):clamp(TINY):sqrt())
end
function LKJ:sample(shape)
    return flow.no_grad(function() return onion(self, shape) end)
end
function LKJ:log_prob(value)
    self:_check_value(value)
    local n, c = self.dim, self.concentration
    local lengths = value:diagonal(0, -2, -1):narrow(-1, 1, n - 1)
    local order = n - flow.arange(2, n + 1, flow.nn.like(c, {dtype = c.dtype})) + ((c - 1) * 2):unsqueeze(-1)
    local a = c + 0.5 * (n - 1)
    local constant = 0.5 * (n - 1) * LOG_PI + log_gamma_of_matrices(a - 0.5, n - 1) - a:lgamma() * (n - 1)
    return (order * lengths:log()):sum(-1) - constant
end

return M
