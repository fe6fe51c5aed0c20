"""Sums use given draws: one for each rounding, in the order that the documentation of the accumulator states."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.tools.selftest import definitions, orders
from simfloat.tools.selftest.orders import dot
from tests.bits import assert_bits

RANDOM = sf.stochastic(4)


@pytest.fixture
def by_definition(monkeypatch):
    """The sum of the definition, which takes its draws from an iterator: those of a tree's products come first."""
    draws_of = {}

    def draw(rounding, element, step, seed, call, stage):
        if not rounding.is_stochastic:
            return 0
        return draws_of["products"][step] if stage == 2 and "products" in draws_of else next(draws_of["draws"])

    def total(accumulator, a, b, draws, start=0.0):
        draws_of.clear()
        draws_of["draws"] = draws
        if accumulator.maker == "tree":
            draws_of["products"] = [next(draws) for _ in a]
        return dot(accumulator, a, b, (-1022, -1022), start)

    for module in (definitions, orders):
        monkeypatch.setattr(module, "step_draw", draw)
    return total


ACCUMULATORS = [
    sf.sequential(sf.FP16, rounding=RANDOM), sf.sequential(sf.BF16, rounding=RANDOM, products=sf.FP16),
    sf.kahan(sf.BF16, rounding=RANDOM), sf.pairwise(sf.E5M2, rounding=RANDOM),
    sf.blocked(3, sf.sequential(sf.BF16, rounding=RANDOM), sf.kahan(sf.BF16, rounding=RANDOM)),
    sf.blocked(4, sf.FP16, sf.sequential(sf.FP16, rounding=RANDOM)),
    sf.lanes(3, sf.sequential(sf.BF16, rounding=RANDOM), sf.pairwise(sf.BF16, rounding=RANDOM)),
    sf.fused(3, 6, sf.BF16, rounding=RANDOM, align=sf.to_odd),
    sf.blocked(5, sf.fused(2, 9, sf.FP16, rounding=RANDOM), sf.fused(2, 7, sf.BF16, rounding=RANDOM)),
    sf.tree("2 + (0 + 1 + 4) + 3 + (5 + 6)", sf.BF16, rounding=RANDOM), sf.numpy_sum(sf.BF16, rounding=RANDOM),
]  # fmt: skip


@pytest.mark.parametrize("accumulator", ACCUMULATORS, ids=str)
def test_elements_in_c_order_take_a_draw_for_each_rounding(accumulator, by_definition, rng):
    for m, k, n in ((3, 7, 2), (1, 7, 5), (70, 5, 2))[: 2 if accumulator.maker == "tree" else None]:
        a, b = sf.round(rng.standard_normal((m, k)), sf.BF16), sf.round(rng.standard_normal((k, n)), sf.BF16)
        integers = rng.integers(0, 16, 5 * m * n * k + 5)
        draws, stream = iter(integers.tolist()), sf.GivenBits(integers)
        want = [[by_definition(accumulator, x.tolist(), y.tolist(), draws) for y in b.T] for x in a]
        assert_bits(sf.matmul(a, b, accumulate=accumulator, stream=stream), want)
    # The next call goes on behind them.
    assert_bits(
        sf.round(1 + 1 / 17, sf.E2M1, RANDOM, stream=stream),
        sf.round(1 + 1 / 17, sf.E2M1, RANDOM, stream=sf.GivenBits([next(draws)])),
    )


