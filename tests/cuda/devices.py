"""The device of a repeated call: the GPU, or arrays and loops that stand in for it."""

import sys
from contextlib import contextmanager

import numpy as np

from simfloat.arithmetic import machines
from tests.cuda import plain, simulated, standin


class TooLong(Exception):
    """A loop has more steps than plain Python is given time for."""


class Gpu:
    """CuPy and its GPU."""

    takes_all = True

    def take(self, array):
        """The array there."""
        return machines.GPU.to_device(array)

    @contextmanager
    def present(self):
        """It always is."""
        yield


class StandIn:
    """Arrays as CuPy's, and loops that plain Python carries out one thread after the other, in an order of chance."""

    takes_all = False

    def __init__(self, most_steps=None):
        """Loops of more than `most_steps` are refused, and those after ten times as many in one presence."""
        self.most_steps, self._taken = most_steps, 0

    def take(self, array):
        """The array there."""
        if not array.ndim:  # as `Machine.take` has it
            return standin.moved(array.reshape(1)).reshape(())
        return standin.moved(array)

    @contextmanager
    def present(self):
        """The process has a module `cupy`, and the machine of its arrays these loops."""
        cupy, thread_loops = sys.modules.get("cupy"), plain.modules()["simfloat.kernels.gpu.threads"]
        launch, thread_loops.launch = thread_loops.launch, self.launch
        standin.install()
        self._taken = 0
        try:
            with plain.in_place(), np.errstate(all="ignore"):
                yield
        finally:
            thread_loops.launch = launch
            del sys.modules["cupy"]
            if cupy is not None:
                sys.modules["cupy"] = cupy

    def launch(self, body, count, arguments):
        """Start a loop as on the GPU; TooLong if it has too many steps."""
        taken = steps(count, arguments)
        self._taken += taken
        if self.is_too_long(taken) or self.is_too_long(self._taken // 10):
            raise TooLong
        simulated.in_a_row(body, count, arguments)

    def is_too_long(self, count):
        """True if a loop with this number of steps is rejected."""
        return self.most_steps is not None and count > self.most_steps


class Counting(StandIn):
    """The stand-in, with the modules of the loops that it started."""

    def __init__(self):
        super().__init__()
        self.started = []

    def launch(self, body, count, arguments):
        """Note the module of the body, and start the loop."""
        self.started.append(body.__module__.rpartition(".")[2])
        super().launch(body, count, arguments)


def steps(count, arguments):
    """The maximum number of steps of a loop: a thread may iterate over an axis of a matrix."""
    matrices = [x for x in arguments if isinstance(x, standin.ndarray) and x.ndim > 1]
    return count * max([1, *(max(x.shape) for x in matrices)])
