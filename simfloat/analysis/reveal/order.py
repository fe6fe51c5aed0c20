"""Find the order of the additions in a function, the number of bits to which each rounds, and its mode.

The order is found by FPRev (Xie et al., arXiv 2411.00442). A value that is far smaller than a large M is lost when it
is added to M. A probe has M and -M at positions i and j and ones everywhere else. A one is lost exactly if it is added
before M and -M cancel; the result counts the other ones. So k minus the result is the number of leaves below the node
where i and j meet. These counts for all pairs of positions determine the tree. A few pairs suffice: k - 1 for a sum
from left to right, and about k log2(k) for most other orders.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from fractions import Fraction
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from simfloat.analysis.reveal.probe import BlackBox, Builder, ContradictoryProbes, ProductRange, Tree, last
from simfloat.formats import FP32, FP64, Format, Rounding, fixed, nearest_even
from simfloat.formats.definition import round_value
from simfloat.formats.rounding import MODES

#: The maximum number of lanes: four registers of sixteen.
MOST_LANES = 64

#: The number of triples and pairs of positions at which probes are scaled, in addition to the ends.
SAMPLES = 8


class OrderNotFound(Exception):
    """No probe lost a bit."""


class Probe(NamedTuple):
    """The values of M and of a one, the number of ones in a probe, and the weight of M's last digit in ones.

    If sums are truncated toward zero, ones that are added to -M are lost but reduce its magnitude by one last digit.
    Then the result exceeds the count of the other ones by multiples of `place`.
    """

    large: float
    one: float
    ones: int
    place: float


def find_order(box: BlackBox, span: ProductRange) -> Tree:
    """Return the tree of the additions in a function.

    Raises OrderNotFound if no sum lost a bit, and ContradictoryProbes if no tree has these results.
    """
    builder = Builder(box.terms)
    if box.terms <= 2:
        return builder.tree(builder.add(range(box.terms)))
    failure: ContradictoryProbes | None = None
    # A one is not lost next to every M: with rounding toward infinity only negative ones are lost, and with truncation
    # no sign is lost next to both M and -M.
    tries = (
        (is_cut, large, sign, strides)
        for strides in (range(0), range(2, min(box.terms - 1, MOST_LANES) + 1))
        for is_cut in (False, True)
        for large in _large_numbers(box, span)
        for sign in (1, -1)
    )
    for is_cut, large, sign, strides in tries:
        try:
            probe = _scale_probe(box, span, large, sign, strides)
            return _tree(box, probe if is_cut else probe._replace(place=math.inf))
        except ContradictoryProbes as reason:
            failure = failure if is_cut or strides else reason
    raise failure or ContradictoryProbes("no value M is so large that a sum loses other values next to it")


def _large_numbers(box: BlackBox, span: ProductRange) -> Iterator[float]:
    """Yield values for M: the largest that cancels, the largest that is returned, and odd values.

    Rounding to odd does not change a value M that is odd in its last bit. The odd values have the numbers of bits that
    sums may have; lanes may have fewer bits than the sum of the lanes.
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
    """Return the number of bits below M that are kept when the product at a position is added to M."""
    return last(lambda n: box.products({0: large, place: large / 2.0**n}) == large + large / 2.0**n, 1, 52)


def _cancels(box: BlackBox, large: float) -> bool:
    if box.factors(large) is None:
        return False
    return all(box.products({0: large, place: -large}) == 0.0 for place in {1, box.terms - 1})