def test_dots_sums_convolutions_and_initial_values(by_definition, rng):
    accumulator, integers = sf.sequential(sf.BF16, rounding=RANDOM), rng.integers(0, 16, 400)
    x, w = sf.round(rng.standard_normal((1, 2, 4, 4)), sf.BF16), sf.round(rng.standard_normal((3, 2, 3, 3)), sf.BF16)
    got = sf.conv2d(x, w, accumulate=accumulator, stream=sf.GivenBits(np.tile(integers, 3)))
    draws, want = iter(np.tile(integers, 3).tolist()), []
    for kernel in w:
        for i in range(2):
            for j in range(2):
                window = x[0, :, i : i + 3, j : j + 3].ravel().tolist()
                want.append(by_definition(accumulator, window, kernel.ravel().tolist(), draws))
    assert_bits(got.ravel(), want)
    row = sf.round(rng.standard_normal(9), sf.BF16)
    total = sf.sum(row, accumulate=accumulator, stream=sf.GivenBits(integers))
    assert_bits(total, by_definition(accumulator, row.tolist(), [1.0] * 9, iter(integers.tolist())))
    got = sf.dot(row, row, initial=0.5, accumulate=accumulator, stream=sf.GivenBits(integers))
    assert_bits(got, by_definition(accumulator, row.tolist(), row.tolist(), iter(integers.tolist()), 0.5))


def test_units_align_and_overflow_as_they_do_without_draws():
    # A term that is zero in units still sets a sticky bit.
    far, ones = [2.0**700, 2.0**-700], [1.0, 1.0]
    sticky = dict(align=sf.to_odd)
    want = sf.dot(far, ones, accumulate=sf.fused(2, 4, sf.FP64, rounding=sf.to_odd, **sticky))
    assert want == 17 * 2.0**696
    unit = sf.fused(2, 4, sf.FP64, rounding=RANDOM, **sticky)
    assert sf.dot(far, ones, accumulate=unit, stream=sf.GivenBits([0])) == want
    # Hardware's truncation of what lies beyond the largest number is infinite.
    runs = sf.blocked(1, sf.sequential(sf.FP32, rounding=RANDOM), sf.fused(4, 23))
    for sign in (-1, 1):
        large = [sign * 2.0**127] * 2
        assert sf.dot(large, ones, accumulate=runs, stream=sf.GivenBits([0, 0])) == sign * np.inf


def test_sums_without_a_unique_order_of_draws_are_refused():
    ones, accumulator = np.ones(4), sf.sequential(sf.BF16, rounding=RANDOM)
    both = dict(accumulate=accumulator, output=sf.E4M3, rounding=RANDOM)
    mixed = sf.blocked(2, sf.sequential(sf.BF16, rounding=sf.stochastic(3)), accumulator)
    unit = sf.blocked(4, sf.tensor_core("hopper", sf.FP16), accumulator)
    for draws, options, words in (
        ([1] * 99, both, "GivenBits can only supply the draws of the sum itself"),
        ([1, 2, 3], dict(accumulate=accumulator), "GivenBits has 3 of its 3 left"),
        ([16] * 4, dict(accumulate=accumulator), "A draw of 4 bits lies below 16, got 16"),
        ([1] * 99, dict(accumulate=mixed), "draws of one width"),
        ([1] * 99, dict(inputs=sf.FP16, accumulate=unit),
         "GivenBits support sequential, kahan, pairwise, numpy_sum, tree and fused sums"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            sf.dot(ones, ones, **options, stream=sf.GivenBits(draws))
    # Only the result is drawn.
    options = dict(accumulate=sf.FP32, output=sf.E2M1, rounding=sf.stochastic(3))
    assert sf.dot([1.0], [0.3], **options, stream=sf.GivenBits([7])) == 0.5


def test_products_that_numpys_order_rounds_first_are_rounded_first_next_to_steps_that_draw(rng):
    x, y = sf.round(rng.standard_normal((2, 30)), sf.FP16)
    order, outer = sf.numpy_sum(sf.FP32, products=sf.E4M3), sf.sequential(sf.FP32, rounding=RANDOM)
    draws = rng.integers(1 << RANDOM.bits, size=3)
    got = sf.dot(x, y, accumulate=sf.blocked(10, order, outer), stream=sf.GivenBits(draws))
    runs = [sf.dot(x[i : i + 10], y[i : i + 10], accumulate=order) for i in (0, 10, 20)]
    assert_bits(got, sf.dot(runs, np.ones(3), accumulate=outer, stream=sf.GivenBits(draws)))
