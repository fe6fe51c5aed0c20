"""Orders of our accumulators that fit a tree of additions: sequential, pairwise, in chunks, in runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from simfloat.blackbox.tree import Builder, Tree, subtree


class Chain(NamedTuple):
    """One after the other, from the first to the last."""

    def add(self, builder: Builder, places: Sequence[int]) -> int:
        """The node that is the sum of `places`."""
        return Chunks(1).add(builder, places)

    def __str__(self) -> str:
        return "from left to right"


class Pairs(NamedTuple):
    """Neighbours level by level, an odd last one carried up."""

    def add(self, builder: Builder, places: Sequence[int]) -> int:
        """The node that is the sum of `places`."""
        while len(places) > 1:
            places = [builder.add(places[n : n + 2]) for n in range(0, len(places), 2)]
        return places[0]

    def __str__(self) -> str:
        return "pairwise"


class Chunks(NamedTuple):
    """So many at once, together with the sum of those before."""

    terms: int

    def add(self, builder: Builder, places: Sequence[int]) -> int:
        """The node that is the sum of `places`."""
        node = builder.add(places[: self.terms])
        for start in range(self.terms, len(places), self.terms):
            node = builder.add([node, *places[start : start + self.terms]])
        return node

    def __str__(self) -> str:
        return f"{self.terms} at once"


class Runs(NamedTuple):
    """Runs of so many in one order, and their sums in another."""

    size: int
    inner: Reading
    outer: Reading

    def add(self, builder: Builder, places: Sequence[int]) -> int:
        """The node that is the sum of `places`."""
        runs = [places[start : start + self.size] for start in range(0, len(places), self.size)]
        return self.outer.add(builder, [self.inner.add(builder, run) for run in runs])

    def __str__(self) -> str:
        return f"runs of {self.size} {self.inner}, their sums {self.outer}"


Reading: TypeAlias = Chain | Pairs | Chunks | Runs


def readings_of(tree: Tree, nested: int = 2) -> Iterator[Reading]:
    """The orders of accumulators that add as the tree does, the simplest ones first: runs at most `nested` deep."""
    simple: list[Reading] = [Chain(), Pairs(), *_chunks(tree)]
    for reading in simple:
        if _tree(reading, tree.terms) == tree:
            yield reading
    if nested:
        yield from _runs(tree, nested - 1)


def is_same_order(reading: Reading, other: Reading, terms: int) -> bool:
    """Whether so many products are added in one order by both."""
    return _tree(reading, terms) == _tree(other, terms)


def _tree(reading: Reading, terms: int) -> Tree:
    builder = Builder(terms)
    return builder.tree(reading.add(builder, range(terms)))


def _chunks(tree: Tree) -> list[Chunks]:
    """Chunks as long as the first sum of several products at once."""
    arity = next((len(node) for node in tree.nodes if len(node) > 2), 0)
    return [Chunks(terms) for terms in (arity, arity - 1) if terms > 1]


def _runs(tree: Tree, nested: int) -> Iterator[Reading]:
    """Sums of runs, of every size for which each run is a subtree."""
    node_of = {tuple(leaves): place for place, leaves in enumerate(tree.leaves())}
    for size in range(2, tree.terms):
        spans = [range(start, min(start + size, tree.terms)) for start in range(0, tree.terms, size)]
        if tuple(spans[0]) not in node_of or any(tuple(span) not in node_of for span in spans[1:]):
            continue
        roots = [node_of[tuple(span)] for span in spans]
        outers = list(readings_of(subtree(tree, roots, tree.root), nested))
        for inner in readings_of(subtree(tree, spans[0], roots[0]), nested):
            for outer in outers:
                reading = Runs(size, inner, outer)
                if _tree(reading, tree.terms) == tree:
                    yield reading
