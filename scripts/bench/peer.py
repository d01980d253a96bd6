"""PyTorch's side of the benchmarks: the same cases as cases/*.lua, measured in the same way.

A request is a line "group case seconds"; the answer a line "seconds-per-call", after it what is to be said about it,
or "error: why"; the line "end" ends it. Under mpirun the ranks are a gloo group: all read the requests, and the first one answers. `peer.py first`
instead prints the time of the monotonic clock at which the first collective was done.
"""

import os
import random
import statistics
import sys
import time

import torch
from torch import distributed, nn
from torch.nn import functional as F

import peer_chains
import peer_sweep

MI = 1024 * 1024
RANK = int(os.environ.get("OMPI_COMM_WORLD_RANK", 0))
RANKS = int(os.environ.get("OMPI_COMM_WORLD_SIZE", 1))
DEVICE = os.environ.get("BENCH_DEVICE", "cpu")     # of the tensors of collectives
# BENCH_CLOCK=cpu: what this process has worked, whatever else runs on the machine
clock = time.process_time if os.environ.get("BENCH_CLOCK") == "cpu" else time.perf_counter


# ---- measuring ----

def slowest(seconds):
    """The most seconds of any rank: with them all ranks decide alike."""
    if RANKS == 1:
        return seconds
    most = torch.tensor(seconds, dtype=torch.float64)
    distributed.all_reduce(most, distributed.ReduceOp.MAX)
    return most.item()


def synchronize():
    """Waits for what is queued; a device's own where there is one."""


def run(body, count):
    if RANKS > 1:
        distributed.barrier()
    began = clock()
    body(count)
    synchronize()
    return slowest(clock() - began)


def measure(body, seconds):
    runs, count = 4, 1
    run(body, 1)
    took = run(body, 1)
    while took < seconds / runs / 2:
        count *= max(2, min(100, int(seconds / runs / max(took, 1e-7))))
        took = run(body, count)
    results = [took / count] + [run(body, count) / count for _ in range(runs - 2)]
    return statistics.median(results)


def loop(function, *arguments):
    """A case that calls function(*arguments)."""
    def body(count):
        for _ in range(count):
            function(*arguments)
    return body


# ---- small ops ----

def add():
    a, b = torch.randn(16), torch.randn(16)
    def body(count):
        for _ in range(count):
            a + b
    return body


def add_():
    return loop(torch.zeros(16).add_, torch.full((16,), 1e-6))


def add_number():
    a = torch.randn(16)
    def body(count):
        for _ in range(count):
            a + 1.5
    return body


def index(key):
    def setup():
        a = torch.randn(16)
        def body(count):
            for _ in range(count):
                a[key]
        return body
    return setup


def linear():
    layer, x = nn.Linear(16, 32), torch.randn(8, 16)
    def body(count):
        with torch.no_grad():
            for _ in range(count):
                layer(x)
    return body


SMALL = {
    "add": add,
    "add_": add_,
    "view": lambda: loop(torch.randn(16).view, 4, 4),
    "transpose": lambda: loop(torch.randn(4, 4).transpose, 0, 1),
    "add_number": add_number,
    "mul_number_": lambda: loop(torch.ones(16).mul_, 1.0000001),
    "select": index(3),
    "range": index(slice(1, 3)),
    "item": lambda: loop(torch.randn(()).item),
    "empty": lambda: loop(torch.empty, 16),
    "sum": lambda: loop(torch.randn(16).sum),
    "softmax": lambda: loop(torch.randn(8, 16).softmax, -1),
    "matmul": lambda: loop(torch.randn(4, 4).matmul, torch.randn(4, 4)),
    "linear": linear,
}


# ---- autograd ----

