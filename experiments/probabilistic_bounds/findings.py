"""The claims, and their tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.measurement import table_over_seeds
from experiments.operands import DATA, TITLES
from experiments.probabilistic_bounds.jobs import FORMATS, ROUNDINGS
from simfloat.plots import deterministic_bound, probabilistic_bound
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import EXPONENT, FAR, all_of, difference_test, joint_test, ratio_test, search_test

#: The largest n u over which growth is measured: the end of the deterministic bound, and a quarter of it.
CUTS = (1.0, 0.25)


def unit(format: str, rounding: str) -> float:
    """Return the largest error of one rounding: u to nearest, 2 u stochastically."""
    return FORMATS[format].unit_roundoff * (1 if rounding == "nearest" else 2)


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim."""
    return [
        _never_exceeded(results),
        _pessimistic(results),
        *(_root_bound(results, rounding, data) for rounding in ROUNDINGS for data in DATA),
        *(_slope(results, rounding, cut) for rounding in ROUNDINGS for cut in CUTS),
        _flattens(results),
    ]


def over_bound(results: list[Result], format: str, data: str, rounding: str) -> NDArray[np.float64]:
    """Return the largest error relative to the probabilistic bound (seeds, lengths)."""
    n, greatest = table_over_seeds(results, "greatest", "length", format=format, data=data, rounding=rounding)
    return greatest / probabilistic_bound(n, unit(format, rounding))


@claim(
    "no error exceeds the deterministic bound n u / (1 - n u), 2 u for stochastic rounding",
    "greatest error / bound <= 1 at every length, in both formats, on both kinds of data",
)
def _never_exceeded(results: list[Result]) -> Measured:
    beyond = cases = 0
    closest = 0.0
    for format in FORMATS:
        for rounding in ROUNDINGS:
            n, greatest = table_over_seeds(results, "greatest", "length", format=format, rounding=rounding)
            ratio = greatest / deterministic_bound(n, unit(format, rounding))
            beyond, cases, closest = beyond + int(np.sum(ratio > 1)), cases + ratio.size, max(closest, ratio.max())
    proof = "Higham 2002, section 3.1; Connolly, Higham and Mary 2021 for stochastic rounding"
    return f"at most {closest:.2g}", search_test(beyond, cases, proof)


@claim(
    "the deterministic bound is pessimistic by orders of magnitude (FP16 to nearest, both signs, n = {n})",
    f"bound / greatest error > {FAR**2:g}",
)
def _pessimistic(results: list[Result]) -> Measured:
    n, greatest = table_over_seeds(results, "greatest", "length", format="fp16", data="normal", rounding="nearest")
    place = int(np.flatnonzero(n * FORMATS["fp16"].unit_roundoff < 1)[-1])
    bound = np.full(len(greatest), deterministic_bound(n, FORMATS["fp16"].unit_roundoff)[place])
    test = ratio_test(bound, greatest[:, place], above=FAR**2)
    return spread(bound / greatest[:, place], 0), test, {"n": n[place]}


@claim(
    "{rounding} rounding, {title}: errors stay below the probabilistic bound, about sqrt(n) {u}",
    "mean over seeds of the greatest error / bound < 1 at every length, in FP16 and BF16",
)
def _root_bound(results: list[Result], rounding: str, data: str) -> Measured:
    ratios = {format: over_bound(results, format, data, rounding) for format in FORMATS}
    test = all_of([joint_test(values, below=1.0) for values in ratios.values()])
    u = "u" if rounding == "nearest" else "2 u"
    return (
        "at most " + ", ".join(f"{format} {values.mean(axis=0).max():.2f}" for format, values in ratios.items()),
        test,
        {"title": TITLES[data], "u": u},
    )


def slopes(results: list[Result], format: str, rounding: str, lowest: float, highest: float) -> NDArray[np.float64]:
    """Return the power of n with which errors of one-signed sums grow, for each seed, within a range of n u."""
    n, error = table_over_seeds(results, "error", "length", format=format, data="uniform", rounding=rounding)
    product = n * FORMATS[format].unit_roundoff
    chosen = (lowest <= product) & (product <= highest)
    if chosen.sum() < 2:
        return np.full(len(error), np.nan)
    return np.array([np.polyfit(np.log(n[chosen]), np.log(row[chosen]), 1)[0] for row in error])


@claim(
    f"{{rounding}} rounding, {TITLES['uniform']}: errors grow as the root of n, as long as n u <= {{cut:g}}",
    f"slope of the logarithms within {EXPONENT} of 0.5, in FP16 and BF16",
)
def _slope(results: list[Result], rounding: str, cut: float) -> Measured:
    found = {format: slopes(results, format, rounding, 0, cut) for format in FORMATS}
    test = all_of([difference_test(values, 0.5, above=-EXPONENT, below=EXPONENT) for values in found.values()])
    return ", ".join(f"{format} {spread(values)}" for format, values in found.items()), test


@claim(
    f"stochastic rounding, {TITLES['uniform']}: errors grow more slowly beyond n u = 1",
    "slope of the logarithms there - slope before < 0, in FP16 and BF16",
)
def _flattens(results: list[Result]) -> Measured:
    short, long = (
        {format: slopes(results, format, "stochastic", *part) for format in FORMATS} for part in ((0, 1), (1, np.inf))
    )
    test = all_of([difference_test(long[format], short[format], below=0) for format in FORMATS])
    return ", ".join(f"{format} {spread(short[format])} and then {spread(long[format])}" for format in FORMATS), test
