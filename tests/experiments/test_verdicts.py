"""Verdicts follow from the position of the interval; the level says how close another verdict was."""

import math

import numpy as np
import pytest
from scipy import stats

from simfloat.studies.statistics import Interval
from simfloat.studies.verdicts import (
    BETTER,
    EQUAL,
    FITTED,
    INCONCLUSIVE,
    MATCH,
    NOT_REPRODUCED,
    REPRODUCED,
    WITHIN,
    WORSE,
    Outcome,
    all_of,
    compare,
    compare_shares,
    comparison_word,
    count_test,
    difference_test,
    every_test,
    fitted_outcome,
    joint_test,
    judge,
    ratio_test,
    search_test,
    share_test,
)


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
def test_runs_that_diverged_are_counted_by_the_sign_test(diverged):
    one, all_five = np.array([1.0, diverged, 1.0, 1.0, 1.0]), np.full(5, diverged)
    assert ratio_test(one, np.ones(5), below=1.1).verdict == INCONCLUSIVE, "one of five decides nothing"
    every = ratio_test(all_five, np.ones(5), above=8)
    assert every == (
        REPRODUCED,
        "ratio in [inf, inf]: one-sided sign test, 5 of 5 runs diverged, n = 5",
        pytest.approx(0.5**5),
    )
    assert ratio_test(all_five[:4], np.ones(4), above=8).verdict == INCONCLUSIVE, "four have a probability of 1/16"
    four = ratio_test(np.array([1.0, *all_five[:4]]), np.ones(5), above=8)
    assert four == (INCONCLUSIVE, "ratio in [1, inf]: one-sided sign test, 4 of 5 runs diverged, n = 5", 1.0)
    worse = compare(np.array([1.1, 1.2, 1.3, 1.1, diverged]), np.ones(5))
    assert worse.verdict == WORSE and worse.p == pytest.approx(0.5**5), "all five are worse"
    ten = ratio_test(np.array([*np.full(9, 2.0), diverged]), np.ones(10), above=1)
    assert ten.verdict == REPRODUCED and ten.p == pytest.approx(0.5**10)


def test_a_run_that_diverged_is_outside_of_every_margin():
    seven, one = np.array([*np.full(7, 1.001), np.nan]), np.ones(8)
    assert compare(seven, one).verdict == ratio_test(seven, one, below=1.05).verdict == INCONCLUSIVE
    assert ratio_test(seven, one, above=0.9).verdict == REPRODUCED
    often = compare(np.array([*np.full(6, np.nan), *np.tile([0.999, 1.001], 8), 1.002]), np.ones(23))
    assert often.verdict == WORSE and often.p == pytest.approx(2 * 0.5**6)
    assert often.text.endswith("6 of 23 runs diverged, n = 23; McNemar's exact test of the diverged runs")


def test_a_ratio_with_a_zero_is_outside_of_every_margin_and_no_divergence():
    usual, last = np.full(10, 0.9), np.arange(10) == 9
    text = "ratio in [1, 1]: one-sided sign test, 1 of 10 pairs have one 0, n = 10"
    for values, reference in ((np.where(last, 0.1, 0.9), np.where(last, 0, 0.9)), (np.where(last, 0, 0.9), usual)):
        assert compare(values, reference) == (INCONCLUSIVE, text, 1.0)
        assert ratio_test(values, reference, above=0.9, below=1.1) == (INCONCLUSIVE, text, 1.0)
    assert ratio_test(np.where(last, 0, 0.9), usual, below=1.1).verdict == REPRODUCED, "0 is below the limit"
    both = np.where(last, 0, [math.nan, *usual[1:]])
    assert "one-sided sign test, 1 of 10 runs diverged, 1 of 10 pairs have one 0, n = 10" in compare(both, usual).text
    often = compare(np.array([*np.zeros(6), *np.tile([0.999, 1.001], 8), 0.9]), np.ones(23))
    assert often.verdict == BETTER and often.p == pytest.approx(2 * 0.5**6)
    assert often.text.endswith("6 of 23 pairs have one 0, n = 23; McNemar's exact test of the infinite ratios")


