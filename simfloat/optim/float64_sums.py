"""Float64 sums of measurements in one fixed order: that of NumPy, CuPy and Python differs by version and machine."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import on_cpu

#: So many numbers, or fewer, are added one after another.
FEW = 64


def sequential_sum(values: Iterable[float]) -> float:
    """The sum of numbers, one after another; Python's `sum` compensates from 3.12 on."""
    return reduce(add, values, 0.0)


def sum_of_squares(x: NDArray) -> float:
    """The sum of all x^2, an infinity or NaN where there is one; x may lie on a GPU.

    Of n numbers in C order the second half is added to the first, whose middle one stays alone where n is odd, and so
    on until few are left, which are added one after another.
    """
    squares = x.ravel().astype(np.float64)
    with np.errstate(all="ignore"):
        squares *= squares
        while squares.size > FEW:
            half = (squares.size + 1) // 2
            squares[: squares.size - half] += squares[half:]
            squares = squares[:half]
        return sequential_sum(on_cpu(squares).tolist())
