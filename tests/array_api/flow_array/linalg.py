"""linalg.py -- the extension linalg, without eig and eigvals, whose results are complex."""
from collections import namedtuple
from math import inf

from . import matmul, matrix_transpose, tensordot, vecdot, sum as total, max as largest, min as smallest
from .array import Array, binary, call, cast, operands, promoted

__all__ = ["cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm", "matrix_power",
           "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot",
           "trace", "vecdot", "vector_norm"]

EighResult = namedtuple("EighResult", "eigenvalues eigenvectors")
QRResult = namedtuple("QRResult", "Q R")
SlogdetResult = namedtuple("SlogdetResult", "sign logabsdet")
SVDResult = namedtuple("SVDResult", "U S Vh")


def cholesky(x, /, *, upper=False):
    return call("linalg.cholesky", x, upper)


def cross(x1, x2, /, *, axis=-1):
    return call("linalg.cross", *operands(x1, x2), axis)


def det(x, /):
    return call("linalg.det", x)


def diagonal(x, /, *, offset=0):
    return call("diagonal", x, offset, -2, -1)


def eigh(x, /):
    return EighResult(*call("linalg.eigh", x, results=2))


def eigvalsh(x, /):
    return call("linalg.eigvalsh", x)


def inv(x, /):
    return call("linalg.inv", x)


def lined(result, ndim, axes, keepdims):
    """The result with an axis of size 1 for each of those that were summed up."""
    for axis in sorted(a % ndim for a in axes) if keepdims else ():
        result = call("unsqueeze", result, axis)
    return result


def matrix_norm(x, /, *, keepdims=False, ord="fro"):
    if ord == "fro":
        return call("norm", x, 2, [-2, -1], keepdims)
    if ord == "nuc":
        result = total(svdvals(x), axis=-1)
    elif abs(ord) == 2:
        result = (largest if ord > 0 else smallest)(svdvals(x), axis=-1)
    else:
        sums = total(abs(x), axis=-2 if abs(ord) == 1 else -1)
        result = (largest if ord > 0 else smallest)(sums, axis=-1)
    return lined(result, x.ndim, (-2, -1), keepdims)


def matrix_power(x, n, /):
    return call("linalg.matrix_power", x, n)


def per_matrix(x, op, tolerance):
    """An op on matrices, whose relative tolerance may be an array with one number for each of them."""
    if not isinstance(tolerance, Array) or tolerance.ndim == 0:
        return call(op, x, rtol=None if tolerance is None else float(tolerance))
    if tolerance.size == 0:
        return call(op, x)
    rows = call("reshape", x, [tolerance.size, *x.shape[-2:]])
    made = call("stack", [call(op, rows[i, ...], rtol=t) for i, t in enumerate(tolerance.values())])
    return call("reshape", made, [*x.shape[:-2], *made.shape[1:]])


def matrix_rank(x, /, *, rtol=None):
    return per_matrix(x, "linalg.matrix_rank", rtol)


def outer(x1, x2, /):
    return binary("outer", x1, x2)


def pinv(x, /, *, rtol=None):
    return per_matrix(x, "linalg.pinv", rtol)


def qr(x, /, *, mode="reduced"):
    return QRResult(*call("linalg.qr", x, mode, results=2))


def slogdet(x, /):
    return SlogdetResult(*call("linalg.slogdet", x, results=2))


def solve(x1, x2, /):
    dtype = promoted(x1.dtype, x2.dtype)     # the op takes two of one dtype, as PyTorch's does
    return call("linalg.solve", cast(x1, dtype), cast(x2, dtype))


def svd(x, /, *, full_matrices=True):
    return SVDResult(*call("linalg.svd", x, full_matrices, results=3))


def svdvals(x, /):
    return call("linalg.svdvals", x)


def trace(x, /, *, offset=0, dtype=None):
    return total(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def vector_norm(x, /, *, axis=None, keepdims=False, ord=2):
    if axis == ():                           # of each number; flow takes no axes for all, as PyTorch does
        return abs(x) if ord else cast(x != 0, x.dtype)
    return call("norm", x, ord, axis if axis is None or isinstance(axis, int) else list(axis), keepdims)
