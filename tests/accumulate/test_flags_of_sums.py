"""Flags of exact sums, of aligned sums and of tensor cores, compared with fractions for all operands of a format."""

import itertools
import math
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.definition import floor_log2
from simfloat.formats.exceptions import flags_of, is_tiny
from tests.bits import assert_bits

SMALL = sf.Format(2, 1)
VALUES = sf.decode(np.arange(15, dtype=np.uint8), SMALL)  # all numbers, both infinities and one NaN


class Product(NamedTuple):
    """A product of two numbers, with the sum of their exponents; `invalid` for 0 * inf."""

    value: float
    power: int
    invalid: bool


def exponent(x, least):
    return max(floor_log2(abs(Fraction(x))), least)


def product_of(x, y):
    value = x * y
    if math.isnan(value):
        return Product(math.nan, 0, not (math.isnan(x) or math.isnan(y)))
    power = exponent(x, SMALL.emin) + exponent(y, SMALL.emin) if value and math.isfinite(value) else 0
    return Product(value + 0.0, power, False)


@cache
def aligned_step(unit, products, start):
    """Return the result of a step of an aligned sum, and its flags."""
    terms = [*(product.value for product in products), start]
    if not all(map(math.isfinite, terms)):
        total = sum(terms)
        created = math.isnan(total) and not any(map(math.isnan, terms))
        return math.nan if math.isnan(total) else total, 16 * (created or any(product.invalid for product in products))
    powers = [product.power for product in products if product.value]
    powers += [exponent(start, unit.output.emin)] if start else []
    last = Fraction(2) ** (max(powers, default=0) - unit.fraction_bits)
    aligned = [math.trunc(Fraction(term) / last) * last for term in terms]
    total, is_cut = sum(aligned), aligned != terms
    flags = flags_of(total, (), unit.output, unit.mode) | is_cut
    flags |= 2 * (is_cut and is_tiny(abs(total), total < 0, unit.output, unit.mode))
    return float(sf.round(float(total), unit.output, unit.mode)) + 0.0, flags


def aligned_sum(unit, products):
    result, flags = 0.0, 0
    for first in range(0, len(products), unit.terms):
        result, raised = aligned_step(unit, products[first : first + unit.terms], result)
        flags |= raised
    return flags


def rows_for(output):
    """Return all pairs of indices of operands, which are finite if the format of the sums has no NaN."""
    places = range(len(VALUES)) if output.has_nan else np.flatnonzero(np.isfinite(VALUES)).tolist()
    return np.array(list(itertools.product(places, repeat=2)))


@pytest.mark.parametrize(
    "unit",
    [
        sf.fused(2, 2, sf.Format(3, 2)),
        sf.fused(1, 1, sf.Format(2, 2, bias=0), rounding=sf.toward_positive),
        sf.fused(2, 1, sf.E2M1, rounding=sf.toward_zero),
    ],
    ids=str,
)
def test_flags_of_aligned_sums_are_those_of_alignment_and_rounding(unit):
    places = rows_for(unit.output)
    rows = VALUES[places]
    results, flags = sf.matmul(rows, rows.T, inputs=SMALL, accumulate=unit, flags=True)
    assert_bits(results, sf.matmul(rows, rows.T, inputs=SMALL, accumulate=unit))
    products = [[product_of(x, y) for y in VALUES.tolist()] for x in VALUES.tolist()]
    kinds = list(dict.fromkeys(itertools.chain(*products)))
    kind = np.array([[kinds.index(product) for product in line] for line in products])
    want = np.array([[aligned_sum(unit, (p, q)) for q in kinds] for p in kinds], np.uint8)
    first, second = (kind[places[:, k, np.newaxis], places[:, k]] for k in (0, 1))
    assert np.array_equal(flags, want[first, second])
    assert len(np.unique(flags)) >= 3


