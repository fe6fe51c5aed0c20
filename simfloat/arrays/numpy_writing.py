"""NumPy's functions that write numbers into an array: they are rounded as where they are assigned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simfloat.arithmetic.machines import on_cpu, write_back_to_device


def _write_operation(function: Callable[..., Any], place: int) -> Callable[..., Any]:
    """A function whose first argument is the array that it writes to, and whose numbers are the argument at `place`."""

    def operation(t: Any, a: Any, *args: Any, **options: Any) -> None:
        arguments = dict(zip(_NAMES[function], args, strict=False)) | options
        unknown = [name for name in arguments if name not in _NAMES[function]]
        name = _NAMES[function][place]
        if not isinstance(a, type(t)):
            raise ValueError(
                f"numpy.{function.__name__} would write numbers of {t.name_in_messages} to {type(a).__name__}: take them out "
                "with np.asarray(x)."
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
    """Places and conditions as NumPy reads them."""
    return on_cpu(getattr(x, "numbers", x))


#: What these functions take behind the array that they write to.
_NAMES: dict[Callable[..., Any], tuple[str, ...]] = {
    np.copyto: ("src", "where"),
    np.put: ("ind", "v", "mode"),
    np.place: ("mask", "vals"),
    np.putmask: ("mask", "values"),
    np.put_along_axis: ("indices", "values", "axis"),
    np.fill_diagonal: ("val", "wrap"),
}

#: NumPy's function -> what it does with an array.
WRITING: dict[Callable[..., Any], Callable[..., Any]] = {
    np.copyto: _write_operation(np.copyto, 0),
    np.put: _write_operation(np.put, 1),
    np.place: _write_operation(np.place, 1),
    np.putmask: _write_operation(np.putmask, 1),
    np.put_along_axis: _write_operation(np.put_along_axis, 1),
    np.fill_diagonal: _write_operation(np.fill_diagonal, 0),
}
