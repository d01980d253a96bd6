"""PyTorch's side of cases/chains.lua: each case eagerly and under torch.compile; the faster one counts.

A case is a function that gives what is compiled and a function that makes a body of it. What is compiled is made once, so
that one process compiles it once.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

KI = 1024
MI = 1024 * 1024


# ---- chains of three operands ----

def norm7(a, b, c):
    return (a * a + b * b).clamp(min=1e-6).sqrt() / (1 + (a - b).abs())


def muladd(a, b, c):
    return a * b + c


def total(a, b, c):
    return ((a * b + c).tanh() * b.sigmoid() + (-c * c).exp()).sum()


def over(size, function):
    """A case that calls function with three tensors of that size."""
    def case():
        def make_body(call):
            a, b, c = torch.randn(size), torch.randn(size), torch.randn(size)
            @torch.no_grad()
            def body(count):
                for _ in range(count):
                    call(a, b, c)
            return body
        return function, make_body
    return case


def iteration(y):
    return y * 1.01 + 1


def iterations():
    def make_body(call):
        start = torch.randn(MI)
        @torch.no_grad()
        def body(count):
            y = start
            for _ in range(count):
                y = call(y)
        return body
    return iteration, make_body


def dropout(x, y, _):
    return x + F.dropout(y, 0.1)


# ---- written from ops ----

def leaf(*shape):
    return torch.randn(shape, requires_grad=True)


def both_ways(call, leaves, *others, gradient=None):
    """Forward and backward of call(*leaves, *others), gradients dropped."""
    def body(count):
        for _ in range(count):
            call(*leaves, *others).backward(gradient)
            for tensor in leaves:
                tensor.grad = None
    return body


def layer_norm():
    def function(x, weight, bias):
        centred = x - x.mean(-1, keepdim=True)
        variance = (centred * centred).mean(-1, keepdim=True)
        return centred / (variance + 1e-5).sqrt() * weight + bias
    return function, lambda call: both_ways(call, [leaf(256, 1024), leaf(1024), leaf(1024)], gradient=torch.randn(256, 1024))


def cross_entropy():
    def function(x, labels):
        shifted = x - x.amax(-1, keepdim=True)
        logs = shifted - shifted.exp().sum(-1, keepdim=True).log()
        return -logs.gather(1, labels).mean()
    return function, lambda call: both_ways(call, [leaf(256, 1024)], torch.randint(0, 1024, (256, 1)))


def adam_values(p, g, m, v, correction1, correction2):
    m = m * 0.9 + g * (1 - 0.9)
    v = v * 0.999 + g * g * (1 - 0.999)
    return p - (m / correction1) / ((v / correction2).sqrt() + 1e-8) * 1e-3, m, v


def adam_writes(p, g, m, v, correction1, correction2):
    m.mul_(0.9).add_(g * (1 - 0.9))
    v.mul_(0.999).add_(g * g * (1 - 0.999))
    p.sub_((m / correction1) / ((v / correction2).sqrt() + 1e-8) * 1e-3)
    return p, m, v


def adam(function):
    """Steps on a million parameters; what changes from step to step are tensors, for which nothing is compiled again."""
    def make_body(call):
        p, g, m, v = torch.randn(MI), torch.randn(MI), torch.zeros(MI), torch.zeros(MI)
        step = 0
        @torch.no_grad()
        def body(count):
            nonlocal p, m, v, step
            for _ in range(count):
                step += 1
                p, m, v = call(p, g, m, v, torch.tensor(1 - 0.9 ** step), torch.tensor(1 - 0.999 ** step))
        return body
    return function, make_body


# ---- training ----

def adam_of(parameters):
    """PyTorch's fastest Adam: one kernel, where this PyTorch has it on a CPU."""
    try:
        return torch.optim.Adam(parameters, lr=1e-3, fused=True)
    except (RuntimeError, TypeError):
        return torch.optim.Adam(parameters, lr=1e-3)


def steps(parameters, loss_of, *batch):
    """What gives the loss of the batch, and steps of Adam on it."""
    optimizer = adam_of(parameters)
    def make_body(call):
        def body(count):
            for _ in range(count):
                loss = call(*batch)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                loss.item()
        return body
    return loss_of, make_body


def vae():
    encoder, mean, log_variance = nn.Linear(784, 400), nn.Linear(400, 20), nn.Linear(400, 20)
    decoder = nn.Sequential(nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, 784))
    def loss_of(x):
        h = encoder(x).relu()
        mu, logs = mean(h), log_variance(h)
        logits = decoder(mu + (logs * 0.5).exp() * torch.randn(128, 20))
        reconstruction = (logits.clamp(min=0) - logits * x + (1 + (-logits.abs()).exp()).log()).sum()
        divergence = (1 + logs - mu * mu - logs.exp()).sum() * -0.5
        return (reconstruction + divergence) / 128
    return steps(nn.ModuleList([encoder, mean, log_variance, decoder]).parameters(), loss_of, torch.rand(128, 784))


def diffusion():
    net = nn.Sequential(
        nn.Linear(2 + 64, 256), nn.SiLU(), nn.Linear(256, 256), nn.SiLU(), nn.Linear(256, 256), nn.SiLU(), nn.Linear(256, 2))
    frequencies = torch.exp(torch.arange(32) * (-math.log(10000) / 32))
    def loss_of(x):
        t, noise = torch.rand(512, 1), torch.randn(512, 2)
        angle = t * 1000 * frequencies
        kept = torch.cos(t * (math.pi / 2))
        noisy = x * kept + noise * (1 - kept * kept).sqrt()
        difference = net(torch.cat([noisy, angle.sin(), angle.cos()], 1)) - noise
        return (difference * difference).mean()
    return steps(net.parameters(), loss_of, torch.randn(512, 2))


CASES = {
    "loop": iterations,
    "dropout": over(MI, dropout),
    "layer_norm": layer_norm,
    "cross_entropy": cross_entropy,
    "adam": lambda: adam(adam_values),
    "adam_": lambda: adam(adam_writes),
    "vae": vae,
    "diffusion": diffusion,
}
for name, size in {"64k": 64 * KI, "1m": MI, "16m": 16 * MI}.items():
    CASES["norm7_" + name] = over(size, norm7)
    CASES["muladd_" + name] = over(size, muladd)
    CASES["sum_" + name] = over(size, total)


# ---- eager or compiled ----

compiled = {}   # by case: what is compiled, compiled or None, and what makes a body of either


def prepare(case):
    """The function of the case, the same compiled or None, and what makes a body; why nothing is compiled."""
    function, make_body = case()
    if not hasattr(torch, "compile"):
        return function, None, make_body, "this PyTorch has no torch.compile"
    fast = torch.compile(function, dynamic=False)
    try:
        make_body(fast)(1)
    except Exception as error:     # there are many reasons, as many classes
        words = "no C++ compiler" if "ompiler" in type(error).__name__ + str(error) else str(error).split("\n")[0]
        return function, None, make_body, "torch.compile fails, " + words
    return function, fast, make_body, None


def faster(measure, name, case, seconds):
    """Seconds per call of the faster way to do a case, and which one it is."""
    if name not in compiled:
        compiled[name] = prepare(case)
    function, fast, make_body, problem = compiled[name]
    eager = measure(make_body(function), seconds)
    if problem:
        return eager, "eager alone: " + problem
    quick = measure(make_body(fast), seconds)
    return (quick, "compiled") if quick < eager else (eager, "eager")
