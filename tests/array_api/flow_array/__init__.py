"""flow_array -- flow as an array API namespace: each function is ops of flow, called through libflow.so.

Dtypes: bool uint8 int8 int32 int64 float32 float64. What flow has not is not here: complex dtypes, int16, uint16, uint32,
uint64.
"""
import builtins
from collections import namedtuple
from math import e, inf, nan, pi
import operator
import sys

from .array import (CPU, DTYPES, Array, DType, binary, call, cast, cast_number, check_device, default_of, flow,
                    from_values, operands, promoted)

__array_api_version__ = "2025.12"
__version__ = flow.lib.flow_version().decode()
newaxis = None
for _dtype in DTYPES.values():
    globals()[_dtype.name] = _dtype
bool, int8, int32, int64, float32, float64 = (
    DTYPES[n] for n in ("bool", "int8", "int32", "int64", "float32", "float64"))


# ---- dtypes ----

_KINDS = {"integral": ("signed integer", "unsigned integer"),
          "numeric": ("signed integer", "unsigned integer", "real floating"), "complex floating": ()}


def isdtype(dtype, kind):
    if isinstance(kind, tuple):
        return builtins.any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, DType):
        return dtype is kind
    if kind not in _KINDS and kind not in ("bool", "signed integer", "unsigned integer", "real floating"):
        raise ValueError(f"unknown kind of dtypes {kind!r}")
    return dtype.kind in _KINDS.get(kind, (kind,))


def _dtype_of(x):
    return x if isinstance(x, DType) else x.dtype


def result_type(*arrays_and_dtypes):
    numbers = [x for x in arrays_and_dtypes if isinstance(x, (builtins.bool, int, float))]
    result = None
    for x in arrays_and_dtypes:
        if not isinstance(x, (builtins.bool, int, float)):
            result = promoted(result, _dtype_of(x)) if result else _dtype_of(x)
    if result is None:
        raise ValueError("result_type takes an array or a dtype")
    for number in numbers:
        cast_number(number if result.kind == "real floating" else type(number)(1), result)
    return result


def can_cast(from_, to, /):
    try:
        return promoted(_dtype_of(from_), to) is to
    except TypeError:
        return False


_Finfo = namedtuple("finfo", "bits eps max min smallest_normal dtype")
_Iinfo = namedtuple("iinfo", "bits max min dtype")


def finfo(type, /):
    dtype = _dtype_of(type)
    if dtype is float32:
        largest = (2 - 2.0**-23) * 2.0**127
        return _Finfo(32, 2.0**-23, largest, -largest, 2.0**-126, dtype)
    if dtype is not float64:
        raise TypeError(f"finfo takes a floating dtype, got {dtype!r}")
    info = sys.float_info
    return _Finfo(64, info.epsilon, info.max, -info.max, info.min, dtype)


def iinfo(type, /):
    dtype = _dtype_of(type)
    if "integer" not in dtype.kind:
        raise TypeError(f"iinfo takes an integer dtype, got {dtype!r}")
    if dtype.kind == "unsigned integer":
        return _Iinfo(dtype.bits, 2**dtype.bits - 1, 0, dtype)
    return _Iinfo(dtype.bits, 2**(dtype.bits - 1) - 1, -2**(dtype.bits - 1), dtype)


def astype(x, dtype, /, *, copy=True, device=None):
    check_device(device)
    return call("clone", x) if copy and x.dtype is dtype else cast(x, dtype)


# ---- creation ----

def _size(shape):
    return [shape] if isinstance(shape, int) else list(shape)


def _make(op, *args, dtype, device):
    check_device(device)
    return call(op, *args, dtype=dtype)


def _flattened(obj, depth=0):
    """Numbers of nested lists, and their shape."""
    if isinstance(obj, Array) and obj.ndim == 0:
        return obj.values(), ()
    if not isinstance(obj, (list, tuple)):
        return [obj], ()
    parts = [_flattened(o, depth + 1) for o in obj]
    if len({shape for _, shape in parts}) > 1:
        raise ValueError("the lists have different lengths")
    return sum_lists(values for values, _ in parts), (len(parts), *(parts[0][1] if parts else ()))


def sum_lists(lists):
    return [value for values in lists for value in values]


def _common(values):
    kinds = {type(v) for v in values}
    if not values or float in kinds:
        return float32
    return bool if kinds == {builtins.bool} else int64


def asarray(obj, /, *, dtype=None, device=None, copy=None):
    check_device(device)
    if not isinstance(obj, Array) and hasattr(obj, "__dlpack__"):
        obj = from_dlpack(obj)
    if isinstance(obj, Array):
        if copy is False and dtype not in (None, obj.dtype):
            raise ValueError(f"a copy is needed for {dtype!r}")
        return astype(obj, dtype or obj.dtype, copy=builtins.bool(copy))
    if copy is False:
        raise ValueError("Python's numbers are copied")
    values, shape = _flattened(obj)
    if builtins.any(isinstance(v, complex) for v in values):
        raise TypeError("flow has no complex dtypes")
    return from_values(values, shape, dtype or _common(values))