def test_runs_without_spread_have_a_verdict_and_no_level():
    same = ratio_test(np.full(5, 2.0), np.ones(5), above=1)
    assert (same.verdict, same.p, same.text) == (REPRODUCED, None, "ratio in [2, 2]: no spread, n = 5")
    assert compare(np.ones(5), np.ones(5))[::2] == (EQUAL, None)
    assert difference_test(np.zeros(5), 1, below=0).p is None


def test_a_universal_claim_needs_a_proof_and_one_counterexample_refutes_it():
    assert search_test(1, 100, "of something else").verdict == NOT_REPRODUCED
    assert search_test(0, 100).verdict == INCONCLUSIVE
    proven = search_test(0, 100, "half a gap")
    assert proven.verdict == REPRODUCED and proven.text.endswith("not a random sample; proof: half a gap")


def test_a_probability_is_judged_by_clopper_and_pearson():
    rare = share_test(8, 120_000, below=0.001)
    assert rare.verdict == REPRODUCED and rare.p < 1e-9 and "[2.9e-05, 0.00013]" in rare.text
    assert share_test(5, 10_000, below=0.001)[::2] == (INCONCLUSIVE, 1.0)
    assert share_test(50, 10_000, below=0.001).verdict == NOT_REPRODUCED


@pytest.mark.parametrize("diverged", [np.nan, np.inf])
def test_a_reference_that_diverged_decides_nothing(diverged):
    bad = np.array([1.0, diverged, 1.0])
    assert ratio_test(bad, bad, below=1.1).verdict == INCONCLUSIVE
    assert ratio_test(np.ones(3), bad, below=1.1).verdict == INCONCLUSIVE


def outcomes(*verdicts, p=None):
    return [Outcome(verdict, verdict, p) for verdict in verdicts]


def test_a_claim_of_several_parts_needs_them_all():
    yes, no, open_ = outcomes(REPRODUCED, NOT_REPRODUCED, INCONCLUSIVE)
    assert all_of([yes, yes]).verdict == REPRODUCED
    assert all_of([yes, open_]).verdict == INCONCLUSIVE
    assert all_of([open_, no, yes]).verdict == NOT_REPRODUCED
    assert all_of([yes, open_]).text == "reproduced; inconclusive"
    assert all_of(outcomes(BETTER, EQUAL, WITHIN)).verdict == WITHIN
    assert all_of(outcomes(EQUAL, WORSE, INCONCLUSIVE)).verdict == WORSE


def test_the_level_of_several_parts_counts_them_all():
    yes, surer, no = Outcome(EQUAL, "", 0.03), Outcome(EQUAL, "", 0.001), Outcome(WORSE, "", 0.01)
    assert all_of([yes, surer]).p == 0.03, "each part is needed"
    assert all_of([yes, no, surer]).p == 0.03, "any part is enough: the least of theirs, times three"
    assert all_of([yes, Outcome(REPRODUCED, "")]).p == 0.03 and all_of([Outcome(REPRODUCED, "")]).p is None
    assert all_of([yes, Outcome(NOT_REPRODUCED, "")]).p is None


def test_a_part_that_refutes_a_whole_counts_the_other_parts_too():
    yes, barely = Outcome(EQUAL, "", 0.03), Outcome(WORSE, "", 0.04)
    assert all_of([barely]).verdict == WORSE and all_of([yes, barely])[::2] == (INCONCLUSIVE, 1.0)
    assert all_of([yes, barely, Outcome(WORSE, "a counterexample")]).verdict == WORSE


