"""share.py -- examples/python/flow.py with NumPy, and with PyTorch and JAX where they are there: one memory, gradients, errors."""
import gc
import sys
import weakref

sys.path.insert(0, "examples/python")
import numpy as np
import flow

libraries = [("numpy", np, np.from_dlpack)]
try:
    import torch
    libraries.append(("torch", torch, torch.from_dlpack))
except ImportError:
    pass

for name, library, take in libraries:
    array = library.ones((2, 3), dtype=library.float32)
    x = flow.from_dlpack(array)
    assert x.shape == (2, 3) and x.dtype == "float32"
    flow.mul_(x, 3).wait()
    assert float(array[1, 2]) == 3, "flow writes into the array"
    array[0, 0] = 5
    assert flow.sum(x).item() == 20, "and sees what is written there"
    x.require_grad()
    flow.sum(flow.mul(x, x)).backward()
    grad = take(x.grad)
    assert float(grad[0, 0]) == 10 and float(grad[1, 1]) == 6
    y = take(flow.full([4], 2.5))
    gc.collect()
    assert float(y.sum()) == 10, "the memory stays while the array does"
    del y, grad, x, array
    turned = library.arange(6).reshape(2, 3).T
    z = flow.from_dlpack(turned)
    assert z.shape == (3, 2) and z.dtype == "int64" and flow.sum(flow.select(z, 1, 1)).item() == 12
    del z, turned
    print(name, "shares memory")

try:
    import jax.numpy as jnp
except ImportError:
    pass
else:  # its arrays are not written
    array = jnp.arange(6.0).reshape(2, 3)
    x = flow.from_dlpack(array)
    same = jnp.from_dlpack(x)
    assert same.unsafe_buffer_pointer() == array.unsafe_buffer_pointer() and float(flow.sum(x).item()) == 15
    x.require_grad()
    flow.sum(flow.mul(x, x)).backward()
    assert float(jnp.from_dlpack(x.grad)[1, 2]) == 10
    y = jnp.from_dlpack(flow.transpose(flow.mul(x, 2), 0, 1))
    gc.collect()
    assert float(y[2, 1]) == 10 and y.dtype == "float32"
    del array, x, same, y
    print("jax shares memory")

class Old:
    """An array that knows of no versions."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

array = np.ones(3, np.float32)
x = flow.from_dlpack(Old(array))
flow.mul_(x, 3).wait()
assert array[2] == 3 and np.from_dlpack(Old(x))[1] == 3
del x

for version in None, (1, 0):        # a capsule that nobody uses, dropped before its tensor and after it
    for first in "tensor", "capsule":
        array = np.ones(3, np.float32)
        alive, held = weakref.ref(array), {"tensor": flow.from_dlpack(array)}
        held["capsule"] = held["tensor"].__dlpack__(max_version=version)
        del array
        del held[first]
        assert alive() is not None
        held.clear()
        flow.sum(flow.full([1], 0))
        assert alive() is None, "its memory is given back"
reverse = flow.from_dlpack(np.arange(4.0)[::-1])                # copied
assert flow.select(reverse, 0, 0).item() == 3
frozen = np.arange(4.0)
frozen.setflags(write=False)
copy = flow.from_dlpack(frozen)
flow.fill_(copy, 7)
assert frozen[1] == 1
for number in 2, 2.0, np.float32(2), np.int64(2), np.float64(2), np.array(2):
    assert flow.mul(copy, number).dtype == "float64" and flow.sum(flow.mul(copy, number)).item() == 56
assert flow.sum(copy, keepdim=np.bool_(True)).shape == (1,)
assert flow.zeros([np.int64(2), 3]).shape == (2, 3)
assert flow.max(copy, 0).item() == 7 and flow.call("max", copy, 0, results=2)[1].dtype == "int64"
assert flow.mul(copy, 1, out=copy).shape == (4,)
ones = flow.ones([3])
apart, shared = np.from_dlpack(ones, copy=True), np.from_dlpack(ones)
flow.fill_(ones, 2).wait()
assert apart[0] == 1 and shared[0] == 2
lapped = flow.from_dlpack(np.lib.stride_tricks.as_strided(np.zeros(4), (3, 2), (8, 8), writeable=True))
only = "flow takes tensors, numbers, texts, and lists of tensors or of integers, not "
for wrong, kind, text in ((lambda: flow.mul(copy, 2**70), OverflowError, "does not fit in 64 bits"),
                          (lambda: flow.zeros([2**64 + 3]), OverflowError, "does not fit in 64 bits"),
                          (lambda: flow.mul(copy, object()), TypeError, only + "object"),
                          (lambda: flow.mul(copy, 2j), TypeError, only + "complex"),
                          (lambda: flow.cat([copy, 3]), TypeError, only + "list"),
                          (lambda: flow.sum(copy, [0.5]), TypeError, only + "list"),
                          (lambda: flow.mul(copy, frozen), TypeError, "flow.from_dlpack makes a tensor of it"),
                          (lambda: flow.call("neg", copy, results=9), flow.Error, "9 were asked for"),
                          (lambda: flow.add_(lapped, 1), flow.Error, "add_: this tensor has strides that overlap")):
    try:
        wrong()
    except kind as e:
        assert text in str(e), e
    else:
        raise AssertionError(text)
for wrong, text in ((lambda: flow.from_dlpack(np.ones(2, complex)), "no dtype is like"),
                    (lambda: flow.matmul(copy, 3), "matmul: y must be a tensor, got an integer"),
                    (lambda: flow.call("matmull"), "did you mean 'matmul'?")):
    try:
        wrong()
    except flow.Error as e:
        assert text in str(e), e
    else:
        raise AssertionError(text)
del reverse, copy, ones, apart, shared, lapped
gc.collect()
assert flow.lib.flow_sync() == 0
print("tensors left:", flow.lib.flow_tensor_count())
