"""Operations with exact results that float64 represents: integers, remainders, and copied signs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Stream, take_draw
from simfloat.arithmetic.catalog import Operation
from simfloat.arithmetic.exact_operations import operate_exactly
from simfloat.arithmetic.flags import Flags, on_cpu_alone, round_flagged
from simfloat.arithmetic.machines import CPU, as_array, device_of
from simfloat.arithmetic.operands import (
    MISSING,
    OperandLike,
    broadcast_shape,
    broadcast_vectors,
    exact_operand,
    flat,
    missing_format,
)
from simfloat.arithmetic.plan import check_out, copied_to_out, output_array, plan_for, round_planned
from simfloat.arithmetic.sources import ZERO, Elements
from simfloat.arithmetic.target import Observer, as_target, causes_of_operation
from simfloat.common import check_flags
from simfloat.environment import in_usual_environment
from simfloat.formats.catalog import FormatLike
from simfloat.formats.exact_numbers import exact_modulo, exact_number
from simfloat.formats.exceptions import INVALID
from simfloat.formats.rounding import RoundingLike


def operate_representable(
    operation: Operation,
    operands: Sequence[OperandLike],
    format: FormatLike,
    rounding: RoundingLike,
    stream: Stream | None,
    observer: Observer | None,
    flags: bool,
    out: NDArray[np.floating] | None,
) -> Any:
    """Compute a public operation with the arguments of the user; return its results, or a pair of results and flags."""
    if format is MISSING:
        raise missing_format(operation.name, operands, operation.operands)
    arrays = list(map(exact_operand, operands, operation.operands))
    if any(x.dtype == object for x in arrays):
        return operate_exactly(operation.name, arrays, format, rounding, stream, observer, flags, out, operands)
    if flags is not False:
        check_flags(flags=flags)
    device = device_of(*arrays)
    if flags and device is not CPU:
        options = format, rounding, stream, observer, True, None
        return on_cpu_alone(lambda copies: operate_representable(operation, copies, *options), arrays, out)
    target = as_target(arrays, format, rounding, stream, observer, operation.name)
    if out is not None:
        check_out(out, arrays, target.dtype, device)
    arrays = list(map(device.to_device, arrays))
    source = ExactValues(flat(exact_values(operation.name, arrays)))
    source.operation, source.operands = operation.name, broadcast_vectors(arrays)[1]
    plan = plan_for(target.format, target.rounding, source.carrier, device)
    results = output_array(out, broadcast_shape(arrays), (source.x,), plan, target, reads_once=False)
    draw = take_draw(stream, target.rounding)
    if not flags:
        round_planned(source, plan, results, target, draw)
        return copied_to_out(results, out)
    raised: Flags = round_flagged(Elements(source.x), plan, results, target, draw)
    is_invalid = np.isnan(source.x).reshape(raised.shape)
    for x in arrays:
        is_invalid &= ~np.isnan(x)
    raised[is_invalid] = INVALID
    return copied_to_out(results, out), raised


class ExactValues(Elements):
    """Exact results, with the operands, which show the causes of NaN."""

    operation: str
    operands: list[NDArray]

    def causes(self, start: int, exact: NDArray, out: NDArray) -> NDArray[np.int64]:
        """Return the counts of the causes of NaN results."""
        parts = [x if x.size == 1 else x[start : start + exact.size] for x in self.operands]
        return causes_of_operation(self.operation, parts + [ZERO] * (3 - len(parts)), exact, out)


@in_usual_environment
def exact_values(name: str, arrays: list[NDArray]) -> NDArray[np.floating]:
    """Return the exact results, on the GPU if one of the arrays is there."""
    broadcast_shape(arrays)  # raises ValueError if the shapes do not broadcast
    machine = device_of(*arrays)
    with np.errstate(all="ignore"):
        return as_array(VALUES[name](*map(machine.to_device, arrays)))


def _remainder(a: NDArray, b: NDArray) -> NDArray[np.floating]:
    """Return IEEE's remainder, by the remainder of a division by 2 b (Sun Microsystems, fdlibm, e_remainder.c)."""
    dtype = np.result_type(a, b)
    a, divisor = a.astype(dtype), np.abs(b.astype(dtype))
    rest = np.fmod(np.abs(a), divisor + divisor)  # if the sum is infinite, |a| is smaller, because it has this dtype
    # All differences are exact. Half of a tiny divisor, and twice the rest for a large one, may be out of range.
    is_tiny = divisor < 1.0
    is_above = np.where(is_tiny, rest + rest > divisor, rest > 0.5 * divisor)
    rest = np.where(is_above, rest - divisor, rest)
    is_above &= np.where(is_tiny, rest + rest >= divisor, rest >= 0.5 * divisor)
    rest = np.where(is_above, rest - divisor, rest)
    return np.where(np.signbit(a), -rest, rest)


#: The exact results of operands that are floats.
VALUES: dict[str, Callable[..., NDArray[np.floating]]] = {
    "rint": np.rint,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "fmod": np.fmod,
    "remainder": _remainder,
    "copysign": np.copysign,
}


def exact_modulos(x: NDArray, y: NDArray) -> NDArray:
    """Return the exact values of NumPy's remainder; as objects if float64 cannot represent one of them."""
    if x.dtype != object and y.dtype != object:
        x, y = x.astype(np.float64), y.astype(np.float64)
        with np.errstate(all="ignore"):
            rest = np.fmod(x, y)
            rest = np.where(rest == 0, np.copysign(0.0, y), rest)
            total = rest + y
            of_y = total - rest
            is_moved = (rest < 0) != (y < 0)
            is_inexact = is_moved & (rest != 0) & np.isfinite(total) & (rest - (total - of_y) + (y - of_y) != 0)
        if not is_inexact.any():
            return np.where(is_moved & (rest != 0), total, rest)
    x, y = np.broadcast_arrays(x, y)
    exact = np.empty(x.shape, object)
    for place, (a, b) in enumerate(zip(x.reshape(-1).tolist(), y.reshape(-1).tolist(), strict=True)):
        exact.reshape(-1)[place] = exact_modulo(exact_number(a), exact_number(b))
    return exact
