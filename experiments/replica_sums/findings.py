"""The claims, and their tests."""

from __future__ import annotations

import numpy as np

import simfloat as sf
from experiments.measurement import largest, measured_rows, over_seeds, select, table_over_seeds
from simfloat.plots import deterministic_bound
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import EXPONENT, MATCH, MOST, all_of, compare, difference_test, ratio_test, search_test

#: Of BF16.
U = sf.BF16.unit_roundoff


def most(results: list[Result]) -> int:
    """Return the largest number of replicas."""
    return largest(results, "replicas")


@claim("noise: in a ring errors grow as the root of the number of replicas", f"slope within {EXPONENT} of 0.5")
def ring_grows_as_the_root(results: list[Result]) -> Measured:
    """Test that errors grow as those of independent steps: Higham and Mary 2019."""
    counts, errors = table_over_seeds(results, "error", "replicas", data="noise", way="ring")
    slopes = np.array([np.polyfit(np.log(counts), np.log(row), 1)[0] for row in errors])
    measured = f"{spread(slopes)}; {spread(100 * errors[:, 0])} % to {spread(100 * errors[:, -1])} %"
    return measured, difference_test(slopes, 0.5, above=-EXPONENT, below=EXPONENT)


@claim(
    "alike: a ring of {replicas} replicas loses most of the sum, which stagnates",
    f"mean of the sums / exact < {MOST}",
)
def ring_stagnates(results: list[Result]) -> Measured:
    """Test that a sum of equal terms stops at 2^p of them."""
    means = over_seeds(results, "mean", data="alike", way="ring", replicas=most(results))
    return spread(means, 3), difference_test(means, MOST, below=0), {"replicas": most(results)}


@claim("a tree has no error above gamma of the logarithm of the number of replicas", "in every case")
def tree_keeps_its_bound(results: list[Result]) -> Measured:
    """Test Higham 2002, section 4.2, on pairwise sums; and the rounding of the values that are sent."""
    rows = [row for result in results for row in select(measured_rows(result), way="tree")]
    shares = [row["greatest"] / deterministic_bound(np.log2(row["replicas"]), U) for row in rows]
    test = search_test(sum(share > 1 for share in shares), len(shares), "Higham 2002, section 4.2")
    return f"at most {max(shares):.2f} times the bound", test


@claim(
    "{data}: if sums are sent in FP32, the error is that of one rounding",
    f"error / error of one rounding within {MATCH}",
)
def fp32_is_one_rounding(results: list[Result], data: str) -> Measured:
    """Test sums of 1024 terms in FP32, which has 16 bits more than BF16."""
    errors, once = (
        over_seeds(results, key, data=data, way="ring in FP32", replicas=most(results)) for key in ("error", "rounded")
    )
    return f"{spread(errors / once, 4)}; {spread(100 * errors, 3)} %", compare(errors, once)


@claim("alike: stochastic rounding does not stagnate in a ring of {replicas}", f"sums / exact within {MATCH}")
def stochastic_ring_goes_on(results: list[Result]) -> Measured:
    """Test that stochastic sums are right on average, for any length."""
    means = over_seeds(results, "mean", data="alike", way="ring, stochastic", replicas=most(results))
    test = ratio_test(means, np.ones_like(means), above=1 / MATCH, below=MATCH)
    return spread(means, 4), test, {"replicas": most(results)}


@claim("at {replicas} replicas a tree is more exact than a ring", "error of the tree / of the ring < 1, on both kinds")
def tree_is_more_exact(results: list[Result]) -> Measured:
    """Test that ten roundings of each term are better than a thousand."""
    errors = {
        (data, way): over_seeds(results, "error", data=data, way=way, replicas=most(results))
        for data in ("noise", "alike")
        for way in ("tree", "ring")
    }
    ratios = {data: errors[data, "tree"] / errors[data, "ring"] for data in ("noise", "alike")}
    tests = [ratio_test(values, np.ones_like(values), below=1) for values in ratios.values()]
    measured = ", ".join(f"{data} {spread(values, 3)}" for data, values in ratios.items())
    return measured, all_of(tests), {"replicas": most(results)}


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim."""
    return [
        ring_grows_as_the_root(results),
        ring_stagnates(results),
        stochastic_ring_goes_on(results),
        tree_keeps_its_bound(results),
        tree_is_more_exact(results),
        *(fp32_is_one_rounding(results, data) for data in ("noise", "alike")),
    ]