def test_a_part_whose_own_level_is_too_large_hides_no_other_refutation_and_a_counterexample_has_no_level():
    barely, surely = Outcome(NOT_REPRODUCED, "a", 0.04), Outcome(WORSE, "b", 1e-6)
    assert all_of([barely, surely])[::2] == all_of([surely, barely])[::2] == (WORSE, pytest.approx(2e-6))
    assert all_of([barely._replace(p=0.02), surely])[::2] == (NOT_REPRODUCED, pytest.approx(0.04))
    counterexample = Outcome(NOT_REPRODUCED, "a", None)
    for level in (0.04, 0.001):
        parts = [counterexample, Outcome(NOT_REPRODUCED, "b", level), Outcome(REPRODUCED, "c", 0.01)]
        assert all_of(parts)[::2] == (NOT_REPRODUCED, None), "chance plays no role"


def test_a_limit_at_all_times_is_refuted_at_the_level_of_the_times_that_refute_it():
    noise = np.random.default_rng(5)
    above = 1 + 1.2 * noise.standard_normal(10)
    level = 2 * stats.ttest_1samp(above, 0).pvalue
    unknown = np.array([math.inf, *[math.nan] * 9])
    for other in (-100 + 0.01 * noise.standard_normal(10), unknown, np.full(10, -1.0)):
        test = joint_test(np.stack([other, above], axis=1), below=0)
        assert test[::2] == (NOT_REPRODUCED, pytest.approx(level)) and 0.03 < level < 0.05
    counterexample = joint_test(np.stack([np.ones(10), above], axis=1), below=0)
    assert counterexample[::2] == (NOT_REPRODUCED, None), "a time at which all seeds agree has no level"


def test_a_limit_holds_at_all_times_if_every_joint_interval_ends_below_it(rng):
    small = rng.uniform(0.4, 0.5, (5, 40))
    assert joint_test(small, below=1).verdict == REPRODUCED
    assert joint_test(np.hstack([small, np.zeros((len(small), 1))]), below=1)[::2] == (REPRODUCED, None)
    assert joint_test(np.hstack([small, small[:, :1] + 1]), below=1).verdict == NOT_REPRODUCED
    assert joint_test(np.hstack([small, small[:, :1] * 10 - 3.6]), below=1).verdict == INCONCLUSIVE
    one_diverged = small.copy()
    one_diverged[0, 0] = math.inf
    open_ = joint_test(one_diverged, below=1)
    assert open_.verdict == INCONCLUSIVE and "or the one-sided sign test after a divergence" in open_.text
    assert joint_test(np.full((12, 2), math.inf), below=1)[::2] == (NOT_REPRODUCED, pytest.approx(2 * 0.5**12))


def test_joint_intervals_hold_all_means_as_often_as_they_say(rng):
    wrong = [joint_test(rng.normal(1, 1, (5, 10)), below=1).verdict != INCONCLUSIVE for _ in range(500)]
    assert np.mean(wrong) < 0.08


@pytest.mark.parametrize(
    "low, high, word",
    [(-0.5, 0.5, EQUAL), (0, 0, EQUAL), (0.1, 0.5, WITHIN), (0.1, 1.0, WORSE), (2, 3, WORSE), (-0.5, -0.1, BETTER),
     (-3, -2, BETTER), (-0.5, 1.0, INCONCLUSIVE), (-2, 2, INCONCLUSIVE), (-math.inf, math.inf, INCONCLUSIVE),
     (math.inf, math.inf, WORSE)],
)  # fmt: skip
def test_the_word_of_a_comparison_is_where_the_interval_lies(low, high, word):
    assert comparison_word(Interval(low, high, 5), 1.0) == word


def test_losses_are_compared_by_ratio_and_shares_by_points():
    reference, near = np.full(5, 3.0), np.array([0.999, 1.001, 1.0, 0.998, 1.002])
    words = {1.0: EQUAL, 1.02: WITHIN, 1.07: WORSE, 0.97: BETTER}
    assert {ratio: compare(ratio * near * reference, reference).verdict for ratio in words} == words
    assert compare(1.02 * near * reference, reference, margin=1.01).verdict == WORSE
    shares = {0.0: EQUAL, -0.5: WITHIN, -3.0: WORSE, 3.0: BETTER}
    assert {points: compare_shares(90 + points + near, 90 + np.ones(5)).verdict for points in shares} == shares


