"""Running checks: one line each, and whether all passed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from simfloat.selftest.batch import Batch, Check


class Outcome(NamedTuple):
    """How many cases a check compared, and its first wrong one."""

    cases: int
    failure: str | None


def run(checks: Mapping[str, Check], quick: bool = False) -> bool:
    """Run the checks, print a line for each and one for all; true if every check passed."""
    start = time.perf_counter()
    outcomes = []
    width = max(map(len, checks))
    for name, check in checks.items():
        outcome = examine(check(quick))
        print(f"{name:{width}}  {outcome.cases:>10,} cases  {outcome.failure or 'ok'}", flush=True)
        outcomes.append(outcome)
    failed = sum(outcome.failure is not None for outcome in outcomes)
    verdict = f"{failed} of {len(outcomes)} checks failed" if failed else f"All {len(outcomes)} checks passed"
    print(f"{verdict}: {sum(o.cases for o in outcomes):,} cases in {time.perf_counter() - start:.1f} s.")
    return not failed


def examine(batches: Iterator[Batch]) -> Outcome:
    """Count the cases of a check, up to the first batch that has a wrong one; an exception is one, too."""
    cases = 0
    try:
        for batch in batches:
            cases += batch.cases
            if failure := batch.first_difference():
                return Outcome(cases, failure)
    except Exception as error:  # a check that cannot run is a failed check, and the others still say something
        return Outcome(cases, f"{type(error).__name__}: {error}")
    return Outcome(cases, None)
