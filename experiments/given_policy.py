"""What an experiment finds about a policy that the user gave: whether it trains as well as fp32."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from experiments.experiment import Result
from experiments.margins import MATCH
from experiments.statistics import final, select, spread
from experiments.verdicts import Finding, compare, judged


def against_fp32(results: Sequence[Result], problems: Iterable[str]) -> list[Finding]:
    """One finding for each problem, of runs under the variants "given" and "fp32"; none if no policy was given."""
    found = []
    for problem in problems:
        if runs := select(results, problem=problem, variant="given"):
            loss, fp32 = final(results, problem, "given"), final(results, problem, "fp32")
            claim = f"{problem}: {runs[0]['label']} comes close to fp32"
            expectation = f"loss / fp32's loss within a factor of {MATCH}"
            found.append(judged(claim, expectation, spread(loss / fp32, 3), compare(loss, fp32)))
    return found
