"""NumPy's functions that compute nothing of arrays of a format: they move numbers, or fill an array with one."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np

from simfloat.arithmetic.elements import check_places


def _moved(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one array's numbers, whose result is an array of the format, or a list of them."""

    def operation(t: Any, a: Any, *args: Any, **options: Any) -> Any:
        moved = function(t._operand(a), *args, **_without_out(function, options))
        if isinstance(moved, list):
            return [t._like(part) for part in moved]
        # Zeros that fill a triangle are numbers of all formats but those of scales.
        return t._like(moved if t.format.has_zero else t.arithmetic.round(moved))

    return operation


def _taken(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one array's numbers and of places along an axis, all of which have to be there."""
    move, kind = _moved(function), signature(function)

    def operation(t: Any, a: Any, *args: Any, **options: Any) -> Any:
        (_, places), *others = list(kind.bind(a, *args, **options).arguments.items())[1:]
        further = {"axis": kind.parameters["axis"].default, **dict(others)}
        if further.get("mode", "raise") == "raise":
            further.pop("mode", None)
            check_places(t._operand(a), places, further["axis"])
        return move(t, a, places, **further)

    return operation


def _sorted(t: Any, a: Any, axis: int | None = -1) -> Any:
    """The numbers in ascending order, NaN last; zeros of unlike signs stay in the order that they had."""
    return t._like(np.sort(t._operand(a), axis, kind="stable"))


def _joined(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a list of arrays, all of the format."""
    return lambda t, arrays, *args: t._like(function([t._operand(a) for a in arrays], *args))


def _appended(t: Any, arr: Any, values: Any, axis: int | None = None) -> Any:
    """Numbers behind those of an array, rounded as where they are assigned."""
    parts = [t._as_own(arr), t._as_own(values, rounds=True)]
    return t._joined_along([part.ravel() for part in parts] if axis is None else parts, axis or 0)


def _in_a_grid(t: Any, *xi: Any, indexing: Any = "xy") -> Any:
    """Every array repeated along the axes of the others."""
    grids: Any = np.meshgrid(*(t._operand(x) for x in xi), indexing=indexing)
    return tuple(map(t._like, grids))


def _filled(number: float) -> Callable[..., Any]:
    """A function that gives an array like another one, full of a number."""
    return lambda t, a, *, shape=None: _full(t, a, number, shape=shape)


def _full(t: Any, a: Any, fill_value: Any, *, shape: Any = None) -> Any:
    """An array like another one, full of a number, which is rounded as where it is assigned."""
    full = t._like(np.zeros(a.shape if shape is None else shape, a.numbers.dtype, like=a.numbers))
    full[...] = fill_value
    return full


def _without_out(function: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    if "out" in options:
        raise ValueError(f"numpy.{function.__name__} of arrays of a format gives a new one: write y[...] = x for out=.")
    return options


#: NumPy's function -> what it does with an array of the class `t` is of; those of `numpy_protocol.FUNCTIONS` besides.
MOVEMENTS: dict[Callable[..., Any], Callable[..., Any]] = {
    **{
        function: _moved(function)
        for function in (
            *(np.diag, np.diagonal, np.tril, np.triu, np.flip, np.fliplr, np.flipud, np.rot90, np.roll, np.moveaxis),
            *(np.repeat, np.tile, np.copy, np.atleast_1d),
            *(np.atleast_2d, np.split, np.array_split, np.hsplit, np.vsplit, np.resize, np.rollaxis),
        )
    },
    **{function: _taken(function) for function in (np.take, np.take_along_axis, np.delete)},
    **{function: _joined(function) for function in (np.vstack, np.hstack, np.column_stack)},
    np.append: _appended,
    np.sort: _sorted,
    np.meshgrid: _in_a_grid,
    np.zeros_like: _filled(0.0),
    np.empty_like: _filled(0.0),
    np.ones_like: _filled(1.0),
    np.full_like: _full,
}
