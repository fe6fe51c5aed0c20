"""Exact sums: every product is split into pieces on a few fixed grids, and float64 adds the pieces of a grid exactly.

Adding and subtracting an anchor rounds to the grid of the anchor, so a piece and the remainder of the product are
exact. The spacing of the grids is chosen so that the sum of all pieces on one grid fits into 53 bits. After Demmel and
Hida, "Accurate and efficient floating point summation", SIAM J. Sci. Comput. 25(4), 2003, and Rump's extraction of
vectors.
"""

from __future__ import annotations

import numpy as np

from simfloat.kernels.compile.jit import copy_into, kernel, scalar
from simfloat.kernels.elementwise.exact import odd_sum, two_product

COLUMNS = 256


@kernel
def bin_sums(a, b, start, bins, anchors, exact_products):
    """Compute bins (t, m, n): pieces of start + a (m, k) times b (k, n) on the grids of `anchors` (t), coarse to
    fine.
    """
    rest, error = np.empty(COLUMNS), np.empty(COLUMNS)
    bins[:] = 0.0
    for left in range(0, bins.shape[2], COLUMNS):
        right = min(left + COLUMNS, bins.shape[2])
        for i in range(bins.shape[1]):
            copy_into(rest, start[i, left:right])
            _add_pieces(rest[: right - left], bins[:, i, left:right], anchors)
            for k in range(a.shape[1]):
                x, row = a[i, k], b[k, left:right]
                if exact_products:
                    for j in range(row.size):
                        rest[j] = x * row[j]
                else:
                    for j in range(row.size):
                        rest[j], lost = two_product(x, row[j])
                        error[j] = lost if abs(rest[j]) < np.inf else 0.0
                    _add_pieces(error[: row.size], bins[:, i, left:right], anchors)
                _add_pieces(rest[: row.size], bins[:, i, left:right], anchors)


@scalar
def _add_pieces(rest, bins, anchors):
    """Add the pieces of each number to the bins; the remainders become zero."""
    for t in range(anchors.size):
        anchor, sums = anchors[t], bins[t]
        for j in range(rest.size):
            # The piece and the remainder are both exact: the grid of the anchor is so coarse that the remainder has at
            # most half of it. No bit is ever lost, so the order of the products does not matter.
            piece = (rest[j] + anchor) - anchor
            sums[j] += piece
            rest[j] -= piece


@kernel
def carry(bins, anchors):
    """Round each bin to the grid of the next coarser bin, and move that part there; the total does not change."""
    for t in range(anchors.size - 1, 0, -1):
        anchor, fine, coarse = anchors[t - 1], bins[t].reshape(-1), bins[t - 1].reshape(-1)
        for j in range(fine.size):
            piece = (fine[j] + anchor) - anchor
            # The remainder of an infinite product is NaN; the infinity itself is in the first bin.
            coarse[j] += piece if piece == piece else 0.0
            fine[j] -= piece


@kernel
def odd_totals(bins, out):
    """Round the totals of carried bins to odd in at least 52 bits; infinite and NaN totals are in the first bin."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            total = 0.0
            for t in range(bins.shape[0] - 1, -1, -1):
                total = odd_sum(bins[t, i, j], total)
            out[i, j] = total if abs(bins[0, i, j]) < np.inf else bins[0, i, j]
