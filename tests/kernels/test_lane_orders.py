"""Compare compensated and pairwise sums on lanes with float64 loops, which are compared with the definition."""

from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.kernels.compile import processor
from simfloat.kernels.lanes import orders
from simfloat.kernels.rounding import grid
from simfloat.kernels.sums import rows, trees
from simfloat.sums.accumulator import NO_REGION
from simfloat.sums.lanes import MOST_PAIRWISE_TERMS, OrderLanes
from simfloat.sums.one_format import program_of_neighbours
from simfloat.sums.tiles import UPRIGHT
from tests.bits import assert_bits
from tests.kernels.test_rounded_tiles import KINDS, engine_of, operands, spread

pytestmark = pytest.mark.skipif(not processor.ROUNDS_LANES, reason="this processor rounds vectors to nearest only")

#: (format, of operands): float32's exponents and fewer, shifted ones, and as many bits as there may be.
FORMATS = [
    *((format, format) for format in (sf.BF16, sf.E4M3, sf.E5M2, sf.TF32)), (sf.BF16, sf.FP32), (sf.FP16, sf.E4M3),
    (sf.Format(8, 22), sf.FP32), (sf.Format(4, 3, bias=20), sf.E4M3),
]  # fmt: skip
#: Orders, each in some modes: of sequential sums, what rounds on lanes is compared in all (test_rounded_tiles.py).
ORDERS = ("kahan", "pairwise")
CASES = [
    *(("kahan", mode) for mode in (sf.nearest_even, sf.toward_negative)),
    *(("pairwise", mode) for mode in (sf.nearest_even, sf.toward_zero, sf.to_odd)),
]
SHAPES = ((5, 39, 45), (1, 8, 7), (2, 270, 3))


def in_float64(order, a, b, start, format, rounding):
    """The sums by float64's loop, which needs to know nothing of the operands."""
    kind = {"nearest": "odd", "sticky": "sticky"}.get(rounding.steps, "directed")
    sums, numbers = start.astype(np.float64), grid.pack_grid(format, rounding)
    with np.errstate(invalid="ignore"):
        x, y = a.astype(np.float64), b.astype(np.float64)
        sign = np.float64(rounding.zero_sum)
        if order == "kahan":
            rows.stepwise_loops["kahan"][kind](x, y, sums, numbers, numbers, sign)
        else:
            trees.tree_loops[kind](x, y, sums, program_of_neighbours(x.shape[1]), numbers, sign, False, *NO_REGION)
    return sums.astype(np.float32)


@pytest.mark.parametrize("order, rounding", CASES, ids=repr)
def test_sums_on_lanes_are_those_of_float64(order, rounding, rng):
    steps = set()
    for (format, inputs), mode in product(FORMATS, (rounding, rounding.saturating())):
        accumulator = getattr(sf, order)(format, rounding=mode)
        for kind, (m, k, n) in product(KINDS, SHAPES):
            a, b = operands(kind, inputs, rng, m, k, n)
            start = np.zeros((m, n), np.float32)
            if order == "kahan":
                start = sf.round(spread(rng, (m, n), max(format.emin, -100) - 3, 3).astype(np.float32), format)
                start[0, 0] = -0.0
            engine = engine_of(a, b, accumulator, start)
            if isinstance(engine, OrderLanes):
                steps.add(engine.step)
                want = in_float64(order, a, b, start, format, mode)
                engine.run(a, b, start, UPRIGHT)
                assert_bits(start, want)
    own = {"downward": "upward", "nearest": "plain"}.get(rounding.steps, rounding.steps)
    assert steps == {f"{own}_watched"} | ({own} & set(orders.UNWATCHED))
    # Zeros have the sign of the mode.
    few = np.array([0.0, -0.0, 1.0, -1.0], np.float32)
    a, b = rng.choice(few, (7, 9)), rng.choice(few, (9, 33))
    start = rng.choice(few, (7, 33)) if order == "kahan" else np.zeros((7, 33), np.float32)
    engine = engine_of(a, b, getattr(sf, order)(sf.E4M3, rounding=rounding), start)
    for depth in (1, 2, 9):
        x, y, got = np.ascontiguousarray(a[:, :depth]), b[:depth], start.copy()
        engine.run(x, y, got, UPRIGHT)
        assert_bits(got, in_float64(order, x, y, start, sf.E4M3, rounding))


def test_stacks_are_summed_as_their_matrices_are(rng):
    a, b = (sf.round(rng.standard_normal(shape).astype(np.float32), sf.BF16) for shape in ((3, 4, 21), (3, 21, 37)))
    for order in ORDERS:
        accumulator = getattr(sf, order)(sf.BF16, rounding=sf.toward_positive)
        assert isinstance(engine_of(a[0], b[0], accumulator), OrderLanes)
        stack = sf.matmul(a, b, accumulate=accumulator)
        assert_bits(stack, [sf.matmul(x, y, accumulate=accumulator) for x, y in zip(a, b, strict=True)])


def test_pairwise_sums_too_deep_for_a_panel_are_those_of_float64(rng):
    a, b = operands("ties", sf.BF16, rng, 1, MOST_PAIRWISE_TERMS + 3, 17)
    start = np.zeros((1, 17), np.float32)
    want = in_float64("pairwise", a, b, start, sf.BF16, sf.nearest_even)
    assert_bits(sf.matmul(a, b, accumulate=sf.pairwise(sf.BF16)), want)
