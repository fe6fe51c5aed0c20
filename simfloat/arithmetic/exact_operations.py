"""Operations on numbers that float64 cannot represent, one by one, by the definition: exact results rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import NO_WORDS, Stream, take_draw
from simfloat.arithmetic.catalog import OPERATIONS
from simfloat.arithmetic.flags import Flagged
from simfloat.arithmetic.machines import CPU, GPU, is_on_gpu, on_cpu
from simfloat.arithmetic.operands import FloatType, broadcast_shape, empty
from simfloat.arithmetic.plan import Plan, check_out, copied_to_out, plan_for, round_for_counts, round_planned
from simfloat.arithmetic.sources import InFloat64, route_of
from simfloat.arithmetic.target import (
    Observer,
    Target,
    as_target,
    causes_of_operation,
    causes_of_rounding,
    check_inexact,
    check_precision,
)
from simfloat.common import check_flags
from simfloat.environment import in_usual_environment
from simfloat.formats import FP64, Format, Rounding, to_odd
from simfloat.formats.catalog import FormatLike
from simfloat.formats.definition import floor_log2, round_magnitude, round_value
from simfloat.formats.exact_numbers import (
    EXACT,
    Exact,
    Irrational,
    exact_number,
    exact_result,
    function_value,
    is_float64,
    sign_of,
)
from simfloat.formats.exceptions import flags_of
from simfloat.formats.rounding import RoundingLike
from simfloat.kernels.rounding.events import wants_optional_counts

#: The name of a rounding among operations.
ROUND = "round"


def operate_exactly(
    operation: str,
    arrays: Sequence[NDArray],
    format: FormatLike,
    rounding: RoundingLike,
    stream: Stream | None,
    observer: Observer | None,
    flags: bool,
    out: NDArray[np.floating] | None,
    operands: Sequence[Any] = (),
) -> Any:
    """Compute a public operation, or ROUND, in float64 with arguments of the user that `exact_operand` has read.

    If one of the `operands` of the user or of the arrays is on a GPU, so are the results.
    """
    there, arrays = any(map(is_on_gpu, [*operands, *arrays])), list(map(on_cpu, arrays))
    if flags is not False:
        check_flags(flags=flags)
    target = as_target([np.zeros(0)], format, rounding, stream, observer, operation)
    if operation != ROUND:
        check_precision(target.format, target.rounding, operation in EXACT, operation)
    if out is not None:
        check_out(out, arrays, np.float64, GPU if there else CPU)
    results, raised = _results_and_flags(operation, arrays, target, bool(flags))
    if there:
        results, raised = GPU.to_device(results), GPU.to_device(raised)
    return (copied_to_out(results, out), raised) if flags else copied_to_out(results, out)


@in_usual_environment
def compute_exactly(operation: str, arrays: list[NDArray], target: Target) -> NDArray[np.floating]:
    """Compute an operation, or ROUND, on arrays of exact operands and of floats, in the target's dtype; no checks."""
    target = target._replace(operation=operation)
    return _results_and_flags(operation, list(map(on_cpu, arrays)), target, False)[0].astype(target.dtype, copy=False)


@in_usual_environment
def _results_and_flags(
    operation: str, arrays: list[NDArray], target: Target, flags: bool
) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """Return the results in float64, and their flags, which are zeros if `flags` is False."""
    if target.observer is not None and operation != ROUND and wants_optional_counts(target.observer):
        check_inexact(target.format, operation)
    shape = broadcast_shape(arrays)
    vectors = [_numbers(np.broadcast_to(x, shape)) for x in arrays]
    draw = take_draw(target.stream, target.rounding)
    results, raised = empty(shape, np.float64), np.zeros(shape, np.uint8)
    source = ExactResults(operation, vectors, target, raised.reshape(-1) if flags else None)
    round_planned(source, source.plan, results, target, draw)
    return results, raised


def _numbers(x: NDArray) -> list[Exact]:
    """Return the elements in C order, as `exact_number` returns them."""
    return list(map(exact_number, x.reshape(-1).tolist()))


