"""The steps of matrix units, with plain NumPy, for all elements of a tile, and the flags that they raise.

A step of an aligned sum raises the flags of its roundings. It is inexact if the alignment cuts bits off a term, or if
the total is rounded. It underflows if it is inexact and its total is tiny. It overflows if the rounded total is beyond
the largest number. It is invalid if a term is 0 * inf, or if the sum is NaN and no term is NaN. Scales of blocks are
operands: a product of two scaled numbers is one exact term, and so is a scaled group of products.

The steps of AMD's matrix cores raise these flags:

* CDNA1: the flags of the one rounding of a chunk and the partial sum;
* CDNA2: the flags of every operation in FP32. A subnormal result that is flushed is inexact and an underflow. An
  operand that is flushed raises nothing, as on other processors that read subnormal numbers as zeros.
* CDNA3: the flags of an aligned sum, where every truncation and every floor may cut bits. A product of 2^128 or more is
  infinite, which is an overflow.

No manual of these units defines flags. These are the flags of the operations in our models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.operations import results_rounded_to_odd
from simfloat.formats import FP32, TF32, Format, Rounding, nearest_even
from simfloat.formats.exceptions import INEXACT, INVALID, OVERFLOW, UNDERFLOW, thresholds_of
from simfloat.sums.exact import exact_sum_of_two
from simfloat.sums.fused import Fused
from simfloat.sums.integers import cut_to_tf32
from simfloat.sums.units import MatrixCore

#: The exponent of zeros that take no part in the alignment: it is below the exponent of every product.
NO_TERM_EXPONENT = -900

#: The number of products of a group that a unit adds before it scales and aligns them.
GROUP = 16

#: The factors of a product; both broadcast to the shape of the sums.
Factors = tuple[NDArray, NDArray]

#: The factors of a product, and the scales of both.
ScaledFactors = tuple[NDArray, NDArray, NDArray, NDArray]

#: A function (operation, *operands) -> results in FP32; it also records the flags of the operation.
Operations = Callable[..., NDArray]


class Terms(NamedTuple):
    """The terms of a chunk: exact products of pairs of factors, and their exponents; NO_TERM_EXPONENT for zeros."""

    factors: list[Factors]
    exponents: list[NDArray]


def products_as_terms(factors: Sequence[Factors], least: tuple[int, int]) -> Terms:
    """Return products as terms; `least` is emin of the formats of both factors."""
    exponents = [
        np.where(x * y != 0.0, _exponent(x, least[0]) + _exponent(y, least[1]), NO_TERM_EXPONENT) for x, y in factors
    ]
    return Terms(list(factors), exponents)


def scaled_products_as_terms(factors: Sequence[ScaledFactors], least: tuple[int, int]) -> Terms:
    """Return products of scaled factors as terms; scales are powers of two."""
    products = products_as_terms([(x, y) for x, y, _, _ in factors], least)
    exponents = [
        np.where(exponent == NO_TERM_EXPONENT, exponent, exponent + np.frexp(s)[1] + np.frexp(t)[1] - 2)
        for exponent, (_, _, s, t) in zip(products.exponents, factors, strict=True)
    ]
    return Terms([(x * s, y * t) for x, y, s, t in factors], exponents)


def groups_as_terms(factors: Sequence[ScaledFactors], least: int) -> Terms:
    """Return scaled groups of products as terms, with the exponents of their scales; `least` is emin of the scales."""
    terms = Terms([], [])
    for first in range(0, len(factors), GROUP):
        group, (_, _, s, t) = factors[first : first + GROUP], factors[first]
        s, t = np.abs(s), np.abs(t)  # the unit does not read the sign of a scale
        is_used = reduce(np.logical_or, [x * y != 0.0 for x, y, *_ in group]) & (s * t != 0.0)
        exponent = np.where(is_used, _exponent(s, least) + _exponent(t, least), NO_TERM_EXPONENT)
        terms.factors.append((reduce(np.add, [x * y for x, y, *_ in group]), s * t))
        terms.exponents.append(exponent)
    return terms


def chunk_total(fused: Fused, terms: Terms, so_far: NDArray, flags: NDArray | None = None) -> NDArray:
    """Return the exact totals of the terms of a chunk and the partial sums.

    Infinities and NaN are those of plain float64 sums. `flags` receives the flags of the products, of the alignment and
    of the sum.
    """
    products = [np.broadcast_to(x * y, so_far.shape) for x, y in terms.factors]
    so_far_exponent = np.where(so_far != 0.0, _exponent(so_far, fused.output.emin), NO_TERM_EXPONENT)
    exponents = [so_far_exponent, *(np.broadcast_to(exponent, so_far.shape) for exponent in terms.exponents)]
    if len(products) < fused.terms:  # zeros
        products.append(np.zeros_like(so_far))
        exponents.append(np.full_like(so_far, NO_TERM_EXPONENT))
    values, powers = np.stack([so_far, *products]), np.stack(exponents)
    if fused.zero_exponent is not None:
        powers = np.where(powers == NO_TERM_EXPONENT, int(fused.zero_exponent), powers)
    # A term is below 2^(F + 2) units of the last bit that is kept, F is at most 40, and a chunk has at most 1024
    # terms: float64 adds such integers without error in any order.
    unit = np.ldexp(np.ones_like(so_far), (powers.max(axis=0) - int(fused.fraction_bits)).astype(np.int32))
    units = _align_terms(values, unit, fused.align.steps)
    total, plain = reduce(np.add, units) * unit, reduce(np.add, values)
    if flags is not None:
        is_cut = (units * unit != values).any(axis=0) & np.isfinite(plain)
        flags |= is_cut * np.uint8(INEXACT) | invalid_sums(terms.factors, so_far, plain) * np.uint8(INVALID)
    # With an infinite operand the unit is not finite; the plain sum is then the result of IEEE 754, an infinity or NaN.
    return np.where(np.isfinite(plain), total, plain)


def invalid_sums(factors: Sequence[Factors], start: NDArray, sums: NDArray) -> NDArray[np.bool_]:
    """Return True for sums that are NaN although no term is, and for sums with a product of 0 and inf."""
    with np.errstate(all="ignore"):
        of_nan, invalid = np.isnan(start), np.zeros(sums.shape, bool)
        for x, y in factors:
            product_is_nan = np.isnan(x * y)
            of_nan = of_nan | product_is_nan
            invalid |= product_is_nan & ~np.isnan(x) & ~np.isnan(y)
    return invalid | np.isnan(sums) & ~of_nan


def _exponent(x: NDArray, least: int) -> NDArray:
    """Return the exponents of nonzero values, at least `least`."""
    return np.maximum(np.frexp(x)[1] - 1, least)


def _align_terms(terms: NDArray, unit: NDArray, steps: str) -> NDArray:
    """Return terms in units of the last kept bit, as integers."""
    # A unit is a power of two: the quotient is exact, unless it is too small to matter.
    units = terms / unit
    if steps == "nearest":
        return np.rint(units)
    if steps == "downward":
        return np.where((units == 0.0) & (terms < 0.0), -1.0, np.floor(units))
    cut = np.trunc(units)
    if steps == "truncated":
        return cut
    # Quotients far below one may underflow to zero.
    is_cut = (cut != units) | ((units == 0.0) & (terms != 0.0))
    return np.where(is_cut & (cut % 2 == 0), cut + np.sign(terms), cut)


def underflow_of_cut(totals: NDArray, raised: NDArray, format: Format, mode: Rounding) -> NDArray[np.uint8]:
    """Return the flag underflow for tiny totals with terms that were cut, which are inexact even without rounding."""
    negative, tiny = totals < 0, thresholds_of(format, mode)
    least = np.where(negative, tiny.must_be_normal_below, tiny.must_be_normal)
    return (totals != 0) * (np.abs(totals) < least) * (raised & INEXACT) * np.uint8(UNDERFLOW)


def steps_of_matrix_core(
    unit: MatrixCore,
    do: Operations,
    flags: NDArray[np.uint8],
    factors: Sequence[Factors],
    start: NDArray,
    least: tuple[int, int],
) -> NDArray:
    """Return the sums of a matrix core, added to `start`; `least` is emin of the formats of both factors.

    `do` computes operations in FP32, to nearest even. `flags` receives the flags of all other steps.
    """
    steps: dict[str, Callable[..., NDArray]] = {"cdna1": _exact_step, "cdna2": _flushing_step}
    step = steps.get(unit.architecture) or partial(_floored_step, least)
    total = start
    with np.errstate(all="ignore"):
        for first in range(0, len(factors), unit.chunk):
            chunk = list(factors[first : first + unit.chunk])
            zeros = np.zeros_like(chunk[0][0]), np.zeros_like(chunk[0][1])
            total = step(unit, do, flags, chunk + [zeros] * (unit.chunk - len(chunk)), total)
    return total


def _exact_step(
    unit: MatrixCore, do: Operations, flags: NDArray[np.uint8], factors: list[Factors], so_far: NDArray
) -> NDArray:
    """Round the exact total of the partial sum and a chunk of products once (CDNA1)."""
    products = [np.broadcast_to(x * y, so_far.shape) for x, y in factors]
    plain = so_far + reduce(np.add, products)
    # Four products of FP16 numbers span 80 bits, so the errors of their sums are added exactly. A BF16 chunk has two.
    high, low = products[0], np.zeros_like(so_far)
    for product in products[1:]:
        high, error = exact_sum_of_two(high, product)
        low = low + error
    high, low = exact_sum_of_two(high, low)
    middle, rest = exact_sum_of_two(so_far, low)
    high, middle = exact_sum_of_two(high, middle)
    odd = results_rounded_to_odd("add", [high, results_rounded_to_odd("add", [middle, rest])])
    flags |= invalid_sums(factors, so_far, plain) * np.uint8(INVALID)
    return do("add", np.where(np.isfinite(plain), odd, plain) + 0.0, np.zeros_like(so_far))


def _flushing_step(
    unit: MatrixCore, do: Operations, flags: NDArray[np.uint8], factors: list[Factors], so_far: NDArray
) -> NDArray:
    """Compute products and sums of pairs in FP32, and flush subnormal operands and results (CDNA2)."""

    def flush_result(operation: str, *operands: NDArray) -> NDArray:
        results = do(operation, *operands)
        is_subnormal = (results != 0.0) & (np.abs(results) < FP32.smallest_normal)
        flags[is_subnormal] |= INEXACT | UNDERFLOW
        return np.where(is_subnormal, results * 0.0, results)

    def normal(x: NDArray, least: float) -> NDArray:
        return np.where(np.abs(x) < least, 0.0, x)

    least = unit.inputs[0].smallest_normal
    products = [flush_result("multiply", normal(x, least), normal(y, least)) for x, y in factors]
    pairs = [flush_result("add", x, y) for x, y in zip(products[::2], products[1::2], strict=True)]
    return flush_result(
        "add", normal(so_far, FP32.smallest_normal), reduce(lambda x, y: flush_result("add", x, y), pairs)
    )


def _floored_step(
    least: tuple[int, int],
    unit: MatrixCore,
    do: Operations,
    flags: NDArray[np.uint8],
    factors: list[Factors],
    so_far: NDArray,
) -> NDArray:
    """Truncate products, and add them and the partial sum with floors (CDNA3)."""
    if TF32 in unit.inputs:
        factors = [(cut_to_tf32(x), cut_to_tf32(y)) for x, y in factors]
    is_cut = np.zeros(so_far.shape, bool)

    def on_grid(x: NDArray, spacing: NDArray, to_whole: Callable[[NDArray], NDArray] = np.floor) -> NDArray:
        result = to_whole(x / spacing) * spacing
        is_cut[...] |= result != x
        return result

    parts = 2 if unit.row.terms == 16 else 1
    values, exponents = [np.broadcast_to(x * y, so_far.shape) for x, y in factors], products_as_terms(factors, least)[1]
    tops, dots = list[NDArray](), list[NDArray]()
    for part in range(parts):
        top = np.ldexp(1.0, reduce(np.maximum, exponents[part::parts]).astype(np.int32)) + np.zeros_like(so_far)
        dots.append(reduce(np.add, [on_grid(x, top * 2.0**-24, np.trunc) for x in values[part::parts]]))
        tops.append(top)
    dot_top = reduce(np.maximum, tops)
    dot = reduce(np.add, [on_grid(x, dot_top * 2.0**-24) for x in dots])
    sum_top = np.ldexp(1.0, np.where(so_far != 0.0, _exponent(so_far, FP32.emin), FP32.emin).astype(np.int32))
    top = np.maximum(dot_top, sum_top)
    sum_part = on_grid(so_far, top * 2.0**-24)
    if parts == 2:
        is_dropped = sum_top < top * 2.0**-25
        is_cut |= is_dropped & (so_far != 0.0)
        sum_part = np.where(is_dropped, 0.0, sum_part)
    total = on_grid(dot, top * 2.0**-32) + sum_part
    power = np.ldexp(1.0, np.where(total != 0.0, _exponent(total, FP32.emin), FP32.emin).astype(np.int32))
    total = on_grid(total, power * 2.0**-31)
    # A product of 2^128 or more is infinite, though its operands are finite.
    infinite = [np.isfinite(x) & (np.abs(x) >= 2.0**128) for x in values]
    overflows = reduce(np.logical_or, infinite)
    values = [np.where(too_large, x * np.inf, x) for x, too_large in zip(values, infinite, strict=True)]
    plain = reduce(np.add, [so_far, *values])
    is_finite = np.isfinite(plain)
    raised = (is_cut & is_finite) * np.uint8(INEXACT)
    raised |= underflow_of_cut(total, raised, FP32, nearest_even)
    is_nan = reduce(np.logical_or, [np.isnan(x) for x in (so_far, *values)])
    is_invalid = invalid_sums(factors, so_far, so_far) | np.isnan(plain) & ~is_nan
    flags |= raised | overflows * np.uint8(OVERFLOW | INEXACT) | is_invalid * np.uint8(INVALID)
    return do("add", np.where(is_finite, total, plain) + 0.0, np.zeros_like(so_far))
