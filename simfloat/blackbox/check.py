"""Comparison of candidates with all results of a function, and the search for sums that tell them apart."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.blackbox.candidates import Candidate
from simfloat.blackbox.probe import BlackBox, ProductRange, Sums
from simfloat.blackbox.trial_operands import breaking_operands, random_operands

#: Operands that are built to break a candidate are drawn from so many seeds.
SEEDS = 2

#: One in so many random sums is computed twice by the function.
AGAIN = 3


class Exclusion(NamedTuple):
    """Operands for which an accumulator does not give what the function returns; `other` is None if it refuses them.

    `is_close` if only operands that were built to break it tell it from the function.
    """

    candidate: Candidate
    a: NDArray
    b: NDArray
    result: float
    other: float | None
    is_close: bool = False

    def __str__(self) -> str:
        what = "refuses" if self.other is None else f"gives {self.other!r}, f {self.result!r} for"
        return f"{self.candidate} {what} a = {_text(self.a)}, b = {_text(self.b)}"


def _text(x: NDArray) -> str:
    return np.array2string(x, separator=", ", threshold=6, edgeitems=2, floatmode="unique", max_line_width=1000)


def sample(box: BlackBox, span: ProductRange, seed: int) -> None:
    """Ask for random sums, some of them again. Raises ValueError if results differ from call to call, or are NaN."""
    for kind, a, b in random_operands(box, span, np.random.default_rng(seed)):
        results = np.array([box(x, y) for x, y in zip(a, b, strict=True)])
        again = np.array([box.call_function(x, y) for x, y in zip(a[::AGAIN], b[::AGAIN], strict=True)])
        if not equal(results[::AGAIN], again).all():
            raise ValueError("f must be deterministic; it returned other bits for the same operands.")
        if kind == "plain" and np.isnan(results).any():
            raise ValueError("f returned NaN for finite operands of middling size.")


def exclusion(candidate: Candidate, box: BlackBox) -> Exclusion | None:
    """A sum that the function was asked for and of which the accumulator gives other bits, if there is one.

    Where there is none, the function is asked for sums that are built to break the accumulator.
    """
    for sums in box.sums():
        difference = _difference(candidate, box, sums)
        if difference is not None:
            return difference
    for seed in range(SEEDS):
        for a, b in breaking_operands(candidate, box, np.random.default_rng(seed)):
            results = np.array([box(x, y) for x, y in zip(a, b, strict=True)])
            difference = _difference(candidate, box, Sums(a, b, results))
            if difference is not None:
                return difference._replace(is_close=True)
    return None


def _difference(candidate: Candidate, box: BlackBox, sums: Sums) -> Exclusion | None:
    a, b, results = sums
    ours = candidate.sums(box.inputs, a, b)
    differs = np.ones(len(a), np.bool_) if ours is None else ~equal(ours, results)
    if not differs.any():
        return None
    n = int(differs.argmax())
    return Exclusion(candidate, a[n].copy(), b[n].copy(), float(results[n]), None if ours is None else float(ours[n]))


def equal(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether numbers are the same. All NaN are one, and a zero has no sign: that of a sum of -0 alone tells only
    whether it started from +0."""
    return (x == y) | (np.isnan(x) & np.isnan(y))
