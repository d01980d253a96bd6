-- linalg_factors.lua -- of flow.linalg: LU and LDL factors and systems with them, products of reflections, inverses of
-- tensors, and factors of a low rank, all of a few ops; with gradients, but of the factors that LAPACK packs.

local flow = require "flow"
local check = require "flow.check"

local ops = flow._op

local M, T = {}, {}

-- ---- LU ----

local function factors_of(who, A, pivot)
    if not pivot then check.fail("%s: rows are always exchanged; pivot = false is not there", who) end
    return ops.linalg_lu(A)
end

local function check_info(who, info)
    if info.device == "meta" or info:numel() == 0 then return end
    local worst = info:max():item()
    if worst > 0 then check.fail("%s: a matrix is singular: pivot %d of its LU factors is 0", who, worst) end
end

---The factors L (below the diagonal, on which it has ones) and U of A, as one matrix, and the exchanges of rows that
---lead there: row i with row pivots[i] - 1. A singular matrix is an error.
---@param A table tensor
---@param pivot boolean?
function M.lu_factor(A, pivot)
    local LU, _, pivots, info = factors_of("linalg.lu_factor", A, pivot)
    check_info("linalg.lu_factor", info)
    return LU, pivots
end

---lu_factor without its error: the third result is the first pivot that is 0, or 0.
---@param A table tensor
---@param pivot boolean?
---@param check_errors boolean?
function M.lu_factor_ex(A, pivot, check_errors)
    local LU, _, pivots, info = factors_of("linalg.lu_factor_ex", A, pivot)
    if check_errors then check_info("linalg.lu_factor_ex", info) end
    return LU, pivots, info
end

-- P with P[order[i], i] = 1, so that A = P L U.
local function permutation(order, like)
    local rows = flow.arange(order:size(-1), flow.nn.like(order, {dtype = "int64"})):unsqueeze(-1)
    return rows:eq(order:unsqueeze(-2)):to(like.dtype)
end

local function lower_of(LU)
    local k = math.min(LU:size(-2), LU:size(-1))
    return LU:narrow(-1, 0, k):tril(-1) + flow.eye(LU:size(-2), k, flow.nn.like(LU, {dtype = LU.dtype}))
end

local function upper_of(LU) return LU:narrow(-2, 0, math.min(LU:size(-2), LU:size(-1))):triu() end

---P, L and U with A = P L U: an order of rows as a matrix, ones on the diagonal and numbers below, numbers on the
---diagonal and above.
---@param A table tensor
---@param pivot boolean?
function M.lu(A, pivot)
    local LU, order = factors_of("linalg.lu", A, pivot)
    return permutation(order, LU), lower_of(LU), upper_of(LU)
end

