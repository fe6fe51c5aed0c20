"""Compare exact sums with fractions; sums of scaled blocks are divided once at the end."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.definition import round_value
from simfloat.sums.accumulator import Region
from simfloat.sums.bounds import bounds_of
from simfloat.sums.exact import Fractions, fractions_for
from simfloat.sums.operands import Problem, operand_bounds
from tests.accumulate.definition import exact_sums
from tests.bits import DETERMINISTIC, assert_bits
from tests.checks import assert_refused
from tests.reference import draws


def check(a, b, output, rounding=sf.nearest_even):
    got = sf.matmul(a, b, accumulate=sf.exact, output=output, rounding=rounding, stream=sf.BitStream(5))
    random = draws(got.size, rounding, 5) if rounding.is_stochastic else [0] * got.size
    totals = (total for row in exact_sums(a, b) for total in row)
    assert_bits(got.ravel(), [round_value(total, output, rounding, r) for total, r in zip(totals, random, strict=True)])


def test_exact_sums_are_rounded_once(rng):
    for inputs, spread in product((sf.FP16, sf.BF16, sf.FP32, None), (0, 10, 40, 150, 400)):
        a, b = rng.standard_normal((2, 30)), rng.standard_normal((30, 3))
        a *= 2.0 ** rng.integers(-spread, spread + 1, a.shape)
        # Cancellation: the second half undoes the first but for a little.
        a[:, 15:], b[15:] = -a[:, :15], b[:15]
        a[0, 15] *= 1 + 2.0**-10
        a[1, 16] = 0.0
        if inputs is not None:
            a, b = (sf.round(x, inputs, sf.nearest_even.saturating()).astype(float) for x in (a, b))
        for output in (sf.BF16, sf.FP32, sf.Format(11, 49), sf.FP64):
            check(a, b, output)
        for rounding in (*DETERMINISTIC[1:], sf.stochastic()):
            check(a, b, sf.FP16, rounding)
    a = rng.standard_normal((1, 5000))
    check(a, rng.standard_normal((5000, 2)) * 2.0 ** rng.integers(-60, 60, (5000, 2)), sf.FP32)


def test_specials_and_zeros():
    inf, nan = np.inf, np.nan
    wide = 2.0**-60  # makes several grids necessary
    for tiny in (0.0, wide):
        a = np.array([[inf, 1, tiny], [inf, -inf, tiny], [nan, 1, tiny], [1, -1, 0], [-0.0, -0.0, -0.0]])
        b = np.ones((3, 1)) * (1 + (2.0**-52 if tiny else 0))
        got = sf.matmul(a, b, accumulate=sf.exact, output=sf.FP32, rounding=sf.toward_negative)
        assert_bits(got.ravel(), [inf, nan, nan, 0.0, 0.0])


def test_products_may_leave_the_range_of_float64():
    tiny, huge = [2.0**-600, 2.0**-600], [2.0**-600, -(2.0**-600)]
    assert sf.dot(tiny, huge, accumulate=sf.exact, output=sf.FP32) == 0
    assert sf.dot([2.0**600, 1.0], [2.0**600, 1.0], accumulate=sf.exact, output=sf.FP64) == np.inf
    x, y = [2.0**600, 3.0, -(2.0**600)], [2.0**600, 0.25, 2.0**600]
    assert sf.dot(x, y, accumulate=sf.exact, output=sf.FP16) == 0.75


def test_operations_that_cannot_be_exact_are_refused():
    options = dict(accumulate=sf.exact, rounding=sf.stochastic(), stream=sf.BitStream(0))
    assert_refused(
        (lambda: sf.sum([1.0], accumulate=sf.exact), "pass output="),
        (lambda: sf.sum([1.0, 2.0**-60], output=sf.FP32, **options), r"use stochastic\(bits=26\) at most"),
        (lambda: sf.sum([1.0, 2.0**-60], output=sf.FP64, **options), "precision 53, and the mode is stochastic"),
    )


OUTPUTS = [
    (sf.FP32, sf.nearest_even), (sf.FP64, sf.nearest_even), (sf.FP16, sf.toward_negative),
    (sf.Format(11, 40), sf.toward_zero), (sf.BF16, sf.to_odd),
]  # fmt: skip
SHAPE, BLOCK, BLOCKS = (3, 4), 5, 4
DEPTH = BLOCK * BLOCKS - 2


@pytest.fixture
def one_by_one(monkeypatch):
    """The totals that were computed one by one."""
    totals, compute = [], Fractions._total

    def total(self, *operands):
        totals.append(compute(self, *operands))
        return totals[-1]

    monkeypatch.setattr(Fractions, "_total", total)
    return totals


def numbers(rng, shape, format, spread):
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, spread + 1, shape)
    return np.asarray(sf.round(x, format, sf.nearest_even.saturating()), np.float64)


def check_quotients(a, b, scales, initial, output, mode, divisor=1.0):
    """The sum of the blocks' sums, each divided by its two scales, is rounded once."""
    problem = Problem(
        operand_bounds(a), operand_bounds(b), DEPTH, output, mode, initial=bounds_of(initial),
        divisor=divisor,
    )  # fmt: skip
    got = initial.copy()
    fractions_for(problem, BLOCK).run(a, b, got, Region(0, SHAPE[1], 1, None, scales=scales))
    want = []
    for i, j in np.ndindex(SHAPE):
        total = Fraction(initial[i, j])
        for block in range(BLOCKS):
            within = slice(block * BLOCK, (block + 1) * BLOCK)
            products = [Fraction(x) * Fraction(y) for x, y in zip(a[i, within], b[within, j], strict=True)]
            total += sum(products) / (Fraction(scales[0][i, block]) * Fraction(scales[1][block, j]))
        want.append(round_value(total / Fraction(divisor) or 0.0, output, mode))
    assert_bits(sf.round(got, output, mode).ravel(), want)