def from_dlpack(x, /, *, device=None, copy=None):
    check_device(device)
    if isinstance(x, Array):
        return call("clone", x) if copy else Array(x.tensor)
    made = Array(flow.from_dlpack(x))
    return call("clone", made) if copy else made


def arange(start, /, stop=None, step=1, *, dtype=None, device=None):
    if stop is None:
        start, stop = 0, start
    if dtype is None:
        whole = builtins.all(isinstance(v, int) for v in (start, stop, step))
        dtype = int64 if whole else float32
    if (stop - start) * step <= 0:
        return empty(0, dtype=dtype, device=device)
    return _make("arange", start, stop, step, dtype=dtype, device=device)


def empty(shape, *, dtype=None, device=None):
    return _make("empty", _size(shape), dtype=dtype, device=device)


def zeros(shape, *, dtype=None, device=None):
    return _make("zeros", _size(shape), dtype=dtype, device=device)


def ones(shape, *, dtype=None, device=None):
    return _make("ones", _size(shape), dtype=dtype, device=device)


def full(shape, fill_value, *, dtype=None, device=None):
    return _make("full", _size(shape), fill_value, dtype=dtype or default_of(fill_value), device=device)


def empty_like(x, /, *, dtype=None, device=None):
    return empty(x.shape, dtype=dtype or x.dtype, device=device)


def zeros_like(x, /, *, dtype=None, device=None):
    return zeros(x.shape, dtype=dtype or x.dtype, device=device)


def ones_like(x, /, *, dtype=None, device=None):
    return ones(x.shape, dtype=dtype or x.dtype, device=device)


def full_like(x, /, fill_value, *, dtype=None, device=None):
    return full(x.shape, fill_value, dtype=dtype or x.dtype, device=device)


def eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None):
    columns = n_rows if n_cols is None else n_cols
    if k == 0:
        return _make("eye", n_rows, columns, dtype=dtype, device=device)
    on = expand_dims(arange(n_rows), 1) + k == arange(columns)
    return cast(on, dtype or float32)


def linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True):
    if endpoint:
        return _make("linspace", start, stop, num, dtype=dtype, device=device)
    return _make("linspace", start, stop, num + 1, dtype=dtype, device=device)[:num]


def meshgrid(*arrays, indexing="xy"):
    if indexing not in ("xy", "ij"):
        raise ValueError(f"indexing must be xy or ij, got {indexing!r}")
    swap = indexing == "xy" and len(arrays) > 1
    place = [1, 0, *range(2, len(arrays))] if swap else range(len(arrays))
    lines = [reshape(x, [-1 if axis == at else 1 for axis in range(len(arrays))]) for x, at in zip(arrays, place)]
    return broadcast_arrays(*lines)


def tril(x, /, *, k=0):
    return call("tril", x, k)


def triu(x, /, *, k=0):
    return call("triu", x, k)


# ---- elementwise ----

def _unary(name, op=None):
    def function(x, /):
        return call(op or name, x)
    function.__name__ = name
    globals()[name] = function


def _binary(name, op=None):
    def function(x1, x2, /):
        return binary(op or name, x1, x2)
    function.__name__ = name
    globals()[name] = function


for _name in """abs acos acosh asin asinh atan atanh ceil cos cosh exp expm1 floor isfinite isinf isnan log log10 log1p log2
        logical_not reciprocal round sign signbit sin sinh sqrt square tan tanh trunc""".split():
    _unary(_name)
for _name, _op in dict(bitwise_invert="bitwise_not", negative="neg", positive="clone", conj="clone",
                       real="clone").items():
    _unary(_name, _op)
for _name in """add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign floor_divide
        hypot logaddexp logical_and logical_or logical_xor maximum minimum nextafter pow remainder""".split():
    _binary(_name)
for _name, _op in dict(divide="div", equal="eq", greater="gt", greater_equal="ge", less="lt", less_equal="le",
                       multiply="mul", not_equal="ne", subtract="sub").items():
    _binary(_name, _op)


def imag(x, /):
    raise TypeError(f"imag takes complex numbers, which flow has not; got {x.dtype!r}")


def clip(x, /, min=None, max=None):
    for op, bound in (("maximum", min), ("minimum", max)):
        if isinstance(bound, Array):
            x = call(op, x, cast(bound, x.dtype))
        elif bound is not None:
            x = call(op, x, cast_number(bound, x.dtype))
    return x if min is not None or max is not None else call("clone", x)


# ---- manipulation ----

