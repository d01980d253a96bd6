"""cases_math.py -- elementwise functions beside PyTorch."""
import math

import torch
from peer import Case

cases = []
BOTH = (torch.float64, torch.float32)
FLOATS = BOTH + (torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int8, torch.uint8)
nan, inf = math.nan, math.inf


def general(*shapes, scale=1.0, shift=0.0):
    return lambda random, dtype: [(torch.randn(shape, generator=random, dtype=torch.float64) * scale + shift).to(dtype)
                                  for shape in shapes]


def between(low, high, *shapes):
    return lambda random, dtype: [(torch.rand(shape, generator=random, dtype=torch.float64) * (high - low) + low).to(dtype)
                                  for shape in shapes]


def whole(low, high, *shapes):
    return lambda random, dtype: [torch.randint(low, high, shape, generator=random).to(dtype) for shape in shapes]


def constant(*values):
    return lambda random, dtype: [torch.tensor(v, dtype=torch.float64).to(dtype) for v in values]


def add(name, lua, function, *inputs, **options):
    for number, make in enumerate(inputs):
        cases.append(Case(f"{name}:{number}", "return " + lua, function, make, **options))


sizes = [general((3, 4)), general(()), general((0, 3)), general((1,))]
special = constant([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 2.5, -3.5, 10.0, 33.3, -7.25, 171.0, inf, -inf, nan, 1e-3])
huge = constant([1e-30, -1e-30, 1e30, -1e30, 1e12, -1e12, 3e4, -3e4])
pairs = [general((3, 4), (3, 4)), general((2, 1, 4), (3, 1)), general((), (3,)), general((0, 3), (3,))]
special_pairs = constant([0.0, -0.0, 1.0, -1.0, inf, -inf, nan, 2.0, 0.0, inf, -inf, inf, 3.0, nan],
                         [0.0, 1.0, -0.0, nan, inf, -inf, nan, inf, -inf, -inf, 1.0, nan, -1.0, 2.0])

# functions of one number: smooth inputs with gradients, then values alone at the edges and in every dtype
for name, smooth in {
        "erfc": sizes, "lgamma": sizes + [between(0.1, 40, (5, 7))], "digamma": sizes + [between(0.2, 40, (5, 7))],
        "sinc": sizes, "asinh": sizes, "acosh": [between(1.1, 5, (3, 4))], "atanh": [between(-0.9, 0.9, (3, 4))],
        "erfinv": [between(-0.99, 0.99, (5, 7))], "logit": [between(0.1, 0.9, (3, 4))], "frac": sizes, "deg2rad": sizes,
        "rad2deg": sizes, "trunc": sizes, "exp2": sizes, "log2": [between(0.1, 4, (3, 4))],
        "log10": [between(0.1, 4, (3, 4))], "expm1": sizes, "log1p": [between(-0.5, 4, (3, 4))], "asin": [between(-0.9, 0.9, (3, 4))],
        "acos": [between(-0.9, 0.9, (3, 4))], "atan": sizes, "round": sizes, "nan_to_num": sizes}.items():
    function = getattr(torch, name)
    add(name, f"a:{name}()", function, *smooth, tolerance=10 if name == "digamma" else 1)
    add(name + " at the edges", f"flow.{name}(a)", function, special, huge, order=0)
    if name not in ("sinc", "erfc", "digamma"):  # at poles PyTorch's are large numbers
        add(name + " slope at the edges", f"flow.{name}(a)", function, constant([0.0, 1.0, -1.0, 2.0, -2.0, 0.5]), order=1)
    add(name + " of 16 bits", f"a:{name}()", function, *smooth, order=1, dtypes=(torch.float16, torch.bfloat16))
    if name != "frac":
        add(name + " of integers", f"a:{name}()", function, whole(0, 6, (4,)), order=0, dtypes=INTEGERS + (torch.bool,))
add("sinc at 0", "a:sinc()", torch.sinc, constant([0.0, 1e-4, -1e-3, 0.05, 0.2, 1.0, -2.0]), order=1)
add("signbit", "a:signbit()", torch.signbit, special, whole(-3, 3, (5,)), order=0, dtypes=FLOATS + (torch.int32, torch.uint8))
add("logit with eps", "a:logit(0.2)", lambda a: torch.logit(a, 0.2), constant([0.1, 0.2, 0.3, 0.5, 0.8, 0.85, 1.5, -1.0]))
add("logit outside", "a:logit()", torch.logit, constant([-0.5, 1.5, 0.5]), order=1)
for decimals in (2, -1, 0, 3):
    add("round decimals", f"a:round({decimals})", lambda a, d=decimals: torch.round(a, decimals=d),
        general((20,), scale=100), constant([2.5, 3.5, -0.125, 0.375, 25.0, 35.0]), order=1)
