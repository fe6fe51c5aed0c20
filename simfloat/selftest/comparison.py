"""Checks: batches of results beside what they should be, compared bit for bit, and the report of a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

import simfloat as sf


class Batch(NamedTuple):
    """Results `got` of `function(*operands, *options)`, and what is due; operands broadcast to the results."""

    function: str
    operands: tuple[ArrayLike, ...]
    options: tuple[Any, ...]
    got: ArrayLike
    want: ArrayLike

    @property
    def cases(self) -> int:
        """How many results there are."""
        return np.asarray(self.want).size

    def first_difference(self) -> str | None:
        """The first wrong case as a sentence, or None if every bit is right."""
        got, want = np.asarray(self.got), np.asarray(self.want)
        if got.shape != want.shape:
            return f"{self._call()} has shape {got.shape}, expected {want.shape}"
        wrong = ~equal_bits(got, want)
        if not wrong.any():
            return None
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        return f"{self._call(place)} is {_text(got[place])}, expected {_text(want[place])}"

    def _call(self, place: tuple[int, ...] | None = None) -> str:
        shape = np.shape(self.want)
        shown = [] if place is None else [_text(np.broadcast_to(x, shape)[place]) for x in self.operands]
        return f"{self.function}({', '.join([*shown, *map(str, self.options)])})"


#: Yields batches, fewer of them if its argument is true.
Check: TypeAlias = Callable[[bool], Iterator[Batch]]


def call(
    function: str,
    operands: tuple[ArrayLike, ...],
    format: sf.Format,
    rounding: sf.Rounding,
    want: ArrayLike,
    seed: int = 0,
) -> Batch:
    """The batch of `simfloat.function(*operands, format, rounding)`, with a fresh stream of that seed."""
    got = getattr(sf, function)(*operands, format, rounding, stream=sf.BitStream(seed))
    return Batch(function, operands, (format, rounding), got, want)


def equal_bits(a: ArrayLike, b: ArrayLike) -> NDArray[np.bool_]:
    """Elementwise: the same number, zeros of the same sign, or both NaN."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind != "f":
        return a == b
    return (np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))


def _text(x: Any) -> str:
    return float(x).hex() if np.asarray(x).dtype.kind == "f" else str(x)


class Examination(NamedTuple):
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


def examine(batches: Iterator[Batch]) -> Examination:
    """Count the cases of a check, up to the first batch that has a wrong one; an exception is one, too."""
    cases = 0
    try:
        for batch in batches:
            cases += batch.cases
            if failure := batch.first_difference():
                return Examination(cases, failure)
    except Exception as error:  # a check that cannot run is a failed check, and the others still say something
        return Examination(cases, f"{type(error).__name__}: {error}")
    return Examination(cases, None)
