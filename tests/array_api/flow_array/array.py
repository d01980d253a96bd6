"""array.py -- dtypes and the array class: a tensor of flow with the operators and the indexing of the array API."""
import ctypes as c
import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "..", "examples", "python"))
import flow

lib = flow.lib
lib.flow_version.restype = c.c_char_p


class Spec(c.Structure):
    """flow_spec of flow.h."""
    _fields_ = [("dtype", c.c_char_p), ("ndim", c.c_int), ("shape", c.POINTER(c.c_int64)),
                ("device", c.c_char_p), ("placement", c.c_char_p), ("sbp", c.c_char_p)]


class DType:
    """kind: "bool", "signed integer", "unsigned integer" or "real floating"."""

    def __init__(self, name, kind, ctype, bits):
        self.name, self.kind, self.ctype, self.bits = name, kind, ctype, bits

    def __repr__(self):
        return f"flow_array.{self.name}"


DTYPES = {d.name: d for d in (
    DType("bool", "bool", c.c_bool, 8), DType("uint8", "unsigned integer", c.c_uint8, 8),
    DType("int8", "signed integer", c.c_int8, 8), DType("int32", "signed integer", c.c_int32, 32),
    DType("int64", "signed integer", c.c_int64, 64), DType("float32", "real floating", c.c_float, 32),
    DType("float64", "real floating", c.c_double, 64))}
ORDER = list(DTYPES)


class Device:
    """The only one that is shown: the memory of the host."""

    def __repr__(self):
        return "cpu"


CPU = Device()


def check_device(device):
    if device not in (None, CPU):
        raise ValueError(f"flow_array shows the device cpu alone, got {device!r}")


def promoted(one, other):
    """The dtype of a result of two dtypes."""
    if one is other:
        return one
    kinds = {one.kind, other.kind}
    if kinds == {"signed integer", "unsigned integer"}:
        signed = one if one.kind == "signed integer" else other
        if signed.bits > 8:
            return signed
    elif len(kinds) == 1:
        return one if one.bits > other.bits else other
    raise TypeError(f"{one!r} and {other!r} have no common dtype")


def default_of(value):
    if isinstance(value, bool):
        return DTYPES["bool"]
    return DTYPES["int64" if isinstance(value, int) else "float32"]


