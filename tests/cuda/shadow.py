"""Repeat every call of the library that computes on a GPU, and require the same bits there.

`install` replaces the functions of the library by functions that do so. They compare values (NaN equals NaN, zeros are
compared with their sign), types and shapes of results, events of observers, and errors with their class and message.
Operands must not change. `moving.py` contains the rules for arguments.
"""

import functools
import inspect
import sys
import threading
from collections import Counter
from itertools import combinations

import numpy as np

import simfloat as sf
from simfloat.arithmetic.casts import Cast
from simfloat.arithmetic.machines import is_on_gpu
from simfloat.simulation.arithmetic import Arithmetic
from tests.bits import assert_bits
from tests.cuda.devices import TooLong
from tests.cuda.moving import Heard, Move, NotMovable, as_array, heard

#: The rooms whose public functions compute on arrays.
ROOMS = ("simfloat.arithmetic", "simfloat.sums")


class Shadow:
    """Calls on a device in addition to the CPU, and the called functions."""

    def __init__(self, device):
        self.device = device
        self.paused = False
        self.repeated, self.left_out = Counter(), Counter()  # calls, by function
        self._met = set()  # pairs of what came together in a call
        self._busy = threading.Lock()  # what a function calls itself, and other threads, are not repeated

    def beside(self, function):
        """The function, which is called on the device, too."""
        signature = inspect.signature(function)

        @functools.wraps(function)
        def both(*args, **options):
            if self.paused or not self._busy.acquire(blocking=False):
                return function(*args, **options)
            try:
                return self._both(function, signature, args, options)
            finally:
                self._busy.release()

        return both

    def _both(self, function, signature, args, options):
        try:
            given = signature.bind(*args, **options).arguments
        except TypeError:  # no call at all
            return function(*args, **options)
        if not self._is_due(function, given):
            return function(*args, **options)
        move, given = Move(self.device), {name: heard(value) for name, value in given.items()}
        try:
            with self.device.present():
                there = moved(move, given, signature.parameters)
        except NotMovable:
            there = None
        want, error = outcome(function, signature, given)
        if there is not None:
            self._repeat(function, signature, there, move, (want, error), given)
        if error is not None:
            raise error
        return want

    def _is_due(self, function, given):
        """True if a call is repeated: every call, or a small one with a new pair of arguments."""
        if self.device.takes_all:
            return True
        if any(isinstance(value, np.ndarray) and self.device.is_too_long(value.size) for value in given.values()):
            self.left_out[function.__qualname__] += 1
            return False
        kinds = [function.__qualname__, *((name, kind_of(value)) for name, value in given.items())]
        pairs = set(combinations(kinds, 2))
        if pairs <= self._met:
            return False
        self._met |= pairs
        return True

    def _repeat(self, function, signature, there, move, expected, given):
        name = function.__qualname__
        try:
            with self.device.present():
                got = outcome(function, signature, there)
                if isinstance(got[1], TooLong) or is_too_large(got[1]):
                    self.left_out[name] += 1
                    return
                self.repeated[name] += 1
                compare(got, expected)
                for x, y in move.arrays:
                    assert_same(y, x)
                assert heard_by(there) == heard_by(given)
        except AssertionError as error:
            raise AssertionError(f"{name} on the GPU, of {describe(given)}: {error}") from got[1]


def moved(move, given, parameters):
    """The arguments on the device."""
    kinds = {name: str(parameters[name].annotation) for name in given}
    there = {name: move.argument(value, kinds[name]) for name, value in given.items()}
    if not move.arrays:  # numbers alone
        operands = [name for name in given if takes_operand(kinds[name]) and given[name] is not None]
        there |= {name: move.once(as_array(given[name])) for name in operands}
    if not move.arrays or any(isinstance(there[name], str) for name in there if takes_operand(kinds[name])):
        raise NotMovable(given)
    return there


