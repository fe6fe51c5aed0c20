"""The claims, and their tests."""

from __future__ import annotations

from experiments.measurement import final, select
from experiments.recipe_parts.policies import PARTS
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import INCONCLUSIVE, WORSE, Outcome, compare, difference_test, log_ratios, ratio_test

#: The difference of losses that the paper on NVFP4 reports.
NVFP4 = 1.015


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim that the results test."""
    if given := select(results, variant="given"):
        return [trains_as(results, "given", "bf16", f"{given[0]['label']} trains as BF16 does")]
    return [
        trains_as(results, "whole", "bf16", "NVFP4's whole recipe trains as BF16 does"),
        *(needs(results, f"without {part}", "whole", f"NVFP4 needs its {part}") for part in PARTS),
        needs(results, "powers of two", "whole", "NVFP4 needs E4M3 scales, not powers of two"),
        needs(results, "bare", "whole", "NVFP4 needs one of these parts at least"),
        *(makes_up(results, part) for part in PARTS),
        trains_as(results, "mxfp8", "bf16", "MXFP8 trains as BF16 does"),
        trains_as(results, "mxfp8-e5m2", "mxfp8", "MXFP8's gradients train in E5M2 as in E4M3"),
    ]


@claim("{what}", "loss / loss of {reference} within a factor of " + str(NVFP4))
def trains_as(results: list[Result], variant: str, reference: str, what: str) -> Measured:
    """Test that a loss is as low as another."""
    loss, other = (final(results, "gpt", each) for each in (variant, reference))
    return spread(loss / other, 4), compare(loss, other, margin=NVFP4)


@claim("{what}", "loss without it / loss of {reference} > 1")
def needs(results: list[Result], variant: str, reference: str, what: str) -> Measured:
    """Test that a loss is higher than another."""
    loss, other = (final(results, "gpt", each) for each in (variant, reference))
    return spread(loss / other, 4), ratio_test(loss, other, above=1)


@claim(
    "{part}: makes up for most of the other parts", "log loss above the whole recipe, minus half of the bare one, < 0"
)
def makes_up(results: list[Result], part: str) -> Measured:
    """Test that the bare format with one part closes more than half of its gap to the whole recipe."""
    only, bare, whole = (final(results, "gpt", each) for each in (f"only {part}", "bare", "whole"))
    gap, rest = log_ratios(bare, whole), log_ratios(only, whole)
    text = f"{spread(only / whole, 4)} times the loss, bare {spread(bare / whole, 4)}"
    if compare(bare, whole, margin=NVFP4).verdict != WORSE:
        return text, Outcome(INCONCLUSIVE, "none: the bare format is not shown to be worse", 1.0)
    return text, difference_test(rest, gap / 2, below=0)