add("round decimals named", "flow.round(a, {decimals = 1})", lambda a: torch.round(a, decimals=1), general((20,)))
for n in (0, 1, 2, 3, 5):
    add("polygamma", f"flow.polygamma({n}, a)", lambda a, n=n: torch.polygamma(n, a), between(0.5, 20, (4, 5)),
        tolerance=10)
    add("x.polygamma", f"a:polygamma({n})", lambda a, n=n: torch.polygamma(n, a), between(0.5, 20, (4, 5)), order=0)
add("polygamma of negative numbers", "flow.polygamma(1, a)", lambda a: torch.polygamma(1, a), between(-0.9, -0.1, (5,)),
    between(-6.8, -6.2, (5,)), order=1, dtypes=(torch.float64,))
add("nan_to_num values", "a:nan_to_num(1, 2, 3)", lambda a: torch.nan_to_num(a, 1.0, 2.0, 3.0), special)
add("nan_to_num", "a:nan_to_num()", torch.nan_to_num, special, order=1, dtypes=FLOATS)
add("clip", "a:clip(-0.5, 0.5)", lambda a: a.clip(-0.5, 0.5), *sizes)
for lua, dtype in {"float": torch.float32, "double": torch.float64, "half": torch.float16, "bfloat16": torch.bfloat16,
                   "long": torch.int64, "int": torch.int32, "char": torch.int8, "byte": torch.uint8,
                   "bool": torch.bool}.items():
    add("x." + lua, f"a:{lua}()", lambda a, d=dtype: a.to(d), whole(0, 100, (3, 4)), constant([0.5, 1.75, 3.0]), order=1,
        dtypes=FLOATS)

# functions of two
for name in ("logaddexp", "logaddexp2", "hypot", "fmax", "fmin", "copysign"):
    function = getattr(torch, name)
    add(name, f"a:{name}(b)", function, *pairs)
    add(name + " at the edges", f"flow.{name}(a, b)", function, special_pairs, order=0, dtypes=FLOATS)
    add(name + " of 16 bits", f"a:{name}(b)", function, pairs[1], order=1, dtypes=(torch.float16, torch.bfloat16))
for name in ("fmax", "fmin", "gcd", "lcm", "bitwise_left_shift", "bitwise_right_shift", "bitwise_and", "bitwise_or",
             "bitwise_xor", "heaviside"):
    add(name + " of integers", f"a:{name}(b)", getattr(torch, name), whole(-40, 40, (4, 5), (5,)), order=0, dtypes=INTEGERS[:3])
    add(name + " of bytes", f"a:{name}(b)", getattr(torch, name), whole(0, 10, (4, 5), (5,)), order=0, dtypes=INTEGERS)
add("fmax ties", "a:fmax(b)", torch.fmax, constant([1.0, 2.0, nan, 3.0], [1.0, 3.0, 2.0, nan]))
add("fmin ties", "a:fmin(b)", torch.fmin, constant([1.0, 2.0, nan, 3.0], [1.0, 3.0, 2.0, nan]))
add("shifts past the end", "a:bitwise_left_shift(b), a:bitwise_right_shift(b)",
    lambda a, b: (a << b, a >> b), constant([-5.0, 5.0, -1.0, 1.0, 100.0, -100.0], [70.0, 70.0, 8.0, 7.0, 31.0, 63.0]), order=0,
    dtypes=INTEGERS[:3])
add("shifts by numbers", "a:bitwise_left_shift(2), a:bitwise_right_shift(1)", lambda a: (a << 2, a >> 1),
    whole(0, 20, (6,)), order=0, dtypes=INTEGERS)
