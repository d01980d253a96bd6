-- nn_orthogonal.lua -- the part of nn.utils.parametrizations.orthogonal: free numbers as an orthogonal matrix.
--
-- Three maps, as PyTorch has them: the exponential and Cayley's transform of a skew-symmetric matrix, and a product of
-- Householder's reflections, whose vectors lie below the diagonal and whose signs lie on it.

local flow = require "flow"
local module = require "flow.module"

local Orthogonal = module.Module:extend("Orthogonal")

local function like(x) return flow.nn.like(x, {dtype = x.dtype}) end

-- The numbers of x below its diagonal, and its diagonal: the vectors of reflections, and signs. Without a vector a
-- reflection is of an axis, so -1 on the diagonal and 0 elsewhere give the identity.
local function reflections(x)
    local vectors = x:tril(-1)
    local tau = 2 / ((vectors * vectors):sum(-2) + 1)
    return flow.linalg.householder_product(vectors, tau) * x:diagonal(0, -2, -1):detach():sign():unsqueeze(-2)
end

-- Of square numbers [n, n], or of fewer columns.
local maps = {}
local function skew(x)
    local n, k = x:size(-2), x:size(-1)
    local lower = x:tril()
    if k < n then lower = flow.pad(lower, {0, n - k}) end
    return lower - lower.mT
end
function maps.matrix_exp(x) return flow.linalg.matrix_exp(skew(x)):narrow(-1, 0, x:size(-1)) end
function maps.cayley(x)
    local half = skew(x) / 2
    local one = flow.eye(half:size(-1), like(x))
    return flow.linalg.solve(one - half, one + half):narrow(-1, 0, x:size(-1))
end
maps.householder = reflections

-- The orthogonal factor of x whose triangular one has a positive diagonal.
local function factor(x)
    local Q, R = flow.linalg.qr(x)
    return Q * R:diagonal(0, -2, -1):sign():unsqueeze(-2)
end

-- The vectors from which `reflections` makes the orthonormal columns of Q: reflection i takes column i to axis i.
local function vectors_of(Q)
    local rest, n, k = Q, Q:size(-2), Q:size(-1)
    local rows = flow.arange(n, flow.nn.like(Q)):unsqueeze(-1)
    local columns = {}
    for j = 0, k - 1 do
        local x = rest:narrow(-1, j, 1) * rows:ge(j):to(Q.dtype)
        local first = x:narrow(-2, j, 1)
        local length = x:norm(2, -2, true)
        local sign = flow.where(first:lt(0), -1.0, 1.0):to(Q.dtype)
        local axis = rows:eq(j):to(Q.dtype)
        local v = (x + sign * length * axis) / (first + sign * length)
        local tau = 2 / (v * v):sum(-2, true)
        rest = rest - tau * v:matmul(v.mT:matmul(rest))
        columns[j + 1] = v * rows:gt(j):to(Q.dtype) - sign * axis
    end
    return flow.cat(columns, -1)
end

function Orthogonal:init(map, trivial)
    self.map, self.trivial = map, trivial
    self.base = nil
end

function Orthogonal:forward(x)
    local wide = x:size(-2) < x:size(-1)
    if wide then x = x.mT end
    local Q = maps[self.map](x)
    if self.base then Q = self.base:matmul(Q) end
    return wide and Q.mT or Q
end

---The numbers of a parameter: with a base, those of the identity.
function Orthogonal:right_inverse(weight)
    local wide = weight:size(-2) < weight:size(-1)
    local tall = wide and weight.mT or weight
    local n, k = tall:size(-2), tall:size(-1)
    if not self.trivial then
        if self.map ~= "householder" then return weight end
        local numbers = vectors_of(factor(tall))
        return wide and numbers.mT or numbers
    end
    if k < n then
        local shape = table.move(tall.shape, 1, tall.ndim, 1, {})
        shape[#shape] = n - k
        self:register_buffer("base", factor(flow.cat({tall, flow.randn(shape, like(tall))}, -1)))
    else
        self:register_buffer("base", factor(tall))
    end
    local identity = (-flow.eye(n, k, like(tall))):expand(tall.shape):clone()   -- of reflections with -1: see above
    return wide and identity.mT:contiguous() or identity
end

module.signatures(Orthogonal, "Orthogonal(map: string, trivial: boolean)", "forward(x: tensor)")

return Orthogonal
