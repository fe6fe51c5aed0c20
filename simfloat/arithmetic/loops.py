"""The loops that a machine provides, with their signatures: the list that `machines.Machine.loops` is held to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

Loop = Callable[..., Any]


class RoundingLoops(Protocol):
    """Rounding: (x, words, out, numbers)."""

    copy: Loop
    round_directed: Loop
    round_general: Loop
    round_half: Loop  # where the machine rounds to FP16 itself
    round_image: Loop
    round_nearest: Loop
    round_stochastic: Loop
    round_to_odd: Loop


class ElementwiseLoops(Protocol):
    """Exact results by the name of the operation, of three operands each."""

    exact_results: Mapping[str, Loop]  # (a, b, c, sign, out)
    paired_results: Mapping[str, Loop]  # (a, b, c, sign, words, out, numbers)
    double_results: Mapping[str, Loop]  # (a, b, c, sign, out)
    native_results: Mapping[str, Loop]  # (a, b, c, out), of what the machine rounds itself
    rounded_results: Mapping[str, Loop]  # (a, b, out, numbers), of two float32 operands, to nearest even, plain grids
    converted_results: Mapping[str, Loop]  # (a, b, c, out), in FP16, where the machine rounds to it itself


class ImageLoops(Protocol):
    """Matrices of numbers as images, by the kind of steps, where the machine makes steps of that kind itself."""

    images_of: Mapping[str, Loop]  # (x, out)
    numbers_of: Mapping[str, Loop]  # (images, out)


class CountingLoops(Protocol):
    """Events of roundings, and what an array's numbers have in common."""

    count_events: Loop  # (exact, out, numbers, events) -> undecided
    count_unchanged: Loop  # (a, b, out, sign, either) -> count
    bit_facts: Loop  # (x) -> (precision, low, least, high, finite)


class RandomLoops(Protocol):
    """Random words, of machines whose loops do not make them themselves: see stream.random_words."""

    fill_words: Loop  # (words, start, call, stage, seed)


class SequentialLoops(Protocol):
    """Sums rounded at every step."""

    steps: Mapping[str, Loop]  # (a, b, out, grid_numbers, product_numbers, sign)
    random_steps: Mapping[str, Loop]  # (a, b, out, grid_numbers, product_numbers, place, seed)
    sequential_wide: Loop  # (a, b, out, grid_numbers, product_numbers, sign, place, seed, pair, rounds_products)


class StepwiseLoops(Protocol):
    """Sums by the steps of an order, all rounded to one format, by the order and the kind of steps."""

    loops: Mapping[str, Mapping[str, Loop]]  # (a, b, out, numbers, sign, pair, place, seed)


class PairwiseLoops(Protocol):
    """Sums in a tree of neighbours, by the kind of step: (a, b, out, numbers, sign, pair, place, seed)."""

    loops: Mapping[str, Loop]


class FusedLoops(Protocol):
    """Sums of tensor cores."""

    powers_of: Loop  # (x, least, out)
    loops: Mapping[str, Loop]  # (a, b, a_powers, b_powers, out, unit_numbers, grid_numbers, finite)
    fused_groups: Loop  # (a, b, a_scales, b_scales, a_powers, b_powers, out, unit_numbers, grid_numbers, block)


class MatrixCoreLoops(Protocol):
    """Sums of matrix cores."""

    exact_chunks: Loop  # (a, b, out, terms)
    flushed_pairs: Loop  # (a, b, out, terms, least)
    floored_sums: Loop  # (a, b, a_powers, b_powers, out, terms, parts, finite)


class BinLoops(Protocol):
    """Sums without error."""

    bin_sums: Loop  # (a, b, start, bins, anchors, exact_products)
    carry: Loop  # (bins, anchors)
    odd_totals: Loop  # (bins, out)


class Processor(Protocol):
    """What the machine rounds itself."""

    CONVERTS_FP16: bool  # float32 to FP16
    COMPUTES_FP16: bool  # sums, products and fused multiply-adds in FP16
    COMPUTES_BF16: bool  # in BF16
    COMPUTES_DIRECTED: bool  # in FP32, in the directed modes


class Loops(Protocol):
    """All loops that are reached from outside of `kernels`, by the module that they stand in there."""

    rounding_loops: RoundingLoops
    elementwise: ElementwiseLoops
    halves: ImageLoops
    counting: CountingLoops
    random: RandomLoops
    sequential: SequentialLoops
    stepwise: StepwiseLoops
    pairwise_loops: PairwiseLoops
    fused_loops: FusedLoops
    matrix_core_loops: MatrixCoreLoops
    bins: BinLoops
    processor: Processor