def test_a_comparison_in_which_all_runs_diverged_is_worse_and_one_without_a_reference_is_open():
    assert compare(np.full(5, np.nan), np.ones(5)).verdict == WORSE
    assert compare(np.ones(3), np.array([1.0, np.nan, 1.0])).verdict == INCONCLUSIVE
    for test in (compare_shares, lambda *both: difference_test(*both, below=1)):
        assert test(np.ones(3), np.array([1.0, np.inf, 1.0])).verdict == INCONCLUSIVE
    assert compare_shares(np.full(5, np.nan), np.ones(5)).verdict == WORSE


@pytest.mark.parametrize("test", [ratio_test, difference_test, compare, compare_shares])
def test_values_that_are_not_pairs_are_refused(test):
    with pytest.raises(ValueError, match=r"Values of shape \(3,\) and a reference of shape \(1,\) are not pairs"):
        test(np.ones(3), np.ones(1))


def test_invalid_margins_are_refused():
    with pytest.raises(ValueError, match=r"a factor above 1, such as 1\.05; got 0\.05"):
        compare(np.ones(3), np.ones(3), margin=0.05)
    with pytest.raises(ValueError, match="must be above 0: the largest difference that does not matter; got 0"):
        compare_shares(np.ones(3), np.ones(3), margin=0)


def test_levels_are_those_of_students_test(rng):
    values = np.exp(rng.normal(0.02, 0.005, 6))
    logs = np.log(values)
    level = {limit: stats.ttest_1samp(logs, limit).pvalue for limit in (0, math.log(MATCH), math.log(1.01))}
    reference = np.ones(6)
    assert compare(values, reference).p == pytest.approx(max(level[0], level[math.log(MATCH)]))
    assert ratio_test(values, reference, below=MATCH).p == pytest.approx(level[math.log(MATCH)])
    refuted = ratio_test(values, reference, above=0.9, below=1.01)
    assert refuted.verdict == NOT_REPRODUCED and refuted.p == pytest.approx(level[math.log(1.01)])
    assert ratio_test(values, reference, below=values.mean()).p == 1, "it is open"


def test_a_verdict_has_a_level_below_five_percent_and_an_open_one_has_none(rng):
    for _ in range(200):
        values = np.exp(rng.normal(rng.uniform(-0.1, 0.1), 0.03, 5))
        tests = [compare(values, np.ones(5)), ratio_test(values, np.ones(5), above=0.97, below=1.02)]
        assert all((test.p == 1) if test.verdict == INCONCLUSIVE else (test.p < 0.05) for test in tests)


def test_in_every_run_takes_so_many_that_an_exception_must_be_rare():
    assert every_test(0, 72).verdict == REPRODUCED and every_test(0, 72).p < 0.05
    few = every_test(0, 5)
    assert few.verdict == INCONCLUSIVE and few.text.startswith("in all 5 cases tried: exceptions in fewer than 52 %")
    assert every_test(0, 71).verdict == INCONCLUSIVE
    one = every_test(1, 1000)
    assert one.verdict == NOT_REPRODUCED and "in 0.0025 to 0.56 % of all" in one.text


def test_where_all_cases_are_tried_one_exception_decides():
    assert count_test(0, 100).verdict == REPRODUCED and count_test(1, 100).verdict == NOT_REPRODUCED
    assert count_test(0, 100).p is None
    assert count_test(0, 0).verdict == INCONCLUSIVE, "of nothing nothing is known"


def test_a_fitted_claim_has_a_status_and_no_level():
    assert fitted_outcome().verdict == FITTED and fitted_outcome().p is None
    assert fitted_outcome().text == "none: fitted to the numbers that it shows"
