-- linalg.lua -- flow.linalg: linear algebra under the names of torch.linalg.
--
-- The functions are ops, most of them named "linalg.x". If PyTorch has the same function beside linalg, flow has it
-- too (flow.det, flow.inverse).

local flow = require "flow"
local check = require "flow.check"

local ops = flow._op

local M = {}

for name, op in pairs(ops) do
    local own = name:match "^linalg%.(.*)$"
    if own then M[own] = op end
end
M.matmul, M.outer, M.trace = ops.matmul, ops.outer, ops.trace

---The diagonal of the last two axes (of axis0 and axis1), as the last axis of the result.
---@param x table tensor
---@param opts {offset: integer, axis0: integer, axis1: integer}?
---@return table
function M.diagonal(x, opts)
    return x:diagonal(opts.offset, opts.axis0, opts.axis1)
end

-- Axes of one operand of tensordot: a number or a list.
local function axes_of(value, name)
    if math.type(value) == "integer" then return {value} end
    if type(value) ~= "table" then
        check.fail("tensordot: dims must be a number of axes or {axes of x, axes of y}; the axes of %s are %s", name,
            check.got(value))
    end
    return value
end

local function range(first, last)
    local list = {}
    for i = first, last do list[#list + 1] = i end
    return list
end

---Products of x and y summed over axes: the last `dims` of x with the first of y, or {axes of x, axes of y} in pairs.
---@param x table tensor
---@param y table tensor
---@param dims integer|table
---@return table
function M.tensordot(x, y, dims)
    if type(dims) == "table" then
        if #dims ~= 2 then check.fail("tensordot: dims must be {axes of x, axes of y}, got a list of %d", #dims) end
        return ops.tensordot_axes(x, y, axes_of(dims[1], "x"), axes_of(dims[2], "y"))
    end
    if math.type(dims) ~= "integer" or dims < 0 or dims > math.min(x.ndim, y.ndim) then
        check.fail("tensordot: dims must be a number of axes from 0 to %d or {axes of x, axes of y}, got %s",
            math.min(x.ndim, y.ndim), check.got(dims))
    end
    return ops.tensordot_axes(x, y, range(x.ndim - dims, x.ndim - 1), range(0, dims - 1))
end

-- The order of the fewest multiplications: split[i][j] is where the product of the factors i to j is cut.
local function best_order(sizes, count)
    local cost, split = {}, {}
    for i = 1, count do cost[i], split[i] = {[i] = 0}, {} end
    for length = 2, count do
        for i = 1, count - length + 1 do
            local j = i + length - 1
            for k = i, j - 1 do
                local total = cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1]
                if not cost[i][j] or total < cost[i][j] then cost[i][j], split[i][j] = total, k end
            end
        end
    end
    return split
end

---The product of two or more matrices, multiplied in the order of the fewest operations; the first and the last may be
---vectors.
---@param tensors table list of tensors
---@return table
function M.multi_dot(tensors)
    local count = #tensors
    if count < 2 then check.fail("linalg.multi_dot: takes at least two tensors, got %d", count) end
    local factors, sizes = {}, {}
    for i = 1, count do         -- a list may have holes
        local x = tensors[i]
        if not flow.is_tensor(x) then
            check.fail("linalg.multi_dot: entry %d must be a tensor, got %s", i, check.type(x))
        end
        local vector = x.ndim == 1 and (i == 1 or i == count)
        if x.ndim ~= 2 and not vector then
            check.fail("linalg.multi_dot: entry %d must be a matrix, got %s", i, check.shape(x))
        end
        factors[i] = vector and x:unsqueeze(i == 1 and 0 or 1) or x
        if i > 1 and factors[i]:size(0) ~= sizes[i] then
            check.fail("linalg.multi_dot: entries %d and %d do not fit: %s and %s", i - 1, i,
                check.shape(tensors[i - 1]), check.shape(x))
        end
        sizes[i], sizes[i + 1] = factors[i]:size(0), factors[i]:size(1)
    end
    local split = best_order(sizes, count)
    local function product(i, j)
        if i == j then return factors[i] end
        return product(i, split[i][j]):matmul(product(split[i][j] + 1, j))
    end
    local result = product(1, count)
    if tensors[count].ndim == 1 then result = result:squeeze(1) end
    return tensors[1].ndim == 1 and result:squeeze(0) or result
end

---The p-norm of vectors: of all elements, or along an axis or a list of them.
---@param x table tensor
---@param ord number? default 2; math.huge, -math.huge and 0 (how many are not 0) too
---@param axis integer|integer[]|nil
---@param keepdim boolean?
---@return table
function M.vector_norm(x, ord, axis, keepdim)
    return ops.norm(x, ord, axis, keepdim)
end

-- x with the axes of a matrix norm last, and those axes, for keepdim.
local function as_matrices(who, x, axis)
    if type(axis) ~= "table" or #axis ~= 2 then check.fail("%s: axis must be a list of two axes", who) end
    local first, second = axis[1] % x.ndim, axis[2] % x.ndim
    if first == second then check.fail("%s: the two axes must be different", who) end
    return x:movedim({first, second}, {-2, -1}), first, second
end