class Array:
    __slots__ = ("tensor", "dtype", "shape")

    def __init__(self, tensor):
        self.tensor, self.dtype, self.shape = tensor, DTYPES[tensor.dtype], tensor.shape

    @property
    def device(self):
        return CPU

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def size(self):
        return math.prod(self.shape)

    @property
    def T(self):
        if self.ndim != 2:
            raise ValueError("T takes two axes")
        return self.mT

    @property
    def mT(self):
        if self.ndim < 2:
            raise ValueError("mT takes two axes or more")
        return call("matrix_transpose", self)

    def to_device(self, device, /, *, stream=None):
        check_device(device)
        return self

    def __array_namespace__(self, /, *, api_version=None):
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12", "2025.12"):
            raise ValueError(f"unknown version {api_version!r} of the array API")
        return sys.modules[__package__]

    def __dlpack__(self, /, *, stream=None, max_version=None, dl_device=None, copy=None):
        return self.tensor.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self, /):
        return self.tensor.__dlpack_device__()

    def __repr__(self):
        return f"{self.tolist()} {self.dtype.name}{list(self.shape)}"

    def __len__(self):
        if self.ndim == 0:
            raise TypeError("an array without axes has no length")
        return self.shape[0]

    __hash__ = None

    # ---- values ----

    def values(self):
        """All elements as Python's numbers, row-major."""
        data = (self.dtype.ctype * self.size)()
        flow._check(lib.flow_read(self.tensor, data, c.c_size_t(c.sizeof(data))))
        return list(data)

    def tolist(self):
        flat = self.values()
        for size in reversed(self.shape[1:]):
            flat = [flat[i * size:(i + 1) * size] for i in range(len(flat) // size if size else 0)]
        return flat if self.ndim else flat[0]

    def single(self):
        if self.size != 1:
            raise TypeError(f"only one element is a number, the shape is {self.shape}")
        return self.values()[0]

    def __bool__(self, /):
        return bool(self.single())

    def __int__(self, /):
        return int(self.single())

    def __float__(self, /):
        return float(self.single())

    def __complex__(self, /):
        return complex(self.single())

    def __index__(self, /):
        if self.ndim or "integer" not in self.dtype.kind:
            raise TypeError("only an integer without axes is an index")
        return self.single()

    # ---- unary operators, indexing ----

    def __abs__(self, /):
        return call("abs", self)

    def __neg__(self, /):
        return call("neg", self)

    def __pos__(self, /):
        return call("clone", self)

    def __invert__(self, /):
        return call("bitwise_not", self)

    def __getitem__(self, key, /):
        from . import index
        return index.get(self, key)

    def __setitem__(self, key, value, /):
        from . import index
        index.put(self, key, value)


def unwrap(value):
    if isinstance(value, Array):
        return value.tensor
    if isinstance(value, DType):
        return value.name
    if isinstance(value, (list, tuple)):
        return [unwrap(v) for v in value]
    return value


def call(op, *args, results=1, **named):
    """An op of flow on arrays: an array, or a list of `results`."""
    made = flow.call(op, *map(unwrap, args), results=results, **{k: unwrap(v) for k, v in named.items()})
    return Array(made) if results == 1 else [Array(m) for m in made] if made else []


def cast(x, dtype):
    return x if dtype is None or x.dtype is dtype else call("cast", x, dtype)


def from_values(values, shape, dtype):
    """An array of Python's numbers, row-major."""
    data, out = (dtype.ctype * max(len(values), 1))(*values), c.c_void_p()
    spec = Spec(dtype.name.encode(), len(shape), (c.c_int64 * max(len(shape), 1))(*shape), None, None, None)
    flow._check(lib.flow_copy_in(c.byref(out), c.byref(spec), data))
    return Array(flow.Tensor(out.value))


def operands(x1, x2):
    """Both as arrays; a Python number takes the dtype of the other. flow promotes, but for an array without axes
    beside one with axes, whose dtype would be that of the latter, as in PyTorch."""
    if not isinstance(x1, Array):
        return cast_number(x1, x2.dtype), x2
    if not isinstance(x2, Array):
        return x1, cast_number(x2, x1.dtype)
    if x1.dtype is x2.dtype:
        return x1, x2
    dtype = promoted(x1.dtype, x2.dtype)
    if bool(x1.shape) == bool(x2.shape):
        return x1, x2
    return cast(x1, dtype), cast(x2, dtype)


def cast_number(value, dtype):
    fits = {"bool": bool, "real floating": (int, float)}.get(dtype.kind, int)
    if not isinstance(value, fits) or isinstance(value, bool) and dtype.kind != "bool":
        raise TypeError(f"{value!r} is no value of {dtype!r}")
    return from_values([value], (), dtype)


def binary(op, x1, x2):
    return call(op, *operands(x1, x2))


NUMBERS = (bool, int, float, Array)


def add_operator(name, op, writes=True):
    """__name__, __rname__ and __iname__, which writes where the result has the array's dtype and shape."""
    def forward(self, other, /):
        return binary(op, self, other) if isinstance(other, NUMBERS) else NotImplemented

    def swapped(self, other, /):
        return binary(op, other, self) if isinstance(other, NUMBERS) else NotImplemented

    def inside(self, other, /):
        if not isinstance(other, NUMBERS):
            return NotImplemented
        self, other = operands(self, other)
        return call(op + "_", self, other) if writes else call(op, self, other)

    for prefix, function in (("", forward), ("r", swapped), ("i", inside)):
        setattr(Array, f"__{prefix}{name}__", function)


for name, op in dict(add="add", sub="sub", mul="mul", truediv="div", floordiv="floor_divide", mod="remainder",
                     pow="pow", lshift="bitwise_left_shift", rshift="bitwise_right_shift", xor="bitwise_xor").items():
    add_operator(name, op)
add_operator("and", "bitwise_and")
add_operator("or", "bitwise_or")
add_operator("matmul", "matmul", writes=False)


def add_comparison(op):
    def compare(self, other, /):
        return binary(op, self, other) if isinstance(other, NUMBERS) else NotImplemented
    setattr(Array, f"__{op}__", compare)


for op in "eq", "ne", "lt", "le", "gt", "ge":
    add_comparison(op)
