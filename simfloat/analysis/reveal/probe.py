"""Probe a function with sums of chosen products, and represent the order of a sum as a tree.

The results of probes are cached and the calls are counted. The leaves of a tree are the products; each node is an
addition of two or more operands.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.operands import as_operand
from simfloat.formats import Format, nearest_even
from simfloat.formats.definition import round_value
from simfloat.sums.trees import join_operands

#: The number of rows of the first batch of sums, and the maximum of later batches.
FIRST_ROWS, MOST_ROWS = 32, 512

#: Sums of more products are cached in compressed form.
SHORT = 64

#: The default of the maximum number of calls of a function.
MOST_CALLS = 100_000


#: The advice for a function that does not take two vectors.
ONE_VECTOR = "For a function f(x) of one vector, such as numpy.sum, pass lambda a, b: f(a * b)."


class ContradictoryProbes(Exception):
    """No order of additions has the results of the probes."""


class OutOfCalls(Exception):
    """The maximum number of calls is reached."""


def failure_message(types: str, terms: int, error: Exception, advice: str = ONE_VECTOR) -> str:
    """Return the message for a function that raised an error when it was called with two vectors."""
    return f"f must take two {types} vectors of length {terms}; it raised {type(error).__name__}: {error}. {advice}"


class Sums(NamedTuple):
    """Operands of shape (rows, terms), and the result of the function for each row."""

    a: NDArray
    b: NDArray
    results: NDArray[np.float64]


class BlackBox:
    """A function of two vectors of length `terms` in two formats, which returns the sum of their products.

    It caches all results, and allows `calls` calls.
    """

    def __init__(
        self, function: Callable[[Any, Any], Any], terms: int, inputs: tuple[Format, Format], calls: int = MOST_CALLS
    ) -> None:
        self.function, self.terms, self.inputs, self.calls = function, terms, inputs, calls
        self.result_type: np.dtype | None = None  # NumPy's type of the last result, if it had one
        self.returns_float32 = False  # True if the last result was a number of NumPy in float32
        self._factors: dict[float, tuple[float, float] | None] = {}
        self._dtypes = tuple(np.dtype(np.float32 if format.fits_float32 else np.float64) for format in inputs)
        # Most probes of long sums are ones, except in two positions. Compression stores millions of values in little
        # memory.
        self._answers: dict[bytes, float] = {}

    def __call__(self, a: NDArray, b: NDArray) -> float:
        """Return the result of the function for two vectors, from the cache if it is there."""
        row = self._row(a, b)
        if row not in self._answers:
            self._answers[row] = self.call_function(a, b)
        return self._answers[row]

    def _row(self, a: NDArray, b: NDArray) -> bytes:
        """Return two vectors in their cached form."""
        row = b"".join(np.asarray(v, dtype).tobytes() for v, dtype in zip((a, b), self._dtypes, strict=True))
        return zlib.compress(row, 1) if self.terms > SHORT else row

    def numbers_of(self, operands: Iterable[tuple[NDArray, NDArray]]) -> list[int]:
        """Return for each pair of vectors the number of sums that were computed before their sum."""
        numbers = {row: number for number, row in enumerate(self._answers)}
        return [numbers[self._row(a, b)] for a, b in operands]

    @property
    def sum_count(self) -> int:
        """The number of different sums that were computed."""
        return len(self._answers)

    def sums(self) -> Iterator[Sums]:
        """Yield all computed sums, the latest first, in batches of increasing size."""
        operands = tuple(reversed(self._answers))
        start = 0
        while start < len(operands):
            batch = operands[start : 2 * start + FIRST_ROWS][:MOST_ROWS]
            a, b = _unpack_rows(batch, self.terms, self._dtypes)
            yield Sums(a, b, np.array([self._answers[row] for row in batch]))
            start += len(batch)

    def call_function(self, a: NDArray, b: NDArray) -> float:
        """Call the function for two vectors, and return its result.

        Raises ValueError if the function raises an error or returns anything except one number, and OutOfCalls if no
        calls are left.
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
            advice = ONE_VECTOR
            with np.errstate(all="ignore"):
                if not np.isfinite(x * y).all():
                    advice = (
                        f"Some products overflow in {np.result_type(x, y)}: multiply Python floats, as in lambda a, b: "
                        "f([x * y for x, y in zip(a.tolist(), b.tolist())])."
                    )
                elif isinstance(error, OverflowError):
                    advice = "If a sum overflows, f must return an infinity."
            raise ValueError(failure_message(types, self.terms, error, advice)) from error
        self.result_type = getattr(result, "dtype", None)
        self.returns_float32 = isinstance(result, np.float32)
        number = as_operand(result, "f(a, b)")
        if number.ndim:
            advice = ""
            if self.terms in number.shape:
                advice = (
                    " A result for each product is no sum: pass lambda a, b: (a * b).sum(), or lambda a, b: f(a * b) "
                    "for a function f(x) of one vector."
                )
            raise ValueError(
                f"f must return one number, as result[0, 0] or result.item(); got shape {number.shape}.{advice}"
            )
        return float(number)

    def products(self, values: Mapping[int, float]) -> float:
        """Return the sum of these products at their positions, and zeros elsewhere."""
        a, b = np.zeros(self.terms), np.zeros(self.terms)
        for place, value in values.items():
            factors = self.factors(value)
            if factors is None:
                raise ContradictoryProbes(f"{value!r} is not a product of two numbers in the formats of the operands")
            a[place], b[place] = factors
        return self(a, b)

    def factors(self, value: float) -> tuple[float, float] | None:
        """Return two numbers in the formats of the operands with the product `value`; None if they do not exist.

        The second one is a power of two near 1.
        """
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
    """Return operands (rows, terms) from their cached form. Many candidates use the same operands."""
    raw = [zlib.decompress(row) for row in rows] if terms > SHORT else rows
    split = terms * dtypes[0].itemsize
    a, b = (b"".join(part) for part in ([row[:split] for row in raw], [row[split:] for row in raw]))
    return np.frombuffer(a, dtypes[0]).reshape(-1, terms), np.frombuffer(b, dtypes[1]).reshape(-1, terms)


