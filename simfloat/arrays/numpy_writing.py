"""NumPy's functions that write numbers into an array: they are rounded as where they are assigned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simfloat.arithmetic.machines import on_cpu, put_back


def _writes(function: Callable[..., Any], place: int) -> Callable[..., Any]:
    """A function whose first argument is the array that it writes to, and whose numbers are the argument at `place`."""

    def operation(t: Any, a: Any, *args: Any, **options: Any) -> None:
        arguments = dict(zip(_NAMES[function], args, strict=False)) | options
        unknown = [name for name in arguments if name not in _NAMES[function]]
        name = _NAMES[function][place]
        if not isinstance(a, type(t)):
            raise ValueError(
                f"numpy.{function.__name__} would write numbers of {t.called} to {type(a).__name__}: take them out "
                "with np.asarray(x)."
            )
        if unknown or name not in arguments:
            raise ValueError(f"numpy.{function.__name__} of {t.called} takes {', '.join(('a', *_NAMES[function]))}.")
        values = a._as_own(arguments.pop(name), rounds=True) if a._fits(arguments[name]) else a._refused_parts()
        others = {key: _plain(value) for key, value in arguments.items()}
        numbers = on_cpu(a._written_to())
        function(numbers, **others, **{name: on_cpu(values.numbers)})
        put_back(numbers, a.numbers)

    return operation


def _plain(x: Any) -> Any:
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
    np.copyto: _writes(np.copyto, 0),
    np.put: _writes(np.put, 1),
    np.place: _writes(np.place, 1),
    np.putmask: _writes(np.putmask, 1),
    np.put_along_axis: _writes(np.put_along_axis, 1),
    np.fill_diagonal: _writes(np.fill_diagonal, 0),
}
