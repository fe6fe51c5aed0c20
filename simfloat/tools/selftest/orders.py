"""Define sums in orders other than sequential, scaled casts, and sums of scaled elements.

Sums follow the contract of their accumulators step by step, scaled casts their definitions element by element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import simfloat as sf
from simfloat.formats import Format, Rounding
from simfloat.formats.definition import floor_log2, round_value
from simfloat.sums.trees import ADD, as_postfix
from simfloat.tools.selftest.checks import Batch
from simfloat.tools.selftest.definitions import operate, sequential_dot, step_draw

Numbers = Sequence[float]


class RoundedOperations:
    """Rounded operations for one element of a result, with the random bits of its stochastic steps."""

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
        """Return the rounded result, with the random bits of that step and stage."""
        element, seed, call, first_stage, first_step = self.place
        draw = step_draw(self.rounding, element, first_step + step, seed, call, first_stage + stage)
        return operate(operation, self.format, self.rounding, *operands, random=draw)


def pairwise_dot(a: Numbers, b: Numbers, do: RoundedOperations, start: float) -> float:
    """Add level by level; a sum whose right part begins with product k uses the random bits of step k."""
    nodes = [(k, do("multiply", x, y, step=k, stage=1)) for k, (x, y) in enumerate(zip(a, b, strict=True))]
    while len(nodes) > 1:
        pairs = [
            (nodes[i][0], do("add", nodes[i][1], nodes[i + 1][1], step=nodes[i + 1][0], stage=0))
            for i in range(0, len(nodes) - 1, 2)
        ]
        nodes = pairs + nodes[len(nodes) - len(nodes) % 2 :]
    return nodes[0][1] if nodes else 0.0


def kahan_dot(a: Numbers, b: Numbers, do: RoundedOperations, start: float) -> float:
    """Add by p = ab, y = p - c, t = s + y, c = (t - s) - y, s = t."""
    s, c = start, 0.0
    for k, (x, y) in enumerate(zip(a, b, strict=True)):
        p = do("multiply", x, y, step=k, stage=1)
        y = do("subtract", p, c, step=k, stage=2)
        t = do("add", s, y, step=k, stage=0)
        c = do("subtract", do("subtract", t, s, step=k, stage=3), y, step=k, stage=4)
        s = t
    return s


def numpy_dot(a: Numbers, b: Numbers, do: RoundedOperations, start: float) -> float:
    """Add as NumPy's `pairwise_sum`, then add the result to 0; random bits are those of pairwise sums."""

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
    """Add products in the order of a nesting; random bits are those of pairwise sums."""
    sums: list[tuple[int, float]] = []
    for k in as_postfix(nesting):
        if k == ADD:
            step, right = sums.pop()
            first, left = sums.pop()
            sums.append((first, do("add", left, right, step=step, stage=0)))
        else:
            sums.append((k, do("multiply", a[k], b[k], step=k, stage=1)))
    return sums[0][1]


#: Sums whose products and steps are all rounded to one format, by the name of the accumulator's function.
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
    """Add runs from zero by the inner accumulator, and their results (times one) by the outer one from `start`.

    Run r uses the random bits of the stages after the outer ones, beginning with step r * steps(inner, size).
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
    """Add lanes as a blocked sum adds runs; product k belongs to lane k mod count."""
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
    """Return the number of steps per stage that a sum of `terms` products reserves: whole groups of four words."""
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
    """Return the sum of products of an accumulator from `start`, which pairwise sums ignore.

    `emins` are the smallest exponents of the formats of the operands, which fused sums need.
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
        # Products are rounded to their format first, and then added like numbers.
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
    """Add as T-FDPA in MMA-Sim, for finite operands of formats with these emin; chunk n uses the bits of step n."""
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
    """Round the exact total of a chunk to the output format; zeros are +0.

    Without an explicit mode, FP32 and E8M13 are rounded toward zero, as in hardware, and other formats to nearest even.
    """
    output = accumulator.output
    mode = accumulator.rounding or sf.nearest_even
    if accumulator.rounding is None and output in (sf.FP32, sf.Format(8, 13)):
        if abs(exact) >= 2**128:
            return math.copysign(math.inf, exact)
        mode = sf.toward_zero
    return round_value(exact or 0.0, output, mode, draw) + 0.0


