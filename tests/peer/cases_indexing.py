"""cases_indexing.py -- shapes, views, and elements read and written by position."""
import torch
from peer import Case

cases = []
ALL = (torch.float64, torch.float32, torch.int64, torch.int32, torch.int8, torch.uint8)
FLOATS = (torch.float64, torch.float32)
HALF = (torch.float16, torch.bfloat16)


def values(shape, random, dtype):
    """Small numbers that every dtype can hold."""
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=random).to(dtype)
    if not dtype.is_floating_point:
        return torch.randint(0, 6, shape, generator=random).to(dtype)
    return torch.randn(shape, generator=random, dtype=torch.float64).to(dtype)


def given(*shapes, index=None, limit=None, distinct=False, mask=None):
    """Random tensors; the one at `index` holds positions below `limit`, the one at `mask` truth values."""
    def make(random, dtype):
        out = []
        for i, shape in enumerate(shapes):
            if i == index:
                n = 1
                for size in shape:
                    n *= size
                at = torch.randperm(limit, generator=random)[:n] if distinct else torch.randint(0, max(limit, 1), (n,), generator=random)
                out.append(at.reshape(shape))
            elif i == mask:
                out.append(torch.randint(0, 2, shape, generator=random).bool())
            else:
                out.append(values(shape, random, dtype))
        return out
    return make


def constant(*lists, first=None):
    return lambda random, dtype: ([values(first, random, dtype)] if first is not None else []) + [torch.tensor(v) for v in lists]


def add(name, lua, function, *inputs, **options):
    options.setdefault("order", 2)
    for number, make in enumerate(inputs):
        text = lua if lua.startswith(("return", "local")) else "return " + lua
        cases.append(Case(f"{name}:{number}", text, function, make, **options))


def both(name, lua, function, *inputs, dtypes=(torch.int64, torch.uint8), **options):
    """Of floats with gradients, and of other dtypes."""
    add(name, lua, function, *inputs, **options)
    add(name + " of integers", lua, function, *inputs, order=0, dtypes=dtypes)


shapes = [given((2, 3, 4)), given((3, 1, 2)), given((0, 3, 2)), given((1, 1, 1))]
few = [given(()), given((3,)), given((2, 3))]
any_dtype = (torch.int64, torch.bool)

# axes
for lua, f in (("a:movedim(0, 2)", lambda a: a.movedim(0, 2)), ("a:moveaxis({0, -1}, {1, 0})", lambda a: a.moveaxis((0, -1), (1, 0))),
               ("a:movedim({0, 0}, {1, 2})", lambda a: a.movedim((0, 0), (1, 2))), ("a:movedim(3, 0)", lambda a: a.movedim(3, 0)),
               ("a:swapaxes(0, 2)", lambda a: a.swapaxes(0, 2)), ("a:swapdims(-1, 0)", lambda a: a.swapdims(-1, 0)),
               ("a.mT", lambda a: a.mT), ("flow.permute_dims(a, {2, 0, 1})", lambda a: torch.permute(a, (2, 0, 1))),
               ("a:rot90()", lambda a: a.rot90()), ("a:rot90(2, {0, 2})", lambda a: a.rot90(2, (0, 2))),
               ("a:rot90(-1, {2, 1})", lambda a: a.rot90(-1, (2, 1))), ("a:rot90(4)", lambda a: a.rot90(4)),
               ("a:rot90(1, {0, 0})", lambda a: a.rot90(1, (0, 0))),
               ("a:fliplr()", torch.fliplr), ("a:flipud()", torch.flipud), ("a:flip({0, 2})", lambda a: a.flip((0, 2))),
               ("a:roll({1, -2}, {0, 2})", lambda a: a.roll((1, -2), (0, 2))), ("a:roll(2)", lambda a: a.roll(2)),
               ("a:unflatten(1, {1, -1})", lambda a: a.unflatten(1, (1, -1))), ("a:unflatten(-1, {2, 2})", lambda a: a.unflatten(-1, (2, 2))),
               ("a:unflatten(1, {5, 2})", lambda a: a.unflatten(1, (5, 2))), ("a:ravel()", torch.ravel),
               ("a:squeeze({0, 1})", lambda a: a.squeeze((0, 1))), ("flow.expand_dims(a, 1)", lambda a: a.unsqueeze(1)),
               ("a:narrow_copy(1, 0, 1)", lambda a: a.narrow_copy(1, 0, 1)), ("a:tile(2)", lambda a: a.tile(2)),
               ("a:tile({2, 1, 1, 2})", lambda a: a.tile((2, 1, 1, 2)))):
    both(lua, lua, f, *shapes, dtypes=any_dtype)
