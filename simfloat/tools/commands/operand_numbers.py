"""Numbers of a format or of an integer dtype, from which the operands of test vectors are built."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import simfloat as sf
from simfloat.arithmetic.testfloat import Kind


def random_significands(words: NDArray[Any], signs: NDArray[Any]) -> NDArray[np.float64]:
    """Return numbers with magnitudes from 1 to 2, 33 significant bits and random signs."""
    return (1.0 + words / 2.0**32) * (1.0 - 2.0 * (signs & 1))


def exponents_of(x: ArrayLike) -> NDArray[np.int64]:
    """Return the exponents e of numbers: 2^e is at most the magnitude, and 2^(e+1) is above it."""
    return np.frexp(x)[1].astype(np.int64) - 1


def with_exponents(x: NDArray[np.float64], exponents: NDArray[np.int64], format: sf.Format) -> NDArray[np.float64]:
    """Return numbers of a format with the significands of x, and with exponents that are limited to its range."""
    exponents = np.clip(exponents, exponents_of(format.smallest_subnormal), exponents_of(format.max))
    return as_numbers(np.ldexp(x, (exponents - exponents_of(x)).astype(np.int32)), format)


def as_numbers(x: NDArray[Any], kind: Kind) -> NDArray[Any]:
    """Return the nearest finite numbers of a format, or the nearest integers of a dtype in an array of objects."""
    x = np.nan_to_num(x, nan=0.0)
    if isinstance(kind, np.dtype):
        limits = np.iinfo(kind)
        numbers = [min(max(int(number), limits.min), limits.max) for number in np.round(x).reshape(-1).tolist()]
        return np.array(numbers, object).reshape(x.shape)
    return sf.round(x if kind.signed else np.abs(x), kind, sf.nearest_even.saturating()).astype(np.float64)


def neighbours(x: NDArray[Any], steps: NDArray[np.int64], kind: Kind) -> NDArray[Any]:
    """Return the next larger number if a step is 1, and the next smaller one if it is -1; x itself at the end."""
    if isinstance(kind, np.dtype):
        limits = np.iinfo(kind)
        return np.clip(x + np.broadcast_to(steps, x.shape).astype(object), limits.min, limits.max)
    lowest = kind.min if kind.signed else 0.0 if kind.has_zero else kind.smallest_subnormal
    moved = sf.nextafter(x, np.where(steps > 0, kind.max, np.where(steps < 0, lowest, x)), kind)
    return np.where(np.isfinite(moved), moved, x).astype(np.float64)


def special_number(text: str, format: sf.Format) -> float | None:
    """Return the special number of a text, or the nearest number to a finite one; None if the format lacks it."""
    x = float(text.replace("max", repr(float(format.max))))
    lacks = (np.isnan(x) and not format.has_nan) or (np.isinf(x) and not format.has_infinity)
    if lacks or (x == 0 and not format.has_zero) or (text[0] == "-" and not format.signed):
        return None
    if text == "-0" and not format.has_negative_zero:
        return None
    return float(as_numbers(np.array([x]), format)[0]) if np.isfinite(x) else x
