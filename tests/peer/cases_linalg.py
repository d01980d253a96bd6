"""cases_linalg.py -- flow.linalg and the products beside torch.linalg."""
import torch
from peer import Case

L = torch.linalg
cases = []


def general(*shapes):
    """Random matrices."""
    return lambda random, dtype: [torch.randn(shape, generator=random, dtype=torch.float64).to(dtype) for shape in shapes]


def spread(*shapes):
    """Far from singular: random, with 2, 4, 6 and so on added to the diagonal."""
    def make(random, dtype):
        list_ = [torch.randn(shape, generator=random, dtype=torch.float64) for shape in shapes]
        for x in list_:
            if x.ndim >= 2:
                k = min(x.shape[-2:])
                x.diagonal(0, -2, -1).add_(torch.arange(2, 2 * k + 2, 2, dtype=torch.float64))
        return [x.to(dtype) for x in list_]
    return make


def positive(shape, *others):
    def make(random, dtype):
        x = torch.randn(shape, generator=random, dtype=torch.float64)
        x = x @ x.mT + torch.diag_embed(torch.arange(1, shape[-1] + 1, dtype=torch.float64).expand(shape[:-1]))
        return [x.to(dtype)] + [torch.randn(s, generator=random, dtype=torch.float64).to(dtype) for s in others]
    return make


def real_values(shape):
    """Real eigenvalues 1, 2, ... of V diag V^-1."""
    def make(random, dtype):
        v = torch.randn(shape, generator=random, dtype=torch.float64) + 3 * torch.eye(shape[-1], dtype=torch.float64)
        return [(v @ torch.diag(torch.arange(1.0, shape[-1] + 1, dtype=torch.float64)) @ v.inverse()).to(dtype)]
    return make


def constant(*values):
    return lambda random, dtype: [torch.tensor(v).to(dtype) for v in values]


def integers(*shapes):
    return lambda random, dtype: [torch.randint(-5, 6, shape, generator=random).to(dtype) for shape in shapes]


def add(name, lua, function, *inputs, **options):
    for number, make in enumerate(inputs):
        cases.append(Case(f"{name}:{number}", "return " + lua if not lua.startswith("local") else lua, function, make,
                          **options))


square = [spread((3, 3)), spread((2, 4, 4)), spread((2, 2, 3, 3)), spread((1, 1))]
nothing = [general((0, 0)), general((0, 3, 3)), general((2, 0, 0))]
wrong = [general((3,)), general((2, 3)), general(())]
any_shape = [general((3, 3)), general((2, 4, 3)), general((2, 3, 5)), general((1, 1)), general((2, 0, 3)), general((3, 0))]

# determinants, inverses
singular = constant([[1.0, 2.0], [2.0, 4.0]])
add("det", "flow.linalg.det(a)", L.det, *square, *nothing, *wrong)
add("det of a singular matrix", "a:det()", torch.det, singular, order=0)  # the gradient: PyTorch gives 0, not the cofactors
add("slogdet", "flow.linalg.slogdet(a)", L.slogdet, *square, *nothing, *wrong)
add("slogdet of a singular matrix", "flow.linalg.slogdet(a)", L.slogdet, singular, order=0)
add("logdet", "a:logdet()", torch.logdet, positive((3, 3)), positive((2, 2, 2)), constant([[1.0, 0.0], [0.0, -1.0]]))
add("inv", "flow.linalg.inv(a)", L.inv, *square, *nothing, *wrong, singular)
add("inverse", "a:inverse()", torch.inverse, *square)
add("inv_ex", "(flow.linalg.inv_ex(a))", lambda a: L.inv_ex(a)[0], *square)
add("solve", "flow.linalg.solve(a, b)", L.solve, spread((3, 3), (3, 2)), spread((3, 3), (3,)), spread((2, 3, 3), (2, 3)),
    spread((2, 3, 3), (3, 1)), spread((4, 1, 3, 3), (2, 3, 2)), spread((0, 3, 3), (0, 3, 2)), general((3, 3), (4, 2)),
    general((2, 3), (2, 2)), spread((3, 3), (3, 0)), lambda r, d: singular(r, d) + general((2, 1))(r, d))
add("solve left=False", "flow.linalg.solve(a, b, {left = false})", lambda a, b: L.solve(a, b, left=False),
    spread((3, 3), (2, 3)), spread((2, 3, 3), (1, 4, 3)), general((3, 3), (3,)))

