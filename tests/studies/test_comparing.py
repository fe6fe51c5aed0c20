"""Comparisons in pairs: the words of verdicts, by the intervals of a textbook."""

import math

import numpy as np
import pytest
from scipy import stats

import simfloat as sf


def rows(**losses):
    return [
        {"policy": name, "seed": seed, "loss": loss} for name, each in losses.items() for seed, loss in enumerate(each)
    ]


BASE = np.array([1.0, 1.1, 0.9, 1.05, 0.97])
TABLE = rows(
    fp32=BASE, same=BASE * [1.001, 0.999, 1.0, 1.0005, 0.9995], near=BASE * [1.01, 1.012, 1.011, 1.01, 1.009],
    far=BASE * [1.2, 1.21, 1.19, 1.2, 1.2], good=BASE * 0.9, wild=BASE * [0.5, 2, 1, 3, 0.4],
    lost=[*BASE[:4], math.nan],
)  # fmt: skip


def test_words_are_those_of_verdicts():
    found = sf.studies.compare(TABLE)
    want = ["equal", "worse within the margin", "worse", "better", "inconclusive", "inconclusive"]
    assert [row.word for row in found] == want and [row.label for row in found][:2] == ["same", "near"]
    assert str(found.discoveries).startswith("4 of 6 tested claims are decided")


def compare_five(ours, theirs=(1.0,) * 5, **options):
    """Compare values with those of a reference; rows for "ours" alone."""
    return sf.studies.compare(rows(fp32=theirs, ours=ours), **options)["ours"]


@pytest.mark.parametrize("lost", [math.nan, math.inf])
@pytest.mark.parametrize("options", [{}, {"kind": "difference", "margin": 0.05}])
def test_a_run_that_diverged_is_an_outcome_of_the_sign_test_and_not_an_infinite_mean(lost, options):
    one = compare_five([1, 1.01, 0.99, 1, lost], **options)
    center = 1.0 if not options else 0.0
    assert (one.word, one.p, one.diverged, one.mean) == ("inconclusive", 1.0, 1, center), "one of five decides nothing"
    assert one.low < center < one.high == math.inf
    exact = stats.binomtest(5, 5, alternative="greater").pvalue
    worse = compare_five([1.1, 1.2, 1.3, 1.1, lost], **options)
    assert (worse.word, worse.p) == ("worse", pytest.approx(exact)), "all five are worse"
    every = compare_five(np.full(5, lost), **options)
    assert (every.word, every.p, every.diverged) == ("worse", pytest.approx(exact), 5)
    few = compare_five(np.full(4, lost), np.ones(4), **options)
    assert (few.word, few.p) == ("inconclusive", 1.0), "four of four have a probability of 1/16"


@pytest.mark.parametrize("options", [{}, {"kind": "difference", "margin": 0.05}])
def test_a_diverged_reference_is_an_outcome_and_a_pair_of_two_diverged_runs_is_none(options):
    theirs = [1, 1, 1, 1, math.nan]
    better = compare_five(np.full(5, 0.9), theirs, **options)
    assert (better.word, better.diverged, better.p) == ("better", 1, pytest.approx(0.5**5))
    assert compare_five(np.ones(5), theirs, **options).word == "inconclusive"
    assert compare_five(np.ones(4), np.full(4, math.nan), **options).word == "inconclusive"
    both = compare_five(theirs, theirs, **options)
    assert (both.word, both.p) == ("inconclusive", 1.0) and math.isnan(both.mean)


def test_a_policy_that_diverges_more_often_is_worse_by_mcnemars_test_and_never_equal():
    def row(ours, theirs, both=0, equal=14, **options):
        """Compare runs: numbers of those that diverged under one policy only, or under both, and of equal ones."""
        noise = 1 + 0.001 * np.cos(np.arange(equal))
        lost = [[math.nan] * ours + [1.0] * theirs, [1.0] * ours + [math.nan] * theirs]
        columns = [
            [*each, *[math.nan] * both, *values] for each, values in zip(lost, (noise, np.ones(equal)), strict=True)
        ]
        return compare_five(*columns, **options)

    assert row(0, 0).word == "equal"
    assert all(row(ours, 0).word == "inconclusive" for ours in range(1, 6)), "a divergence is outside of every margin"
    six = row(6, 0)
    assert (six.word, six.p) == ("worse", pytest.approx(2 * stats.binomtest(0, 6, alternative="less").pvalue))
    assert row(9, 1, equal=20).p == pytest.approx(2 * stats.binomtest(1, 10, alternative="less").pvalue)
    assert row(8, 0, both=3).word == "worse", "pairs in which both diverged do not count"
    assert row(0, 6).word == "better" and row(4, 4).word == "inconclusive"
    assert compare_five([math.nan] * 6 + [0.9] * 8, [1.0] * 14).word == "inconclusive", "the others are better"


