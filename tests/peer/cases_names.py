"""cases_names.py -- special functions and the other names of PyTorch beside it."""
import math

import torch
from peer import Case

cases = []
DOUBLE = (torch.float64,)
nan, inf = math.nan, math.inf
special = torch.special


def general(*shapes, scale=1.0, shift=0.0):
    return lambda random, dtype: [(torch.randn(shape, generator=random, dtype=torch.float64) * scale + shift).to(dtype)
                                  for shape in shapes]


def between(low, high, *shapes):
    return lambda random, dtype: [(torch.rand(shape, generator=random, dtype=torch.float64) * (high - low) + low).to(dtype)
                                  for shape in shapes]


def constant(*values):
    return lambda random, dtype: [torch.tensor(v, dtype=torch.float64).to(dtype) for v in values]


def add(name, lua, function, *inputs, **options):
    for number, make in enumerate(inputs):
        cases.append(Case(f"{name}:{number}", "return " + lua, function, make, **options))


edges = constant([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.5, 10.0, 33.3, -7.25, inf, -inf, nan, 1e-3])
finite = constant([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.5, 10.0, 33.3, -7.25, nan, 1e-3])
sizes = [general((3, 4)), general(()), general((0, 3)), general((40,), scale=12)]

# special functions of one number
for name in ("i0", "i0e", "i1", "i1e", "erfcx", "log_ndtr", "ndtr"):
    smooth = sizes[:3] if name in ("i0", "i1", "erfcx") else sizes
    add(name, f"flow.special.{name}(a)", getattr(special, name), *smooth, tolerance=10)
    add(name + " at the edges", f"flow.special.{name}(a)", getattr(special, name),
        finite if name in ("i0", "i1") else edges, order=0)  # of inf PyTorch's i0 and i1 are NaN
    add(name + " of integers", f"flow.special.{name}(a)", getattr(special, name), constant([0, 1, 2]), order=0,
        dtypes=(torch.int64,))
    if name not in ("erfcx", "log_ndtr"):  # PyTorch has none
        add(name + " of 16 bits", f"flow.special.{name}(a)", getattr(special, name), general((3, 4)), order=1,
            dtypes=(torch.bfloat16,))
add("i1 slope at 0", "flow.special.i1(a)", special.i1, constant([0.0]), order=1)
add("i0 large", "flow.i0(a)", torch.i0, between(-80, 80, (50,)), order=1, dtypes=DOUBLE)
add("ndtri", "flow.special.ndtri(a)", special.ndtri, between(0.01, 0.99, (40,)), tolerance=10)
add("ndtri at the edges", "flow.special.ndtri(a)", special.ndtri,
    constant([0.0, 1.0, 0.5, 1e-3, 0.999, 1e-30, -0.5, 2.0, nan]), order=0)
add("entr", "flow.special.entr(a)", special.entr, between(0.1, 3, (3, 4)), constant([0.5, 1.0]))
add("entr at the edges", "flow.special.entr(a)", special.entr, edges, order=0)
for name, ours in {"airy_ai": 0, "bessel_j0": 0, "bessel_j1": 0, "modified_bessel_i0": 0, "modified_bessel_i1": 0,
                   "spherical_bessel_j0": 0, "bessel_y0": 1, "bessel_y1": 1, "modified_bessel_k0": 1,
                   "modified_bessel_k1": 1, "scaled_modified_bessel_k0": 1, "scaled_modified_bessel_k1": 1}.items():
    add(name, f"flow.special.{name}(a)", getattr(special, name),
        between(0.01, 20, (40,)) if ours else general((40,), scale=6), order=0, dtypes=DOUBLE, tolerance=100)
    add(name + " of float32", f"flow.special.{name}(a)", getattr(special, name), between(0.1, 5, (40,)), order=0,
        dtypes=(torch.float32,), tolerance=10)
for name in ("chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w",
             "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
             "shifted_chebyshev_polynomial_w", "hermite_polynomial_h", "hermite_polynomial_he",
             "laguerre_polynomial_l", "legendre_polynomial_p"):
    for n in (-1, 0, 1, 2, 5):
        add(f"{name} {n}", f"flow.special.{name}(a, {n})", lambda a, f=getattr(special, name), n=n: f(a, n),
            between(0.05, 0.95, (3, 4)), order=0, dtypes=DOUBLE, tolerance=100)

