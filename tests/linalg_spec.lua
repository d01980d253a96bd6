-- linalg_spec.lua -- flow.linalg: the products of factors, shapes of batches and of nothing, whole messages.
-- Gradients and SBPs are proven in registry_spec, values against PyTorch by make test-peer.
local flow = require "flow"
local process = require "tests.process"
local support = require "tests.support"

local linalg = flow.linalg
local message_of = support.message_of

local function close(want, got, eps, what) support.close(want, got, eps or 1e-9, what or "linalg") end
local function mT(x) return x:transpose(-2, -1) end
local function shape(x) return support.shape_text(x.shape) end
local function randn(...) return flow.randn({...}, {dtype = "float64"}) end
local function positive(...)
    local a = randn(...)
    return a:matmul(mT(a)) + flow.eye(a:size(-1), {dtype = "float64"})
end

describe("factors", function()
    it("multiply back", function()
        for _, sizes in ipairs {{3, 3}, {4, 2}, {2, 4}, {2, 3, 4, 3}, {1, 1}, {40, 33}} do
            local a = randn(table.unpack(sizes))
            local u, s, vt = linalg.svd(a, false)
            close(a, (u * s:unsqueeze(-2)):matmul(vt), 1e-9, "svd")
            close(s, linalg.svdvals(a), 1e-9, "svdvals")
            local full_u, _, full_vt = linalg.svd(a)
            close(flow.eye(a:size(-2), {dtype = "float64"}):expand(full_u.shape), mT(full_u):matmul(full_u))
            close(flow.eye(a:size(-1), {dtype = "float64"}):expand(full_vt.shape), full_vt:matmul(mT(full_vt)))
            for _, mode in ipairs {"reduced", "complete"} do
                local q, r = linalg.qr(a, mode)
                close(a, q:matmul(r), 1e-9, mode)
                close(r:triu(), r, 0)
            end
            local _, r = linalg.qr(a, "r")
            close(select(2, linalg.qr(a)), r)
            local x = linalg.pinv(a)
            close(a, a:matmul(x):matmul(a), 1e-9, "pinv")
            assert.are.equal(math.min(a:size(-1), a:size(-2)), linalg.matrix_rank(a):max():item())
        end
    end)

    it("of symmetric matrices, and of reflections", function()
        for _, n in ipairs {1, 3, 100} do
            local a, b = randn(2, n, n), randn(2, n, 3):requires_grad_()
            a = a + mT(a)
            local LD, pivots = linalg.ldl_factor(a)
            local x = linalg.ldl_solve(LD, pivots, b)
            close(b:detach(), a:matmul(x):detach(), 1e-7, "ldl_solve")
            local slope = flow.autograd.grad(x:square():sum(), b)
            close(linalg.solve(a, x * 2):detach(), slope, 1e-5, "the gradient of ldl_solve")
        end
        for _, sizes in ipairs {{4, 3}, {3, 4}, {2, 5, 2}} do
            local a = randn(table.unpack(sizes))
            local packed, tau = flow.geqrf(a)
            close(a, flow.ormqr(packed, tau, packed:triu()), 1e-9, "geqrf")
            close(a, flow.ormqr(packed, tau, flow.ormqr(packed, tau, a, true, true)), 1e-9, "ormqr")
            close(mT(a), flow.ormqr(packed, tau, mT(flow.ormqr(packed, tau, a)), false, false), 1e-9, "ormqr from the right")
        end
    end)

    it("of a few eigenvalues", function()
        flow.manual_seed(3)
        local a, b = positive(60, 60) + flow.diag(flow.arange(60):double()), positive(60, 60) + flow.eye(60, {dtype = "float64"}) * 5
        local values = linalg.eigvalsh(a)
        local largest, vectors = flow.lobpcg(a, 3, {tol = 1e-11})
        close(values:flip(0):narrow(0, 0, 3), largest, 1e-8, "the largest")
        close(a:matmul(vectors), vectors * largest, 1e-6, "vectors")
        close(values:narrow(0, 0, 2), (flow.lobpcg(a, 2, {largest = false, iK = linalg.inv(a), niter = 30})), 1e-5, "the smallest")
        close(largest, (flow.lobpcg(a, {X = vectors, niter = 1})), 1e-8, "from vectors")
        local of_both, x = flow.lobpcg(a, 2, {B = b, tol = 1e-11})
        close(a:matmul(x), b:matmul(x) * of_both, 1e-6, "of two matrices")
        close(flow.eye(2, {dtype = "float64"}), mT(x):matmul(b:matmul(x)), 1e-9, "orthonormal in B")
        local small = (flow.diag(flow.tensor({1, 2, 3, 5, 8, 20, 11, 15, 9}, {dtype = "float64"})) + randn(9, 9) * 0.1):requires_grad_()
        local function f(m)
            local e, v = flow.lobpcg((m + mT(m)) / 2, 2, {tol = 1e-13})
            return e, v:square()
        end
        assert.is_true(flow.autograd.gradcheck(f, {small}))
        assert.is_true(flow.autograd.gradcheck(function(m)
            return (flow.lobpcg(small:detach(), 2, {B = (m + mT(m)) / 2, tol = 1e-13}))
        end, {(positive(9, 9) + flow.eye(9, {dtype = "float64"}) * 9):requires_grad_()}))
        assert.is_true(flow.autograd.gradcheck(function(m)
            local e, v = f(m)
            return flow.autograd.grad(e:square():sum() + v:square():sum(), m, {create_graph = true})
        end, {small}))
    end)

    it("of square matrices", function()
        for _, sizes in ipairs {{3, 3}, {2, 4, 4}, {1, 1}, {33, 33}} do
            local a, p = randn(table.unpack(sizes)), positive(table.unpack(sizes))
            local one = flow.eye(a:size(-1), {dtype = "float64"}):expand(a.shape)
            close(one, a:matmul(linalg.inv(a)), 1e-8, "inv")
            local l, upper = linalg.cholesky(p), linalg.cholesky(p, {upper = true})
            close(p, l:matmul(mT(l)))
            close(mT(l), upper)
            local values, vectors = linalg.eigh(p)
            close(p:matmul(vectors), vectors * values:unsqueeze(-2))
            close(values, linalg.eigvalsh(p))
            close(values, (linalg.eigvals(p):sort()))
            local sign, log = linalg.slogdet(p)
            close(linalg.det(p), sign * log:exp(), 1e-8)
            close(log, p:logdet())
            close(values:log():sum(-1), log)
        end
    end)

    it("of small matrices, and of some for LAPACK", function()
        for _, dtype in ipairs {"float32", "float64"} do
            local eps = dtype == "float64" and 1e-9 or 1e-3
            for n = 1, 18 do
                local p = positive(3, n, n):to(dtype)
                local rest = flow.full({3, n, n}, 0 / 0, {dtype = dtype}):tril(-1) -- not read
                local l, upper = linalg.cholesky(p + mT(rest)), linalg.cholesky(p + rest, true)
                close(p, l:matmul(mT(l)), eps, dtype .. ", " .. n)
                assert.is_true(l:equal(l:tril()))
                close(mT(l), upper, eps)
                assert.is_true(upper:equal(upper:triu()))
                for minor = 1, n do
                    local a = p:clone()
                    a[{{}, minor - 1, minor - 1}] = minor % 2 == 0 and 0 / 0 or -1
                    local factor, order = linalg.cholesky_ex(a)
                    assert.are.same({minor, minor, minor}, order:totable())
                    assert.is_true(factor:triu(1):eq(0):all():item())
                end
            end
        end
    end)

    it("of which one half is read", function()
        local a = flow.tensor({{2, 9}, {1, 3}}, {dtype = "float64"})
        local lower = flow.tensor({{2, 1}, {1, 3}}, {dtype = "float64"})
        local upper = flow.tensor({{2, 9}, {9, 3}}, {dtype = "float64"})
        close(linalg.eigvalsh(lower), linalg.eigvalsh(a))
        close(linalg.eigvalsh(upper), linalg.eigvalsh(a, "U"))
        close(linalg.cholesky(lower), linalg.cholesky(a))
        close(linalg.pinv(lower), linalg.pinv(a, {hermitian = true}))
        close(linalg.solve(flow.tensor({{2, 9}, {0, 3}}, {dtype = "float64"}), flow.ones(2, {dtype = "float64"})):unsqueeze(1),
            linalg.solve_triangular(a, flow.ones(2, 1, {dtype = "float64"}), {upper = true}))
    end)

    it("solves with triangles for a vector as for many", function()
        flow.manual_seed(3)
        for _, dtype in ipairs {"float32", "float64"} do
            local near = {rtol = dtype == "float32" and 1e-4 or 1e-11, atol = dtype == "float32" and 1e-5 or 1e-12}
            for _, n in ipairs {1, 5, 31, 40} do
                for _, upper in ipairs {true, false} do
                    local o = {upper = upper, unitriangular = n == 5}
                    local a = (flow.randn(3, n, n) / n + 2 * flow.eye(n)):to(dtype)
                    local triangle = upper and a:triu() or a:tril()
                    if o.unitriangular then triangle = triangle - flow.diag_embed(triangle:diagonal(0, 1, 2)) + flow.eye(n):to(dtype) end
                    local b = flow.randn(3, n, 1):to(dtype)
                    flow.testing.assert_close(flow.matmul(triangle, linalg.solve_triangular(a, b, o)), b, near)
                    o.left, b = false, b:transpose(1, 2)
                    flow.testing.assert_close(flow.matmul(linalg.solve_triangular(a, b, o), triangle), b, near)
                end
            end
        end
    end)
end)

