"""Moments of an optimizer that are stored with scales: elements of a narrow format, as in public 8-bit optimizers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import take_draw
from simfloat.arithmetic.blocks import repeat_for_elements
from simfloat.arithmetic.casts import Cast
from simfloat.arithmetic.scaling import WholeScaling
from simfloat.environment import in_usual_environment
from simfloat.simulation.arithmetic import Arithmetic


@in_usual_environment
def round_with_scale(arithmetic: Arithmetic, cast: Cast, x: NDArray) -> NDArray:
    """Return the stored values of a moment: elements q = round(x * s), divided by s in the dtype of x.

    Blocks run along the last axis. `arithmetic` has the random stream, the observer and the history of delayed scales.
    """
    target, draw = arithmetic.target, take_draw(arithmetic.target.stream, cast.rounding)
    if not x.size:
        return x
    if isinstance(cast.scale, WholeScaling):
        elements, scale = cast.apply(x, draw, target.observer, target.operation, arithmetic.histories[0])
        return (elements.astype(np.float64) / np.float64(scale)).astype(x.dtype)
    rows = x.reshape((1,) * (2 - x.ndim) + x.shape)
    elements, blocks = cast.apply_in_blocks(rows, -1, draw, target.observer, target.operation)
    scales = repeat_for_elements(blocks.values, blocks.block, rows.ndim - 1, rows.shape).astype(np.float64)
    # float64 represents the product with a scale exactly. A quotient of float32 numbers may be rounded twice, first to
    # float64: the result is that of one rounding.
    with np.errstate(all="ignore"):
        values = elements / scales if blocks.divide else elements * scales / blocks.whole
        return values.astype(x.dtype).reshape(x.shape)