def broadcast_shapes(*shapes):
    ndim = builtins.max((len(s) for s in shapes), default=0)
    result = []
    for axis in range(-ndim, 0):
        sizes = {s[axis] for s in shapes if len(s) >= -axis}
        known = sizes - {1, None}
        if len(known) > 1 or known and None in sizes and known == {0}:
            raise ValueError(f"shapes {shapes} do not broadcast")
        result.append(known.pop() if known else None if None in sizes else 1)
    return tuple(result)


def broadcast_to(x, /, shape):
    return call("expand", x, list(shape))


def broadcast_arrays(*arrays):
    shape = broadcast_shapes(*(x.shape for x in arrays))
    return tuple(broadcast_to(x, shape) for x in arrays)


def concat(arrays, /, *, axis=0):
    dtype = result_type(*arrays)
    arrays = [cast(x, dtype) for x in arrays]
    if axis is None:
        return call("cat", [reshape(x, (-1,)) for x in arrays], axis=0)
    return call("cat", arrays, axis=axis)


def stack(arrays, /, *, axis=0):
    dtype = result_type(*arrays)
    return call("stack", [cast(x, dtype) for x in arrays], axis=axis)


def unstack(x, /, *, axis=0):
    return tuple(call("select", x, axis, i) for i in range(x.shape[axis]))


def expand_dims(x, /, axis):
    axes = (axis,) if isinstance(axis, int) else axis
    ndim = x.ndim + len(axes)
    if not builtins.all(-ndim <= a < ndim for a in axes):
        raise IndexError(f"axis {axis} is not in an array of {ndim} axes")
    if len({a % ndim for a in axes}) < len(axes):
        raise ValueError(f"axis {axis} names one axis twice")
    for a in sorted(a % ndim for a in axes):
        x = call("unsqueeze", x, a)
    return x


def squeeze(x, /, axis):
    axes = (axis,) if isinstance(axis, int) else axis
    if builtins.any(x.shape[a] != 1 for a in axes):
        raise ValueError(f"axis {axis} of {x.shape} is not of size 1")
    return call("squeeze", x, list(axes))


def flip(x, /, *, axis=None):
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return call("flip", x, list(axes))


def moveaxis(x, source, destination, /):
    return call("movedim", x, _size(source), _size(destination))


def permute_dims(x, /, axes):
    return call("permute", x, list(axes))


def repeat(x, repeats, /, *, axis=None):
    if isinstance(repeats, Array) and repeats.ndim == 0:
        repeats = int(repeats)
    return call("repeat_interleave", x, repeats, axis)


def reshape(x, /, shape, *, copy=None):
    if copy is False:
        return call("view", x, list(shape))
    made = call("reshape", x, list(shape))
    return call("clone", made) if copy else made


def roll(x, /, shift, *, axis=None):
    if isinstance(shift, int) and not isinstance(axis, (int, type(None))):
        shift = (shift,) * len(axis)
    return call("roll", x, _size(shift), None if axis is None else _size(axis))


def tile(x, repetitions, /):
    return call("tile", x, list(repetitions))


# ---- searching, sets, sorting ----

def argmax(x, /, *, axis=None, keepdims=False):
    return call("argmax", x, axis, keepdims)


def argmin(x, /, *, axis=None, keepdims=False):
    return call("argmin", x, axis, keepdims)


def count_nonzero(x, /, *, axis=None, keepdims=False):
    return call("sum", cast(x, bool), _axes(axis), keepdims)


def nonzero(x, /):
    if x.ndim == 0:
        raise ValueError("nonzero takes an array with axes")
    at, places = arange(x.size)[reshape(cast(x, bool), (-1,))], []
    for size in reversed(x.shape):
        places.append(at % size if size else at)
        at = at // size if size else at
    return tuple(reversed(places))


def searchsorted(x1, x2, /, *, side="left", sorter=None):
    if isinstance(x2, Array):
        x1, x2 = operands(x1, x2)
    else:
        x2 = cast_number(x2, x1.dtype)
    return call("searchsorted", x1, x2, side=side, sorter=sorter)


def where(condition, x1, x2, /):
    if not isinstance(x1, Array) and not isinstance(x2, Array):
        x1 = asarray(x1)
    return call("where", condition, *operands(x1, x2))


_All = namedtuple("UniqueAllResult", "values indices inverse_indices counts")
_Counts = namedtuple("UniqueCountsResult", "values counts")
_Inverse = namedtuple("UniqueInverseResult", "values inverse_indices")


def unique_values(x, /):
    return call("unique", x)


def unique_counts(x, /):
    return _Counts(*call("unique", x, return_counts=True, results=2))


def unique_inverse(x, /):
    return _Inverse(*call("unique", x, return_inverse=True, results=2))


def unique_all(x, /):
    values, inverse, counts = call("unique", x, return_inverse=True, return_counts=True, results=3)
    where = reshape(inverse, (-1,))
    first = call("scatter_reduce", zeros_like(counts), 0, where, arange(where.size), "amin", False)
    return _All(values, first, inverse, counts)