-- The order of the rows after exchanges, one after the other: a permutation matrix. Pivots are small and on the host.
local function order_of(pivots, rows)
    local lists = pivots:reshape(-1, pivots:size(-1)):totable()
    for i, list in ipairs(lists) do
        local order = {}
        for r = 1, rows do order[r] = r - 1 end
        for k, pivot in ipairs(list) do
            if pivot < 1 or pivot > rows then
                check.fail("lu_unpack: pivots must be rows from 1 to %d, got %d", rows, pivot)
            end
            order[k], order[pivot] = order[pivot], order[k]
        end
        lists[i] = order
    end
    local shape = table.move(pivots.shape, 1, pivots.ndim - 1, 1, {})
    shape[#shape + 1] = rows
    return flow.tensor(lists, {dtype = "int64"}):reshape(shape):to(pivots.device)
end

local function check_factors(who, LU, pivots)
    if LU.ndim < 2 then check.fail("%s: LU must have at least two axes, got %s", who, check.shape(LU)) end
    local want = table.move(LU.shape, 1, LU.ndim - 2, 1, {})
    want[#want + 1] = math.min(LU:size(-1), LU:size(-2))
    if pivots.dtype ~= "int32" or check.shape(pivots) ~= "[" .. table.concat(want, ", ") .. "]" then
        check.fail("%s: pivots must be int32[%s], got %s%s", who, table.concat(want, ", "), pivots.dtype,
            check.shape(pivots))
    end
end

---P, L and U of what linalg.lu_factor gives.
---@param LU_data table tensor
---@param LU_pivots table int32 tensor
---@param opts {unpack_data: boolean, unpack_pivots: boolean}
function T.lu_unpack(LU_data, LU_pivots, opts)
    check_factors("lu_unpack", LU_data, LU_pivots)
    local none = flow.zeros({0}, flow.nn.like(LU_data, {dtype = LU_data.dtype}))
    local P, L, U = none, none, none
    if opts.unpack_pivots then P = permutation(order_of(LU_pivots, LU_data:size(-2)), LU_data) end
    if opts.unpack_data then L, U = lower_of(LU_data), upper_of(LU_data) end
    return P, L, U
end

---X with A X = B, from what linalg.lu_factor(A) gives; left = false: with X A = B; adjoint: of the transposed A.
---@param LU table tensor
---@param pivots table int32 tensor
---@param B table tensor
---@param opts {left: boolean, adjoint: boolean}
function M.lu_solve(LU, pivots, B, opts)
    check_factors("linalg.lu_solve", LU, pivots)
    local left, adjoint = opts.left, opts.adjoint
    if not left then
        -- X A = B is A^T X^T = B^T.
        return M.lu_solve(LU, pivots, B.mT, {left = true, adjoint = not adjoint}).mT
    end
    local P = permutation(order_of(pivots, LU:size(-2)), LU)
    local solve = flow.linalg.solve_triangular
    if not adjoint then
        local inner = solve(LU, P.mT:matmul(B), {upper = false, unitriangular = true})
        return solve(LU, inner, {upper = true})
    end
    local inner = solve(LU.mT, B, {upper = false})
    return P:matmul(solve(LU.mT, inner, {upper = true, unitriangular = true}))
end

---linalg.lu_factor under its old name; get_infos: with lu_factor_ex's third result.
---@param A table tensor
---@param pivot boolean?
---@param get_infos boolean?
function T.lu(A, pivot, get_infos)
    if get_infos then return M.lu_factor_ex(A, pivot) end
    return M.lu_factor(A, pivot)
end

---linalg.lu_solve with the right-hand sides first.
---@param B table tensor
---@param LU_data table tensor
---@param LU_pivots table int32 tensor
function T.lu_solve(B, LU_data, LU_pivots) return M.lu_solve(LU_data, LU_pivots, B) end

-- ---- reflections ----

-- Some factors have no known gradient.
local function refuse_gradient(who, A, instead, name)
    if A.requires_grad and flow.is_grad_enabled() then
        name = name or "A"
        check.fail("%s: has no gradient in %s; write %s:detach(), or %s", who, name, name, instead)
    end
end

---QR factors as LAPACK leaves them: R in the upper triangle of the first result; column i below it is the vector of a
---reflection, whose factor is entry i of the second. ormqr multiplies by their product Q, linalg.householder_product
---makes it.
---@param A table tensor [..., m, n]
function T.geqrf(A)
    refuse_gradient("geqrf", A, "linalg.qr(A)")
    return ops.linalg_geqrf(A)
end

-- x times reflections I - tau[i] v v^T of vectors [..., m, k], one after the other from the left: i = first, ..., last.
local function reflected(x, vectors, tau, first, last, step)
    for i = first, last, step do
        local v = vectors:narrow(-1, i, 1)
        x = x - tau:narrow(-1, i, 1):unsqueeze(-1) * v:matmul(v.mT:matmul(x))
    end
    return x
end

-- The vectors of reflections, with 1 on the diagonal.
local function vectors_of(A)
    return A:tril(-1) + flow.eye(A:size(-2), A:size(-1), flow.nn.like(A, {dtype = A.dtype}))
end

local function householder_product(who, A, tau)
    if A.ndim < 2 or A:size(-2) < A:size(-1) then
        check.fail("%s: A must have at least as many rows as columns, got %s", who, check.shape(A))
    end
    local m, n, k = A:size(-2), A:size(-1), tau:size(-1)
    if k > n then check.fail("%s: tau has %d entries, A %d columns", who, k, n) end
    local Q = flow.eye(m, n, flow.nn.like(A, {dtype = A.dtype})):expand(A.shape)
    return reflected(Q, vectors_of(A), tau, k - 1, 0, -1)
end

---The first columns of the product of the reflections I - tau[i] v v^T, where v is column i of A below the diagonal,
---with 1 on it: the Q that LAPACK's geqrf leaves in this form.
---@param A table tensor [..., m, n]
---@param tau table tensor [..., k]
function M.householder_product(A, tau) return householder_product("linalg.householder_product", A, tau) end

---The same as linalg.householder_product.
---@param A table tensor [..., m, n]
---@param tau table tensor [..., k]
function T.orgqr(A, tau) return householder_product("orgqr", A, tau) end

---Q other, where Q is the product of the reflections that geqrf leaves in A and tau; left = false: other Q; transpose:
---with Q^T.
---@param A table tensor [..., m, k]
---@param tau table tensor [..., k]
---@param other table tensor
---@param left boolean?
---@param transpose boolean?
function T.ormqr(A, tau, other, left, transpose)
    if A.ndim < 2 or other.ndim < 2 or tau.ndim < 1 then
        check.fail("ormqr: A and other must be matrices and tau vectors, got %s, %s and %s", check.shape(A),
            check.shape(other), check.shape(tau))
    end
    if not left then        -- other Q is (Q^T other^T)^T
        return T.ormqr(A, tau, other.mT, true, not transpose).mT
    end
    local k = tau:size(-1)
    if A:size(-2) ~= other:size(-2) or k > math.min(A:size(-1), A:size(-2)) then
        check.fail("ormqr: reflections %s with tau %s do not fit a matrix %s", check.shape(A), check.shape(tau),
            check.shape(other))
    end
    if transpose then return reflected(other, vectors_of(A), tau, 0, k - 1, 1) end
    return reflected(other, vectors_of(A), tau, k - 1, 0, -1)
end

-- ---- symmetric matrices ----

local function ldl_factor(who, A, check_errors)
    refuse_gradient(who, A, "linalg.solve(A, B)")
    local LD, pivots, info = ops.linalg_ldl(A)
    if check_errors and info.device ~= "meta" and info:numel() > 0 and info:max():item() > 0 then
        check.fail("%s: a matrix is singular: block %d of D is 0", who, info:max():item())
    end
    return LD, pivots, info
end

---The factors of A = P L D L^T P^T as one matrix, and the exchanges of rows P, as LAPACK's sytrf gives them: L has ones
---on its diagonal, which are not stored, D blocks of one and two rows. The lower half of A is read; a singular matrix
---is an error.
---@param A table tensor
---@param opts {hermitian: boolean} of real matrices the same
function M.ldl_factor(A, opts) -- luacheck: ignore opts
    local LD, pivots = ldl_factor("linalg.ldl_factor", A, true)
    return LD, pivots
end

---ldl_factor without its error: the third result is the first block of D that is 0, or 0.
---@param A table tensor
---@param opts {hermitian: boolean, check_errors: boolean}
function M.ldl_factor_ex(A, opts) return ldl_factor("linalg.ldl_factor_ex", A, opts.check_errors) end

---X with A X = B, from what linalg.ldl_factor(A) gives.
---@param LD table tensor
---@param pivots table int32 tensor
---@param B table tensor
---@param opts {hermitian: boolean} of real matrices the same
function M.ldl_solve(LD, pivots, B, opts) -- luacheck: ignore opts
    refuse_gradient("linalg.ldl_solve", LD, "linalg.solve(A, B)", "LD")
    if LD.ndim < 2 or B.ndim < 2 or pivots.ndim < 1 then
        check.fail("linalg.ldl_solve: LD and B must be matrices and pivots vectors, got %s, %s and %s", check.shape(LD),
            check.shape(B), check.shape(pivots))
    end
    local batch = flow.broadcast_shapes({table.unpack(LD.shape, 1, LD.ndim - 2)},
        {table.unpack(pivots.shape, 1, pivots.ndim - 1)}, {table.unpack(B.shape, 1, B.ndim - 2)})
    local function in_batch(x, own)
        return x:expand(table.move(x.shape, x.ndim - own + 1, x.ndim, #batch + 1, {table.unpack(batch)}))
    end
    return ops.linalg_ldl_solve(in_batch(LD, 2), in_batch(pivots, 1), in_batch(B, 2))
end

-- ---- tensors as matrices ----

local function product(shape, first, last)
    local size = 1
    for i = first, last do size = size * shape[i] end
    return size
end

---The inverse of x as a matrix whose rows are its first `ind` axes and whose columns the others.
---@param x table tensor
---@param ind integer?
function M.tensorinv(x, ind)
    local rows = ind <= x.ndim and product(x.shape, 1, ind)
    local columns = rows and product(x.shape, ind + 1, x.ndim)
    if not rows or rows ~= columns then
        check.fail("linalg.tensorinv: the first %d axes and the others must have one product, got %s", ind,
            check.shape(x))
    end
    local shape = table.move(x.shape, ind + 1, x.ndim, 1, {})
    table.move(x.shape, 1, ind, #shape + 1, shape)
    return flow.linalg.inv(x:reshape(rows, columns)):reshape(shape)
end

---X with tensordot(A, X, X.ndim) = B. axes of A that are moved to its end come first in X.
---@param A table tensor
---@param B table tensor
---@param axes integer[]?
function M.tensorsolve(A, B, axes)
    if axes then
        local ends = {}
        for i = 1, #axes do ends[i] = i - #axes - 1 end
        A = A:movedim(axes, ends)
    end
    local rows, shape = B:numel(), table.move(A.shape, B.ndim + 1, A.ndim, 1, {})
    if product(shape, 1, #shape) ~= rows or product(A.shape, 1, math.min(B.ndim, A.ndim)) ~= rows then
        check.fail("linalg.tensorsolve: A %s does not fit B %s", check.shape(A), check.shape(B))
    end
    return flow.linalg.solve(A:reshape(rows, rows), B:reshape(-1)):reshape(shape)
end

---linalg.solve that says which matrices are singular: X, and 0 or the pivot that is 0 of each matrix.
---@param A table tensor
---@param B table tensor
---@param opts {left: boolean, check_errors: boolean}
function M.solve_ex(A, B, opts)
    local LU, _, pivots, info = ops.linalg_lu(A)
    if opts.check_errors then check_info("linalg.solve_ex", info) end
    local vector = B.ndim == 1 or A.ndim == B.ndim + 1
    local X = M.lu_solve(LU, pivots, vector and B:unsqueeze(-1) or B, {left = opts.left, adjoint = false})
    return vector and X:squeeze(-1) or X, info
end

-- ---- low rank ----

local function orthonormal(x) return (flow.linalg.qr(x)) end

-- Orthonormal columns that nearly span those of A: steps of the power method from random vectors (N. Halko and others,
-- "Finding structure with randomness", 2009, algorithm 4.4).
local function range_of(A, q, niter)
    local Q = orthonormal(A:matmul(flow.randn({A:size(-1), q}, flow.nn.like(A, {dtype = A.dtype}))))
    for _ = 1, niter do
        Q = orthonormal(A.mT:matmul(Q))
        Q = orthonormal(A:matmul(Q))
    end
    return Q
end

---U, S and V with A near U diag(S) V^T, of the q largest singular values, by random vectors; M is subtracted first.
---@param A table tensor
---@param q integer?
---@param niter integer? steps of the power method
---@param opts {M: any}
function T.svd_lowrank(A, q, niter, opts)
    q = q or 6
    if A.ndim < 2 or q > math.min(A:size(-2), A:size(-1)) then
        check.fail("svd_lowrank: q must be at most the smaller side of A %s, got %d", check.shape(A), q)
    end
    if opts.M then A = A - opts.M end
    local wide = A:size(-2) < A:size(-1)
    if wide then A = A.mT end
    local Q = range_of(A, q, niter)
    local U, S, Vh = flow.linalg.svd(Q.mT:matmul(A), false)
    U = Q:matmul(U)
    if wide then return Vh.mT, S, U end
    return U, S, Vh.mT
end

---svd_lowrank of A less its means over the rows: the principal directions are the columns of V.
---@param A table tensor
---@param q integer?
---@param center boolean?
---@param niter integer?
function T.pca_lowrank(A, q, center, niter)
    q = q or math.min(6, A:size(-2), A:size(-1))
    if center then A = A - A:mean(-2, true) end
    return T.svd_lowrank(A, q, niter)
end

check.takes(M, {
    "linalg.lu_factor(A: tensor, pivot: boolean = true)",
    "linalg.lu_factor_ex(A: tensor, pivot: boolean = true, check_errors: boolean = false)",
    "linalg.lu(A: tensor, pivot: boolean = true)",
    "linalg.lu_solve(LU: tensor, pivots: tensor, B: tensor, {left: boolean = true, adjoint: boolean = false})",
    "linalg.householder_product(A: tensor, tau: tensor)",
    "linalg.ldl_factor(A: tensor, {hermitian: boolean = false})",
    "linalg.ldl_factor_ex(A: tensor, {hermitian: boolean = false, check_errors: boolean = false})",
    "linalg.ldl_solve(LD: tensor, pivots: tensor, B: tensor, {hermitian: boolean = false})",
    "linalg.tensorinv(x: tensor, ind: integer >= 1 = 2)", "linalg.tensorsolve(A: tensor, B: tensor, axes: list?)",
    "linalg.solve_ex(A: tensor, B: tensor, {left: boolean = true, check_errors: boolean = false})",
})
check.takes(T, {
    "lu(A: tensor, pivot: boolean = true, get_infos: boolean = false)",
    "lu_solve(B: tensor, LU_data: tensor, LU_pivots: tensor)",
    "lu_unpack(LU_data: tensor, LU_pivots: tensor, {unpack_data: boolean = true, unpack_pivots: boolean = true})",
    "geqrf(A: tensor)", "orgqr(A: tensor, tau: tensor)",
    "ormqr(A: tensor, tau: tensor, other: tensor, left: boolean = true, transpose: boolean = false)",
    "svd_lowrank(A: tensor, q: integer >= 1?, niter: integer >= 0 = 2, {M: tensor?})",
    "pca_lowrank(A: tensor, q: integer >= 1?, center: boolean = true, niter: integer >= 0 = 2)",
})

return {linalg = M, flow = T}