# of two
for name in ("igamma", "igammac"):
    function = getattr(torch, name)
    add(name, f"flow.{name}(a, b)", function, between(0.1, 8, (5, 7), (5, 7)), between(0.5, 3, (2, 1, 4), (3, 1)), order=0,
        tolerance=10)
    add(name + " large", f"flow.{name}(a, b)", function, between(900, 1100, (40,), (40,)), order=0, tolerance=100)
    add(name + " slope", f"flow.{name}(flow.tensor({{0.5, 1, 2.5, 7}}, {{dtype = a.dtype}}), a)",
        lambda a, f=function: f(torch.tensor([0.5, 1, 2.5, 7], dtype=a.dtype), a), between(0.5, 4, (3, 4)), tolerance=10)
    add(name + " at the edges", f"flow.{name}(a, b)", function,
        constant([0.0, 0.0, 1.0, 1.0, inf, inf, -1.0, 1.0, nan, 2.0], [1.0, 0.0, 0.0, inf, 1.0, inf, 1.0, -1.0, 1.0, nan]),
        order=0)
add("gammainc", "flow.special.gammainc(a, b), flow.special.gammaincc(a, b)",
    lambda a, b: (special.gammainc(a, b), special.gammaincc(a, b)), between(0.1, 8, (5,), (5,)), order=0, tolerance=10)
add("zeta", "flow.special.zeta(a, b)", special.zeta, between(1.1, 8, (5, 7), (5, 7)), between(2, 5, (2, 1, 4), (3, 1)),
    order=0, tolerance=10)
add("zeta slope", "flow.special.zeta(2.5, a)", lambda a: special.zeta(2.5, a), between(0.5, 4, (3, 4)), tolerance=10)
add("zeta at the edges", "flow.special.zeta(a, b)", special.zeta,
    constant([1.0, 0.5, 2.0, 3.0, 2.5, 2.0, nan], [2.0, 2.0, -1.0, -1.5, -1.5, -2.5, 1.0]), order=0, dtypes=DOUBLE)
add("xlog1py", "flow.special.xlog1py(a, b)", special.xlog1py, between(0.2, 3, (3, 4), (3, 4)), between(0.2, 3, (2, 1, 4), (3, 1)))
add("xlog1py numbers", "flow.special.xlog1py(2.5, a), flow.special.xlog1py(a, 3)",
    lambda a: (special.xlog1py(2.5, a), special.xlog1py(a, 3)), between(0.2, 3, (3, 4)))
add("xlog1py at 0", "flow.special.xlog1py(a, b)", special.xlog1py, constant([0.0, 0.0, 1.0], [2.0, 0.5, 3.0]), order=1)
add("ldexp", "a:ldexp(b)", torch.ldexp, general((3, 4), (4,)))
add("ldexp of integers", "flow.ldexp(a, flow.tensor{-3, 0, 2, 5})", lambda a: torch.ldexp(a, torch.tensor([-3, 0, 2, 5])),
    general((3, 4)), order=1)
add("multigammaln", "flow.special.multigammaln(a, 3), a:mvlgamma(2)",
    lambda a: (special.multigammaln(a, 3), torch.mvlgamma(a, 2)), between(1.2, 5, (3, 4)), tolerance=10)
add("frexp", "flow.frexp(a)", lambda a: tuple(torch.frexp(a)), general((20,), scale=50), constant([0.0, 1.0, -8.0, 0.3]), order=0)
add("frexp slope", "(flow.frexp(a))", lambda a: torch.frexp(a)[0], general((20,), scale=50), order=1)
add("isposinf", "a:isposinf(), a:isneginf(), a:isreal()", lambda a: (a.isposinf(), a.isneginf(), a.isreal()), edges, order=0)

# second names
for name in ("absolute", "arccos", "arcsin", "arctan", "arcsinh", "arctanh", "fix", "sgn"):
    add(name, f"flow.{name}(a), a:{name}()", lambda a, f=getattr(torch, name): (f(a), f(a)), between(-0.9, 0.9, (3, 4)))
    add(name + "_", f"a:clone():{name}_()", lambda a, n=name: getattr(a.clone(), n + "_")(), between(-0.9, 0.9, (3, 4)))
add("arccosh", "a:arccosh()", torch.arccosh, between(1.1, 5, (3, 4)))
add("arctan2", "a:arctan2(b), a:clone():arctan2_(b)", lambda a, b: (torch.arctan2(a, b), torch.arctan2(a, b)),
    general((3, 4), (3, 4)))
