-- linalg_spec.lua -- flow.linalg on the GPU, by cuSOLVER (in the emulation a stand-in, fake_cusolver.cc), against the CPU: values,
-- layouts, batches, nothing, gradients of two orders, and the same words where a matrix is not fit. Vectors are given up to their
-- signs, so what is compared of them does not depend on these.
local flow = require "flow"
local cuda = require "tests.cuda.support"
local process = require "tests.process"
local support = require "tests.support"

local linalg = flow.linalg

local function it(name, body) cuda.it_with("FLOW_CUSOLVER", name, body) end

local EPS = {float64 = 1e-8, float32 = 5e-4}

---- matrices that are far from singular ----

local function draw(dtype, ...) return flow.randn({...}, {dtype = dtype}) end

local function square(dtype, ...)
    local a = draw(dtype, ...)
    local n = a:size(-1)
    return a / math.sqrt(n) + 3 * flow.eye(n, {dtype = dtype})
end

local function positive(dtype, ...)
    local a = draw(dtype, ...)
    local n = a:size(-1)
    return a:matmul(a.mT) / n + flow.eye(n, {dtype = dtype})
end

-- Eigenvalues, or singular values, one apart or more; m x n.
local function spread(dtype, ...)
    local a = draw(dtype, ...) * 0.1
    local m, n = a:size(-2), a:size(-1)
    local values = flow.arange(1, math.min(m, n) + 1, {dtype = dtype}):diag()
    return a + flow.nn.functional.pad(values, {0, n - values:size(1), 0, m - values:size(0)})
end

local function symmetric(dtype, ...)
    local a = spread(dtype, ...)
    return (a + a.mT) / 2
end

local function right(a, k) return draw(a.dtype, table.unpack(table.move({k}, 1, 1, a.ndim, table.move(a.shape, 1, a.ndim - 1, 1, {})))) end

---- ops ----

local function outer(q) return q.mT:matmul(q) end

-- Every op of cuSOLVER, and what is written in them: the function, which of the results do not depend on signs, its operands.
local squares = {
    {"linalg.det", function(a) return linalg.det(a * 0.5) end},
    {"linalg.slogdet", linalg.slogdet},
    {"logdet", function(a) return flow.logdet(a) end},
    {"linalg.inv", linalg.inv},
    {"linalg.inv_ex", linalg.inv_ex},
    {"linalg.solve", linalg.solve, true},
    {"linalg.solve", function(a, b) return linalg.solve(a, b.mT, false) end, true},
    {"linalg.solve_triangular", function(a, b) return linalg.solve_triangular(a, b, {upper = true}) end, true},
    {"linalg.solve_triangular", function(a, b)
        return linalg.solve_triangular(a, b.mT, {upper = false, left = false, unitriangular = true}) / a:size(-1)
    end, true, eps = 1e-6},
    {"linalg.solve_triangular", function(a, b) return linalg.solve_triangular(a.mT, b:narrow(-1, 0, 1), {upper = true}) end, true},
    {"triangular_solve", function(a, b) return (flow.triangular_solve(b, a, {transpose = true})) end, true},
    {"linalg.matrix_power", function(a) return linalg.matrix_power(a, -2) end},
    {"linalg.pinv", linalg.pinv},
    {"linalg.lu", function(a) return linalg.lu(a) end},
    {"linalg.lu_factor", linalg.lu_factor},
    {"linalg.matrix_exp", function(a) return linalg.matrix_exp(a / 4) end},
}

local positives = {
    {"linalg.cholesky", linalg.cholesky},
    {"linalg.cholesky", function(a) return linalg.cholesky(a, true) end},
    {"linalg.cholesky_ex", linalg.cholesky_ex},
    {"cholesky_solve", function(a, b) return flow.cholesky_solve(b, a) end, true},
    {"cholesky_solve", function(a, b) return flow.cholesky_solve(b, a, true) end, true},
    {"cholesky_inverse", function(a) return flow.cholesky_inverse(a) end},
}

