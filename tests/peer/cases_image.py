"""cases_image.py -- norms of channels, pooling, padding and resizing beside torch.nn.functional."""
import itertools

import torch
import torch.nn.functional as F
from peer import Case

cases = []


def normal(*shapes):
    return lambda random, dtype: [torch.randn(shape, generator=random, dtype=torch.float64).to(dtype) for shape in shapes]


def positive(shape):
    return lambda random, dtype: [(torch.rand(shape, generator=random, dtype=torch.float64) + 0.1).to(dtype)]


def lua(value):
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    return "{" + ", ".join(map(lua, value)) + "}" if isinstance(value, (list, tuple)) else str(value)


def add(name, text, function, *inputs, **more):
    for number, make in enumerate(inputs):
        cases.append(Case(f"{name}:{number}", "return " + text, function, make, **more))


def call(name, args, options):
    """flow.name(a, args, {options})"""
    table = ", ".join(f"{key} = {lua(value)}" for key, value in options.items())
    return f"flow.{name}(a{''.join(', ' + lua(x) for x in args)}{', {' + table + '}' if table else ''})"


def both(name, function, args, options, *inputs, lua_name=None, **more):
    add(f"{name} {args} {options}", call(lua_name or name, args, options), lambda a: function(a, *args, **options), *inputs,
        **more)


# norms
shapes = [(4, 3), (3, 3, 5), (2, 3, 4, 5), (2, 3, 2, 3, 2)]
for shape in shapes:
    add("batch_norm", "flow.batch_norm(a, nil, nil, b, c, true)", lambda a, b, c: F.batch_norm(a, None, None, b, c, True),
        normal(shape, (3,), (3,)))
    add("batch_norm of running statistics", "flow.batch_norm(a, b, c:abs() + 0.5)",
        lambda a, b, c: F.batch_norm(a, b, c.abs() + 0.5), normal(shape, (3,), (3,)), order=0)
    add("running statistics", "local m, v = b:clone(), c:clone() local y = flow.batch_norm(a, m, v, nil, nil, true, 0.3) "
        "return y, m, v".replace("local m", "local m", 1), lambda a, b, c: running(F.batch_norm, a, b, c), normal(shape, (3,), (3,)),
        order=0)
    if len(shape) > 2:
        add("instance_norm", "flow.instance_norm(a, nil, nil, b, c)", lambda a, b, c: F.instance_norm(a, None, None, b, c),
            normal(shape, (3,), (3,)))
        add("instance running", "local m, v = b:clone(), c:clone() local y = flow.instance_norm(a, m, v, nil, nil, true, 0.3) "
            "return y, m, v", lambda a, b, c: running(F.instance_norm, a, b, c), normal(shape, (3,), (3,)), order=0)
        both("local_response_norm", F.local_response_norm, (2,), {"alpha": 0.3, "k": 1.5}, normal(shape))
        both("local_response_norm", F.local_response_norm, (3,), {}, normal(shape))


def running(function, a, b, c):
    m, v = b.clone(), c.clone()
    y = function(a, m, v, None, None, True, 0.3)
    return y, m, v


for case in cases:
    if "local m" in case.lua:
        case.lua = case.lua.replace("return local", "local", 1)
for shape in [(2, 6), (2, 6, 5), (3, 6, 2, 3), (1, 6, 1)]:
    for groups in (1, 2, 6):
        if torch.Size(shape[2:]).numel() * 6 // groups > 1:
            add(f"group_norm {groups}", f"flow.group_norm(a, {groups}, b, c)",
                lambda a, b, c, g=groups: F.group_norm(a, g, b, c), normal(shape, (6,), (6,)))
    add("group_norm plain", "flow.group_norm(a, 2)", lambda a: F.group_norm(a, 2), normal(shape))
add("rms_norm", "flow.rms_norm(a, b.shape, b)", lambda a, b: F.rms_norm(a, b.shape, b), normal((3, 5), (5,)),
    normal((2, 3, 4), (3, 4)), normal((2, 3, 4), (4,)))
add("rms_norm eps", "flow.rms_norm(a, 5, nil, 0.1)", lambda a: F.rms_norm(a, (5,), None, 0.1), normal((3, 5)))

