"""The loops that a machine provides, with their signatures: the list that `machines.Device.loops` is held to."""

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
    double_results: Mapping[str, Loop]  # the same in FP64, of what the machine does not round itself
    native_results: Mapping[str, Loop]  # (a, b, c, out), of what the machine rounds itself


class ConvertedLoops(Protocol):
    """Results in FP16 of float32 operands, where the machine rounds to it itself."""

    converted_results: Mapping[str, Loop]  # (a, b, c, out)


class SingleLoops(Protocol):
    """Results of float32 operands in float32's lanes, by the name of the operation."""

    single_results: Mapping[str, Loop]  # (a, b, c, sign, out, numbers, kind): see kernels.single.single_loop


class FlagLoops(Protocol):
    """IEEE exceptions of results, on the CPU."""

    flag_results: Loop  # (exact, out, thresholds, flags) -> others
    flag_by_draws: Loop  # (exact, out, thresholds, flags) -> (doubts, others)
    rounded_flags: Loop  # (x, out, numbers, kind, thresholds, flags) -> others, in float32's lanes
    halved_flags: Loop  # the same, where the machine rounds to FP16 itself
    single_flags: Mapping[str, Loop]  # (a, b, c, sign, out, numbers, kind, thresholds, flags) -> others
    converted_flags: Mapping[str, Loop]  # the same, where the machine rounds to FP16 itself
    native_flags: Mapping[str, Loop]  # (a, b, c, sign, out, thresholds, flags) -> others, of results in FP32
    double_flags: Mapping[str, Loop]  # (a, b, c, sign, out, flags) -> others, of results in FP64


class LookupLoops(Protocol):
    """Results found in tables, on the CPU: (x, table, out) -> whether all operands have a place there."""

    look_up_bfloat16: Loop
    look_up_float16: Loop


class EncodingLoops(Protocol):
    """Codes of a format's numbers, and numbers of its codes, on the CPU; each returns whether all have one."""

    encode: Loop  # (x, codes, numbers)
    encode_float32: Loop
    encode_images: Loop
    decode: Loop  # (codes, out, numbers)
    decode_images: Loop  # (codes, out, bits)
    decode_by_table: Loop  # (codes, table, out)


class ImageLoops(Protocol):
    """Matrices of numbers as images, by the kind of steps, where the machine makes steps of that kind itself."""

    image_loops: Mapping[str, Loop]  # (x, out)
    number_loops: Mapping[str, Loop]  # (images, out)


class CountingLoops(Protocol):
    """Events of roundings, and what an array's numbers have in common."""

    count_results: Loop  # (out, numbers, events) -> shown
    count_ends: Loop  # (exact, out, numbers, events, shown) -> undecided
    count_unchanged: Loop  # (a, b, out, sign, either) -> count
    bit_facts: Loop  # (x) -> (precision, low, least, high, finite)


class RandomLoops(Protocol):
    """Random words, of machines whose loops do not make them themselves: see stream.random_words."""

    fill_words: Loop  # (words, start, call, stage, seed)


class ProgramLoops(Protocol):
    """Programs of operations on vectors, on the CPU."""

    run_program: Loop  # (instructions, registers, scalars, grids, signs, draws, first, inputs, outputs, events)


class SequentialLoops(Protocol):
    """Sums rounded at every step."""

    steps: Mapping[str, Loop]  # (a, b, out, grid_numbers, product_numbers, sign)
    random_steps: Mapping[str, Loop]  # (a, b, out, grid_numbers, product_numbers, place, seed)
    sequential_wide: Loop  # (a, b, out, grid_numbers, product_numbers, sign, place, seed, pair, rounds_products)


class RoundedTiles(Protocol):
    """Sums rounded at every step on lanes, where the processor rounds them up, down and toward zero."""

    steps: Mapping[str, Loop]  # (a, b, out, grid_numbers, product_numbers, sign)


class LaneOrders(Protocol):
    """Sums in other orders on lanes, by the order and the mode."""

    loops: Mapping[str, Mapping[str, Loop]]  # (a, b, out, numbers, sign) -> whether a number was too large


class StepwiseLoops(Protocol):
    """Sums by the steps of an order, all rounded to one format, by the order and the kind of steps."""

    loops: Mapping[str, Mapping[str, Loop]]  # (a, b, out, numbers, sign, pair, place, seed)


class RunningSumLoops(Protocol):
    """Every running sum of such an order, on the CPU: (a, b, out, numbers, sign, pair, place, seed), by the order."""

    loops: Mapping[str, Loop]


class PairwiseLoops(Protocol):
    """Sums in a tree of neighbours, by the kind of step: (a, b, out, numbers, sign, pair, place, seed)."""

    loops: Mapping[str, Loop]


class TreeLoops(Protocol):
    """Sums in an order of one's own, by the kind of step."""

    loops: Mapping[str, Loop]  # (a, b, out, program, numbers, sign, pair, place, seed)


class LongOrders(Protocol):
    """Sums of long vectors in the orders of libraries, on the CPU."""

    chains: Mapping[str, Loop]  # (x, y, sums, first, steps, stride, turned), by the kind of products
    numpys: Mapping[str, Loop]  # (x, out, largest, numbers, sign), by the kind of step


class FusedLoops(Protocol):
    """Sums of tensor cores."""

    fill_powers: Loop  # (x, least, out)
    #: By how terms are aligned and totals are rounded:
    #: (a, b, a_powers, b_powers, out, unit_numbers, grid_numbers, finite, place, seed)
    loops: Mapping[str, Mapping[str, Loop]]
    fused_groups: Loop  # (a, b, a_scales, b_scales, a_powers, b_powers, out, unit_numbers, grid_numbers, block)


class IntegerSumLoops(Protocol):
    """Sums of units in 32-bit lanes, on the CPU: (a, b, out, first, unit_numbers, grid_numbers, place, seed) ->
    number."""

    loops: Mapping[str, Loop]


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
    ROUNDS_LANES: bool  # whether it has the loops of RoundedTiles
    SLOW_WITH_SUBNORMALS: bool  # whether float32's subnormal numbers slow these down


class Loops(Protocol):
    """All loops that are reached from outside of `kernels`, by the module that they stand in there."""

    rounding_loops: RoundingLoops
    elementwise: ElementwiseLoops
    converted: ConvertedLoops
    single: SingleLoops
    encoding: EncodingLoops
    flag_loops: FlagLoops
    lookups: LookupLoops
    halves: ImageLoops
    counting: CountingLoops
    programs: ProgramLoops
    random: RandomLoops
    sequential: SequentialLoops
    rounded_tiles: RoundedTiles
    lane_orders: LaneOrders
    stepwise: StepwiseLoops
    running_sums: RunningSumLoops
    pairwise_loops: PairwiseLoops
    tree_loops: TreeLoops
    long_orders: LongOrders
    fused_loops: FusedLoops
    integer_sums: IntegerSumLoops
    matrix_core_loops: MatrixCoreLoops
    bins: BinLoops
    processor: Processor
