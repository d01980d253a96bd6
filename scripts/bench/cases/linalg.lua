-- linalg.lua -- factors, solutions and eigenvalues in float32: a thousand small matrices, and a large one.

local flow = require "flow"

local linalg = flow.linalg

local M = {}

local function positive(...)
    local a = flow.randn({...})
    return a:matmul(a:transpose(-2, -1)) / a:size(-1) + flow.eye(a:size(-1))
end

local function loop(f, ...)
    local args = {...}
    return function(count)
        for _ = 1, count do f(table.unpack(args)) end
    end
end

local sizes = {small = {1000, 4, 4}, large = {512, 512}}

for name, size in pairs(sizes) do
    local function case(op, f, ...)
        local others = {...}
        M[op .. "_" .. name] = function() return loop(f, positive(table.unpack(size)), table.unpack(others)) end
    end
    case("det", linalg.det)
    case("inv", linalg.inv)
    case("solve", function(a) return linalg.solve(a, a) end)
    case("cholesky", linalg.cholesky)
    case("triangular", function(a) return linalg.solve_triangular(a, a, {upper = false}) end)
    case("qr", linalg.qr)
    case("eigh", linalg.eigh)
    case("svd", linalg.svd)
    case("exp", linalg.matrix_exp)
    case("pinv", linalg.pinv)
    M["inv_train_" .. name] = function()
        local a = positive(table.unpack(size)):requires_grad_()
        return loop(function()
            linalg.inv(a):sum():backward()
            a.grad = nil
        end)
    end
end

return M
