"""cases_reductions.py -- reductions, scans and what is picked out of sorted lines, beside PyTorch."""
import math

import torch
from peer import Case

cases = []
BOTH = (torch.float64, torch.float32)
FLOATS = BOTH + (torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int8, torch.uint8)
nan, inf = math.nan, math.inf


def general(*shapes):
    return lambda random, dtype: [torch.randn(shape, generator=random, dtype=torch.float64).to(dtype) for shape in shapes]


def whole(low, high, *shapes):
    return lambda random, dtype: [torch.randint(low, high, shape, generator=random).to(dtype) for shape in shapes]


def constant(*values):
    return lambda random, dtype: [torch.tensor(v, dtype=torch.float64).to(dtype) for v in values]


def holes(*shapes):
    """Random numbers, some of them NaN."""
    def make(random, dtype):
        list_ = [torch.randn(shape, generator=random, dtype=torch.float64) for shape in shapes]
        return [torch.where(torch.rand(x.shape, generator=random) < 0.3, nan, x).to(dtype) for x in list_]
    return make


def add(name, lua, function, *inputs, **options):
    for number, make in enumerate(inputs):
        cases.append(Case(f"{name}:{number}", lua if lua.startswith("local") else "return " + lua, function, make, **options))


tables = [general((3, 5)), general((2, 3, 4)), general((1, 4))]

# scans
for name in ("cumprod", "cummax", "cummin", "logcumsumexp", "cumsum"):
    function = getattr(torch, name)
    for axis in (0, -1):
        add(name, f"a:{name}({axis})", lambda a, f=function, d=axis: f(a, d), *tables, general((4, 0)), general(()),
            general((300,)), tolerance=10)
    add(name + " of 16 bits", f"a:{name}(1)", lambda a, f=function: f(a, 1), general((3, 5)), order=1,
        dtypes=(torch.float16, torch.bfloat16))
    add(name + " at the edges", f"a:{name}(0)", lambda a, f=function: f(a, 0), constant([1.0, inf, 2.0, -inf, 3.0]),
        constant([1.0, 3.0, nan, 5.0, nan]), constant([-inf, -inf, 1.0]), constant([2.0, 2.0, 1.0, 2.0]), order=0)
    if name != "logcumsumexp":
        add(name + " of integers", f"a:{name}(1)", lambda a, f=function: f(a, 1), whole(0, 4, (3, 6)), order=0,
            dtypes=INTEGERS + (torch.bool,))
add("cumprod with zeros", "a:cumprod(0)", lambda a: a.cumprod(0), constant([2.0, 0.0, 3.0, 4.0]), constant([2.0, 0.0, 3.0, 0.0, 5.0]))
add("cumprod dtype", "a:cumprod(0, {dtype = 'float64'})", lambda a: a.cumprod(0, dtype=torch.float64), general((3, 4)),
    whole(0, 4, (3, 4)))
add("cumsum dtype", "a:cumsum(0, {dtype = 'float64'}), a:cumsum(1, {dtype = 'int32'})",
    lambda a: (a.cumsum(0, dtype=torch.float64), a.cumsum(1, dtype=torch.int32)), whole(0, 4, (3, 4)), order=0,
    dtypes=BOTH + INTEGERS)
for name in ("sum", "prod", "mean", "nansum"):
    function = getattr(torch, name)
    add(name + " dtype", f"a:{name}(1, {{dtype = 'float64'}}), a:{name}({{dtype = 'float32'}})",
        lambda a, f=function: (f(a, 1, dtype=torch.float64), f(a, dtype=torch.float32)), whole(1, 4, (3, 4)),
        order=0, dtypes=FLOATS + INTEGERS)

# without NaN
for name in ("nansum", "nanmean"):
    function = getattr(torch, name)
    add(name, f"a:{name}()", function, general((3, 4)), holes((3, 4)))
    add(name + " of nothing else", f"a:{name}()", function, constant([nan, nan]), order=0)
    add(name + " over axes", f"a:{name}({{0, 2}}, true), a:{name}(1)", lambda a, f=function: (f(a, (0, 2), True), f(a, 1)),
        general((2, 3, 4)), holes((2, 3, 4)))
add("nansum of integers", "a:nansum(0)", lambda a: a.nansum(0), whole(0, 9, (3, 4)), order=0, dtypes=INTEGERS)
add("count_nonzero", "a:count_nonzero(), a:count_nonzero(1), a:count_nonzero({0, 1})",
    lambda a: (torch.count_nonzero(a), torch.count_nonzero(a, 1), torch.count_nonzero(a, (0, 1))), whole(0, 3, (3, 4)),
    order=0, dtypes=BOTH + INTEGERS + (torch.bool,))
add("aminmax", "a:aminmax()", lambda a: tuple(torch.aminmax(a)), *tables)
add("aminmax of NaN", "a:aminmax()", lambda a: tuple(torch.aminmax(a)), constant([1.0, nan]), order=0)
add("aminmax of an axis", "a:aminmax(0, true)", lambda a: tuple(torch.aminmax(a, dim=0, keepdim=True)), *tables)
for name in ("var_mean", "std_mean"):
    function = getattr(torch, name)
    add(name, f"a:{name}()", function, *tables)
    add(name + " of axes", f"a:{name}({{0, 1}}, 0, true)", lambda a, f=function: f(a, (0, 1), correction=0, keepdim=True), *tables)