def outcome(function, signature, given):
    """The result of a call, and the exception that it ended with."""
    bound = signature.bind_partial()
    bound.arguments.update(given)
    try:
        return function(*bound.args, **bound.kwargs), None
    except Exception as error:
        return None, error


def is_too_large(error):
    """True if a call failed because the GPU had too little memory."""
    return isinstance(error, MemoryError) or "bytes, and of the GPU's" in str(error)


def compare(got, expected):
    """Compare the outcomes of a call."""
    (there, refusal), (want, error) = got, expected
    if refusal is not None or error is not None:
        assert (type(refusal), str(refusal)) == (type(error), str(error)), f"{refusal!r} is not {error!r}"
    else:
        assert_same(there, want)


def assert_same(there, want):
    """A result on the device and one on the CPU."""
    if isinstance(want, sf.BlockScaled):
        assert (there.block, there.axis, there.tensor_scale) == (want.block, want.axis, want.tensor_scale)
        there, want = tuple(vars(there).values())[:2], tuple(vars(want).values())[:2]
    if isinstance(want, tuple):
        assert len(there) == len(want)
        for one, other in zip(there, want, strict=True):
            assert_same(one, other)
    elif isinstance(want, np.ndarray) and want.dtype.kind in "fiub":
        assert is_on_gpu(there), f"{type(there)} is no array on the GPU"
        assert there.dtype == want.dtype, f"{there.dtype} is not {want.dtype}"
        assert_bits(there.get(), want)
    else:
        assert type(there) is type(want) and np.array_equal(there, want), f"{there!r} is not {want!r}"


def heard_by(given):
    """The events that observers among the arguments received."""
    targets = [value.target for value in given.values() if isinstance(value, Arithmetic)]
    observers = [*given.values(), *(target.observer for target in targets)]
    return [observer.events for observer in observers if isinstance(observer, Heard)]


def kind_of(value):
    """What tells kinds of calls apart in an argument: of an array its type, its layout, and whether all is finite."""
    if isinstance(value, np.ndarray):
        known = value.dtype.kind != "f" or value.size > 1000 or bool(np.isfinite(value).all())
        return value.dtype, value.ndim, min(value.size, 2), value.flags.c_contiguous, known
    if isinstance(value, Arithmetic):
        return value.target.format, value.target.rounding, value.accumulate, value.reduce, value.target.observer is None
    if isinstance(value, tuple):
        return tuple(map(kind_of, value))
    try:
        hash(value)
    except TypeError:
        return type(value)
    return type(value) if isinstance(value, int | float | sf.Observer | sf.BitStream | sf.GivenBits) else value


def describe(given):
    """The arguments of a call, in short."""
    return ", ".join(
        f"{name}={value.dtype}{value.shape}" if isinstance(value, np.ndarray) else f"{name}={value!r:.300}"
        for name, value in given.items()
    )


def functions():
    """The public functions that take arrays, by name."""
    known = {name: getattr(sf, name) for name in sf.__all__ if inspect.isfunction(getattr(sf, name))}
    return {name: value for name, value in known.items() if value.__module__.startswith(ROOMS) and takes_arrays(value)}


def takes_arrays(function):
    """True if a function has a parameter for arrays."""
    kinds = [str(one.annotation) for one in inspect.signature(function).parameters.values()]
    return any(takes_operand(kind) or "NDArray" in kind for kind in kinds)


def takes_operand(kind):
    """True if an annotation also allows numbers and sequences."""
    return "ArrayLike" in kind or "OperandLike" in kind


def install(shadow):
    """Put what is repeated in the place of the package's public functions, and of what tensors compute with."""
    for name, function in functions().items():
        both = shadow.beside(function)
        for module in [module for path, module in sys.modules.items() if path.partition(".")[0] == "simfloat"]:
            if vars(module).get(name) is function:
                setattr(module, name, both)
    for owner in (Cast, Arithmetic):
        for name, method in list(vars(owner).items()):
            if inspect.isfunction(method) and not name.startswith("_") and takes_arrays(method):
                setattr(owner, name, shadow.beside(method))
