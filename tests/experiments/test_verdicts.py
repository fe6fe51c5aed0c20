"""Verdicts: the interval, and three answers."""

import math

import numpy as np
import pytest
from scipy import stats

from experiments.verdicts import (
    INCONCLUSIVE,
    NOT_REPRODUCED,
    REPRODUCED,
    Interval,
    Outcome,
    all_of,
    count_test,
    difference_test,
    joint_test,
    judge,
    mean_interval,
    ratio_test,
)


@pytest.mark.parametrize("n", [2, 3, 5, 30])
def test_the_interval_is_students(rng, n):
    samples = rng.normal(3, 2, n)
    want = stats.ttest_1samp(samples, 0).confidence_interval(0.95)
    np.testing.assert_allclose(mean_interval(samples)[:2], want, rtol=1e-12)


def test_the_interval_holds_the_mean_as_often_as_it_says(rng):
    inside = [low < 0 < high for low, high, _ in (mean_interval(rng.normal(size=5)) for _ in range(2000))]
    assert 0.935 < np.mean(inside) < 0.965


def test_the_verdict_is_where_the_interval_lies():
    assert judge(Interval(2, 3, 5), 1, math.inf) == REPRODUCED
    assert judge(Interval(0.2, 0.9, 5), 1, math.inf) == NOT_REPRODUCED
    assert judge(Interval(0.9, 1.2, 5), 1, math.inf) == INCONCLUSIVE
    assert judge(Interval(1, 1, 5), 1, math.inf) == NOT_REPRODUCED, "equal is not more"
    assert judge(Interval(-0.1, 0.1, 5), -0.5, 0.5) == REPRODUCED
    assert judge(Interval(-0.1, 0.6, 5), -0.5, 0.5) == INCONCLUSIVE
    assert judge(Interval(0.6, 0.7, 5), -0.5, 0.5) == NOT_REPRODUCED


def test_differences_within_the_noise_decide_nothing():
    loss, reference = np.array([0.238, 0.227, 0.249]), np.array([0.236, 0.229, 0.246])
    assert ratio_test(loss, reference, above=1).verdict == INCONCLUSIVE


def test_pairs_of_seeds_decide_what_means_do_not():
    reference = np.array([1.0, 10.0, 100.0, 1000.0])
    loss = reference * [1.2, 1.21, 1.19, 1.2]
    test = ratio_test(loss, reference, above=1)
    assert test.verdict == REPRODUCED and "paired t of logarithms, 95 %, n = 4" in test.text
    assert difference_test(loss, reference, above=0).verdict == INCONCLUSIVE


def test_one_seed_decides_nothing():
    assert ratio_test(np.array([9.0]), np.array([1.0]), above=8).verdict == INCONCLUSIVE
    assert difference_test(np.array([9.0]), np.array([1.0]), above=1).verdict == INCONCLUSIVE


@pytest.mark.parametrize("diverged", [np.nan, np.inf])
def test_a_run_that_diverged_is_above_every_limit(diverged):
    loss, reference = np.array([1.0, diverged, 1.0]), np.ones(3)
    assert ratio_test(loss, reference, below=1.1).verdict == NOT_REPRODUCED
    assert ratio_test(loss, reference, above=8).verdict == REPRODUCED


@pytest.mark.parametrize("diverged", [np.nan, np.inf])
def test_a_reference_that_diverged_decides_nothing(diverged):
    bad = np.array([1.0, diverged, 1.0])
    assert ratio_test(bad, bad, below=1.1).verdict == INCONCLUSIVE
    assert ratio_test(np.ones(3), bad, below=1.1).verdict == INCONCLUSIVE


def test_a_claim_of_several_parts_needs_them_all():
    yes, no, open_ = (Outcome(verdict, verdict) for verdict in (REPRODUCED, NOT_REPRODUCED, INCONCLUSIVE))
    assert all_of([yes, yes]).verdict == REPRODUCED
    assert all_of([yes, open_]).verdict == INCONCLUSIVE
    assert all_of([open_, no, yes]).verdict == NOT_REPRODUCED
    assert all_of([yes, open_]).text == "reproduced; inconclusive"


def test_a_limit_holds_at_all_times_if_every_joint_interval_ends_below_it(rng):
    small = rng.uniform(0.4, 0.5, (5, 40))
    assert joint_test(small, below=1).verdict == REPRODUCED
    assert joint_test(np.hstack([small, small[:, :1] + 1]), below=1).verdict == NOT_REPRODUCED
    assert joint_test(np.hstack([small, small[:, :1] * 10 - 3.6]), below=1).verdict == INCONCLUSIVE


def test_joint_intervals_hold_all_means_as_often_as_they_say(rng):
    wrong = [joint_test(rng.normal(1, 1, (5, 10)), below=1).verdict != INCONCLUSIVE for _ in range(500)]
    assert np.mean(wrong) < 0.08


def test_a_claim_without_exceptions_falls_by_one():
    assert count_test(0, 100).verdict == REPRODUCED and count_test(1, 100).verdict == NOT_REPRODUCED
