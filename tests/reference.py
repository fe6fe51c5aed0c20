"""Operations and sums defined by exact fractions, from the package's self-test."""

from simfloat.selftest.orders import matrix as matrix_product
from simfloat.selftest.reference import draws, exact, operate, sequential_dot, step_draw, words_at_python

__all__ = ["draws", "exact", "matrix_product", "operate", "sequential_dot", "step_draw", "words_at_python"]
