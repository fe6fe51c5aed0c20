"""Sums in float64 in a documented order: the same bits on every computer and version of Python and NumPy."""

import numpy as np
import pytest

from simfloat.optim.clipping import FEW, sequential_sum, sum_of_squares
from tests.bits import assert_bits


def as_stated(x):
    """The definition, number by number."""
    values = [float(value) * float(value) for value in x.ravel()]
    while len(values) > FEW:
        half = (len(values) + 1) // 2
        values = [values[i] + values[half + i] if half + i < len(values) else values[i] for i in range(half)]
    total = 0.0
    for value in values:
        total += value
    return total


@pytest.mark.parametrize("shape", [(0,), (1,), (FEW,), (FEW + 1,), (129,), (13, 17), (5, 4, 31)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_squares_are_added_in_the_order_that_is_stated(shape, dtype, rng):
    x = (rng.standard_normal(shape) * 10.0 ** rng.integers(-9, 9, shape)).astype(dtype)
    kept = x.copy()
    assert sum_of_squares(x) == as_stated(x)
    assert sum_of_squares(np.asfortranarray(x)) == as_stated(x)
    assert_bits(x, kept)


def test_what_is_not_finite_stays_so_without_a_warning():
    assert sum_of_squares(np.array([np.inf, 1.0])) == np.inf and np.isnan(sum_of_squares(np.array([np.inf, np.nan])))
    assert sum_of_squares(np.full(2, 1e200)) == np.inf


def test_numbers_are_added_one_after_another():
    assert sequential_sum([1.0, 1e16, -1e16]) == 0.0 and sequential_sum([]) == 0.0
