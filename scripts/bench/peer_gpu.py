"""PyTorch's side of the benchmarks on the GPU: cases as cases/gpu.lua describes them, "name,dtype,AxBxC,extra".

Where this PyTorch lacks the best way to compute a case, it does it in another and says so after the figure. GPU_DRY=1 and
no GPU: everything runs on the CPU, at whatever speed, to show that it runs. BENCH_TF32=1: products and convolutions of float32
through TF32.
"""

import os
import resource
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

import peer
from peer import loop

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
BURST = 200     # calls that fit into every queue on the way to a GPU
notes = []      # what is to be said about the case at hand


def note(text):
    if text not in notes:
        notes.append(text)


def dtype_of(name):
    """The dtype of that name; float32 on a CPU that can't compute with float16."""
    if name == "float16" and not ON_GPU:
        note("float32")
        return torch.float32
    return getattr(torch, name)


def randn(shape, dtype, wants=False):
    return torch.randn(shape, device=DEVICE).to(dtype).requires_grad_(wants)


def positions(limit, shape):
    return torch.randint(0, limit, shape, device=DEVICE)


def backward(y, leaves):
    g = torch.randn_like(y)
    return loop(lambda: torch.autograd.grad(y, leaves, g, retain_graph=True))


def copy(dtype, shape):
    x, y = randn(shape, dtype), randn(shape, dtype)
    return loop(y.copy_, x)


def simple(function):
    def setup(dtype, shape):
        return loop(function, randn(shape, dtype), randn(shape, dtype))
    return setup


def addrow(dtype, shape):
    return loop(torch.add, randn(shape, dtype), randn(shape[-1:], dtype))


def addturned(dtype, shape):
    return loop(torch.add, randn(shape, dtype), randn(shape[::-1], dtype).t())


def expand(dtype, shape):
    row = randn(shape[-1:], dtype)
    return loop(lambda: row.expand(shape).contiguous())


def expand_backward(dtype, shape):
    row = randn(shape[-1:], dtype, True)
    return backward(row.expand(shape), [row])


def backward_of(function):
    def setup(dtype, shape):
        x = randn(shape, dtype, True)
        return backward(function(x), [x])
    return setup


def normed(dtype, shape):
    n = shape[-1]
    leaves = [randn(shape, dtype, True), randn((n,), dtype, True), randn((n,), dtype, True)]
    return lambda: F.layer_norm(leaves[0], (n,), leaves[1], leaves[2]), leaves


def layer_norm(dtype, shape):
    function, _ = normed(dtype, shape)

    def body(count):
        with torch.no_grad():
            for _ in range(count):
                function()
    return body


def layer_norm_backward(dtype, shape):
    function, leaves = normed(dtype, shape)
    return backward(function(), leaves)


def cross_entropy(dtype, shape):
    x, y = randn(shape, dtype, True), positions(shape[1], shape[:1])
    return peer.both_ways(lambda: F.cross_entropy(x, y), [x])


def permute(dtype, shape, axes):
    view = randn(shape, dtype).permute(axes)
    return loop(view.contiguous)


# ---- products ----

def matmul(dtype, shape):
    m, n, k = shape
    return loop(torch.matmul, randn((m, k), dtype), randn((k, n), dtype))


def linear(dtype, shape):
    rows, inputs, outputs = shape
    return loop(F.linear, randn((rows, inputs), dtype), randn((outputs, inputs), dtype), randn((outputs,), dtype))


def bmm(dtype, shape):
    batch, m, n, k = shape
    return loop(torch.bmm, randn((batch, m, k), dtype), randn((batch, k, n), dtype))