class ExactResults:
    """Exact results of an operation on vectors of exact operands, as a source of values that the definition rounds.

    A function of operands that float64 can represent is computed by its compiled loop.
    """

    carrier: FloatType = np.float64
    makes_blocks, makes_exact = True, False

    #: One thread does all the work, because fractions are Python objects.
    cost = 0.0

    def __init__(
        self, operation: str, vectors: list[list[Exact]], target: Target, flags: NDArray[np.uint8] | None
    ) -> None:
        self.operation, self.vectors, self.flags = operation, vectors, flags
        self.format, self.rounding = target.format, target.rounding
        rows, size = list(zip(*vectors, strict=True)), len(vectors[0])
        self.results: dict[int, Exact | Irrational] = {}
        self.compiled_source: InFloat64 | None = None
        self.flagged_source: Flagged | None = None
        if operation == ROUND:
            self.results = dict(enumerate(vectors[0]))
        elif operation in EXACT:
            down = target.rounding.zero_sum < 0
            self.results = {i: exact_result(operation, *row, negative_zero_sums=down) for i, row in enumerate(rows)}
        else:
            route = route_of(operation, target.format, target.rounding, False, CPU)
            near = [np.array([_odd_float64(x, operation, i) for x in vector]) for i, vector in enumerate(vectors)]
            self.compiled_source = route.source(route, near, size)
            if flags is not None:
                self.flagged_source = Flagged(self.compiled_source, route.plan, target, flags)
            values = self.compiled_source.exact(0, size).tolist() if size else []
            for i, row in enumerate(rows):
                if not all(map(is_float64, row)) and not any(isinstance(x, float) for x in row):
                    self.results[i] = function_value(OPERATIONS[operation], row, values[i])

    @property
    def plan(self) -> Plan:
        """The plan for the results: the plan of the compiled loop, if there is one."""
        return (
            self.compiled_source.route.plan
            if self.compiled_source
            else plan_for(self.format, self.rounding, np.float64, CPU)
        )

    def exact(self, start: int, stop: int) -> NDArray[np.float64]:
        """Return the exact results rounded to odd in float64."""
        out = self.compiled_source.exact(start, stop).copy() if self.compiled_source else np.empty(stop - start)
        for place in self._places(start, stop):
            out[place - start] = self._decide(place, lambda x: round_value(x, FP64, to_odd))
        return out

    def round_block(self, plan: Plan, start: int, stop: int, words: NDArray, out: NDArray) -> None:
        """Write the rounded results to `out`, and their flags."""
        if self.compiled_source:
            (self.flagged_source or self.compiled_source).round_block(plan, start, stop, words, out)
        for place in self._places(start, stop):
            draw, operands = _draw(self.rounding, words, place - start), self._operands(place)
            rounded = partial(_rounded_and_flagged, operands, self.operation == "fma", self.format, self.rounding, draw)
            out[place - start], flags = self._decide(place, rounded)
            if self.flags is not None:
                self.flags[place] = flags

    def round_observed(self, plan: Plan, out: NDArray) -> tuple[NDArray | None, int]:
        """Write all rounded results to `out`, and their flags; return None, and the number of lost addends."""
        return round_for_counts(self, plan, 0, NO_WORDS, out)

    def _places(self, start: int, stop: int) -> list[int]:
        """Return the indices of results that the definition rounds."""
        return [place for place in range(start, stop) if place in self.results]

    def _decide(self, place: int, decide: Callable[[Any], Any]) -> Any:
        x = self.results[place]
        return x.round_by_bounds(decide) if isinstance(x, Irrational) else decide(x)

    def _operands(self, place: int) -> list[float]:
        """Return the operands of a result as floats of the same sign and class, which is all that flags need."""
        return [] if self.operation == ROUND else [sign_of(vector[place]) for vector in self.vectors]

    def round_exact(self, plan: Plan, exact: NDArray, start: int, words: NDArray, out: NDArray) -> None:
        """Round the results again from their operands, because one float64 is not enough for a rounding."""
        self.round_block(plan, start, start + out.size, words, out)

    def round_unbounded(self, plan: Plan, exact: NDArray, start: int, words: NDArray, out: NDArray) -> None:
        """Write the results in a format without a largest number; beyond the range of float64, they are infinite."""
        stop = start + out.size
        if self.compiled_source:
            self.compiled_source.round_unbounded(plan, exact, start, words, out)
        for place in self._places(start, stop):
            draw = _draw(self.rounding, words, place - start)
            unbounded = partial(_round_unbounded, format=self.format, rounding=self.rounding, random=draw)
            out[place - start] = self._decide(place, unbounded)

    def count_lost_addends(self, start: int, stop: int, out: NDArray) -> int:
        """Return the number of results that lost an addend."""
        rows = zip(*(vector[start:stop] for vector in self.vectors), out.tolist(), strict=True)
        if self.operation == "fma":
            return sum(_lost_in_fma(*row) for row in rows)
        if self.operation not in ("add", "subtract"):
            return 0
        sign = -1 if self.operation == "subtract" else 1
        return sum(math.isfinite(x) and ((x == a and b != 0) or (x == sign * b and a != 0)) for a, b, x in rows)

    def causes(self, start: int, exact: NDArray, out: NDArray) -> NDArray[np.int64]:
        """Return the counts of the causes of NaN results."""
        if self.operation == ROUND:
            return causes_of_rounding(exact, out)
        zeros = [[0.0] * out.size] * (3 - len(self.vectors))
        parts = [list(map(sign_of, vector[start : start + out.size])) for vector in self.vectors]
        return causes_of_operation(self.operation, [np.array(part) for part in parts + zeros], exact, out)


def _odd_float64(x: Exact, operation: str, number: int) -> float:
    """Return an operand in float64, rounded to odd; it decides domains and special values."""
    if operation == "power" and number == 1 and not is_float64(x):
        # For exponents it matters if they are odd, which float64 may not show.
        return sign_of(x) * (2.5 if x.denominator > 1 else 2.0 + x.numerator % 2)  # type: ignore[union-attr]
    return round_value(x, FP64, to_odd)


def _draw(rounding: Rounding, words: NDArray, place: int) -> int:
    """Return the integer R of a stochastic mode: the upper bits of a word, or of a byte."""
    return int(words[place]) >> (8 * words.itemsize - rounding.bits) if rounding.is_stochastic else 0


def _rounded_and_flagged(
    operands: list[float], is_fma: bool, format: Format, rounding: Rounding, random: int, x: Exact
) -> tuple[float, int]:
    """Return the number of the format and its flags; NaN if the format has none, for which `round_planned` raises."""
    try:
        return round_value(x, format, rounding, random), flags_of(x, operands, format, rounding, random, is_fma)
    except ValueError:
        return math.nan, 0


def _round_unbounded(x: Exact, format: Format, rounding: Rounding, random: int) -> float:
    if isinstance(x, float):
        return x
    magnitude = round_magnitude(abs(x), x < 0, format, rounding, random)
    size = math.inf if magnitude and floor_log2(magnitude) > 1023 else float(magnitude)
    return size if x > 0 else -size


def _lost_in_fma(a: Exact, b: Exact, c: Exact, x: float) -> bool:
    """Return True if a finite a * b + c lost c, or the product."""
    if not math.isfinite(x):
        return False
    product = exact_result("multiply", a, b)
    return (x == c and product != 0) or (product == Fraction(x) and c != 0)
