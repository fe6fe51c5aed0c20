"""Rounding theory through the public functions: orders of sums, variance, stagnation; bounds: tests/test_theory.py.

Higham, Accuracy and Stability of Numerical Algorithms, chapters 3 and 4; Higham and Mary, SISC 41 (2019); Connolly,
Higham and Mary, SISC 43 (2021). Seeds are fixed; statistical bounds are five standard deviations.
"""

import math

import numpy as np

import simfloat as sf

RANDOM = sf.stochastic()


def sums(a, b, accumulate, stream=None):
    """One dot product a row."""
    return sf.matmul(a[:, None, :], b[:, :, None], accumulate=accumulate, output=sf.FP64, stream=stream).ravel()


def test_pairwise_and_blocked_sums_beat_the_bound_of_recursive_ones(rng):
    # All of one sign: errors of recursive sums grow with n, those of trees with its logarithm, Kahan's not.
    x = np.abs(sf.round(rng.standard_normal((16, 2000)), sf.BF16)).astype(float)
    ones, exact = np.ones_like(x), x.sum(axis=1)
    recursive, tree, blocks, kahan = (
        np.abs(sums(x, ones, accumulate) / exact - 1).max()
        for accumulate in (sf.BF16, sf.pairwise(sf.BF16), sf.blocked(45, sf.BF16, sf.BF16), sf.kahan(sf.BF16))
    )
    assert max(kahan, tree) <= 3 * sf.BF16.unit_roundoff
    assert max(kahan, tree) < blocks < recursive


def test_cut_sums_err_by_their_grid(rng):
    for unit in (sf.tensor_core(architecture, sf.FP16) for architecture in ("volta", "turing", "hopper")):
        L, F = unit.unit.terms, unit.unit.fraction_bits
        a, b = (sf.round(rng.standard_normal((500, L)) * 2.0 ** rng.integers(-8, 8, (500, L)), sf.FP16) for _ in "ab")
        a, b = a.astype(float), b.astype(float)
        exact = np.array([math.fsum(row) for row in a * b])
        top = (np.floor(np.log2(np.abs(a))) + np.floor(np.log2(np.abs(b)))).max(axis=1)
        ulp = 2.0 ** (np.floor(np.log2(np.abs(exact) + 2.0**-100)) - 23)
        error = np.abs(sums(a, b, unit) - exact)
        assert (error <= (L + 1) * 2.0 ** (top - F) + 2 * ulp).all()


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


def test_sums_of_ten_thousand_uniform_numbers(rng):
    for format, stays, spread in ((sf.FP16, 2048.0, 1.5e-2), (sf.BF16, 256.0, 5.3e-2)):
        x = sf.round(rng.random(10_000), format).astype(float)
        exact = x.sum()
        assert sf.sum(x, accumulate=format) == stays
        for accumulate in (sf.kahan(format), sf.pairwise(format)):
            assert abs(sf.sum(x, accumulate=accumulate) / exact - 1) <= format.unit_roundoff
        rows = np.tile(x, (200, 1))
        error = sums(rows, np.ones_like(rows), sf.sequential(format, rounding=RANDOM), sf.BitStream(4)) / exact - 1
        assert abs(error.mean()) <= 5 * spread / math.sqrt(200)
        assert abs(error.std() / spread - 1) <= 5 / math.sqrt(2 * 200) + 0.05  # the table's two digits


def test_updates_are_lost_between_two_ratios_of_weight_and_update():
    for format, never, always in ((sf.FP16, 2048, 4096), (sf.BF16, 256, 512)):
        weights = 1 + np.arange(2**format.mantissa_bits) * format.eps
        for sign in (1, -1):
            just_below = np.nextafter(weights / never, np.inf)
            assert (sf.add(weights, sign * just_below, format) != weights).all()
            assert (sf.add(weights, sign * weights / always, format) == weights).all()
        assert sf.add(1.0, 1 / never, format) == 1 and sf.subtract(1.0, 1 / never, format) != 1
