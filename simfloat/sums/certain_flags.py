"""Flags of sums that follow from bounds and from the sums, so that no step must be computed by itself.

Let every product, and every start value, be a multiple of 2^low, and let S be the sum of their magnitudes. All partial
sums, rounded or not, are multiples of 2^low, and roundings make them only a little larger than S. So:

* No step is invalid if S is finite. No step overflows if S is far enough below the largest number.
* No rounding underflows if 2^low is at least the smallest number of the format: small multiples of 2^low are then
  numbers of the format. The alignment of a matrix unit may also cut bits off a tiny total. Therefore 2^low must be at
  least the smallest normal number for such a unit.
* No step is inexact if the format has all multiples of 2^low up to S, and no alignment cuts them off.
* Some step is inexact if the sum differs from the exact one, which float64 shows if the difference exceeds its error.

The other sums are computed step by step.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import CPU
from simfloat.formats import FP32, FP64, TF32, Format, Rounding, nearest_even
from simfloat.formats.exceptions import INEXACT
from simfloat.sums.accumulator import Accumulator
from simfloat.sums.blocked import SumOfSums
from simfloat.sums.bounds import bounds_of
from simfloat.sums.by_operations import OperationsEngine
from simfloat.sums.fused import Fused
from simfloat.sums.integers import cut_to_tf32
from simfloat.sums.one_format import InOneFormat, Kahan
from simfloat.sums.plan import PreparedSum
from simfloat.sums.sequential import SequentialSum
from simfloat.sums.tiles import sums_of_matrices
from simfloat.sums.units import CHAINS, DOUBLE, TWO_STEPS, MatrixCore, TensorCore

#: The precision up to which float64 shows the rounding errors of most sums.
MOST_BITS = 40

#: The exponents of operands between which the products of any two, and their sums, are usual float64 values.
LEAST_LOW, MOST_HIGH = -450, 400

#: The share of sums above which all sums are computed step by step.
MOST_LEFT = 0.5

#: If a sum does not show whether it is inexact, these parts of its products are summed.
PARTS = (0.5, 0.75, 0.25)

#: The number of operands of such sums that are copied at a time.
GATHERED = 1 << 21

#: Fraction bits of the truncations in a CDNA3 unit.
FLOORED_BITS = 24


class StepFacts(NamedTuple):
    """What the flags of a sum depend on, for all of its steps together."""

    precision: int  # the fewest bits of a format
    least: int  # the exponent that the last bits of products must have
    largest: int  # the smallest exponent of the largest number of a format
    growth: float  # the binary logarithm of the factor by which the roundings for a product can enlarge a sum
    top: int  # the largest exponent with which zeros and subnormal sums take part in an alignment
    fraction_bits: float  # the fewest bits that an alignment keeps; infinite without one
    terms: int = 0  # the most terms of an alignment

    def union(self, other: StepFacts) -> StepFacts:
        """Return the facts of the steps of both."""
        return StepFacts(
            min(self.precision, other.precision),
            max(self.least, other.least),
            min(self.largest, other.largest),
            self.growth + other.growth,
            max(self.top, other.top),
            min(self.fraction_bits, other.fraction_bits),
            max(self.terms, other.terms),
        )


def _facts_of_format(format: Format, rounding: Rounding, errors: int = 1) -> StepFacts | None:
    """Return the facts of steps that round to a format, with this many relative errors for each product."""
    is_usual = format.subnormals and format.signed and format.has_zero and not format.is_fixed
    if rounding.is_stochastic or format.precision > MOST_BITS or not is_usual:
        return None
    error = 2.0 ** -(format.precision - (not rounding.is_to_nearest))
    least = format.emin - format.mantissa_bits
    return StepFacts(format.precision, least, format.last_binade, math.log2(1 + errors * error), format.emin, math.inf)


def _facts_of_alignment(
    format: Format, rounding: Rounding, terms: int, bits: int, zero: int | None
) -> StepFacts | None:
    """Return the facts of steps that align terms to a number of fraction bits, and round totals to a format."""
    facts = _facts_of_format(format, rounding)
    if facts is None:
        return None
    growth = facts.growth + math.log2(1 + (terms + 1) * 2.0**-bits)
    top = format.emin if zero is None else max(format.emin, zero)
    return facts._replace(least=format.emin, growth=growth, top=top, fraction_bits=bits, terms=terms + 1)


@lru_cache(maxsize=1024)
def facts_of(accumulator: Accumulator) -> StepFacts | None:
    """Return the facts of the steps of an accumulator; None if flags must be found step by step."""
    parts: list[StepFacts | None]
    match accumulator:
        case SequentialSum(format=format, products=products):
            parts = [_facts_of_format(each, accumulator.rounding) for each in (format, products or format)]
        case Kahan():  # its correction adds errors of at most 10 ulp to a term and to the partial sum
            parts = [_facts_of_format(accumulator.format, accumulator.rounding, 16)]
        case InOneFormat():
            products = getattr(accumulator, "products", None) or accumulator.format
            parts = [_facts_of_format(each, accumulator.rounding) for each in (accumulator.format, products)]
        case SumOfSums(inner=inner, outer=outer) if not outer.is_matrix_unit:
            parts = [facts_of(inner), facts_of(outer)]
        case Fused(zero_exponent=zero):
            fused = accumulator
            parts = [_facts_of_alignment(fused.output, fused.mode, fused.terms, fused.fraction_bits, zero)]
        case TensorCore(scales=None) if accumulator.row is not DOUBLE:
            parts = [facts_of(accumulator.unit)]
            if accumulator.row is TWO_STEPS:
                parts.append(facts_of(SequentialSum(accumulator.output)))
        case MatrixCore(architecture="cdna3") if accumulator.row not in CHAINS:
            parts = [_facts_of_alignment(FP32, nearest_even, accumulator.chunk + 2, FLOORED_BITS, None)]
        case MatrixCore(architecture=name) if name == "cdna1" or accumulator.row in CHAINS:
            parts = [_facts_of_format(accumulator.result, nearest_even)]
        case _:  # CDNA2 flushes operands, which raises nothing
            return None
    facts = parts[0]
    for other in parts[1:]:
        facts = facts and other and facts.union(other)
    return facts


def sums_with_flags(shape: tuple[int, ...], a: NDArray, b: NDArray, work: PreparedSum) -> NDArray:
    """Return the sums of matrices of `shape` like `sums_of_matrices`, and write the flags of their steps.

    `work` has an engine by operations, which receives the flags.
    """
    engine = work.engine
    assert isinstance(engine, OperationsEngine) and engine.flags is not None
    limits = None if engine.quick is None else _limits(engine, a, b, work.initial)
    if engine.quick is None or limits is None:
        return sums_of_matrices(shape, a, b, work)
    # Sums that are marked as results are not in memory that the next call of `sums_of_matrices` uses.
    quick = work._replace(engine=engine.quick, draw=None, sums_are_results=True)
    sums = sums_of_matrices(shape, a, b, quick)
    initial = None if work.initial is None else work.initial.reshape(shape)
    inexact, usual, whole = _compare(limits, initial, sums.reshape(shape))
    np.multiply(inexact.reshape(-1), np.uint8(INEXACT), out=engine.flags)
    certain = usual & (inexact | whole)
    left = np.zeros(0, np.int64) if certain.all() else np.flatnonzero(~certain)
    if left.size > MOST_LEFT * certain.size:
        return sums_of_matrices(shape, a, b, work)
    count = max(GATHERED // max(a.shape[-1], 1), 1)
    for first in range(0, left.size, count):
        places = left[first : first + count]
        *stack, i, j = np.unravel_index(places, shape)
        x = np.broadcast_to(limits.a, (*shape[:-1], a.shape[-1]))[(*stack, i)][:, np.newaxis]
        y = np.broadcast_to(limits.b, (*shape[:-2], *b.shape[-2:])).swapaxes(-1, -2)[(*stack, j)][..., np.newaxis]
        start = None if initial is None else initial.reshape(-1, 1, 1)[places]
        some = _SomeSums(limits._replace(a=x, b=y), start, usual.reshape(-1)[places])
        engine.flags[places] = some.flags(work, quick, engine)
    return sums


class _Limits(NamedTuple):
    """The operands in float64, and two limits for the size of a sum; this size is an upper bound on S."""

    a: NDArray  # (..., m, k)
    b: NDArray  # (..., k, n)
    usual_limit: float  # smaller sums raise no flag except inexact
    exact_limit: float  # the steps of smaller sums are exact


class _SomeSums(NamedTuple):
    """A stack of single sums that do not show their flags."""

    limits: _Limits
    initial: NDArray | None
    usual: NDArray[np.bool_]  # which sums raise no flag except inexact

    def flags(self, work: PreparedSum, quick: PreparedSum, engine: OperationsEngine) -> NDArray[np.uint8]:
        """Return the flags: inexact if a part of the products shows it, otherwise the flags of all steps."""
        raised = np.full(len(self.usual), INEXACT, np.uint8)
        left, depth, chunk = np.arange(raised.size), self.limits.a.shape[-1], engine.accumulator.chunk or 0
        # The errors of a sum may cancel. Then the errors of its first steps rarely cancel as well.
        for part in PARTS if chunk else ():
            first = int(depth * part) // chunk * chunk
            if first and left.size:
                x, y, start = self._operands(left, first)
                sums = sums_of_matrices((left.size, 1, 1), x, y, quick._replace(initial=start))
                inexact, *_ = _compare(self.limits._replace(a=x, b=y), start, sums.reshape(-1, 1, 1))
                left = left[~(inexact.reshape(-1) & self.usual[left])]
        if left.size:
            x, y, start = self._operands(left, depth)
            rest = np.zeros(left.size, np.uint8)
            sums_of_matrices((left.size, 1, 1), x, y, work._replace(engine=engine._replace(flags=rest), initial=start))
            raised[left] = rest
        return raised

    def _operands(self, places: NDArray, depth: int) -> tuple[NDArray, NDArray, NDArray | None]:
        """Return the operands of the first products of some sums, and their start values."""
        start = None if self.initial is None else self.initial[places]
        return self.limits.a[places, :, :depth], self.limits.b[places, :depth], start


def _limits(engine: OperationsEngine, a: NDArray, b: NDArray, initial: NDArray | None) -> _Limits | None:
    """Return the limits for sums of products of a and b; None if nothing is certain."""
    facts, depth = facts_of(engine.accumulator), a.shape[-1]
    if facts is None:
        return None
    if _cuts_to_tf32(engine.accumulator):
        a, b = cut_to_tf32(a), cut_to_tf32(b)
    x, y = bounds_of(a), bounds_of(b)
    low = x.low + y.low if initial is None else min(x.low + y.low, bounds_of(initial).low)
    if low < facts.least or min(x.low, y.low) < LEAST_LOW or max(x.high, y.high) > MOST_HIGH:
        return None
    top = max(max(x.high - 1, engine.least[0]) + max(y.high - 1, engine.least[1]), facts.top)
    # An alignment changes a term by less than the last bit that it keeps. Kahan's partial sums and corrections are
    # together below 8 S, apart from their growth by roundings.
    cuts = depth * facts.terms * 2.0 ** (top - facts.fraction_bits)
    usual_limit = 2.0 ** (facts.largest - 3 - 3 * (depth + 1) * facts.growth) - cuts
    bits: float = facts.precision
    if facts.fraction_bits < math.inf:
        bits = min(bits, facts.fraction_bits) if top - facts.fraction_bits <= low else 0
    # Sizes are rounded, so the limit is half of the size up to which steps are exact.
    return _Limits(a.astype(np.float64), b.astype(np.float64), usual_limit, 2.0 ** (low + bits - 1))


def _compare(
    limits: _Limits, initial: NDArray | None, sums: NDArray
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which sums surely are inexact, which surely raise no other flag, and which surely have exact steps."""
    a, b, depth = limits.a, limits.b, limits.a.shape[-1]
    with np.errstate(all="ignore"):
        # The inequality of Cauchy and Schwarz: S is at most the product of the lengths of both vectors.
        lengths = np.sqrt(np.einsum("...ik,...ik->...i", a, a)), np.sqrt(np.einsum("...kj,...kj->...j", b, b))
        size = lengths[0][..., np.newaxis] * lengths[1][..., np.newaxis, :]
        near = sums_of_matrices(sums.shape, a, b, _in_float64()).reshape(sums.shape)
        if initial is not None:
            size, near = size + np.abs(initial), near + initial
        # The factor is four times the error of each rounding, in any direction.
        inexact = np.abs(np.subtract(sums, near, out=near), out=near) > (depth + 8) * 2.0**-50 * size
        return inexact, size < limits.usual_limit, size < limits.exact_limit


@cache
def _in_float64() -> PreparedSum:
    """Return the computation of sums in float64, with one rounding for each product."""
    engine = SequentialSum(FP64).engine_for_all(FP64, FP64)
    assert engine is not None
    return PreparedSum(CPU, engine, False, True)


def _cuts_to_tf32(accumulator: Accumulator) -> bool:
    """Return True if a unit truncates its operands."""
    while isinstance(accumulator, SumOfSums):
        accumulator = accumulator.inner
    return isinstance(accumulator, TensorCore | MatrixCore) and TF32 in (accumulator.inputs or ())