local symmetrics = {
    {"linalg.eigvalsh", linalg.eigvalsh},
    {"linalg.eigh", function(a)
        local values, v = linalg.eigh(a, "U")
        return values, v:square(), (v * values:unsqueeze(-2)):matmul(v.mT)
    end},
    {"linalg.eig", function(a)      -- by the CPU, as ldl_factor and matrix_exp are
        local values, v = linalg.eig((a + a.mT) / 2)
        return (values:sort()), (v * values:unsqueeze(-2)):matmul(v.mT)
    end},
    {"linalg.eigvals", function(a) return (linalg.eigvals((a + a.mT) / 2):sort()) end},
    {"linalg.ldl_factor", function(a, b)
        local factors, pivots = linalg.ldl_factor(a:detach())
        return linalg.ldl_solve(factors, pivots, b), pivots
    end, true},
    {"linalg.pinv", function(a) return linalg.pinv(a, {hermitian = true}) end},
    {"linalg.matrix_rank", function(a) return linalg.matrix_rank(a, {hermitian = true}) end},
}

local rectangles = {
    {"linalg.svdvals", linalg.svdvals},
    {"linalg.svd", function(a)
        local u, s, vt = linalg.svd(a, false)
        return s, u:square(), vt:square(), (u * s:unsqueeze(-2)):matmul(vt)
    end},
    {"svd", function(a)
        local u, s, v = flow.svd(a)
        return (u * s:unsqueeze(-2)):matmul(v.mT)
    end},
    {"linalg.pinv", linalg.pinv},
    {"linalg.matrix_rank", linalg.matrix_rank},
    {"linalg.qr", function(a)
        local q, r = linalg.qr(a)
        return q:square(), r:square(), q:matmul(r)
    end},
    {"qr", function(a)
        local q, r = flow.qr(a)
        return q:matmul(r)
    end},
    {"linalg.lu_factor_ex", function(a) return linalg.lu_factor_ex(a) end},
    {"linalg.lstsq", linalg.lstsq, true},
}
for _, driver in ipairs {"gels", "gelsd", "gelss"} do
    rectangles[#rectangles + 1] = {"linalg.lstsq", function(a, b) return linalg.lstsq(a, b, {driver = driver}) end, true}
end

-- Without gradients, or where they have none.
local plain = {
    {"linalg.svd", function(a)
        local u, s, vt = linalg.svd(a)
        return s, outer(u), outer(vt)
    end},
    {"linalg.qr", function(a)
        local q, r = linalg.qr(a, "complete")
        return outer(q), q:matmul(r), r:square()
    end},
    {"linalg.qr", function(a)
        local q, r = linalg.qr(a, "r")
        return q, r:square()
    end},
    {"geqrf", function(a)
        local packed, tau = flow.geqrf(a)
        local q = linalg.householder_product(packed:narrow(-1, 0, tau:size(-1)), tau)
        return q:matmul(packed:triu():narrow(-2, 0, tau:size(-1)))
    end},
}

local SQUARE = {{1, 1}, {3, 3}, {2, 4, 4}, {2, 3, 5, 5}, {40, 40}, {2, 40, 40}}
local families = {
    {squares, square, SQUARE},
    {positives, positive, SQUARE},
    {symmetrics, symmetric, SQUARE},
    {rectangles, spread, {{1, 1}, {3, 3}, {4, 2}, {2, 4}, {2, 3, 5}, {2, 3, 5, 3}, {20, 33}}},
    {plain, spread, {{1, 1}, {3, 3}, {4, 2}, {2, 4}, {2, 3, 5}, {2, 3, 5, 3}, {20, 33}}},
}

---- comparing ----

-- Nearer than eps times the largest element there is, or 1.
local function near(want, got, eps, what)
    assert.are.equal(want.dtype, got.dtype, what)
    assert.are.equal(cuda.device, got.device, what)
    assert.are.equal(support.shape_text(want.shape), support.shape_text(got.shape), what)
    if want:numel() == 0 then return end
    want, got = want:detach():to "float64", got:detach():to("cpu"):to "float64"
    local off, size = (want - got):abs():max():item(), math.max(1, want:abs():max():item())
    assert.is_true(off <= eps * size, ("%s: %g off, of %g"):format(what, off, size))
end

local function each_case(f)
    for _, family in ipairs(families) do
        local cases, make, sizes = table.unpack(family)
        for i, case in ipairs(cases) do f(case, make, sizes, ("%s (%d)"):format(case[1], i), cases ~= plain) end
    end
end

-- f of operands on both devices.
local function compare(f, args, eps, what)
    local want = table.pack(f(table.unpack(args)))
    local got = table.pack(f(table.unpack(support.map_tensors(args, cuda.to_gpu))))
    for i = 1, want.n do near(want[i], got[i], eps, ("%s, result %d"):format(what, i)) end
end

local function operands(case, make, dtype, size)
    local a = make(dtype, table.unpack(size))
    return case[3] and {a, right(a, 2)} or {a}
end

describe("on the GPU", function()
    before_each(function() flow.manual_seed(5) end)

    each_case(function(case, make, sizes, name)
        it(name .. " gives what it gives on the CPU", function()
            for _, dtype in ipairs {"float64", "float32"} do
                for _, size in ipairs(sizes) do
                    compare(case[2], operands(case, make, dtype, size), math.max(EPS[dtype], case.eps or 0),
                        ("%s %s[%s]"):format(name, dtype, table.concat(size, ", ")))
                end
            end
        end)

        it(name .. " reads operands of any layout", function()
            local args = operands(case, make, "float64", {2, 2, 3, 3})
            for _, layout in ipairs(cuda.layouts) do
                if layout.values then
                    compare(function(...) return case[2](table.unpack(support.map_tensors({...}, layout[2]))) end, args, 1e-8,
                        name .. ", " .. layout[1])
                end
            end
        end)

        it(name .. " has results of nothing", function()
            for _, size in ipairs {{0, 3, 3}, {0, 0}, {2, 0, 0}} do
                if size[#size] > 0 or not (case[1]:find "eigh" or case[1]:find "rank") then
                    compare(case[2], operands(case, draw, "float32", size), 0, ("%s [%s]"):format(name, table.concat(size, ", ")))
                end
            end
        end)
    end)

    it("matrices without rows or columns have factors", function()
        for _, size in ipairs {{3, 0}, {0, 3}, {2, 3, 0}, {2, 0, 3}} do
            local a = draw("float32", table.unpack(size))
            local function least(x) return linalg.lstsq(x, flow.ones(x:size(-2), 2, {device = x.device}), {driver = "gelsd"}) end
            for name, f in pairs {svd = linalg.svd, svdvals = linalg.svdvals, pinv = linalg.pinv, lu = linalg.lu_factor_ex,
                lstsq = least, qr = linalg.qr, complete = function(x) return linalg.qr(x, "complete") end} do
                compare(f, {a}, 0, ("%s of [%s]"):format(name, table.concat(size, ", ")))
            end
        end
    end)

    it("large matrices are computed one by one, many small ones at once", function()
        for _, size in ipairs {{2, 530, 530}, {3000, 3, 3}} do
            local a, p = square("float64", table.unpack(size)), positive("float64", table.unpack(size))
            compare(linalg.inv, {a}, 1e-8, "inv")
            compare(linalg.solve, {a, right(a, 3)}, 1e-8, "solve")
            compare(linalg.cholesky, {p}, 1e-8, "cholesky")
            compare(function(x) return linalg.cholesky(x.mT, true) end, {p}, 1e-8, "upper cholesky")
            compare(linalg.cholesky_ex, {p}, 1e-8, "cholesky_ex")
            compare(linalg.solve_triangular, {linalg.cholesky(p), right(p, 3), {upper = false}}, 1e-8, "solve_triangular")
            compare(linalg.lu_factor, {a}, 1e-8, "lu_factor")
        end
    end)

    it("more matrices than a grid has rows are computed in parts", function()
        local p = positive("float32", 70000, 2, 2)
        compare(linalg.cholesky, {p}, 1e-5, "cholesky")
        compare(linalg.solve, {p, right(p, 1)}, 1e-4, "solve")
    end)
end)

---- gradients ----

-- Derivatives of weighted sums of the float results, to the second order.
local function derivatives(f, args)
    local leaves, live = {}, {}
    for i, t in ipairs(args) do
        live[i] = t
        if flow.is_tensor(t) then
            leaves[#leaves + 1] = t:detach():clone():requires_grad_()
            live[i] = leaves[#leaves]
        end
    end
    local function total(...)
        local sum = 0
        for i, y in ipairs {...} do
            if y.requires_grad then
                local weight = (flow.arange(y:numel(), {dtype = "float64"}) * 0.37 + i):cos():reshape(y.shape):to(y.device)
                sum = sum + (y * weight):sum()
            end
        end
        return sum
    end
    local slopes = flow.grad(total(f(table.unpack(live))), leaves, {create_graph = true})
    local bent = flow.grad(total(table.unpack(slopes)), leaves, {allow_unused = true})
    local all = table.move(slopes, 1, #leaves, 1, {})
    for i = 1, #leaves do all[#all + 1] = bent[i] end
    return table.unpack(all)
end

describe("gradients on the GPU:", function()
    before_each(function() flow.manual_seed(6) end)

    each_case(function(case, make, sizes, name, differentiable)
        if not differentiable or case[1]:find "rank" or case[1]:find "ldl" then return end
        it(name, function()
            for _, size in ipairs(sizes) do
                if size[#size] < 10 and size[#size] > 1 then
                    compare(function(...) return derivatives(case[2], {...}) end, operands(case, make, "float64", size), 1e-6,
                        ("%s [%s]"):format(name, table.concat(size, ", ")))
                end
            end
        end)
    end)
end)

---- matrices that are not fit ----

describe("on the GPU", function()
    local function second(a, b) return flow.stack({a, b}) end
    local zeros, eye, ones = flow.zeros(2, 2), flow.eye(2), flow.ones(2, 2)
    for _, case in ipairs {
        {"linalg.cholesky: matrix 1 of the batch is not positive-definite (its leading minor of order 2 is not positive)",
            function(a) linalg.cholesky(a) end, second(eye, flow.tensor {{1.0, 2}, {2, 1}})},
        {"linalg.cholesky: the matrix is not positive-definite (its leading minor of order 1 is not positive)",
            function(a) linalg.cholesky(a, true) end, zeros},
        {"linalg.inv: matrix 1 of the batch is singular: pivot 2 of its LU factors is 0", function(a) linalg.inv(a) end, second(eye, ones)},
        {"linalg.solve: the matrix is singular: pivot 1 of its LU factors is 0", function(a) linalg.solve(a, a) end, flow.tensor({0.0, 1}):diag()},
        {"linalg.lu_factor: a matrix is singular: pivot 2 of its LU factors is 0", function(a) linalg.lu_factor(a) end, ones},
        {"linalg.svd: matrix 1 of the batch has elements that are NaN or infinite", function(a) linalg.svd(a) end, second(eye, ones / 0)},
        {"linalg.svdvals: the matrix has elements that are NaN or infinite", function(a) linalg.svdvals(a) end, eye * (0 / 0)},
        {"linalg.pinv: the matrix has elements that are NaN or infinite", function(a) linalg.pinv(a) end, eye * (0 / 0)},
        {"linalg.lstsq: the matrix has elements that are NaN or infinite", function(a) linalg.lstsq(a, a) end, eye * (0 / 0)},
        {"linalg.lstsq: matrix 1 of the batch has elements that are NaN or infinite", function(b)
            linalg.lstsq(flow.eye(2, {device = b.device}):expand({2, 2, 2}), b)
        end, second(eye, ones / 0)},
        {"linalg.lstsq: the matrix does not have full rank (error code 2)", function(a) linalg.lstsq(a, a, {driver = "gels"}) end, flow.tensor({1.0, 0}):diag()},
        {"linalg.eigh: the matrix has elements that are NaN or infinite", function(a) linalg.eigh(a) end, ones / 0},
        {"linalg.eigvalsh: the matrix has elements that are NaN or infinite", function(a) linalg.eigvalsh(a, "U") end, ones / 0},
        {"linalg.inv: takes square matrices [..., n, n], A is float32[2, 3]", function(a) linalg.inv(a) end, flow.ones(2, 3)},
    } do
        it("says: " .. case[1], function()
            for _, a in ipairs {case[3], cuda.to_gpu(case[3])} do
                local message = support.message_of(case[2], a)
                assert.are.equal(case[1], (message:gsub(" %([^()]*:%d+%)", "", 1):match "linalg%.[%w_]+: %l.*$"), message)
            end
        end)
    end

    it("matrices without full rank have singular vectors", function()
        local zeros3, ones3 = flow.zeros(3, 3, {dtype = "float64"}), flow.ones(3, 3, {dtype = "float64"})
        for i, a in ipairs {zeros3, ones3, second(zeros3, ones3), second(ones3, ones3):narrow(-1, 0, 2), flow.zeros(16, 4, {dtype = "float64"})} do
            compare(function(x)
                local u, s, vt = linalg.svd(x, false)
                return s, outer(u), outer(vt.mT), (u * s:unsqueeze(-2)):matmul(vt)
            end, {a}, 1e-12, "svd of matrix " .. i)
            compare(linalg.pinv, {a}, 1e-12, "pinv of matrix " .. i)
        end
    end)

    it("least squares do without full rank", function()
        local a = flow.arange(0, 12, {dtype = "float64"}):reshape(4, 3)
        compare(function(m, b)
            local x, rest, rank = linalg.lstsq(m, b, {driver = "gelsd"})
            return x, rest:isnan(), rank
        end, {a, right(a, 2)}, 1e-8, "lstsq")
    end)

    it("the half that is not read may hold anything", function()
        local a = flow.tensor {{2.0, 0 / 0}, {1, 3}}
        for _, f in ipairs {linalg.eigvalsh, linalg.cholesky, function(x) return linalg.solve_triangular(x, flow.ones_like(x), false) end} do
            compare(f, {a}, 1e-5, "lower half")
        end
    end)

    it("has results in place of errors where they are asked for", function()
        compare(function(a) return select(2, linalg.cholesky_ex(a)), select(2, linalg.inv_ex(a)) end, {second(eye, -ones)}, 0, "codes")
        local inverse = linalg.inv_ex(cuda.to_gpu(second(eye, ones)))
        assert.is_true(inverse[0]:isfinite():all():item())
        assert.is_true(inverse[1]:isnan():all():item())
        compare(linalg.det, {ones}, 1e-6, "det")
        compare(function(a) return (linalg.slogdet(a)) end, {ones}, 0, "sign")
        compare(function(a)
            local leaf = a:detach():clone():requires_grad_()
            return flow.grad(linalg.det(leaf), {leaf})[1]
        end, {ones:to "float64"}, 1e-6, "cofactors of a singular matrix")
    end)

    it("a captured function solves, beside its graphs", function()
        local function f(a, b) return (linalg.solve(a * 2, b):relu() + linalg.solve_triangular(a, b, {upper = true})).mT * 3 end
        local captured = flow.capture(f)
        for i = 1, 5 do
            flow.manual_seed(i)
            local a = square("float32", 4, 4)
            local b = right(a, 2)
            near(f(a, b), captured(cuda.to_gpu(a), cuda.to_gpu(b)), 1e-4, "run " .. i)
        end
    end)

    cuda.it("says what is missing where there is no cuSOLVER", function()
        local code = "print(pcall(flow.linalg.cholesky, flow.eye(2):to \"cuda\"))"
        local text = process.output(("FLOW_CUSOLVER=/no/solver.so %s -e '%s' 2>&1"):format(process.flowlua, code))
        assert.is_truthy(text:find("linalg.cholesky: cuSOLVER (libcusolver.so.12 or .11) was not found; install it, set LD_LIBRARY_PATH or "
            .. "FLOW_CUSOLVER, or move the operands to the CPU: x:to(\"cpu\")", 1, true), text)
    end)

    it("every op of cuSOLVER is here", function()
        local written, missing = {linalg_cofactor = "linalg.det", linalg_geqrf = "geqrf", linalg_least_squares = "linalg.lstsq", linalg_lu = "linalg.lu_factor",
            linalg_pseudoinverse = "linalg.pinv", linalg_solve_square = "linalg.solve", linalg_triangles = "linalg.solve_triangular"}, {}
        local seen = {}
        each_case(function(case) seen[case[1]] = true end)
        for name in pairs(support.solved) do
            if not seen[written[name] or name] then missing[#missing + 1] = name end
        end
        assert.are.equal("", table.concat(missing, " "))
    end)
end)
