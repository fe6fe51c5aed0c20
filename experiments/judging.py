"""The findings of an experiment, by all of its seeds and by the first of them alone."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.experiment import Experiment, Result
from experiments.verdicts import Finding

#: Numbers of seeds by which a verdict is given as well where there are more: how it came about can then be seen.
FEWER = (5, 10)


def findings_of(experiment: Experiment, results: list[Result], tiny: bool = False) -> list[Finding]:
    """The findings, each with its verdicts over fewer seeds; those of a tiny run have none."""
    found = experiment.findings(results)
    if tiny:
        return [Finding(*finding[:3], test="none: a tiny run decides nothing", verdict=None) for finding in found]
    seeds = sorted({result["seed"] for result in results if "seed" in result})
    numbers = [number for number in FEWER if number < len(seeds)]
    earlier = [experiment.findings(first_seeds(results, seeds[:number])) for number in numbers]
    return [
        finding._replace(earlier=tuple(zip(numbers, (each.verdict for each in same), strict=True)))
        for finding, *same in zip(found, *earlier, strict=True)
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