describe("gradients", function()
    it("of a singular matrix's determinant are its cofactors", function()
        local a = flow.tensor({{1, 2}, {2, 4}}, {dtype = "float64", requires_grad = true})
        linalg.det(a):backward()
        assert.are.same({{4, -2}, {-2, 1}}, a.grad:totable())
    end)

    it("of a negative determinant's logarithm are 0", function()
        local a = flow.tensor({{1, 0}, {0, -1}}, {dtype = "float64", requires_grad = true})
        local y = a:logdet()
        y:backward()
        assert.is_true(y:isnan():item())
        assert.are.same({{0, 0}, {0, 0}}, a.grad:totable())
    end)
end)

describe("solutions", function()
    it("solve", function()
        local a, b = randn(2, 3, 3), randn(3, 2)
        close(b:expand(2, 3, 2), a:matmul(linalg.solve(a, b)), 1e-8)
        local rows = randn(4, 3)
        close(rows:expand(2, 4, 3), linalg.solve(a, rows, {left = false}):matmul(a), 1e-8)
        local v = randn(2, 3)
        close(v:unsqueeze(-1), a:matmul(linalg.solve(a, v):unsqueeze(-1)), 1e-8)
        local p = positive(3, 3)
        local x = b:cholesky_solve(linalg.cholesky(p))
        close(b, p:matmul(x), 1e-8)
        close(x, b:cholesky_solve(linalg.cholesky(p, true), true), 1e-8)
        close(linalg.inv(p), linalg.cholesky(p):cholesky_inverse(), 1e-8)
        local t, copy = b:triangular_solve(p)
        close(b, p:triu():matmul(t), 1e-8)
        close(p, copy, 0)
    end)

    it("are least", function()
        local a, b = randn(6, 3), randn(6, 2)
        for _, driver in ipairs {"gels", "gelsy", "gelsd", "gelss"} do
            local x, residuals, rank, values = linalg.lstsq(a, b, {driver = driver})
            close(linalg.pinv(a):matmul(b), x, 1e-8, driver)
            if driver ~= "gelsy" then close((a:matmul(x) - b):square():sum(0), residuals, 1e-8, driver) end
            if driver ~= "gels" then assert.are.equal(3, rank:item()) end
            assert.are.equal(driver:find "gels[ds]" and 3 or 0, values:numel())
        end
        local flat = flow.ones(4, 2, {dtype = "float64"})
        local _, residuals, rank = linalg.lstsq(flat, flow.ones(4, 1, {dtype = "float64"}), {driver = "gelsd"})
        assert.are.equal(1, rank:item())
        assert.is_true(residuals[0]:isnan():item())
    end)
end)