for lua, f in (("a.T", lambda a: a.T), ("flow.atleast_1d(a)", torch.atleast_1d), ("flow.atleast_2d(a)", torch.atleast_2d),
               ("flow.atleast_3d(a)", torch.atleast_3d), ("a:flipud()", torch.flipud), ("a:fliplr()", torch.fliplr),
               ("a:movedim(0, 0)", lambda a: a.movedim(0, 0)), ("a:ravel()", torch.ravel),
               ("a:diagflat()", torch.diagflat), ("a:diagflat(-2)", lambda a: a.diagflat(-2))):
    both(lua + " of few axes", lua, f, *few, dtypes=any_dtype)
add("a.H", "a.H", lambda a: a.H, given((2, 3)), given((2, 2, 2)))

# diagonals
vectors = [given((3,)), given((1,)), given((0,))]
for offset in (-2, 0, 1):
    both(f"diag {offset}", f"a:diag({offset})", lambda a, o=offset: a.diag(o), *vectors, given((3, 4)), given((4, 2)), given((0, 3)),
         given((2, 2, 2)), given(()))
    both(f"diag_embed {offset}", f"a:diag_embed({offset})", lambda a, o=offset: a.diag_embed(o), *vectors, given((2, 3)), given(()))
    add(f"diag_embed {offset} axes", f"a:diag_embed({offset}, 0, 2)", lambda a, o=offset: a.diag_embed(o, 0, 2), given((2, 3)), given((4, 1)))
    add(f"diag_embed {offset} turned", f"a:diag_embed({offset}, -1, 0)", lambda a, o=offset: a.diag_embed(o, -1, 0), given((2, 3)))
    both(f"diagonal_scatter {offset}", f"a:diagonal_scatter(b, {offset})", lambda a, b, o=offset: a.diagonal_scatter(b, o),
         given((3, 4), (3 + min(offset, 0),)), given((3, 3), (2,)), given((2, 3), (3,)))
add("diag_embed one axis twice", "a:diag_embed(0, 1, 1)", lambda a: a.diag_embed(0, 1, 1), given((2, 3)))
add("diagonal_scatter axes", "a:diagonal_scatter(b, 0, 2, 0)", lambda a, b: a.diagonal_scatter(b, 0, 2, 0), given((2, 3, 4), (3, 2)))
add("block_diag", "flow.block_diag(a, b)", torch.block_diag, given((2, 3), (1, 2)), given((3,), (2, 2)), given((), (2,)), given((0, 2), (2, 1)))

# joined, cut
for name in ("hstack", "vstack", "dstack", "column_stack"):
    both(name, f"flow.{name} {{a, b}}", lambda a, b, f=getattr(torch, name): f([a, b]), given((3,), (3,)), given((), ()),
         given((2, 3), (2, 3)), given((2, 1, 3), (2, 1, 3)), given((2,), (3,)), given((2, 3), (3, 3)))
add("unbind", "a:unbind(1)", lambda a: a.unbind(1), *shapes, given((3,)))
add("unbind 0", "flow.unbind(a)", torch.unbind, given((3,)), given((2, 2)), given(()))
for into in ("3", "{1, 3}", "{-2}", "{2, 1}", "{5}", "1", "0"):
    python = [int(n) for n in into.strip("{}").split(",")] if into[0] == "{" else int(into)
    add(f"tensor_split {into}", f"a:tensor_split({into}, -1)", lambda a, n=python: a.tensor_split(n, -1), given((2, 7)), given((4,)), given(()))
for name, size in (("hsplit", (2, 4, 2)), ("vsplit", (4, 2, 2)), ("dsplit", (2, 2, 4))):
    add(name, f"a:{name}(2)", lambda a, f=getattr(torch, name): f(a, 2), given(size), given((4,)), given((4, 4)), given((3, 3, 3)))
    add(name + " at", f"a:{name} {{1, 2}}", lambda a, f=getattr(torch, name): f(a, [1, 2]), given(size), given((4,)))