# triangles
add("cholesky", "flow.linalg.cholesky(a)", L.cholesky, positive((3, 3)), positive((2, 4, 4)), *nothing, *wrong,
    constant([[1.0, 0.0], [0.0, -1.0]]))
add("cholesky upper", "flow.linalg.cholesky(a, {upper = true})", lambda a: L.cholesky(a, upper=True), positive((3, 3)),
    positive((2, 4, 4)))
add("cholesky of one half", "flow.linalg.cholesky(a)", L.cholesky, constant([[4.0, 9.0], [1.0, 3.0]]), order=0)
add("cholesky of the upper half", "a:cholesky(true)", lambda a: L.cholesky(a, upper=True),
    constant([[4.0, 1.0], [9.0, 30.0]]), order=0)
add("cholesky_ex", "(flow.linalg.cholesky_ex(a))", lambda a: L.cholesky_ex(a)[0], positive((2, 3, 3)))
for upper in (False, True):
    text = str(upper).lower()
    for left in (False, True):
        for unit in (False, True):
            add("solve_triangular", f"flow.linalg.solve_triangular(a, b, {{upper = {text}, left = {str(left).lower()}, "
                f"unitriangular = {str(unit).lower()}}})",
                lambda a, b, u=upper, l=left, n=unit: L.solve_triangular(a, b, upper=u, left=l, unitriangular=n),
                spread((3, 3), (3, 3)), spread((2, 3, 3), (3, 3)), general((3, 3), (2, 2)))
    add("triangular_solve", f"a:triangular_solve(b, {text})", lambda a, b, u=upper: torch.triangular_solve(a, b, u),
        spread((3, 2), (3, 3)), spread((2, 3, 2), (3, 3)), order=1)
    add("triangular_solve transposed", f"(a:triangular_solve(b, {text}, true))",
        lambda a, b, u=upper: torch.triangular_solve(a, b, u, True)[0], spread((3, 2), (3, 3)), order=1)
    half = (lambda a: a.triu()) if upper else (lambda a: a.tril())
    add("cholesky_solve", f"a:cholesky_solve(b:{'triu' if upper else 'tril'}(), {text})",
        lambda a, b, u=upper, h=half: torch.cholesky_solve(a, h(b), u), spread((3, 2), (3, 3)), spread((2, 3, 2), (2, 3, 3)))
    add("cholesky_inverse", f"a:{'triu' if upper else 'tril'}():cholesky_inverse({text})",
        lambda a, u=upper, h=half: torch.cholesky_inverse(h(a), u), spread((3, 3)), spread((2, 3, 3)))

# qr, svd: vectors up to their signs
qr_signs = "local q, r = {} return q:abs(), r:abs()"
add("qr", qr_signs.format("flow.linalg.qr(a)"), lambda a: [x.abs() for x in L.qr(a)], *any_shape, general((3,)))
add("qr complete", qr_signs.format("flow.linalg.qr(a, 'complete')"), lambda a: [x.abs() for x in L.qr(a, mode="complete")],
    general((3, 3)), general((2, 3, 4)))
add("qr complete, tall", qr_signs.format("flow.linalg.qr(a, 'complete')"),
    lambda a: [x.abs() for x in L.qr(a, mode="complete")], general((4, 2)), general((3, 0)), order=0)
add("qr r", "local q, r = flow.linalg.qr(a, 'r') return q, r:abs()", lambda a: [x.abs() for x in L.qr(a, mode="r")],
    *any_shape, order=0)
svd_signs = "local u, s, v = {} return u:abs(), s, v:abs()"
add("svd", svd_signs.format("flow.linalg.svd(a, false)"), lambda a: [x.abs() for x in L.svd(a, full_matrices=False)],
    *any_shape, general((3,)), tolerance=10)
add("svd full", svd_signs.format("flow.linalg.svd(a)"), lambda a: [x.abs() for x in L.svd(a)], general((3, 3)),
    general((2, 2, 2)), tolerance=10)
add("svd full, wide", "local u, s, v = flow.linalg.svd(a) return u:abs(), s, v:narrow(-2, 0, 2):abs()",
    lambda a: [x.abs() for x in (lambda u, s, v: (u, s, v[..., :2, :]))(*L.svd(a))], general((2, 4)), tolerance=10)
