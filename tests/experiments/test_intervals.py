"""Compare intervals and their levels with SciPy's tests."""

import math

import numpy as np
import pytest
from scipy import stats

from simfloat.studies.statistics import mean_interval, mean_level, share_interval, share_level, spread


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


def test_an_uninformative_sample_has_level_1_and_a_certain_one_level_0():
    assert mean_level(np.array([3.0]), 0) == mean_level(np.array([1, np.nan]), 0) == mean_level(np.ones(3), 1.0) == 1
    assert mean_level(np.ones(3), 2.0) == mean_level(np.array([1, np.inf]), 2.0) == 0


@pytest.mark.parametrize("found, cases", [(0, 5), (0, 72), (1, 5), (5, 22), (20, 20)])
def test_the_interval_of_a_probability_is_clopper_and_pearsons(found, cases):
    want = stats.binomtest(found, cases).proportion_ci(0.95, method="exact")
    np.testing.assert_allclose(share_interval(found, cases)[:2], want, rtol=1e-12, atol=1e-15)


def test_without_exceptions_its_end_is_known_in_closed_form():
    assert share_interval(0, 5).high == pytest.approx(1 - 0.025 ** (1 / 5), rel=1e-12)


@pytest.mark.parametrize("power", [-1000, 1018])
def test_an_interval_scales_with_its_samples_wherever_their_squares_lie(rng, power):
    samples, scale = rng.normal(3, 2, 7), 2.0**power
    low, high, _ = mean_interval(samples)
    assert mean_interval(samples * scale)[:2] == (low * scale, high * scale)
    assert mean_level(samples * scale, scale) == mean_level(samples, 1.0)


@pytest.mark.parametrize("n", range(2, 12))
def test_equal_samples_have_their_own_value_as_the_interval_however_their_mean_is_rounded(n):
    assert mean_interval(np.full(n, 0.1))[:2] == (0.1, 0.1) and mean_level(np.full(n, 0.1), 0.1) == 1


@pytest.mark.parametrize("samples", [[], [np.inf, -np.inf, 1.0]])
def test_samples_without_a_mean_say_nothing(samples):
    assert mean_interval(np.array(samples))[:2] == (-math.inf, math.inf) and mean_level(np.array(samples), 0) == 1


def test_a_mean_has_a_deviation_only_if_there_is_one():
    assert spread(np.array([1.0, 2.0, 3.0])) == "2.00 ± 1.00" and spread(np.ones(2), 1) == "1.0 ± 0.0"
    texts = [spread(np.array(samples)) for samples in ([3.0], [1.0, np.inf], [1.0, np.nan])]
    assert texts == ["3.00", "inf", "nan"]


@pytest.mark.parametrize("found, cases", [(3, 2), (-1, 2), (1, -1), (0.5, 2)])
def test_invalid_numbers_of_cases_are_refused(found, cases):
    with pytest.raises(ValueError, match="found must be an integer from 0 to cases; got"):
        share_interval(found, cases)


@pytest.mark.parametrize("confidence", [0, 1, 95, np.nan])
def test_an_invalid_confidence_is_refused(confidence):
    for interval in (lambda: mean_interval(np.ones(2), confidence), lambda: share_interval(1, 2, confidence)):
        with pytest.raises(ValueError, match=r"confidence must be between 0 and 1, such as 0\.95; got"):
            interval()
