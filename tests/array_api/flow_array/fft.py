"""fft.py -- the part of the extension fft that needs no complex dtype."""
from . import asarray, roll, float32
from .array import check_device

__all__ = ["fftfreq", "rfftfreq", "fftshift", "ifftshift"]


def fftfreq(n, /, *, d=1.0, dtype=None, device=None):
    check_device(device)
    return asarray([(i if i < (n + 1) // 2 else i - n) / (n * d) for i in range(n)], dtype=dtype or float32)


def rfftfreq(n, /, *, d=1.0, dtype=None, device=None):
    check_device(device)
    return asarray([i / (n * d) for i in range(n // 2 + 1)], dtype=dtype or float32)


def shifted(x, axes, sign):
    axes = range(x.ndim) if axes is None else (axes,) if isinstance(axes, int) else axes
    return roll(x, tuple(sign * (x.shape[a] // 2) if sign > 0 else -(x.shape[a] // 2) for a in axes), axis=tuple(axes))


def fftshift(x, /, *, axes=None):
    return shifted(x, axes, 1)


def ifftshift(x, /, *, axes=None):
    return shifted(x, axes, -1)
