"""Operations and sums defined by exact fractions, from the self-test; and an order of sums."""

from simfloat.tools.selftest.definitions import draws, exact, operate, sequential_dot, step_draw, words_at_python
from simfloat.tools.selftest.orders import matrix as matrix_product

__all__ = ["draws", "exact", "in_halves", "matrix_product", "operate", "sequential_dot", "step_draw", "words_at_python"]


def in_halves(lanes):
    """The order in which the threads of a warp add their sums: each half's to the other's, and so on."""

    def order(numbers):
        return f"({order(numbers[::2])} + {order(numbers[1::2])})" if len(numbers) > 1 else str(numbers[0])

    return order(range(lanes))[1:-1]
