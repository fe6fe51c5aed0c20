"""Sums over replicas, in the orders in which machines that are connected make them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.accumulate._pairwise import Pairwise, pairwise
from simfloat.accumulate._sequential import SequentialSum, as_accumulator
from simfloat.accumulate.accumulator import Accumulator
from simfloat.accumulate.product import sum as summed
from simfloat.arithmetic import Observer
from simfloat.arithmetic.bit_stream import Stream
from simfloat.arithmetic.machines import on_device_of
from simfloat.arithmetic.operands import as_operand
from simfloat.environment import in_usual_environment
from simfloat.formats.format_names import FormatLike
from simfloat.formats.rounding import RoundingLike

Order = Literal["ring", "tree", "sequential"]


@in_usual_environment
def all_reduce(
    parts: Sequence[ArrayLike] | ArrayLike,
    *,
    order: Order = "ring",
    accumulate: Accumulator | FormatLike,
    output: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    stream: Stream | None = None,
    observer: Observer | None = None,
) -> NDArray[np.floating]:
    """What every replica holds after a sum over replicas: of an array of each, in an order, rounded as it goes.

    parts are arrays of one shape, or one array (replicas, ...).

    * ``"ring"``: the elements, in C order, lie in as many chunks of ceil(size / n) as there are replicas, the last of
      which may be short or empty. Chunk c starts at replica c + 1, goes round by way of c + 2, ... and ends at c: each
      adds its own number to the sum that it receives. So elements of different chunks are added in different orders.
    * ``"tree"``: neighbours are added level by level, an odd last one is carried up, as in `simfloat.pairwise`.
    * ``"sequential"``: one after the other, from the first replica on.

    What a replica sends are numbers of the accumulator's format: a Format (or `simfloat.sequential`) rounds each
    addition to it, and what is first sent, too. Other accumulators add the numbers of each element in the ring's order,
    or the sequential one; a tree takes a Format, a sequential or a pairwise accumulator. Options are those of
    :func:`simfloat.sum`.

    Raises ValueError for no parts, parts of different shapes, an unknown order, and an accumulator that the order has
    no use for. Source of the ring: Patarasuk and Yuan, J. Parallel Distrib. Comput. 69(2), 2009; NCCL.

    Examples:
        >>> parts = [[256.0, 1.0], [1.0, 1.0], [1.0, 256.0], [1.0, 1.0]]
        >>> sf.all_reduce(parts, accumulate=sf.BF16)  # chunks of an element; the first begins with 1 + 1 + 1
        array([260., 256.])
        >>> sf.all_reduce(parts, order="tree", accumulate=sf.BF16)
        array([258., 258.])
    """
    numbers = _stack_parts(parts)
    if order not in get_args(Order):
        raise ValueError(f"order is one of {', '.join(map(repr, get_args(Order)))}; got {order!r}.")
    accumulator = as_accumulator(accumulate)
    if order == "tree":
        accumulator = _as_tree(accumulator)
    rows = in_addition_order(numbers.reshape(len(numbers), math.prod(numbers.shape[1:])), order)
    result = summed(rows, 0, accumulate=accumulator, output=output, rounding=rounding, stream=stream, observer=observer)
    return result.reshape(numbers.shape[1:])


def in_addition_order(rows: NDArray[np.floating], order: Order) -> NDArray[np.floating]:
    """The numbers of every column, one of each replica, in the order in which they are added."""
    if order != "ring":
        return rows
    ordered: NDArray[np.floating] = rows[
        on_device_of(_replicas_in_ring_order(*rows.shape), rows), on_device_of(np.arange(rows.shape[1]), rows)
    ]
    return ordered


def _stack_parts(parts: Any) -> NDArray:
    """The parts in one array, (replicas, ...); ValueError where they have not one shape."""
    if hasattr(parts, "shape") and len(parts.shape) and len(parts):
        return as_operand(parts, "parts")
    if not isinstance(parts, Sequence) or isinstance(parts, str) or not len(parts):
        raise ValueError("parts is a list with an array for each replica, at least one, or one array (replicas, ...).")
    arrays = [as_operand(part, "a part") for part in parts]
    shapes = [array.shape for array in arrays]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError(f"The parts of all replicas have one shape; got {', '.join(map(str, dict.fromkeys(shapes)))}.")
    return np.stack(arrays)


def _replicas_in_ring_order(replicas: int, size: int) -> NDArray[np.intp]:
    """For each step and element the replica that adds to it, (replicas, size)."""
    chunks = np.arange(size) // max(-(-size // replicas), 1)
    # Chunk c starts at replica c + 1 and is handed on, so that in step s replica c + 1 + s adds to it; c is the last.
    return (chunks + 1 + np.arange(replicas)[:, np.newaxis]) % replicas


def _as_tree(accumulator: Accumulator) -> Accumulator:
    if isinstance(accumulator, Pairwise):
        return accumulator
    if isinstance(accumulator, SequentialSum) and accumulator.products is None:
        return pairwise(accumulator.format, rounding=accumulator.rounding)
    raise ValueError(f"A tree takes a format, a sequential or a pairwise accumulator, got {accumulator!r}.")
