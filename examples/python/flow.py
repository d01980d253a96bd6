"""flow.py -- flow in Python, over libflow.so and ctypes: memory is shared both ways by DLPack.

    import numpy, flow
    x = flow.from_dlpack(numpy.ones((2, 3), numpy.float32))
    x.require_grad()
    flow.sum(flow.mul(x, x)).backward()
    print(numpy.from_dlpack(x.grad))

A function of the module is an op of flow by its name; arguments are as in flow's scripts. FLOW_LIBRARY names
the library.
"""
import ctypes as c
import operator
import os
import sys

lib = c.CDLL(os.environ.get("FLOW_LIBRARY", "libflow.so.1"))
NONE, TENSOR, TENSORS, INT, INTS, FLOAT, BOOL, TEXT = range(8)


class _Value(c.Union):
    _fields_ = [("tensor", c.c_void_p), ("integer", c.c_int64), ("number", c.c_double), ("text", c.c_char_p)]


class _Arg(c.Structure):
    _fields_ = [("name", c.c_char_p), ("kind", c.c_int), ("count", c.c_int), ("value", _Value)]


for name in ("flow_error", "flow_signature", "flow_dtype"):
    getattr(lib, name).restype = c.c_char_p
for name in ("flow_shape", "flow_ref"):
    getattr(lib, name).restype = c.c_void_p
for name in ("flow_unref", "flow_dtype", "flow_shape", "flow_ndim"):
    getattr(lib, name).argtypes = [c.c_void_p]

_api = c.pythonapi
_api.PyCapsule_New.restype = c.py_object
_api.PyCapsule_New.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p]
_api.PyCapsule_GetPointer.restype = c.c_void_p
_api.PyCapsule_GetPointer.argtypes = [c.py_object, c.c_char_p]
_api.PyCapsule_SetName.argtypes = [c.py_object, c.c_char_p]
_api.PyCapsule_IsValid.argtypes = [c.py_object, c.c_char_p]
# DLPack 1, and the layout before it, which JAX speaks: the capsule's name fresh and used, taking, giving.
_VERSIONED = b"dltensor_versioned", b"used_dltensor_versioned", lib.flow_from_dlpack, lib.flow_to_dlpack
_UNVERSIONED = (b"dltensor", b"used_dltensor", lib.flow_from_dlpack_unversioned,
                lib.flow_to_dlpack_unversioned)


class Error(RuntimeError):
    pass


def _check(status):
    if status:
        raise Error(lib.flow_error().decode())


_check(lib.flow_open(None))


_given = []  # capsules that __dlpack__ made and nobody has used yet, with their layout


def _references(given):
    capsule = given[0]
    return sys.getrefcount(capsule)


_ALONE = _references((object(), None))  # of an object that only such a tuple has


def _take_back():
    """Frees what capsules share that nobody has used and nobody can use any more: they have no destructor."""
    for given in _given[:]:
        capsule, (fresh, _, take, _) = given
        unused = _api.PyCapsule_IsValid(capsule, fresh)
        del capsule
        if unused and _references(given) > _ALONE:
            continue
        _given.remove(given)
        out = c.c_void_p()
        if unused and not take(c.byref(out), c.c_void_p(_api.PyCapsule_GetPointer(given[0], fresh))):
            lib.flow_unref(out)


class Tensor:
    """A reference to a tensor of flow."""

    def __init__(self, pointer):
        self._as_parameter_ = c.c_void_p(pointer)

    def __del__(self):
        lib.flow_unref(self._as_parameter_)
        if _given:
            _take_back()

    @property
    def shape(self):
        sizes = c.cast(lib.flow_shape(self), c.POINTER(c.c_int64))
        return tuple(sizes[i] for i in range(lib.flow_ndim(self)))

    @property
    def dtype(self):
        return lib.flow_dtype(self).decode()

    def wait(self):
        """What ops write into shared memory is there afterwards."""
        _check(lib.flow_wait(self))
        return self

    def item(self):
        value = c.c_double()
        _check(lib.flow_item(c.byref(value), self))
        return value.value

    def require_grad(self, value=True):
        _check(lib.flow_require_grad(self, c.c_bool(value)))
        return self

    def backward(self, grad=None):
        _check(lib.flow_backward_with(self, grad, 0))

    @property
    def grad(self):
        out = c.c_void_p()
        _check(lib.flow_grad(c.byref(out), self))
        return Tensor(out.value) if out.value else None

    def __dlpack_device__(self):
        return (1, 0)  # the CPU

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        layout = _VERSIONED if max_version and max_version[0] >= 1 else _UNVERSIONED
        if dl_device not in (None, self.__dlpack_device__()):
            raise BufferError(f"flow gives memory of device {self.__dlpack_device__()}, not of {dl_device}")
        _take_back()
        managed = c.c_void_p()
        _check(layout[3](c.byref(managed), call("clone", self) if copy else self))
        capsule = _api.PyCapsule_New(managed, layout[0], None)
        _given.append((capsule, layout))
        return capsule