def mma_dot(output: Format, a: Numbers, b: Numbers, emins: tuple[int, int], start: float = 0.0) -> float:
    """Add FP8 products as `mma` on Hopper: 32 at a time, in two steps of the FP16 unit from zero, then to the sum.

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
    """Return the exponent of a number, at least emin."""
    return max(math.frexp(x)[1] - 1, emin)


def _align(units: Fraction, mode: str) -> int:
    """Round to a whole number of units: truncate, round to nearest even or down, or set an odd last bit."""
    whole, left = divmod(abs(units), 1)
    match mode:
        case "toward_negative":
            return math.floor(units)
        case "nearest_even":
            whole += left > Fraction(1, 2) or (left == Fraction(1, 2) and whole % 2 == 1)
        case "to_odd":
            whole += left > 0 and whole % 2 == 0
    return whole if units > 0 else -whole


def matrix(a: np.ndarray, b: np.ndarray, function: Any) -> np.ndarray:
    """Return the matrix of function(row of a, column of b, index of the element)."""
    rows, columns = len(a), b.shape[1]
    flat = [function(a[i].tolist(), b[:, j].tolist(), i * columns + j) for i in range(rows) for j in range(columns)]
    return np.array(flat, np.float64).reshape(rows, columns)


Formats = tuple[Format, Format]


def scaled_sums(quick: bool) -> Iterator[Batch]:
    """Check sums of operands with one scale per tensor, per block of a row or square, and with powers of two."""
    rng = np.random.default_rng(15)
    casts = [(sf.per_tensor(), sf.per_tensor()), (sf.block(4, sf.FP32), sf.block((2, 4), sf.FP32))]
    casts += [(sf.block(4, sf.E8M0), sf.block(4, sf.E8M0, rule="floor"))]
    accumulators: list[Any] = [sf.sequential(sf.FP32), sf.exact]
    if not quick:
        accumulators += [sf.pairwise(sf.BF16, sf.toward_negative), sf.kahan(sf.FP32), sf.tensor_core("hopper")]
    for _ in range(1 if quick else 2):
        a, b = (rng.standard_normal(shape) * 2.0 ** rng.integers(-9, 9, shape) for shape in ((3, 11), (11, 4)))
        for left, right in casts:
            inputs = sf.scaled(sf.E4M3, left), sf.scaled(sf.E5M2, right)
            for accumulate in accumulators:
                got = sf.matmul(a, b, inputs=inputs, accumulate=accumulate, output=sf.BF16)
                yield Batch("matmul", (), (*inputs, accumulate), got, product(a, b, inputs, accumulate, sf.BF16))


def product(a: NDArray, b: NDArray, casts: Any, accumulator: Any, output: Format, **options: Any) -> NDArray:
    """Return the product of matrices whose operands have one scale, or one for each block and none for the tensor."""
    left, right = casts
    formats, columns = (left.format, right.format), b.T
    if isinstance(left.scale, type(sf.per_tensor())):
        scales = tensor_scale(a, left.format), tensor_scale(b, right.format)
        q, r = elements(a, left.format, scales[0]), elements(columns, right.format, scales[1])
        rows = [
            [whole_dot(x, y, formats, scales, accumulator, output, **options) for y in r.tolist()] for x in q.tolist()
        ]
        return np.array(rows).reshape(len(a), len(columns))
    s, t = block_scales(a, left.format, left.scale), block_scales(columns, right.format, right.scale)
    along, divide = left.scale.along, left.scale.format == sf.FP32
    factors = [np.repeat(scales if divide else 1 / scales, along, 1)[:, : a.shape[1]] for scales in (s, t)]
    q, r = elements(a, left.format, factors[0]), elements(columns, right.format, factors[1])
    out = np.empty((len(a), len(columns)))
    for i, j in np.ndindex(*out.shape):
        block_factors = (s[i] * t[j]).tolist()
        out[i, j] = block_dot(
            q[i].tolist(), r[j].tolist(), block_factors, formats, along, accumulator, output, divide=divide, **options
        )
    return out


def largest(x: ArrayLike) -> np.float32:
    """Return the largest magnitude in float32; NaN if there is one."""
    with np.errstate(all="ignore"):
        magnitudes = [np.float32(abs(v)) for v in np.asarray(x, float).ravel().tolist()]
    return np.float32(np.nan) if any(np.isnan(magnitudes)) else max(magnitudes, default=np.float32(0))


def clamped_quotient(most: float, amax: Any) -> float:
    """Return most / amax in float32, clamped to its positive finite numbers."""
    with np.errstate(all="ignore"):
        s = np.float32(most) / np.float32(amax)
    return float(min(max(s, np.float32(2.0**-149)), np.float32(sf.FP32.max)))


def tensor_scale(x: ArrayLike, format: Format) -> float:
    """Return max / amax; 1 if amax is zero or not finite."""
    amax = largest(x)
    return clamped_quotient(format.max, amax) if 0 < amax < np.inf else 1.0


def elements(x: ArrayLike, format: Format, scale: ArrayLike, rounding: Rounding = sf.nearest_even) -> NDArray:
    """Return x * scale, rounded with saturation, for every value."""
    x = np.asarray(x, float)
    pairs = zip(x.ravel().tolist(), np.broadcast_to(scale, x.shape).ravel().tolist(), strict=True)
    return np.array([operate("multiply", format, rounding.saturating(), v, s) for v, s in pairs]).reshape(x.shape)


def power_scale(amax: float, format: Format, rule: str = "rceil") -> float:
    """Return the power of two by which the elements of a block are divided (OCP MX); NaN if there is none."""
    if not np.isfinite(amax):
        return np.nan
    exponent = -127
    if amax:
        number = Fraction(amax) / (Fraction(format.max) if rule == "rceil" else Fraction(2) ** format.emax)
        exponent = floor_log2(number)
        exponent += rule == "rceil" and number != Fraction(2) ** exponent
    return np.nan if exponent > 127 else 2.0 ** max(exponent, -127)


def block_scales(x: NDArray, format: Format, scale: Any) -> NDArray:
    """Return the scales of a matrix (rows, k), one for each run along k: in FP32, or powers of two."""
    across, along = scale.size if isinstance(scale.size, tuple) else (1, scale.size)
    out = np.empty((len(x), -(-x.shape[1] // along)))
    for i, run in np.ndindex(*out.shape):
        part = x[i // across * across :][:across, run * along : (run + 1) * along]
        if scale.format == sf.FP32:
            out[i, run] = tensor_scale(part, format)
        else:
            out[i, run] = power_scale(float(np.max(np.abs(part))), format, scale.rule or "rceil")
    return out


def whole_dot(
    a: Numbers,
    b: Numbers,
    formats: Formats,
    scales: tuple[float, float],
    accumulator: Any,
    output: Format,
    rounding: Rounding = sf.nearest_even,
) -> float:
    """Return a sum of products of elements, divided by the scales of both operands and then rounded once."""
    divisor = Fraction(scales[0]) * Fraction(scales[1])
    if accumulator == sf.exact:
        return round_value(_exact_total(a, b) / divisor, output, rounding)
    # The sign of a zero sum, infinity and NaN are kept.
    return operate("divide", output, rounding, _sum(accumulator, a, b, formats), float(divisor))


def block_dot(
    a: Numbers,
    b: Numbers,
    scales: Numbers,
    formats: Formats,
    block: int,
    accumulator: Any,
    output: Format,
    rounding: Rounding = sf.nearest_even,
    *,
    divide: bool,
    start: float = 0.0,
) -> float:
    """Return the sum over blocks of (sum of products of block i) / scales[i], or times scales[i]."""
    parts = [(a[i : i + block], b[i : i + block], s) for i, s in zip(range(0, len(a), block), scales, strict=True)]
    if accumulator == sf.exact:
        freed = (_exact_total(x, y) * Fraction(s) ** (-1 if divide else 1) for x, y, s in parts)
        return round_value(sum(freed, Fraction(start)), output, rounding)
    last, total, operation = accumulator, start, "divide" if divide else "multiply"
    while hasattr(last, "outer"):
        last = last.outer
    format, mode = accumulator.result, getattr(last, "rounding", None) or sf.nearest_even
    for x, y, s in parts:
        total = operate(
            "add", format, mode, total, operate(operation, format, mode, _sum(accumulator, x, y, formats), s)
        )
    return round_value(total, output, rounding)


def _exact_total(a: Numbers, b: Numbers) -> Fraction:
    """Return the exact sum of products."""
    return sum((Fraction(x) * Fraction(y) for x, y in zip(a, b, strict=True)), Fraction(0))


def _sum(accumulator: Any, a: Numbers, b: Numbers, formats: Formats) -> float:
    """Return the sum of the products of two lists of elements, by the definition of the accumulator."""
    unit = accumulator.for_inputs(*formats)
    return dot(unit.unit if unit.is_matrix_unit else unit, a, b, (formats[0].emin, formats[1].emin))
