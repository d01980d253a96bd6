"""cases_search.py -- searching sorted lines, distinct elements and histograms beside PyTorch."""
import math

import torch
from peer import Case

cases = []
BOTH = (torch.float64, torch.float32)
INTEGERS = (torch.int64, torch.int32, torch.int8, torch.uint8)
nan, inf = math.nan, math.inf


def general(*shapes):
    return lambda random, dtype: [torch.randn(shape, generator=random, dtype=torch.float64).to(dtype) for shape in shapes]


def whole(low, high, *shapes):
    return lambda random, dtype: [torch.randint(low, high, shape, generator=random).to(dtype) for shape in shapes]


def constant(*values):
    return lambda random, dtype: [torch.tensor(v, dtype=torch.float64).to(dtype) for v in values]


def add(name, lua, function, *inputs, **options):
    for number, make in enumerate(inputs):
        cases.append(Case(f"{name}:{number}", "return " + lua, function, make, order=0, **options))


lines = [general((6,), (3, 4)), general((3, 6), (3, 2)), general((0,), (3,)), whole(0, 5, (2, 8), (2, 5)), general((5,), ())]
for right in (False, True):
    text = str(right).lower()
    add("searchsorted", f"flow.searchsorted((a:sort()), b, {{right = {text}}})",
        lambda a, b, r=right: torch.searchsorted(a.sort()[0], b, right=r), *lines, dtypes=BOTH + INTEGERS[:3])
    add("bucketize", f"b:bucketize((a:sort()), {{right = {text}}})",
        lambda a, b, r=right: torch.bucketize(b, a.sort()[0], right=r), lines[0], lines[2], dtypes=BOTH + INTEGERS[:3])
add("searchsorted side", "flow.searchsorted((a:sort()), b, {side = 'right', out_int32 = true})",
    lambda a, b: torch.searchsorted(a.sort()[0], b, side="right", out_int32=True), whole(0, 4, (6,), (3, 4)))
add("searchsorted sorter", "flow.searchsorted(a, b, {sorter = a:argsort()})",
    lambda a, b: torch.searchsorted(a, b, sorter=a.argsort()), general((6,), (3, 4)), general((3, 6), (3, 2)))
add("searchsorted NaN", "flow.searchsorted(a, b), flow.searchsorted(a, b, false, true)",
    lambda a, b: (torch.searchsorted(a, b), torch.searchsorted(a, b, right=True)), constant([1.0, 2.0, inf, nan], [nan, inf, 2.0, -inf]))
add("searchsorted mixed shapes", "flow.searchsorted(a, b)", torch.searchsorted, general((3, 6), (2, 2)), general((3, 6), (4,)))
for invert in (False, True):
    add("isin", f"flow.isin(a, b, {{invert = {str(invert).lower()}}})", lambda a, b, i=invert: torch.isin(a, b, invert=i),
        whole(0, 9, (3, 4), (5,)), whole(0, 9, (3, 4), (0,)), whole(0, 3, (), (2, 3)), dtypes=BOTH + INTEGERS)

lists = [whole(0, 5, (12,)), whole(0, 3, (3, 4)), whole(0, 3, (0,)), whole(0, 3, ()), whole(0, 3, (1,))]
for name in ("unique", "unique_consecutive"):
    function = getattr(torch, name)
    add(name, f"a:{name}{{return_inverse = true, return_counts = true}}", lambda a, f=function: f(a, return_inverse=True, return_counts=True), *lists,
        dtypes=BOTH + INTEGERS + (torch.bool,))
    add(name + " values", f"a:{name}()", function, *lists)
    add(name + " counts", f"a:{name}{{return_counts = true}}", lambda a, f=function: f(a, return_counts=True), *lists)
    for axis in (0, 1):
        add(name + " of an axis", f"a:{name}{{return_inverse = true, return_counts = true, axis = {axis}}}", lambda a, f=function, d=axis: f(a, return_inverse=True, return_counts=True, dim=d),
            whole(0, 2, (6, 2)), whole(0, 2, (2, 6)), whole(0, 2, (2, 5, 2)), dtypes=BOTH + INTEGERS)
add("unique with NaN", "(a:unique())", torch.unique, constant([1.0, nan, 1.0, nan]))

add("bincount", "a:bincount(), a:bincount({minlength = 20})", lambda a: (torch.bincount(a), torch.bincount(a, minlength=20)),
    whole(0, 9, (12,)), whole(0, 9, (0,)), dtypes=INTEGERS)
add("bincount with weights", "a:to('int64'):bincount(b), a:to('int64'):bincount(b:to('int32'))",
    lambda a, b: (torch.bincount(a.long(), b), torch.bincount(a.long(), b.int())), whole(0, 9, (12,), (12,)))
add("bincount refuses", "a:bincount()", torch.bincount, whole(0, 9, (3, 4)), constant([1.0, -1.0]), dtypes=INTEGERS[:2])
add("bincount of floats", "a:bincount()", torch.bincount, whole(0, 9, (3,)))
add("histc", "a:histc(5), a:histc(4, -1, 1), a:histc()", lambda a: (torch.histc(a, 5), torch.histc(a, 4, -1, 1), torch.histc(a)),
    general((40,)), general((5, 7)), general(()), constant([2.0, 2.0]), constant([-1.0, 1.0, 0.5, -0.5, 0.0]))
add("histc with NaN", "a:histc(4, -1, 1)", lambda a: torch.histc(a, 4, -1, 1), constant([nan, 0.3, inf, -inf, 1.0]))
add("histc refuses", "a:histc(0), a:histc(3, 2, 1)", lambda a: (torch.histc(a, 0), torch.histc(a, 3, 2, 1)), general((4,)))
add("argwhere", "a:argwhere()", torch.argwhere, whole(0, 2, (3, 4)), dtypes=BOTH + INTEGERS)