def isin(x1, x2, /, *, invert=False):
    if not isinstance(x1, Array) or not isinstance(x2, Array):
        x1, x2 = operands(x1, x2)
    return call("isin", *operands(x1, x2), invert=invert)


def sort(x, /, *, axis=-1, descending=False, stable=True):
    return call("sort", x, axis, descending, stable, results=2)[0]


def argsort(x, /, *, axis=-1, descending=False, stable=True):
    return call("argsort", x, axis, descending, stable)


def take(x, indices, /, *, axis=None):
    return call("index", x, indices, 0 if axis is None else axis)


def take_along_axis(x, indices, /, *, axis=-1):
    return call("take_along_axis", x, indices, axis)


# ---- sums ----

def _axes(axis):
    return axis if axis is None or isinstance(axis, int) else list(axis)


def _folded(op, x, axis, keepdims):
    """An op over axes; over none of them it changes nothing."""
    return call("clone", x) if axis == () else call(op, x, _axes(axis), keepdims)


def _widened(x, dtype):
    if dtype is None and "integer" in x.dtype.kind:
        dtype = int64
    return cast(x, dtype)


def sum(x, /, *, axis=None, dtype=None, keepdims=False):
    return cast(_folded("sum", _widened(x, dtype), axis, keepdims), dtype)


def prod(x, /, *, axis=None, dtype=None, keepdims=False):
    return cast(_folded("prod", _widened(x, dtype), axis, keepdims), dtype)


def max(x, /, *, axis=None, keepdims=False):
    return _folded("amax", x, axis, keepdims)


def min(x, /, *, axis=None, keepdims=False):
    return _folded("amin", x, axis, keepdims)


def mean(x, /, *, axis=None, keepdims=False):
    return _folded("mean", x, axis, keepdims)


def var(x, /, *, axis=None, correction=0.0, keepdims=False):
    return zeros_like(x) if axis == () else call("var", x, _axes(axis), correction, keepdims)


def std(x, /, *, axis=None, correction=0.0, keepdims=False):
    return zeros_like(x) if axis == () else call("std", x, _axes(axis), correction, keepdims)


def all(x, /, *, axis=None, keepdims=False):
    return _folded("all", cast(x, bool), axis, keepdims)


def any(x, /, *, axis=None, keepdims=False):
    return _folded("any", cast(x, bool), axis, keepdims)


def _cumulative(x, axis, dtype, include_initial, op, initial):
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"axis is missing for {x.ndim} axes")
        axis = 0
    result = cast(call(op, _widened(x, dtype), axis), dtype)
    if not include_initial:
        return result
    shape = list(result.shape)
    shape[axis] = 1
    return concat([full(shape, initial, dtype=result.dtype), result], axis=axis)


def cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False):
    return _cumulative(x, axis, dtype, include_initial, "cumsum", 0)


def cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False):
    return _cumulative(x, axis, dtype, include_initial, "cumprod", 1)


def diff(x, /, *, axis=-1, n=1, prepend=None, append=None):
    return call("diff", x, n, axis, prepend, append)


# ---- products ----

def matmul(x1, x2, /):
    return binary("matmul", x1, x2)


def matrix_transpose(x, /):
    return call("matrix_transpose", x)


def tensordot(x1, x2, /, *, axes=2):
    if isinstance(axes, int):
        axes = list(range(x1.ndim - axes, x1.ndim)), list(range(axes))
    x1, x2 = operands(x1, x2)
    letters = iter("abcdefghijklmnop")
    one, two = [next(letters) for _ in x1.shape], [next(letters) for _ in x2.shape]
    for a, b in zip(*axes):
        two[b] = one[a]
    left = [n for n in one if n not in two] + [n for n in two if n not in one]
    return call("einsum", f"{''.join(one)},{''.join(two)}->{''.join(left)}", [x1, x2])


def vecdot(x1, x2, /, *, axis=-1):
    if x1.shape[axis] != x2.shape[axis]:    # flow repeats one element along the axis, as PyTorch does
        raise ValueError(f"vecdot along axes of {x1.shape[axis]} and {x2.shape[axis]}")
    return call("linalg.vecdot", *operands(x1, x2), axis)


# ---- inspection ----

class _Info:
    def capabilities(self):
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 8}

    def default_device(self):
        return CPU

    def default_dtypes(self, *, device=None):
        check_device(device)
        return {"real floating": float32, "integral": int64, "indexing": int64}

    def devices(self):
        return (CPU,)

    def dtypes(self, *, device=None, kind=None):
        check_device(device)
        return {name: d for name, d in DTYPES.items() if kind is None or isdtype(d, kind)}


def __array_namespace_info__():
    return _Info()


from . import fft, linalg