def chain(w_wants):
    def setup():
        length = 10
        x = torch.randn(16, requires_grad=True)
        w = torch.full((16,), 0.999, requires_grad=w_wants)
        ones = torch.ones(16)
        def body(count):
            for _ in range(max(1, count // length)):
                y = x
                for _ in range(length):
                    y = y * w
                y.backward(ones)
                x.grad = w.grad = None
        return body
    return setup


def recorded(record):
    def setup():
        a, b = torch.randn(16, requires_grad=True), torch.randn(16)
        def body(count):
            with torch.set_grad_enabled(record):
                for _ in range(count):
                    a + b
        return body
    return setup


GRAD = {
    "chain": chain(False),
    "chain_leaves": chain(True),
    "forward": recorded(True),
    "no_grad": recorded(False),
}


# ---- large tensors ----

def over(size, inputs, function):
    def setup():
        return loop(function, *[torch.randn(size) for _ in range(inputs)])
    return setup


LARGE = {
    "copy": over(16 * MI, 2, lambda a, b: a.copy_(b)),
    "add": over(16 * MI, 2, lambda a, b: a + b),
    "tanh": over(MI, 1, torch.tanh),
    "gelu": over(MI, 1, lambda a: F.gelu(a, approximate="tanh")),
    "exp": over(MI, 1, torch.exp),
    "muladd_1m": over(MI, 3, lambda a, b, c: a * b + c),
    "muladd_16m": over(16 * MI, 3, lambda a, b, c: a * b + c),
    "sum": over(16 * MI, 1, torch.sum),
    "cumsum": over(16 * MI, 1, lambda a: a.cumsum(0)),
    "flip": over(16 * MI, 1, lambda a: a.flip(0)),
    "roll": over(16 * MI, 1, lambda a: a.roll(1, 0)),
    "scatter": lambda: loop(torch.randn(1024, 1024).scatter_, 1, torch.randint(0, 1024, (1024, 1024)), torch.randn(1024, 1024)),
    "scatter_add": lambda: loop(torch.randn(1024, 1024).scatter_add_, 1, torch.randint(0, 1024, (1024, 1024)), torch.randn(1024, 1024)),
    "sort": over(MI, 1, torch.sort),
    "topk": over(MI, 1, lambda a: a.topk(10)),
    "sort_rows": lambda: loop(torch.sort, torch.randn(4096, 1024)),
    "randn": over(16 * MI, 0, lambda: torch.randn(16 * MI)),
    "uniform": over(16 * MI, 0, lambda: torch.rand(16 * MI)),
}


def product(a_shape, b_shape, turned=False):
    def setup():
        a, b = torch.randn(a_shape), torch.randn(b_shape)
        return loop(torch.matmul, a, b.t() if turned else b)
    return setup


MATMUL = {
    "m64": product((64, 64), (64, 64)),
    "m256": product((256, 256), (256, 256)),
    "m1024": product((1024, 1024), (1024, 1024)),
    "mlp": product((768, 128), (128, 384)),
    "linear": product((768, 128), (512, 128), True),
    "batch": product((48, 64, 32), (48, 32, 64)),
}


# ---- linear algebra ----

def factors():
    """The cases of cases/linalg.lua."""
    ops = {
        "det": torch.linalg.det, "inv": torch.linalg.inv, "solve": lambda a: torch.linalg.solve(a, a),
        "cholesky": torch.linalg.cholesky, "qr": torch.linalg.qr, "eigh": torch.linalg.eigh, "svd": torch.linalg.svd,
        "triangular": lambda a: torch.linalg.solve_triangular(a, a, upper=False), "exp": torch.matrix_exp,
        "pinv": torch.linalg.pinv,
    }

    def positive(shape):
        a = torch.randn(shape)
        return a @ a.mT / shape[-1] + torch.eye(shape[-1])

    def trained(shape):
        a = positive(shape).requires_grad_()
        def step():
            torch.linalg.inv(a).sum().backward()
            a.grad = None
        return loop(step)

    cases = {}
    for name, shape in (("small", (1000, 4, 4)), ("large", (512, 512))):
        for op, function in ops.items():
            cases[op + "_" + name] = lambda f=function, s=shape: loop(f, positive(s))
        cases["inv_train_" + name] = lambda s=shape: trained(s)
    return cases


LINALG = factors()


def permuted(shape, axes):
    return lambda: loop(torch.randn(shape).permute(axes).contiguous)


PERMUTE = {
    "matrices": permuted((64, 1024, 1024), (0, 2, 1)),
    "nhwc": permuted((32, 64, 56, 56), (0, 2, 3, 1)),
    "square": permuted((4096, 4096), (1, 0)),
    "attention": permuted((12, 4, 64, 32), (0, 1, 3, 2)),
}


# ---- parts of networks ----

def leaf(*shape):
    return torch.randn(shape, requires_grad=True)


def both_ways(forward, leaves, gradient=None):
    """Forward and backward of forward(), gradients dropped."""
    def body(count):
        for _ in range(count):
            forward().backward(gradient)
            for tensor in leaves:
                tensor.grad = None
    return body


def cross_entropy():
    x, y = leaf(3072, 64), torch.randint(0, 64, (3072,))
    return both_ways(lambda: F.cross_entropy(x, y), [x])


def layer_norm():
    x, weight, bias = leaf(768, 65), leaf(65), leaf(65)
    return both_ways(lambda: F.layer_norm(x, (65,), weight, bias), [x, weight, bias], torch.randn(768, 65))


def linear_gelu():
    x, weight, bias = leaf(768, 128), leaf(512, 128), leaf(512)
    return both_ways(lambda: F.gelu(F.linear(x, weight, bias)), [x, weight, bias], torch.randn(768, 512))


def conv2d():
    return loop(F.conv2d, torch.randn(64, 16, 14, 14), torch.randn(32, 16, 3, 3), torch.randn(32), 1, 1)


def conv2d_train():
    x, weight, bias = leaf(8, 64, 56, 56), leaf(64, 64, 3, 3), leaf(64)
    return both_ways(lambda: F.conv2d(x, weight, bias, 1, 1), [x, weight, bias], torch.randn(8, 64, 56, 56))


def max_pool2d():
    x = leaf(64, 16, 28, 28)
    return both_ways(lambda: F.max_pool2d(x, 2), [x], torch.randn(64, 16, 14, 14))


def causal_attention(q, k, v, mask):
    scores = (q @ k.transpose(-2, -1)) * (1.0 / q.shape[-1] ** 0.5)
    return scores.masked_fill(mask, float("-inf")).softmax(-1) @ v


def later(time_steps):
    return torch.triu(torch.ones(time_steps, time_steps, dtype=torch.bool), 1)


def attention():
    q, k, v = [torch.randn(1, 8, 1024, 64) for _ in range(3)]
    return loop(causal_attention, q, k, v, later(1024))


def attention_train():
    q, k, v = [leaf(12, 4, 64, 32) for _ in range(3)]
    mask = later(64)
    return both_ways(lambda: causal_attention(q, k, v, mask), [q, k, v], torch.randn(12, 4, 64, 32))


NN = {
    "softmax": lambda: loop(torch.randn(3072, 64).softmax, -1),
    "cross_entropy": cross_entropy,
    "layer_norm": layer_norm,
    "linear_gelu": linear_gelu,
    "attention": attention,
    "attention_train": attention_train,
    "embedding": lambda: loop(F.embedding, torch.randint(0, 65, (768,)), torch.randn(65, 128)),
    "conv2d": conv2d,
    "conv2d_train": conv2d_train,
    "max_pool2d": max_pool2d,
}


# ---- recurrent layers, rows ----

def recurrent_steps(kind, width, time_steps, batch):
    def setup():
        embedding, layer = torch.nn.Embedding(65, width), getattr(torch.nn, kind)(width, width)
        head = torch.nn.Linear(width, 65)
        optimizer = torch.optim.AdamW([p for net in (embedding, layer, head) for p in net.parameters()], lr=1e-3)
        x, y = torch.randint(0, 65, (time_steps, batch)), torch.randint(0, 65, (time_steps * batch,))

        def step():
            optimizer.zero_grad()
            F.cross_entropy(head(layer(embedding(x))[0]).view(-1, 65), y).backward()
            optimizer.step()
        return loop(step)
    return setup


def without_gradients(function):
    def setup():
        call = function()

        def body():
            with torch.no_grad():
                call()
        return loop(body)
    return setup


def lstm_cell():
    cell, x, state = torch.nn.LSTMCell(128, 128), torch.randn(32, 128), (torch.randn(32, 128), torch.randn(32, 128))
    return lambda: cell(x, state)


def sequences(kind, width, time_steps, batch):
    layer, x = getattr(torch.nn, kind)(width, width), torch.randn(time_steps, batch, width)
    return lambda: layer(x)


def row(*weight, dtype=torch.float32, rows=1):
    x, w = torch.randn(rows, 768).to(dtype), torch.randn(*weight).to(dtype)
    return (lambda: x @ w) if weight[0] == 768 else (lambda: F.linear(x, w))


def bfloat16_product():
    x, w = torch.randn(64, 768).bfloat16(), torch.randn(768, 768).bfloat16()
    return lambda: F.linear(x, w)


def int64_product():
    a, b = torch.randint(-9, 9, (256, 256)), torch.randint(-9, 9, (256, 256))
    return lambda: a @ b


def encoder_layer():
    layer = torch.nn.TransformerEncoderLayer(128, 4, 512, 0.0)
    x = torch.randn(64, 12, 128)
    return both_ways(lambda: layer(x), list(layer.parameters()), torch.randn(64, 12, 128))


RECURRENT = {
    "lstm_128": recurrent_steps("LSTM", 128, 50, 32),
    "lstm_256": recurrent_steps("LSTM", 256, 100, 64),
    "lstm_512": recurrent_steps("LSTM", 512, 32, 32),
    "gru_128": recurrent_steps("GRU", 128, 50, 32),
    "gru_256": recurrent_steps("GRU", 256, 100, 64),
    "rnn_256": recurrent_steps("RNN", 256, 100, 64),
    "lstm_cell": without_gradients(lstm_cell),
    "lstm_forward": without_gradients(lambda: sequences("LSTM", 256, 64, 32)),
    "lstm_one": without_gradients(lambda: sequences("LSTM", 256, 64, 1)),
    "gru_one": without_gradients(lambda: sequences("GRU", 256, 64, 1)),
    "row": without_gradients(lambda: row(768, 16384)),
    "row_linear": without_gradients(lambda: row(16384, 768)),
    "few_rows": without_gradients(lambda: row(3072, 768, rows=32)),
    "row_bfloat16": without_gradients(lambda: row(16384, 768, dtype=torch.bfloat16)),
    "bfloat16": without_gradients(bfloat16_product),
    "int64": without_gradients(int64_product),
    "encoder_layer": encoder_layer,
}


# ---- optimizers ----

def gpt_shapes():
    d = 128
    block = [(d,), (d,), (3 * d, d), (3 * d,), (d, d), (d,), (d,), (d,), (4 * d, d), (4 * d,), (d, 4 * d), (d,)]
    return [(65, d), (64, d), (d,), (d,)] + 4 * block


def parameters(shapes):
    tensors = [leaf(*shape) for shape in shapes]
    for tensor in tensors:
        tensor.grad = torch.randn_like(tensor)
    return tensors


def steps_of(name, shapes=None, **options):
    """Steps in the fastest of PyTorch's ways on a CPU: fused where there is one, else foreach."""
    return lambda: loop(getattr(torch.optim, name)(parameters(shapes or gpt_shapes()), **options).step)


FUSED, LISTS = {"lr": 1e-4, "fused": True}, {"lr": 1e-4, "foreach": True}
OPTIM = {
    "adamw": steps_of("AdamW", **FUSED),
    "adamw_16m": steps_of("AdamW", [(16 * MI,)], **FUSED),
    "amsgrad": steps_of("AdamW", amsgrad=True, **FUSED),
    "sgd": steps_of("SGD", **FUSED),
    "momentum": steps_of("SGD", momentum=0.9, **FUSED),
    "momentum_20": steps_of("SGD", 20 * [(256, 256)], momentum=0.9, **FUSED),
    "rmsprop": steps_of("RMSprop", **LISTS),
    "rmsprop_all": steps_of("RMSprop", momentum=0.9, centered=True, **LISTS),
    "adagrad": steps_of("Adagrad", **FUSED),
    "adadelta": steps_of("Adadelta", foreach=True),
    "adamax": steps_of("Adamax", **LISTS),
    "nadam": steps_of("NAdam", **LISTS),
    "radam": steps_of("RAdam", **LISTS),
    "rprop": steps_of("Rprop", **LISTS),
    "asgd": steps_of("ASGD", **LISTS),
}


# ---- training ----

def step_of(net, x):
    """What gives the loss of a batch, and steps of a classifier of 10 classes on it."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    y = torch.randint(0, 10, (len(x),))
    def make_body(call):
        def body(count):
            for _ in range(count):
                loss = call(x, y)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
        return body
    return lambda x, y: F.cross_entropy(net(x), y), make_body


def steps(case):
    """Steps of a case as they are."""
    function, make_body = case()
    return make_body(function)


def tiny():
    return step_of(nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 10)), torch.randn(8, 16))


def mlp():
    return step_of(nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)), torch.randn(64, 784))


def cnn():
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 7 * 7, 10))
    return step_of(net, torch.randn(64, 1, 28, 28))


def file_of_rows(rows, size):
    path = os.environ["BENCH_FOLDER"] + "/bench.rows"
    with open(path, "wb") as file:
        for _ in range(rows):
            file.write(os.urandom(size))
    return path


def mapped_rows(size):
    """Batches of 2 MiB of a mapped file of 122 MiB, rows in random order, by one thread. They lie as records do, whose
    heads are between them."""
    rows, taken, apart = 122 * MI // size, 2 * MI // size, size + 72
    path = file_of_rows(rows, apart)
    mapped = torch.from_file(path, size=rows * apart, dtype=torch.uint8).as_strided((rows, size), (apart, 1))
    os.remove(path)
    order, out = torch.randperm(rows), torch.empty(taken, size, dtype=torch.uint8)

    def body(count):
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        for _ in range(count):
            for first in range(0, rows, taken):
                torch.index_select(mapped, 0, order[first:first + taken], out=out)
        torch.set_num_threads(threads)
    return body


def rows_in_order(size):
    """The same file by read(2), 2 MiB at a time, into the same buffer."""
    rows, taken = 122 * MI // size, 2 * MI // size
    path = file_of_rows(rows, size)
    file, out = os.open(path, os.O_RDONLY), bytearray(taken * size)
    os.remove(path)

    def body(count):
        for _ in range(count):
            for first in range(0, rows, taken):
                os.preadv(file, [out], first * size)
    return body


class Images(torch.utils.data.Dataset):
    """Rows of 784 floats; `augment`: mirrored and scaled, one by one."""
    def __init__(self, augment):
        self.images, self.labels = torch.randn(10000, 1, 28, 28), torch.randint(0, 10, (10000,))
        self.augment = augment

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        if self.augment:
            if random.random() < 0.5:
                image = image.flip(2)
            image = image * random.uniform(0.8, 1.2)
        return image, self.labels[index]


def batches(augment, workers):
    data = Images(augment)
    if not augment:
        data = torch.utils.data.TensorDataset(data.images, data.labels)
    loader = torch.utils.data.DataLoader(data, batch_size=64, shuffle=True, drop_last=True, num_workers=workers,
                                         persistent_workers=workers > 0)

    def endless():
        while True:
            yield from loader
    source = endless()

    def body(count):
        for _ in range(count):
            next(source)
    return body


LOADER = {
    "rows": lambda: batches(False, 0),
    "augment": lambda: batches(True, 0),
    "workers": lambda: batches(True, 2),
}


def tokenizer(name):
    from tokenizers import Tokenizer
    root = os.path.dirname(os.path.abspath(__file__)) + "/../../"
    with open(root + "README.md", encoding="utf-8") as file:
        return Tokenizer.from_file(root + "tests/tokens/" + name + ".json"), file.read()


def encoding(name):
    made, text = tokenizer(name)
    return loop(made.encode, text)


def decoding():
    made, text = tokenizer("bytes")
    return loop(made.decode, made.encode(text).ids)


TOKENS = {
    "bytes": lambda: encoding("bytes"),
    "spaces": lambda: encoding("spaces"),
    "words": lambda: encoding("words"),
    "decode": decoding,
}


ROWS = 200000
TABLES = {
    "integers": ("a,b,c,d\n", lambda i: "%d,%d,%d,%d\n" % (i, i * 7919 % 100003, -i, i % 10)),
    "floats": ("a,b,c,d\n", lambda i: "%.6f,%.6f,%.6f,%.6f\n" % (i / 7, i / 11, i / 13, -i / 17)),
    "digits": ("a,b,c\n", lambda i: "%.17g,%.17g,%.17g\n" % (i / 7, i / 11, -i / 13)),
    "mixed": ("a,b,c,d,e\n", lambda i: '%d,%.2f,"a, ""b"" and %d",city%d,%s\n' % (
        i, i / 7, i, i % 100, "true" if i % 3 == 0 else "false")),
}


def table(name, **options):
    import pandas
    path = "%s/peer-%s.csv" % (os.environ["BENCH_FOLDER"], name)
    header, row = TABLES[name]
    with open(path, "w", encoding="utf-8") as file:
        file.write(header)
        file.writelines(row(i) for i in range(1, ROWS + 1))
    return loop(lambda: pandas.read_csv(path, **options))


def npy():
    import numpy
    path = os.environ["BENCH_FOLDER"] + "/peer.npy"
    numpy.save(path, numpy.zeros((4096, 4096), "float32"))
    return loop(numpy.load, path)


FILES = {
    "integers": lambda: table("integers"),
    "floats": lambda: table("floats", float_precision="round_trip"),
    "digits": lambda: table("digits", float_precision="round_trip"),
    "mixed": lambda: table("mixed", dtype={"d": "category"}),
    "npy": npy,
}


def photographs(on_tensors):
    """Batches of 32 JPEG files that flowlua's side has made, on one thread; by ImageFolder's reader, or torchvision's."""
    from torchvision import datasets, io
    from torchvision.transforms import v2
    steps = [v2.RandomResizedCrop(224), v2.RandomHorizontalFlip()]
    steps += [] if on_tensors else [v2.PILToTensor()]
    steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]
    options = {"loader": lambda path: io.decode_image(path, mode=io.ImageReadMode.RGB)} if on_tensors else {}
    data = datasets.ImageFolder(os.environ["BENCH_FOLDER"] + "/images", transform=v2.Compose(steps), **options)
    loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True, drop_last=True)

    def endless():
        while True:
            yield from loader
    source = endless()

    def body(count):
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        for _ in range(count):
            next(source)
        torch.set_num_threads(threads)
    return body


