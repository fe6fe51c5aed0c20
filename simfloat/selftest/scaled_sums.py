"""Scaled casts and the sums of their elements by their definitions, number by number; and their check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import simfloat as sf
from simfloat.formats import Format, Rounding
from simfloat.formats.definition import floor_log2, round_value
from simfloat.selftest.comparison import Batch
from simfloat.selftest.orders import dot
from simfloat.selftest.reference import operate

Numbers = Sequence[float]
Formats = tuple[Format, Format]


def scaled_sums(quick: bool) -> Iterator[Batch]:
    """Sums of operands that are scaled as wholes, by rows and squares of blocks, and by powers of two."""
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
    """The product of matrices whose operands are scaled as wholes, or by blocks without a scale of the whole."""
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
    """The largest magnitude in float32; NaN if there is one."""
    with np.errstate(all="ignore"):
        magnitudes = [np.float32(abs(v)) for v in np.asarray(x, float).ravel().tolist()]
    return np.float32(np.nan) if any(np.isnan(magnitudes)) else max(magnitudes, default=np.float32(0))


def clamped_quotient(most: float, amax: Any) -> float:
    """most / amax in float32, inside its positive numbers."""
    with np.errstate(all="ignore"):
        s = np.float32(most) / np.float32(amax)
    return float(min(max(s, np.float32(2.0**-149)), np.float32(sf.FP32.max)))


def tensor_scale(x: ArrayLike, format: Format) -> float:
    """max / amax; 1 where amax is zero or no finite number."""
    amax = largest(x)
    return clamped_quotient(format.max, amax) if 0 < amax < np.inf else 1.0


def elements(x: ArrayLike, format: Format, scale: ArrayLike, rounding: Rounding = sf.nearest_even) -> NDArray:
    """round(x * scale), saturating, of every number."""
    x = np.asarray(x, float)
    pairs = zip(x.ravel().tolist(), np.broadcast_to(scale, x.shape).ravel().tolist(), strict=True)
    return np.array([operate("multiply", format, rounding.saturating(), v, s) for v, s in pairs]).reshape(x.shape)


def power_scale(amax: float, format: Format, rule: str = "rceil") -> float:
    """The power of two by which a block's elements are divided (OCP MX), NaN where there is none."""
    if not np.isfinite(amax):
        return np.nan
    exponent = -127
    if amax:
        number = Fraction(amax) / (Fraction(format.max) if rule == "rceil" else Fraction(2) ** format.emax)
        exponent = floor_log2(number)
        exponent += rule == "rceil" and number != Fraction(2) ** exponent
    return np.nan if exponent > 127 else 2.0 ** max(exponent, -127)


def block_scales(x: NDArray, format: Format, scale: Any) -> NDArray:
    """The scales of a matrix (rows, k), one for each run along k: FP32 ones, or powers of two."""
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
    """A sum of products of elements, divided by the scales of both operands, then rounded once."""
    divisor = Fraction(scales[0]) * Fraction(scales[1])
    if accumulator == sf.exact:
        return round_value(_exact_total(a, b) / divisor, output, rounding)
    # A sum that is zero keeps its sign, and one that is no finite number its kind.
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
    """A sum of products of elements in blocks: (products of block i) / scales[i], or times them, added up."""
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
    return sum((Fraction(x) * Fraction(y) for x, y in zip(a, b, strict=True)), Fraction(0))


def _sum(accumulator: Any, a: Numbers, b: Numbers, formats: Formats) -> float:
    """The accumulator's sum of the products of two lists of elements, by its definition."""
    unit = accumulator.for_inputs(*formats)
    return dot(unit.unit if unit.is_matrix_unit else unit, a, b, (formats[0].emin, formats[1].emin))