add("trapz", "flow.trapz(a)", torch.trapz, general((3, 4)))
add("clamp_min", "a:clamp_min(0.1), a:clamp_max(0.2), a:clamp_min(b), a:clamp_max(b)",
    lambda a, b: (a.clamp_min(0.1), a.clamp_max(0.2), a.clamp_min(b), a.clamp_max(b)), general((3, 4), (4,)))
add("clamp by tensors", "a:clamp(b, c), a:clamp(b), a:clamp(nil, c), a:clone():clamp_(b, c), flow.clip(a, {min = b, max = c})",
    lambda a, b, c: (a.clamp(b, c), a.clamp(b), a.clamp(None, c), a.clone().clamp_(b, c), torch.clip(a, b, c)),
    general((3, 4), (4,), (3, 1)))
add("clamp at its bounds", "a:clamp(b, c), a:clamp(b), a:clamp(nil, c)",
    lambda a, b, c: (a.clamp(b, c), a.clamp(b), a.clamp(None, c)),
    constant([0.0, 1.0, 2.0, 3.0], [1.0, 1.0, 1.0, 1.0], [2.0, 2.0, 2.0, 2.0]), order=1)
add("clamp_min_", "a:clone():clamp_min_(0.1):clamp_max_(0.5)", lambda a: a.clone().clamp_min_(0.1).clamp_max_(0.5),
    general((3, 4)))
add("in place", "a:clone():tril_(), a:clone():triu_(1), a:clone():cumsum_(0), a:clone():cumprod_(1)",
    lambda a: (a.clone().tril_(), a.clone().triu_(1), a.clone().cumsum_(0), a.clone().cumprod_(1)),
    general((3, 3)), order=1)
add("addmm_", "a:clone():addmm_(b, c), a:clone():addmm_(b, c, {beta = 0.5, alpha = 2})",
    lambda a, b, c: (a.clone().addmm_(b, c), a.clone().addmm_(b, c, beta=0.5, alpha=2)), general((3, 5), (3, 4), (4, 5)))
add("fill_diagonal_", "a:clone():fill_diagonal_(2), a:clone():fill_diagonal_(2, true)",
    lambda a: (a.clone().fill_diagonal_(2), a.clone().fill_diagonal_(2, True)), general((3, 4)), general((7, 2)), general((3, 3)))
add("fill_diagonal_ of 3 axes", "a:clone():fill_diagonal_(2)", lambda a: a.clone().fill_diagonal_(2), general((3, 3, 3)))
add("pinverse", "flow.pinverse(a)", torch.pinverse, general((4, 3)), tolerance=100)
add("chain_matmul", "flow.chain_matmul(a, b, c)", torch.chain_matmul, general((2, 3), (3, 4), (4, 2)))
add("sum_to_size", "a:sum_to_size{3, 1}", lambda a: a.sum_to_size(3, 1), general((2, 3, 4)), general((3, 4)))

# functions
add("dist", "flow.dist(a, b), a:dist(b, 1), a:dist(b, 3)", lambda a, b: (torch.dist(a, b), a.dist(b, 1), a.dist(b, 3)),
    general((3, 4), (3, 4)), general((3, 4), (4,)))
for p in (2, 1, 3.5, 0, inf):
    add(f"pdist {p}", f"flow.nn.functional.pdist(a, {'math.huge' if p == inf else p})",
        lambda a, p=p: torch.nn.functional.pdist(a, p), general((5, 3)), general((2, 4)), general((1, 3)), order=1 if p else 0)
add("logspace", "flow.logspace(0, 3, 7), flow.logspace(-1, 2, 4, 2), flow.logspace(0, 1, 0)",
    lambda a: (torch.logspace(0, 3, 7), torch.logspace(-1, 2, 4, 2), torch.logspace(0, 1, 0)), general((1,)), order=0,
    tolerance=10)
add("vander", "flow.vander(a), flow.vander(a, 2), flow.vander(a, 4, true), flow.linalg.vander(a)",
    lambda a: (torch.vander(a), torch.vander(a, 2), torch.vander(a, 4, True), torch.linalg.vander(a)), general((5,)))
add("unravel_index", "flow.unravel_index(flow.tensor{{5, 3}, {0, 11}}, {3, 4})",
    lambda a: torch.unravel_index(torch.tensor([[5, 3], [0, 11]]), (3, 4)), general((1,)), order=0)