-- Sums of absolute values along an axis of the matrices, the largest or the smallest of them.
local function extreme_sum(A, axis, largest)
    local sums = A:abs():sum(axis)
    return largest and sums:amax(-1) or sums:amin(-1)
end

---Norms of matrices.
---@param A table tensor
---@param ord number|string|nil "fro" (default), "nuc", 1, -1, 2, -2, math.huge or -math.huge
---@param axis integer[]? the axes of the matrices, default the last two
---@param keepdim boolean?
---@return table
function M.matrix_norm(A, ord, axis, keepdim)
    local who = "linalg.matrix_norm"
    if A.ndim < 2 then check.fail("%s: A must have two axes or more, got %s", who, check.shape(A)) end
    local x, first, second = as_matrices(who, A, axis or {-2, -1})
    local result
    if ord == "fro" then result = ops.norm(x, 2, {-2, -1})
    elseif ord == "nuc" then result = M.svdvals(x):sum(-1)
    elseif ord == 2 then result = M.svdvals(x):amax(-1)
    elseif ord == -2 then result = M.svdvals(x):amin(-1)
    elseif ord == 1 or ord == -1 then result = extreme_sum(x, -2, ord == 1)
    elseif ord == math.huge or ord == -math.huge then result = extreme_sum(x, -1, ord == math.huge)
    else
        check.fail('%s: ord must be "fro", "nuc", 1, -1, 2, -2, math.huge or -math.huge, got %s', who, check.got(ord))
    end
    if not keepdim then return result end
    return result:unsqueeze(math.min(first, second)):unsqueeze(math.max(first, second))
end

---The norm of a vector or a matrix: without ord the 2-norm of all elements; with an axis that of vectors, with two of
---matrices, without one that of x.
---@param x table tensor
---@param ord number|string|nil
---@param axis integer|integer[]|nil
---@param keepdim boolean?
---@return table
function M.norm(x, ord, axis, keepdim)
    local two = type(axis) == "table" and #axis == 2
    if ord == nil then return ops.norm(x, 2, axis, keepdim) end
    if two or axis == nil and x.ndim == 2 or type(ord) == "string" then return M.matrix_norm(x, ord, axis, keepdim) end
    if axis == nil and x.ndim ~= 1 then
        check.fail("linalg.norm: with ord x must have one or two axes, got %s", check.shape(x))
    end
    return ops.norm(x, ord, axis, keepdim)
end

---The factor by which solving with a matrix can enlarge errors: norm(A, p) * norm(A^-1, p); infinite of a singular one.
---@param A table tensor
---@param p number|string|nil as of matrix_norm; default 2: of the singular values
---@return table
function M.cond(A, p)
    if A.ndim >= 2 and A:numel() == 0 and A:size(-1) == A:size(-2) then return A:sum {-2, -1} end
    if p == "nuc" then
        local values = M.svdvals(A)
        return values:sum(-1) * (1 / values):sum(-1)
    elseif p == nil or p == 2 or p == -2 then
        local values = M.svdvals(A)
        local largest, smallest = values:amax(-1), values:amin(-1)
        return p == -2 and smallest / largest or largest / smallest
    end
    local inverse, info = M.inv_ex(A)
    return flow.where(info:eq(0), M.matrix_norm(A, p) * M.matrix_norm(inverse, p), math.huge)
end

---The powers of the elements of a vector, a row each: 1, x, ..., x^(N-1).
---@param x table tensor
---@param N integer? default: the number of elements
---@return table
function M.vander(x, N) return flow.vander(x, N, true) end

---The square root of symmetric positive definite matrices, of which the lower half is read.
---@param A table tensor
---@return table
function M.matrix_sqrth(A)
    local values, vectors = M.eigh(A)
    return (vectors * values:sqrt():unsqueeze(-2)):matmul(vectors.mT)
end

---U with orthonormal columns and positive semidefinite H with A = U H.
---@param A table tensor
---@return table, table
function M.polar(A)
    if A.ndim < 2 or A:size(-2) < A:size(-1) then
        check.fail("linalg.polar: A must have at least as many rows as columns, got %s", check.shape(A))
    end
    local U, S, Vh = M.svd(A, false)
    return U:matmul(Vh), (Vh.mT * S:unsqueeze(-2)):matmul(Vh)
end

check.takes(M, {
    "linalg.matrix_sqrth(A: tensor)", "linalg.polar(A: tensor)",
    "linalg.vander(x: tensor, N: integer >= 0?)",
    "linalg.diagonal(x: tensor, {offset: integer = 0, axis0: integer = -2, axis1: integer = -1})",
    "tensordot(x: tensor, y: tensor, dims: value = 2)",
    "linalg.multi_dot(tensors: list)",
    "linalg.vector_norm(x: tensor, ord: number = 2, axis: integer or list?, keepdim: boolean = false)",
    "linalg.matrix_norm(A: tensor, ord: number or fro|nuc = fro, axis: list?, keepdim: boolean = false)",
    "linalg.norm(x: tensor, ord: number or fro|nuc?, axis: integer or list?, keepdim: boolean = false)",
    "linalg.cond(A: tensor, p: number or fro|nuc?)",
})

for name, f in pairs(require("flow.linalg_factors").linalg) do M[name] = f end

return check.strict("linalg", M)
