"""cases_conv.py -- convolutions beside torch.nn.functional."""
import itertools

import torch
import torch.nn.functional as F
from peer import Case

cases = []


def normal(*shapes):
    return lambda random, dtype: [torch.randn(shape, generator=random, dtype=torch.float64).to(dtype) for shape in shapes]


def lua_list(value):
    if isinstance(value, str):
        return f'"{value}"'
    return "{" + ", ".join(map(str, value)) + "}" if isinstance(value, (list, tuple)) else str(value)


def add(name, function, options, *inputs, **more):
    """The options by name, on both sides."""
    table = ", ".join(f"{key} = {lua_list(value)}" for key, value in options.items())
    for number, make in enumerate(inputs):
        bias = "c" if len(make(torch.Generator(), torch.float64)) == 3 else "nil"
        call = f"return flow.{name}(a, b, {bias}{', {' + table + '}' if table else ''})"
        cases.append(Case(f"{name} {table}:{number}", call, lambda *args, o=options: function(*args, **o), make, **more))


conv = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
back = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
sizes = {1: [(7,), (5,), (1,)], 2: [(6, 5), (2, 2), (9, 20), (4, 1)], 3: [(3, 4, 5), (2, 2, 2)]}
windows = {1: [(3,), (1,)], 2: [(3, 2), (3, 3), (1, 1)], 3: [(2, 3, 2), (1, 1, 1)]}
options = [{}, {"stride": 2, "padding": 1}, {"padding": 2, "dilation": 2}, {"stride": 3, "padding": 1, "dilation": 2}]
for axes in (1, 2, 3):
    for size, window, option in itertools.product(sizes[axes], windows[axes], options):
        for groups, out in ((1, 3), (2, 4), (4, 4), (4, 8)):
            o = dict(option, groups=groups)
            few = axes == 2 and size[0] == 6 or groups == 4
            add(f"conv{axes}d", conv[axes], o, normal((2 if few else 5, 4, *size), (out, 4 // groups, *window), (out,)))
            add(f"conv_transpose{axes}d", back[axes], {k: v for k, v in o.items()},
                normal((2, 4, *size), (4, out // groups, *window), (out,)))
    one = sizes[axes][0]
    add(f"conv{axes}d", conv[axes], {}, normal((4, *one), (3, 4, *windows[axes][0])))
    add(f"conv_transpose{axes}d", back[axes], {}, normal((4, *one), (4, 3, *windows[axes][0])))
    add(f"conv_transpose{axes}d", back[axes], {"stride": 2, "padding": 1, "output_padding": 1},
        normal((2, 4, *one), (4, 3, *windows[axes][0])))
    add(f"conv_transpose{axes}d", back[axes], {"stride": 1, "padding": 1, "output_padding": 1, "dilation": 2},
        normal((2, 4, *one), (4, 3, *windows[axes][0])))
    for padding in ("same", "valid"):
        add(f"conv{axes}d", conv[axes], {"padding": padding, "dilation": 2}, normal((2, 4, *one), (3, 4, *windows[axes][0])),
            normal((2, 4, *one), (4, 4, *windows[axes][0]), (4,)))
    add(f"conv{axes}d", conv[axes], {"padding": 4}, normal((2, 4, *one), (4, 1, *windows[axes][0])))
    add(f"conv{axes}d", conv[axes], {"groups": 4, "padding": 4}, normal((2, 4, *one), (4, 1, *windows[axes][0])))
add("conv2d", F.conv2d, {"stride": (2, 1), "padding": (0, 1), "dilation": (1, 2)}, normal((2, 3, 6, 7), (4, 3, 2, 3), (4,)),
    normal((0, 3, 6, 7), (4, 3, 2, 3), (4,)))
add("conv2d", F.conv2d, {"padding": 1}, normal((40, 5, 2, 2), (6, 5, 3, 3), (6,)), normal((33, 5, 4, 4), (6, 5, 3, 3)),
    normal((7, 3, 8, 8), (5, 3, 3, 3)), normal((2, 16, 14, 14), (3, 16, 3, 3)))
add("conv2d", F.conv2d, {"padding": 1, "groups": 6}, normal((3, 6, 9, 70), (6, 1, 3, 3), (6,)), normal((3, 6, 2, 33), (6, 1, 3, 3)))
add("conv2d", F.conv2d, {"padding": 1, "stride": 2, "groups": 6}, normal((3, 6, 9, 70), (6, 1, 3, 3), (6,)))
