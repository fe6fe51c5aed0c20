"""Stacks of matrices in one call of a loop."""

import numpy as np
import pytest

import simfloat as sf
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
@pytest.mark.parametrize("shape", [(3, 9, 7, 21), (2, 33, 16, 64), (4, 5, 0, 3), (0, 5, 4, 3)], ids=str)
def test_a_stack_of_matrices_is_summed_as_its_matrices_are_alone(name, shape):
    loop, rest = LOOPS[name]
    count, m, depth, n = shape
    a, b, out = numbers(count, m, depth), numbers(count, depth, n), numbers(count, m, n)
    expected, stacked = out.copy(), out.copy()
    for i in range(count):
        loop(a[i], b[i], expected[i], *rest)
    flat = count * m, count * depth
    loop(a.reshape(flat[0], depth), b.reshape(flat[1], n), stacked.reshape(flat[0], n), *rest)
    assert_bits(stacked, expected)


@pytest.mark.parametrize("name", LOOPS)
def test_one_left_matrix_serves_a_whole_stack(name):
    loop, rest = LOOPS[name]
    a, b = numbers(6, 8), numbers(3, 8, 40)
    expected, stacked = np.zeros((3, 6, 40), np.float32), np.zeros((18, 40), np.float32)
    for i in range(3):
        loop(a, b[i], expected[i], *rest)
    loop(a, b.reshape(-1, 40), stacked, *rest)
    assert_bits(stacked.reshape(expected.shape), expected)


@pytest.mark.parametrize("name", LOOPS)
def test_every_nan_among_the_sums_is_the_one_nan(name):
    loop, rest = LOOPS[name]
    strange = np.array([0x7FC12345, 0xFFC00000, 0xFF812345], np.uint32).view(np.float32)
    out = np.zeros((5, 3), np.float32)
    loop(np.ones((5, 1), np.float32), strange[np.newaxis], out, *rest)
    assert (out.view(np.uint32) == 0x7FC00000).all()
