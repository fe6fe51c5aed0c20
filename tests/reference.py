"""Operations and sums defined by exact fractions, from the package's self-test, and what only the tests need."""

import numpy as np

from simfloat.selftest.reference import draws, exact, operate, sequential_dot, step_draw, words_at_python

__all__ = ["draws", "exact", "matrix_product", "operate", "sequential_dot", "step_draw", "words_at_python"]


def matrix_product(a, b, dot):
    """The matrix of dot(row of a, column of b, element number)."""
    rows, columns = len(a), b.shape[1]
    flat = [dot(a[i], b[:, j], i * columns + j) for i in range(rows) for j in range(columns)]
    return np.array(flat, np.float64).reshape(rows, columns)
