"""Probes of a function, and the order of a sum as a tree.

A probe is a sum of chosen products, remembered and counted. The leaves of a tree are the products, and each node is an
addition of two or more.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.operands import as_operand
from simfloat.formats import Format, nearest_even
from simfloat.formats.definition import round_value
from simfloat.sums.trees import join_operands

#: Rows of the first batch of sums, and of later ones at most.
FIRST_ROWS, MOST_ROWS = 32, 512

#: Sums of more products are remembered compressed.
SHORT = 64

#: How often a function is called at most, unless the user says otherwise.
MOST_CALLS = 100_000


class ContradictoryProbes(Exception):
    """The results of probes are those of no order of additions."""


class OutOfCalls(Exception):
    """The function was called as often as it may be."""


class Sums(NamedTuple):
    """Operands, (rows, terms) each, and what the function gives for each row."""

    a: NDArray
    b: NDArray
    results: NDArray[np.float64]


class BlackBox:
    """A function of two vectors of length `terms`, numbers of two formats, that returns the sum of their products.

    It remembers all that it was asked, and may be called so many times.
    """

    def __init__(
        self, function: Callable[[Any, Any], Any], terms: int, inputs: tuple[Format, Format], calls: int = MOST_CALLS
    ) -> None:
        self.function, self.terms, self.inputs, self.calls = function, terms, inputs, calls
        self._factors: dict[float, tuple[float, float] | None] = {}
        self._dtypes = tuple(np.dtype(np.float32 if format.fits_float32 else np.float64) for format in inputs)
        # Most probes of long sums are ones but for two places: compressed, millions of numbers take little.
        self._answers: dict[bytes, float] = {}

    def __call__(self, a: NDArray, b: NDArray) -> float:
        """What the function returned for two vectors, when it was asked first."""
        x, y = (np.asarray(v, dtype) for v, dtype in zip((a, b), self._dtypes, strict=True))
        operands = x.tobytes() + y.tobytes()
        if self.terms > SHORT:
            operands = zlib.compress(operands, 1)
        if operands not in self._answers:
            self._answers[operands] = self.call_function(x, y)
        return self._answers[operands]

    @property
    def sum_count(self) -> int:
        """How many sums it was asked for."""
        return len(self._answers)

    def sums(self) -> Iterator[Sums]:
        """All that it was asked for, the last first, in batches that grow."""
        operands = tuple(reversed(self._answers))
        start = 0
        while start < len(operands):
            batch = operands[start : 2 * start + FIRST_ROWS][:MOST_ROWS]
            a, b = _unpack_rows(batch, self.terms, self._dtypes)
            yield Sums(a, b, np.array([self._answers[row] for row in batch]))
            start += len(batch)

    def call_function(self, a: NDArray, b: NDArray) -> float:
        """What the function returns for two vectors.

        Raises ValueError if that is no number, or if it raises, and OutOfCalls if it may not be called any more.
        """
        if self.calls == 0:
            raise OutOfCalls
        self.calls -= 1
        x, y = (np.array(v, dtype) for v, dtype in zip((a, b), self._dtypes, strict=True))
        try:
            with np.errstate(all="ignore"):
                result = self.function(x, y)
        except Exception as error:
            types = " and ".join(dict.fromkeys(map(str, self._dtypes)))
            raise ValueError(
                f"f must take two {types} vectors of length {self.terms}; it raised {type(error).__name__}: {error}"
            ) from error
        number = as_operand(result, "f(a, b)")
        if number.ndim:
            raise ValueError(f"f must return one number, as result[0, 0] or result.item(); got shape {number.shape}.")
        return float(number)

    def products(self, values: Mapping[int, float]) -> float:
        """The sum of these products at their places, and of zeros elsewhere."""
        a, b = np.zeros(self.terms), np.zeros(self.terms)
        for place, value in values.items():
            factors = self.factors(value)
            if factors is None:
                raise ContradictoryProbes(f"{value!r} is no product of numbers of the operands' formats")
            a[place], b[place] = factors
        return self(a, b)

    def factors(self, value: float) -> tuple[float, float] | None:
        """Two numbers of the operands' formats whose product is `value`, b a power of two near 1; None if none are."""
        if value not in self._factors:
            self._factors[value] = self._find_factors(value)
        return self._factors[value]

    def _find_factors(self, value: float) -> tuple[float, float] | None:
        first, second = self.inputs
        exponent = math.frexp(value)[1] - 1
        for least in (first.emin, first.emin - first.mantissa_bits):
            shift = exponent - min(max(exponent, least), first.emax)
            a, b = math.ldexp(value, -shift), 2.0**shift
            if _is_number(a, first) and _is_number(b, second):
                return a, b
        return None


