"""The differences of CuPy from NumPy, reproduced on NumPy arrays."""

import numpy as np

#: Reductions of which some results are others.
REDUCTIONS = {"sum", "max", "min", "amax", "amin", "argmax", "argmin"}


def key_of(array, key):
    """A key as CuPy takes it: integers in arrays modulo the lengths of their axes."""
    parts = [np.asarray(part) if isinstance(part, list) and part else part for part in _parts(key)]
    axis, rest = 0, array.ndim - sum(map(_axes_of, parts))
    for number, part in enumerate(parts):
        if _names_places(part):
            parts[number] = part.astype(np.intp) % array.shape[axis]
        axis += rest if part is Ellipsis else _axes_of(part)
    return tuple(parts)


def write(array, key, value):
    """array[key] = value; of several values for one element the first one stays here, in CuPy any."""
    narrow = [part for part in map(np.asarray, _parts(key)) if part.dtype.kind == "i" and part.dtype.itemsize < 8]
    assert not any((part < 0).any() for part in narrow), "CuPy adds the axis's length to places in their own type"
    key = key_of(array, key)
    view = array[key]
    if isinstance(value, np.ndarray) and np.shares_memory(array, value):
        is_itself = (
            np.shares_memory(view, value) and view.ctypes.data == value.ctypes.data and view.strides == value.strides
        )
        assert is_itself, "CuPy reads what it writes to, in no order"
    array[key] = value
    if any(map(_names_places, key)):
        places = np.arange(array.size).reshape(array.shape)[key]
        values = np.broadcast_to(np.asarray(value, array.dtype), places.shape)
        for place, one in zip(places.ravel()[::-1].tolist(), values.ravel()[::-1], strict=True):
            array[np.unravel_index(place, array.shape)] = one


def taken(function, array, places, axis=None):
    """What take and take_along_axis give: they have no mode, and places are taken modulo the length of the axis."""
    return function(array, np.asarray(places, np.intp) % (array.size if axis is None else array.shape[axis]), axis)


def reduced(name, array, *args, **options):
    """A sum, which begins with +0; an extreme, of zeros by their signs; a place, of any NaN, here the last one."""
    found = getattr(np, name)(array, *args, **options)
    if array.dtype.kind != "f":
        return found
    if name == "sum":
        return found + array.dtype.type(0)
    if name.startswith("arg"):
        return _last_unknown(array, found, *args, **options)
    is_negative = np.all if name.endswith("max") else np.any
    signs = np.copysign(1, 0.5 - is_negative(np.signbit(array), *args, **options))
    return np.where(found == 0, np.copysign(found, signs), found).astype(array.dtype)


def _last_unknown(array, found, axis=None, **options):
    unknown = np.isnan(array)
    last = array.size if axis is None else array.shape[axis]
    place = last - 1 - np.flip(unknown, axis).argmax(axis, **options)
    return np.where(unknown.any(axis, **options), place, found)


def _parts(key):
    return key if isinstance(key, tuple) else (key,)


def _names_places(part):
    return isinstance(part, np.ndarray) and part.dtype.kind in "iu"


def _axes_of(part):
    """Return the number of axes that an index covers."""
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    return part.ndim if isinstance(part, np.ndarray) and part.dtype.kind == "b" else 1
