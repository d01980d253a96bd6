-- linalg_lobpcg.lua -- flow.lobpcg: a few eigenvalues at one end of large symmetric matrices, without their factors.
--
-- Each step solves the problem in the span of the vectors X so far, of their preconditioned residuals and of the last
-- changes of X (A. Knyazev, "Toward the Optimal Preconditioned Eigensolver", 2001). The basis is made orthonormal by
-- QR, which also holds where the residuals of vectors that have converged depend on the others.

local flow = require "flow"
local check = require "flow.check"

local WHO = "lobpcg"
local MOST_STEPS = 1000
local EPSILON = {float32 = 1.2e-7, float64 = 2.23e-16}

-- The product with a matrix X of few columns. A nil matrix B is the identity.
local function times(B, X) return B and B:matmul(X) or X end

-- A basis of the columns of S with Q^T B Q = 1; the first columns keep their span.
local function orthonormal(S, B)
    local Q = flow.linalg.qr(S)
    if not B then return Q end
    local L = flow.linalg.cholesky(Q.mT:matmul(B:matmul(Q)))
    return flow.linalg.solve_triangular(L.mT, Q, {upper = true, left = false})
end

-- The n values of S^T A S at the wanted end, from there on, and their vectors.
local function values_in(S, A, n, largest)
    local values, vectors = flow.linalg.eigh(S.mT:matmul(A:matmul(S)))
    if largest then values, vectors = values:flip(0), vectors:flip(1) end
    return values:narrow(0, 0, n), vectors:narrow(1, 0, n)
end

-- The size of A, as estimated with random vectors.
local function size_of(A, X) return A and (A:matmul(X):norm() / X:norm()):item() or 1 end

-- Values and vectors of one problem from the start X.
local function solve(problem, X)
    local A, B, n, k = problem.A, problem.B, X:size(1), problem.k
    local size_a, size_b = size_of(A, X), size_of(B, X)
    local E, Z, P
    X = orthonormal(X, B)
    E, Z = values_in(X, A, n, problem.largest)
    X = X:matmul(Z)
    for _ = 1, problem.niter do
        local R = A:matmul(X) - times(B, X) * E
        local scale = X:norm(2, 0) * (E:abs() * size_b + size_a)
        local errors = (R:norm(2, 0) / scale):narrow(0, 0, k)
        if errors:max():item() < problem.tol then break end
        local W = times(problem.iK, R)
        local S = orthonormal(flow.cat(P and {X, W, P} or {X, W}, 1), B)
        E, Z = values_in(S, A, n, problem.largest)
        X = S:matmul(Z)
        P = S:narrow(1, n, S:size(1) - n):matmul(Z:narrow(0, n, S:size(1) - n))
    end
    return E:narrow(0, 0, k), X:narrow(1, 0, k)
end

-- One of Newton's steps for A x = e B x with x^T B x = 1, of all pairs at once. If the equations hold it changes
-- nothing, and its derivative is that of their solution; of two steps so is the second.
local function newton(A, B, E, X)
    local rows = X.mT                                               -- [k, m]
    local of_b = times(B, X).mT                                     -- B x, in rows
    local residual = rows:matmul(A) - of_b * E:unsqueeze(1)
    local excess = (rows * of_b):sum(1) * 0.5 - 0.5
    local shifted = A - (B or flow.eye(A:size(0), flow.nn.like(A, {dtype = A.dtype}))) * E:reshape(-1, 1, 1)
    local above = flow.cat({shifted, -of_b:unsqueeze(2)}, 2)
    local below = flow.nn.functional.pad(of_b, {0, 1}):unsqueeze(1)
    local system = flow.cat({above, below}, 1)                      -- [k, m + 1, m + 1]
    local change = flow.linalg.solve(system, flow.cat({residual, excess:unsqueeze(1)}, 1):unsqueeze(2)):squeeze(2)
    local m = X:size(0)
    return E - change:select(1, m), (rows - change:narrow(1, 0, m)).mT
end

-- The start of one problem: the given vectors, or random ones.
local function start_of(A, given, n)
    return given or flow.randn({A:size(-1), n}, flow.nn.like(A, {dtype = A.dtype}))
end