IMAGES = {"batch": lambda: photographs(True), "pillow": lambda: photographs(False)}


class Attention(nn.Module):
    def __init__(self, width, heads, context, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mask = later(context)   # no buffer: gloo could not send booleans

    def forward(self, x):
        batch, steps, width = x.shape
        q, k, v = self.qkv(x).view(batch, steps, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) * (1.0 / k.shape[-1] ** 0.5)
        weights = F.dropout(scores.masked_fill(self.mask, float("-inf")).softmax(-1), self.dropout)
        return self.projection((weights @ v).transpose(1, 2).reshape(batch, steps, width))


class Block(nn.Module):
    def __init__(self, width, heads, context, dropout):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, context, dropout)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.mlp(self.norm2(x)))


class GPT(nn.Module):
    """The model of scripts/train.lua with its default options."""

    def __init__(self, characters, layers=4, width=128, heads=4, context=64, dropout=0.1):
        super().__init__()
        self.characters, self.positions = nn.Embedding(characters, width), nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*[Block(width, heads, context, dropout) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, characters)

    def forward(self, x):
        places = torch.arange(x.shape[1])
        return self.head(self.norm(self.blocks(self.dropout(self.characters(x) + self.positions(places)))))


def gpt():
    characters, batch = 100, 12 // RANKS
    model = GPT(characters)
    if RANKS > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.99), weight_decay=0.1)
    text = torch.randint(0, characters, (100000,))
    def make_body(call):
        def body(count):
            for _ in range(count):
                starts = torch.randint(0, len(text) - 65, (batch,)).tolist()
                x = torch.stack([text[i:i + 64] for i in starts])
                y = torch.stack([text[i + 1:i + 65] for i in starts])
                loss = call(x, y)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                loss.item()
        return body
    return lambda x, y: F.cross_entropy(model(x).flatten(0, 1), y.flatten()), make_body


