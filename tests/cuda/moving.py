"""The arguments of a call on a GPU: the same values in the same memory layout, with the same random bits.

Arrays keep their layout: transposed, with gaps, reversed, or repeated by a stride of zero. A number, or a sequence of
numbers, next to an array operand stays unchanged; without an array operand it is moved as the array that NumPy makes of
it. A stream is copied in its present state. Observers receive the events of the CPU; the events of the GPU are recorded
separately.
"""

import copy
from dataclasses import replace

import numpy as np
from numpy.lib.stride_tricks import as_strided

import simfloat as sf
from simfloat.arithmetic.machines import GPU
from simfloat.arithmetic.operands import as_operand
from simfloat.arithmetic.scaling import AmaxHistory
from simfloat.arithmetic.target import Target
from simfloat.kernels.rounding.events import wants_optional_counts
from simfloat.simulation.arithmetic import Arithmetic


class NotMovable(Exception):
    """CuPy has no array for this."""


class Heard(sf.Observer):
    """Passes on what is observed, if anybody listens, and keeps it."""

    def __init__(self, observer=None, more=False):
        self.observer, self.more = observer, more
        self.events = []

    def wants(self, path, phase):
        return getattr(self.observer, "wants", lambda path, phase: True)(path, phase)

    def observe(self, events, *what):
        self.events.append((events.tolist(), *what))
        if self.observer is not None:
            self.observer.observe(events, *what)


class Move:
    """Moves the arguments of one call: what occurs twice among them is moved once."""

    def __init__(self, device):
        self.device = device
        self.moved = {}  # by identity: the argument, which stays alive with it, and what it became
        self.arrays = []  # (what was moved, where it is now)

    def argument(self, value, annotation):
        """Return the argument of the call on the GPU for a parameter with this annotation."""
        if isinstance(value, list | tuple) and ("ArrayLike" in annotation or "OperandLike" in annotation):
            if "tuple[ArrayLike" in annotation:
                return tuple(self.argument(one, "ArrayLike") for one in value)
            return self.once(as_array(value))
        if isinstance(value, tuple) and annotation == "NDArray":  # *operands
            return tuple(map(self.once, value))
        is_out = isinstance(value, np.ndarray) and annotation.endswith("| None") and id(value) not in self.moved
        if is_out and any(np.may_share_memory(value, x) for x, _ in self.arrays):
            raise NotMovable(value)  # what is written to one would be seen in the other
        return self.once(value)

    def once(self, value):
        if id(value) not in self.moved:
            self.moved[id(value)] = value, self.other(value)
        return self.moved[id(value)][1]

    def other(self, value):
        """Return the counterpart of one value."""
        if isinstance(value, np.ndarray):
            return self.array(value)
        if hasattr(value, "__array__") and not isinstance(value, np.generic | type):
            raise NotMovable(value)  # another library's
        if isinstance(value, sf.BlockScaled):
            return replace(value, elements=self.once(value.elements), scales=self.once(value.scales))
        if isinstance(value, sf.BitStream):
            return sf.BitStream.from_state(value.state)
        if isinstance(value, sf.GivenBits | AmaxHistory):
            return copy.deepcopy(value)
        if isinstance(value, Heard):
            return Heard(more=value.more)
        if isinstance(value, Arithmetic):
            return value.with_target(self.once(value.target))._replace(histories=self.once(value.histories))
        if isinstance(value, Target):
            return value._replace(**{name: self.once(part) for name, part in value._asdict().items()})
        if isinstance(value, tuple) and any(isinstance(one, AmaxHistory) for one in value):
            return tuple(map(self.once, value))
        return value

    def array(self, x):
        """An array there, with the strides that it has here."""
        if type(x) is not np.ndarray or x.dtype.isbuiltin != 1 or x.dtype.kind not in "fiub" or x.dtype.itemsize > 8:
            raise NotMovable(x)
        there = strided(self.device, x)
        self.arrays.append((x, there))
        return there


def as_array(values):
    """The array that NumPy makes of a sequence of numbers."""
    try:
        as_operand(values)  # NumPy would round integers that float64 lacks, and unmask what is masked
        return np.asarray(values)
    except ValueError:
        raise NotMovable(values) from None


def strided(device, x):
    """Return an array on the device with the memory layout of `x`."""
    backwards = [axis for axis in range(x.ndim) if x.strides[axis] < 0]
    forwards = np.flip(x, backwards)
    if x.size == 0 or x.flags.c_contiguous or any(step % x.itemsize for step in x.strides):
        return device.take(x)
    length = 1 + sum((n - 1) * step for n, step in zip(x.shape, forwards.strides, strict=True)) // x.itemsize
    memory = device.take(np.ascontiguousarray(as_strided(forwards, (length,), (x.itemsize,), writeable=False)))
    there = GPU.arrays.lib.stride_tricks.as_strided(memory, x.shape, forwards.strides)
    return there[tuple(slice(None, None, -1 if axis in backwards else None) for axis in range(x.ndim))]


def heard(value):
    """An observer among arguments as one that keeps what it hears."""
    if isinstance(value, Arithmetic):
        return value.with_target(heard(value.target))
    if isinstance(value, Target):
        return value._replace(observer=heard(value.observer)) if value.observer is not None else value
    if isinstance(value, Heard) or isinstance(value, type) or not callable(getattr(value, "observe", None)):
        return value
    return Heard(value, wants_optional_counts(value))
