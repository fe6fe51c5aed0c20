"""`reveal`: in which order an unknown function adds, and which accumulator of ours gives its bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.analysis.reveal.candidates import Candidate, candidates
from simfloat.analysis.reveal.check import Exclusion, exclusion, sample
from simfloat.analysis.reveal.order import OrderNotFound, evidence_of, find_order
from simfloat.analysis.reveal.probe import (
    MOST_CALLS,
    BlackBox,
    ContradictoryProbes,
    OutOfCalls,
    ProductRange,
    Tree,
    span_of,
)
from simfloat.common import is_integer
from simfloat.formats import FP32, Format, Rounding
from simfloat.sums import Accumulator, dot
from simfloat.sums.integers import UnitInputs, as_formats
from simfloat.terminal import status

#: The most products of a sum that is to be revealed.
MOST_TERMS = 2048

#: How many of the accumulators that were excluded are printed.
SHOWN = 3


#: What is said of an order that no accumulator has.
NONE = "No accumulator adds so."

#: How many accumulators are tried at most.
MOST_CANDIDATES = 5000


@dataclass(frozen=True, repr=False)
class Revealed:
    """What :func:`simfloat.reveal` found.

    `accumulator` gives the function's bits, with the operands in `inputs` and results rounded to `output` (None: the
    accumulator's own format) in the mode `rounding` (None: nearest even); :meth:`dot` takes all four. It is None if no
    accumulator does. `tree` is the order of additions, None if probes showed none; `reason` says how far all this was
    checked, or why there is no accumulator or no tree. `excluded` has, for every accumulator of that order that was
    tried and gives other bits, operands that show it: ``candidate``, ``a``, ``b``, f's ``result``, the ``other`` one,
    and ``is_close`` if only sums that were built to break it told it from f. Printed are three of them, close ones
    first.
    """

    accumulator: Accumulator | None
    output: Format | None
    inputs: tuple[Format, Format]
    tree: Tree | None
    reason: str
    excluded: tuple[Exclusion, ...] = ()
    rounding: Rounding | None = None

    def dot(self, a: ArrayLike, b: ArrayLike) -> NDArray[np.floating]:
        """The sum of the products of two vectors of equal length, as the function adds them: :func:`simfloat.dot` with
        the inputs that were given, and the accumulator, output and rounding that were found.

        Vectors of other lengths than k are added as the accumulator does. Raises ValueError if none was found.

        Examples:
            >>> ours = sf.reveal(lambda a, b: sf.dot(a, b, accumulate=sf.FP32, output=sf.BF16), 5)
            >>> ours.dot([256.0, 1.0], [1.0, 1.0]), sf.dot([256.0, 1.0], [1.0, 1.0], accumulate=ours.accumulator)
            (array(256.), array(257.))
        """
        if self.accumulator is None:
            raise ValueError(
                f"There must be an accumulator that gives the function's bits; none was found: {self.reason}"
            )
        options: dict[str, Any] = {"output": self.output, "rounding": self.rounding}
        return dot(a, b, inputs=self.inputs, accumulate=self.accumulator, **options)

    def __str__(self) -> str:
        accumulator = "no accumulator"
        if self.accumulator is not None:
            accumulator = str(Candidate(self.accumulator, self.output, self.rounding))
        order = "" if self.tree is None else f"\n  order: {self.tree}"
        nearest = sorted(self.excluded, key=lambda exclusion: not exclusion.is_close)[:SHOWN]
        excluded = "".join(f"\n  excluded: {exclusion}" for exclusion in nearest)
        return f"{accumulator}{order}\n  {self.reason}{excluded}"

    def __repr__(self) -> str:
        return f"<Revealed {self}>"


def reveal(
    f: Callable[[Any, Any], Any],
    k: int,
    *,
    inputs: UnitInputs = FP32,
    seed: int = 0,
    calls: int = MOST_CALLS,
) -> Revealed:
    """Find in which order and precision a function adds, and the accumulator that gives its bits.

    `f(a, b)` returns one number, the sum of the products of two vectors of length `k`: an element of a BLAS product, a
    loop of yours, a program behind a socket. It gets new NumPy arrays of numbers of `inputs`, a format or a pair for a
    and b: float32 arrays where they fit, else float64; those of a function that rounds its operands are the formats
    that it rounds them to. A sum is asked for as ``lambda a, b: (a * b).sum()``.

    The order is found by FPRev (Xie et al., arXiv 2411.00442): of ones beside one large M and one -M those are lost
    that are added before M and -M meet. It takes some k calls of f for a sum from left to right, k log2(k) for most
    others and at most k^2, several times as many if results have too few bits to count k ones. Then the bits and the
    mode of some additions are probed, and f is asked for random sums, which `seed` draws: wide exponents,
    cancellations, ties, subnormals, zeros and overflows among them. Every accumulator of that order, those bits and
    that mode, with results in its own format or rounded once more (toward zero, saturating, flushed to zero), is held
    against all that f was asked for until then. If it fits, f is asked for sums that are built to break it: in every
    binade of its formats and beyond them, partial sums and results are numbers, half-way between two or close to that,
    next to the ends of the range most of all. The first that gives all the bits is returned. At most 5000 are tried,
    and f is called at most `calls` times, some thousands as a rule; the result says if that was too few. On a terminal
    a line shows how far the search is, every two seconds.

    Others may give the same bits, as several generations of tensor cores do; signs of zero results are not compared,
    nor are infinite operands and NaN. What lies beyond the first k products is not seen: choose k of several of f's
    blocks and no power of two, to see how a last short one is added.

    Raises ValueError if k is not from 2 to 2048; if the formats lack a sign or 0, or, as `fixed(8)`, 1 and 2 as normal
    numbers; if f raises, returns anything but one number, returns NaN for finite operands of middling size, is not
    deterministic, or is no sum of products.

    Examples:
        >>> ours = sf.reveal(lambda a, b: sf.dot(a, b, accumulate=sf.blocked(8, sf.FP16, sf.FP32)), 29)
        >>> ours.accumulator
        blocked(8, inner=sequential(Format(5, 10, name='FP16')), outer=sequential(Format(8, 23, name='FP32')))
    """
    box = BlackBox(f, _checked_terms(k), _checked_inputs(inputs), _checked_calls(calls))
    excluded: list[Exclusion] = []
    with status(lambda: f"reveal: f was called {calls - box.calls} times, {len(excluded)} accumulators are excluded"):
        return _search(box, seed, calls, excluded)


def _search(box: BlackBox, seed: int, calls: int, excluded: list[Exclusion]) -> Revealed:
    """The first accumulator that gives all bits; those that do not are appended to `excluded`."""
    tree, story = None, ""
    try:
        span = span_of(box)
        tree, story = _order(box, span)
        evidence = evidence_of(box, span, tree)
        sample(box, span, seed)
        for candidate in islice(candidates(evidence, tree), MOST_CANDIDATES):
            difference = exclusion(candidate, box)
            if difference is None:
                verdict = (
                    f"{_describe_candidate(candidate)} gives the bits of all {box.sum_count} sums that f was asked for."
                )
                return _conclude(candidate, box, tree, [story, verdict], excluded)
            excluded.append(difference)
    except OutOfCalls:
        verdict = f"f was called {calls} times, as often as it may be, before an accumulator was proven: raise calls."
    else:
        verdict = f"{len(excluded)} accumulators were tried, and each gives other bits." if excluded else NONE
        if len(excluded) == MOST_CANDIDATES:
            verdict += " These are the most that are tried."
        if FP32 in box.inputs:
            verdict += " If f rounds its operands, name their format, as inputs=simfloat.BF16."
    return _conclude(None, box, tree, [story, verdict], excluded)


def _describe_candidate(candidate: Candidate) -> str:
    """The accumulator, and what it gives the bits with."""
    if candidate.output is None:
        return "The accumulator"
    rounding = "" if candidate.rounding is None else f" and rounding {candidate.rounding}"
    return f"With output {candidate.output}{rounding} the accumulator"


def _conclude(
    candidate: Candidate | None, box: BlackBox, tree: Tree | None, story: list[str], excluded: list[Exclusion]
) -> Revealed:
    accumulator, output, rounding = candidate or (None, None, None)
    reason = " ".join(filter(None, story))
    return Revealed(accumulator, output, box.inputs, tree, reason, tuple(excluded), rounding)


def _order(box: BlackBox, span: ProductRange) -> tuple[Tree | None, str]:
    """The tree, or None and what is to be said of that."""
    try:
        return find_order(box, span), ""
    except OrderNotFound:
        return None, "No probe lost a bit: the sum is exact, or sums of such operands are in any order."
    except ContradictoryProbes as failure:
        return None, f"The results of probes are those of no order of additions: {failure}."


def _checked_terms(k: Any) -> int:
    if not is_integer(k, 2, MOST_TERMS):
        raise ValueError(f"k, the products of a sum, must be an integer from 2 to {MOST_TERMS}, got {k!r}.")
    return int(k)


def _checked_calls(calls: Any) -> int:
    if not is_integer(calls, 1):
        raise ValueError(f"calls, how often f may be called, must be a positive integer, got {calls!r}.")
    return int(calls)


def _checked_inputs(inputs: UnitInputs) -> tuple[Format, Format]:
    formats = as_formats(inputs)
    for format in formats:
        if not (format.signed and format.has_zero and format.emin <= 0 < format.emax):
            raise ValueError(f"inputs must be formats with a sign, 0, and 1 and 2 as normal numbers, got {format}.")
    return formats


__all__ = ["reveal"]