# ---- several ranks, through gloo (which has no reduce-scatter) ----

def zeros(n):
    return torch.zeros(n, device=DEVICE)


def all_reduce(n):
    return loop(distributed.all_reduce, zeros(n))


def all_gather(n):
    return loop(distributed.all_gather, list(zeros(n).chunk(RANKS)), zeros(n // RANKS))


def all_to_all(n):
    return loop(distributed.all_to_all_single, zeros(n), zeros(n))


def of_sizes(collective):
    """Cases by name, the size being the bytes of the larger side of a rank."""
    sizes = {"4k": 4 << 10, "64k": 64 << 10, "1m": MI, "64m": 64 * MI}
    return {"%s_%s" % (collective.__name__, size): lambda n=size_bytes // 4: collective(n)
            for size, size_bytes in sizes.items()}


GROUPS = {
    "small": SMALL,
    "grad": GRAD,
    "large": LARGE,
    "matmul": MATMUL, "linalg": LINALG,
    "permute": PERMUTE,
    "nn": NN,
    "recurrent": RECURRENT,
    "optim": OPTIM,
    "loader": LOADER,
    "records": {kind + name: lambda body=body, size=size: body(size)
                for kind, body in (("checked_", mapped_rows), ("plain_", mapped_rows), ("ordered_", rows_in_order))
                for name, size in (("4k", 4096), ("16k", 16384), ("128k", 131072), ("1m", MI))},
    "images": IMAGES,
    "tokens": TOKENS,
    "files": FILES,
    "train": {case.__name__: lambda case=case: steps(case) for case in (mlp, cnn, gpt)},
    "ranks": {**of_sizes(all_reduce), **of_sizes(all_gather), **of_sizes(all_to_all)},
}


CAPTURED = {"tiny": tiny, "mlp": mlp, "cnn": cnn, "gpt": gpt}


def answer(group, case, seconds):
    if group == "chains" and case in peer_chains.CASES:
        return "%.9g %s" % peer_chains.faster(measure, case, peer_chains.CASES[case], seconds)
    if group == "captured" and case in CAPTURED:
        return "%.9g %s" % peer_chains.faster(measure, group + case, CAPTURED[case], seconds)
    setup = GROUPS.get(group, {}).get(case)
    if group == "sweep":
        body = peer_sweep.prepare(case)
        setup = body and (lambda: body)
    if setup is None:
        return "error: PyTorch has no " + case
    return "%.9g" % measure(setup(), seconds)


def join():
    """The ranks find each other through a file that their mpirun has for itself."""
    meeting = "file://%s/gloo-%d" % (os.environ["BENCH_FOLDER"], os.getppid())
    distributed.init_process_group("gloo", init_method=meeting, rank=RANK, world_size=RANKS)


def choose_device():
    """The device of collectives; under GPU_DRY=1 a CPU does where there is no GPU."""
    global DEVICE, synchronize
    if DEVICE != "cuda":
        return
    if torch.cuda.is_available():
        synchronize = torch.cuda.synchronize
    elif os.environ.get("GPU_DRY") == "1":
        DEVICE = "cpu"
    else:
        sys.exit("this PyTorch sees no GPU")


def main():
    torch.set_num_threads(int(os.environ.get("BENCH_THREADS", len(os.sched_getaffinity(0)))))
    choose_device()
    if RANKS > 1:
        join()
    if sys.argv[1:] == ["first"]:
        distributed.all_reduce(torch.ones(1))
        if RANK == 0:
            print(time.monotonic())
        return
    for line in sys.stdin:
        if line == "end\n":
            break
        group, case, seconds = line.split()
        try:
            result = answer(group, case, float(seconds))
        except Exception as error:
            result = "error: " + str(error).replace("\n", " ")
        if RANK == 0:
            print(result, flush=True)


if __name__ == "__main__":
    main()
