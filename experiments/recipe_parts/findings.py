"""The claims, and their tests."""

from __future__ import annotations

from experiments.measurement import final, select
from experiments.recipe_parts.policies import PARTS
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import MATCH, compare, ratio_test


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim that the results test."""
    if given := select(results, variant="given"):
        return [trains_as(results, "given", "bf16", f"{given[0]['label']} trains as BF16 does")]
    return [
        trains_as(results, "whole", "bf16", "NVFP4's whole recipe trains as BF16 does"),
        *(needs(results, f"without {part}", "whole", f"NVFP4 needs its {part}") for part in PARTS),
        needs(results, "powers of two", "whole", "NVFP4 needs E4M3 scales, not powers of two"),
        needs(results, "bare", "whole", "NVFP4 needs one of these parts at least"),
        *(trains_as(results, f"only {part}", "whole", f"{part} makes up for the other parts") for part in PARTS),
        trains_as(results, "mxfp8", "bf16", "MXFP8 trains as BF16 does"),
        trains_as(results, "mxfp8-e5m2", "mxfp8", "MXFP8's gradients train in E5M2 as in E4M3"),
    ]


@claim("{what}", "loss / loss of {reference} within a factor of " + str(MATCH))
def trains_as(results: list[Result], variant: str, reference: str, what: str) -> Measured:
    """Test that a loss is as low as another."""
    loss, other = (final(results, "gpt", each) for each in (variant, reference))
    return spread(loss / other, 4), compare(loss, other)


@claim("{what}", "loss without it / loss of {reference} > 1")
def needs(results: list[Result], variant: str, reference: str, what: str) -> Measured:
    """Test that a loss is higher than another."""
    loss, other = (final(results, "gpt", each) for each in (variant, reference))
    return spread(loss / other, 4), ratio_test(loss, other, above=1)