add("svd of nothing", "flow.linalg.svd(a)", L.svd, general((2, 0)), general((0, 3)), order=0)
add("torch.svd", "local u, s, v = a:svd() return u:abs(), s, v:abs()", lambda a: [x.abs() for x in torch.svd(a)],
    general((4, 3)), tolerance=10)
add("svdvals", "flow.linalg.svdvals(a)", L.svdvals, *any_shape)
add("svd of NaN", "flow.linalg.svd(a)", L.svd, constant([[float("nan"), 1.0], [1.0, 2.0]]), order=0)

# eigenvalues
for uplo in "LU":
    add("eigh", f"local l, v = flow.linalg.eigh(a, '{uplo}') return l, v:abs()",
        lambda a, u=uplo: (lambda l, v: (l, v.abs()))(*L.eigh(a, UPLO=u)), positive((3, 3)), positive((2, 4, 4)), *nothing,
        *wrong, tolerance=10)
    add("eigvalsh", f"flow.linalg.eigvalsh(a, '{uplo}')", lambda a, u=uplo: L.eigvalsh(a, UPLO=u), positive((3, 3)),
        positive((2, 4, 4)), *nothing, tolerance=10)
    add("eigh of one half", f"(flow.linalg.eigh(a, '{uplo}'))", lambda a, u=uplo: L.eigh(a, UPLO=u)[0], general((3, 3)))
by_value = "local l, v = flow.linalg.eig(a) local s, i = l:sort() return s, v:abs():index_select(1, i)"
add("eig", by_value, lambda a: (lambda l, v: (l.real.sort()[0], v.real.abs()[:, l.real.argsort()]))(*L.eig(a)),
    real_values((3, 3)), real_values((4, 4)), tolerance=100)
add("eigvals", "(flow.linalg.eigvals(a):sort())", lambda a: L.eigvals(a).real.sort()[0], real_values((3, 3)),
    real_values((5, 5)), tolerance=100)

# least squares
for driver in ("gels", "gelsy", "gelsd", "gelss"):
    add("lstsq " + driver, f"local x, r, k, s = flow.linalg.lstsq(a, b, {{driver = '{driver}'}}) return x, r, k, s:detach()",
        lambda a, b, d=driver: L.lstsq(a, b, driver=d), general((4, 2), (4, 3)), general((2, 4), (2, 1)),
        general((2, 4, 2), (2, 4)), general((3, 3), (3, 2)), order=1, tolerance=10)
    add("lstsq twice " + driver, f"(flow.linalg.lstsq(a, b, {{driver = '{driver}'}}))",
        lambda a, b, d=driver: L.lstsq(a, b, driver=d).solution, spread((4, 2), (4, 3)), spread((2, 3), (2, 1)),
        tolerance=10)
add("pinv", "flow.linalg.pinv(a)", L.pinv, *any_shape, constant([[1.0, 1.0], [1.0, 1.0]]), general((3,)), tolerance=10)
add("pinv atol", "flow.linalg.pinv(a, 1.0)", lambda a: L.pinv(a, atol=1.0), general((2, 4, 3)), order=1, tolerance=10)
add("pinv rtol", "flow.linalg.pinv(a, {rtol = 0.5})", lambda a: L.pinv(a, rtol=0.5), general((4, 3)), order=0)
add("pinv hermitian", "flow.linalg.pinv(a, {hermitian = true})", lambda a: L.pinv(a, hermitian=True), positive((3, 3)),
    positive((2, 2, 2)), order=0)
add("matrix_rank", "flow.linalg.matrix_rank(a)", L.matrix_rank, *any_shape, constant([[1.0, 1.0], [1.0, 1.0]]), order=0)
add("matrix_rank hermitian", "flow.linalg.matrix_rank(a, {hermitian = true})",
    lambda a: L.matrix_rank(a, hermitian=True), positive((3, 3)), constant([[1.0, 1.0], [1.0, 1.0]]), order=0)
add("matrix_rank atol", "flow.linalg.matrix_rank(a, {atol = 1, rtol = 0.3})",
    lambda a: L.matrix_rank(a, atol=1, rtol=0.3), general((2, 4, 4)), order=0)