def convolution(dtype, shape, wants):
    images, channels, out, size, window = shape
    leaves = [randn((images, channels, size, size), dtype, wants), randn((out, channels, window, window), dtype, wants)]
    return lambda: F.conv2d(*leaves, padding=window // 2), leaves


def conv2d(dtype, shape):
    return loop(convolution(dtype, shape, False)[0])


def conv2d_backward(dtype, shape):
    function, leaves = convolution(dtype, shape, True)
    return backward(function(), leaves)


def causal(q, k, v, dropout=0.0):
    """PyTorch's fused attention; before 2.0 there is none."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
    note("no fused attention")
    steps = q.shape[-2]
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    later = torch.ones(steps, steps, dtype=torch.bool, device=q.device).triu(1)
    return F.dropout(scores.masked_fill(later, float("-inf")).softmax(-1), dropout) @ v


def attention_of(dtype, shape, wants):
    leaves = [randn(shape, dtype, wants) for _ in range(3)]
    return lambda: causal(*leaves), leaves


def attention(dtype, shape):
    return loop(attention_of(dtype, shape, False)[0])


def attention_backward(dtype, shape):
    function, leaves = attention_of(dtype, shape, True)
    return backward(function(), leaves)


# ---- factors ----

def of_positive(function):
    """Of symmetric positive matrices; x: right-hand sides."""
    def setup(dtype, shape):
        x = randn(shape, dtype)
        n = shape[-1]
        a = x @ x.mT / n + torch.eye(n, dtype=dtype, device=DEVICE)
        return loop(function, a, x)
    return setup


# ---- tables ----

def embedding(dtype, shape):
    rows, width, count = shape
    return loop(F.embedding, positions(rows, (count,)), randn((rows, width), dtype))


def embedding_backward(dtype, shape):
    rows, width, count = shape
    weight = randn((rows, width), dtype, True)
    return backward(F.embedding(positions(rows, (count,)), weight), [weight])


def index_select(dtype, shape):
    return loop(randn(shape, dtype).index_select, 0, torch.randperm(shape[0], device=DEVICE))


# ---- copies between host and device ----

def pinned(x):
    if ON_GPU:
        return x.pin_memory()
    note("not pinned")
    return x


def to_device(dtype, shape, pin=(0,)):
    x = torch.randn(shape).to(dtype)
    if pin[0]:
        x = pinned(x)
    return loop(lambda: x.to(DEVICE, non_blocking=True, copy=True))


def to_host(dtype, shape, pin=(0,)):
    x = randn(shape, dtype)
    if pin[0]:
        y = pinned(torch.empty(shape, dtype=dtype))
        return loop(lambda: y.copy_(x, non_blocking=True))
    return loop(lambda: x.to("cpu", copy=True))


def item(dtype, shape):
    return loop(randn(shape, dtype)[0].item)


# ---- optimizers ----

def parameters_of(dtype, shape):
    """Parameters with gradients: those of a GPT's blocks, depth x width, or one of that many elements."""
    if len(shape) == 1:
        sizes = [shape]
    else:
        times, d = shape
        sizes = times * [(d,), (d,), (3 * d, d), (3 * d,), (d, d), (d,), (d,), (d,), (4 * d, d), (4 * d,), (d, 4 * d), (d,)]
    parameters = [randn(size, dtype, True) for size in sizes]
    for p in parameters:
        p.grad = torch.randn_like(p)
    return parameters


def fused(kind, parameters, **options):
    """The optimizer with its fused kernel; where this PyTorch or device has none, over lists of tensors."""
    try:
        return kind(parameters, fused=True, **options)
    except (TypeError, RuntimeError):
        note("optimizer not fused")
    try:
        return kind(parameters, foreach=True, **options)
    except TypeError:
        return kind(parameters, **options)


def optimizer_of(kind, **options):
    return lambda dtype, shape: loop(fused(kind, parameters_of(dtype, shape), lr=1e-4, **options).step)


def clip_grad_norm(parameters):
    try:
        nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
    except TypeError:
        nn.utils.clip_grad_norm_(parameters, 1.0)


def clip(dtype, shape):
    return loop(clip_grad_norm, parameters_of(dtype, shape))


# ---- whole steps ----

class Attention(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, steps, width = x.shape
        q, k, v = self.qkv(x).view(batch, steps, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = causal(q, k, v, self.dropout)
        return self.projection(y.transpose(1, 2).reshape(batch, steps, width))


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.mlp(self.norm2(x)))


class GPT(nn.Module):
    def __init__(self, characters, layers, width, heads, context, dropout, tied):
        super().__init__()
        self.characters, self.positions = nn.Embedding(characters, width), nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*[Block(width, heads, dropout) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, characters, bias=not tied)
        if tied:
            self.head.weight = self.characters.weight

    def forward(self, x):
        places = torch.arange(x.shape[1], device=x.device)
        return self.head(self.norm(self.blocks(self.dropout(self.characters(x) + self.positions(places)))))


def graphed(step, sample):
    """The step as one CUDA graph, after some on a stream of their own, as a capture asks for."""
    if not ON_GPU:
        note("no graph")
        return step
    held, stream, graph = sample.clone(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(held)
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        loss = step(held)

    def replay(piece):
        held.copy_(piece, non_blocking=True)
        graph.replay()
        return loss
    return replay


def gpt(dtype, shape, extra):
    characters, layers, width, heads, context, batch = shape
    model = GPT(characters, layers, width, heads, context, extra[0] / 100, extra[1] == 1).to(DEVICE, dtype)
    parameters, captured = list(model.parameters()), extra[2:] == [1]
    options = {"capturable": True} if captured and ON_GPU else {}
    optimizer = fused(torch.optim.AdamW, parameters, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.1, **options)
    windows = torch.randint(0, characters, (100000,)).unfold(0, context + 1, 1)

    def draw():
        return windows[torch.randint(0, len(windows), (batch,))].to(DEVICE, non_blocking=True)

    def step(piece):
        loss = F.cross_entropy(model(piece[:, :-1]).flatten(0, 1), piece[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        clip_grad_norm(parameters)
        optimizer.step()
        return loss

    if captured:
        step = graphed(step, draw())
    return loop(lambda: step(draw()).item())


OPS = {
    "copy": copy, "addrow": addrow, "addturned": addturned, "expand": expand, "expand_backward": expand_backward,
    "softmax_backward": backward_of(lambda x: x.softmax(-1)), "log_softmax_backward": backward_of(lambda x: x.log_softmax(-1)),
    "layer_norm": layer_norm, "layer_norm_backward": layer_norm_backward, "cross_entropy": cross_entropy, "permute": permute,
    "matmul": matmul, "linear": linear, "bmm": bmm, "attention": attention, "attention_backward": attention_backward,
    "conv2d": conv2d, "conv2d_backward": conv2d_backward, "max_pool2d": simple(lambda x, y: F.max_pool2d(x, 2)),
    "max_pool2d_backward": backward_of(lambda x: F.max_pool2d(x, 2)), "cumsum": simple(lambda x, y: x.cumsum(-1)),
    "cholesky": of_positive(lambda a, x: torch.linalg.cholesky(a)), "inv": of_positive(lambda a, x: torch.linalg.inv(a)),
    "solve": of_positive(torch.linalg.solve), "qr": of_positive(lambda a, x: torch.linalg.qr(a)),
    "eigh": of_positive(lambda a, x: torch.linalg.eigh(a)),
    "svd": of_positive(lambda a, x: torch.linalg.svd(a, full_matrices=False)),
    "embedding": embedding, "embedding_backward": embedding_backward, "index_select": index_select,
    "to_device": to_device, "to_host": to_host, "item": item, "clip": clip, "gpt": gpt,
    "sgd": optimizer_of(torch.optim.SGD, momentum=0.9), "adam": optimizer_of(torch.optim.Adam),
    "adamw": optimizer_of(torch.optim.AdamW, weight_decay=0.01),
    "add": simple(lambda x, y: x + y), "mulnum": simple(lambda x, y: x * 1.5), "exp": simple(lambda x, y: x.exp()),
    "norm7": simple(lambda x, y: (x * x + y * y).clamp(1e-6).sqrt() / (1 + (x - y).abs())),
    "muladd": simple(lambda x, y: x * y + x),
    "gate": simple(lambda x, y: (x * y + x).tanh() * y.sigmoid() + (-x * x).exp()),
    "gelu": simple(lambda x, y: F.gelu(x)), "tanh": simple(lambda x, y: x.tanh()), "relu": simple(lambda x, y: x.relu()),
    "where": simple(lambda x, y: torch.where(x > 0, x, y)), "masked_fill": simple(lambda x, y: x.masked_fill(y > 0, 0)),
    "sum": simple(lambda x, y: x.sum()), "sumlast": simple(lambda x, y: x.sum(-1)), "sumfirst": simple(lambda x, y: x.sum(0)),
    "summiddle": simple(lambda x, y: x.sum(1)), "summany": simple(lambda x, y: x.sum((0, 2))),
    "mean": simple(lambda x, y: x.mean(-1)), "max": simple(lambda x, y: x.max(-1)), "argmax": simple(lambda x, y: x.argmax(-1)),
    "norm": simple(lambda x, y: x.norm()), "var": simple(lambda x, y: x.var(-1)), "logsumexp": simple(lambda x, y: x.logsumexp(-1)),
    "sort": simple(lambda x, y: x.sort(-1)), "topk": simple(lambda x, y: x.topk(min(40, x.shape[-1]), -1)),
    "softmax": simple(lambda x, y: x.softmax(-1)), "log_softmax": simple(lambda x, y: x.log_softmax(-1)),
    "dropout": simple(lambda x, y: F.dropout(x, 0.1)), "rep": simple(lambda x, y: x.repeat(2, 1)),
    "cast": simple(lambda x, y: x.to(torch.bfloat16)), "add_": simple(lambda x, y: x.add_(y)), "view": simple(lambda x, y: x.view(-1)),
    "randn": lambda dtype, shape: loop(lambda: torch.randn(shape, device=DEVICE, dtype=dtype)),
    "rand": lambda dtype, shape: loop(lambda: torch.rand(shape, device=DEVICE, dtype=dtype)),
}


def setup(case):
    """The body of a case that its words describe."""
    name, dtype, shape, *extra = case.split(",")
    if name not in OPS:
        raise ValueError("PyTorch has no " + name)
    sizes = tuple(int(n) for n in shape.split("x"))
    rest = [[int(n) for n in extra[0].split("x")]] if extra else []
    return OPS[name](dtype_of(dtype), sizes, *rest)


# ---- measuring ----

def host(body, seconds):
    """Seconds of this thread for one call, what it queued being waited for outside of the clock."""
    results, ends = [], time.perf_counter() + seconds
    body(BURST)
    peer.synchronize()
    while not results or time.perf_counter() < ends:
        began = time.perf_counter()
        body(BURST)
        results.append((time.perf_counter() - began) / BURST)
        peer.synchronize()
    return statistics.median(results)


def peak(body, _):
    """Most bytes of the GPU that were in use at once, body having run before."""
    body(2)
    peer.synchronize()
    if not ON_GPU:
        note("the whole process")
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    torch.cuda.reset_peak_memory_stats()
    body(2)
    peer.synchronize()
    return torch.cuda.max_memory_allocated()


MEASURES = {"time": peer.measure, "host": host, "peak": peak}


def answer(case, seconds):
    notes.clear()
    measure, name = case.split("/") if "/" in case else ("time", case)
    return "%.9g %s" % (MEASURES[measure](setup(name), seconds), ", ".join(notes))


def main():
    if ON_GPU:
        peer.synchronize = torch.cuda.synchronize
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = os.environ.get("BENCH_TF32") == "1"
    elif os.environ.get("GPU_DRY") != "1":
        sys.exit("this PyTorch sees no GPU")
    for line in sys.stdin:
        if line == "end\n":
            break
        _, case, seconds = line.split()
        try:
            result = answer(case, float(seconds))
            if ON_GPU:
                torch.cuda.empty_cache()
        except Exception as error:      # pylint: disable=broad-except
            result = "error: " + str(error).replace("\n", " ")
        print(result, flush=True)


main()