add("split", "a:split({1, 2, 1}, 1)", lambda a: a.split([1, 2, 1], 1), given((2, 4)), given((2, 5)))
for indexing in ("ij", "xy"):
    add("meshgrid " + indexing, f"flow.meshgrid(a, b, {{indexing = '{indexing}'}})", lambda a, b, i=indexing: torch.meshgrid(a, b, indexing=i),
        given((2,), (3,)), given((), (2,)), given((0,), (2,)), given((2, 2), (2,)))
    add("meshgrid of three " + indexing, f"flow.meshgrid({{a, b, c}}, {{indexing = '{indexing}'}})",
        lambda a, b, c, i=indexing: torch.meshgrid([a, b, c], indexing=i), given((2,), (3,), (4,)))
add("cartesian_prod", "flow.cartesian_prod(a, b)", torch.cartesian_prod, given((2,), (3,)), given((0,), (2,)), given((2, 1), (2,)))
for r in (0, 1, 2, 3, 5):
    for again in (False, True):
        add(f"combinations {r} {again}", f"flow.combinations(a, {r}, {str(again).lower()})",
            lambda a, r=r, w=again: torch.combinations(a, r, w), given((4,)), given((1,)), given((2, 2)))
for offset in (-2, 0, 1, 5):
    for name in ("tril_indices", "triu_indices"):
        add(f"{name} {offset}", f"flow.{name}(3, 4, {offset})", lambda a, f=getattr(torch, name), o=offset: f(3, 4, o), given((1,)), order=0)
add("broadcast_tensors", "flow.broadcast_tensors(a, b)", torch.broadcast_tensors, given((2, 1), (3,)), given((), (2, 2)), given((2,), (3,)))
add("broadcast_to", "flow.broadcast_to(a, {2, 3})", lambda a: torch.broadcast_to(a, (2, 3)), given((3,)), given(()), given((2, 1)), given((2,)))
for name in ("expand_as", "view_as", "reshape_as"):
    add(name, f"a:contiguous():{name}(b)", lambda a, b, n=name: getattr(a, n)(b), given((2, 6), (3, 4)), given((1, 3), (2, 3)), given((), (2, 2)), given((4,), (2, 2)), order=1)

# windows and strides
for size, step in ((2, 1), (3, 2), (1, 1), (2, 3), (7, 1), (0, 1), (2, 0)):
    both(f"unfold {size} {step}", f"a:unfold(1, {size}, {step})", lambda a, n=size, s=step: a.unfold(1, n, s), given((2, 5)), given((2, 7, 3)), given((3, 2)))
add("unfold of a number", "a:unfold(0, 1, 1)", lambda a: a.unfold(0, 1, 1), given(()))
add("as_strided", "a:as_strided({2, 3}, {1, 2}, 1)", lambda a: a.contiguous().as_strided((2, 3), (1, 2), 1), given((3, 4)), given((7,)), given((5,)))
add("as_strided overlapping", "a:as_strided({3, 3}, {1, 1})", lambda a: a.contiguous().as_strided((3, 3), (1, 1)), given((3, 4)), given((5,)), given((4,)))
for repeats in (0, 1, 3):
    both(f"repeat_interleave {repeats}", f"a:repeat_interleave({repeats})", lambda a, n=repeats: a.repeat_interleave(n), *shapes, *few)
    add(f"repeat_interleave {repeats} axis", f"a:repeat_interleave({repeats}, 1)", lambda a, n=repeats: a.repeat_interleave(n, 1), *shapes)
add("repeat_interleave by a tensor", "a:repeat_interleave(b, 0)", lambda a, b: a.repeat_interleave(b, 0), given((3, 2), (3,), index=1, limit=4),
    given((3, 2), (1,), index=1, limit=4), given((3, 2), (2,), index=1, limit=4), given((0, 2), (0,), index=1, limit=4))
add("repeat_interleave of all", "a:repeat_interleave(b)", lambda a, b: a.repeat_interleave(b), given((3, 2), (6,), index=1, limit=4))