@lru_cache(maxsize=8)
def _unpack_rows(rows: tuple[bytes, ...], terms: int, dtypes: tuple[np.dtype, np.dtype]) -> tuple[NDArray, NDArray]:
    """Operands (rows, terms) from what is remembered of them; many candidates ask for the same."""
    raw = [zlib.decompress(row) for row in rows] if terms > SHORT else rows
    split = terms * dtypes[0].itemsize
    a, b = (b"".join(part) for part in ([row[:split] for row in raw], [row[split:] for row in raw]))
    return np.frombuffer(a, dtypes[0]).reshape(-1, terms), np.frombuffer(b, dtypes[1]).reshape(-1, terms)


def _is_number(x: float, format: Format) -> bool:
    return round_value(x, format, nearest_even) == x


def last(holds: Callable[[int], bool], start: int, stop: int) -> int:
    """The last n from start to stop for which a property holds that holds up to some n; start - 1 if it never does."""
    low, high = start - 1, stop
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


class ProductRange(NamedTuple):
    """The least and the largest power of two that a single product may be and be returned unchanged."""

    low: int
    high: int


def span_of(box: BlackBox) -> ProductRange:
    """The span of a function's sums. Raises ValueError if it does not return single products."""
    for place in range(box.terms):
        for a, b in ((1.0, 1.0), (2.0, 1.0), (1.0, -2.0)):
            x, y = np.zeros(box.terms), np.zeros(box.terms)
            x[place], y[place] = a, b
            result = box(x, y)
            if result != a * b:
                raise ValueError(
                    f"f must return the sum of the products of its vectors; for the single product {a} * {b} at place "
                    f"{place} it returned {result!r}. Pass a sum as lambda a, b: (a * b).sum()."
                )
    first, second = box.inputs

    def returns(exponent: int) -> bool:
        value = math.ldexp(1.0, exponent)
        return value > 0.0 and box.factors(value) is not None and box.products({0: value}) == value

    high = last(returns, 0, min(first.emax + second.emax, 1023))
    lowest = first.emin - first.mantissa_bits + second.emin - second.mantissa_bits
    low = -last(lambda down: returns(-down), 0, min(-lowest, 1074))
    return ProductRange(low, high)


#: The longest text of a tree; what is longer loses its middle.
LONGEST = 400


