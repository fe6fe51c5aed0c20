"""Operations whose results the hardware rounds to FP16: see `kernels/converted.py`."""

from __future__ import annotations

import numpy as np

from simfloat.cuda.elementwise import at
from simfloat.cuda.loop import threads_over
from simfloat.cuda.results import kept
from simfloat.kernels.converted import FUNCTIONS


def converted_loop(function):
    """The operation on vectors, or on numbers by value."""

    @threads_over("out")
    def loop(i, a, b, c, out):
        out[i] = kept(function(np.float32(at(a, i)), np.float32(at(b, i)), np.float32(at(c, i))), out)

    return loop


converted_results = {name: converted_loop(function) for name, function in FUNCTIONS.items()}
