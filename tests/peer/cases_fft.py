"""cases_fft.py -- flow.fft and flow.signal beside torch.fft, torch.stft and the windows.

A complex tensor is one with a trailing axis of size 2 here.
"""
import torch
from peer import Case

F = torch.fft
cases = []


def reals(*shape):
    return lambda random, dtype: [torch.randn(shape, generator=random, dtype=torch.float64).to(dtype)]


def pairs(*shape):
    return reals(*shape, 2)


def numbers(x):
    """Pairs as PyTorch's complex numbers."""
    return torch.view_as_complex(x.contiguous())


def pairs_of(x):
    return torch.view_as_real(x.resolve_conj())


def add(name, lua, function, *inputs, **options):
    for number, make in enumerate(inputs):
        cases.append(Case(f"{name}:{number}", lua if lua.startswith("local") else "return " + lua, function, make,
                          **options))


lengths = [1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 16, 17, 30, 37, 49, 60, 64, 77, 121, 128, 143, 192, 250, 343, 512]

for norm in ("backward", "forward", "ortho"):
    for name in ("fft", "ifft"):
        call, f = f"flow.fft.{name}(a, nil, -1, '{norm}')", getattr(F, name)
        add(f"{name} {norm}", call, lambda a, f=f, norm=norm: torch.view_as_real(f(numbers(a), norm=norm)),
            *[pairs(3, n) for n in ([2, 6, 9] if norm != "backward" else lengths)])
    for name in ("rfft", "ihfft"):
        call, f = f"flow.fft.{name}(a, nil, -1, '{norm}')", getattr(F, name)
        add(f"{name} {norm}", call, lambda a, f=f, norm=norm: pairs_of(f(a, norm=norm)),
            *[reals(3, n) for n in ([2, 6, 9] if norm != "backward" else lengths)])
    for name in ("irfft", "hfft"):
        f = getattr(F, name)
        for n in ([2, 6, 9] if norm != "backward" else lengths):
            add(f"{name} {norm}", f"flow.fft.{name}(a, {n}, -1, '{norm}')",
                lambda a, f=f, norm=norm, n=n: f(numbers(a), n, norm=norm), pairs(2, n // 2 + 1))
        add(f"{name} {norm}", f"flow.fft.{name}(a, nil, -1, '{norm}')", lambda a, f=f, norm=norm: f(numbers(a), norm=norm),
            pairs(2, 5), pairs(1), pairs(2, 2))

# other axes, lengths that cut and fill, several batches
for name in ("fft", "ifft"):
    f = getattr(F, name)
    for n, axis in ((5, 0), (12, 1), (3, -2), (9, -1), (64, 1), (17, 0), (96, -2)):
        add(f"{name} n", f"flow.fft.{name}(a, {n}, {axis})",
            lambda a, f=f, n=n, axis=axis: torch.view_as_real(f(numbers(a), n, axis)), pairs(8, 6, 9), pairs(4, 8, 10))
    add(f"{name} errors", f"flow.fft.{name}(a, 0)", lambda a, f=f: torch.view_as_real(f(numbers(a), 0)), pairs(3, 4))
    add(f"{name} errors", f"flow.fft.{name}(a)", lambda a, f=f: torch.view_as_real(f(numbers(a))), pairs(3, 0), pairs(),
        pairs(0, 3))
    add(f"{name} errors", f"flow.fft.{name}(a, nil, 2)", lambda a, f=f: torch.view_as_real(f(numbers(a), None, 2)),
        pairs(3, 4))
for name in ("rfft", "ihfft"):
    f = getattr(F, name)
    for n, axis in ((5, 0), (12, 1), (3, -2), (9, -1), (64, 1)):
        add(f"{name} n", f"flow.fft.{name}(a, {n}, {axis})",
            lambda a, f=f, n=n, axis=axis: pairs_of(f(a, n, axis)), reals(8, 6, 9), reals(4, 8, 10))
    add(f"{name} errors", f"flow.fft.{name}(a)", lambda a, f=f: pairs_of(f(a)), reals(3, 0), reals(), reals(0, 3))
for name in ("irfft", "hfft"):
    f = getattr(F, name)
    for n, axis in ((5, 0), (12, 1), (3, -2), (9, -1), (64, 1)):
        add(f"{name} n", f"flow.fft.{name}(a, {n}, {axis})", lambda a, f=f, n=n, axis=axis: f(numbers(a), n, axis),
            pairs(8, 6, 9), pairs(4, 8, 10))

# several axes
for name in ("fft2", "ifft2", "fftn", "ifftn"):
    f = getattr(F, name)
    add(name, f"flow.fft.{name}(a)", lambda a, f=f: torch.view_as_real(f(numbers(a))), pairs(4, 6), pairs(2, 3, 8))
    add(f"{name} s", f"flow.fft.{name}(a, {{4, 10}}, {{0, -1}}, 'ortho')",
        lambda a, f=f: torch.view_as_real(f(numbers(a), (4, 10), (0, -1), "ortho")), pairs(5, 3, 8))
    add(f"{name} errors", f"flow.fft.{name}(a, nil, {{0, 0}})", lambda a, f=f: torch.view_as_real(f(numbers(a), None, (0, 0))),
        pairs(5, 3, 8))
for name in ("rfft2", "rfftn", "ihfft2", "ihfftn"):
    f = getattr(F, name)
    add(name, f"flow.fft.{name}(a)", lambda a, f=f: pairs_of(f(a)), reals(4, 6), reals(2, 3, 7))
    add(f"{name} s", f"flow.fft.{name}(a, {{4, 10}}, {{0, -1}}, 'forward')",
        lambda a, f=f: pairs_of(f(a, (4, 10), (0, -1), "forward")), reals(5, 3, 8))
for name in ("irfft2", "irfftn", "hfft2", "hfftn"):
    f = getattr(F, name)
    add(name, f"flow.fft.{name}(a)", lambda a, f=f: f(numbers(a)), pairs(4, 6), pairs(2, 3, 7))
    add(f"{name} s", f"flow.fft.{name}(a, {{4, 9}}, {{0, -1}}, 'ortho')", lambda a, f=f: f(numbers(a), (4, 9), (0, -1), "ortho"),
        pairs(5, 3, 8))

# frequencies, shifts, numbers
for n in (1, 2, 5, 8):
    add("fftfreq", f"flow.fft.fftfreq({n}, 0.5, {{dtype = a.dtype}})", lambda a, n=n: F.fftfreq(n, 0.5, dtype=a.dtype), reals(1),
        order=0)
    add("rfftfreq", f"flow.fft.rfftfreq({n}, 2)", lambda a, n=n: F.rfftfreq(n, 2), reals(1), order=0)
for name in ("fftshift", "ifftshift"):
    f = getattr(F, name)
    add(name, f"flow.fft.{name}(a)", f, reals(5), reals(4, 3))
    add(name, f"flow.fft.{name}(a, {{0, -1}})", lambda a, f=f: f(a, (0, -1)), reals(5, 2, 3))
    add(name, f"flow.fft.{name}(a, nil, true)", lambda a, f=f: torch.view_as_real(f(numbers(a))), pairs(5, 4))
add("complex", "flow.fft.mul(flow.fft.conj(a), a)", lambda a: pairs_of(numbers(a).conj() * numbers(a)), pairs(4))
add("abs", "local f = flow.fft return f.abs(a), f.angle(a), f.real(a), f.imag(a)",
    lambda a: [numbers(a).abs(), numbers(a).angle(), numbers(a).real, numbers(a).imag], pairs(3, 4))

# windows
for name in ("hann", "hamming", "blackman", "bartlett", "kaiser"):
    f = getattr(torch, name + "_window")
    for n in (0, 1, 2, 7, 16):
        for periodic in (True, False):
            add(name, f"flow.{name}_window({n}, {str(periodic).lower()}, {{dtype = a.dtype}})",
                lambda a, f=f, n=n, p=periodic: f(n, periodic=p, dtype=a.dtype), reals(1), order=0)
add("kaiser beta", "flow.kaiser_window(9, true, 5, {dtype = a.dtype})", lambda a: torch.kaiser_window(9, True, 5.0, dtype=a.dtype), reals(1), order=0)
add("hamming alpha", "flow.hamming_window(9, false, 0.6, 0.4, {dtype = a.dtype})",
    lambda a: torch.hamming_window(9, False, 0.6, 0.4, dtype=a.dtype), reals(1),
    order=0)

# short-time transforms
STFT = "flow.stft(a, {n}, {hop}, {win}, {window}, {center}, '{mode}', {norm}, {one})"


def lua_of(value):
    return {None: "nil", True: "true", False: "false"}.get(value, value)


def stft(n, hop=None, win=None, window=False, center=True, mode="reflect", norm=False, one=True):
    length = win or n
    text = STFT.format(n=n, hop=lua_of(hop), win=lua_of(win), center=lua_of(center), mode=mode, norm=lua_of(norm),
                       one=lua_of(one), window=f"flow.hann_window({length}, true, {{dtype = a.dtype}})" if window else "nil")

    def call(a):
        w = torch.hann_window(length, dtype=a.dtype) if window else None
        return torch.view_as_real(torch.stft(a, n, hop, win, w, center, mode, norm, one, True))
    add("stft", text, call, reals(40), reals(3, 33))


stft(16)
stft(16, hop=3, window=True)
stft(16, win=10, window=True)
stft(16, win=7)
stft(15, hop=4, center=False)
stft(16, mode="constant")
stft(16, mode="replicate", norm=True)
stft(16, mode="circular", one=False)
stft(50, center=False)
stft(100)
add("stft shape", "flow.stft(a, 16)", lambda a: torch.view_as_real(torch.stft(a, 16, return_complex=True)), reals(2, 2, 40))


def istft(n, hop=None, win=None, window=False, center=True, norm=False, one=True, length=None, shape=(9, 12)):
    size = win or n
    text = (f"flow.istft(a, {n}, {lua_of(hop)}, {lua_of(win)}, "
            f"{f'flow.hann_window({size}, true, {{dtype = a.dtype}})' if window else 'nil'}, {lua_of(center)}, {lua_of(norm)}, "
            f"{lua_of(one)}, {lua_of(length)})")

    def call(a):
        w = torch.hann_window(size, dtype=a.dtype) if window else None
        return torch.istft(numbers(a), n, hop, win, w, center, norm, one, length)
    add("istft", text, call, pairs(*shape), pairs(2, *shape))


istft(16)
istft(16, hop=3, window=True)
istft(16, win=10)
istft(16, center=False)
istft(16, center=False, window=True)  # its first window begins with 0
istft(16, norm=True, length=30)
istft(16, norm=True, length=50)
istft(16, one=False, shape=(16, 12))
istft(16, hop=20)
istft(18)
