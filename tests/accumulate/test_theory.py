"""Rounding theory through the public functions: error bounds, probabilistic bounds, variance, stagnation.

Higham, Accuracy and Stability of Numerical Algorithms, chapters 3 and 4; Higham and Mary, SISC 41 (2019); Connolly,
Higham and Mary, SISC 43 (2021). Seeds are fixed; statistical bounds are five standard deviations.
"""

import math

import numpy as np
import pytest

import simfloat as sf

FORMATS = [sf.FP16, sf.BF16, sf.E4M3_IEEE]
RANDOM = sf.stochastic()


def gamma(n, u):
    return n * u / (1 - n * u)


def terms_for(format):
    """As many terms as the bounds allow, and not too many."""
    return min(300, int(0.9 / format.unit_roundoff))


def dots(rng, format, n, count=200):
    """Vectors of the format whose products and sums stay in the middle of its range, and their exact dot products."""
    a, b = (sf.round(rng.standard_normal((count, n)) / 4, sf.E4M3 if format.precision < 8 else format) for _ in "ab")
    if format.precision < 8:
        # Powers of two, so that products are exact and underflow plays no part.
        a, b = np.sign(a), np.where(b == 0, 0.5, sf.round(np.abs(b) + 0.5, format))
    exact = np.array([math.fsum(row) for row in (a.astype(float) * b.astype(float))])
    return a.astype(float), b.astype(float), exact, (np.abs(a) * np.abs(b)).astype(float).sum(axis=1)