# pooling
sizes = {1: [(2, 3, 9), (3, 8)], 2: [(2, 3, 7, 8), (2, 6, 5)], 3: [(2, 2, 5, 6, 4), (2, 4, 5, 6)]}
for axes in (1, 2, 3):
    inputs = [normal(s) for s in sizes[axes]]
    each = tuple((2, 3, 2)[:axes])
    for options in [{}, {"stride": 1}, {"stride": 2, "padding": 1}, {"stride": 2, "ceil_mode": True},
                    {"stride": 2, "padding": 1, "ceil_mode": True}]:
        kernel = 3 if options.get("padding") else each
        max_pool = getattr(F, f"max_pool{axes}d")
        for more in ({}, {"dilation": 2}) if kernel != 3 else ({},):
            o = dict(options, **more)
            if more and axes == 3:
                continue
            both(f"max_pool{axes}d", max_pool, (kernel,), o, *inputs)
            both(f"max_pool{axes}d_with_indices", lambda a, k, f=max_pool, **o: f(a, k, return_indices=True, **o), (kernel,), o,
                 *inputs)
        both(f"avg_pool{axes}d", getattr(F, f"avg_pool{axes}d"), (kernel,), options, *inputs)
        both(f"avg_pool{axes}d", getattr(F, f"avg_pool{axes}d"), (kernel,), dict(options, count_include_pad=False), *inputs)
        if axes > 1:
            both(f"avg_pool{axes}d", getattr(F, f"avg_pool{axes}d"), (kernel,), dict(options, divisor_override=5), *inputs)
    for norm in (1, 2, 3):
        both(f"lp_pool{axes}d", getattr(F, f"lp_pool{axes}d"), (norm, each if axes > 1 else 2), {"stride": 2, "ceil_mode": True}, positive(sizes[axes][0]),
             positive(sizes[axes][1]), order=1)
    for size in (1, 2, each if axes > 1 else 3, 4):
        both(f"adaptive_avg_pool{axes}d", getattr(F, f"adaptive_avg_pool{axes}d"), (size,), {}, *inputs)
        f = getattr(F, f"adaptive_max_pool{axes}d")
        both(f"adaptive_max_pool{axes}d", f, (size,), {}, *inputs)
        both(f"adaptive_max_pool{axes}d_with_indices", lambda a, s, f=f: f(a, s, return_indices=True), (size,), {}, *inputs)
    unpool, pool = getattr(F, f"max_unpool{axes}d"), getattr(F, f"max_pool{axes}d")
    add(f"max_unpool{axes}d", f"(function() local y, i = flow.max_pool{axes}d_with_indices(a, 2) "
        f"return flow.max_unpool{axes}d(y, i, 2) end)()",
        lambda a, u=unpool, p=pool: u(*p(a, 2, return_indices=True), 2), *inputs)

# padding
for shape, pad in [((3, 4), (1, 2)), ((2, 3, 4), (2, 1, 0, 2)), ((2, 2, 3, 4), (1, 1, 2, 2)), ((2, 2, 3, 4, 3), (1, 0, 2, 1, 1, 2)),
                   ((2, 3, 4), (-1, 2)), ((2, 3, 4), (-1, -1, 1, -2)), ((5,), (3, 2)), ((2, 3), (0, 0)), ((0, 3), (1, 1))]:
    both("pad", F.pad, (pad,), {}, normal(shape))
    both("pad", F.pad, (pad, "constant", 2.5), {}, normal(shape))
    if len(shape) >= len(pad) // 2 + 1 and min(pad) >= 0 and shape[0]:
        for mode in ("reflect", "replicate", "circular"):
            both("pad", F.pad, (pad, mode), {}, normal(shape))
integers = lambda random, dtype: [torch.randint(-5, 6, (2, 3, 4), generator=random).to(dtype)]
both("pad", F.pad, ((1, 2, 0, 1), "constant", 7), {}, integers, dtypes=(torch.int64, torch.uint8, torch.int8), order=0)

