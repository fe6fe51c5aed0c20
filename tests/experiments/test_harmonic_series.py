"""The end of growing sums: known terms, Kahan's compensation, and steps of a fraction of the spacing."""

import numpy as np
import pytest

import simfloat as sf
from experiments.harmonic_series.jobs import SHORT, STOPS, kahan_stops, series, stops, terms, walks


def test_the_series_stops_at_the_terms_that_are_known_and_counting_at_two_to_the_precision():
    rows = stops({"tiny": True})
    assert [row["format"] for row in rows] == list(SHORT)
    for row in rows:
        assert (row["first"], row["sum"]) == STOPS[row["format"]]
    counted = {row["format"]: row["count"] for row in rows}
    assert counted == {"E5M2": 8, "E4M3": 16, "E3M4": np.inf, "BF16": 256, "FP16": 2048}


def test_terms_are_rounded_once_and_ways_agree_on_few_of_them():
    assert terms(3, sf.BF16).tolist() == [1.0, 0.5, float(sf.round(1 / 3, sf.BF16))]
    for row in series({"tiny": True}):
        assert row["sum"] == pytest.approx(row["exact"], rel=0.1)


def test_kahan_sums_end_where_a_term_is_the_square_of_the_unit_roundoff_of_the_sum():
    for row in kahan_stops({}):
        assert 0.5 < row["last"] * row["unit_roundoff"] ** 2 * row["sum"] < 2


def test_a_walk_of_quarter_steps_rises_and_spreads_as_theory_says():
    (row,) = walks({"seed": 1, "tiny": True})
    assert row["theory"] == 2.0**-10 * np.sqrt(64 * 3 / 16)
    assert row["rise"] == pytest.approx(1, abs=0.2) and row["deviation"] == pytest.approx(row["theory"], rel=0.4)