#: Formats and ranges of operands, each with the usual output, and with one other output.
CASES = [
    (inputs, spread, *output)
    for place, (inputs, spread) in enumerate(product((sf.E4M3, sf.E5M2, sf.FP32), (0, 3, 30, 110)))
    for output in (OUTPUTS[0], OUTPUTS[1 + (place + place // 4) % 4])
]


def test_totals_of_scaled_blocks_are_those_of_fractions(rng):
    for inputs, spread, output, mode in CASES:
        a, b = numbers(rng, (SHAPE[0], DEPTH), inputs, spread), numbers(rng, (DEPTH, SHAPE[1]), inputs, spread)
        scales = [np.abs(numbers(rng, shape, sf.FP32, spread)) for shape in ((SHAPE[0], BLOCKS), (BLOCKS, SHAPE[1]))]
        for initial in (np.zeros(SHAPE), numbers(rng, SHAPE, sf.FP32, spread)):
            check_quotients(a, b, scales, initial, output, mode)
            check_quotients(a, b, [2.0 ** np.floor(np.log2(x)) for x in scales], initial, output, mode)
        check_quotients(a, b, scales, np.zeros(SHAPE), output, mode, divisor=1.5)
        # The second half undoes the first but for a little, or wholly.
        half = DEPTH // BLOCK // 2 * BLOCK
        a[:, half : 2 * half], b[half : 2 * half] = -a[:, :half], b[:half]
        a[:, 2 * half :] = 0.0
        for x in (scales[0], scales[1].T):
            x[:, 1] = x[:, 0]
        check_quotients(a, b, scales, np.zeros(SHAPE), output, mode)
        scales[0][0, 1] = np.nextafter(np.float32(scales[0][0, 1]), np.float32(np.inf))
        check_quotients(a, b, scales, np.zeros(SHAPE), output, mode)


def test_common_totals_of_scaled_blocks_are_not_summed_one_by_one(rng, one_by_one):
    a, b = rng.standard_normal((20, 256)), rng.standard_normal((256, 30))
    a[3], b[:, 7] = 0.0, 2.0
    scales, formats = (sf.block(32, sf.FP32), sf.per_tensor()), (sf.E4M3, sf.E5M2, sf.BF16)
    for output, inputs, scale in product((sf.FP32, sf.FP64), formats, scales):
        sf.matmul(a, b, inputs=sf.cast(inputs, scale=scale), accumulate=sf.exact, output=output)
    assert not one_by_one


def test_totals_with_a_number_between_their_bounds_are_summed_one_by_one(one_by_one):
    a, b, thirds = np.ones((3, DEPTH)), np.ones((DEPTH, 4)), np.full((3, BLOCKS), 3.0)
    a[:, 2 * BLOCK :] = 0.0
    a[:, BLOCK : BLOCK + 4] = 0.0  # 5/3 + 1/3
    check_quotients(a, b, [thirds, np.ones((BLOCKS, 4))], np.zeros(SHAPE), sf.FP32, sf.nearest_even)
    assert one_by_one == [2.0] * 12
