"""`reveal` finds the order in which an unknown function adds, and an accumulator with the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.analysis.reveal.candidates import Candidate, adds_in_order, candidates, order_text, permuted_chains
from simfloat.analysis.reveal.check import Closest, Exclusion, count_agreeing, exclusion, sample
from simfloat.analysis.reveal.operands import results_format, rounded_operands
from simfloat.analysis.reveal.order import Evidence, OrderNotFound, evidence_of, find_order
from simfloat.analysis.reveal.probe import (
    MOST_CALLS,
    BlackBox,
    ContradictoryProbes,
    OutOfCalls,
    ProductRange,
    Tree,
    span_of,
)
from simfloat.analysis.reveal.stochastic import reveal_rounding
from simfloat.common import is_integer
from simfloat.formats import BF16, FP16, FP32, Format, Rounding
from simfloat.sums import Accumulator, dot
from simfloat.sums.integers import UnitInputs, as_formats, pair_text
from simfloat.sums.sequential import SequentialSum
from simfloat.terminal import status

#: The maximum number of products of a sum that can be revealed.
MOST_TERMS = 2048

#: The number of excluded accumulators that are printed, and the number that are compared to find the closest ones.
SHOWN, COMPARED = 3, 16


#: The message if no accumulator has the order.
NONE = "No accumulator adds in this order."

#: The maximum number of accumulators that are tried, and the number before narrower operands are tried.
MOST_CANDIDATES, FEW_CANDIDATES = 5000, 400


@dataclass(frozen=True, repr=False)
class Revealed:
    """The result of :func:`simfloat.reveal`.

    `accumulator` gives the same bits as the function, with operands in `inputs` and results rounded to `output` in the
    mode `rounding`. :meth:`dot` uses all four: ``order.dot(a, b)`` has the bits of the function. It prints with
    `nearest`.

    Parameters:
        accumulator: the accumulator; None if no accumulator gives the same bits.
        output: the format of the results; None for the accumulator's own format.
        inputs: the formats of both operands.
        tree: the order of the additions; None if probes did not show one.
        reason: how far the result was checked, or the reason why there is no accumulator or no tree.
        excluded: for every accumulator that was tried and gives other bits, operands that show it: ``candidate``,
            ``a``, ``b``, the ``result`` of f, and the ``other`` result. ``is_close`` is True if only the sums that were
            built to break the accumulator showed a difference. Matrix units of other orders are among them. If there is
            no accumulator, the first one is the closest of that order; its ``agreement`` is the number of sums in which
            it agrees with f, and the number of all sums.
        rounding: the rounding mode of the results; None for nearest even.
    """

    accumulator: Accumulator | None
    output: Format | None
    inputs: tuple[Format, Format]
    tree: Tree | None
    reason: str
    excluded: tuple[Exclusion, ...] = ()
    rounding: Rounding | None = None

    @property
    def nearest(self) -> list[Exclusion]:
        """At most three of the excluded accumulators that add in the order of the function, the closest ones first."""
        # If there is no accumulator, the closest ones are the first ones.
        ranked = sorted(self.excluded, key=lambda each: self.accumulator is not None and not each.is_close)
        is_of_order = partial(adds_in_order, inputs=self.inputs, tree=self.tree)
        return list(islice((each for each in ranked if is_of_order(each.candidate.accumulator)), SHOWN))

    def dot(self, a: ArrayLike, b: ArrayLike) -> NDArray[np.floating]:
        """Return the sum of the products of two vectors, added as the function adds them.

        This is :func:`simfloat.dot` with the given inputs, and with the accumulator, output and rounding that were
        found. If the vectors do not have k elements, the accumulator determines the order.

        Parameters:
            a, b: two vectors of equal length.

        Returns:
            The sum, as :func:`simfloat.dot` returns it.

        Raises:
            ValueError: if no accumulator was found.

        Examples:
            >>> ours = sf.reveal(lambda a, b: sf.dot(a, b, accumulate=sf.FP32, output=sf.BF16), 5)
            >>> ours.dot([256.0, 1.0], [1.0, 1.0]), sf.dot([256.0, 1.0], [1.0, 1.0], accumulate=ours.accumulator)
            (array(256.), array(257.))
        """
        if self.accumulator is None:
            raise ValueError(
                f"dot needs an accumulator that gives the bits of the function, but none was found: {self.reason}"
            )
        options: dict[str, Any] = {"output": self.output, "rounding": self.rounding}
        return dot(a, b, inputs=self.inputs, accumulate=self.accumulator, **options)

    def __str__(self) -> str:
        accumulator = "no accumulator"
        if self.accumulator is not None:
            accumulator = str(Candidate(self.accumulator, self.output, self.rounding))
        order = "" if self.tree is None else f"\n  order: {self.tree}"
        lines = [f"{'closest' if isinstance(each, Closest) else 'excluded'}: {each}" for each in self.nearest]
        return "\n  ".join([f"{accumulator}{order}", self.reason, *lines])

    def __repr__(self) -> str:
        return f"<Revealed {self}>"


def reveal(
    f: Callable[[Any, Any], Any],
    k: int,
    *,
    inputs: UnitInputs | None = None,
    seed: int = 0,
    calls: int = MOST_CALLS,
) -> Revealed:
    """Find the order and precision in which a function adds, and a sum that gives the same bits.

    The order is found by FPRev (Xie et al., arXiv 2411.00442). In a sum of ones, one large M and one -M, a one is lost
    exactly if it is added before M and -M cancel. Counting the ones that remain, for several positions of M and -M,
    gives the tree of additions. This takes about k calls of f for a sum from left to right, k log2(k) for most other
    orders, and at most k^2. It takes several times as many if results have too few bits to count k ones.

    Then probes find the bits and the mode of some additions, and f computes random sums: wide exponents, cancellations,
    ties, subnormals, zeros and overflows. Every accumulator of that order, with those bits and that mode, is compared
    with all results of f so far. The result of the whole sum is in its own format or rounded once more (toward zero,
    saturating, flushed to zero). A sum that rounds each step twice, such as to FP32 and then to BF16, is not found.

    If an accumulator fits, f computes sums that are built to break it. Their partial sums and results are numbers of
    its formats, midpoints of two numbers, or close to midpoints. They occur in every binade of the formats and beyond,
    most of them near the ends of the range. The first accumulator that gives all the bits is returned. At most 5000 are
    tried. On a terminal a line shows the progress every two seconds.

    Other accumulators may give the same bits; several generations of tensor cores do. The comparison does not cover
    signs of zero results, infinite operands and NaN, or more than k products. Fixed-point accumulators that
    saturate are candidates; blocks and lanes of them are not. If no sum leaves their range, the narrowest format
    with all sums is returned. Accumulators that wrap, or that return infinity on every overflow, are not candidates.
    Choose k as several blocks of f plus a part of a block, to find how a last short block is added.

    Parameters:
        f: a function; ``f(a, b)`` returns one value, the sum of the products of two vectors of length `k`. It may be an
            element of a BLAS product, your own loop, or a program behind a socket. To analyze a sum, pass ``lambda a,
            b: (a * b).sum()``. It receives new NumPy arrays of values of `inputs`: float32 arrays if the formats fit,
            otherwise float64 arrays. A Python loop ``s += a[i] * b[i]`` over float32 arrays rounds each product and
            each sum to FP32, because NumPy does; over ``a.tolist()`` and ``b.tolist()`` it rounds to FP64.
        k: the number of products, from 2 to 2048.
        inputs: the format of the operands, or a pair of formats for a and b. If f rounds its operands, pass the formats
            that it rounds to. If f takes narrow operands, pass `inputs=` here, and also to the sum inside f: a matrix
            unit aligns a subnormal operand by emin of its format. The default is FP32. If none of the first
            accumulators fits FP32 operands, the search is repeated with the formats to which f rounds its operands, if
            the results show such formats; if they do not, and f returns float16, with FP16.
        seed: the seed of the random sums.
        calls: the maximum number of calls of f; usually some thousands are needed.

    Returns:
        A `Revealed`. Its ``dot(a, b)`` returns the bits of f. The parts of this sum are ``accumulator``, ``output``
        (the format of the results, if f rounds the sums of the accumulator) and ``rounding``. Its `reason` states if
        `calls` was too small. If no accumulator gives all the bits, it prints with the closest one of that order.

    Raises:
        ValueError: if k is not from 2 to 2048; if a format has no sign or no 0, or does not have 1 and 2 as normal
            numbers, such as `fixed(8)`; if f raises an error; if f returns anything except one number; if f returns NaN
            for finite operands of moderate size; if f is not deterministic; if f is not a sum of products.

    Examples:
        >>> ours = sf.reveal(lambda a, b: sf.dot(a, b, accumulate=sf.blocked(8, sf.FP16, sf.FP32)), 29)
        >>> ours.accumulator
        blocked(8, inner=sequential(Format(5, 10, name='FP16')), outer=sequential(Format(8, 23, name='FP32')))
    """
    box = BlackBox(f, _checked_terms(k), _checked_inputs(FP32 if inputs is None else inputs), _checked_calls(calls))
    now = search = _Search(box, seed, calls)

    def progress() -> str:
        return f"reveal: f was called {calls - now.box.calls} times, {len(now.excluded)} accumulators are excluded"

    with status(progress):
        revealed = search.run(MOST_CANDIDATES if inputs is not None else FEW_CANDIDATES)
        if inputs is not None or revealed.accumulator is not None or not box.calls:
            return revealed
        formats, story = _other_operands(box)
        if formats == box.inputs:
            return search.run(MOST_CANDIDATES)
        now = _Search(BlackBox(f, box.terms, formats, box.calls), seed, calls)
        second = now.run(MOST_CANDIDATES)
        box.calls, now = now.box.calls, search
        if second.accumulator is None and box.calls:
            revealed = search.run(MOST_CANDIDATES)
            if revealed.accumulator is not None:
                return revealed
    story = f"{search.verdict} {story} The search was repeated with such operands: {second.reason}"
    return replace(second, reason=story)


def _other_operands(box: BlackBox) -> tuple[tuple[Format, Format], str]:
    """Return the narrower formats of operands that the results indicate, or else those of the box; and the reason."""
    formats = rounded_operands(box)
    if formats != box.inputs:
        return formats, f"As far as the results show, f rounds its operands to {pair_text(formats, str)}."
    if box.result_type == np.float16:
        return (FP16, FP16), "f returns float16."
    return formats, ""


class _Search:
    """A search for the first accumulator that gives all bits, which can continue after some accumulators."""

    def __init__(self, box: BlackBox, seed: int, calls: int) -> None:
        self.box, self._seed, self._calls = box, seed, calls
        self.excluded: list[Exclusion] = []  # accumulators that give other bits
        self._tree: Tree | None = None
        self._evidence: Evidence
        self._order = ""
        self._candidates: Iterator[Candidate] | None = None
        self.verdict = ""  # the result of all accumulators so far

    def run(self, most: int) -> Revealed:
        """Continue until `most` accumulators were tried."""
        box, excluded = self.box, self.excluded
        try:
            if self._candidates is None:
                self._candidates = self._begin()
            for candidate in islice(self._candidates, most - len(excluded)):
                difference = exclusion(candidate, box)
                if difference is None:
                    self.verdict = (
                        f"{_describe_candidate(candidate)} gives the bits of all {box.sum_count} sums that f computed."
                    )
                    return self._conclude(candidate, self.verdict, _describe_type(candidate, box))
                excluded.append(difference)
            is_last_search = most == MOST_CANDIDATES or len(excluded) < most
            if self._tree is not None and is_last_search:
                self._order = f"{self._order} {_describe_permutation(box, self._evidence, self._tree)}".strip()
        except OutOfCalls:
            self.verdict = (
                f"f was called {self._calls} times, the maximum, before an accumulator was confirmed: raise calls."
            )
            return self._conclude(None, self.verdict)
        self.verdict = f"{len(excluded)} accumulators were tried, and each gives other bits." if excluded else NONE
        if excluded and next(self._nearest(), None) is None:
            self.verdict = f"{NONE} {self.verdict.replace(' were', ' of other orders were')}"
        if len(excluded) == MOST_CANDIDATES:
            self.verdict += " No more are tried."
        advice = ""
        if FP32 in box.inputs:
            narrow = results_format(box) or BF16
            advice = f"If f rounds its operands, pass their format, such as inputs=simfloat.{narrow}."
        return self._conclude(None, self.verdict, advice)

    def _begin(self) -> Iterator[Candidate]:
        """Find the order, compute random sums, and return the accumulators of that order."""
        box = self.box
        span = span_of(box)
        self._tree, self._order = _order(box, span)
        self._evidence = evidence_of(box, span, self._tree)
        sample(box, span, self._seed)
        return candidates(self._evidence, self._tree)

    def _conclude(self, candidate: Candidate | None, *story: str) -> Revealed:
        accumulator, output, rounding = candidate or (None, None, None)
        reason = " ".join(filter(None, (self._order, *story)))
        excluded = self.excluded
        nearest = list(islice(self._nearest(), COMPARED)) if candidate is None else []
        if nearest:
            agreements = {each.candidate: count_agreeing(each.candidate, self.box) for each in nearest}
            first, *others = sorted(nearest, key=lambda each: -agreements[each.candidate])
            closest = Closest(*first)
            closest.agreement = agreements[first.candidate], self.box.sum_count
            excluded = [closest, *others, *(each for each in excluded if each.candidate not in agreements)]
        return Revealed(accumulator, output, self.box.inputs, self._tree, reason, tuple(excluded), rounding)

    def _nearest(self) -> Iterator[Exclusion]:
        """Yield the excluded accumulators of the order: first those that agreed in most sums before one differed."""
        numbers = self.box.numbers_of((a, b) for _, a, b, *_ in self.excluded)
        pairs = zip(numbers, self.excluded, strict=True)  # the latest sums are compared first
        for _, nearest in sorted(pairs, key=lambda pair: (not pair[1].is_close, pair[0])):
            if adds_in_order(nearest.candidate.accumulator, self.box.inputs, self._tree):
                yield nearest


def _describe_permutation(box: BlackBox, evidence: Evidence, tree: Tree) -> str:
    """Describe a sum from left to right of permuted operands that gives the bits; the empty text if there is none."""
    for candidate in permuted_chains(evidence, tree):
        if exclusion(candidate, box) is None:
            order = order_text(candidate.places)
            return (
                "f adds one product after the other, but not from the first to the last. simfloat.dot of "
                f"a[{order}] and b[{order}] gives the bits of all {box.sum_count} sums that f computed, with "
                f"{candidate}."
            )
    return ""


def _describe_candidate(candidate: Candidate) -> str:
    """Describe the accumulator, and the output and rounding with which it gives the bits."""
    if candidate.output is None:
        return "The accumulator"
    rounding = "" if candidate.rounding is None else f" and rounding {candidate.rounding}"
    return f"With output {candidate.output}{rounding} the accumulator"


def _describe_type(candidate: Candidate, box: BlackBox) -> str:
    """Describe the arrays that f received if their type may be the reason for the format of the sums."""
    accumulator = candidate.accumulator
    if not (box.returns_float32 and isinstance(accumulator, SequentialSum) and accumulator.format == FP32):
        return ""
    return (
        "f received float32 arrays, and NumPy computes with their elements in FP32: a Python loop over a.tolist() and "
        "b.tolist() computes in FP64."
    )


def _order(box: BlackBox, span: ProductRange) -> tuple[Tree | None, str]:
    """Return the tree, or None and the reason."""
    try:
        return find_order(box, span), ""
    except OrderNotFound:
        return None, "No probe lost a bit: the sum is exact, or such operands are summed exactly in any order."
    except ContradictoryProbes as failure:
        return None, f"No order of additions gives the results of the probes: {failure}."


def _checked_terms(k: Any) -> int:
    if not is_integer(k, 2, MOST_TERMS):
        raise ValueError(f"k, the number of products, must be an integer from 2 to {MOST_TERMS}, got {k!r}.")
    return int(k)


def _checked_calls(calls: Any) -> int:
    if not is_integer(calls, 1):
        raise ValueError(f"calls, the maximum number of calls of f, must be a positive integer, got {calls!r}.")
    return int(calls)


def _checked_inputs(inputs: UnitInputs) -> tuple[Format, Format]:
    formats = as_formats(inputs)
    for format in formats:
        if not (format.signed and format.has_zero and format.emin <= 0 < format.emax):
            raise ValueError(
                f"inputs must be formats with a sign, 0, and 1 and 2 as normal numbers, got {format}. For a function "
                "of integers, pass simfloat.Format(3, 0, bias=1, special='finite'): 0, +-1, +-2, +-4, ..., +-64."
            )
    return formats


__all__ = ["reveal", "reveal_rounding"]
