"""Elements of arrays by keys, as NumPy names and writes them.

CuPy takes integers of an array modulo the length of the axis, where it writes in their own type, which may be too short
for it; it writes elements that are named several times in no order, and what overlaps its source while that is read.
Here places that an axis does not have are refused on every machine, of several values for one element the last one
stays, and sources are copied first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import as_array, is_on_gpu
from simfloat.checks import as_rectangular_array, first_uneven_row


def elements(array: NDArray, key: Any) -> Any:
    """array[key]. Raises IndexError for places that it does not have, ValueError for lists of unlike lengths."""
    if is_on_gpu(array):
        _check_key(array, key)
    try:
        return array[key]
    except ValueError:  # lists of unlike lengths
        raise ValueError(f"An index must be a rectangular array of integers{first_uneven_row(key)}.") from None


def write_elements(array: NDArray, key: Any, value: Any) -> None:
    """array[key] = value, with a value on the array's machine. Raises IndexError for places that it does not have."""
    if not is_on_gpu(array):
        array[key] = value
        return
    names_places = _check_key(array, key)
    key = tuple(_as_full_integers(part) for part in (key if isinstance(key, tuple) else (key,)))
    if np.may_share_memory(array, value):
        value = value.copy()
    if names_places:
        _write_last(array, key, value)
    else:
        array[key] = value


def check_places(array: NDArray, places: Any, axis: int | None) -> None:
    """Raise IndexError, as NumPy does, for integers that name nothing along an axis, or in all of an array."""
    if not is_on_gpu(array) or isinstance(places, slice) or (places := as_array(places)).dtype.kind not in "iu":
        return
    size = array.size if axis is None else array.shape[axis]
    wrong = (places < -size) | (places >= size)
    if wrong.any():
        first = int(places.reshape(-1)[int(np.argmax(wrong))])
        raise IndexError(f"index {first} is out of bounds for axis {axis or 0} with size {size}")


def _check_key(array: NDArray, key: Any) -> bool:
    """Whether integers in arrays name places, all of which are there."""
    parts = [_as_indices(part) for part in (key if isinstance(key, tuple) else (key,))]
    axes = sum(_axes_of(part) for part in parts)
    axis, names_places = 0, False
    for part in parts:
        if part is Ellipsis:
            axis += array.ndim - axes
            continue
        if hasattr(part, "dtype") and axis < array.ndim:
            check_places(array, part, axis)
            names_places |= part.size > 1 and part.dtype.kind in "iu"
        axis += _axes_of(part)
    return names_places


def _as_indices(part: Any) -> Any:
    """One index of a key, a list as the array that NumPy makes of it."""
    return as_rectangular_array(part, "an index", None if part else np.intp) if isinstance(part, list | tuple) else part


def _as_full_integers(part: Any) -> Any:
    """An array of integers in the type of places; another index as it is."""
    part = _as_indices(part)
    return part.astype(np.intp) if hasattr(part, "dtype") and part.dtype.kind in "iu" else part


def _axes_of(part: Any) -> int:
    """How many axes an index is for."""
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    return part.ndim if hasattr(part, "dtype") and part.dtype.kind == "b" else 1


def _write_last(array: NDArray, key: Any, value: Any) -> None:
    """Write to elements of which one may be named several times: the last value stays."""
    places = np.arange(array.size, like=array).reshape(array.shape)[key]
    values = np.broadcast_to(value.reshape(value.shape[-places.ndim :]), places.shape).reshape(-1)
    # A stable sort leaves the values of one element in their order, so the last of each group is written last.
    # CuPy writes them in any order.
    order = np.argsort(places.reshape(-1), kind="stable")
    named = places.reshape(-1)[order]
    is_last = np.concatenate([named[1:] != named[:-1], np.ones_like(named[:1], bool)])
    flat = array.reshape(-1)
    flat[named[is_last]] = values[order[is_last]]
    array[...] = flat.reshape(array.shape)