add("nonzero", "flow.nonzero(a:gt(0), {as_tuple = true})", lambda a: torch.nonzero(a > 0, as_tuple=True), general((3, 4)),
    general(()), general((0, 3)), order=0)
add("nonzero rows", "a:gt(0):nonzero(), a:gt(0):nonzero{as_tuple = false}", lambda a: ((a > 0).nonzero(), (a > 0).nonzero()),
    general((3, 4)), order=0)
for options, keywords in (("{range = {-1, 2}}", {"range": (-1, 2)}), ("{density = true}", {"density": True}), ("{}", {})):
    add("histogram " + options, f"flow.histogram(a, 5, {options})", lambda a, k=keywords: tuple(torch.histogram(a, 5, **k)),
        general((30,)), general((4, 5)), constant([1.0, 1.0]), order=0)
add("histogram of edges", "flow.histogram(a, flow.tensor({-1, 0, 0.5, 2}, {dtype = a.dtype}), {weight = b})",
    lambda a, b: tuple(torch.histogram(a, torch.tensor([-1, 0, 0.5, 2], dtype=a.dtype), weight=b)),
    between(-2, 3, (30,), (30,)), constant([-1.0, 2.0, 0.5, 3.0], [1.0, 2.0, 3.0, 4.0]), order=0)
for bins, text, options, keywords in (
        (4, "4", "{}", {}), ((2, 3), "{2, 3}", "{density = true}", {"density": True}),
        ((3, 2), "{3, 2}", "{range = {-1, 1, 0, 2}}", {"range": (-1, 1, 0, 2)})):
    add(f"histogramdd {text} {options}",
        f"(function(hist, edges) return hist, table.unpack(edges) end)(flow.histogramdd(a, {text}, {options}))",
        lambda a, b=bins, k=keywords: (lambda r: (r[0], *r[1]))(torch.histogramdd(a, b, **k)), general((30, 2)),
        general((3, 4, 2)), general((3,)), constant([[1.0, 1.0]]), order=0)
add("histogramdd of edges", "(flow.histogramdd(a, {flow.tensor({-1, 0, 2}, {dtype = a.dtype}), "
    "flow.tensor({-2, 0.5, 1}, {dtype = a.dtype})}, {weight = b}))",
    lambda a, b: torch.histogramdd(a, [torch.tensor([-1, 0, 2], dtype=a.dtype), torch.tensor([-2, 0.5, 1], dtype=a.dtype)],
                                   weight=b)[0], between(-2, 3, (30, 2), (30,)), order=0)
for size in (0, 2, 5, 20):
    add(f"nonzero_static {size}", f"a:gt(0):nonzero_static{{size = {size}}}, flow.nonzero_static(a, {{size = {size}, fill_value = 7}})",
        lambda a, n=size: ((a > 0).nonzero_static(size=n), torch.nonzero_static(a, size=n, fill_value=7)),
        general((3, 4)), general((2, 3, 2)), general((5,)), general(()), general((0, 3)), order=0)
for reduce in ("sum", "mean", "max", "min", "prod"):
    for options, keywords in (("", {}), (", initial = 0.5", {"initial": 0.5})):
        add(f"segment_reduce {reduce}{options}",
            f"flow.segment_reduce(a, '{reduce}', {{lengths = flow.tensor {{2, 0, 1, 4}}{options}}}), "
            f"flow.segment_reduce(a, '{reduce}', {{offsets = flow.tensor {{0, 2, 7}}{options}}})",
            lambda a, r=reduce, k=keywords: (torch.segment_reduce(a, r, lengths=torch.tensor([2, 0, 1, 4]), **k),
                                             torch.segment_reduce(a, r, offsets=torch.tensor([0, 2, 7]), **k)),
            general((7,)), general((7, 3)), general((7, 2, 2)), general((6,)), order=1)
        add(f"segment_reduce {reduce}{options} along axis 1",
            f"flow.segment_reduce(a, '{reduce}', {{lengths = flow.tensor {{{{2, 2}}, {{1, 3}}}}, axis = 1{options}}})",
            lambda a, r=reduce, k=keywords: torch.segment_reduce(a, r, lengths=torch.tensor([[2, 2], [1, 3]]), axis=1, **k),
            general((2, 4)), general((2, 4, 3)), order=1)