# functions of matrices
for scale in (1e-3, 0.05, 0.3, 1.0, 5.0, 0.0):
    add("matrix_exp", f"flow.linalg.matrix_exp(a * {scale})", lambda a, s=scale: torch.matrix_exp(a * s), general((3, 3)),
        general((2, 4, 4)), tolerance=10)
add("matrix_exp of nothing", "a:matrix_exp()", torch.matrix_exp, *nothing, *wrong)
for power in (-2, -1, 0, 1, 2, 3, 7):
    add("matrix_power", f"flow.linalg.matrix_power(a, {power})", lambda a, p=power: L.matrix_power(a, p), spread((3, 3)),
        spread((2, 2, 2)), *wrong, tolerance=10)
add("matrix_power of integers", "a:matrix_power(3)", lambda a: torch.matrix_power(a, 3), integers((3, 3)),
    dtypes=(torch.int64,), order=0)

# products
wide = (torch.float64, torch.float32, torch.int64)


def both(name, lua, function, *shapes, **options):
    add(name, lua, function, *[general(*s) for s in shapes], **options)
    add(name + " of integers", lua, function, *[integers(*s) for s in shapes], dtypes=(torch.int64,), order=0)


both("dot", "a:dot(b)", torch.dot, ((4,), (4,)), ((0,), (0,)), ((3,), (4,)), ((2, 2), (2,)))
both("vdot", "flow.vdot(a, b)", torch.vdot, ((4,), (4,)))
both("mv", "a:mv(b)", torch.mv, ((3, 4), (4,)), ((3, 0), (0,)), ((3, 4), (3,)), ((4,), (4,)))
both("mm", "a:mm(b)", torch.mm, ((3, 4), (4, 2)), ((3, 0), (0, 2)), ((3, 4), (3, 2)), ((2, 3, 4), (4, 2)))
both("bmm", "a:bmm(b)", torch.bmm, ((2, 3, 4), (2, 4, 5)), ((0, 3, 4), (0, 4, 5)), ((2, 3, 4), (1, 4, 5)))
both("outer", "a:outer(b)", torch.outer, ((3,), (4,)), ((0,), (4,)), ((3, 1), (4,)))
both("inner", "a:inner(b)", torch.inner, ((3,), (3,)), ((2, 3), (4, 3)), ((2, 3, 4), (4,)), ((), (2, 3)), ((2, 3), (2, 4)))
both("kron", "a:kron(b)", torch.kron, ((2, 3), (3, 2)), ((2,), (2, 2)), ((2, 1, 2), (3,)), ((), (2,)), ((0, 2), (2, 2)))
both("tensordot 2", "flow.tensordot(a, b)", torch.tensordot, ((2, 3, 4), (3, 4, 5)), ((3, 4), (4, 3)))
both("tensordot 0", "flow.tensordot(a, b, 0)", lambda a, b: torch.tensordot(a, b, 0), ((2, 3), (2,)))
both("tensordot axes", "flow.tensordot(a, b, {{1, 0}, {0, -1}})", lambda a, b: torch.tensordot(a, b, ([1, 0], [0, -1])),
     ((2, 3, 4), (3, 5, 2)), ((2, 3), (3, 2)), ((2, 3), (2, 2)))
both("cross", "flow.cross(a, b)", torch.cross, ((3,), (3,)), ((2, 3), (2, 3)), ((3, 3), (3, 3)), ((2, 2), (2, 2)))
both("linalg.cross", "flow.linalg.cross(a, b)", L.cross, ((3,), (3,)), ((2, 1, 3), (1, 4, 3)), ((3, 2), (3, 2)))
both("linalg.cross 0", "flow.linalg.cross(a, b, 0)", lambda a, b: L.cross(a, b, dim=0), ((3, 2), (3, 2)))
add("vecdot", "flow.linalg.vecdot(a, b)", L.vecdot, general((2, 3), (3,)), general((3,), (3,)), general((2, 0), (2, 0)))
add("vecdot 0", "flow.linalg.vecdot(a, b, 0)", lambda a, b: L.vecdot(a, b, dim=0), general((2, 3), (2, 1)))
both("trace", "a:trace()", torch.trace, ((3, 3),), ((3, 5),), ((4, 2),), ((0, 3),), ((3,),))
both("addmm", "flow.addmm(a, b, c)", torch.addmm, ((3, 2), (3, 4), (4, 2)), ((2,), (3, 4), (4, 2)), ((), (3, 4), (4, 2)))
add("addmm scaled", "flow.addmm(a, b, c, {beta = 0.5, alpha = 2})", lambda a, b, c: torch.addmm(a, b, c, beta=0.5, alpha=2),
    general((3, 2), (3, 4), (4, 2)))
