"""Rounding arrays to a format."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.arrays import empty
from simfloat.arithmetic.bit_stream import NO_WORDS, Draw, Stream, take_draw
from simfloat.arithmetic.exact_operations import ROUND, operate_exactly
from simfloat.arithmetic.flags import Flags, on_cpu_alone, round_flagged
from simfloat.arithmetic.machines import CPU, Device, device_of
from simfloat.arithmetic.observer import Observer
from simfloat.arithmetic.operands import FloatType, OperandLike, as_operand, exact_operand, flat
from simfloat.arithmetic.plan import BLOCK, Plan, is_one_piece, plan_for, round_planned
from simfloat.arithmetic.results import check_out, copied_to_out, output_array
from simfloat.arithmetic.sources import Elements
from simfloat.arithmetic.target import Target, carrier_of
from simfloat.checks import check_flags
from simfloat.environment import in_usual_environment
from simfloat.formats import as_format, nearest_even
from simfloat.formats.format_names import FormatLike
from simfloat.formats.rounding import RoundingLike, as_rounding


@overload
def round(
    x: OperandLike,
    format: FormatLike,
    rounding: RoundingLike = nearest_even,
    *,
    stream: Stream | None = None,
    observer: Observer | None = None,
    flags: Literal[False] = False,
    out: NDArray[np.floating] | None = None,
) -> NDArray[np.floating]: ...
@overload
def round(
    x: OperandLike,
    format: FormatLike,
    rounding: RoundingLike = nearest_even,
    *,
    stream: Stream | None = None,
    observer: Observer | None = None,
    flags: Literal[True],
    out: NDArray[np.floating] | None = None,
) -> tuple[NDArray[np.floating], Flags]: ...
def round(
    x: OperandLike,
    format: FormatLike,
    rounding: RoundingLike = nearest_even,
    *,
    stream: Stream | None = None,
    observer: Observer | None = None,
    flags: bool = False,
    out: NDArray[np.floating] | None = None,
) -> NDArray[np.floating] | tuple[NDArray[np.floating], Flags]:
    """The numbers of `format` that the elements of `x` round to, in an array of x's shape.

    float32 in gives float32 out when every number of the format is one (`format.fits_float32`); everything else gives
    float64. The one definition for all modes: round as if the exponent had no upper bound; a result beyond the format's
    max is an overflow and becomes +-inf (ieee, p3109), NaN (fn, fnuz) or +-max (finite formats, saturating modes, and
    modes that point back inside). The sign of zero is kept where the format has -0. Underflow is gradual.

    Numbers that float64 lacks are read exactly, and rounded one by one: texts (``"0.1"``, ``"1/3"``, ``"0x1.8p-3"``,
    ``"-inf"``), integers of any size, Fractions, Decimals, gmpy2's mpz, mpq and mpfr, and np.longdouble, in sequences
    and arrays, too. They go from 10^-10000 to 10^10000.

    `rounding` is a mode or its text, as `format` is: ``"toward_zero"``, ``"stochastic(bits=8).saturating()"``.
    Stochastic modes take their bits from `stream`. `observer` receives the counted events. The results are written to
    `out`, if it is given: an array of their shape and type, which is returned and may be `x` itself.

    With ``flags=True`` the result is a pair: the numbers, and a uint8 array of IEEE exceptions with RISC-V's bits.
    Inexact, 1: the result is another number. Underflow, 2: it is tiny, as the format's `tininess` has it, and inexact.
    Overflow, 4: rounded as if the exponent had no bounds, it lies beyond max, whatever becomes of it; so does an
    infinity in a format that has none. Invalid, 16: a negative number in an unsigned format, zero in a scale
    format. NaN raises nothing, since signalling NaN are not modelled. Operations add division by zero, 8, and invalid,
    16, as IEEE 754-2019 section 7 has them; fma of 0 and inf is invalid whatever is added, as in RISC-V.

    Raises ValueError for a NaN in a format without NaN, stochastic rounding without a stream, an `out` of another shape
    or type, and what is no real number. Source: IEEE 754-2019 sections 4.3 and 7.4; IEEE P3109 interim report
    4.0 section 4.7.4.

    Examples:
        >>> sf.round([0.1, 465.0, 1e-9], sf.E4M3)
        array([0.1015625,       nan, 0.       ])
        >>> sf.round(0.1, "bf16", sf.toward_positive)
        array(0.10009766)
        >>> sf.round(["17.328679084777833", "1/3", 2**60 + 2**36 + 1], sf.FP32)  # each rounded once
        array([1.73286800e+01, 3.33333343e-01, 1.15292164e+18])
        >>> sf.round([0.5, 465.0, 1e-9], sf.E4M3, flags=True)
        (array([0.5, nan, 0. ]), array([0, 5, 3], dtype=uint8))
    """
    try:
        numbers = as_operand(x)
    except ValueError:  # texts, numbers that float64 lacks, or none at all
        numbers = None
    if numbers is None:
        numbers = exact_operand(x)
        if numbers.dtype.hasobject:
            return operate_exactly(ROUND, [numbers], format, rounding, stream, observer, flags, out)
    x = numbers
    if flags is not False:
        check_flags(flags=flags)
    if flags and device_of(x) is not CPU:
        return on_cpu_alone(
            lambda xs: round(xs[0], format, rounding, stream=stream, observer=observer, flags=True), [x], out
        )
    arguments: tuple[Any, ...] = format, rounding, x.dtype.type
    try:
        target, plan = _target_and_plan(*arguments, device_of(x))
    except TypeError:  # what cannot be kept in a cache is no format or no rounding
        target, plan = _target_and_plan.__wrapped__(*arguments, CPU)
    if format is not target.format or stream is not None or observer is not None:
        target = target.with_call_options(format, stream, observer)
    if out is not None:
        check_out(out, [x], target.dtype, plan.device)
    draw = take_draw(stream, target.rounding) if target.rounding.mode == "stochastic" else None
    if flags:
        vector = flat(x)
        results = output_array(out, x.shape, (vector,), plan, target, reads_once=False)
        raised = round_flagged(Elements(vector), plan, results, target, draw)
        return copied_to_out(results, out), raised
    return round_vector(flat(x), plan, x.shape, target, draw, out)


@lru_cache(maxsize=512)
@in_usual_environment
def _target_and_plan(format: Any, rounding: Any, carrier: FloatType, device: Device) -> tuple[Target, Plan]:
    """What a call needs beside its numbers, which travel as `carrier`; checked."""
    format, rounding = as_format(format), as_rounding(rounding)
    dtype = carrier_of(format) if carrier is np.float32 else np.float64
    return Target(format, rounding, dtype, operation="round"), plan_for(format, rounding, carrier, device)


def round_array(x: NDArray, target: Target) -> NDArray[np.floating]:
    """The numbers of a float array rounded; nothing is checked."""
    return round_with_draw(x, target, take_draw(target.stream, target.rounding))


def round_with_draw(x: NDArray, target: Target, draw: Draw | None) -> NDArray[np.floating]:
    """The numbers of a float array rounded, in a call whose draw is already taken."""
    return round_vector(flat(x), None, x.shape, target, draw)


def round_vector(
    x: NDArray,
    plan: Plan | None,
    shape: tuple[int, ...],
    target: Target,
    draw: Draw | None,
    out: NDArray[np.floating] | None = None,
) -> NDArray[np.floating]:
    """The numbers of a vector rounded, by the plan if that is known, in an array of `shape`: `out`, if it is given."""
    if plan is None:
        carrier: FloatType = x.dtype.type
        plan = plan_for(target.format, target.rounding, carrier, device_of(x))
    if out is None:
        results = empty(shape, target.dtype, plan.device)
    else:
        results = output_array(out, shape, (x,), plan, target, reads_once=True)
    alone = draw is None and target.observer is None and plan.has_nan
    if alone and (x.size <= BLOCK or is_one_piece(Elements(x), x.size)):
        # round_planned would do the same, and take longer.
        plan.loop(x, NO_WORDS, results.reshape(-1), plan.numbers)
    else:
        round_planned(Elements(x), plan, results, target, draw)
    return results if out is None else copied_to_out(results, out)