describe("matrices", function()
    it("of no elements", function()
        assert.are.equal(1, linalg.det(flow.zeros(0, 0)):item())
        assert.are.equal("[2, 0]", shape(linalg.pinv(flow.zeros(0, 2))))
        local u, s, vt = linalg.svd(flow.zeros(2, 0))
        assert.are.same({{1, 0}, {0, 1}}, u:totable())
        assert.are.equal("[0] [0, 0]", shape(s) .. " " .. shape(vt))
        local q, r = linalg.qr(flow.zeros(2, 0), "complete")
        assert.are.same({{1, 0}, {0, 1}}, q:totable())
        assert.are.equal("[2, 0]", shape(r))
        assert.are.equal("[0, 3, 3]", shape(linalg.inv(flow.zeros(0, 3, 3))))
        assert.are.same({{0, 0}}, (linalg.lstsq(flow.zeros(0, 1), flow.zeros(0, 2))):totable())
        assert.are.equal(0, linalg.matrix_rank(flow.zeros(0, 2)):item())
        assert.are.equal(0, flow.zeros(0, 3):trace():item())
        assert.are.equal("[4, 0]", shape(flow.cdist(flow.zeros(4, 2), flow.zeros(0, 2))))
    end)

    it("to a power, and as an exponent", function()
        local a = randn(2, 3, 3)
        close(a:matmul(a):matmul(a), linalg.matrix_power(a, 3))
        close(linalg.inv(a):matmul(linalg.inv(a)), linalg.matrix_power(a, -2), 1e-7)
        close(flow.eye(3, {dtype = "float64"}):expand(2, 3, 3), a:matrix_power(0), 0)
        assert.are.same({{13, 14}, {21, 22}}, (flow.tensor {{1, 2}, {3, 4}}):matrix_power(2):add(flow.tensor {{6, 4}, {6, 0}}):totable())
        for _, scale in ipairs {0.001, 0.1, 0.4, 1, 3} do
            local e = linalg.matrix_exp(a * scale)
            close(flow.eye(3, {dtype = "float64"}):expand(2, 3, 3), e:matmul(linalg.matrix_exp(a * -scale)), 1e-6, "exp")
        end
        close(flow.tensor({{math.exp(1), 0}, {0, math.exp(-2)}}, {dtype = "float64"}),
            linalg.matrix_exp(flow.tensor({{1, 0}, {0, -2}}, {dtype = "float64"})), 1e-12)
    end)
end)

