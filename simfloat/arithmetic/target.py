"""Where results go: the format, mode and array type that a rounding has, and which of them float64 can prove."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Stream, check_stream
from simfloat.arithmetic.observer import Observer, check_observer
from simfloat.arithmetic.operands import FloatType, are_float32
from simfloat.environment import in_usual_environment
from simfloat.formats import FP64, Format, Rounding, as_format
from simfloat.formats.format_names import FormatLike
from simfloat.formats.rounding import RoundingLike, as_rounding

#: Round-to-odd in float64's 53 bits proves a single rounding to at most this many.
MOST_PRECISION = 50

#: Below this float64 has too few bits to tell an inexact result by the last one of them.
LEAST = 2.0**-1070


class Target(NamedTuple):
    """Format, rounding mode and array type of results, with the stream and the observer of their roundings.

    Nothing here is checked: `as_target` is for what users hand over.
    """

    format: Format
    rounding: Rounding
    dtype: FloatType  # of the array of results
    stream: Stream | None = None
    observer: Observer | None = None
    operation: str = ""  # its name for the observer

    def with_call_options(self, format: Any, stream: Stream | None, observer: Observer | None) -> Target:
        """A cached target as one call wants it: with its stream and observer, which are checked, and with its own
        format object, which is equal but may have another name in messages.
        """
        target = self
        if format is not self.format and isinstance(format, Format):
            target = self._replace(format=format)
        if stream is not None:
            check_stream(stream)
        if observer is not None:
            check_observer(observer)
        return target._replace(stream=stream, observer=observer)


def as_target(
    operands: list[NDArray],
    format: FormatLike,
    rounding: RoundingLike,
    stream: Stream | None,
    observer: Observer | None,
    operation: str,
) -> Target:
    """The target that users ask for; ValueError for what is no format, rounding mode, stream or observer."""
    format = as_format(format)
    rounding = as_rounding(rounding)
    check_stream(stream)
    check_observer(observer)
    return Target(format, rounding, result_dtype(operands, format), stream, observer, operation)


def carrier_of(format: Format) -> FloatType:
    """The array type that numbers of a format travel as: float32 if they fit."""
    return np.float32 if format.fits_float32 else np.float64


def result_dtype(operands: list[NDArray], format: Format) -> FloatType:
    """float32 if all operands are float32 and the format fits, else float64."""
    return carrier_of(format) if are_float32(operands) else np.float64


def check_precision(format: Format, rounding: Rounding) -> None:
    """Raise ValueError for formats whose single rounding float64's arithmetic cannot prove."""
    if format.mantissa_bits >= MOST_PRECISION and not (format == FP64 and rounding.steps == "nearest"):
        raise ValueError(
            f"An operation is rounded once to formats of at most {MOST_PRECISION} bits of precision, or to FP64 under "
            f"nearest_even; {format} has precision {format.precision}, and the mode is {rounding}. Use at most "
            f"{MOST_PRECISION - 1} mantissa bits, or simfloat.FP64 with simfloat.nearest_even."
        )


@in_usual_environment
def check_inexact(format: Format, operation: str) -> None:
    """Raise ValueError for a format so wide that exact results, rounded to odd in float64, may be taken for its own."""
    if format.mantissa_bits >= MOST_PRECISION or format.smallest_subnormal < LEAST:
        raise ValueError(
            f"Which results of {operation} are inexact cannot be told in {format}; it can in formats of at most "
            f"{MOST_PRECISION} bits of precision and no numbers below 2^-1070. Count without more=True, "
            "compute without flags=True."
        )


def odd_suffices(format: Format, rounding: Rounding, carrier: FloatType = np.float64) -> bool:
    """Whether round-to-odd in the carrier holds all that a rounding reads, at every magnitude of the format."""
    digits, least, top = (24, -149, 127) if carrier is np.float32 else (53, -1074, 1023)
    # A draw reads `bits` bits below the last place, and two more stand for what lies below.
    bits = rounding.bits + 2
    # Without a draw, what lies above is beyond the largest.
    above = format.emax < top or (format.emax == top and not rounding.is_stochastic)
    return above and format.last_exponent - format.mantissa_bits - bits >= least and format.precision + bits <= digits
