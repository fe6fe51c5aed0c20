"""The additions of a function: their order, the bits to which each rounds, and in which mode.

Finding the order of a function's additions (FPRev: Xie et al., arXiv 2411.00442).

Beside a large M a number far smaller is lost. With M and -M at places i and j and ones everywhere else, those ones are
lost that are added before M and -M meet, and the others are counted by the result. So k minus the result is the number
of leaves below the node where i and j meet, and these numbers for all pairs of places determine the tree; those of a
few pairs suffice, k - 1 for a sum from left to right and some k log2(k) for most others.

What probes show of a function's additions: to how many bits each rounds, and in which mode.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from simfloat.analysis.reveal.probe import BlackBox, Builder, ContradictoryProbes, ProductRange, Tree, last
from simfloat.formats import FP32, Format, Rounding, nearest_even
from simfloat.formats.definition import round_value
from simfloat.formats.rounding import MODES

#: The most lanes that are looked for: four registers of sixteen.
MOST_LANES = 64

#: Triples and pairs of places at which probes are scaled, beside the ends.
SAMPLES = 8


class OrderNotFound(Exception):
    """No probe lost a bit."""


class Probe(NamedTuple):
    """The values of M and of a one, how many ones there are at a time, and how many are a part of M's last place.

    Where sums are cut toward zero, ones that are added to -M are lost, but make it one place smaller: the result
    exceeds the number of the others by multiples of `place`.
    """

    large: float
    one: float
    ones: int
    place: float


def find_order(box: BlackBox, span: ProductRange) -> Tree:
    """The tree of a function's additions.

    Raises NothingLost if no sum lost a bit, and NoOrder if the results are those of no tree.
    """
    builder = Builder(box.terms)
    if box.terms <= 2:
        return builder.tree(builder.add(range(box.terms)))
    failure: ContradictoryProbes | None = None
    # Not every one is lost beside every M: toward infinity only negative ones are, toward zero none beside both signs.
    tries = (
        (is_cut, large, sign) for is_cut in (False, True) for large in _large_numbers(box, span) for sign in (1, -1)
    )
    for is_cut, large, sign in tries:
        try:
            probe = _scale_probe(box, span, large, sign)
            return _tree(box, probe if is_cut else probe._replace(place=math.inf))
        except ContradictoryProbes as reason:
            failure = failure if is_cut else reason
    raise failure or ContradictoryProbes("no number is so large that others are lost beside it")


def _large_numbers(box: BlackBox, span: ProductRange) -> Iterator[float]:
    """Candidates for M: the largest that cancels, the largest that is returned, and those that rounding to odd keeps.

    These have as many bits as some sums have, lanes of fewer than their sums among them.
    """
    top = min(box.inputs[0].emax + box.inputs[1].emax, 1023)
    highest = last(lambda exponent: _cancels(box, 2.0**exponent), span.high, top)
    yield 2.0**highest
    if highest > span.high:
        yield 2.0**span.high
    large, bit_counts = 2.0**span.high, set()
    for place in dict.fromkeys((*range(1, min(box.terms, MOST_LANES + 1)), box.terms - 1)):
        bits = _bits_below_large(box, large, place)
        odd = large - large / 2.0 ** (bits + 1)
        if bits not in bit_counts and box.factors(odd) is not None:
            yield odd
        bit_counts.add(bits)


def _bits_below_large(box: BlackBox, large: float, place: int) -> int:
    """How many binary places below M's own the sum with the product at a place keeps."""
    return last(lambda n: box.products({0: large, place: large / 2.0**n}) == large + large / 2.0**n, 1, 52)


def _cancels(box: BlackBox, large: float) -> bool:
    if box.factors(large) is None:
        return False
    return all(box.products({0: large, place: -large}) == 0.0 for place in {1, box.terms - 1})