describe("products", function()
    it("of vectors and matrices", function()
        local x, y = flow.tensor {1, 2, 3}, flow.tensor {4, 5, 6}
        assert.are.equal(32, x:dot(y):item())
        assert.are.equal(32, linalg.vecdot(x, y):item())
        assert.are.equal("uint8", linalg.vecdot(x:to "uint8", y:to "uint8").dtype)
        assert.are.same({-3, 6, -3}, x:cross(y):totable())
        assert.are.same({{4, 5, 6}, {8, 10, 12}, {12, 15, 18}}, x:outer(y):totable())
        assert.are.same({4, 5, 6, 8, 10, 12, 12, 15, 18}, x:kron(y):totable())
        local m = flow.arange(6):reshape(2, 3)
        assert.are.same({8, 26}, m:mv(x):totable())
        assert.are.same({{5, 14}, {14, 50}}, m:mm(m:t()):totable())
        assert.are.same({{5, 14}, {14, 50}}, m:inner(m):totable())
        assert.are.equal(4, m:trace():item())
        assert.are.equal(4, linalg.trace(m):item())
        assert.are.same({{0, 1, 0, 2}, {2, 3, 4, 6}}, (flow.tensor {{1, 2}}):kron(flow.tensor {{0, 1}, {2, 3}}):totable())
        assert.are.equal(55, flow.tensordot(m, m):item())
        assert.are.same({{9, 12, 15}, {12, 17, 22}, {15, 22, 29}}, flow.tensordot(m, m, {{0}, {0}}):totable())
        assert.are.equal("[2, 3, 2, 3]", shape(flow.tensordot(m, m, 0)))
        assert.are.same({{1, 3, 5}, {7, 9, 11}}, flow.addmm(flow.ones(2, 3), flow.eye(2), m:to "float32", {alpha = 2}):totable())
        assert.are.same({10, 31}, linalg.multi_dot({flow.tensor {{1, 0}, {0, 1}}, m, flow.tensor {1, 3, 3}}):add(flow.tensor {1, 1}):totable())
    end)

    it("as distances", function()
        local x, y = randn(30, 3), randn(4, 3)
        local plain = flow.cdist(x, y, {compute_mode = "donot_use_mm_for_euclid_dist"})
        close(plain, flow.cdist(x, y), 1e-6)
        close((x[0] - y[1]):abs():sum(), flow.cdist(x, y, 1)[{0, 1}])
        close((x[0] - y[1]):abs():max(), flow.cdist(x, y, math.huge)[{0, 1}])
        local point = flow.ones(1, 3):requires_grad_()
        flow.cdist(point, flow.ones(30, 3)):sum():backward()
        assert.are.same({{0, 0, 0}}, point.grad:totable())
    end)
end)