add("addmm beta 0", "flow.addmm(a, b, c, {beta = 0})", lambda a, b, c: torch.addmm(a, b, c, beta=0),
    general((2,), (3, 4), (4, 2)), order=0)
both("addmv", "flow.addmv(a, b, c)", torch.addmv, ((3,), (3, 4), (4,)), ((), (3, 4), (4,)))
both("addr", "flow.addr(a, b, c)", torch.addr, ((3, 2), (3,), (2,)), ((2,), (3,), (2,)))
both("baddbmm", "flow.baddbmm(a, b, c)", torch.baddbmm, ((2, 3, 2), (2, 3, 4), (2, 4, 2)), ((3, 2), (2, 3, 4), (2, 4, 2)))
both("addbmm", "flow.addbmm(a, b, c)", torch.addbmm, ((3, 2), (2, 3, 4), (2, 4, 2)), ((2,), (2, 3, 4), (2, 4, 2)))
both("multi_dot", "flow.linalg.multi_dot {a, b, c}", lambda a, b, c: L.multi_dot([a, b, c]), ((2, 3), (3, 4), (4, 2)),
     ((3,), (3, 4), (4,)))

# distances: PyTorch has no second derivative
for p in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")):
    text = "math.huge" if p == float("inf") else str(p)
    add("cdist", f"flow.cdist(a, b, {text})", lambda a, b, p=p: torch.cdist(a, b, p), general((3, 2), (4, 2)),
        general((2, 3, 4), (5, 4)), general((30, 4), (3, 4)), general((0, 4), (3, 4)), general((2, 3), (2, 4)), order=1)
for mode in ("use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"):
    add("cdist " + mode, f"flow.cdist(a, b, {{compute_mode = '{mode}'}})",
        lambda a, b, m=mode: torch.cdist(a, b, compute_mode=m), general((3, 2), (4, 2)), general((30, 4), (2, 28, 4)),
        constant([[1.0, 2.0]], [[1.0, 2.0], [3.0, 4.0]]), order=1)

# 16 bits and integers: refused, or as PyTorch's
half = (torch.float16, torch.bfloat16)
for name, function in (("inv", L.inv), ("det", L.det), ("cholesky", L.cholesky), ("qr", L.qr), ("svd", L.svd),
                       ("eigh", L.eigh), ("svdvals", L.svdvals), ("pinv", L.pinv), ("slogdet", L.slogdet)):
    add(name + " of other dtypes", f"flow.linalg.{name}(a)", function, spread((3, 3)), order=0,
        dtypes=half + (torch.int64,))
add("mm of 16 bits", "a:mm(b)", torch.mm, general((3, 4), (4, 2)), order=1, dtypes=half)
add("trace of 16 bits", "a:trace()", torch.trace, general((3, 3)), order=1, dtypes=half)
for order in ["'fro'", "'nuc'", 1, -1, 2, -2, "math.huge", "-math.huge"]:
    value = {"'fro'": "fro", "'nuc'": "nuc", "math.huge": float("inf"), "-math.huge": -float("inf")}.get(order, order)
    add(f"matrix_norm {order}", f"flow.linalg.matrix_norm(a, {order})", lambda a, p=value: L.matrix_norm(a, p), spread((3, 4)), spread((2, 3, 3)))
    add(f"cond {order}", f"flow.linalg.cond(a, {order})", lambda a, p=value: L.cond(a, p), spread((3, 3)), spread((2, 3, 3)))
for order in [0.5, 1, 2, 3, "math.huge"]:
    value = float("inf") if order == "math.huge" else order
    add(f"vector_norm {order}", f"flow.linalg.vector_norm(a, {order}, -1, true)", lambda a, p=value: L.vector_norm(a, p, -1, True),
        general((3, 4)), general((5,)))
add("norm", "flow.linalg.norm(a)", L.norm, general((3, 4)), general((2, 3, 4)), general(()))

