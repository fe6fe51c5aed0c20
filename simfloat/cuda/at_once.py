"""Operations rounded where they are made: see `kernels/at_once.py`."""

from __future__ import annotations

import numpy as np

from simfloat.cuda.elementwise import at
from simfloat.cuda.loop import threads_over
from simfloat.kernels.at_once import FUNCTIONS
from simfloat.kernels.grid import unpack
from simfloat.kernels.plain import nearest, one_nan


def rounded_loop(function):
    """The operation on vectors, or on one and a number, for plain grids."""

    @threads_over("out")
    def loop(i, a, b, out, numbers):
        out[i] = one_nan(nearest(function(np.float64(at(a, i)), np.float64(at(b, i))), unpack(numbers)))

    return loop


rounded_results = {name: rounded_loop(function) for name, function in FUNCTIONS.items()}
