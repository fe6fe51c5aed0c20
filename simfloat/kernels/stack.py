"""Stacks of matrices: several products in one call of a loop.

`a` is (m, k), `b` (k, n) and `out` (m, n); of a stack, the matrices of `b` and of `out` lie below one another, and so
do those of `a`, unless one matrix serves all. How many there are follows from the shapes.
"""

from __future__ import annotations

from simfloat.kernels.halves import with_one_nan
from simfloat.kernels.jit import scalar


@scalar
def product_count(a, b):
    """How many products there are."""
    return b.shape[0] // a.shape[1] if a.shape[1] > 0 else 1


@scalar
def product_matrices(a, b, out, i):
    """The matrices of product number i."""
    rows, depth = out.shape[0] // product_count(a, b), a.shape[1]
    top = 0 if a.shape[0] == rows else i * rows
    return a[top : top + rows], b[i * depth : (i + 1) * depth], out[i * rows : (i + 1) * rows]


@scalar
def row_of_left(a, i):
    """The row of `a` for row i of `out`."""
    return i if i < a.shape[0] else i % a.shape[0]


@scalar
def top_of_right(a, b, out, i):
    """The first row of the matrix of `b` for row i of `out`."""
    products = product_count(a, b)
    return i // (out.shape[0] // products) * a.shape[1] if products > 1 else 0


@scalar
def make_nans_one(out):
    """Make every NaN among the sums the one NaN, so that no later pass has to."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = with_one_nan(out[i, j])
