-- distributions_multivariate.lua -- normal vectors.

local flow = require "flow"
local check = require "flow.check"
local D = require "flow.distributions"

local shapes, constraints = D._shapes, D.constraints
local LOG_TAU = math.log(2 * math.pi)

local M = {}

-- A matrix per element of the batch times vectors [..., n].
local function times(matrix, vector) return matrix:matmul(vector:unsqueeze(-1)):squeeze(-1) end

-- loc and matrices [..., n, m] of one batch.
local function batched(self, loc, ...)
    local batch, matrices = shapes.part(shapes.of(loc), 1, loc.ndim - 1), {...}
    for _, m in ipairs(matrices) do
        batch = shapes.broadcast(batch, shapes.part(shapes.of(m[1]), 1, m[1].ndim - m[2]), self.name)
    end
    local result = {loc:expand(shapes.join(batch, {loc:size(-1)}))}
    for i, m in ipairs(matrices) do
        local shape = shapes.of(m[1])
        result[i + 1] = m[1]:expand(shapes.join(batch, shapes.part(shape, #shape - m[2] + 1)))
    end
    return batch, table.unpack(result)
end

-- ---- by a covariance matrix ----

local Normal = D._class("MultivariateNormal", nil,
    {loc = 1, scale_tril = 2, covariance_matrix = 2, precision_matrix = 2})
M.MultivariateNormal = Normal
Normal.has_rsample = true

function Normal:init(loc, covariance_matrix, precision_matrix, scale_tril, validate_args)
    local given = 0
    for _, matrix in ipairs {covariance_matrix or false, precision_matrix or false, scale_tril or false} do
        if matrix then given = given + 1 end
    end
    if given ~= 1 then
        check.fail("MultivariateNormal: takes one of covariance_matrix, precision_matrix, scale_tril, got %d", given)
    end
    if loc.ndim < 1 then check.fail "MultivariateNormal: loc must have at least one axis" end
    local matrix = covariance_matrix or precision_matrix or scale_tril
    local n = loc:size(-1)
    if matrix.ndim < 2 or matrix:size(-1) ~= n or matrix:size(-2) ~= n then
        check.fail("MultivariateNormal: the matrix must be [..., %d, %d] as loc has %d numbers, got %s", n, n, n,
            check.shape(matrix))
    end
    local wanted = scale_tril and constraints.lower_cholesky or constraints.positive_definite
    self.matrix = matrix
    self:_open({}, {n}, validate_args, {matrix = wanted})
    self.matrix = nil
    if covariance_matrix then
        scale_tril = flow.linalg.cholesky(covariance_matrix)
    elseif precision_matrix then -- the inverse of P = U U^T, U upper triangular, is U^-T U^-1
        local upper = flow.linalg.cholesky(precision_matrix:flip {-2, -1}):flip {-2, -1}
        local unit = flow.eye(n, {dtype = loc.dtype}):to(loc.device)
        unit = unit:expand(shapes.of(upper))
        scale_tril = flow.linalg.solve_triangular(upper:transpose(-1, -2), unit, {upper = false})
    end
    self.batch_shape, self.loc, self.scale_tril, matrix = batched(self, loc, {scale_tril, 2}, {matrix, 2})
    if covariance_matrix then self.covariance_matrix = matrix end
    if precision_matrix then self.precision_matrix = matrix end
end
check.constructor(Normal, "MultivariateNormal(loc: tensor, covariance_matrix: tensor?, precision_matrix: tensor?, "
    .. "scale_tril: tensor?, validate_args: boolean?)")

function Normal.get_support() return constraints.real_vector end
function Normal:get_mean() return self.loc end
function Normal:get_mode() return self.loc end
function Normal:get_covariance_matrix() return self.scale_tril:matmul(self.scale_tril:transpose(-1, -2)) end
function Normal:get_precision_matrix() return self.scale_tril:cholesky_inverse() end
function Normal:get_variance() return (self.scale_tril * self.scale_tril):sum(-1) end
function Normal:rsample(shape)
    return self.loc + times(self.scale_tril, flow.randn_like(self.loc:expand(self:_extended(shape))))
end
-- Half the logarithm of the determinant of the covariance matrix.
function Normal:_half_log_det() return self.scale_tril:diagonal(0, -2, -1):log():sum(-1) end
function Normal:log_prob(value)
    self:_check_value(value)
    local d = value - self.loc
    local matrices = self.scale_tril:expand(shapes.join(shapes.of(d), {d:size(-1)}))
    local z = flow.linalg.solve_triangular(matrices, d:unsqueeze(-1), {upper = false}):squeeze(-1)
    return ((z * z):sum(-1) + self.event_shape[1] * LOG_TAU) * -0.5 - self:_half_log_det()
end
function Normal:entropy() return self:_half_log_det() + self.event_shape[1] * 0.5 * (1 + LOG_TAU) end

-- ---- by a factor and a diagonal: covariance W W^T + diag ----

local LowRank = D._class("LowRankMultivariateNormal", nil, {loc = 1, cov_factor = 2, cov_diag = 1})
M.LowRankMultivariateNormal = LowRank
LowRank.has_rsample = true

function LowRank:init(loc, cov_factor, cov_diag, validate_args)
    local n = loc.ndim > 0 and loc:size(-1) or 0
    local fits = loc.ndim > 0 and cov_factor.ndim > 1 and cov_factor:size(-2) == n and cov_diag.ndim > 0
        and cov_diag:size(-1) == n
    if not fits then
        check.fail("LowRankMultivariateNormal: takes loc [..., n], cov_factor [..., n, rank], cov_diag [..., n], got "
            .. "%s, %s, %s", check.shape(loc), check.shape(cov_factor), check.shape(cov_diag))
    end
    local batch
    batch, self.loc, self.cov_factor, self.cov_diag = batched(self, loc, {cov_factor, 2}, {cov_diag, 1})
    self:_open(batch, {n}, validate_args, {cov_diag = constraints.independent(constraints.positive, 1)})
end
check.constructor(LowRank, "LowRankMultivariateNormal(loc: tensor, cov_factor: tensor, cov_diag: tensor, "
    .. "validate_args: boolean?)")

function LowRank.get_support() return constraints.real_vector end
function LowRank:get_mean() return self.loc end
function LowRank:get_mode() return self.loc end
function LowRank:get_variance() return (self.cov_factor * self.cov_factor):sum(-1) + self.cov_diag end
function LowRank:get_covariance_matrix()
    local unit = flow.eye(self.event_shape[1], {dtype = self.loc.dtype}):to(self.loc.device)
    return self.cov_factor:matmul(self.cov_factor:transpose(-1, -2)) + unit * self.cov_diag:unsqueeze(-1)
end
function LowRank:get_scale_tril() return flow.linalg.cholesky(self.covariance_matrix) end
function LowRank:get_precision_matrix() return flow.linalg.inv(self.covariance_matrix) end
function LowRank:rsample(shape)
    local all = self:_extended(shape)
    local rank = self.cov_factor:size(-1)
    local few = flow.randn_like(self.loc:narrow(-1, 0, 1):expand(shapes.join(shapes.part(all, 1, #all - 1), {rank})))
    return self.loc + times(self.cov_factor, few) + self.cov_diag:sqrt() * flow.randn_like(self.loc:expand(all))
end
-- The Cholesky factor of I + W^T D^-1 W, and W^T D^-1.
function LowRank:_capacitance()
    local scaled = self.cov_factor:transpose(-1, -2) / self.cov_diag:unsqueeze(-2)
    local unit = flow.eye(self.cov_factor:size(-1), {dtype = self.loc.dtype}):to(self.loc.device)
    return flow.linalg.cholesky(scaled:matmul(self.cov_factor) + unit), scaled
end
local function log_det(factor, diag) return factor:diagonal(0, -2, -1):log():sum(-1) * 2 + diag:log():sum(-1) end
function LowRank:log_prob(value)
    self:_check_value(value)
    local d = value - self.loc
    local factor, scaled = self:_capacitance()
    local inner = times(scaled, d):unsqueeze(-1)
    local shape = shapes.of(inner)
    local rank = factor:size(-1)
    local matrices = factor:expand(shapes.join(shapes.part(shape, 1, #shape - 2), {rank, rank}))
    local z = flow.linalg.solve_triangular(matrices, inner, {upper = false}):squeeze(-1)
    local distance = (d * d / self.cov_diag):sum(-1) - (z * z):sum(-1)
    return (distance + log_det(factor, self.cov_diag) + self.event_shape[1] * LOG_TAU) * -0.5
end
function LowRank:entropy()
    local factor = self:_capacitance()
    return (log_det(factor, self.cov_diag) + self.event_shape[1] * (1 + LOG_TAU)) * 0.5
end

return M