add("std", "a:std(), a:std(1), a:std({0, 1}, 2)", lambda a: (a.std(), a.std(1), a.std((0, 1), correction=2)), *tables)
add("logsumexp of a list", "a:logsumexp({0, 1})", lambda a: a.logsumexp((0, 1)), *tables)
add("amax of a list", "a:amax({0, 1}), a:amin({0, 1}, true)", lambda a: (a.amax((0, 1)), a.amin((0, 1), True)), *tables)
add("msort", "a:msort()", torch.msort, *tables, order=1)
add("argsort", "a:argsort(0, false, true), a:argsort({stable = true, descending = true})",
    lambda a: (a.argsort(dim=0, stable=True), a.argsort(descending=True, stable=True)), whole(0, 3, (5, 7)), order=0)
add("renorm", "a:renorm(2, 0, 1), a:renorm(1, -1, 2)", lambda a: (a.renorm(2, 0, 1), a.renorm(1, -1, 2)), *tables)

# differences and integrals
for n in (1, 2, 3):
    add("diff", f"a:diff({n}, 0), a:diff({n})", lambda a, n=n: (a.diff(n, 0), a.diff(n)), *tables)
add("diff with ends", "a:diff(1, 1, b, c)", lambda a, b, c: a.diff(1, 1, b, c), general((3, 4), (3, 1), (3, 2)))
add("diff of integers", "a:diff()", lambda a: a.diff(), whole(0, 9, (3, 4)), whole(0, 9, (3, 1)), order=0, dtypes=INTEGERS)
add("diff of bools", "a:diff()", lambda a: a.diff(), whole(0, 2, (3, 4)), order=0, dtypes=(torch.bool,))
add("diff of a number", "a:diff()", lambda a: a.diff(), general(()))
for name in ("trapezoid", "cumulative_trapezoid"):
    function = getattr(torch, name)
    add(name, f"a:{name}()", function, *tables, general((1,)))
    add(name + " dx", f"a:{name}({{dx = 0.5, axis = 0}})", lambda a, f=function: f(a, dx=0.5, dim=0), *tables)
    add(name + " x", f"a:{name}(b)", lambda a, b, f=function: f(a, b), general((3, 5), (5,)), general((3, 5), (3, 5)))
    add(name + " x of another axis", f"a:{name}(b, {{axis = 0}})", lambda a, b, f=function: f(a, b, dim=0), general((3, 5), (3,)))
add("cov", "a:cov(), a:cov(0)", lambda a: (a.cov(), a.cov(correction=0)), general((3, 6)), general((6,)), general(()))
add("cov with weights", "a:cov(1, b:abs():ceil():to('int64'))", lambda a, b: a.cov(fweights=b.abs().ceil().long()),
    general((3, 6), (6,)))
add("cov with two weights", "a:cov(1, b:abs():ceil():to('int64'), b:abs())",
    lambda a, b: a.cov(fweights=b.abs().ceil().long(), aweights=b.abs()), general((3, 6), (6,)))
add("corrcoef", "a:corrcoef()", torch.corrcoef, general((3, 6)), general((6,)), tolerance=10)

# order
ordered = [general((3, 5)), general((2, 4, 3)), general((7,)), general((1, 6))]
add("median", "a:median()", lambda a: a.median(), *ordered, constant([1.0, nan, 3.0]))
add("median of axis 0", "a:median(0)", lambda a: a.median(0), *ordered, general(()))
add("median of the last axis", "a:median(-1, true)", lambda a: a.median(-1, True), *ordered, holes((4, 5)))
add("nanmedian", "a:nanmedian()", lambda a: a.nanmedian(), *ordered, holes((3, 5)))
add("nanmedian of an axis", "(a:nanmedian(1))", lambda a: a.nanmedian(1)[0], general((3, 5)), holes((4, 5)))
add("median of integers", "a:median()", lambda a: a.median(), whole(0, 100, (9,)), order=0, dtypes=INTEGERS)
for k in (1, 3):
    add("kthvalue", f"a:kthvalue({k})", lambda a, k=k: a.kthvalue(k), *ordered)
    add("kthvalue of axis 0", f"a:kthvalue({k}, 0, true)", lambda a, k=k: a.kthvalue(k, 0, True), general((3, 5)), general((4, 2)))
add("kthvalue out of range", "a:kthvalue(9)", lambda a: a.kthvalue(9), general((3, 5)))
add("mode", "(a:mode())", lambda a: a.mode()[0], whole(0, 3, (5, 9)), whole(0, 2, (4, 1)), general((3, 4)), order=0, dtypes=BOTH + INTEGERS[:2])
add("mode of axis 0", "(a:mode(0, true))", lambda a: a.mode(0, True)[0], whole(0, 3, (9, 5)), order=0)
for how in ("linear", "lower", "higher", "midpoint", "nearest"):
    for name in ("quantile", "nanquantile"):
        function = getattr(torch, name)
        add(f"{name} {how}", f"a:{name}(0.3, {{interpolation = '{how}'}}), a:{name}(0.75, 1, true, '{how}')",
            lambda a, f=function, h=how: (f(a, 0.3, interpolation=h), f(a, 0.75, 1, True, interpolation=h)), general((3, 5)))
        add(f"{name} {how} of NaN", f"a:{name}(0.75, 1, true, '{how}')",
            lambda a, f=function, h=how: f(a, 0.75, 1, True, interpolation=h), holes((4, 6)), order=0)
        add(f"{name} {how} of a list", f"a:{name}(b:sigmoid(), 0, true, '{how}')",
            lambda a, b, f=function, h=how: f(a, b.sigmoid(), 0, True, interpolation=h), general((6, 3), (4,)), order=1)
add("quantile of a list", "a:quantile(b:sigmoid()), a:quantile(b:sigmoid(), -1)",
    lambda a, b: (a.quantile(b.sigmoid()), a.quantile(b.sigmoid(), -1)), general((2, 3, 4), (5,)), general((3, 4), ()), order=1)
add("quantile outside", "a:quantile(1.5)", lambda a: a.quantile(1.5), general((4,)))
