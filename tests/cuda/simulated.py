"""Thread loops without a GPU, in plain Python: one thread after the other, or under numba-cuda's simulator.

Bodies must be plain: those of `plain.py`, or all of them in a process with NUMBA_DISABLE_JIT=1. The simulator needs
such a process with NUMBA_ENABLE_CUDASIM=1.
"""

import random

import numpy as np

from simfloat.kernels.gpu import compiling
from tests.cuda.standin import ndarray

#: Threads of a block: few enough that a loop has several blocks.
BLOCK = 32


def on_simulator(body, count, arguments):
    """The loop on the simulator's grid."""
    from numba import cuda

    from simfloat.kernels.gpu.compiling import kernel_of

    with np.errstate(all="ignore"):
        cuda.jit(kernel_of(body))[-(-count // BLOCK), BLOCK](np.int64(count), *map(received, arguments))


def in_a_row(body, count, arguments):
    """The loop's threads one after the other, in an order of chance."""
    arguments, numbers = tuple(map(received, arguments)), list(range(count))
    random.Random(count).shuffle(numbers)
    with np.errstate(all="ignore"):
        for i in numbers:
            body(np.int64(i), *arguments)


def received(argument):
    """An argument as a kernel receives it."""
    if isinstance(argument, ndarray):
        assert argument.flags.c_contiguous
        return argument._host
    (kind, dtype, *_), _, numbers = compiling.describe_argument(argument)
    values = np.frombuffer(numbers, dtype)
    return tuple(values) if kind == "numbers" else values[0]