# LU factors; pivots of float32 may differ where two numbers are as good as equal
both_dtypes = [spread((3, 3)), spread((2, 3, 4, 4)), spread((5, 3)), spread((2, 3, 5)), general((0, 3)), general((3, 0)), general((3,))]
add("lu_factor", "flow.linalg.lu_factor(a)", L.lu_factor, *both_dtypes[:4], general((4, 4)))
add("lu_factor_ex", "flow.linalg.lu_factor_ex(a)", lambda a: tuple(L.lu_factor_ex(a)), *both_dtypes[:4],
    constant([[1.0, 2.0], [2.0, 4.0]]))
add("lu", "flow.linalg.lu(a)", L.lu, *both_dtypes, general((5, 5)))
add("lu of a singular matrix", "flow.linalg.lu(a)", L.lu, constant([[0.0, 0.0], [0.0, 0.0]]), order=0)
add("lu_factor of a singular matrix", "flow.linalg.lu_factor(a)", L.lu_factor, constant([[1.0, 2.0], [2.0, 4.0]]), order=0)
add("torch.lu", "flow.lu(a)", torch.lu, spread((2, 3, 3)), order=1)
for left in ("true", "false"):
    for adjoint in ("true", "false"):
        add(f"lu_solve left {left} adjoint {adjoint}",
            f"(function() local LU, p = flow.linalg.lu_factor(a) return flow.linalg.lu_solve(LU, p, b, {{left = {left}, adjoint = {adjoint}}}) end)()",
            lambda a, b, left=left == "true", adjoint=adjoint == "true":
                L.lu_solve(*L.lu_factor(a), b, left=left, adjoint=adjoint),
            spread((3, 3), (3, 3)), spread((2, 4, 4), (4, 4)))
add("lu_unpack", "flow.lu_unpack(flow.linalg.lu_factor(a))", lambda a: torch.lu_unpack(*L.lu_factor(a)), spread((3, 3)),
    spread((2, 5, 3)), spread((2, 3, 4)))
add("torch.lu_solve", "flow.lu_solve(b, flow.linalg.lu_factor(a))", lambda a, b: torch.lu_solve(b, *L.lu_factor(a)),
    spread((3, 3), (3, 2)))
add("solve_ex", "flow.linalg.solve_ex(a, b)", lambda a, b: tuple(L.solve_ex(a, b)), spread((3, 3), (3, 2)), spread((2, 3, 3), (2, 3)))
add("householder_product", "flow.linalg.householder_product(a, b)", L.householder_product, general((4, 3), (3,)),
    general((2, 3, 3), (2, 2)))
def symmetric(shape, *others):
    """Symmetric matrices, not definite, and others."""
    def make(random, dtype):
        x = torch.randn(shape, generator=random, dtype=torch.float64)
        return [(x + x.mT).to(dtype)] + [torch.randn(s, generator=random, dtype=torch.float64).to(dtype) for s in others]
    return make


add("geqrf", "flow.geqrf(a:detach())", lambda a: tuple(torch.geqrf(a.detach())), *any_shape, general((3,)), order=0)
for left in (True, False):
    for transpose in (True, False):
        add(f"ormqr {left} {transpose}", f"flow.ormqr(a, b, c, {str(left).lower()}, {str(transpose).lower()}), "
            f"a:ormqr(b, c, {{left = {str(left).lower()}, transpose = {str(transpose).lower()}}})",
            lambda a, b, c, l=left, t=transpose: (torch.ormqr(a, b, c, l, t), torch.ormqr(a, b, c, l, t)),
            general((4, 3), (3,), (4, 2) if left else (2, 4)), general((2, 3, 3), (2, 3), (2, 3, 3)), order=1)
add("orgqr", "flow.orgqr(a, b)", torch.orgqr, general((4, 3), (3,)), order=1)
add("ldl_factor", "flow.linalg.ldl_factor(a:detach())", lambda a: tuple(L.ldl_factor(a.detach())), symmetric((3, 3)),
    symmetric((2, 2, 4, 4)), symmetric((1, 1)), general((0, 0)), general((2, 0, 0)), general((2, 3)), general((3, 3)),
    symmetric((150, 150)), constant([[0.0, 1.0], [1.0, 0.0]]), constant([[0.0, 0.0], [0.0, 0.0]]), order=0, tolerance=100)
add("ldl_factor_ex", "flow.linalg.ldl_factor_ex(a:detach(), {hermitian = true})",
    lambda a: tuple(L.ldl_factor_ex(a.detach(), hermitian=True)), symmetric((3, 3)), constant([[0.0, 0.0], [0.0, 0.0]]), order=0)