def _scale_probe(box: BlackBox, span: ProductRange, large: float, sign: float) -> Probe:
    """One as large as it may be for all ones together to be lost beside M."""
    rng = random.Random(0)
    places = range(box.terms)
    # A last part may be added in more bits than all before it.
    triples = [[0, 1, 2], [0, box.terms // 2, box.terms - 1], [*range(box.terms - 3, box.terms)]]
    triples += [rng.sample(places, 3) for _ in range(SAMPLES)]
    # Beside an odd M a power of two may not be kept although it is not lost.
    power = 2.0 ** math.ceil(math.log2(large))
    exponents = [_least_kept_exponent(box, span, power, sign, triple) for triple in triples]
    exponents = [exponent for exponent in exponents if exponent > span.low]
    if not exponents:
        raise OrderNotFound
    # Four times less than what is kept is lost, however it is rounded and in whichever order it comes.
    total = min(exponents) - 2
    exponent = max(span.low, total - box.terms.bit_length())
    if exponent > total:
        raise ContradictoryProbes("the operands' formats are too narrow for a number that is lost beside another")
    one = sign * 2.0**exponent
    pairs = [[0, 1], [0, box.terms - 1], *(rng.sample(places, 2) for _ in range(SAMPLES))]
    exact = min(_exact_count_exponent(box, one, pair, total - exponent) for pair in pairs)
    return Probe(large, one, 2 ** min(exact, total - exponent), 2.0 ** (total + 1 - exponent))


def _least_kept_exponent(box: BlackBox, span: ProductRange, large: float, sign: float, triple: Sequence[int]) -> int:
    """The exponent of the least number that is kept beside M and -M at three places, wherever it is of the three."""

    def keeps(down: int) -> bool:
        small = sign * 2.0 ** (span.high - down)
        orders = [(triple[n], triple[n - 1], triple[n - 2]) for n in range(3)]
        return all(box.products({i: large, j: small, k: -large}) == small for i, j, k in orders)

    return span.high - max(last(keeps, 1, span.high - span.low), 0)


def _exact_count_exponent(box: BlackBox, one: float, pair: Sequence[int], most: int) -> int:
    """Up to which power of two ones are counted exactly at two places."""
    i, j = pair
    return max(last(lambda n: box.products({i: one * 2.0**n, j: one}) == one * (2.0**n + 1.0), 0, most), 0)


def _tree(box: BlackBox, probe: Probe) -> Tree:
    builder = Builder(box.terms)
    root, size, whole = _build(box, probe, builder, list(range(box.terms)), random.Random(0), False)
    if not size == whole == box.terms:
        raise ContradictoryProbes("the sum at which all products meet has other products, too")
    return builder.tree(root)


def _build(
    box: BlackBox, probe: Probe, builder: Builder, places: list[int], rng: random.Random, anywhere: bool
) -> tuple[int, int, int]:
    """The node at which all of `places` meet, how many leaves it has so far, and how many it has in truth."""
    # Where the first place is added last, a random one finds a path that is halved with every recursion.
    pivot = rng.choice(places) if anywhere else places[0]
    groups: dict[int, list[int]] = {}
    for place in places:
        if place != pivot:
            groups.setdefault(_leaves(box, probe, pivot, place), []).append(place)
    node, size, whole = pivot, 1, 1
    for meeting in sorted(groups):
        if size != whole:
            raise ContradictoryProbes("a sum is added before all its products are")
        group = groups[meeting]
        child, leaves, theirs = _build(box, probe, builder, group, rng, len(groups) == 1)
        if leaves != theirs and theirs != meeting:
            raise ContradictoryProbes("products that meet one another elsewhere meet a third at the same sum")
        # Products that meet one another in the sum where they meet the pivot are added there all at once.
        children = builder.children(child) if leaves != theirs else [child]
        node, size, whole = builder.add([node, *children]), size + leaves, meeting
    return node, size, whole


def _leaves(box: BlackBox, probe: Probe, i: int, j: int) -> int:
    """How many leaves are below the node where i and j meet."""
    others = [place for place in range(box.terms) if place not in (i, j)]
    counted = 0
    for start in range(0, len(others), probe.ones):
        ones = others[start : start + probe.ones]
        result = box.products({i: probe.large, j: -probe.large, **dict.fromkeys(ones, probe.one)})
        count = result / probe.one % probe.place
        if not (0.0 <= count <= len(ones) and count == int(count)):
            raise ContradictoryProbes(f"{len(ones)} ones beside M and -M count {count!r}")
        counted += int(count)
    return box.terms - counted


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