describe("normalize", function()
    it("takes several axes", function()
        local x = randn(2, 3, 4, 5)
        close(x / x:norm(2, {2, 3}, true), flow.nn.functional.normalize(x, {axis = {2, 3}}))
        close(x / x:norm(3, -1, true), flow.normalize(x, 3, -1))
        close(x / x:norm(2, 1, true), flow.normalize(x))
    end)
end)

describe("cond", function()
    it("is infinite of a singular matrix, and 0 of an empty one", function()
        local singular, plain = flow.tensor {{1.0, 2}, {2, 4}}, flow.tensor {{1.0, 2}, {3, 4}}
        assert.is_true(linalg.cond(singular, "nuc"):item() > 1e6)
        assert.is_true(math.abs(linalg.cond(plain, "nuc"):item() - 17) < 1e-4)
        for _, p in ipairs {1, -1, math.huge, -math.huge, "fro"} do
            assert.are.equal(math.huge, linalg.cond(singular, p):item(), p)
            local both = linalg.cond(flow.stack {plain, singular}, p)
            assert.are.equal(math.huge, both[1]:item(), p)
            assert.is_true(math.abs(linalg.cond(plain, p):item() - both[0]:item()) < 1e-5, p)
        end
        for _, p in ipairs {1, 2, "fro"} do
            assert.are.same({0, 0, 0}, linalg.cond(flow.zeros(3, 0, 0), p):totable())
        end
        assert.are.equal(0, linalg.cond(flow.zeros(0, 0)):item())
    end)
end)