# reading
add("take", "a:take(b)", torch.take, given((3, 4), (2, 2), index=1, limit=12), given((3, 4), (), index=1, limit=12),
    given((3, 4), (0,), index=1, limit=1), constant([-1, 5, -12], first=(3, 4)), constant([12], first=(3, 4)), constant([0], first=(0,)))
for axis in (0, 1, -1):
    add(f"take_along_dim {axis}", f"flow.take_along_dim(a, b, {axis})", lambda a, b, d=axis: torch.take_along_dim(a, b, d),
        given((3, 4), (3, 1), index=1, limit=3), given((3, 4), (1, 4), index=1, limit=3), given((1, 4), (3, 4), index=1, limit=1),
        given((3, 4), (2, 3), index=1, limit=3))
add("take_along_dim of all", "a:take_along_dim(b)", lambda a, b: torch.take_along_dim(a, b), given((3, 4), (5,), index=1, limit=12))
for axis in (0, 1):
    both(f"gather {axis}", f"a:gather({axis}, b)", lambda a, b, d=axis: a.gather(d, b), given((3, 4), (2, 3), index=1, limit=3),
         given((3, 4), (0, 3), index=1, limit=1), given((70, 80), (70, 80), index=1, limit=70))
    both(f"index_select {axis}", f"a:index_select({axis}, b)", lambda a, b, d=axis: a.index_select(d, b), given((3, 4), (5,), index=1, limit=3),
         given((3, 4), (0,), index=1, limit=1), given((70, 80), (90,), index=1, limit=70))
both("masked_select", "a:masked_select(b)", torch.masked_select, given((3, 4), (3, 4), mask=1), given((3, 1), (4,), mask=1), given((), (), mask=1),
     given((0, 2), (0, 2), mask=1))
add("where of one", "flow.where(a:gt(0))", lambda a: torch.where(a > 0), given((3, 4)), given(()), given((0, 2)), order=0)
add("one_hot", "flow.one_hot(a, 5)", lambda a: torch.nn.functional.one_hot(a, 5), given((2, 3), index=0, limit=5), given((), index=0, limit=5),
    given((0,), index=0, limit=5), constant([5]), constant([-1]), order=0, dtypes=FLOATS[:1])
add("one_hot of as many", "flow.one_hot(a)", lambda a: torch.nn.functional.one_hot(a), given((2, 3), index=0, limit=5), order=0, dtypes=FLOATS[:1])

# writing: as a new tensor and in place
def writes(name, lua, function, *inputs, **options):
    """lua: the arguments; function(x, f, other tensors): f is the bound method."""
    for suffix in ("", "_"):
        text = f"return a:{name}({lua})" if not suffix else f"local x = a:clone() x:{name}_({lua}) return x"
        both(f"{name}{suffix} ({lua})", text, lambda *t, s=suffix: function(getattr(t[0].clone() if s else t[0], name + s), *t[1:]), *inputs, **options)


