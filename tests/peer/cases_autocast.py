"""cases_autocast.py -- flow.autocast beside torch.autocast: what products give under it, and their gradients.

PyTorch's table for the CPU is shorter than that for GPUs, which flow follows everywhere; here are the ops of both.
"""
import torch
import torch.nn.functional as F
from peer import Case

cases = []
SINGLE = (torch.float32,)


def general(*shapes):
    return lambda random, dtype: [torch.randn(shape, generator=random, dtype=torch.float64).to(dtype) for shape in shapes]


def add(name, lua, function, *inputs, **options):
    def call(*args):
        with torch.autocast("cpu", torch.bfloat16):
            return function(*args)
    text = f'return flow.autocast("bfloat16", function() return {lua} end)'
    for number, make in enumerate(inputs):
        cases.append(Case(f"{name}:{number}", text, call, make, order=options.pop("order", 1), dtypes=SINGLE, tolerance=10,
                          **options))


add("matmul", "a:matmul(b)", torch.matmul, general((3, 4), (4, 2)), general((2, 3, 4), (4, 2)), general((4,), (4,)))
add("mm", "a:mm(b)", torch.mm, general((3, 4), (4, 2)))
add("bmm", "a:bmm(b)", torch.bmm, general((2, 3, 4), (2, 4, 2)))
add("addmm", "flow.addmm(a, b, c)", torch.addmm, general((3, 2), (3, 4), (4, 2)))
add("baddbmm", "flow.baddbmm(a, b, c)", torch.baddbmm, general((2, 3, 2), (2, 3, 4), (2, 4, 2)))
add("linear", "flow.linear(a, b, c)", F.linear, general((3, 4), (2, 4), (2,)))
add("conv1d", "flow.conv1d(a, b, c)", F.conv1d, general((2, 3, 8), (4, 3, 3), (4,)))
add("conv2d", "flow.conv2d(a, b, c)", F.conv2d, general((2, 3, 6, 6), (4, 3, 3, 3), (4,)))
add("conv3d", "flow.conv3d(a, b, c)", F.conv3d, general((1, 2, 4, 4, 4), (3, 2, 2, 2, 2), (3,)))
add("conv_transpose2d", "flow.conv_transpose2d(a, b, c)", F.conv_transpose2d, general((2, 3, 4, 4), (3, 4, 3, 3), (4,)))
add("attention", "flow.scaled_dot_product_attention(a, b, c)", F.scaled_dot_product_attention,
    general((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4)))
add("what promotes", "a:matmul(b) + c", lambda a, b, c: a @ b + c, general((3, 4), (4, 2), (3, 2)))
add("what is neither", "a:matmul(b):relu()", lambda a, b: (a @ b).relu(), general((3, 4), (4, 2)))
add("losses", "flow.mse_loss(a:matmul(b), c)", lambda a, b, c: F.mse_loss(a @ b, c), general((3, 4), (4, 2), (3, 2)))
add("a net", "flow.mse_loss(flow.linear(flow.linear(a, b):relu(), c), flow.ones(3, 2))",
    lambda a, b, c: F.mse_loss(F.linear(F.linear(a, b).relu(), c), torch.ones(3, 2)), general((3, 4), (5, 4), (2, 5)))
add("a region without", "flow.autocast(false, function() return a:matmul(b) end)",
    lambda a, b: torch.autocast("cpu", enabled=False)(lambda: a @ b)(), general((3, 4), (4, 2)))