describe("names in the place of a list", function()
    it("are the options", function()
        local m, y = flow.tensor {{3.0, 4}, {0, 5}}, flow.tensor {{1.0, 2}, {3, 4}}
        assert.are.same({{5}, {5}}, linalg.vector_norm(m, 2, {axis = -1, keepdim = true}):totable())
        assert.are.same({{5}, {5}}, linalg.norm(m, 2, {axis = -1, keepdim = true}):totable())
        assert.are.equal("[1, 1]", shape(linalg.matrix_norm(m, "fro", {keepdim = true})))
        close(linalg.norm(m, "fro", {0, 1}), linalg.norm(m, "fro", {axis = {0, 1}}))
        close(m:matmul(y), flow.tensordot(m, y, {dims = 1}))
        close(m:t():matmul(y), flow.tensordot(m, y, {dims = {{0}, {0}}}))
        assert.are.same({{3}, {0}}, (flow.tensor_split(m, {into = 2, axis = 1})):totable())
        assert.are.same({{3, 4}}, (flow.vsplit(m, {into = 2})):totable())
        assert.are.same({2, 2}, (flow.histogram(m, {bins = 2, range = {0, 8}})):totable())
        assert.are.same({{5, 0}, {4, 3}}, flow.fft.fftshift(m, {axes = {0, 1}}):totable())
        local packed = flow.nn.utils.rnn.pack_padded_sequence(flow.ones(2, 3), {lengths = {2, 1}, batch_first = true})
        assert.are.same({2, 1}, packed.batch_sizes:totable())
        assert.are.same({{3, 7}, {0, 5}}, flow.index_put(m, {flow.tensor {0}, flow.tensor {1}}, {values = 7}):totable())
        local D = flow.distributions
        assert.are.equal(1, #D.TransformedDistribution(D.Normal(0, 1), {transforms = {D.ExpTransform()}}).transforms)
        assert.are.equal("linalg.vector_norm: unknown option 'keepdims'; it is called 'keepdim' here",
            message_of(function() linalg.vector_norm(m, 2, {keepdims = true}) end))
    end)
end)

describe("flow.linalg", function()
    local bad = {
        {"linalg.inv: takes float32 or float64, A is bfloat16[2, 2]; write A:to(\"float32\")",
            function() linalg.inv(flow.eye(2, {dtype = "bfloat16"})) end},
        {"linalg.svd: takes float32 or float64, A is int64[2, 2]; write A:to(\"float32\")", function() linalg.svd(flow.tensor {{1, 2}, {3, 4}}) end},
        {"linalg.inv: missing argument 'A'", function() linalg.inv() end},
        {"linalg.inv: A must be a tensor, got number", function() linalg.inv(3) end},
        {"linalg.qr: takes matrices [..., m, n], A is float32[3]", function() linalg.qr(flow.zeros(3)) end},
        {"linalg.det: takes square matrices [..., n, n], A is float32[2, 3]", function() flow.det(flow.zeros(2, 3)) end},
        {"linalg.inv: the matrix is singular: pivot 2 of its LU factors is 0", function() flow.ones(2, 2):inverse() end},
        {"linalg.solve: matrix 3 of the batch is singular: pivot 1 of its LU factors is 0", function()
            local a = flow.eye(2):expand(2, 2, 2, 2):clone()
            a[{1, 1}] = 0
            linalg.solve(a, flow.ones(2, 1))
        end},
        {"linalg.cholesky: matrix 1 of the batch is not positive-definite (its leading minor of order 2 is not positive)", function()
            flow.tensor({{{1.0, 0}, {0, 1}}, {{1, 0}, {0, -1}}}):cholesky()
        end},
        {"linalg.svd: the matrix has elements that are NaN or infinite", function() linalg.svd(flow.full({2, 2}, 0 / 0)) end},
        {"linalg.eig: the matrix has complex eigenvalues, and there are no complex tensors",
            function() linalg.eig(flow.tensor {{0.0, 1}, {-1, 0}}) end},
        {"linalg.solve: A is float32 and B is float64; convert one of them", function() linalg.solve(flow.eye(2), flow.ones(2, {dtype = "float64"})) end},
        {"linalg.solve: A is [2, 2] and B is [3, 1]: rows of B must be 2", function() linalg.solve(flow.eye(2), flow.ones(3, 1)) end},
        {"linalg.solve: with left = false B is a matrix, not a vector", function() linalg.solve(flow.eye(2), flow.ones(2), false) end},
        {"linalg.solve: batch axes of A [3, 2, 2] and B [2, 2, 1] do not broadcast", function() linalg.solve(flow.ones(3, 2, 2), flow.ones(2, 2, 1)) end},
        {"linalg.lstsq: A is [4, 2] and B is [3, 1]: rows of B must be 4", function() linalg.lstsq(flow.ones(4, 2), flow.ones(3, 1)) end},
        {"linalg.lstsq: the matrix does not have full rank (error code 2)",
            function() linalg.lstsq(flow.tensor {{1.0, 0}, {0, 0}, {0, 0}}, flow.ones(3, 1), {driver = "gels"}) end},
        {"dot: takes two vectors of one size, got [2] and [3]", function() flow.ones(2):dot(flow.ones(3)) end},
        {"mm: takes two matrices [m, k] and [k, n], got [2] and [2, 2]", function() flow.mm(flow.ones(2), flow.ones(2, 2)) end},
        {"trace: takes a matrix, x is [2]", function() flow.ones(2):trace() end},
        {"cross: takes tensors with an axis of size 3, got [2] and [2]", function() flow.cross(flow.ones(2), flow.ones(2)) end},
        {"cdist: takes [..., p, m] and [..., r, m], got [2, 3] and [2, 4]", function() flow.cdist(flow.ones(2, 3), flow.ones(2, 4)) end},
        {"cdist: p must be 0 or more, got -1", function() flow.cdist(flow.ones(2, 3), flow.ones(2, 3), -1) end},
        {"tensordot: dims must be a number of axes from 0 to 1 or {axes of x, axes of y}, got 2",
            function() flow.tensordot(flow.ones(2), flow.ones(2)) end},
        {"tensordot: axis 0 of x has size 2, axis 1 of y has size 3", function() flow.tensordot(flow.ones(2, 2), flow.ones(2, 3), {{0}, {1}}) end},
        {"tensordot: x_axes names axis 0 twice", function() flow.tensordot(flow.ones(2, 2), flow.ones(2, 2), {{0, -2}, {0, 1}}) end},
        {"linalg.matrix_norm: ord must be \"fro\", \"nuc\", 1, -1, 2, -2, math.huge or -math.huge, got 3", function() linalg.matrix_norm(flow.ones(2, 2), 3) end},
        {"linalg.matrix_norm: axis must be a list of two axes", function() linalg.matrix_norm(flow.ones(2, 2), 2, {1}) end},
        {"linalg.norm: with ord x must have one or two axes, got [2, 2, 2]", function() linalg.norm(flow.ones(2, 2, 2), 1) end},
        {"linalg.multi_dot: entry 2 must be a tensor, got nil", function() linalg.multi_dot {flow.ones(2, 2), nil, flow.ones(2, 2)} end},
        {"linalg.multi_dot: entries 1 and 2 do not fit: [2, 3] and [2, 3]", function() linalg.multi_dot {flow.ones(2, 3), flow.ones(2, 3)} end},
        {"linalg.matrix_power: takes square matrices [..., n, n], A is [2, 3]", function() linalg.matrix_power(flow.ones(2, 3), 2) end},
        {"trace: takes a function and its specs: flow.trace(f, {flow.spec({64, 784})}); the sum of a diagonal is x:trace()",
            function() flow.trace(flow.ones(2, 2)) end},
    }
    for _, case in ipairs(bad) do
        it("says: " .. case[1], function() assert.are.equal(case[1], message_of(case[2])) end)
    end

    it("says of qr that there is no gradient", function()
        local x = flow.randn(3, 2):requires_grad_()
        local _, r = linalg.qr(x, "r")
        assert.are.equal("linalg.qr: its gradient needs Q, which mode \"r\" does not compute", message_of(function() r:sum():backward() end))
        local q = linalg.qr(x, "complete")
        assert.are.equal("linalg.qr: mode \"complete\" has no gradient for more rows than columns; write mode = \"reduced\"",
            message_of(function() q:sum():backward() end))
    end)

    it("has results in place of errors where they are asked for", function()
        local inverse, pivot = linalg.inv_ex(flow.ones(2, 2))
        assert.is_true(inverse:isnan():all():item())
        assert.are.equal(2, pivot:item())
        assert.are.equal(1, select(2, linalg.cholesky_ex(-flow.eye(2))):item())
    end)

    it("says what LU factors are wrong", function()
        for want, f in pairs {
            ["linalg.lu_factor: a matrix is singular: pivot 2 of its LU factors is 0"] = function() linalg.lu_factor(flow.ones(2, 2)) end,
            ["linalg.lu: rows are always exchanged; pivot = false is not there"] = function() linalg.lu(flow.eye(2), false) end,
            ["linalg.lu_factor_ex: rows are always exchanged; pivot = false is not there"] = function() linalg.lu_factor_ex(flow.eye(2), false) end,
            ["linalg.lu: linalg.lu_factor: takes matrices [..., m, n], A is float32[2]"] = function() linalg.lu(flow.ones(2)) end,
            ["linalg.lu_solve: pivots must be int32[2], got int64[2]"] = function()
                linalg.lu_solve(flow.eye(2), flow.tensor {1, 2}, flow.eye(2))
            end,
            ["lu_unpack: pivots must be rows from 1 to 2, got 3"] = function()
                flow.lu_unpack(flow.eye(2), flow.tensor({1, 3}, {dtype = "int32"}))
            end,
            ["orgqr: A must have at least as many rows as columns, got [2, 3]"] = function()
                flow.orgqr(flow.ones(2, 3), flow.ones(2))
            end,
            ["linalg.householder_product: A must have at least as many rows as columns, got [2, 3]"] = function()
                linalg.householder_product(flow.ones(2, 3), flow.ones(2))
            end,
            ["linalg.tensorinv: the first 5 axes and the others must have one product, got [2, 2]"] = function()
                linalg.tensorinv(flow.ones(2, 2), 5)
            end,
            ["linalg.tensorinv: the first 1 axes and the others must have one product, got [2, 3]"] = function()
                linalg.tensorinv(flow.ones(2, 3), 1)
            end,
            ["linalg.tensorsolve: A [2, 3] does not fit B [2]"] = function() linalg.tensorsolve(flow.ones(2, 3), flow.ones(2)) end,
            ["svd_lowrank: q must be at most the smaller side of A [2, 3], got 6"] = function() flow.svd_lowrank(flow.ones(2, 3)) end,
            ["linalg.polar: A must have at least as many rows as columns, got [2, 3]"] = function() linalg.polar(flow.ones(2, 3)) end,
        } do assert.are.equal(want, message_of(f)) end
        local LU, _, info = linalg.lu_factor_ex(flow.ones(2, 2))
        assert.are.equal("2 0.0", ("%d %.1f"):format(info:item(), LU[{1, 1}]:item()))
    end)

    it("says what packed factors are wrong", function()
        local one, ldl_solve = flow.eye(2), linalg.ldl_solve
        local leaf = flow.eye(9):requires_grad_()
        for want, f in pairs {
            ["linalg.ldl_factor: takes square matrices [..., n, n], A is float32[2, 3]"] = function() linalg.ldl_factor(flow.ones(2, 3)) end,
            ["linalg.ldl_factor: a matrix is singular: block 1 of D is 0"] = function() linalg.ldl_factor(flow.zeros(2, 2)) end,
            ["linalg.ldl_factor: has no gradient in A; write A:detach(), or linalg.solve(A, B)"] = function() linalg.ldl_factor(leaf) end,
            ["linalg.ldl_factor_ex: has no gradient in A; write A:detach(), or linalg.solve(A, B)"] = function() linalg.ldl_factor_ex(leaf) end,
            ["linalg.ldl_solve: has no gradient in LD; write LD:detach(), or linalg.solve(A, B)"] = function()
                ldl_solve(leaf, flow.arange(1, 10), leaf)
            end,
            ["linalg.ldl_solve: LD and B must have one dtype and pivots be integers, they are float32, float32 and bool"] = function()
                ldl_solve(one, flow.tensor {true, true}, one)
            end,
            ["linalg.ldl_solve: the matrix has pivots that linalg.ldl_factor does not give (entry 2)"] = function()
                ldl_solve(one, flow.tensor {1, -2}, one)
            end,
            ["linalg.ldl_solve: matrix 1 of the batch has pivots that linalg.ldl_factor does not give (entry 1)"] = function()
                ldl_solve(one, flow.tensor {{1, 2}, {3, 2}}, one)
            end,
            ["linalg.ldl_solve: LD [2, 2], pivots [2] and B [3, 1] do not fit"] = function() ldl_solve(one, flow.tensor {1, 2}, flow.ones(3, 1)) end,
            ["linalg.ldl_solve: LD and B must have one dtype and pivots be integers, they are float32, float32 and float32"] = function()
                ldl_solve(one, flow.ones(2), one)
            end,
            ["linalg.ldl_solve: LD and B must be matrices and pivots vectors, got [2, 2], [2] and [2]"] = function()
                ldl_solve(one, flow.tensor {1, 2}, flow.ones(2))
            end,
            ["geqrf: has no gradient in A; write A:detach(), or linalg.qr(A)"] = function() flow.geqrf(leaf) end,
            ["geqrf: takes matrices [..., m, n], A is float32[2]"] = function() flow.geqrf(flow.ones(2)) end,
            ["ormqr: reflections [3, 2] with tau [2] do not fit a matrix [2, 2]"] = function() flow.ormqr(flow.ones(3, 2), flow.ones(2), one) end,
            ["lobpcg: A must have at least 3 * 4 rows, got 9; linalg.eigh gives all eigenvalues"] = function() flow.lobpcg(leaf, 4) end,
            ["lobpcg: n = 1 vectors are fewer than the 2 wanted"] = function() flow.lobpcg(leaf, 2, {n = 1}) end,
            ["lobpcg: B must be float32[9, 9], got float32[2, 2]"] = function() flow.lobpcg(leaf, 2, {B = one}) end,
            ["lobpcg: A must be square matrices of float32 or float64, got float32[2, 3]"] = function() flow.lobpcg(flow.ones(2, 3)) end,
        } do assert.are.equal(want, message_of(f)) end
    end)

    it("says which package is missing", function()
        local log = process.output(("FLOW_LAPACK=/no/lapack.so %s -e 'print(pcall(flow.det, flow.eye(2)))' 2>&1"):format(process.flowlua))
        assert.is_truthy(log:find("linalg.det: there is no LAPACK (/no/lapack.so); install the package libopenblas0-pthread", 1, true), log)
    end)

    it("leaves the threads alone", function()
        local code = "flow.linalg.inv(flow.eye(300)) local n " ..
            "for l in io.lines \"/proc/self/status\" do n = tonumber(l:match \"^Threads:%s*(%d+)\") or n end print(n)"
        local log = process.output(("FLOW_THREADS=1 %s -e '%s' 2>&1"):format(process.flowlua, code))
        assert.are.equal("1\n", log)
    end)
end)
