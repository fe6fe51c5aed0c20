"""Stacks of matrices in one call of a loop, and tiles of a product with sums that stay in registers."""

from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.kernels.lanes.lanes import width
from simfloat.kernels.rounding import grid
from simfloat.kernels.sums import rows, trees
from tests.bits import assert_bits

NUMBERS = grid.pack_grid_below(sf.BF16, sf.nearest_even, 20, np.float32)
UNREAD = np.zeros(6, np.int64), np.uint64(0)

LOOPS = {
    "fused_native": (rows.stepwise_loops["fused"]["native"], (NUMBERS, NUMBERS, np.float32(0))),
    "fused_plain": (rows.stepwise_loops["fused"]["plain"], (NUMBERS, NUMBERS, np.float32(0))),
    "pairwise": (trees.pairwise_loops["native"], (NUMBERS, np.float32(0), False, *UNREAD)),
    "kahan": (rows.stepwise_loops["kahan"]["plain"], (NUMBERS, NUMBERS, np.float32(0))),
}


def numbers(*shape):
    rng = np.random.default_rng(5)
    return sf.round(rng.standard_normal(shape).astype(np.float32), sf.E5M2)


@pytest.mark.parametrize("name", LOOPS)
def test_a_stack_of_matrices_is_summed_as_its_matrices_are_alone(name):
    loop, rest = LOOPS[name]
    for count, m, depth, n in ((3, 9, 7, 21), (2, 33, 16, 64), (4, 5, 0, 3), (0, 5, 4, 3)):
        a, b, out = numbers(count, m, depth), numbers(count, depth, n), numbers(count, m, n)
        for lefts in (a, a[:1]):  # one left matrix serves a whole stack
            expected, stacked = out.copy(), out.copy()
            for i in range(count):
                loop(lefts[i % len(lefts)], b[i], expected[i], *rest)
            flat = len(lefts) * m, count * depth, count * m
            loop(lefts.reshape(flat[0], depth), b.reshape(flat[1], n), stacked.reshape(flat[2], n), *rest)
            assert_bits(stacked, expected)
    strange = np.array([0x7FC12345, 0xFFC00000, 0xFF812345], np.uint32).view(np.float32)
    out = np.zeros((5, 3), np.float32)
    loop(np.ones((5, 1), np.float32), strange[np.newaxis], out, *rest)
    assert (out.view(np.uint32) == 0x7FC00000).all(), "every NaN is the one NaN"


def test_tiles_sum_every_row_as_it_is_summed_alone():
    """A single row is no tile: its loop is another one."""
    for dtype, m, k in product((np.float32, np.float64), (4, 7, 9), (255, 300)):
        unread = grid.pack_grid(sf.FP32, sf.nearest_even).astype(dtype)
        loop, rest = rows.stepwise_loops["fused"]["native"], (unread, unread, dtype(0))
        rng, lanes = np.random.default_rng(m), width(np.zeros(1, dtype))
        for n in {1, lanes, 2 * lanes, 45}:
            a, b, out = (rng.standard_normal(shape).astype(dtype) for shape in ((m, k), (k, n), (m, n)))
            a[1, 3], b[5, 0], out[0, 0] = np.inf, np.nan, -0.0
            expected = out.copy()
            for i in range(m):
                loop(a[i : i + 1], b, expected[i : i + 1], *rest)
            loop(a, b, out, *rest)
            assert_bits(out, expected)