for axis in (0, 1):
    shape, limit = ((2, 4) if axis == 0 else (3, 2)), (3 if axis == 0 else 4)
    slices = [given((3, 4), (2,), shape, index=1, limit=limit), given((3, 4), (0,), (0, 4) if axis == 0 else (3, 0), index=1, limit=1),
              given((3, 4), (2,), (5, 5), index=1, limit=3)]
    distinct = [given((3, 4), (2,), shape, index=1, limit=limit, distinct=True), slices[1]]
    writes("index_add", f"{axis}, b, c", lambda f, b, c, d=axis: f(d, b, c), *slices)
    writes("index_add", f"{axis}, b, c, {{alpha = 2}}", lambda f, b, c, d=axis: f(d, b, c, alpha=2), *slices[:2])
    writes("index_copy", f"{axis}, b, c", lambda f, b, c, d=axis: f(d, b, c), *distinct)
    writes("index_fill", f"{axis}, b, 3", lambda f, b, d=axis: f(d, b, 3), given((3, 4), (2,), index=1, limit=limit), given((3, 4), (0,), index=1, limit=1),
           constant([-1, 0], first=(3, 4)), constant([9], first=(3, 4)), constant(1, first=(3, 4)))
    elements = [given((3, 4), (2, 3), (2, 3), index=1, limit=3), given((3, 4), (2, 2), (3, 3), index=1, limit=3),
                given((3, 4), (0, 3), (2, 3), index=1, limit=1), given((5, 6), (5, 6) if axis else (9, 6), (9, 9), index=1, limit=5)]
    for how in ("sum", "prod", "mean", "amax", "amin"):
        for include in (True, False):
            writes("scatter_reduce", f"{axis}, b, c, '{how}', {str(include).lower()}",
                   lambda f, b, c, d=axis, h=how, i=include: f(d, b, c, h, include_self=i), *elements, order=1 if how == "prod" else 2)
    writes("scatter_add", f"{axis}, b, c", lambda f, b, c, d=axis: f(d, b, c), *elements)
    unique = [constant([[2, 0, 1], [0, 1, 2]] if axis == 0 else [[2, 0], [0, 3]], first=(3, 4))]
    unique = [lambda r, d, u=u: (lambda x, i: [x, i, values((3, 4), r, d)])(*u(r, d)) for u in unique]
    writes("scatter", f"{axis}, b, c", lambda f, b, c, d=axis: f(d, b, c), *unique)
    writes("scatter", f"{axis}, b, 3", lambda f, b, d=axis: f(d, b, 3), given((3, 4), (2, 3), index=1, limit=3))
    add("scatter add", f"a:scatter({axis}, b, c, {{reduce = 'add'}})", lambda a, b, c, d=axis: a.scatter(d, b, c, reduce="add"), *elements, order=0)
    add("scatter multiply", f"a:scatter({axis}, b, c, {{reduce = 'multiply'}})", lambda a, b, c, d=axis: a.scatter(d, b, c, reduce="multiply"), *elements, order=0)
    add("scatter add number", f"a:scatter({axis}, b, 2, {{reduce = 'add'}})", lambda a, b, d=axis: a.scatter(d, b, 2, reduce="add"),
        given((3, 4), (2, 3), index=1, limit=3), order=0)
    both(f"select_scatter {axis}", f"a:select_scatter(b, {axis}, -1)", lambda a, b, d=axis: a.select_scatter(b, d, -1), given((3, 4), (4,) if axis == 0 else (3,)),
         given((3, 3), (3,)), given((3, 4), (2,)))
    both(f"slice_scatter {axis}", f"a:slice_scatter(b, {axis}, 1, 3)", lambda a, b, d=axis: a.slice_scatter(b, d, 1, 3), given((3, 4), shape), given((3, 4), (3, 3)))
add("slice_scatter step", "a:slice_scatter(b, 1, 0, -1, 2)", lambda a, b: a.slice_scatter(b, 1, 0, -1, 2), given((3, 6), (3, 3)), given((3, 5), (3, 2)))
writes("index_add", "0, b, c", lambda f, b, c: f(0, b, c), given((), (1,), (), index=1, limit=1))
writes("put", "b, c", lambda f, b, c: f(b, c), given((3, 4), (2, 2), (4,), index=1, limit=12, distinct=True), given((3, 4), (3,), (4,), index=1, limit=12))
writes("put", "b, c, true", lambda f, b, c: f(b, c, True), given((3, 4), (2, 4), (8,), index=1, limit=12))
writes("masked_scatter", "b, c", lambda f, b, c: f(b, c), given((3, 4), (3, 4), (12,), mask=1), given((3, 4), (4,), (4, 4), mask=1), given((0, 4), (4,), (2,), mask=1))
writes("masked_fill", "b, 3", lambda f, b: f(b, 3), given((3, 4), (3, 4), mask=1), given((3, 4), (4,), mask=1))


def put(accumulate, *axes):
    return lambda a, b, c: a.index_put(axes and tuple(b[..., i] for i in axes) or (b,), c, accumulate)


for accumulate in (False, True):
    text = str(accumulate).lower()
    add(f"index_put {text}", f"a:index_put({{b}}, c, {text})", put(accumulate), given((6, 4), (3,), (3, 4), index=1, limit=6, distinct=True),
        given((6, 4), (2, 2), (4,), index=1, limit=6, distinct=True), given((6, 4), (2,), (), index=1, limit=6, distinct=True),
        given((6, 4), (2,), (3, 3), index=1, limit=6))
    add(f"index_put two {text}", f"a:index_put({{b:select(-1, 0), b:select(-1, 1)}}, c, {text})", put(accumulate, 0, 1),
        lambda r, d: [values((4, 4, 2), r, d), torch.tensor([[0, 1], [2, 3], [3, 0]]), values((3, 2), r, d)])
