"""Sums in other orders than one after the other, as the contract of their accumulators words them, step by step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np

import simfloat as sf
from simfloat.accumulate.nesting import ADD, as_postfix
from simfloat.formats import Format, Rounding
from simfloat.formats.definition import round_value
from simfloat.selftest.reference import operate, sequential_dot, step_draw

Numbers = Sequence[float]


class RoundedOperations:
    """Rounded operations of one element of a result, with the draws of its stochastic steps."""

    def __init__(
        self,
        format: Format,
        rounding: Rounding,
        element: int = 0,
        seed: int = 0,
        call: int = 0,
        stage: int = 1,
        step: int = 0,
    ) -> None:
        self.format, self.rounding, self.place = format, rounding, (element, seed, call, stage, step)

    def __call__(self, operation: str, *operands: float, step: int, stage: int) -> float:
        """The operation, drawing at that step and stage."""
        element, seed, call, first_stage, first_step = self.place
        draw = step_draw(self.rounding, element, first_step + step, seed, call, first_stage + stage)
        return operate(operation, self.format, self.rounding, *operands, random=draw)


def pairwise_dot(a: Numbers, b: Numbers, do: RoundedOperations, start: float) -> float:
    """Level by level; the sum whose right part starts with product k draws step k."""
    nodes = [(k, do("multiply", x, y, step=k, stage=1)) for k, (x, y) in enumerate(zip(a, b, strict=True))]
    while len(nodes) > 1:
        pairs = [
            (nodes[i][0], do("add", nodes[i][1], nodes[i + 1][1], step=nodes[i + 1][0], stage=0))
            for i in range(0, len(nodes) - 1, 2)
        ]
        nodes = pairs + nodes[len(nodes) - len(nodes) % 2 :]
    return nodes[0][1] if nodes else 0.0


def kahan_dot(a: Numbers, b: Numbers, do: RoundedOperations, start: float) -> float:
    """p = ab, y = p - c, t = s + y, c = (t - s) - y, s = t."""
    s, c = start, 0.0
    for k, (x, y) in enumerate(zip(a, b, strict=True)):
        p = do("multiply", x, y, step=k, stage=1)
        y = do("subtract", p, c, step=k, stage=2)
        t = do("add", s, y, step=k, stage=0)
        c = do("subtract", do("subtract", t, s, step=k, stage=3), y, step=k, stage=4)
        s = t
    return s


def numpy_dot(a: Numbers, b: Numbers, do: RoundedOperations, start: float) -> float:
    """NumPy's `pairwise_sum`, added to 0; draws as those of pairwise sums."""

    def add(left: tuple[int, float], right: tuple[int, float]) -> tuple[int, float]:
        return left[0], do("add", left[1], right[1], step=right[0], stage=0)

    def total(nodes: list[tuple[int, float]]) -> tuple[int, float]:
        if len(nodes) < 8:
            return reduce(add, nodes)
        if len(nodes) > 128:
            middle = len(nodes) // 2 // 8 * 8
            return add(total(nodes[:middle]), total(nodes[middle:]))
        whole = len(nodes) // 8 * 8
        r = [reduce(add, nodes[lane:whole:8]) for lane in range(8)]
        eight = add(add(add(r[0], r[1]), add(r[2], r[3])), add(add(r[4], r[5]), add(r[6], r[7])))
        return reduce(add, [eight, *nodes[whole:]])

    nodes = [(k, do("multiply", x, y, step=k, stage=1)) for k, (x, y) in enumerate(zip(a, b, strict=True))]
    return add((-1, 0.0), total(nodes))[1] if nodes else 0.0


def tree_dot(nesting: str, a: Numbers, b: Numbers, do: RoundedOperations) -> float:
    """The products, and the sums that the text of the nesting asks for; draws as those of pairwise sums."""
    sums: list[tuple[int, float]] = []
    for k in as_postfix(nesting):
        if k == ADD:
            step, right = sums.pop()
            first, left = sums.pop()
            sums.append((first, do("add", left, right, step=step, stage=0)))
        else:
            sums.append((k, do("multiply", a[k], b[k], step=k, stage=1)))
    return sums[0][1]


