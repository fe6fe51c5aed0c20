"""Rounding arrays to a format."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.observer import Observer
from simfloat.arithmetic.operands import FloatType, as_operand, check_rounding, flat, result_dtype
from simfloat.arithmetic.plan import Draw, plan_for, round_all, take_draw
from simfloat.arithmetic.sources import Elements
from simfloat.arithmetic.stream import BitStream
from simfloat.formats import Format, Rounding, as_format, nearest_even


def round(
    x: ArrayLike,
    format: Format | str,
    rounding: Rounding = nearest_even,
    *,
    stream: BitStream | None = None,
    observer: Observer | None = None,
) -> NDArray[np.floating]:
    """The numbers of `format` that the elements of `x` round to, in an array of x's shape.

    float32 in gives float32 out when the format fits; everything else is read as float64 and gives float64. The one
    definition for all modes: round as if the exponent had no upper bound; a result beyond the format's max is an
    overflow and becomes +-inf (ieee, p3109), NaN (fn, fnuz) or +-max (finite formats, saturating modes, and modes
    that point back inside). The sign of zero is kept where the format has -0. Underflow is gradual.

    Stochastic modes take their bits from `stream`. `observer` receives the counted events.

    Raises ValueError for a NaN in a format without NaN, stochastic rounding without a stream, and input that float64
    cannot hold. Source: IEEE 754-2019 sections 4.3 and 7.4; IEEE P3109 interim report 4.0 section 4.7.4.
    """
    format = as_format(format)
    check_rounding(rounding)
    x = as_operand(x)
    return round_array(x, format, rounding, result_dtype([x], format), take_draw(stream, rounding), observer)


def round_array(
    x: NDArray,
    format: Format,
    rounding: Rounding = nearest_even,
    dtype: FloatType = np.float64,
    draw: Draw | None = None,
    observer: Observer | None = None,
    operation: str = "round",
) -> NDArray[np.floating]:
    """The numbers of a float array rounded, in an array of type `dtype`; nothing is checked."""
    out = np.empty(x.shape, dtype)
    source = Elements(flat(x))
    plan = plan_for(format, rounding, source.carrier)
    round_all(source, out, plan, operation=operation, draw=draw, observer=observer)
    return out


def carrier_of(format: Format) -> FloatType:
    """The array type that numbers of a format travel as: float32 if they fit."""
    return np.float32 if format.fits_float32 else np.float64