def _is_number(x: float, format: Format) -> bool:
    return round_value(x, format, nearest_even) == x


def last(holds: Callable[[int], bool], start: int, stop: int) -> int:
    """Return the last n from start to stop for which a monotonic property is true; start - 1 if it never is."""
    low, high = start - 1, stop
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


class ProductRange(NamedTuple):
    """The smallest and the largest power of two that the function returns unchanged as a single product."""

    low: int
    high: int


def span_of(box: BlackBox) -> ProductRange:
    """Return the span of the sums of a function. Raises ValueError if it does not return single products."""
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


#: The maximum length of the text of a tree; a longer text loses its middle.
LONGEST = 400


@dataclass(frozen=True, repr=False)
class Tree:
    """An order of additions.

    The leaves are the numbers 0 to `terms` - 1, the positions of the products. Node n of `nodes` has the number terms +
    n. It adds the leaves and nodes that it lists; if there are more than two, it adds them at once, as matrix units do.
    The last node is the whole sum.

    Two trees are equal if and only if they add in the same order. Addition is commutative, so the larger of two
    operands comes first, and of two equally large ones the one with the lower leaf.

    The text of a tree is a sum from left to right, ``0 + 1 + (2 + 3)``. Operands that are added at once are in
    brackets, ``[0 1 2 3]``, and long runs are shortened, ``0 + 1 + ... + 63``.

    Parameters:
        terms: the number of products.
        nodes: for each node, the leaves and nodes that it adds.
    """

    terms: int
    nodes: tuple[tuple[int, ...], ...]

    @property
    def root(self) -> int:
        """The number of the node that is the whole sum."""
        return self.terms + len(self.nodes) - 1

    def children(self, place: int) -> tuple[int, ...]:
        """Return the operands of a node; none for a leaf."""
        return () if place < self.terms else self.nodes[place - self.terms]

    def leaves(self) -> list[list[int]]:
        """Return the leaves below each leaf and node, in ascending order."""
        below = [[leaf] for leaf in range(self.terms)]
        for node in self.nodes:
            below.append(sorted(leaf for child in node for leaf in below[child]))
        return below

    def parents(self) -> dict[int, int]:
        """Return for each leaf and node, except the root, the node that adds it."""
        return {child: self.terms + n for n, node in enumerate(self.nodes) for child in node}

    @property
    def text(self) -> str:
        """The full text, without a maximum length."""
        return join_operands(_parts(self, self.root), " + ")

    def __str__(self) -> str:
        text = self.text
        return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"

    def __repr__(self) -> str:
        return f"<Tree of {self.terms} terms: {self}>"


class Builder:
    """A tree under construction: nodes are added from the leaves upwards."""

    def __init__(self, terms: int) -> None:
        self.terms = terms
        self._nodes: list[Sequence[int]] = []

    def add(self, children: Sequence[int]) -> int:
        """Return the node that adds `children`; a single child is returned itself."""
        if len(children) == 1:
            return children[0]
        self._nodes.append(children)
        return self.terms + len(self._nodes) - 1

    def children(self, place: int) -> Sequence[int]:
        """Return the operands of a node."""
        return self._nodes[place - self.terms]

    def tree(self, root: int) -> Tree:
        """Return the tree below `root`, with the leaves 0 to terms - 1, in the normal form of its order."""
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
    """Return the part of a tree from `top` down to `roots`, which become its leaves in the given order."""
    builder = Builder(len(roots))
    number = {root: leaf for leaf, root in enumerate(roots)}
    inside = {top}
    for place in range(top, tree.terms - 1, -1):
        if place in inside and place not in number:
            inside.update(tree.children(place))
    for place in sorted(inside - set(number)):
        number[place] = builder.add([number[child] for child in tree.children(place)])
    return builder.tree(number[top])


def first_part(tree: Tree, terms: int) -> Tree:
    """Return the order in which a tree adds its first products, if the other ones are absent."""
    builder = Builder(terms)
    number = {leaf: leaf for leaf in range(terms)}
    for place, node in enumerate(tree.nodes, start=tree.terms):
        children = [number[child] for child in node if child in number]
        if children:
            number[place] = builder.add(children)
    return builder.tree(number[tree.root])


def _parts(tree: Tree, place: int) -> list[int | str]:
    """Return the operands of the sum of a subtree from left to right: leaves, and texts."""
    # The first child is the largest, so the recursion visits only the paths to the other ones, log2(terms) deep at
    # most.
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
    """Write a sum as an operand of another one."""
    return parts[0] if len(parts) == 1 else f"({join_operands(parts, ' + ')})"
