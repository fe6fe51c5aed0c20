"""What an experiment finds about a policy that the user gave: whether it trains as well as fp32."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from experiments.experiment import Result
from experiments.statistics import final, select, spread
from experiments.verdicts import Finding, judged, ratio_test

#: Close to fp32: the loss at most a tenth above.
CLOSE = 1.1


def against_fp32(results: Sequence[Result], problems: Iterable[str]) -> list[Finding]:
    """One finding for each problem, of runs under the variants "given" and "fp32"; none if no policy was given."""
    found = []
    for problem in problems:
        if runs := select(results, problem=problem, variant="given"):
            loss, fp32 = final(results, problem, "given"), final(results, problem, "fp32")
            test = ratio_test(loss, fp32, below=CLOSE)
            claim = f"{problem}: {runs[0]['label']} comes close to fp32"
            found.append(judged(claim, f"loss / fp32 loss < {CLOSE}", spread(loss / fp32, 3), test))
    return found
