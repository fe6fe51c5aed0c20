"""The claims, and their tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.cheapest_policy.jobs import ANSWER, USUAL, WITHIN
from experiments.measurement import over_seeds, select
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import count_test, ratio_test

#: The largest share of all trainings, of every combination with every seed, that the search may use.
TENTH = 0.1


def findings(results: list[Result]) -> list[Finding]:
    """Return three findings for each problem."""
    problems = dict.fromkeys(result["problem"] for result in results)
    return [finding(results, problem) for problem in problems for finding in (_is_within, _is_cheaper, _is_short)]


def ratios(results: list[Result], problem: str, policy: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the losses under a policy relative to the reference, for every seed in order."""
    own, reference = (over_seeds(results, "loss", problem=problem, policy=each) for each in (policy, USUAL[0]))
    return own, reference


def costs(results: list[Result], problem: str) -> dict[str, float]:
    """Return the cost of each policy, relative to the reference."""
    known = {key: over_seeds(results, "cost", problem=problem, policy=key)[0] for key in (*USUAL, ANSWER)}
    return {key: float(cost / known[USUAL[0]]) for key, cost in known.items()}


@claim("{problem}: the answer of the search trains within one percent of FP32, on seeds that the search did not use",
       f"loss / fp32's < {1 + WITHIN:g}")  # fmt: skip
def _is_within(results: list[Result], problem: str) -> Measured:
    own, reference = ratios(results, problem, ANSWER)
    result = select(results, problem=problem)[0]
    usual = ", ".join(f"{key} {spread(np.divide(*ratios(results, problem, key)), 3)}" for key in USUAL[1:])
    measured = f"{spread(own / reference, 4)} under {result['label']}; {usual}"
    return measured, ratio_test(own, reference, below=1 + WITHIN)


@claim(
    "{problem}: the answer has fewer bits than amp-bf16 and than fp8-hybrid",
    "bits of a number in all parts: fewer than both",
)
def _is_cheaper(results: list[Result], problem: str) -> Measured:
    cost = costs(results, problem)
    measured = ", ".join(f"{key} {100 * share:.3g} %" for key, share in cost.items() if key != USUAL[0])
    return f"of fp32's bits: {measured}", count_test(sum(cost[ANSWER] >= cost[key] for key in USUAL[1:]), 2)


@claim("{problem}: the search takes a tenth of the trainings of all combinations or fewer",
       "trainings / (combinations x 5 seeds) <= 0.1")  # fmt: skip
def _is_short(results: list[Result], problem: str) -> Measured:
    result = select(results, problem=problem)[0]
    share = result["trainings"] / (5 * result["combinations"])
    return f"{result['trainings']} for {result['combinations']} combinations", count_test(int(share > TENTH), 1)