def from_dlpack(array):
    """A tensor in the memory of an array of another library, which stays as long as either is used."""
    try:
        capsule = array.__dlpack__(max_version=(1, 0))
    except TypeError:  # made before there were versions
        capsule = array.__dlpack__()
    fresh, used, take, _ = _VERSIONED if _api.PyCapsule_IsValid(capsule, _VERSIONED[0]) else _UNVERSIONED
    out = c.c_void_p()
    _check(take(c.byref(out), c.c_void_p(_api.PyCapsule_GetPointer(capsule, fresh))))
    _api.PyCapsule_SetName(capsule, used)
    return Tensor(out.value)


def _int64(value):
    value = operator.index(value)
    if not -2**63 <= value < 2**63:
        raise OverflowError(f"{value} does not fit in 64 bits")
    return value


def _number(value):
    """The int or float that a value of any library is; None: it is none."""
    if getattr(value, "ndim", 0):
        return None
    try:
        return _int64(value)
    except TypeError:
        return float(value) if hasattr(value, "__float__") else None


def _is_bool(value):
    return isinstance(value, bool) or getattr(value, "dtype", None) == bool and getattr(value, "ndim", 1) == 0


def _pack_list(arg, value, keep):
    if hasattr(value, "__dlpack__"):
        raise TypeError(f"flow takes no {type(value).__name__} as an argument; flow.from_dlpack makes a tensor of it")
    try:
        items = list(value)
        tensors = any(isinstance(v, Tensor) for v in items)
        items = [v._as_parameter_.value if tensors else _int64(v) for v in items]
    except (TypeError, AttributeError):
        raise TypeError("flow takes tensors, numbers, texts, and lists of tensors or of integers, "
                        f"not {type(value).__name__}") from None
    array = ((c.c_void_p if tensors else c.c_int64) * len(items))(*items)
    keep.append(array)
    arg.kind, arg.count = TENSORS if tensors else INTS, len(items)
    arg.value.tensor = c.addressof(array)


def _pack(value, name, keep):
    arg = _Arg(name=name and name.encode())
    number = _number(value)
    if value is None:
        arg.kind = NONE
    elif isinstance(value, Tensor):
        arg.kind, arg.value.tensor = TENSOR, value._as_parameter_.value
    elif _is_bool(value):
        arg.kind, arg.value.integer = BOOL, bool(value)
    elif isinstance(number, int):
        arg.kind, arg.value.integer = INT, number
    elif isinstance(number, float):
        arg.kind, arg.value.number = FLOAT, number
    elif isinstance(value, str):
        arg.kind, arg.value.text = TEXT, value.encode()
    else:
        _pack_list(arg, value, keep)
    return arg


def call(op, *args, results=1, **named):
    """Calls an op by its name; `results` tensors, one alone or in a list."""
    keep = []
    packed = [_pack(v, None, keep) for v in args] + [_pack(v, k, keep) for k, v in named.items()]
    out = (c.c_void_p * max(results, 0))()
    _check(lib.flow_call(out, results, op.encode(), (_Arg * len(packed))(*packed), len(packed)))
    made = [Tensor(out[i]) for i in range(results)]
    return made[0] if results == 1 else made


def __getattr__(name):
    if name.startswith("__") or not lib.flow_signature(name.encode()):
        raise AttributeError(f"flow has no op '{name}'")
    return lambda *args, **named: call(name, *args, **named)
