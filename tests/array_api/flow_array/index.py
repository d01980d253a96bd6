"""index.py -- x[key] and x[key] = value in the ops of flow."""
import operator

from .array import Array, call, cast_number, cast, from_values, DTYPES


def is_array(entry, kind):
    return isinstance(entry, Array) and kind in entry.dtype.kind


def spread(x, key):
    """The key with an entry for each axis that is left, the ellipsis written out."""
    key = key if isinstance(key, tuple) else (key,)
    used = sum(entry.ndim if is_array(entry, "bool") else entry is not None and entry is not ... for entry in key)
    if used > x.ndim or sum(entry is ... for entry in key) > 1:
        raise IndexError(f"the key names {used} axes of {x.ndim}")
    fill = (slice(None),) * (x.ndim - used)
    for i, entry in enumerate(key):
        if entry is ...:
            return key[:i] + fill + key[i + 1:]
    return key + fill


def one_of(x, axis, entry):
    i, size = operator.index(entry), x.shape[axis]
    if not -size <= i < size:
        raise IndexError(f"{i} is not in an axis of {size}")
    return call("select", x, axis, i)


def part_of(x, axis, entry):
    """The part that a slice names as a view, and whether it is in reverse."""
    start, stop, step = entry.indices(x.shape[axis])
    count = len(range(start, stop, step))
    if step < 0:
        start, step = start + (count - 1) * step, -step
        return call("slice", x, axis, start if count else 0, start + count * step if count else 0, step), count > 1
    return call("slice", x, axis, start, max(start, stop), step), False


def view(x, key):
    """What a key of integers, slices and None names: a view, and its axes that are in reverse."""
    axis, reverse = 0, []
    for entry in key:
        if entry is None:
            x = call("unsqueeze", x, axis)
        elif isinstance(entry, slice):
            x, turned = part_of(x, axis, entry)
            reverse += [axis] if turned else []
        else:
            x = one_of(x, axis, entry)
            continue
        axis += 1
    return x, reverse


def positions(x, key):
    """Where integers and arrays of integers, one for each axis, point to in x as one line."""
    at, step = None, 1
    for entry, size in zip(reversed(key), reversed(x.shape)):
        if isinstance(entry, Array):
            entry = cast(entry, DTYPES["int64"])
        else:
            entry = from_values([operator.index(entry)], (), DTYPES["int64"])
        entry = call("where", entry < 0, entry + size, entry) * step
        at, step = entry if at is None else at + entry, step * size
    return at


def get(x, key):
    if is_array(key, "bool") or isinstance(key, tuple) and len(key) == 1 and is_array(key[0], "bool"):
        mask = key if isinstance(key, Array) else key[0]
        if mask.ndim > x.ndim or any(m not in (n, 0) for m, n in zip(mask.shape, x.shape)):
            raise IndexError(f"a mask of shape {mask.shape} does not fit {x.shape}")
        if not mask.ndim:                    # an axis of its own, with x once or not at all
            x, mask = call("unsqueeze", x, 0), call("unsqueeze", mask, 0)
        return call("index", x, mask)
    key = spread(x, key)
    if any(is_array(entry, "integer") and entry.ndim for entry in key):
        return call("take", x, positions(x, key))
    part, reverse = view(x, key)
    return call("flip", part, reverse) if reverse else part


def put(x, key, value):
    if not isinstance(value, Array):
        value = cast_number(value, x.dtype)
    value = cast(value, x.dtype)
    if is_array(key, "bool"):
        if value.ndim:
            raise TypeError("a mask takes one value")
        call("masked_fill_", x, key, value)
        return
    part, reverse = view(x, spread(x, key))
    if reverse and value.ndim:
        value = call("flip", call("expand", value, part.shape), reverse)
    call("copy_", part, value)