def test_a_ratio_with_a_zero_is_outside_of_every_margin_although_no_run_diverged():
    usual, zero, tenth = [0.9] * 10, [0.9] * 9 + [0.0], [0.9] * 9 + [0.1]
    for ours, theirs, options in ((zero, usual, {"higher_is_better": True}), (zero, usual, {}), (tenth, zero, {})):
        row = compare_five(ours, theirs, **options)
        assert (row.word, row.p, row.mean, row.diverged, row.infinite) == ("inconclusive", 1.0, 1.0, 0, 1)
    many = compare_five([0.0] * 6 + [0.9, 0.91] * 4, [0.9] * 6 + [0.91, 0.9] * 4, higher_is_better=True)
    assert (many.word, many.p, many.infinite) == ("worse", pytest.approx(2 * 0.5**6), 6), "McNemar's exact test"
    found = sf.studies.compare(rows(fp32=zero, ours=tenth))
    head, line = str(found.table()).splitlines()
    assert head.split()[-1] == "infinite" and line.split()[-1] == "1" and "diverged" not in str(found)
    assert "Rows with ratios of 0 or infinity have the median, with its interval by the sign test" in str(found)


def test_a_table_with_diverged_runs_counts_them_and_names_the_test():
    found = sf.studies.compare(TABLE)
    head, *lines = str(found.table()).splitlines()
    assert head.split()[-1] == "diverged" and [line.split()[-1] for line in lines] == ["0"] * 5 + ["1"]
    assert (
        "by the sign test (5 % on each side), whose p is one-sided" in str(found) and "sign test" in found._repr_html_()
    )
    usual = str(sf.studies.compare(rows(fp32=BASE, near=BASE * 1.01)))
    assert "diverged" not in usual and "sign test" not in usual


def test_pairs_without_spread_have_a_verdict_and_no_level():
    found = sf.studies.compare(rows(fp32=np.ones(5), same=np.ones(5), twice=np.full(5, 2.0)))
    assert [(row.word, row.p) for row in found] == [("equal", None), ("worse", None)]
    assert str(found.discoveries) == "No claim was tested by statistics."


def test_intervals_are_students():
    found = sf.studies.compare(TABLE)["near"]
    logs = np.log([1.01, 1.012, 1.011, 1.01, 1.009])
    want = stats.t.interval(0.95, 4, logs.mean(), stats.sem(logs))
    assert (found.low, found.high) == pytest.approx(tuple(np.exp(want)), rel=1e-12) and found.pairs == 5
    difference = sf.studies.compare(TABLE, kind="difference", margin=0.5)["far"]
    apart = BASE * [0.2, 0.21, 0.19, 0.2, 0.2]
    want = stats.t.interval(0.95, 4, apart.mean(), stats.sem(apart))
    assert (difference.low, difference.high) == pytest.approx(want, rel=1e-9)
    assert difference.word == "worse within the margin"


def test_pairs_do_not_hang_on_the_order_of_rows():
    found, want = (sf.studies.compare(table)["near"] for table in (TABLE[::-1], TABLE))
    rounded = {name: pytest.approx(getattr(want, name)) for name in ("mean", "low", "high", "p")}
    assert found == want._replace(**rounded)


def test_the_words_are_reversed_if_more_is_better():
    found = sf.studies.compare(TABLE, higher_is_better=True)
    assert found["good"].word == "worse" and found["far"].word == "better"
    # A run that diverged is worse either way: its ratio is 0 here.
    lost = compare_five([0.9, 0.8, 0.9, 0.8, math.nan], higher_is_better=True)
    assert (lost.word, lost.low, lost.diverged) == ("worse", 0, 1)


