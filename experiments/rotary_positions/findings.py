"""The claims, and their tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.measurement import largest, over_seeds, table_over_seeds
from experiments.rotary_positions.jobs import FAR as FAR_KEYS
from experiments.rotary_positions.jobs import FP64_ANGLES, NEAR
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import ABOUT, EXPONENT, FAR, MATCH, all_of, compare, difference_test, ratio_test

#: Steps that use the position, those after the angles, and a position at which failures are early.
BEFORE, AFTER, EARLY = ("positions", "angles"), ("tables", "rotation", "tables and rotation"), 1024

#: The first position of the fit of a growth law: BF16 has every integer up to it.
FIRST = 256


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim."""
    return [
        *(needs_fp32(results, part) for part in BEFORE),
        fails_early(results),
        suffices(results, "frequencies"),
        frequencies_need_fp32(results),
        *(suffices(results, part) for part in AFTER),
        grows(results, "tables and rotation"),
        fp32_angles_suffice(results),
    ]


def last(results: list[Result]) -> int:
    """Return the last position."""
    return largest(results, "position")


def errors(results: list[Result], part: str, position: int, keys: str = NEAR) -> NDArray[np.float64]:
    """Return the error of scores with a part in BF16, for every seed."""
    return over_seeds(results, "error", part=part, position=position, keys=keys)


def far_off(results: list[Result], part: str, keys: str) -> Measured:
    """Test if scores at the last position are far off with a part in BF16."""
    narrow, wide = (errors(results, each, last(results), keys) for each in (part, "nothing"))
    text = f"{spread(narrow / wide, 1)}; the error is {spread(100 * narrow, 1)} %"
    return text, ratio_test(narrow, wide, above=FAR), {"position": last(results)}


@claim(
    "{part} need FP32: in BF16 scores of near keys are far off at position {position}",
    f"error / error in FP32 > {FAR:g}",
)
def needs_fp32(results: list[Result], part: str) -> Measured:
    """Test the reason why libraries compute angles in FP32."""
    return far_off(results, part, NEAR)


@claim("both are far off already at position {position}", f"error / error in FP32 > {FAR:g} for each part")
def fails_early(results: list[Result]) -> Measured:
    """Test that long contexts are not needed for the failure."""
    wide = errors(results, "nothing", EARLY)
    ratios = {part: errors(results, part, EARLY) for part in BEFORE}
    text = ", ".join(f"{part} {spread(narrow / wide, 1)}" for part, narrow in ratios.items())
    tests = [ratio_test(narrow, wide, above=FAR) for narrow in ratios.values()]
    return text, all_of(tests), {"position": EARLY}


@claim(
    "{part} in BF16: scores of near keys are about as good as in FP32 at position {position}",
    f"error / error in FP32 < {ABOUT:g}",
)
def suffices(results: list[Result], part: str) -> Measured:
    """Test if BF16 is enough after the angles."""
    narrow, wide = (errors(results, each, last(results)) for each in (part, "nothing"))
    text = f"{spread(narrow / wide, 3)}; the error is {spread(100 * narrow)} %, in FP32 {spread(100 * wide)} %"
    return text, ratio_test(narrow, wide, below=ABOUT), {"position": last(results)}


@claim("frequencies in BF16: scores of far keys are far off at position {position}", f"error / error in FP32 > {FAR:g}")
def frequencies_need_fp32(results: list[Result]) -> Measured:
    """Test that a wrong frequency is harmless for near keys only: the error of the angle is that of the distance."""
    return far_off(results, "frequencies", FAR_KEYS)


@claim("{part} in BF16: the error grows with the position", f"exponent of the position > {EXPONENT}, from {FIRST} on")
def grows(results: list[Result], part: str) -> Measured:
    """Test Wang et al., arXiv 2411.13476: errors of rotary embeddings in BF16 grow with the context."""
    positions, found = table_over_seeds(results, "error", "position", part=part, keys=NEAR)
    far = positions >= FIRST
    slopes = np.array([np.polyfit(np.log(positions[far]), np.log(row[far]), 1)[0] for row in found])
    return spread(slopes, 3), difference_test(slopes, 0, above=EXPONENT)


@claim("angles in FP32 are as good as in FP64 at position {position}", f"error / error in FP64 within {MATCH}")
def fp32_angles_suffice(results: list[Result]) -> Measured:
    """Test if FP32 is enough for the angles."""
    narrow, wide = (errors(results, each, last(results)) for each in ("nothing", FP64_ANGLES))
    return spread(narrow / wide, 3), compare(narrow, wide), {"position": last(results)}
