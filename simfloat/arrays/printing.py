"""Print an array as the call that creates it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import on_cpu
from simfloat.arrays.arithmetic import ArrayArithmetic
from simfloat.formats import Format, as_format, nearest_even
from simfloat.formats.catalog import CATALOG

#: Elements above which only the first and the last ones are printed.
MOST = 1000


def call_of(numbers: NDArray, arithmetic: ArrayArithmetic) -> str:
    """Return the `array(...)` call that creates these values; large arrays are abbreviated as in NumPy."""
    options = {
        "rounding": arithmetic.rounding if arithmetic.rounding != nearest_even else None,
        "accumulate": arithmetic.accumulate,
        "stream": arithmetic.stream,
        "complex_products": arithmetic.complex_products if arithmetic.complex_products != "rounded" else None,
    }
    named = [f"{name}={value!r}" for name, value in options.items() if value is not None]
    elements = _elements(on_cpu(numbers))
    reshaped = f".reshape{numbers.shape}" if numbers.size == 0 and numbers.ndim != 1 else ""
    return f"array({', '.join([elements, _format(arithmetic.format), *named])}){reshaped}"


def line_of(numbers: NDArray, format: Format, width: int) -> str:
    """Return the format and the first values in at most `width` characters."""
    text = " ".join([str(format), *map(str, on_cpu(numbers.ravel()[:width]).tolist())])
    return text if len(text) <= width and numbers.size <= width else text[: max(width - 3, 0)].rstrip() + "..."


def _format(format: Format) -> str:
    """Return the catalog name of a format, or the call that creates a custom format."""
    name = str(format)
    return name if CATALOG.get(name) == format or (format.is_fixed and as_format(name) == format) else repr(format)


def _elements(numbers: NDArray) -> str:
    if not numbers.size:
        return "[]"
    return np.array2string(
        numbers.astype(np.complex128 if numbers.dtype.kind == "c" else np.float64),
        separator=", ",
        prefix="array(",
        threshold=MOST,
        max_line_width=110,
        formatter={"float_kind": _real, "complex_kind": _complex},
    )


def _real(x: Any) -> str:
    number = float(x)
    return repr(number) if math.isfinite(number) else f"float('{number}')"


def _complex(z: Any) -> str:
    return f"complex({_real(z.real)}, {_real(z.imag)})"
