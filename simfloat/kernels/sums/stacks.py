"""Stacks of matrices, which are several products in one call of a loop.

`a` is (m, k), `b` (k, n) and `out` (m, n). In a
stack, the matrices of `b` and of `out` are below one another, and so are the matrices of `a`, unless one matrix serves
all products. The number of products follows from the shapes.
"""

from __future__ import annotations

from simfloat.kernels.compile.jit import scalar
from simfloat.kernels.elementwise.half import with_one_nan


@scalar
def product_count(a, b):
    """Return the number of products in a stack."""
    return b.shape[0] // a.shape[1] if a.shape[1] > 0 else 1


@scalar
def product_matrices(a, b, out, i):
    """Return the matrices of product number i."""
    rows, depth = out.shape[0] // product_count(a, b), a.shape[1]
    top = 0 if a.shape[0] == rows else i * rows
    return a[top : top + rows], b[i * depth : (i + 1) * depth], out[i * rows : (i + 1) * rows]


@scalar
def row_of_left(a, i):
    """Return the row of `a` for row i of `out`."""
    return i if i < a.shape[0] else i % a.shape[0]


@scalar
def top_of_right(a, b, out, i):
    """Return the first row of the matrix of `b` for row i of `out`."""
    products = product_count(a, b)
    return i // (out.shape[0] // products) * a.shape[1] if products > 1 else 0


@scalar
def make_nans_one(out):
    """Replace every NaN among the sums by the positive quiet NaN, so that no later pass has to."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = with_one_nan(out[i, j])