def _scale_probe(box: BlackBox, span: ProductRange, large: float, sign: float, strides: range) -> Probe:
    """Scale a one to be as large as possible, so that all ones together are still lost when they are added to M.

    The triples of positions should show the largest number of bits that an addition has. If there are many lanes,
    random triples seldom have two positions in one lane. So triples with two such positions are added for each number
    of lanes in `strides`. They take many calls.
    """
    rng = random.Random(0)
    places = range(box.terms)
    # The last part may be added with more bits than all parts before it.
    triples = [[0, 1, 2], [0, box.terms // 2, box.terms - 1], [*range(box.terms - 3, box.terms)]]
    triples += [rng.sample(places, 3) for _ in range(SAMPLES)]
    # If a lane has only two products, -M is in the lane that is added to it first: the next lane, or the lane that is
    # half a stride away.
    for stride in strides:
        thirds = {2 * stride, 1, stride // 2} - {stride}
        triples += [[0, stride, third] for third in sorted(thirds) if third < box.terms]
    # If M is odd, adding a power of two may be inexact although the power is not lost. So M is a power of two here.
    power = 2.0 ** math.ceil(math.log2(large))
    exponents = [_least_kept_exponent(box, span, power, sign, triple) for triple in triples]
    exponents = [exponent for exponent in exponents if exponent > span.low]
    if not exponents:
        raise OrderNotFound
    # A value four times smaller than the smallest value that is kept is lost, in every rounding mode and every order.
    total = min(exponents) - 2
    exponent = max(span.low, total - box.terms.bit_length())
    if exponent > total:
        raise ContradictoryProbes(
            "the formats of the operands have no two values such that adding one to the other loses it"
        )
    one = sign * 2.0**exponent
    pairs = [[0, 1], [0, box.terms - 1], *(rng.sample(places, 2) for _ in range(SAMPLES))]
    exact = min(_exact_count_exponent(box, one, pair, total - exponent) for pair in pairs)
    return Probe(large, one, 2 ** min(exact, total - exponent), 2.0 ** (total + 1 - exponent))


def _least_kept_exponent(box: BlackBox, span: ProductRange, large: float, sign: float, triple: Sequence[int]) -> int:
    """Return the exponent of the smallest value that survives M and -M in every order of three positions."""

    def keeps(down: int) -> bool:
        small = sign * 2.0 ** (span.high - down)
        orders = [(triple[n], triple[n - 1], triple[n - 2]) for n in range(3)]
        return all(box.products({i: large, j: small, k: -large}) == small for i, j, k in orders)

    return span.high - max(last(keeps, 1, span.high - span.low), 0)


def _exact_count_exponent(box: BlackBox, one: float, pair: Sequence[int], most: int) -> int:
    """Return the largest power of two up to which ones are counted exactly at two positions."""
    i, j = pair
    return max(last(lambda n: box.products({i: one * 2.0**n, j: one}) == one * (2.0**n + 1.0), 0, most), 0)


def _tree(box: BlackBox, probe: Probe) -> Tree:
    builder = Builder(box.terms)
    root, size, whole = _build(box, probe, builder, list(range(box.terms)), random.Random(0), False)
    if not size == whole == box.terms:
        raise ContradictoryProbes("the measured size of the sum of all products is not the number of products")
    return builder.tree(root)


def _build(
    box: BlackBox, probe: Probe, builder: Builder, places: list[int], rng: random.Random, anywhere: bool
) -> tuple[int, int, int]:
    """Return the node in which all of `places` meet, the number of leaves found below it, and their true number."""
    # If the first product is added after all others, random pivots halve the remaining path on average.
    pivot = rng.choice(places) if anywhere else places[0]
    groups: dict[int, list[int]] = {}
    for place in places:
        if place != pivot:
            groups.setdefault(_leaves(box, probe, pivot, place), []).append(place)
    node, size, whole = pivot, 1, 1
    for meeting in sorted(groups):
        if size != whole:
            raise ContradictoryProbes("a sum is used before all its products are added")
        group = groups[meeting]
        child, leaves, theirs = _build(box, probe, builder, group, rng, len(groups) == 1)
        if leaves != theirs and theirs != meeting:
            raise ContradictoryProbes("two measurements of the size of one sum differ")
        # Products that meet each other in the same sum as the pivot are added there all at once.
        children = builder.children(child) if leaves != theirs else [child]
        node, size, whole = builder.add([node, *children]), size + leaves, meeting
    return node, size, whole


def _leaves(box: BlackBox, probe: Probe, i: int, j: int) -> int:
    """Return the number of leaves below the node where i and j meet."""
    others = [place for place in range(box.terms) if place not in (i, j)]
    counted = 0
    for start in range(0, len(others), probe.ones):
        ones = others[start : start + probe.ones]
        result = box.products({i: probe.large, j: -probe.large, **dict.fromkeys(ones, probe.one)})
        count = result / probe.one % probe.place
        if not (0.0 <= count <= len(ones) and count == int(count)):
            raise ContradictoryProbes(f"{len(ones)} ones, added together with M and -M, count as {count!r}")
        counted += int(count)
    return box.terms - counted


#: Fractions of a spacing that are added to a power of two, and fractions that are added to its upper neighbour, an odd
#: number. The latter distinguish modes that give the same results on the former.
PARTS = (Fraction(1, 2), Fraction(1, 4), Fraction(3, 4))
PARTS_OF_ODD = tuple(1 + part for part in PARTS)

#: The maximum number of bits that a probe looks for.
MOST_BITS = 60

#: The number of nodes that are probed starting from the leaves, and starting from the root.
NODES = 16


class Addition(NamedTuple):
    """The number of bits that an addition keeps, and its mode.

    The mode is None if no mode rounds in this way, as in a compensated sum.
    """

    precision: int
    rounding: Rounding | None


def additions_of(box: BlackBox, span: ProductRange, tree: Tree) -> list[tuple[int, Addition]]:
    """Return some sums inside a tree, as pairs of their number of products and the kind of their last addition.

    Sums nearest to the leaves come first. Sums that probes cannot show are left out.
    """
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
    """Return how the result is rounded, by the last addition or after it."""
    if tree is None:
        return _addition(box, span, 0, 1, None)
    leaves = tree.leaves()
    first, second, *_ = tree.children(tree.root)
    return _addition(box, span, leaves[first][0], leaves[second][0], None)


def alignments_of(box: BlackBox, span: ProductRange, tree: Tree | None) -> list[tuple[int, Addition]]:
    """Return how terms that are added at once are aligned to the largest, with the number of products of a term.

    There is one result for each such number. Without a tree the first three products are probed: products that leave a
    sticky bit are never lost, so their order cannot be found.
    """
    if tree is None:
        step = _addition(box, span, 0, 1, 2) if box.terms > 2 else None
        return [] if step is None else [(1, step)]
    leaves = tree.leaves()
    alignments: dict[int, Addition | None] = {}
    for node in range(tree.terms, tree.root + 1):
        children = tree.children(node)
        # The largest of the terms may be the partial sum, and the last run may be short.
        size = sorted(len(leaves[child]) for child in children)[-2]
        if len(children) > 2 and size not in alignments:
            large, small, third = (leaves[child][0] for child in children[:3])
            alignments[size] = _addition(box, span, large, small, third)
    return sorted((size, step) for size, step in alignments.items() if step is not None)


def _nodes(tree: Tree) -> list[int]:
    """Return some nodes other than the root."""
    inner = range(tree.terms, tree.root)
    even = inner[:: max(1, len(inner) // NODES)]
    high: list[int] = []
    level = [tree.root]
    while level and len(high) < NODES:
        level = [child for node in level for child in tree.children(node) if child >= tree.terms]
        high += level
    return sorted({*even, *high[:NODES]})


def _addition(box: BlackBox, span: ProductRange, i: int, j: int, k: int | None) -> Addition | None:
    """Return how the sum of products i and j is rounded, with -M at position k, or in the result itself.

    Return None if the span of the function is too short to show it.
    """

    def sum_of(large: float, small: float) -> float:
        if k is None:
            return box.products({i: large, j: small}) - large
        return box.products({i: large, j: small, k: -large})

    def modes_among(modes: list[Rounding], bits: int, large: float, parts: tuple[Fraction, ...]) -> list[Rounding]:
        """Return the modes that round sums of a power of two and fractions of a spacing in the observed way."""
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
    """Yield exponents of M in ascending order.

    If the function returns few values, it is possible that none of them is lost next to the first M. Then M grows; it
    may be larger than every returned value if it cancels with -M at position k.
    """
    yield span.high - 1
    for exponent in range(span.high - 1, span.high + MOST_BITS, max(span.high - span.low - 2, 1))[1:]:
        large = 2.0**exponent
        if k is None or box.factors(large) is None or box.products({i: large, k: -large}) != 0.0:
            return
        yield exponent


def all_modes() -> list[Rounding]:
    """Return every deterministic mode, the likely ones first."""
    modes = map(Rounding, MODES)
    return sorted(modes, key=lambda mode: (mode != nearest_even, not mode.is_toward_zero))


def _modes(
    bits: int, probes: list[tuple[int, Fraction]], results: list[float], modes: list[Rounding]
) -> list[Rounding]:
    """Return the modes that round sums of a power of two and fractions of a spacing to these results."""
    format, spacing = Format(11, min(bits, 52)), Fraction(1, 2 ** min(bits, 52))

    def due(mode: Rounding) -> list[Fraction]:
        return [(Fraction(round_value(x + part * spacing, format, mode)) - x) / spacing for x, part in probes]

    return [mode for mode in modes if due(mode) == results]


#: An addition that may be hidden if results have fewer bits.
UNSEEN = (1, Addition(FP32.precision, nearest_even))


class Evidence(NamedTuple):
    """The evidence of probes about the additions in a function."""

    inputs: tuple[Format, Format]
    span: ProductRange
    steps: list[tuple[int, Addition]]  # pairs of the number of products in a sum and the kind of its addition
    last: Addition | None
    alignments: list[tuple[int, Addition]]  # of terms that are added at once, with the number of products of a term
    saturates: bool = False
    fixed_point: Format | None = None  # the format of sums, if it seems to be one with a fixed point

    @property
    def alignment(self) -> Addition | None:
        """The alignment of products, or of the shortest sums, that are added at once."""
        return self.alignments[0][1] if self.alignments else None

    @property
    def kinds(self) -> list[Addition]:
        """The kinds of additions that probes found."""
        steps = [step for _, step in self.steps]
        return list(dict.fromkeys(steps if self.last is None else [*steps, self.last]))

    @property
    def is_uniform(self) -> bool:
        """True if all additions are alike. A compensated sum seems to keep one more bit than its last addition."""
        kinds = self.kinds
        corrected = len(kinds) == 2 and kinds[0] == Addition(kinds[1].precision + 1, kinds[1].rounding)
        return len(kinds) == 1 or corrected

    def changes_only_at(self, size: int) -> bool:
        """True if additions are of one kind in sums of fewer than `size` products, and of one kind in longer sums.

        Sums of exactly `size` products do not count. Such a sum of a run may be rounded again when it is added to other
        runs, so its last addition may look like one of the additions of runs.
        """
        shorter = {step for products, step in self.steps if products < size}
        longer = {step for products, step in self.steps if products > size}
        return len(shorter) <= 1 and len(longer) <= 1

    def inside(self, size: int) -> Evidence:
        """Return the evidence for sums of at most `size` products; if these have no evidence, all evidence.

        The last addition is that of the longest of these sums.
        """
        steps = [(products, step) for products, step in self.steps if products <= size]
        alignments = [(products, step) for products, step in self.alignments if 2 * products <= size]
        inside = self._replace(alignments=alignments or self.alignments)
        return inside._replace(steps=steps, last=max(steps, key=itemgetter(0))[1]) if steps else inside

    def above(self, size: int) -> Evidence:
        """Return the evidence for sums of runs of `size` products.

        If only the result was such a sum, return all evidence and FP32.
        """
        steps = [(-(-products // size), step) for products, step in self.steps if products > size]
        # The lengths of lanes may differ by one. Terms inside a run have at most half of its products.
        alignments = [(-(-products // size), step) for products, step in self.alignments if 2 * products > size]
        return self._replace(steps=steps or [*self.steps, UNSEEN], alignments=alignments or self.alignments)


def evidence_of(box: BlackBox, span: ProductRange, tree: Tree | None) -> Evidence:
    """Return the evidence that probes of a function give; without a tree, only the evidence of its results."""
    fixed_point = fixed_point_format(box, span)
    if tree is None:
        last = last_addition(box, span, None)
        return Evidence(box.inputs, span, [], last, alignments_of(box, span, None), fixed_point=fixed_point)
    large = 2.0**span.high
    sums = [box.products(dict.fromkeys(places, large)) for places in (range(box.terms), tree.nodes[0][:2])]
    return Evidence(
        box.inputs,
        span,
        additions_of(box, span, tree) or [UNSEEN],
        last_addition(box, span, tree),
        alignments_of(box, span, tree),
        min(sums) / 2 < large,  # all products together, or a part of them
        fixed_point,
    )


def fixed_point_format(box: BlackBox, span: ProductRange) -> Format | None:
    """Return the fixed-point format in which a function seems to add; None if it does not.

    A sum that leaves the range returns a number whose bits are all 1, down to the last place, which is the smallest
    power of two that the function returns. (The largest number of a floating-point format has fewer bits.) If smaller
    products are lost although no sum leaves the range, the width is unknown: the narrowest format with all sums is
    returned.
    """
    (first, second), last_place = box.inputs, math.ldexp(1.0, span.low)
    a, b = np.full(box.terms, first.max), np.full(box.terms, second.max)
    largest, smallest, exact = box(a, b), box(a, -b), first.max * second.max * box.terms
    is_within_range = largest == exact and box.factors(last_place / 2) is not None
    fraction, exponent = math.frexp(exact if is_within_range else largest + last_place)
    bits = exponent - span.low + is_within_range
    if is_within_range:
        return fixed(bits, -span.low) if bits <= FP64.precision else None
    beyond = largest + last_place
    if fraction != 0.5 or not 2 <= bits <= FP64.precision or smallest not in (-largest, -beyond):
        return None
    return fixed(bits, -span.low, symmetric=smallest == -largest)