#: Sums whose products and steps are all rounded to one format, by the function that makes the accumulator.
IN_ONE_FORMAT: dict[str, Callable[[Numbers, Numbers, RoundedOperations, float], float]] = {
    "pairwise": pairwise_dot,
    "kahan": kahan_dot,
    "numpy_sum": numpy_dot,
}


def blocked_dot(
    accumulator: Any,
    a: Numbers,
    b: Numbers,
    emins: tuple[int, int],
    start: float = 0.0,
    stage: int = 1,
    step: int = 0,
    **place: int,
) -> float:
    """Runs from zero by the inner accumulator, their results times one by the outer one, from `start`.

    Run r of the inner sums draws from the stages after the outer ones, from step r * steps(inner, size) on.
    """
    size, stages = accumulator.size, accumulator.outer.stages
    sums = []
    for run, first in enumerate(range(0, len(a), size)):
        within = slice(first, first + size)
        at = dict(stage=stage + stages, step=step + run * steps(accumulator.inner, size))
        sums.append(dot(accumulator.inner, a[within], b[within], emins, **at, **place))
    ends = accumulator.inner.result.emin, 0
    return dot(accumulator.outer, sums, [1.0] * len(sums), ends, start, stage=stage, step=step, **place)


def lanes_dot(
    accumulator: Any, a: Numbers, b: Numbers, emins: tuple[int, int], start: float = 0.0, **place: int
) -> float:
    """Runs as in a blocked sum, where product k belongs to lane k mod count, and lanes are runs."""
    count = min(accumulator.count, len(a))
    sums = []
    stage, step, size = place.pop("stage", 1), place.pop("step", 0), -(-len(a) // accumulator.count)
    for lane in range(count):
        within = slice(lane, None, count)
        at = dict(stage=stage + accumulator.outer.stages, step=step + lane * steps(accumulator.inner, size))
        sums.append(dot(accumulator.inner, a[within], b[within], emins, **at, **place))
    ends = accumulator.inner.result.emin, 0
    return dot(accumulator.outer, sums, [1.0] * len(sums), ends, start, stage=stage, step=step, **place)


def steps(accumulator: Any, terms: int) -> int:
    """How many steps of each stage a sum of so many products reserves: whole fours of words, and runs share none."""
    together = 16 if any(0 < rounding.bits <= 8 for rounding in accumulator.roundings) else 4
    match accumulator.maker:
        case "blocked":
            size = accumulator.size
            runs = -(-terms // size)
        case "lanes":
            size = max(-(-terms // accumulator.count), 1)
            runs = min(accumulator.count, terms)
        case "fused":
            return -(-terms // accumulator.terms // together) * together
        case _:
            return -(-terms // together) * together
    most = max(runs * steps(accumulator.inner, size), steps(accumulator.outer, runs))
    return -(-most // together) * together


def dot(
    accumulator: Any,
    a: Numbers,
    b: Numbers,
    emins: tuple[int, int] = (-126, -126),
    start: float = 0.0,
    **place: int,
) -> float:
    """The sum of products of an accumulator from `start`, which pairwise sums have not.

    `emins` are those of the operands' formats, which fused sums read.
    """
    match accumulator.maker:
        case "blocked":
            return blocked_dot(accumulator, a, b, emins, start, **place)
        case "lanes":
            return lanes_dot(accumulator, a, b, emins, start, **place)
        case "fused":
            return fused_dot(accumulator, a, b, emins, start, **place)
        case "sequential":
            format, rounding = accumulator.format, accumulator.rounding
            return sequential_dot(a, b, format, rounding, accumulator.products, start=start, **place)
    do = RoundedOperations(accumulator.format, accumulator.rounding, **place)
    if accumulator.maker == "tree":
        return tree_dot(accumulator.nesting, a, b, do)
    if getattr(accumulator, "products", None) is not None:
        # Products are rounded to a format of their own, and then summed as numbers are.
        first = RoundedOperations(accumulator.products, accumulator.rounding)
        a = [first("multiply", x, y, step=0, stage=0) for x, y in zip(a, b, strict=True)]
        b = [1.0] * len(a)
    return IN_ONE_FORMAT[accumulator.maker](a, b, do, start)


def fused_dot(
    accumulator: Any,
    a: Numbers,
    b: Numbers,
    emins: tuple[int, int],
    start: float = 0.0,
    element: int = 0,
    seed: int = 0,
    call: int = 0,
    stage: int = 1,
    step: int = 0,
) -> float:
    """T-FDPA as MMA-Sim words it, for finite operands whose formats have these emin; chunk n draws step n."""
    terms, output, total = accumulator.terms, accumulator.output, start
    for chunk, first in enumerate(range(0, len(a), terms)):
        pairs = list(zip(a[first : first + terms], b[first : first + terms], strict=True))
        if not math.isfinite(total):
            return total
        summands = [Fraction(float(x)) * Fraction(float(y)) for x, y in pairs] + [Fraction(total)]
        exponents = [_exponent(x, emins[0]) + _exponent(y, emins[1]) for x, y in pairs]
        exponents.append(_exponent(total, output.emin))
        top_candidates: list[int] = [e for e, summand in zip(exponents, summands, strict=True) if summand]
        if accumulator.zero_exponent is not None and (0 in summands or len(pairs) < terms):
            top_candidates.append(accumulator.zero_exponent)
        unit = Fraction(2) ** (max(top_candidates, default=0) - accumulator.fraction_bits)
        exact = sum(_align(x / unit, accumulator.align.mode) for x in summands) * unit
        draw = step_draw(accumulator.mode, element, step + chunk, seed, call, stage)
        total = _fused_total(accumulator, exact, draw)
    return total


def _fused_total(accumulator: Any, exact: Fraction, draw: int) -> float:
    """A chunk's exact total in the output format: toward zero to FP32 and E8M13, as hardware has it, unless a mode is
    given; else to nearest even. Zeros are +0."""
    output = accumulator.output
    mode = accumulator.rounding or sf.nearest_even
    if accumulator.rounding is None and output in (sf.FP32, sf.Format(8, 13)):
        if abs(exact) >= 2**128:
            return math.copysign(math.inf, exact)
        mode = sf.toward_zero
    return round_value(exact or 0.0, output, mode, draw) + 0.0


def mma_dot(output: Format, a: Numbers, b: Numbers, emins: tuple[int, int], start: float = 0.0) -> float:
    """FP8 products by `mma` on Hopper: 32 at a time, in two steps of the FP16 unit from zero, then added to the sum.

    The first step takes the products k with k mod 4 < 2; a short last chunk is padded with zeros.
    """
    unit, total = sf.tensor_core("hopper", sf.FP16, output).unit, start
    order = sorted(range(32), key=lambda k: k % 4 >= 2)
    for first in range(0, len(a), 32):
        chunks = ([*x[first : first + 32], *[0.0] * 32] for x in (a, b))
        x, y = ([chunk[k] for k in order] for chunk in chunks)
        total = operate("add", output, sf.nearest_even, total, fused_dot(unit, x, y, emins))
    return total


def _exponent(x: float, emin: int) -> int:
    return max(math.frexp(x)[1] - 1, emin)


def _align(units: Fraction, mode: str) -> int:
    """A whole number of units: what is left is cut off, or rounded to nearest even, or kept as an odd last bit."""
    whole, left = divmod(abs(units), 1)
    match mode:
        case "nearest_even":
            whole += left > Fraction(1, 2) or (left == Fraction(1, 2) and whole % 2 == 1)
        case "to_odd":
            whole += left > 0 and whole % 2 == 0
    return whole if units > 0 else -whole


def matrix(a: np.ndarray, b: np.ndarray, function: Any) -> np.ndarray:
    """The matrix of function(row of a, column of b, element number)."""
    rows, columns = len(a), b.shape[1]
    flat = [function(a[i].tolist(), b[:, j].tolist(), i * columns + j) for i in range(rows) for j in range(columns)]
    return np.array(flat, np.float64).reshape(rows, columns)
