"""PyTorch's side of the group `sweep`: the cases that cases/sweep.lua names, see there."""

import torch
from torch.nn import functional

SIZES = {"1k": (32, 32), "64k": (256, 256), "1m": (1024, 1024), "16m": (4096, 4096)}


def aminmax(x, dim=None, keepdim=False):
    return torch.aminmax(x, dim=dim, keepdim=keepdim)


OTHER_NAMES = {"aminmax": aminmax, "take_along_axis": torch.take_along_dim}


def function_of(name):
    if name in OTHER_NAMES:
        return OTHER_NAMES[name]
    if name.startswith("fft."):
        return getattr(torch.fft, name[4:], None)
    for home in (torch, functional, torch.special, torch.Tensor):
        if hasattr(home, name):
            return getattr(home, name)
    return None


def converted(x, dtype):
    if not torch.is_tensor(x) or x.dtype != torch.float32:
        return x
    return torch.randint(1, 10, x.shape) if dtype == torch.int64 else x.to(dtype)


def first_of(result):
    return result if torch.is_tensor(result) else result[0]


def prepare(case):
    """The body of a case; None where PyTorch has no op of that name."""
    name, dtype, size, way, text = case.split(":", 4)
    function = function_of(name)
    if function is None:
        return None
    dtype = getattr(torch, dtype)
    for lua, python in (("flow.", "torch."), ("{", "("), ("}", ",)"), (":", "."), ("math.huge", "inf")):
        text = text.replace(lua, python)
    names = {"torch": torch, "R": SIZES[size][0], "C": SIZES[size][1], "inf": float("inf"), "true": True, "nil": None}
    args = eval("[%s]" % text, names)  # pylint: disable=eval-used
    args = [converted(x, dtype) for x in args]
    if way == "forward":
        def forward(count):
            for _ in range(count):
                function(*args)
        return forward
    leaves = [x.requires_grad_() for x in args if torch.is_tensor(x) and x.dtype == dtype]

    def backward(count):
        for _ in range(count):
            torch.autograd.grad(first_of(function(*args)).sum(), leaves, allow_unused=True)
    return backward
