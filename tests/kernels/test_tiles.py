"""Tiles of a product with sums that stay in registers."""

from itertools import product

import numpy as np

import simfloat as sf
from simfloat.kernels.lanes.lanes import width
from simfloat.kernels.rounding import grid
from simfloat.kernels.sums import rows
from tests.bits import assert_bits


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