@dataclass(frozen=True, repr=False)
class Tree:
    """An order of additions.

    Leaves are the numbers 0 to `terms` - 1, the places of the products. Node n of `nodes` has the number terms + n; it
    adds the leaves and nodes that it lists, at once if there are more than two, as the units of matrices do. The last
    node is the whole sum. Two trees are equal if and only if they add in the same order: addition is commutative, so
    of two operands the larger subtree comes first, then the one with the lower leaf.

    Its text is a sum from left to right, ``0 + 1 + (2 + 3)``, with what is added at once in brackets, ``[0 1 2 3]``,
    and long runs cut short, ``0 + 1 + ... + 63``.
    """

    terms: int
    nodes: tuple[tuple[int, ...], ...]

    @property
    def root(self) -> int:
        """The whole sum."""
        return self.terms + len(self.nodes) - 1

    def children(self, place: int) -> tuple[int, ...]:
        """What a node adds; nothing for a leaf."""
        return () if place < self.terms else self.nodes[place - self.terms]

    def leaves(self) -> list[list[int]]:
        """The leaves below each leaf and node, in ascending order."""
        below = [[leaf] for leaf in range(self.terms)]
        for node in self.nodes:
            below.append(sorted(leaf for child in node for leaf in below[child]))
        return below

    def parents(self) -> dict[int, int]:
        """The node that adds each leaf and node but the root."""
        return {child: self.terms + n for n, node in enumerate(self.nodes) for child in node}

    @property
    def text(self) -> str:
        """The whole text, however long."""
        return join_operands(_parts(self, self.root), " + ")

    def __str__(self) -> str:
        text = self.text
        return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"

    def __repr__(self) -> str:
        return f"<Tree of {self.terms} terms: {self}>"


class Builder:
    """A tree in the making: nodes are added from the leaves upwards."""

    def __init__(self, terms: int) -> None:
        self.terms = terms
        self._nodes: list[Sequence[int]] = []

    def add(self, children: Sequence[int]) -> int:
        """The node that adds `children`; one alone is itself."""
        if len(children) == 1:
            return children[0]
        self._nodes.append(children)
        return self.terms + len(self._nodes) - 1

    def children(self, place: int) -> Sequence[int]:
        """What a node adds."""
        return self._nodes[place - self.terms]

    def tree(self, root: int) -> Tree:
        """The tree below `root`, whose leaves are 0 to terms - 1, in the one form that trees of its order have."""
        size, least = [1] * self.terms, list(range(self.terms))
        ordered: list[list[int]] = []
        for node in self._nodes:
            children = sorted(node, key=lambda child: (-size[child], least[child]))
            ordered.append(children)
            size.append(sum(size[child] for child in children))
            least.append(min(least[child] for child in children))
        number: dict[int, int] = {leaf: leaf for leaf in range(self.terms)}
        nodes: list[tuple[int, ...]] = []
        waiting = [root]
        while waiting:
            place = waiting[-1]
            children = [] if place < self.terms else ordered[place - self.terms]
            missing = [child for child in children if child not in number]
            if missing:
                waiting.extend(reversed(missing))
                continue
            waiting.pop()
            if place not in number:
                number[place] = self.terms + len(nodes)
                nodes.append(tuple(number[child] for child in children))
        return Tree(self.terms, tuple(nodes))


def subtree(tree: Tree, roots: Sequence[int], top: int) -> Tree:
    """The part of a tree from `top` down to `roots`, which become its leaves in the order given."""
    builder = Builder(len(roots))
    number = {root: leaf for leaf, root in enumerate(roots)}
    inside = {top}
    for place in range(top, tree.terms - 1, -1):
        if place in inside and place not in number:
            inside.update(tree.children(place))
    for place in sorted(inside - set(number)):
        number[place] = builder.add([number[child] for child in tree.children(place)])
    return builder.tree(number[top])


def _parts(tree: Tree, place: int) -> list[int | str]:
    """The operands of a subtree's sum from left to right: leaves, and texts."""
    # The first child is the largest, so only paths to others are recursed into, log2(terms) deep at most.
    spine: list[tuple[int, ...]] = []
    while children := tree.children(place):
        spine.append(children[1:])
        place = children[0]
    parts: list[int | str] = [place]
    for operands in reversed(spine):
        others = [_part(_parts(tree, child)) for child in operands]
        parts = [*parts, *others] if len(operands) == 1 else [f"[{join_operands([_part(parts), *others], ' ')}]"]
    return parts


def _part(parts: list[int | str]) -> int | str:
    """A sum as an operand of another one."""
    return parts[0] if len(parts) == 1 else f"({join_operands(parts, ' + ')})"