def sums(a, b, accumulate, stream=None):
    """One dot product a row."""
    return sf.matmul(a[:, None, :], b[:, :, None], accumulate=accumulate, output=sf.FP64, stream=stream).ravel()


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_deterministic_bounds_hold(format, rng):
    n, u = terms_for(format), format.unit_roundoff
    a, b, exact, size = dots(rng, format, n)
    blocks = math.isqrt(n)
    tiny = n * format.smallest_subnormal  # what underflow of products adds
    bounds = {
        sf.sequential(format): gamma(n, u),
        sf.sequential(format, products=format): gamma(n, u),
        sf.sequential(format, rounding=sf.toward_zero): gamma(n, 2 * u) if 2 * n * u < 1 else math.inf,
        sf.sequential(format, rounding=RANDOM): gamma(n, 2 * u) if 2 * n * u < 1 else math.inf,
        sf.pairwise(format): gamma(math.ceil(math.log2(n)) + 1, u),
        sf.blocked(blocks, format, format): gamma(blocks + -(-n // blocks), u),
        # Kahan: 2 u of the products as rounded, one rounding of the products, and terms of order n u^2.
        sf.kahan(format): 3 * u + 4 * n * u**2,
    }
    for accumulate, bound in bounds.items():
        error = np.abs(sums(a, b, accumulate, sf.BitStream(1)) - exact)
        assert (error <= bound * size + tiny).all(), str(accumulate)


def test_pairwise_and_blocked_sums_beat_the_bound_of_recursive_ones(rng):
    # All of one sign: errors of recursive sums grow with n, those of trees with its logarithm.
    x = np.abs(sf.round(rng.standard_normal((16, 2000)), sf.BF16)).astype(float)
    ones, exact = np.ones_like(x), x.sum(axis=1)
    recursive, tree, blocks, kahan = (
        np.abs(sums(x, ones, accumulate) / exact - 1).max()
        for accumulate in (sf.BF16, sf.pairwise(sf.BF16), sf.blocked(45, sf.BF16, sf.BF16), sf.kahan(sf.BF16))
    )
    assert max(kahan, tree) <= 3 * sf.BF16.unit_roundoff
    assert max(kahan, tree) < blocks < recursive


@pytest.mark.parametrize("architecture", ["volta", "turing", "hopper"])
def test_cut_sums_err_by_their_grid(architecture, rng):
    unit = sf.tensor_core(architecture, sf.FP16)
    L, F = unit.unit.terms, unit.unit.fraction_bits
    a, b = (sf.round(rng.standard_normal((500, L)) * 2.0 ** rng.integers(-8, 8, (500, L)), sf.FP16) for _ in "ab")
    a, b = a.astype(float), b.astype(float)
    exact = np.array([math.fsum(row) for row in a * b])
    top = (np.floor(np.log2(np.abs(a))) + np.floor(np.log2(np.abs(b)))).max(axis=1)
    ulp = 2.0 ** (np.floor(np.log2(np.abs(exact) + 2.0**-100)) - 23)
    error = np.abs(sums(a, b, unit) - exact)
    assert (error <= (L + 1) * 2.0 ** (top - F) + 2 * ulp).all()


def test_stochastic_sums_err_like_the_root_of_their_length(rng):
    n, u, factor = 1000, sf.FP16.unit_roundoff, 5.0
    x = sf.round(rng.random((1, n)), sf.FP16).astype(float) / 64
    exact, runs = x.sum(), 400
    got = sums(np.repeat(x, runs, 0), np.ones((runs, n)), sf.sequential(sf.FP16, rounding=RANDOM), sf.BitStream(2))
    bound = math.exp((factor * math.sqrt(n) * 2 * u + n * (2 * u) ** 2) / (1 - 2 * u)) - 1
    assert (np.abs(got - exact) <= bound * exact).all()
    assert bound < gamma(n, u), "the probabilistic bound is the smaller one"
    # Unbiased: the mean of the runs lies within five of its standard errors.
    assert abs(got.mean() - exact) <= 5 * got.std() / math.sqrt(runs)


def test_small_steps_add_up_in_the_mean_with_the_variance_of_theory():
    runs = 400
    for format, steps, delta in ((sf.FP16, 4096, 2.0**-12), (sf.BF16, 256, 2.0**-9)):
        x = np.concatenate([[1.0], np.full(steps, delta)])
        rows = np.tile(x, (runs, 1))
        got = sums(rows, np.ones_like(rows), sf.sequential(format, rounding=RANDOM), sf.BitStream(3))
        nu = delta / format.eps
        deviation = math.sqrt(steps * nu * (1 - nu)) * format.eps
        assert abs(got.mean() - (1 + steps * delta)) <= 5 * deviation / math.sqrt(runs)
        assert abs(got.std() / deviation - 1) <= 5 / math.sqrt(2 * runs)
        assert sf.sum(x, accumulate=format) == 1.0


@pytest.mark.parametrize("format, stays, spread", [(sf.FP16, 2048.0, 1.5e-2), (sf.BF16, 256.0, 5.3e-2)], ids=str)
def test_sums_of_ten_thousand_uniform_numbers(format, stays, spread, rng):
    x = sf.round(rng.random(10_000), format).astype(float)
    exact = x.sum()
    assert sf.sum(x, accumulate=format) == stays
    for accumulate in (sf.kahan(format), sf.pairwise(format)):
        assert abs(sf.sum(x, accumulate=accumulate) / exact - 1) <= format.unit_roundoff
    rows = np.tile(x, (200, 1))
    error = sums(rows, np.ones_like(rows), sf.sequential(format, rounding=RANDOM), sf.BitStream(4)) / exact - 1
    assert abs(error.mean()) <= 5 * spread / math.sqrt(200)
    assert abs(error.std() / spread - 1) <= 5 / math.sqrt(2 * 200) + 0.05  # the table's two digits


@pytest.mark.parametrize("format, never, always", [(sf.FP16, 2048, 4096), (sf.BF16, 256, 512)], ids=str)
def test_updates_are_lost_between_two_ratios_of_weight_and_update(format, never, always):
    weights = 1 + np.arange(2**format.mantissa_bits) * format.eps
    for sign in (1, -1):
        just_below = np.nextafter(weights / never, np.inf)
        assert (sf.add(weights, sign * just_below, format) != weights).all()
        assert (sf.add(weights, sign * weights / always, format) == weights).all()
    assert sf.add(1.0, 1 / never, format) == 1 and sf.subtract(1.0, 1 / never, format) != 1
