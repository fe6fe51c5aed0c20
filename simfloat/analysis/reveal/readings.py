"""Find orders of accumulators that fit a tree: sequential, pairwise, NumPy's order, chunks, runs and lanes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from simfloat.analysis.reveal.order import MOST_LANES
from simfloat.analysis.reveal.probe import Builder, Tree, subtree
from simfloat.sums.libraries import ORDERS, Places
from simfloat.sums.trees import ADD, as_postfix, numpys_order


class Chain(NamedTuple):
    """One product after the other, from the first to the last."""

    def add(self, builder: Builder, places: Sequence[int]) -> int:
        """Return the node that is the sum of `places`."""
        return Chunks(1).add(builder, places)

    def __str__(self) -> str:
        return "from left to right"


class Pairs(NamedTuple):
    """Neighbours, level by level; an odd last one moves up unchanged."""

    def add(self, builder: Builder, places: Sequence[int]) -> int:
        """Return the node that is the sum of `places`."""
        while len(places) > 1:
            places = [builder.add(places[n : n + 2]) for n in range(0, len(places), 2)]
        return places[0]

    def __str__(self) -> str:
        return "pairwise"


class LikeNumPy(NamedTuple):
    """The order of np.sum."""

    def add(self, builder: Builder, places: Sequence[int]) -> int:
        """Return the node that is the sum of `places`."""
        return _add_in_postfix(builder, places, numpys_order(0, len(places)))

    def __str__(self) -> str:
        return "as np.sum"


class LikeLibrary(NamedTuple):
    """The order of a library's dot product."""

    name: str

    def add(self, builder: Builder, places: Sequence[int]) -> int:
        """Return the node that is the sum of `places`."""
        return int(ORDERS[self.name](_Nodes(builder, places), len(places))[0])

    def __str__(self) -> str:
        return f"as {self.name}"


class InOrder(NamedTuple):
    """The order of a text, in the notation of `simfloat.tree`."""

    text: str

    def add(self, builder: Builder, places: Sequence[int]) -> int:
        """Return the node that is the sum of `places`."""
        postfix = as_postfix(self.text)
        if len(postfix) != 2 * len(places) - 1:
            raise LookupError(f"This order adds {len(postfix) // 2 + 1} products.")
        return _add_in_postfix(builder, places, postfix)

    def __str__(self) -> str:
        return f"in the order {self.text}"


class Chunks(NamedTuple):
    """Chunks of `terms` products, each added at once together with the sum of the chunks before."""

    terms: int

    def add(self, builder: Builder, places: Sequence[int]) -> int:
        """Return the node that is the sum of `places`."""
        node = builder.add(places[: self.terms])
        for start in range(self.terms, len(places), self.terms):
            node = builder.add([node, *places[start : start + self.terms]])
        return node

    def __str__(self) -> str:
        return f"{self.terms} at once"


class Runs(NamedTuple):
    """Runs of `size` products in one order, and their sums in another."""

    size: int
    inner: Reading
    outer: Reading

    def add(self, builder: Builder, places: Sequence[int]) -> int:
        """Return the node that is the sum of `places`."""
        runs = [places[start : start + self.size] for start in range(0, len(places), self.size)]
        return self.outer.add(builder, [self.inner.add(builder, run) for run in runs])

    def part_size(self, terms: int) -> int:
        """Return the number of products of a run."""
        return min(self.size, terms)

    def __str__(self) -> str:
        return f"runs of {self.size} {self.inner}, their sums {self.outer}"


