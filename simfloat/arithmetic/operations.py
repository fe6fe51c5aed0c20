"""One operation, one rounding: the exact real result is rounded once."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.catalog import Operation
from simfloat.arithmetic.exactness import check_precision
from simfloat.arithmetic.observer import Observer
from simfloat.arithmetic.operands import as_operand, common_shape, spread
from simfloat.arithmetic.plan import round_all
from simfloat.arithmetic.sources import source_for
from simfloat.arithmetic.stream import Stream, take_draw
from simfloat.arithmetic.target import Target, as_target, result_dtype
from simfloat.formats import FP32, FormatLike, Rounding


def operate(
    operation: Operation,
    operands: tuple[ArrayLike, ...],
    format: FormatLike,
    rounding: Rounding,
    stream: Stream | None,
    observer: Observer | None,
) -> NDArray[np.floating]:
    """A public operation, as users call it."""
    arrays = [as_operand(x, name) for x, name in zip(operands, operation.operands, strict=True)]
    target = as_target(arrays, format, rounding, stream, observer, operation.name)
    check_precision(target.format, rounding)
    return compute(operation.name, arrays, target)


def compute(operation: str, arrays: list[NDArray], target: Target) -> NDArray[np.floating]:
    """An operation on float arrays; nothing is checked but the shapes. The observer is told of the operation."""
    shape = common_shape(arrays)
    draw = take_draw(target.stream, target.rounding)
    make_source = source_for(operation, target.format, target.rounding, result_dtype(arrays, FP32) is np.float32)
    out = np.empty(shape, target.dtype)
    source = make_source(operation, [spread(a, shape) for a in arrays], target.rounding)
    round_all(source, out, target._replace(operation=operation), draw)
    return out