local function solve_one(A, B, iK, given, opts)
    local E, X
    do
        local _ <close> = flow.no_grad()
        E, X = solve({
            A = A:detach(), B = B and B:detach(), iK = iK and iK:detach(), k = opts.k, niter = opts.niter,
            tol = opts.tol, largest = opts.largest,
        }, start_of(A, given and given:detach(), opts.n))
    end
    if not flow.is_grad_enabled() or not (A.requires_grad or B and B.requires_grad) then return E, X end
    A = (A + A.mT) / 2
    B = B and (B + B.mT) / 2
    E, X = newton(A, B, E, X)
    return newton(A, B, E, X)
end

local function check_shape(name, x, A, columns)
    local want = {table.unpack(A.shape)}
    want[#want] = columns or want[#want]
    if table.concat(x.shape, ",") ~= table.concat(want, ",") or x.dtype ~= A.dtype then
        check.fail("%s: %s must be %s[%s], got %s%s", WHO, name, A.dtype, table.concat(want, ", "), x.dtype,
            check.shape(x))
    end
end

-- Sizes and defaults of the options.
local function completed(A, k, opts)
    local X, m = opts.X, A:size(-1)
    if X and X.ndim ~= A.ndim then check.fail("%s: X must have the axes of A, got %s", WHO, check.shape(X)) end
    local result = {k = k or X and X:size(-1) or 1, largest = opts.largest}
    result.n = X and X:size(-1) or opts.n or result.k
    if result.n < result.k then
        check.fail("%s: n = %d vectors are fewer than the %d wanted", WHO, result.n, result.k)
    end
    if m < 3 * result.n then
        check.fail("%s: A must have at least 3 * %d rows, got %d; linalg.eigh gives all eigenvalues", WHO, result.n, m)
    end
    result.niter = opts.niter or MOST_STEPS
    if result.niter < 0 then result.niter = math.maxinteger end
    result.tol = opts.tol or math.sqrt(EPSILON[A.dtype])
    if X then check_shape("X", X, A, result.n) end
    if opts.B then check_shape("B", opts.B, A) end
    if opts.iK then check_shape("iK", opts.iK, A) end
    return result
end

local M = {}

---The k largest eigenvalues of symmetric A, in order, and their vectors as columns; with B, which is symmetric and
---positive definite, of A x = e B x. Gradients, to the third order, are those of values that differ.
---@param A table tensor [..., m, m]
---@param k integer? default: the columns of X, or 1
---@param opts {B: any, X: any, n: integer, iK: any, niter: integer, tol: number, largest: boolean, method: string}
---X: the vectors to begin with, or n of them at random; iK: preconditioner of residuals, near the inverse of A;
---niter: the most steps, default 1000, -1: any number; tol: of the residual by the size of A; largest = false: the
---smallest, from the lowest up; method: both are computed with an orthonormal basis
function M.lobpcg(A, k, opts)
    if A.ndim < 2 or A:size(-1) ~= A:size(-2) or not EPSILON[A.dtype] then
        check.fail("%s: A must be square matrices of float32 or float64, got %s%s", WHO, A.dtype, check.shape(A))
    end
    local problem = completed(A, k, opts)
    if A.ndim == 2 then return solve_one(A, opts.B, opts.iK, opts.X, problem) end
    local batch = {table.unpack(A.shape, 1, A.ndim - 2)}
    local function flat(x) return x and x:flatten(0, -3) end
    local As, Bs, iKs, Xs, E, X = flat(A), flat(opts.B), flat(opts.iK), flat(opts.X), {}, {}
    for i = 0, As:size(0) - 1 do
        E[i + 1], X[i + 1] = solve_one(As[i], Bs and Bs[i], iKs and iKs[i], Xs and Xs[i], problem)
    end
    if #E == 0 then check.fail("%s: the batch %s has no matrix", WHO, check.shape(A)) end
    return flow.stack(E):unflatten(0, batch), flow.stack(X):unflatten(0, batch)
end

check.takes(M, {
    [[lobpcg(A: tensor, k: integer >= 1?, {B: tensor?, X: tensor?, n: integer >= 1?, iK: tensor?, niter: integer >= -1?,
        tol: number >= 0?, largest: boolean = true, method: basic|ortho = ortho})]],
})

return M
