"""What probes show of a function's additions: to how many bits each rounds, and in which mode."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from simfloat.blackbox.probe import BlackBox, ProductRange, last
from simfloat.blackbox.tree import Tree
from simfloat.formats import FP32, Format, Rounding, nearest_even
from simfloat.formats.definition import round_value
from simfloat.formats.rounding import MODES

#: Parts of a spacing that are added to a power of two; and, for modes that do the same on these, those that are added
#: to its upper neighbour, an odd number.
PARTS = (Fraction(1, 2), Fraction(1, 4), Fraction(3, 4))
PARTS_OF_ODD = tuple(1 + part for part in PARTS)

#: The most bits that a probe looks for.
MOST_BITS = 60

#: How many nodes are probed from the leaves up, and from the root down.
NODES = 16


class Addition(NamedTuple):
    """The bits that an addition keeps, and its mode: None if it rounds as none does, as a compensated one."""

    precision: int
    rounding: Rounding | None


def additions_of(box: BlackBox, span: ProductRange, tree: Tree) -> list[tuple[int, Addition]]:
    """Of how many products some sums inside a tree are, with the kinds of the additions that make them, as far as they
    show; those nearest to the leaves first."""
    leaves, parents = tree.leaves(), tree.parents()
    additions: dict[tuple[int, Addition], None] = {}
    for node in _nodes(tree):
        first, second, *_ = tree.children(node)
        siblings = [child for child in tree.children(parents[node]) if child != node]
        step = _addition(box, span, leaves[first][0], leaves[second][0], leaves[siblings[0]][0])
        if step is not None:
            additions[len(leaves[node]), step] = None
    return list(additions)


def last_addition(box: BlackBox, span: ProductRange, tree: Tree | None) -> Addition | None:
    """How the result itself is rounded: by the last addition, or after it."""
    if tree is None:
        return _addition(box, span, 0, 1, None)
    leaves = tree.leaves()
    first, second, *_ = tree.children(tree.root)
    return _addition(box, span, leaves[first][0], leaves[second][0], None)


def alignment(box: BlackBox, span: ProductRange, tree: Tree | None) -> Addition | None:
    """How products that are added at once are aligned to the largest; None if there are none.

    Without a tree the first three are looked at: those that leave a sticky bit are never lost, which shows no order.
    """
    if tree is None:
        return _addition(box, span, 0, 1, 2) if box.terms > 2 else None
    leaves = tree.leaves()
    for node in range(tree.terms, tree.root + 1):
        children = tree.children(node)
        if len(children) > 2:
            large, small, third = (leaves[child][0] for child in children[:3])
            return _addition(box, span, large, small, third)
    return None


def _nodes(tree: Tree) -> list[int]:
    """Some nodes but the root."""
    inner = range(tree.terms, tree.root)
    even = inner[:: max(1, len(inner) // NODES)]
    high: list[int] = []
    level = [tree.root]
    while level and len(high) < NODES:
        level = [child for node in level for child in tree.children(node) if child >= tree.terms]
        high += level
    return sorted({*even, *high[:NODES]})


def _addition(box: BlackBox, span: ProductRange, i: int, j: int, k: int | None) -> Addition | None:
    """How the sum of products i and j is rounded, seen when -M comes at place k, or in the result itself.

    None if the function's span is too short to tell.
    """

    def sum_of(large: float, small: float) -> float:
        if k is None:
            return box.products({i: large, j: small}) - large
        return box.products({i: large, j: small, k: -large})

    def modes_among(modes: list[Rounding], bits: int, large: float, parts: tuple[Fraction, ...]) -> list[Rounding]:
        """The modes in which sums of a power of two and parts of a spacing are rounded as they are."""
        spacing = math.ldexp(large, -bits)
        probes = [(sign, sign * part) for sign in (1, -1) for part in parts if box.factors(float(part) * spacing)]
        results = [sum_of(sign * large, float(part) * spacing) / spacing for sign, part in probes]
        return _modes(bits, probes, results, modes)

    for exponent in _exponents_of_large(box, span, i, k):
        large = 2.0**exponent
        fewest, most = max(exponent - span.high, 1), min(MOST_BITS, exponent - span.low)

        def keeps(n: int, large: float = large) -> bool:
            return sum_of(large, math.ldexp(large, -n)) == math.ldexp(large, -n)

        bits = last(keeps, fewest, most)
        if bits < most and exponent - bits - 2 >= span.low:
            modes = modes_among(all_modes(), bits, large, PARTS)
            if len(modes) > 1:
                modes = modes_among(modes, bits, large, PARTS_OF_ODD) or modes
            return Addition(bits + 1, modes[0] if modes else None)
    return None


def _exponents_of_large(box: BlackBox, span: ProductRange, i: int, k: int | None) -> Iterator[int]:
    """Exponents of M, rising: beside the first none may be lost of the numbers that are returned, if these are few.

    An M that comes back as -M at place k may lie beyond them.
    """
    yield span.high - 1
    for exponent in range(span.high - 1, span.high + MOST_BITS, max(span.high - span.low - 2, 1))[1:]:
        large = 2.0**exponent
        if k is None or box.factors(large) is None or box.products({i: large, k: -large}) != 0.0:
            return
        yield exponent


def all_modes() -> list[Rounding]:
    """Every deterministic mode, the likely ones first."""
    modes = map(Rounding, MODES)
    return sorted(modes, key=lambda mode: (mode != nearest_even, not mode.is_toward_zero))


def _modes(
    bits: int, probes: list[tuple[int, Fraction]], results: list[float], modes: list[Rounding]
) -> list[Rounding]:
    """Those of some modes in which sums of a power of two and parts of a spacing are rounded so."""
    format, spacing = Format(11, min(bits, 52)), Fraction(1, 2 ** min(bits, 52))

    def due(mode: Rounding) -> list[Fraction]:
        return [(Fraction(round_value(x + part * spacing, format, mode)) - x) / spacing for x, part in probes]

    return [mode for mode in modes if due(mode) == results]


#: An addition that may hide behind results of fewer bits.
UNSEEN = (1, Addition(FP32.precision, nearest_even))


class Evidence(NamedTuple):
    """What probes have shown of a function's additions."""

    inputs: tuple[Format, Format]
    span: ProductRange
    steps: list[tuple[int, Addition]]  # of how many products a sum is, and how it is made
    last: Addition | None
    alignment: Addition | None = None  # of products that are added at once
    saturates: bool = False

    @property
    def kinds(self) -> list[Addition]:
        """The kinds of additions that were seen."""
        steps = [step for _, step in self.steps]
        return list(dict.fromkeys(steps if self.last is None else [*steps, self.last]))

    @property
    def is_uniform(self) -> bool:
        """Whether all additions are alike; those of compensated sums look as if they kept a bit more than the last."""
        kinds = self.kinds
        corrected = len(kinds) == 2 and kinds[0] == Addition(kinds[1].precision + 1, kinds[1].rounding)
        return len(kinds) == 1 or corrected

    def inside(self, size: int) -> Evidence:
        """What was seen of sums of at most so many products; all that was seen, if nothing was of these."""
        steps = [(products, step) for products, step in self.steps if products <= size]
        return self._replace(steps=steps, last=None) if steps else self

    def above(self, size: int) -> Evidence:
        """What was seen of the sums of runs of so many products; if only the result was of these, all that was seen and
        FP32."""
        steps = [(-(-products // size), step) for products, step in self.steps if products > size]
        return self._replace(steps=steps or [*self.steps, UNSEEN])


def evidence_of(box: BlackBox, span: ProductRange, tree: Tree | None) -> Evidence:
    """The evidence that probes of a function give; without a tree only that of its results."""
    if tree is None:
        return Evidence(box.inputs, span, [], last_addition(box, span, None), alignment(box, span, None))
    overflow = box.products(dict.fromkeys(range(box.terms), 2.0**span.high))
    return Evidence(
        box.inputs,
        span,
        additions_of(box, span, tree) or [UNSEEN],
        last_addition(box, span, tree),
        alignment(box, span, tree),
        overflow < 2.0 ** (span.high + 1),
    )