# of one segment: where the gradient is negative PyTorch gives each of several equal elements all of it
add("segment_reduce of equal elements", "flow.segment_reduce(a, 'max', {lengths = flow.tensor {5}, initial = 2})",
    lambda a: torch.segment_reduce(a, "max", lengths=torch.tensor([5]), initial=2.0), constant([2.0, 2.0, 0.0, 1.0, 2.0]),
    constant([1.0, 1.0, 0.0, 0.0, 0.0]), order=1)
add("segment_reduce of zeros", "flow.segment_reduce(a, 'prod', {lengths = flow.tensor {3, 2}, initial = 3})",
    lambda a: torch.segment_reduce(a, "prod", lengths=torch.tensor([3, 2]), initial=3.0),
    constant([2.0, 0.0, 4.0, 0.0, 0.0]), order=1)
add("segment_reduce of a part", "flow.segment_reduce(a, 'sum', {lengths = flow.tensor {2, 1}, unsafe = true})",
    lambda a: torch.segment_reduce(a, "sum", lengths=torch.tensor([2, 1]), unsafe=True), general((5, 2)), order=1)
add("segment_reduce of 16 bits", "flow.segment_reduce(a, 'max', {lengths = flow.tensor {2, 3}})",
    lambda a: torch.segment_reduce(a, "max", lengths=torch.tensor([2, 3])), general((5, 2)), order=1,
    dtypes=(torch.float16, torch.bfloat16))
add("gradient", "flow.gradient(a)", lambda a: tuple(torch.gradient(a)), general((5,)), general((4, 5)))
add("gradient with spacing", "(flow.gradient(a, {axis = 1})), flow.gradient(a, {spacing = 0.5, edge_order = 2})",
    lambda a: (torch.gradient(a, dim=1)[0], *torch.gradient(a, spacing=0.5, edge_order=2)), general((4, 5)))
add("gradient of coordinates",
    "flow.gradient(a, {spacing = {flow.tensor({0, 1, 3, 3.5}, {dtype = a.dtype}), 2}, edge_order = 2})"
    .replace(", 2}, edge", ", flow.arange(5):to(a.dtype) * 2}, edge"),
    lambda a: tuple(torch.gradient(a, spacing=[torch.tensor([0, 1, 3, 3.5], dtype=a.dtype), torch.arange(5).to(a.dtype) * 2],
                                   edge_order=2)), general((4, 5)))
for reduce in ("prod", "mean", "amax", "amin"):
    for include in (True, False):
        add(f"index_reduce {reduce} {include}",
            f"a:index_reduce(0, flow.tensor{{2, 0, 2}}, b, '{reduce}', {str(include).lower()}), "
            f"a:clone():index_reduce_(0, flow.tensor{{2, 0, 2}}, b, '{reduce}', {str(include).lower()})",
            lambda a, b, r=reduce, i=include: 2 * (a.index_reduce(0, torch.tensor([2, 0, 2]), b, r, include_self=i),),
            general((4, 3), (3, 3)), order=1)

# quantization that is only pretended
for zero, text in ((3, "3"), (torch.tensor([3], dtype=torch.int32), "flow.tensor({3}):int()")):
    scale, of = (0.07, "0.07") if zero == 3 and text == "3" else (torch.tensor([0.07]), "flow.tensor {0.07}")
    add(f"fake_quantize_per_tensor_affine {text}", f"flow.fake_quantize_per_tensor_affine(a, {of}, {text}, -8, 7)",
        lambda a, s=scale, z=zero: torch.fake_quantize_per_tensor_affine(a, s, z, -8, 7), general((30, 4)), general(()),
        general((0, 3)), constant([inf, -inf, nan, 0.0, 1e30]), order=1, dtypes=(torch.float32,), tolerance=1e-3)
for zeros, text in (([1, 0, -2], "flow.tensor({1, 0, -2}):int()"), ([0.5, -1.25, 0.0], "flow.tensor {0.5, -1.25, 0.0}")):
    add(f"fake_quantize_per_channel_affine {zeros}",
        f"flow.fake_quantize_per_channel_affine(a, flow.tensor {{0.1, 0.05, 0.3}}, {text}, 1, -8, 7)",
        lambda a, z=zeros: torch.fake_quantize_per_channel_affine(
            a, torch.tensor([0.1, 0.05, 0.3]), torch.tensor(z, dtype=torch.float32 if 0.5 in z else torch.int32), 1, -8, 7),
        general((20, 3)), general((2, 3, 5)), order=1, dtypes=(torch.float32,), tolerance=1e-3)