add("index_put equal places", "a:index_put({b}, c, true)", put(True), given((3, 4), (7,), (7, 4), index=1, limit=3), given((3, 4), (2, 5), (4,), index=1, limit=3))
add("index_put by a mask", "a:index_put({b}, 2)", lambda a, b: a.index_put((b,), torch.tensor(2, dtype=a.dtype)), given((3, 4), (3, 4), mask=1), given((3, 4), (3,), mask=1))
add("a mask without axes", "a[b]", lambda a, b: a[b], given((3, 4), (), mask=1), given((), (), mask=1))
add("ranges", "a[{'newaxis', {1, nil}, {nil, 2}, {nil, nil, 2}}]", lambda a: a[None, 1:, :2, ::2], given((2, 3, 4)))

# comparisons, operators
for lua, f in (("a & b", lambda a, b: a & b), ("a | b", lambda a, b: a | b), ("a ~ b", lambda a, b: a ^ b), ("~a", lambda a, b: ~a),
               ("a & 3", lambda a, b: a & 3), ("5 | a", lambda a, b: 5 | a)):
    add(lua, lua, f, given((3, 4), (4,)), given((), (2,)), order=0, dtypes=(torch.int64, torch.uint8, torch.int8))
    if "3" not in lua and "5" not in lua:
        add(lua + " of bools", lua, f, given((3, 4), (4,)), order=0, dtypes=(torch.bool,))
add("isclose", "flow.isclose(a, b, {rtol = 0.5})", lambda a, b: torch.isclose(a, b, rtol=0.5), given((3, 4), (4,)), order=0)
special = lambda r, d: [torch.tensor([float("nan"), float("inf"), float("-inf"), 1.0]).to(d), torch.tensor([float("nan"), float("inf"), float("inf"), 1.0 + 1e-6]).to(d)]
add("isclose of NaN", "flow.isclose(a, b)", torch.isclose, special, order=0)
add("isclose of equal NaN", "flow.isclose(a, b, {equal_nan = true})", lambda a, b: torch.isclose(a, b, equal_nan=True), special, order=0)
nan = lambda r, d: [values((3,), r, d), torch.tensor([0, 1, 1, 0]), torch.tensor([1.0, float("nan"), 2.0, float("inf")]).to(d)]
for how in ("sum", "prod", "mean", "amax", "amin"):
    add("scatter_reduce of NaN " + how, f"a:scatter_reduce(0, b, c, '{how}')", lambda a, b, c, h=how: a.scatter_reduce(0, b, c, h), nan, order=0)
    add("scatter_reduce of 16 bits " + how, f"a:scatter_reduce(0, b, c, '{how}')", lambda a, b, c, h=how: a.scatter_reduce(0, b, c, h),
        given((3, 4), (2, 3), (2, 3), index=1, limit=3), order=1 if how != "mean" else 0, dtypes=HALF)
zeros = lambda r, d: [torch.tensor([2.0, 0.0, 3.0]).to(d), torch.tensor([0, 0, 1, 2, 2]), torch.tensor([0.0, 2.0, 3.0, 0.0, 0.0]).to(d)]
add("scatter_reduce prod with zeros", "a:scatter_reduce(0, b, c, 'prod')", lambda a, b, c: a.scatter_reduce(0, b, c, "prod"), zeros, order=1)
ties = lambda r, d: [torch.tensor([2.0, 1.0]).to(d), torch.tensor([0, 0, 1, 1]), torch.tensor([2.0, 2.0, 1.0, 0.0]).to(d)]
add("scatter_reduce of equals", "a:scatter_reduce(0, b, c, 'amax')", lambda a, b, c: a.scatter_reduce(0, b, c, "amax"), ties, order=1)
add("index_add of 16 bits", "a:index_add(0, b, c)", lambda a, b, c: a.index_add(0, b, c), given((3, 4), (2,), (2, 4), index=1, limit=3), order=1, dtypes=HALF)