def test_numbers_below_zero_have_no_ratios():
    message = r"loss is -1.0 in row 6 \(policy='below', seed=1\), but ratios need numbers.* pass kind='difference'"
    with pytest.raises(ValueError, match=message):
        sf.studies.compare(rows(fp32=BASE, below=[1.0, -1.0, 1.0, 1.0, 1.0]))


def test_other_axes_of_a_sweep_stay_apart():
    table = sf.studies.sweep(
        lambda format, size, seed: size * (1 + format.unit_roundoff) + seed,
        {"format": [sf.FP32, sf.E4M3], "size": [1, 10], "seed": range(3)},
    )
    found = sf.studies.compare(table, "value", by="format", reference=sf.FP32)
    assert [row.among for row in found] == [(("size", 1),), (("size", 10),)]
    assert found["E4M3"] == tuple(found.rows) and "size" in str(found)


def test_columns_and_files_are_tables_too(tmp_path):
    columns = {name: [row[name] for row in TABLE] for name in ("policy", "seed", "loss")}
    sf.studies.StudyTable(TABLE).to_parquet(tmp_path / "t.parquet")
    want = sf.studies.compare(TABLE).rows
    dotted = [{"policy": row["policy"], "seed": row["seed"], "loss.train": row["loss"]} for row in TABLE]
    sf.studies.StudyTable(dotted).to_parquet(tmp_path / "dotted.parquet")
    assert sf.studies.compare(tmp_path / "dotted.parquet", value="loss.train").rows == want
    assert sf.studies.compare(columns).rows == want == sf.studies.compare(tmp_path / "t.parquet").rows


@pytest.mark.parametrize("options, message", [
    ({"value": "los"}, r"no column 'los'\. Columns: policy, seed, loss\. Did you mean 'loss'\?"),
    ({"reference": "fp64"}, "The reference 'fp64' is not in the column policy, which has: fp32, same"),
    ({"pairs": []}, r"Two rows have policy='fp32' and .*; name all columns that distinguish runs"),
    ({"pairs": 5}, "value, by and pairs must be names of columns, got 5"),
    ({"kind": "quotient"}, "kind must be 'ratio' or 'difference', got 'quotient'"),
    ({"kind": "difference"}, "needs margin="),
    ({"margin": 0.99}, "margin must be a number above 1, for a ratio; got 0.99"),
])  # fmt: skip
def test_an_argument_that_cannot_be_compared_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        sf.studies.compare(TABLE, **options)


@pytest.mark.parametrize("table, message", [
    ({"policy": ["fp32", "a"], "seed": 0, "loss": [1, 2]}, "The columns of a table must be lists of values, got {"),
    ({"policy": ["fp32", "a"], "seed": [0], "loss": [1, 2]}, "All columns must have the same number of values, got"),
    (rows(fp32=[1.0], a=[1j]), "The column loss must contain numbers, got 1j"),
    (rows(fp32=[1.0], a=[[1.0]]), r"The column loss must contain numbers, got \[1\.0\]"),
])  # fmt: skip
def test_an_invalid_table_of_numbers_is_refused(table, message):
    with pytest.raises(ValueError, match=message):
        sf.studies.compare(table)


def test_a_row_without_a_partner_is_named():
    with pytest.raises(ValueError, match=r"'lost' and the reference need the same pairs; one has no \(4,\)"):
        sf.studies.compare(TABLE[:-1])


@pytest.mark.parametrize("bits", [(4, 8), (0.5, 8.0)])
def test_rows_are_found_by_numbers_and_come_in_their_order(bits):
    table = [{"bits": each, "seed": seed, "loss": 1 / each + seed} for each in (*bits, 32) for seed in range(3)]
    found = sf.studies.compare(table, by="bits", reference=32)
    assert found[8].label == bits[1] and tuple(row.label for row in found) == bits
    assert [row.label for row in reversed(found)] == [*bits[::-1]] and found[:1] == found.rows[:1]


def test_a_ratio_near_1_is_printed_with_its_distance_from_1():
    rows = [{"p": p, "seed": s, "loss": (1 + 0.0002 * (p == "b")) * (1 + s / 8)} for p in "ab" for s in range(8)]
    line = str(sf.studies.compare(rows, "loss", by="p", reference="a").table()).splitlines()[1]
    assert "1.0002" in line and " 1 to 1 " not in line
