"""Operations rounded where they are made: see `kernels/at_once.py`."""

from __future__ import annotations

import numpy as np

from simfloat.cuda.elementwise import at
from simfloat.cuda.loop import threads_over
from simfloat.cuda.results import kept
from simfloat.kernels.at_once import FUNCTIONS
from simfloat.kernels.grid import unpack
from simfloat.kernels.plain import nearest


def rounded_loop(function):
    """The operation on vectors, or on one and a number, for plain grids."""

    @threads_over("out")
    def loop(i, a, b, out, numbers):
        out[i] = kept(nearest(function(np.float64(at(a, i)), np.float64(at(b, i))), unpack(numbers)), out)

    return loop


rounded_results = {name: rounded_loop(function) for name, function in FUNCTIONS.items()}
