"""The claims, and their tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.measurement import measured_rows, over_seeds, select
from experiments.update_limits.jobs import ALPHAS, BITS, WIDTHS, smallest_distance
from simfloat.studies import Measured, Result, claim, spread
from simfloat.studies.verdicts import EXPONENT, FAR, all_of, difference_test, ratio_test, search_test


def distances(results: list[Result], varied: str, **fields: object) -> NDArray[np.float64]:
    """Return the final distance to the optimum, for every seed."""
    return over_seeds(results, "distance", varied=varied, **fields)


def listed(values: dict[str, NDArray[np.float64]]) -> str:
    """Return the measurements by the name of each case, as text."""
    return ", ".join(f"{name}: {spread(each)}" for name, each in values.items())


@claim("nearest updates stop farther from the optimum with smaller steps", "distance, each step size / the next > 1")
def smaller_steps_end_worse(results: list[Result]) -> Measured:
    """Test section 3.1: "as the step size becomes small, this error lower bound becomes worse"."""
    found = {f"{alpha:g}": distances(results, "alpha", alpha=alpha) for alpha in ALPHAS}
    steps = list(found.values())
    tests = [ratio_test(small, large, above=1) for large, small in zip(steps, steps[1:], strict=False)]
    return f"distance by step size {listed(found)}", all_of(tests)


@claim(
    "the distance of nearest updates is of the order of epsilon",
    f"slope of log2 distance by mantissa bits within {EXPONENT} of -1",
)
def distance_is_of_order_epsilon(results: list[Result]) -> Measured:
    """Test section 3.1: the bound "is also in the order of O(epsilon)", worse for formats with a large epsilon."""
    logs = np.log2([distances(results, "bits", bits=bits) for bits in BITS])
    slopes = np.polyfit(BITS, logs, 1)[0]
    found = {f"{bits} bits": distances(results, "bits", bits=bits) for bits in BITS}
    return f"slope {spread(slopes)}; {listed(found)}", difference_test(slopes, -1, above=-EXPONENT, below=EXPONENT)


@claim("the degradation depends on the magnitude of the optimal weights", f"distance, w* to 100 / w* to 1 > {FAR:g}")
def depends_on_weights(results: list[Result]) -> Measured:
    """Test section 3.1: w* "can be arbitrarily far from the zero vector"."""
    small, _, large = (distances(results, "floating", width=width) for width in WIDTHS)
    found = {f"w* to {width:g}": distances(results, "floating", width=width) for width in WIDTHS}
    return listed(found), ratio_test(large, small, above=FAR)


@claim(
    "in fixed point the degradation does not depend on this magnitude",
    f"slope of log distance by log of the largest weight within {EXPONENT} of 0",
)
def fixed_point_does_not(results: list[Result]) -> Measured:
    """Test section 3.1: "does not emerge in training with fixed point numbers"."""
    slopes = {
        kind: np.polyfit(np.log(WIDTHS), np.log([distances(results, kind, width=width) for width in WIDTHS]), 1)[0]
        for kind in ("fixed", "floating")
    }
    small, _, large = (distances(results, "fixed", width=width) for width in WIDTHS)
    text = f"slope {spread(slopes['fixed'], 3)}, in floating point {spread(slopes['floating'])}; "
    text += f"distance, w* to 100 / w* to 1: {spread(large / small)}"
    return text, difference_test(slopes["fixed"], 0, above=-EXPONENT, below=EXPONENT)


@claim(
    "problems that do not determine their weights, such as networks, also stop far above FP32",
    f"loss in BF16 / loss in FP32 > {FAR:g}",
)
def underdetermined_stops(results: list[Result]) -> Measured:
    """Test section 3.1: "we focus on underdetermined least-squares regression problems"."""
    bf16, fp32 = (over_seeds(results, "loss", varied="few", bits=bits) for bits in (7, 23))
    found = ", ".join(f"{name} {np.mean(losses):.2g}" for name, losses in (("BF16", bf16), ("FP32", fp32)))
    return found, ratio_test(bf16, fp32, above=FAR)


@claim(
    "no run comes nearer to the optimum than the bound of theorem 1",
    "distance >= min(radius, start) at every step of every run",
)
def no_run_comes_nearer(results: list[Result]) -> Measured:
    """Test theorem 1: |w_t - w*| >= min(epsilon / (alpha L + epsilon) min |w*_j|, |w_0 - w*|).

    The radius is the corrected one. The first counterexample has one weight: x = 1, alpha = 0.75, w* = 1.5. From 0 it
    reaches w* in five steps, because an update from outside the radius may end inside.
    """
    rows = [row for result in results for row in measured_rows(result)]
    generic, searched = select(rows, varied="alpha"), select(rows, varied="search")
    first = smallest_distance(np.ones((10, 1)), np.array([1.5]), alpha=0.75)
    nearer = sum(row["distance"] < min(row["radius"], row["start"]) for row in (*generic, *searched)) + (first == 0)
    ratios = [row["distance"] / row["radius"] for row in generic]
    text = f"from 0 to 1.5 with x = 1 and alpha = 0.75 the distance becomes {first:g}; with 10 weights and an optimum "
    text += f"that is not a BF16 number, runs end at {min(ratios):.3g} times the radius or farther"
    return text, search_test(nearer, len(generic) + len(searched) + 1)


@claim(
    "the mean of runs with stochastic updates converges as exact updates do",
    f"distance of the mean of 100 runs to exact updates / that of nearest updates < 1 / {FAR:g}",
)
def stochastic_mean_follows(results: list[Result]) -> Measured:
    """Test section 3.2: in expectation, stochastic rounding "converges as if updates were exact"."""
    mean, single, nearest = (over_seeds(results, key, varied="mean") for key in ("distance", "single", "nearest"))
    text = f"{spread(mean / nearest, 4)}; a single run {spread(single / nearest, 3)}"
    return text, ratio_test(mean, nearest, below=1 / FAR)
