"""cases_activations.py -- activations beside torch.nn.functional."""
import torch
import torch.nn.functional as F
from peer import Case

cases = []
HALF = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def general(*shapes):
    return lambda random, dtype: [(torch.randn(shape, generator=random, dtype=torch.float64) * 2).to(dtype)
                                  for shape in shapes]


def constant(*values):
    return lambda random, dtype: [torch.tensor(v).to(dtype) for v in values]


def add(name, lua, function, *inputs, **options):
    for number, make in enumerate(inputs):
        cases.append(Case(f"{name}:{number}", "return " + lua, function, make, **options))


shapes = [general((3, 5)), general(()), general((0, 4)), general((1,)), general((2, 3, 4, 2)), general((70000,))]
inf, nan = float("inf"), float("nan")
edges = constant([0.0, -0.0, 3.0, -3.0, 6.0, 0.5, -0.5, 1.0, -1.0, 20.0, 25.0, -25.0, 1000.0, -1000.0, 0.25])
beyond = constant([inf, -inf, nan, 1e4, -1e4])

one = {
    "elu": ("flow.elu(a, 0.7)", lambda a: F.elu(a, 0.7)),
    "celu": ("flow.celu(a, 0.7)", lambda a: F.celu(a, 0.7)),
    "selu": ("a:selu()", F.selu),
    "leaky_relu": ("flow.leaky_relu(a, 0.2)", lambda a: F.leaky_relu(a, 0.2)),
    "hardtanh": ("flow.hardtanh(a, -0.5, 2)", lambda a: F.hardtanh(a, -0.5, 2.0)),
    "hardtanh of its own": ("flow.hardtanh(a)", F.hardtanh),
    "relu6": ("flow.relu6(a)", F.relu6),
    "hardsigmoid": ("flow.hardsigmoid(a)", F.hardsigmoid),
    "hardswish": ("flow.hardswish(a)", F.hardswish),
    "hardshrink": ("flow.hardshrink(a, 0.5)", lambda a: F.hardshrink(a, 0.5)),
    "softshrink": ("flow.softshrink(a)", F.softshrink),
    "tanhshrink": ("flow.tanhshrink(a)", F.tanhshrink),
    "softplus": ("flow.softplus(a, 2, 3)", lambda a: F.softplus(a, 2, 3)),
    "softsign": ("flow.softsign(a)", F.softsign),
    "logsigmoid": ("flow.logsigmoid(a)", F.logsigmoid),
    "mish": ("flow.mish(a)", F.mish),
    "threshold": ("flow.threshold(a, 0.25, -2)", lambda a: F.threshold(a, 0.25, -2.0)),
    "silu": ("flow.silu(a)", F.silu),
    "gelu": ("flow.gelu(a)", F.gelu),
    "gelu tanh": ("flow.gelu(a, 'tanh')", lambda a: F.gelu(a, approximate="tanh")),
    "rrelu": ("flow.rrelu(a)", F.rrelu),
    "rrelu in training": ("flow.rrelu(a, 0.25, 0.25, true)", lambda a: F.rrelu(a, 0.25, 0.25, True)),
}
for name, (lua, function) in one.items():
    add(name, lua, function, *shapes, dtypes=HALF[:2] if name == "rrelu in training" else HALF)
    add(name + " at edges", lua, function, edges, order=1 if name == "mish" else 2)  # its second gradient at 1000 is NaN there
    if "gelu" not in name:  # of infinities NaN or not, by the vector length
        add(name + " beyond", lua, function, beyond, order=0)

add("softmin", "flow.softmin(a, 1)", lambda a: F.softmin(a, 1), general((3, 5)), general((2, 3, 4)), general((2, 0)))
add("softmin of axis 0", "a:softmin(-2)", lambda a: F.softmin(a, -2), general((3, 5)), general((2, 3, 4)), general((4,)))
add("log_softmax", "flow.log_softmax(a, 1)", lambda a: F.log_softmax(a, 1), general((3, 5)), general((2, 3, 4)))
add("glu", "flow.glu(a)", F.glu, general((3, 4)), general((2, 3, 6)), general((3, 5)), general((2,)), general(()), general((0, 2)))
add("glu axis", "flow.glu(a, 0)", lambda a: F.glu(a, 0), general((4, 3)), general((2,)))
add("prelu", "flow.prelu(a, b)", F.prelu, general((3, 4), (4,)), general((3, 4), (1,)), general((2, 3, 4), (3,)),
    general((5,), (1,)), general((5,), (5,)), general((3, 4), (3,)), general((), (1,)), general((0, 3), (3,)))
for name, function in (("dropout", F.dropout), ("alpha_dropout", F.alpha_dropout), ("dropout1d", F.dropout1d),
                       ("dropout2d", F.dropout2d), ("dropout3d", F.dropout3d),
                       ("feature_alpha_dropout", F.feature_alpha_dropout)):
    shape = {"dropout1d": (2, 3, 4), "dropout2d": (2, 3, 4, 2)}.get(name, (2, 3, 4, 2, 2))
    for p in (0, 1) if "alpha" not in name else (0,):
        add(f"{name} {p}", f"flow.{name}(a, {p}, true)", lambda a, f=function, p=p: f(a, p, True), general(shape), order=1)
    add(f"{name} of eval", f"flow.{name}(a, 0.5, false)", lambda a, f=function: f(a, 0.5, False), general(shape), order=1)
for name in ("relu6", "hardtanh", "threshold"):
    lua, function = one[name] if name != "hardtanh" else one["hardtanh of its own"]
    if name == "threshold":
        lua, function = "flow.threshold(a, 1, -2)", lambda a: F.threshold(a, 1, -2)
    add(name + " of integers", lua, function, constant([-7, -1, 0, 1, 3, 6, 9]), order=0,
        dtypes=(torch.int64, torch.int32, torch.int8))
