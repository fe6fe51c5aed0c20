"""Where results are written: to new memory, or to memory at hand, the `out` of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.arrays import empty
from simfloat.arithmetic.machines import CPU, Device, is_on_gpu
from simfloat.arithmetic.operands import FloatType, broadcast_shape
from simfloat.arithmetic.plan import Plan
from simfloat.arithmetic.target import Target
from simfloat.arithmetic.threads import scratch

Results = NDArray[np.floating]


def check_out(out: Any, operands: Sequence[NDArray], dtype: FloatType, device: Device) -> None:
    """Raise ValueError unless `out` is an array that takes the results of these operands as they are."""
    if not isinstance(out, np.ndarray) and not is_on_gpu(out):
        raise ValueError(f"out must be an array to write to, got {type(out).__name__}.")
    if is_on_gpu(out) != (device is not CPU):
        places = ("the CPU", "a GPU")
        raise ValueError(f"out must lie where the operands do, on {places[device is not CPU]}; it lies elsewhere.")
    shape = broadcast_shape(list(operands))
    if out.shape != shape or out.dtype != dtype:
        raise ValueError(
            f"out must have the results' shape and type, {shape} and {np.dtype(dtype)}; it has {out.shape} and "
            f"{out.dtype}."
        )
    if device is CPU and not out.flags.writeable:
        raise ValueError("out must be writeable, got a read-only array; pass a copy.")


def output_array(
    out: Results | None,
    shape: tuple[int, ...],
    vectors: Sequence[NDArray],
    plan: Plan,
    target: Target,
    reads_once: bool,
) -> Results:
    """The array that results of these vectors are written to: `out` itself, where it can be, else another.

    `reads_once` if a result is written when its operands have been read for the last time: then `out` may be one of
    these vectors. Where a NaN is an error, `out` stays as it was.
    """
    if out is None:
        return empty(shape, target.dtype, plan.device)
    if plan.device is CPU and plan.has_nan and out.flags.carray:
        is_free = reads_once and target.observer is None
        if all(not np.may_share_memory(out, x) or (is_free and _is_same_memory(out, x)) for x in vectors):
            return out
    if out.size == 0 or plan.device is not CPU:
        return empty(shape, target.dtype, plan.device)
    return scratch("results", out.size, target.dtype).reshape(shape)


def copied_to_out(results: Results, out: Results | None) -> Results:
    """The results, in `out` if that is given."""
    if out is None or results is out:
        return results
    out[...] = results
    return out


def _is_same_memory(out: NDArray, x: NDArray) -> bool:
    """Whether a vector holds the elements of an array in the same places."""
    same = out.__array_interface__["data"] == x.__array_interface__["data"]
    return same and out.size == x.size and out.dtype == x.dtype