@pytest.mark.parametrize("output", [sf.Format(3, 1), sf.E2M1, sf.FP64, sf.Format(2, 2, bias=-1)], ids=str)
@pytest.mark.parametrize("rounding", [sf.nearest_even, sf.toward_negative, sf.to_odd.saturating()], ids=str)
def test_flags_of_exact_sums_are_those_of_their_one_rounding(output, rounding):
    rows = VALUES[rows_for(output)]
    options = dict(accumulate=sf.exact, output=output, rounding=rounding)
    results, flags = sf.matmul(rows, rows.T, **options, flags=True)
    assert_bits(results, sf.matmul(rows, rows.T, **options))
    left, right = rows[:, np.newaxis], rows[np.newaxis]
    with np.errstate(invalid="ignore"):
        products = left * right
        sums = products.sum(-1)
        created = np.isnan(products) & ~np.isnan(left) & ~np.isnan(right)
    want = np.zeros(sums.shape, np.uint8)
    for total in np.unique(sums[~np.isnan(sums)]).tolist():
        want[sums == total] = flags_of(Fraction(total) if math.isfinite(total) else total, (), output, rounding)
    want[np.isnan(sums) & ~np.isnan(left).any(-1) & ~np.isnan(right).any(-1)] = 16
    want[created.any(-1)] = 16
    assert np.array_equal(flags, want)


def test_flags_of_exact_sums_in_fp64_are_those_of_fractions(rng):
    a, b = rng.standard_normal((2, 20, 3)) * 2.0 ** rng.integers(-500, 480, (2, 20, 3))
    a[:4], b[:4] = [2.0**1000, 1, 0], [[2.0**30, 0, 0], [2.0**23, 2.0**1000, 0], [2.0**-2074, 0, 0], [1, 2.0**-900, 0]]
    a[4:7], b[4:7] = rng.standard_normal((3, 3)), [[1, 2.0**-52, 0], [1, 0, 0], [2.0**-1000] * 3]
    for x, y, start in zip(a, b, rng.choice([0.0, 2.0**-40], 20), strict=True):
        total = sum((Fraction(p) * Fraction(q) for p, q in zip(x, y, strict=True)), Fraction(start))
        for rounding in (sf.nearest_even, sf.toward_zero):
            options = dict(accumulate=sf.exact, output=sf.FP64, rounding=rounding, initial=start)
            result, flags = sf.dot(x, y, **options, flags=True)
            assert result == sf.dot(x, y, **options) and flags == flags_of(total, (), sf.FP64, rounding)


@pytest.mark.parametrize(
    "unit",
    [
        *(sf.tensor_core(one, sf.FP16) for one in ("volta", "ampere", "hopper")),
        *(sf.tensor_core("hopper", sf.E4M3, instruction=name) for name in ("wgmma", "mma")),
        sf.tensor_core("blackwell", (sf.E4M3, sf.E5M2), output=sf.FP16, instruction="mma"),
        *(sf.tensor_core("ampere", sf.TF32), sf.tensor_core("hopper", sf.FP64)),
        sf.blocked(32, sf.tensor_core("hopper", sf.E4M3), sf.FP32),
    ],
    ids=str,
)
def test_tensor_cores_return_the_same_results_with_flags(unit, rng):
    inputs = (unit.inner if isinstance(unit, type(sf.blocked(1, sf.FP16, sf.FP16))) else unit).inputs
    a, b = (sf.round(rng.standard_normal((5, 70)) * 4, format) for format in inputs)
    c = sf.round(rng.standard_normal((5, 5)), unit.result)
    results, flags = sf.matmul(a, b.T, accumulate=unit, initial=c, flags=True)
    assert_bits(results, sf.matmul(a, b.T, accumulate=unit, initial=c))
    assert (flags == 1).any() and not (flags & ~np.uint8(1)).any()
    ones = np.ones(70, np.float32)
    assert sf.dot(ones, ones, accumulate=unit, flags=True)[1] == 0


def test_a_tensor_core_raises_inexact_for_bits_that_the_alignment_cuts():
    hopper = sf.tensor_core("hopper", sf.FP16)
    assert sf.dot([2.0**14, 2.0**-9], [1, 1], accumulate=hopper, flags=True) == (16384.0 + 2.0**-9, 0)
    assert sf.dot([2.0**14, 2.0**-10], [1, 1], accumulate=hopper, flags=True) == (16384.0, 1)
    assert sf.dot([2.0**14, -(2.0**14), 2.0**-24], [1, 1, 1], accumulate=hopper, flags=True) == (0.0, 1)
    assert sf.dot([np.inf, 1], [0, 1], accumulate=hopper, flags=True)[1] == 16
    half = sf.tensor_core("hopper", sf.FP16, output=sf.FP16)
    assert sf.dot([65504.0, 65504.0], [1, 1], accumulate=half, flags=True) == (np.inf, 5)
    assert sf.dot([2.0**-14, 2.0**-14], [2.0**-11, 2.0**-11], accumulate=half, flags=True) == (2.0**-24, 0)
    assert sf.dot([2.0**-14], [2.0**-12], accumulate=half, flags=True) == (0.0, 3)
