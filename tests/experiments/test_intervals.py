"""Intervals and their levels, against SciPy's own tests."""

import numpy as np
import pytest
from scipy import stats

from simfloat.studies.intervals import mean_interval, mean_level, share_interval, share_level


@pytest.mark.parametrize("n", [2, 3, 5, 30])
def test_the_interval_of_a_mean_is_students(rng, n):
    samples = rng.normal(3, 2, n)
    want = stats.ttest_1samp(samples, 0).confidence_interval(0.95)
    np.testing.assert_allclose(mean_interval(samples)[:2], want, rtol=1e-12)
    np.testing.assert_allclose(mean_level(samples, 2.5), stats.ttest_1samp(samples, 2.5).pvalue, rtol=1e-12)


def test_the_interval_holds_the_mean_as_often_as_it_says(rng):
    inside = [low < 0 < high for low, high, _ in (mean_interval(rng.normal(size=5)) for _ in range(2000))]
    assert 0.935 < np.mean(inside) < 0.965


def test_an_interval_with_the_confidence_of_a_level_ends_at_its_limit(rng):
    samples = rng.normal(3, 2, 7)
    assert mean_interval(samples, 1 - mean_level(samples, 4.0)).high == pytest.approx(4, rel=1e-9)
    assert mean_interval(samples, 1 - mean_level(samples, 1.0)).low == pytest.approx(1, rel=1e-9)
    assert share_interval(3, 50, 1 - share_level(3, 50, 0.2)).high == pytest.approx(0.2, rel=1e-9)


def test_what_says_nothing_has_level_1_and_what_is_certain_level_0():
    assert mean_level(np.array([3.0]), 0) == mean_level(np.array([1, np.nan]), 0) == mean_level(np.ones(3), 1.0) == 1
    assert mean_level(np.ones(3), 2.0) == mean_level(np.array([1, np.inf]), 2.0) == 0


@pytest.mark.parametrize("found, cases", [(0, 5), (0, 72), (1, 5), (5, 22), (20, 20)])
def test_the_interval_of_a_probability_is_clopper_and_pearsons(found, cases):
    want = stats.binomtest(found, cases).proportion_ci(0.95, method="exact")
    np.testing.assert_allclose(share_interval(found, cases)[:2], want, rtol=1e-12, atol=1e-15)


def test_without_exceptions_its_end_is_known_in_closed_form():
    assert share_interval(0, 5).high == pytest.approx(1 - 0.025 ** (1 / 5), rel=1e-12)