add("bitwise_not", "a:bitwise_not()", torch.bitwise_not, whole(0, 20, (6,)), order=0, dtypes=INTEGERS + (torch.bool,))
add("copysign number", "a:copysign(-2.0)", lambda a: torch.copysign(a, -2.0), general((3, 4)))
add("copysign at 0", "a:copysign(b)", torch.copysign, constant([0.0, -0.0, 1.0, -2.0], [1.0, -1.0, -0.0, 0.0]), order=1)
add("nextafter", "a:nextafter(b)", torch.nextafter, *pairs, special_pairs, order=0)
add("heaviside", "a:heaviside(b)", torch.heaviside, constant([0.0, -0.0, 1.0, -1.0, inf, -inf], [0.5, 2.0, 3.0, 1.0, 0.0, 0.0]),
    *pairs, order=0)
add("xlogy", "a:xlogy(b)", torch.xlogy, between(0.2, 3, (3, 4), (3, 4)), between(0.2, 3, (2, 1, 4), (3, 1)))
add("xlogy numbers", "flow.xlogy(2.5, a), a:xlogy(3)", lambda a: (torch.xlogy(2.5, a), torch.xlogy(a, 3)), between(0.2, 3, (3, 4)))
add("xlogy at the edges", "a:xlogy(b)", torch.xlogy, special_pairs, order=0)
add("xlogy at 0", "a:xlogy(b)", torch.xlogy, constant([0.0, 0.0, 1.0], [2.0, 0.5, 3.0]), order=1)
add("addcmul", "a:addcmul(b, c)", torch.addcmul, general((3, 4), (3, 4), (3, 4)), general((3, 4), (4,), (3, 1)), general((4,), (3, 1), (2, 1, 1)))
add("addcmul value", "a:addcmul(b, c, 0.5)", lambda a, b, c: torch.addcmul(a, b, c, value=0.5), general((3, 4), (4,), (3, 1)))
add("addcmul of integers", "a:addcmul(b, c, {value = 2})", lambda a, b, c: torch.addcmul(a, b, c, value=2),
    whole(-9, 9, (3, 4), (4,), (3, 1)), order=0, dtypes=INTEGERS)
add("addcdiv", "a:addcdiv(b, c, {value = -2})", lambda a, b, c: torch.addcdiv(a, b, c, value=-2), between(0.5, 2, (3, 4), (4,), (3, 1)))
add("addcdiv of integers", "a:addcdiv(b, c)", torch.addcdiv, whole(1, 9, (3,), (3,), (3,)), order=0, dtypes=INTEGERS)
add("lerp", "a:lerp(b, c)", torch.lerp, general((3, 4), (3, 4), (3, 4)), general((3, 4), (4,), (3, 1)))
add("lerp number", "a:lerp(b, 0.7)", lambda a, b: torch.lerp(a, b, 0.7), general((3, 4), (3, 4)))

# alpha, rsub, float_power
add("add alpha", "a:add(b, {alpha = 2.5})", lambda a, b: torch.add(a, b, alpha=2.5), *pairs)
add("sub alpha", "flow.sub(a, b, {alpha = -2})", lambda a, b: torch.sub(a, b, alpha=-2), *pairs)
add("add alpha number", "a:add(3, {alpha = 2})", lambda a: torch.add(a, 3, alpha=2), *sizes)
add("add alpha of integers", "a:add(b, {alpha = 2})", lambda a, b: torch.add(a, b, alpha=2), whole(-9, 9, (3, 4), (4,)), order=0,
    dtypes=INTEGERS)
add("add alpha, integers by halves", "a:add(b, {alpha = 0.5})", lambda a, b: torch.add(a, b, alpha=0.5),
    whole(-9, 9, (3, 4), (4,)), order=0, dtypes=INTEGERS)
add("add_ alpha", "a:clone():add_(b, {alpha = 2})", lambda a, b: a.clone().add_(b, alpha=2), general((3, 4), (4,)), general((4,), (3, 4)))
add("rsub", "a:rsub(b), a:rsub(b, 2), a:rsub(1.5)", lambda a, b: (torch.rsub(a, b), torch.rsub(a, b, alpha=2), torch.rsub(a, 1.5)),
    general((3, 4), (3, 4)))
add("float_power", "a:float_power(b), a:float_power(2), flow.float_power(2, a)",
    lambda a, b: (torch.float_power(a, b), torch.float_power(a, 2), torch.float_power(2, a)), between(0.5, 2, (3, 4), (4,)))
add("float_power of integers", "a:float_power(2)", lambda a: torch.float_power(a, 2), whole(-9, 9, (3, 4)), order=0, dtypes=INTEGERS)
