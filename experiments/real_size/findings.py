"""The claims, and their tests."""

from __future__ import annotations

from experiments.measurement import against_fp32, final, select
from experiments.precision_claims import (
    beside_fp32,
    cancels_late,
    closes_gap,
    falls_short,
    fp8_matches_fp16,
    fp16_weights_lag,
    matches,
    matches_closely,
)
from experiments.precisions import FP8, FP32_WEIGHTS, KAHAN, MASTER, STOCHASTIC
from experiments.real_size.jobs import FP16_ALONE, SCALED
from experiments.real_size.problems import PROBLEMS, RATES, task_of
from experiments.task import Task
from simfloat.studies import Finding, Measured, Result, claim
from simfloat.studies.verdicts import ratio_test


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim; for a given policy, whether it comes close to FP32."""
    if given := against_fp32(results, PROBLEMS):
        return given
    trained = [(problem, task_of(problem)) for problem in PROBLEMS if select(results, problem=problem)]
    at_best = [(problem, task) for problem, task in trained if problem in RATES]
    return [
        *(falls_short(results, *each) for each in trained),
        *(cancels_late(results, problem) for problem, _ in trained),
        *(
            test(results, *each, variant)
            for test in (matches_closely, closes_gap)
            for variant, tested in ((FP32_WEIGHTS, at_best), (STOCHASTIC, trained), (KAHAN, at_best))
            for each in tested
        ),
        *(fp16_weights_lag(results, *each) for each in trained),
        *(matches(results, *each, SCALED) for each in at_best),
        *(_scale_helps(results, *each) for each in at_best),
        *(matches(results, *each, FP8) for each in at_best),
        *(fp8_matches_fp16(results, *each, SCALED) for each in at_best),
        *(matches(results, *each, FP16_ALONE) for each in at_best),
    ]


@claim("{problem}: FP16 with a master copy is worse without a loss scale than with one", "loss / loss with 128 > 1")
def _scale_helps(results: list[Result], problem: str, task: Task) -> Measured:
    without, scaled = (final(results, problem, each.key) for each in (MASTER, SCALED))
    return beside_fp32(results, problem, task, MASTER), ratio_test(without, scaled, above=1)