class Strided(NamedTuple):
    """Lanes of every `lanes`-th product in one order, and the sums of the lanes in another."""

    lanes: int
    inner: Reading
    outer: Reading

    def add(self, builder: Builder, places: Sequence[int]) -> int:
        """Return the node that is the sum of `places`."""
        parts = [places[lane :: self.lanes] for lane in range(min(self.lanes, len(places)))]
        return self.outer.add(builder, [self.inner.add(builder, part) for part in parts])

    def part_size(self, terms: int) -> int:
        """Return the number of products of the longest lane, of `terms` products."""
        return -(-terms // self.lanes)

    def __str__(self) -> str:
        return f"{self.lanes} lanes {self.inner}, their sums {self.outer}"


Reading: TypeAlias = Chain | Pairs | LikeNumPy | LikeLibrary | InOrder | Chunks | Runs | Strided

#: Maximum nesting depth of runs and lanes in the search.
DEPTH = 2

#: The sum of no products, which has no node.
NOTHING = -1


def chain_order(tree: Tree) -> list[int] | None:
    """Return the positions of products in the order of a tree that adds one after the other; None for other trees."""
    order: list[int] = []
    place = tree.root
    while place >= tree.terms:
        rest, *added = tree.children(place)
        if len(added) != 1 or added[0] >= tree.terms:
            return None
        order.append(added[0])
        place = rest
    return [place, *reversed(order)]


def readings_of(tree: Tree, nested: int = DEPTH) -> Iterator[Reading]:
    """Return the orders of accumulators that add as the tree does, the simplest ones first.

    Runs are nested at most `nested` deep. The explicit order of the tree comes last, only if no other order fits and no
    node adds more than two operands. For parts of another order it comes before runs and lanes, because there are many
    kinds of these for a halving of 32 lanes.
    """
    # a library's order is never a part of another order
    libraries = map(LikeLibrary, ORDERS if nested == DEPTH else ())
    simple: list[Reading] = [Chain(), Pairs(), LikeNumPy(), *libraries, *_chunks(tree)]
    fitting = [reading for reading in simple if tree_of(reading, tree.terms) == tree]
    is_binary, in_order = all(len(node) == 2 for node in tree.nodes), InOrder(tree.text)
    if not fitting and is_binary and nested < DEPTH:
        fitting.append(in_order)
    if nested:
        fitting += [*_runs(tree, nested - 1), *_lanes(tree, nested - 1)]
    if not fitting and is_binary:
        fitting.append(in_order)
    return iter(fitting)


def depth_of(reading: Reading) -> int:
    """Return the nesting depth of runs and lanes."""
    return 1 + max(depth_of(reading.inner), depth_of(reading.outer)) if isinstance(reading, Runs | Strided) else 0


def is_same_order(reading: Reading, other: Reading, terms: int) -> bool:
    """True if both readings add `terms` products in the same order."""
    return tree_of(reading, terms) == tree_of(other, terms)


def tree_of(reading: Reading, terms: int) -> Tree | None:
    """Return the tree of `terms` products; None if the order is for another number of products."""
    builder = Builder(terms)
    try:
        return builder.tree(reading.add(builder, range(terms)))
    except LookupError:
        return None


def _add_in_postfix(builder: Builder, places: Sequence[int], postfix: Sequence[int]) -> int:
    """Return the node that is the sum of `places` in an order in postfix form."""
    waiting: list[int] = []
    for k in postfix:
        if k == ADD:
            right = waiting.pop()
            waiting[-1] = builder.add([waiting[-1], right])
        else:
            waiting.append(places[k])
    return waiting[0]


class _Nodes(NamedTuple):
    """The sums of a library as nodes of a tree: registers are arrays of shape (lanes,)."""

    builder: Builder
    places: Sequence[int]

    def chain(self, places: Places, start: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Return the nodes of the products of every lane."""
        nodes = np.full(places.runs * places.lanes, NOTHING) if start is None else start.copy()
        for step in places.indices():
            leaves = [self.places[k] if k < len(self.places) else NOTHING for k in step]
            nodes = self.add(nodes, np.array(leaves))
        return nodes

    def add(self, x: NDArray[np.int64], y: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the nodes that add pairs of nodes."""
        pairs = ([int(k) for k in pair if k != NOTHING] for pair in zip(x, y, strict=True))
        return np.array([self.builder.add(pair) if pair else NOTHING for pair in pairs], np.int64)

    def chain_rounded_products(self, places: Places, x: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add as `chain` does: nodes do not describe the rounding of products."""
        return self.chain(places, x)

    def chain_in_double(self, places: Places, x: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add as `chain` does: nodes do not describe precision."""
        return self.add(self.chain(places), x)


def _chunks(tree: Tree) -> list[Chunks]:
    """Return chunks with the length of the first sum of several products at once."""
    arity = next((len(node) for node in tree.nodes if len(node) > 2), 0)
    return [Chunks(terms) for terms in (arity, arity - 1) if terms > 1]


def _runs(tree: Tree, nested: int) -> Iterator[Reading]:
    """Yield sums of runs, for every size at which each run is a subtree."""
    terms, node_of = tree.terms, _node_of(tree)
    for size in range(2, terms):
        spans = [range(start, min(start + size, terms)) for start in range(0, terms, size)]
        for inner, outer in _of_parts(tree, node_of, spans, nested):
            reading = Runs(size, inner, outer)
            if tree_of(reading, terms) == tree:
                yield reading


def _lanes(tree: Tree, nested: int) -> Iterator[Strided]:
    """Yield sums of lanes, for every number of lanes at which each lane is a subtree."""
    node_of = _node_of(tree)
    for count in range(2, min(tree.terms // 2, MOST_LANES) + 1):
        parts = [range(lane, tree.terms, count) for lane in range(count)]
        for inner, outer in _of_parts(tree, node_of, parts, nested):
            reading = Strided(count, inner, outer)
            if tree_of(reading, tree.terms) == tree:
                yield reading


def _node_of(tree: Tree) -> dict[tuple[int, ...], int]:
    """Return the node for each set of leaves that one node adds."""
    return {tuple(leaves): place for place, leaves in enumerate(tree.leaves())}


def _of_parts(
    tree: Tree, node_of: dict[tuple[int, ...], int], parts: Sequence[Sequence[int]], nested: int
) -> Iterator[tuple[Reading, Reading]]:
    """Yield the orders inside the first part, each with an order of all parts, if every part is a subtree."""
    if any(tuple(part) not in node_of for part in parts):
        return
    roots = [node_of[tuple(part)] for part in parts]
    outers = list(readings_of(subtree(tree, roots, tree.root), nested))
    for inner in readings_of(subtree(tree, parts[0], roots[0]), nested):
        yield from ((inner, outer) for outer in outers)
