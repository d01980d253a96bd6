"""PyTorch's side of the benchmarks on the GPU: cases as cases/gpu.lua describes them, "name,dtype,AxBxC,extra"."""

import sys

import torch
from torch import nn
from torch.nn import functional as F

import peer
from peer import loop


def randn(shape, dtype, wants=False):
    return torch.randn(shape, device="cuda").to(dtype).requires_grad_(wants)


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


def softmax_backward(dtype, shape):
    x = randn(shape, dtype, True)
    return backward(x.softmax(-1), [x])


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
    x, y = randn(shape, dtype, True), torch.randint(0, shape[1], shape[:1], device="cuda")
    return peer.both_ways(lambda: F.cross_entropy(x, y), [x])


def permute(dtype, shape, axes):
    view = randn(shape, dtype).permute(axes)
    return loop(lambda: view.contiguous())


def matmul(dtype, shape):
    m, n, k = shape
    return loop(torch.matmul, randn((m, k), dtype), randn((k, n), dtype))


def linear(dtype, shape):
    rows, inputs, outputs = shape
    return loop(F.linear, randn((rows, inputs), dtype), randn((outputs, inputs), dtype), randn((outputs,), dtype))


def bmm(dtype, shape):
    batch, m, n, k = shape
    return loop(torch.bmm, randn((batch, m, k), dtype), randn((batch, k, n), dtype))


def attention_of(dtype, shape, wants):
    leaves = [randn(shape, dtype, wants) for _ in range(3)]
    return lambda: F.scaled_dot_product_attention(*leaves, is_causal=True), leaves


def attention(dtype, shape):
    return loop(attention_of(dtype, shape, False)[0])


def attention_backward(dtype, shape):
    function, leaves = attention_of(dtype, shape, True)
    return backward(function(), leaves)


def embedding(dtype, shape):
    rows, width, count = shape
    return loop(F.embedding, torch.randint(0, rows, (count,), device="cuda"), randn((rows, width), dtype))


def adamw(dtype, shape):
    if len(shape) == 1:
        sizes = [shape]
    else:
        times, d = shape
        sizes = times * [(d,), (d,), (3 * d, d), (3 * d,), (d, d), (d,)]
    parameters = [randn(size, dtype, True) for size in sizes]
    for p in parameters:
        p.grad = torch.randn_like(p)
    return loop(torch.optim.AdamW(parameters, lr=1e-4, fused=True).step)


class Attention(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, steps, width = x.shape
        q, k, v = self.qkv(x).view(batch, steps, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout, is_causal=True)
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
    def __init__(self, characters, layers, width, heads, context, dropout):
        super().__init__()
        self.characters, self.positions = nn.Embedding(characters, width), nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*[Block(width, heads, dropout) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, characters)

    def forward(self, x):
        places = torch.arange(x.shape[1], device=x.device)
        return self.head(self.norm(self.blocks(self.dropout(self.characters(x) + self.positions(places)))))


def gpt(dtype, shape, extra):
    characters, layers, width, heads, context, batch = shape
    model = GPT(characters, layers, width, heads, context, extra[0] / 100).to("cuda", dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.99), weight_decay=0.1, fused=True)
    windows = torch.randint(0, characters, (100000,)).unfold(0, context + 1, 1)

    def body(count):
        for _ in range(count):
            piece = windows[torch.randint(0, len(windows), (batch,))].to("cuda", non_blocking=True)
            loss = F.cross_entropy(model(piece[:, :-1]).flatten(0, 1), piece[:, 1:].flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
            optimizer.step()
            loss.item()
    return body


OPS = {
    "copy": copy, "addrow": addrow, "addturned": addturned, "softmax_backward": softmax_backward, "layer_norm": layer_norm,
    "layer_norm_backward": layer_norm_backward, "cross_entropy": cross_entropy, "permute": permute, "matmul": matmul,
    "linear": linear, "bmm": bmm, "attention": attention, "attention_backward": attention_backward, "embedding": embedding,
    "adamw": adamw, "gpt": gpt,
    "add": simple(lambda x, y: x + y), "mulnum": simple(lambda x, y: x * 1.5), "exp": simple(lambda x, y: x.exp()),
    "gelu": simple(lambda x, y: F.gelu(x)), "tanh": simple(lambda x, y: x.tanh()),
    "where": simple(lambda x, y: torch.where(x > 0, x, y)),
    "sum": simple(lambda x, y: x.sum()), "sumlast": simple(lambda x, y: x.sum(-1)), "sumfirst": simple(lambda x, y: x.sum(0)),
    "summiddle": simple(lambda x, y: x.sum(1)), "mean": simple(lambda x, y: x.mean(-1)), "max": simple(lambda x, y: x.max(-1)),
    "argmax": simple(lambda x, y: x.argmax(-1)), "norm": simple(lambda x, y: x.norm()),
    "cumsum": simple(lambda x, y: x.cumsum(-1)), "softmax": simple(lambda x, y: x.softmax(-1)),
    "log_softmax": simple(lambda x, y: x.log_softmax(-1)), "dropout": simple(lambda x, y: F.dropout(x, 0.1)),
    "cast": simple(lambda x, y: x.to(torch.bfloat16)), "add_": simple(lambda x, y: x.add_(y)), "view": simple(lambda x, y: x.view(-1)),
    "randn": lambda dtype, shape: loop(lambda: torch.randn(shape, device="cuda", dtype=dtype)),
    "rand": lambda dtype, shape: loop(lambda: torch.rand(shape, device="cuda", dtype=dtype)),
}


def setup(case):
    """The body of a case that its words describe."""
    name, dtype, shape, *extra = case.split(",")
    sizes = tuple(int(n) for n in shape.split("x"))
    rest = [[int(n) for n in extra[0].split("x")]] if extra else []
    return OPS[name](getattr(torch, dtype), sizes, *rest)


def main():
    if not torch.cuda.is_available():
        sys.exit("this PyTorch sees no GPU")
    peer.synchronize = torch.cuda.synchronize
    for line in sys.stdin:
        if line == "end\n":
            break
        _, case, seconds = line.split()
        try:
            result = "%.9g" % peer.measure(setup(case), float(seconds))
        except Exception as error:      # pylint: disable=broad-except
            result = "error: " + str(error).replace("\n", " ")
        torch.cuda.empty_cache()
        print(result, flush=True)


main()
