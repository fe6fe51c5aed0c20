"""Exact sums in pieces on a few grids, a thread for every element of the result: see `kernels/bins.py`."""

from __future__ import annotations

import numpy as np

from simfloat.cuda.thread_loops import threads_over
from simfloat.kernels.jit import scalar
from simfloat.kernels.unrounded import odd_sum, two_product


@scalar
def _add_pieces(rest, bins, i, j, anchors):
    """Add a number's pieces to the bins; nothing is left in the end."""
    for t in range(len(anchors)):
        piece = (rest + anchors[t]) - anchors[t]
        bins[t, i, j] += piece
        rest -= piece


@threads_over("start")
def bin_sums(t, a, b, start, bins, anchors, exact_products):
    """bins (t, m, n) = the pieces of start + a (m, k) times b (k, n) on the grids of `anchors` (t), coarse to fine."""
    i, j = t // start.shape[1], t % start.shape[1]
    for g in range(len(anchors)):
        bins[g, i, j] = 0.0
    _add_pieces(start[i, j], bins, i, j, anchors)
    for k in range(a.shape[1]):
        product, error = two_product(a[i, k], b[k, j])
        if exact_products == 0:
            _add_pieces(error if abs(product) < np.inf else 0.0, bins, i, j, anchors)
        _add_pieces(product, bins, i, j, anchors)


@threads_over("bins")
def _carry(t, bins, anchors):
    i, j = t // bins.shape[2], t % bins.shape[2]
    for g in range(len(anchors) - 1, 0, -1):
        piece = (bins[g, i, j] + anchors[g - 1]) - anchors[g - 1]
        # What an infinite product left behind is NaN; the first bin has the infinity itself.
        bins[g - 1, i, j] += piece if piece == piece else 0.0
        bins[g, i, j] -= piece


def carry(bins, anchors):
    """Move to each bin what the finer one below it has above half its grid; the total stays what it is."""
    _carry.start(bins[0].size, bins, anchors)


@threads_over("out")
def odd_totals(t, bins, out):
    """The totals of carried bins, rounded to odd in at least 52 bits; what is infinite or NaN is so in the first."""
    i, j = t // out.shape[1], t % out.shape[1]
    total = 0.0
    for g in range(bins.shape[0] - 1, -1, -1):
        total = odd_sum(bins[g, i, j], total)
    out[i, j] = total if abs(bins[0, i, j]) < np.inf else bins[0, i, j]
