"""Sums in an order of one's own, and in NumPy's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.bounds import Bounds
from simfloat.accumulate.engine import Engine
from simfloat.accumulate.nesting import ADD, in_postfix, program_of, text_of
from simfloat.accumulate.one_format import InOneFormat
from simfloat.accumulate.operand_bounds import Problem
from simfloat.arithmetic.loops import Loop
from simfloat.arithmetic.machines import Machine
from simfloat.formats import as_format, nearest_even
from simfloat.formats.format_names import FormatLike
from simfloat.formats.rounding import RoundingLike, as_rounding

#: Of NumPy's order: numbers from which on a sum is cut in two, and sums that are under way at once below.
LARGEST, LANES = 128, 8


def tree(nesting: Any, format: FormatLike, rounding: RoundingLike = nearest_even) -> TreeSum:
    """Products rounded to `format`, then added in the order of a tree, each sum rounded to it.

    `nesting` is the order: nested tuples of the numbers of products, ``((0, 1), (2, 3))``, where a tuple of more than
    two is added from left to right; or a text such as ``"0 + 1 + (2 + 3)"`` or ``"0 + 1 + ... + 63"``; or the `tree`
    that :func:`simfloat.reveal` found. Each product from 0 on occurs once, and a sum has just so many.

    Raises ValueError for an order that misses or repeats a product; when it is used, for another number of products;
    and as :func:`simfloat.pairwise`.

    Examples:
        >>> x = [2048.0, 1.0, 1.0, 1.0]
        >>> sf.sum(x, accumulate=sf.FP16), sf.sum(x, accumulate=sf.tree("0 + (1 + (2 + 3))", sf.FP16))
        (array(2048.), array(2052.))
    """
    return TreeSum(as_format(format), rounding=as_rounding(rounding), nesting=text_of(in_postfix(nesting)))


def numpy_sum(format: FormatLike, rounding: RoundingLike = nearest_even) -> NumPySum:
    """Products rounded to `format`, then added in the order of np.sum, each sum rounded to it.

    That is NumPy's order for contiguous numbers of one type: fewer than 8 one after the other; up to 128 in eight sums
    that take every eighth number, which are added as a tree, and a rest after them; more in two halves, the left one a
    multiple of 8. The total is added to 0, so it is never -0. NumPy sums FP16 in FP32, and other axes than the last one
    row by row, in the order of :func:`simfloat.sequential`.

    Raises ValueError as :func:`simfloat.pairwise`.

    Examples:
        >>> x = np.random.default_rng(0).standard_normal(10000).astype(np.float32)
        >>> sf.sum(x, accumulate=sf.numpy_sum(sf.FP32)) == np.sum(x)
        np.True_
    """
    return NumPySum(as_format(format), rounding=as_rounding(rounding))


@dataclass(frozen=True, repr=False)
class InTreeOrder(InOneFormat):
    """A sum of products in the order of a program."""

    __hash__ = InOneFormat.__hash__
    stages: ClassVar[int] = 2  # the sums, then the products

    @classmethod
    def loops(cls, machine: Machine) -> Mapping[str, Loop]:
        return machine.loops.tree_loops.loops

    @abstractmethod
    def arguments(self, terms: int) -> tuple[NDArray[np.int64], ...]:
        """The program; ValueError where there is none for so many products."""

    @abstractmethod
    def order(self, terms: int) -> list[int]:
        """The order of so many products in postfix form; number `terms` is the zero that sums start from."""

    def engine(self, problem: Problem) -> Engine:
        """The loop, if there is an order for so many products."""
        self.arguments(problem.depth)
        return super().engine(problem)

    def high(self, added: Bounds, terms: int, initial: Bounds | None) -> int:
        """Modes to nearest and toward zero at most double what a term adds; others are bounded as for a chain."""
        outward = None if self.rounding.is_to_nearest or self.rounding.is_toward_zero else self.format
        return added.summed(terms, outward).high


@dataclass(frozen=True, repr=False)
class TreeSum(InTreeOrder):
    """See :func:`tree`."""

    nesting: str = field(kw_only=True)

    __hash__ = InOneFormat.__hash__
    maker: ClassVar[str] = "tree"

    def arguments(self, terms: int) -> tuple[NDArray[np.int64], ...]:
        program = _own_program(self.nesting)
        if terms != (len(program) + 1) // 2:
            raise ValueError(
                f"The tree of {self} adds {(len(program) + 1) // 2} products, got {terms}. Sums of any length are "
                "pairwise, numpy_sum and sequential; blocked and lanes make them of trees."
            )
        return (program,)

    def order(self, terms: int) -> list[int]:
        return in_postfix(self.nesting)

    def _call(self, write: Callable[[Any], str]) -> str:
        rounding = "" if self.rounding == nearest_even else f", rounding={self.rounding!r}"
        return f"tree({self.nesting!r}, {write(self.format)}{rounding})"


@dataclass(frozen=True, repr=False)
class NumPySum(InTreeOrder):
    """See :func:`numpy_sum`."""

    __hash__ = InOneFormat.__hash__
    maker: ClassVar[str] = "numpy_sum"

    def arguments(self, terms: int) -> tuple[NDArray[np.int64], ...]:
        return (_program_of_numpy(terms),)

    def order(self, terms: int) -> list[int]:
        return _postfix_of_numpy(terms)


@lru_cache(maxsize=64)
def _own_program(nesting: str) -> NDArray[np.int64]:
    return np.array(program_of(in_postfix(nesting)))


@lru_cache(maxsize=64)
def _program_of_numpy(terms: int) -> NDArray[np.int64]:
    return np.array(program_of(_postfix_of_numpy(terms)) if terms else [0])


def _postfix_of_numpy(terms: int) -> list[int]:
    """NumPy's order. Term number `terms`, beyond the last, is the zero that it starts from."""
    return [terms, *numpys_order(0, terms), ADD] if terms else [0]


def numpys_order(first: int, stop: int) -> list[int]:
    """How NumPy adds the numbers from `first` to `stop` - 1, in postfix form: `pairwise_sum` of its loops."""
    count = stop - first
    if count > LARGEST:
        middle = first + count // 2 - count // 2 % LANES
        return [*numpys_order(first, middle), *numpys_order(middle, stop), ADD]
    whole = count - count % LANES if count >= LANES else 0
    lanes = [_chain(range(first + lane, first + whole, LANES)) for lane in range(LANES)] if whole else []
    while len(lanes) > 1:
        lanes = [[*left, *right, ADD] for left, right in zip(lanes[::2], lanes[1::2], strict=True)]
    rest = range(first + whole, stop)
    return [*lanes[0], *(x for k in rest for x in (k, ADD))] if lanes else _chain(rest)


def _chain(terms: range) -> list[int]:
    """One after the other."""
    return [terms[0], *(x for k in terms[1:] for x in (k, ADD))]
