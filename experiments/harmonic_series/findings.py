"""The claims, and their tests."""

from __future__ import annotations

from typing import Any

import numpy as np

import simfloat as sf
from experiments.harmonic_series.jobs import FOLLOWED, STOPS
from experiments.measurement import largest, measured_rows, over_seeds, select
from simfloat.plots import deterministic_bound
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import ABOUT, MATCH, all_of, count_test, ratio_test, search_test


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim."""
    stops, series = (rows_of(results, kind) for kind in ("stops", "series"))
    return [
        _stops(stops),
        _counts(stops),
        _stochastic_mean(select(results, kind="stochastic")),
        _root_growth(select(results, kind="walks")),
        _bounded(series, "Kahan", "2 u + n u^2"),
        _kahan_stops(rows_of(results, "kahan")),
        _bounded(series, "pairwise", "gamma of log2 n"),
    ]


def rows_of(results: list[Result], kind: str) -> list[dict[str, Any]]:
    """Return the measurements of the jobs of a kind."""
    return [row for result in select(results, kind=kind) for row in measured_rows(result)]


@claim(
    "the harmonic series, which has no limit, stops growing at a known term of every format",
    "BF16 at term 65, FP16 at 513, FP32 at 2097152",
)
def _stops(rows: list[dict[str, Any]]) -> Measured:
    wrong = sum((row["first"], row["sum"]) != STOPS[row["format"]] for row in rows)
    test = count_test(wrong, len(rows))
    return ", ".join(f"{row['format']} at {row['first']}: {row['sum']:.6g}" for row in rows), test


@claim("counting by ones stops at 2^p, where p is the number of significand bits of the format", "BF16 256, FP16 2048")
def _counts(rows: list[dict[str, Any]]) -> Measured:
    counted = [row for row in rows if np.isfinite(row["count"])]
    wrong = sum(row["count"] != 2.0 ** sf.as_format(row["format"]).precision for row in counted)
    proof = "2^p + 1 is half way to 2^p + 2, and the significand of 2^p is even"
    return ", ".join(f"{row['format']} {row['count']:g}" for row in counted), search_test(wrong, len(counted), proof)


@claim(
    "stochastic rounding does not stagnate: the mean of harmonic sums of {longest} terms is the exact one",
    f"mean / exact sum within a factor of {MATCH}, in FP16 and BF16",
)
def _stochastic_mean(results: list[Result]) -> Measured:
    longest = largest(results, "length")
    found = {
        name: [over_seeds(results, key, format=name, length=longest) for key in ("mean", "exact")] for name in FOLLOWED
    }
    test = all_of([ratio_test(*pair, above=1 / MATCH, below=MATCH) for pair in found.values()])
    return (
        ", ".join(f"{name} {spread(pair[0] / pair[1], 4)}" for name, pair in found.items()),
        test,
        {"longest": longest},
    )


@claim(
    "m stochastic steps of a quarter of the spacing have a root mean square error of sqrt(3 m) / 4 spacings",
    f"standard deviation / theory within a factor of {MATCH} for every m",
)
def _root_growth(results: list[Result]) -> Measured:
    steps = sorted({row["steps"] for result in results for row in measured_rows(result)})
    found = {m: [over_seeds(results, key, steps=m) for key in ("deviation", "theory")] for m in steps}
    test = all_of([ratio_test(*pair, above=1 / MATCH, below=MATCH) for pair in found.values()])
    return ", ".join(f"m = {m}: {spread(pair[0] / pair[1], 3)}" for m, pair in found.items()), test


@claim(
    "Kahan summation also stagnates when terms are about u^2 of the sum",
    f"last term that counts: 1 / k within a factor of {ABOUT:g} of u^2 times the sum",
)
def _kahan_stops(rows: list[dict[str, Any]]) -> Measured:
    ratios = {row["format"]: row["last"] * row["unit_roundoff"] ** 2 * row["sum"] for row in rows}
    test = count_test(sum(not 1 / ABOUT < ratio < ABOUT for ratio in ratios.values()), len(ratios))
    return ", ".join(f"{row['format']} at {row['last']}: {ratios[row['format']]:.2f}" for row in rows), test


@claim(
    "{way} summation of the series has no error above {bound}",
    "relative error / bound <= 1 at every length, in FP16 and BF16",
)
def _bounded(rows: list[dict[str, Any]], way: str, bound: str) -> Measured:
    worst, wrong = {name: 0.0 for name in FOLLOWED}, 0
    chosen = select(rows, way=way)
    for row in chosen:
        u = sf.as_format(row["format"]).unit_roundoff
        error = abs(row["sum"] / row["exact"] - 1)
        # Kahan's bound is 2 u + O(n u^2); pairwise sums have one rounding per level (Higham 2002, section 4).
        levels = np.ceil(np.log2(row["length"]))
        limit = 2 * u + row["length"] * u**2 if way == "Kahan" else float(deterministic_bound(levels, u))
        wrong += error > limit
        worst[row["format"]] = max(worst[row["format"]], error / u)
    # The sources do not state the factor of n u^2, so there is no proof for the factor of one.
    test = search_test(wrong, len(chosen), "" if way == "Kahan" else "Higham 2002, section 4.2")
    return "at most " + ", ".join(f"{value:.2f} u in {name}" for name, value in worst.items()), test
