"""Claims as functions, and the findings that tests make of them, over all seeds and over the first of them alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple

from simfloat.studies.executors import Result
from simfloat.studies.verdicts import Outcome

#: Numbers of seeds by which a verdict is given as well where there are more: how it came about can then be seen.
FEWER_SEEDS = (5, 10)

#: What a claim's function returns: what was measured, as text, what a test says, and what the claim's braces need more.
Measured = tuple[str, Outcome] | tuple[str, Outcome, Mapping[str, object]]


class Finding(NamedTuple):
    """A claim, what was measured, and what became of the claim by which test; a run too short to say has no verdict.

    `p` is the level of the test at which the verdict would be open, 1 if it is, None where chance has no part in it.
    `earlier` has the verdicts over fewer seeds, by their number.
    """

    claim: str
    expectation: str
    measured: str
    test: str
    verdict: str | None
    p: float | None = None
    earlier: tuple[tuple[int, str | None], ...] = ()


def claim(text: str, expectation: str) -> Callable[[Callable[..., Measured]], Callable[..., Finding]]:
    """Make a function that measures and tests a claim return the finding.

    Braces in both texts, as of `str.format`, are filled with the function's arguments, by their names::

        @claim("{problem}: FP16 trains as FP32 does", "loss / FP32's loss within a factor of 1.05")
        def trains(results, problem):
            fp16, fp32 = losses(results, problem)
            return spread(fp16 / fp32), compare(fp16, fp32)
    """

    def decorate(function: Callable[..., Measured]) -> Callable[..., Finding]:
        signature = inspect.signature(function)

        @wraps(function)
        def finding(*arguments: Any, **named: Any) -> Finding:
            measured, outcome, *more = function(*arguments, **named)
            bound = signature.bind(*arguments, **named)
            bound.apply_defaults()
            words = {**bound.arguments, **(more[0] if more else {})}
            texts = text.format(**words), expectation.format(**words), measured
            return Finding(*texts, outcome.text, outcome.verdict, outcome.p)

        finding.is_claim = True  # type: ignore[attr-defined]
        return finding

    return decorate


def findings_of(
    findings: Callable[[list[Result]], list[Finding]], results: list[Result], tiny: bool = False
) -> list[Finding]:
    """Return a function's findings in the results, each with its verdicts over fewer seeds; a tiny run has none."""
    all_findings = findings(results)
    if tiny:
        return [
            Finding(*finding[:3], test="none: a tiny run decides nothing", verdict=None) for finding in all_findings
        ]
    seeds = sorted({result["seed"] for result in results if "seed" in result})
    seed_counts = [number for number in FEWER_SEEDS if number < len(seeds)]
    earlier = [findings(first_seeds(results, seeds[:number])) for number in seed_counts]
    return [
        finding._replace(earlier=tuple(zip(seed_counts, (each.verdict for each in same), strict=True)))
        for finding, *same in zip(all_findings, *earlier, strict=True)
    ]


def first_seeds(results: Sequence[Result], seeds: Sequence[int]) -> list[Result]:
    """The results from these seeds, and those that need none."""
    return [result for result in results if result.get("seed", seeds[0]) in seeds]


def verdict_text(finding: Finding) -> str:
    """The verdict, and those over fewer seeds where one of them is another."""
    verdict = finding.verdict or "none"
    if {verdict for _, verdict in finding.earlier} <= {finding.verdict}:
        return verdict
    before = ", ".join(f"{earlier} with {number}" for number, earlier in finding.earlier)
    return f"{verdict} ({before} seeds)"
