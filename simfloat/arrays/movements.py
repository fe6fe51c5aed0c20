"""NumPy functions that move values of arrays, fill arrays, or write values into an array.

They compute nothing. Written values are rounded in the same way as assigned values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

import numpy as np

from simfloat.arithmetic.machines import CPU, GPU, is_on_gpu, on_cpu, on_device_of, write_back_to_device
from simfloat.arithmetic.numpy_protocol import check_places


def _movement(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a NumPy function of one array; the result is an array of the format, or a list of arrays."""

    def operation(t: Any, a: Any, *args: Any, **options: Any) -> Any:
        _check_plain(t, function, *args, *_refuse_out(function, options).values())
        moved = function(t._operand(a), *args, **options)
        if isinstance(moved, list | tuple):
            return type(moved)(t._with_numbers(part) for part in moved)
        # Every format except those of scales has a zero, so zeros that fill a triangle need no rounding.
        return t._with_numbers(moved if t.format.has_zero else t.arithmetic.round(moved))

    return operation


def _movement_by_places(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of one array and of indices along an axis; all indices must be in range."""
    move, kind = _movement(function), signature(function)

    def operation(t: Any, a: Any, *args: Any, **options: Any) -> Any:
        (_, places), *others = list(kind.bind(a, *args, **options).arguments.items())[1:]
        further = {"axis": kind.parameters["axis"].default, **dict(others)}
        if further.get("mode", "raise") == "raise":
            further.pop("mode", None)
            check_places(t._operand(a), places, further["axis"])
        return move(t, a, places, **further)

    return operation


def _check_plain(t: Any, function: Callable[..., Any], *options: Any) -> None:
    """Raise ValueError if an array of a format is passed instead of integers or conditions."""
    for option in options:
        if isinstance(option, type(t)) or (
            isinstance(option, list | tuple) and any(isinstance(x, type(t)) for x in option)
        ):
            raise ValueError(
                f"numpy.{function.__name__} takes values from one of the {t.name_in_messages}; indices, sections and "
                "conditions must be plain arrays: np.asarray(x).astype(int), x > 0."
            )


def _for_each_array(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of one array that accepts several arrays and then returns a tuple."""

    def operation(t: Any, *arrays: Any) -> Any:
        results = tuple(t._with_numbers(function(t._as_operand_array(x, rounds=True).numbers)) for x in arrays)
        return results if len(results) > 1 else results[0]

    return operation


def _sort(t: Any, a: Any, axis: int | None = -1) -> Any:
    """Sort the values in ascending order, NaN last; zeros of different signs keep their order."""
    return t._with_numbers(np.sort(t._operand(a), axis, kind="stable"))


def _join(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of a list of arrays and other values; the other values are rounded as if they were assigned."""
    return lambda t, arrays, *args: t._join(lambda parts: function(parts, *args), arrays)


def _append(t: Any, arr: Any, values: Any, axis: int | None = None) -> Any:
    return t._join(lambda parts: np.append(parts[0], parts[1], axis), [arr, values])


def _insert(t: Any, arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    _check_plain(t, np.insert, obj)
    return t._join(lambda parts: _on_cpu(lambda a, x: np.insert(a, on_cpu(obj), x, axis), parts), [arr, values])


def _extraction(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of a condition and an array that returns the values for which the condition is true."""

    def operation(t: Any, condition: Any, a: Any, *args: Any) -> Any:
        _check_plain(t, function, condition, *args)
        return t._with_numbers(function(condition, t._operand(a), *args))

    return operation


def _block(t: Any, arrays: Any) -> Any:
    """Join a nested list of matrices into one matrix."""

    def numbers(part: Any) -> Any:
        return (
            [numbers(one) for one in part]
            if isinstance(part, list)
            else on_cpu(t._as_operand_array(part, rounds=True).numbers)
        )

    return t._with_numbers(on_device_of(np.block(numbers(arrays)), t.numbers))


def _meshgrid(t: Any, *xi: Any, indexing: Any = "xy", sparse: bool = False, copy: bool = True) -> Any:
    """Repeat every array along the axes of the others."""
    axes = [t._as_operand_array(x, rounds=True).numbers for x in xi]
    grids: Any = np.meshgrid(*axes, indexing=indexing, sparse=sparse)
    return tuple(map(t._with_numbers, grids))


def _broadcast(t: Any, *args: Any) -> Any:
    """Broadcast all arrays to their common shape, as copies."""
    parts = [t._as_operand_array(x, rounds=True).numbers for x in args]
    return tuple(t._with_numbers(x.copy()) for x in np.broadcast_arrays(*parts))


def _select(t: Any, condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """Return, for each element, the first choice with a true condition."""
    _check_plain(t, np.select, list(condlist))
    parts = [t._as_operand_array(x, rounds=True).numbers for x in (*choicelist, default)]
    conditions = list(map(on_cpu, condlist))
    return t._with_numbers(_on_cpu(lambda *choices: np.select(conditions, choices[:-1], choices[-1][()]), parts))


def _choose(t: Any, a: Any, choices: Any, *, mode: Any = "raise") -> Any:
    """Return, for each element of the integer array `a`, the element of choices[a]."""
    _check_plain(t, np.choose, a)
    choice_numbers = [t._as_operand_array(x, rounds=True).numbers for x in choices]
    return t._with_numbers(_on_cpu(lambda *parts: np.choose(np.asarray(on_cpu(a)), parts, mode=mode), choice_numbers))


#: Padding modes that round nothing.
PADDING = ("constant", "edge", "reflect", "symmetric", "wrap")


def _pad(t: Any, array: Any, pad_width: Any, mode: Any = "constant", **options: Any) -> Any:
    """Pad an array with copies of its own values or with constants, which are rounded as if they were assigned."""
    if mode not in PADDING or options.get("reflect_type", "even") != "even":
        raise ValueError(
            f"numpy.pad of {t.name_in_messages} has the modes {', '.join(PADDING)}, got {mode!r} with {options}."
        )
    if "constant_values" in options:
        options["constant_values"] = on_cpu(t._as_operand_array(options["constant_values"], rounds=True).numbers)
    padded = _on_cpu(lambda x: np.pad(x, pad_width, mode, **options), [t._as_operand_array(array).numbers])
    return t._with_numbers(padded if t.format.has_zero else t.arithmetic.round(padded))


def _on_cpu(function: Callable[..., Any], parts: Sequence[Any]) -> Any:
    """Run a function that CuPy may not have on the CPU, and return the result on the device of the operands."""
    machine = GPU if any(map(is_on_gpu, parts)) else CPU
    return machine.to_device(function(*map(on_cpu, parts)))


def _like_filler(number: float) -> Callable[..., Any]:
    """Return a function that creates an array like another one, filled with `number`."""
    return lambda t, a, *, shape=None: _full(t, a, number, shape=shape)


def _full(t: Any, a: Any, fill_value: Any, *, shape: Any = None) -> Any:
    """Create an array like another one, filled with a value that is rounded as if it were assigned."""
    full = t._with_numbers(np.zeros(a.shape if shape is None else shape, a.numbers.dtype, like=a.numbers))
    full[...] = fill_value
    return full


def _refuse_out(function: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    if "out" in options:
        raise ValueError(
            f"numpy.{function.__name__} of arrays of a format returns a new array: write y[...] = x for out=."
        )
    return options


#: NumPy function -> implementation for an array of the class of `t`, in addition to `numpy_protocol.FUNCTIONS`.
MOVEMENTS: dict[Callable[..., Any], Callable[..., Any]] = {
    **{
        function: _movement(function)
        for function in (
            *(np.diag, np.diagonal, np.tril, np.triu, np.flip, np.fliplr, np.flipud, np.rot90, np.roll, np.moveaxis),
            *(np.repeat, np.tile, np.copy, np.trim_zeros, np.dsplit),
            *(np.split, np.array_split, np.hsplit, np.vsplit, np.resize, np.rollaxis),
            np.lib.stride_tricks.sliding_window_view,
        )
    },
    **{function: _movement_by_places(function) for function in (np.take, np.take_along_axis, np.delete)},
    **{function: _join(function) for function in (np.vstack, np.hstack, np.dstack, np.column_stack)},
    **{function: _for_each_array(function) for function in (np.atleast_1d, np.atleast_2d, np.atleast_3d)},
    np.append: _append,
    np.insert: _insert,
    np.block: _block,
    **{function: _extraction(function) for function in (np.extract, np.compress)},
    np.sort: _sort,
    np.meshgrid: _meshgrid,
    np.broadcast_arrays: _broadcast,
    np.select: _select,
    np.choose: _choose,
    np.pad: _pad,
    np.zeros_like: _like_filler(0.0),
    np.empty_like: _like_filler(0.0),
    np.ones_like: _like_filler(1.0),
    np.full_like: _full,
}


def _write_operation(function: Callable[..., Any], place: int) -> Callable[..., Any]:
    """Wrap a function that writes to its first argument; the argument at position `place` contains the values."""

    def operation(t: Any, a: Any, *args: Any, **options: Any) -> None:
        arguments = dict(zip(_NAMES[function], args, strict=False)) | options
        unknown = [name for name in arguments if name not in _NAMES[function]]
        name = _NAMES[function][place]
        if not isinstance(a, type(t)):
            raise ValueError(
                f"numpy.{function.__name__} would write numbers of {t.name_in_messages} to {type(a).__name__}: convert "
                "them with np.asarray(x)."
            )
        if unknown or name not in arguments:
            raise ValueError(
                f"numpy.{function.__name__} of {t.name_in_messages} takes {', '.join(('a', *_NAMES[function]))}."
            )
        values = (
            a._as_operand_array(arguments.pop(name), rounds=True) if a._fits(arguments[name]) else a._refuse_complex()
        )
        others = {key: _as_numpy_reads(value) for key, value in arguments.items()}
        numbers = on_cpu(a._writable_numbers())
        function(numbers, **others, **{name: on_cpu(values.numbers)})
        write_back_to_device(numbers, a.numbers)

    return operation


def _as_numpy_reads(x: Any) -> Any:
    """Return indices and conditions as plain NumPy arrays."""
    return on_cpu(getattr(x, "numbers", x))


#: The arguments of these functions after the array that they write to.
_NAMES: dict[Callable[..., Any], tuple[str, ...]] = {
    np.copyto: ("src", "where"),
    np.put: ("ind", "v", "mode"),
    np.place: ("mask", "vals"),
    np.putmask: ("mask", "values"),
    np.put_along_axis: ("indices", "values", "axis"),
    np.fill_diagonal: ("val", "wrap"),
}

#: NumPy function -> implementation.
WRITING: dict[Callable[..., Any], Callable[..., Any]] = {
    np.copyto: _write_operation(np.copyto, 0),
    np.put: _write_operation(np.put, 1),
    np.place: _write_operation(np.place, 1),
    np.putmask: _write_operation(np.putmask, 1),
    np.put_along_axis: _write_operation(np.put_along_axis, 1),
    np.fill_diagonal: _write_operation(np.fill_diagonal, 0),
}