add("ldl_solve", "(function() local LD, p = flow.linalg.ldl_factor(a:detach()) return flow.linalg.ldl_solve(LD, p, b) end)()",
    lambda a, b: L.ldl_solve(*L.ldl_factor(a.detach()), b.detach()), symmetric((3, 3), (3, 2)), symmetric((2, 4, 4), (4, 1)),
    symmetric((3, 3), (2, 3, 2)), symmetric((0, 0), (0, 2)), symmetric((3, 3), (3,)), order=0, tolerance=100)
for options, keywords in (("{tol = 1e-12}", {}), ("{largest = false, tol = 1e-12}", {"largest": False}), ("{n = 3, tol = 1e-12}", {"n": 3})):
    add(f"lobpcg {options}", f"local e, v = flow.lobpcg(a, 2, {options}) return e, v:abs()",
        lambda a, k=keywords: (lambda e, v: (e, v.abs()))(*torch.lobpcg(a, 2, tol=1e-12, **k)), positive((9, 9)), positive((2, 12, 12)),
        order=0, dtypes=(torch.float64,), tolerance=10)
add("lobpcg of two matrices", "(flow.lobpcg(a, 2, {B = b:matmul(b.mT) + flow.eye(9, {dtype = b.dtype}), tol = 1e-12}))",
    lambda a, b: torch.lobpcg(a, 2, B=b @ b.mT + torch.eye(9, dtype=b.dtype), tol=1e-12)[0], positive((9, 9), (9, 9)),
    order=0, dtypes=(torch.float64,), tolerance=10)
add("lobpcg slope", "local e, v = flow.lobpcg(a, 2, {tol = 1e-12}) return e, v:square()",
    lambda a: (lambda e, v: (e, v.square()))(*torch.lobpcg(a, 2, tol=1e-12)), positive((9, 9)), order=1,
    dtypes=(torch.float64,), tolerance=10)
add("tensorinv", "flow.linalg.tensorinv(a, 1)", lambda a: L.tensorinv(a, 1), spread((6, 2, 3)))
add("tensorinv 2", "flow.linalg.tensorinv(a)", L.tensorinv, general((2, 3, 6)), general((2, 2, 3)))
add("tensorsolve", "flow.linalg.tensorsolve(a, b)", L.tensorsolve, general((2, 3, 6), (2, 3)))
add("tensorsolve axes", "flow.linalg.tensorsolve(a, b, {0, 2})", lambda a, b: L.tensorsolve(a, b, (0, 2)), general((3, 6, 2), (6,)))
add("matrix_sqrth", "flow.linalg.matrix_sqrth(a)", L.matrix_sqrth, positive((3, 3)), positive((2, 4, 4)), tolerance=10)
add("polar", "flow.linalg.polar(a)", L.polar, spread((3, 3)), spread((2, 4, 3)), tolerance=10)
add("svd_lowrank", "(function() local U, S, V = flow.svd_lowrank(a, 3) return S, (U * S):matmul(V.mT) end)()",
    lambda a: (lambda U, S, V: (S, (U * S) @ V.mT))(*torch.svd_lowrank(a, 3)), general((5, 3)), general((3, 4)), order=1, tolerance=10)
add("pca_lowrank", "(select(2, flow.pca_lowrank(a, 3)))", lambda a: torch.pca_lowrank(a, 3)[1], general((6, 3)), order=0)

# groups of matrices
ends = "flow.tensor({2, 3, 8}, {dtype = 'int32'})"
for name, shapes in (("rows", ((8, 16), (3, 16, 32))), ("columns", ((3, 4, 16), (16, 8))), ("sums", ((16, 8), (8, 32)))):
    add(f"grouped_mm {name}", f"flow.nn.functional.grouped_mm(a, b, {{offs = {ends}}})",
        lambda a, b: torch.nn.functional.grouped_mm(a, b, offs=torch.tensor([2, 3, 8], dtype=torch.int32)), general(*shapes),
        order=1, dtypes=(torch.float32,))
add("grouped_mm of groups", "flow.nn.functional.grouped_mm(a, b)", torch.nn.functional.grouped_mm,
    general((3, 4, 16), (3, 16, 8)), order=1, dtypes=(torch.float32,))