# sizes
for shape, modes in [((2, 3, 5), ("nearest", "nearest-exact", "linear", "area")),
                     ((2, 2, 4, 5), ("nearest", "nearest-exact", "bilinear", "bicubic", "area")),
                     ((1, 2, 3, 4, 3), ("nearest", "nearest-exact", "trilinear", "area"))]:
    axes = len(shape) - 2
    for mode in modes:
        corners = [{}, {"align_corners": True}, {"align_corners": False}] if "linear" in mode or "cubic" in mode else [{}]
        for o in corners:
            for size in (1, 4, 7, (3, 8, 2)[:axes] if axes > 1 else 2):
                both("interpolate", F.interpolate, (), dict(o, size=size, mode=mode), normal(shape))
            for factor in (2, 0.5, 1.7):
                both("interpolate", F.interpolate, (), dict(o, scale_factor=factor, mode=mode), normal(shape))
            both("interpolate", F.interpolate, (), dict(o, scale_factor=1.7, recompute_scale_factor=True, mode=mode), normal(shape))
            if mode in ("bilinear", "bicubic"):
                for size in ((2, 3), (7, 3), (9, 9)):
                    both("interpolate", F.interpolate, (), dict(o, size=size, mode=mode, antialias=True), normal(shape),
                         order=1)
both("pixel_shuffle", F.pixel_shuffle, (2,), {}, normal((2, 8, 2, 3)), normal((4, 3, 2)), normal((2, 2, 4, 1, 2)))
both("pixel_unshuffle", F.pixel_unshuffle, (2,), {}, normal((2, 3, 4, 6)), normal((3, 2, 2)))
both("channel_shuffle", F.channel_shuffle if hasattr(F, "channel_shuffle") else torch.channel_shuffle, (3,), {},
     normal((2, 6, 2, 3)), normal((2, 6, 4)), order=1)

# windows as columns, grids
for options in ({}, {"padding": 1}, {"padding": (0, 1), "stride": 2, "dilation": (2, 1)}):
    table = ", ".join(f"{key} = {lua(value)}" for key, value in options.items())
    table = f", {{{table}}}" if table else ""
    for kernel in (2, (2, 3)):
        add("unfold", f"flow.nn.functional.unfold(a, {lua(kernel)}{table})", lambda a, k=kernel, o=options: F.unfold(a, k, **o),
            normal((2, 3, 5, 6)), normal((3, 5, 6)))
        add("fold", f"flow.nn.functional.fold(flow.nn.functional.unfold(a, {lua(kernel)}{table}), {{5, 6}}, {lua(kernel)}"
            f"{table})", lambda a, k=kernel, o=options: F.fold(F.unfold(a, k, **o), (5, 6), k, **o), normal((2, 3, 5, 6)))


def image_and_points(*shapes):
    """Points inside of the image and outside, none on a border between elements."""
    def make(random, dtype):
        x = torch.randn(shapes[0], generator=random, dtype=torch.float64)
        return [x.to(dtype), (torch.rand(shapes[1], generator=random, dtype=torch.float64) * 4 - 2).to(dtype)]
    return make


for mode, padding, corners in itertools.product(("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (True, False)):
    o = {"mode": mode, "padding_mode": padding, "align_corners": corners}
    table = ", ".join(f"{key} = {lua(value)}" for key, value in o.items())
    inputs = [image_and_points((2, 3, 4, 5), (2, 3, 4, 2)), image_and_points((1, 2, 1, 3), (1, 2, 3, 2))]
    if mode != "bicubic":
        inputs.append(image_and_points((2, 2, 3, 4, 2), (2, 2, 3, 2, 3)))
    add("grid_sample", f"flow.grid_sample(a, b, {{{table}}})", lambda a, b, o=o: F.grid_sample(a, b, **o), *inputs, order=1)
for corners in (True, False):
    for theta, size in (((2, 2, 3), (2, 3, 4, 5)), ((2, 3, 4), (2, 3, 4, 1, 2)), ((1, 2, 3), (1, 1, 1, 3))):
        add("affine_grid", f"flow.affine_grid(a, {lua(size)}, {lua(corners)})",
            lambda a, s=size, c=corners: F.affine_grid(a, s, align_corners=c), normal(theta))
