"""The order of a sum as a tree: its leaves are the products, each node is an addition of two or more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simfloat.accumulate.nesting import join_operands

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
