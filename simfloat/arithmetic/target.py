"""Where results go: the one value that travels with numbers to be rounded."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.observer import Observer, check_observer
from simfloat.arithmetic.operands import FloatType, are_float32
from simfloat.arithmetic.stream import Stream, check_stream
from simfloat.formats import Format, Rounding, as_format
from simfloat.formats.names import FormatLike
from simfloat.formats.rounding import RoundingLike, as_rounding


class Target(NamedTuple):
    """The format that results are rounded to, how, in an array of which type, and who is told.

    Nothing here is checked: `as_target` is for what users hand over.
    """

    format: Format
    rounding: Rounding
    dtype: FloatType  # of the array of results
    stream: Stream | None = None
    observer: Observer | None = None
    operation: str = ""  # as which the observer knows it

    def of_call(self, format: Any, stream: Stream | None, observer: Observer | None) -> Target:
        """The same for one call of many alike: with its stream and observer, checked, and with the format as it names
        it, which is equal but may have another name, for messages.
        """
        target = self
        if format is not self.format and isinstance(format, Format):
            target = self._replace(format=format)
        if stream is None and observer is None:
            return target
        check_stream(stream)
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
