"""Where arrays lie and loops run: all that depends on the machine that computes.

Arrays decide. A call asks once on which machine its operands lie, ``device_of``, and hands the answer on: as part of
the key of what it remembers, and to the engines of sums in their `Region`. A loop is always reached through the machine
of the array that it writes, so another machine is added here alone. It provides

* `arrays`, the module of its arrays, with NumPy's names: what NumPy's own functions do, they do for its arrays too
  (NEP 18), and arrays are created by it or with ``like=``, or where they are full of a number by `full_like` and
  `ones_like`: given `like=`, NumPy's `full` and `ones` pass `device=`, too, which CuPy's do not take;
* `loops`, all that :class:`Loops` lists (`loops.py`), under the same names and with the same signatures and bits.
  Numbers of grids and units come as small NumPy arrays that are never written to; `out`, `words` and operands lie on
  the machine.

Scalar arithmetic is written once, in `kernels`; only loops differ.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, cast

import numpy as np
from numpy import ndarray

from simfloat import cuda, kernels
from simfloat.arithmetic.loops import Loops
from simfloat.checks import as_rectangular_array
from simfloat.cuda import subnormal_numbers


@dataclass(frozen=True, eq=False)
class Device:
    """The module of a machine's arrays, and the loops that take them; one object a machine, which serves as a key."""

    module: str  # of its arrays
    loops: Loops
    in_pieces: bool  # whether work is cut into blocks that stay in a cache, and pieces for several threads

    @property
    def arrays(self) -> ModuleType:
        """The module of its arrays."""
        return np if self is CPU else sys.modules.get(self.module) or import_module(self.module)

    def to_device(self, array: Any) -> Any:
        """The array on this machine: itself, if it is there."""
        if self is not GPU:
            return on_cpu(array)
        if isinstance(array, ndarray) and array.ndim == 0:  # CuPy fills a new array with it, and makes 0 of -0
            return self.arrays.asarray(array.reshape(1)).reshape(())
        return self.arrays.asarray(array)

    def new_array(self, function: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """An array in C order by "empty" or "zeros". Raises ValueError if a GPU's memory is too small for it."""
        try:
            return getattr(self.arrays, function)(shape, dtype)
        except MemoryError:
            if self is not GPU:
                raise
            free, total = self.arrays.cuda.runtime.memGetInfo()
            needed = math.prod(shape) * np.dtype(dtype).itemsize
            raise ValueError(
                f"An array of shape {shape} takes {needed:,} bytes, and of the GPU's {total:,} there are {free:,} "
                "left: pass smaller operands, or NumPy's."
            ) from None


#: NumPy's arrays and Numba's loops, each of which is imported and compiled when it is first reached.
CPU = Device("numpy", cast(Loops, kernels), in_pieces=True)

#: CuPy's arrays and the same loops as CUDA grids.
GPU = Device("cupy", cast(Loops, cuda), in_pieces=False)

#: Ten times the least compute capability: see `cuda/compiling.py`, which is not imported here.
OLDEST_GENERATION = 80


def device_named(device: Any) -> Device:
    """The machine that users call "cpu" or "cuda". Raises ValueError for other names, and where there is no GPU."""
    if device == "cpu":
        return CPU
    if device != "cuda":
        raise ValueError(f"device is 'cpu' or 'cuda', got {device!r}.")
    if (missing := what_cuda_lacks()) is not None:
        raise ValueError(
            f"device='cuda' needs an NVIDIA GPU, CuPy and numba-cuda, pip install simfloat[cuda]; {missing}."
        )
    return GPU


def what_cuda_lacks() -> str | None:
    """What keeps this process from computing on a GPU, None if nothing does."""
    for module, name in (("cupy", "CuPy"), ("numba_cuda", "numba-cuda")):
        if module not in sys.modules and find_spec(module) is None:
            return f"{name} is not installed"
    try:
        if not GPU.arrays.cuda.runtime.getDeviceCount():
            return "CuPy finds no GPU"
        generation = int(GPU.arrays.cuda.Device().compute_capability)
    except Exception as error:  # of CuPy's own, or of the loader's where a library is missing
        return f"CuPy finds no GPU: {error}"
    if generation < OLDEST_GENERATION:
        return f"the GPU's compute capability is {generation / 10}, and kernels need 8.0, Ampere's, or a newer one"
    return None


def device_of(array: Any, *others: Any) -> Device:
    """The machine that arrays lie on: the GPU if one of them does.

    Raises ValueError for arrays of another library's on a GPU, and for more than one number in NumPy's beside a GPU's.
    """
    if type(array) is ndarray:
        if not others:
            return CPU
        for other in others:
            if type(other) is not ndarray:
                break
        else:
            return CPU
    elif not others and is_on_gpu(array):
        return GPU
    arrays = (array, *others)
    elsewhere = [one for one in arrays if not is_on_gpu(one)]
    for one in elsewhere:
        check_reachable(one)
    if len(elsewhere) == len(arrays):
        return CPU
    for one in elsewhere:
        if one.size != 1:
            raise ValueError(
                f"One operand is on a GPU, another, of shape {one.shape}, is not; pass cupy.asarray of it, too."
            )
    return GPU


def is_on_gpu(array: Any) -> bool:
    """Whether an array is one of CuPy's."""
    kind: Any = type(array)
    if kind is ndarray or not _is_cupys(kind):
        return False
    subnormal_numbers.keep_subnormal_numbers()
    return True


@cache
def _is_cupys(kind: type) -> bool:
    """Whether a type is that of CuPy's arrays. An array is not asked for its interface, which CuPy makes each time."""
    return kind.__module__.partition(".")[0] == "cupy" and hasattr(kind, "__cuda_array_interface__")


def as_array(x: Any, name: str = "an operand") -> Any:
    """`x` as one of CuPy's arrays if it is one, else of NumPy's; ValueError, calling it by its name, for no array."""
    return x if is_on_gpu(x) or type(x) is ndarray else as_rectangular_array(x, name)


def on_cpu(array: Any) -> ndarray:
    """The array's numbers in an array of NumPy's: itself, if it is one."""
    return array.get() if is_on_gpu(array) else array


def on_device_of(array: Any, other: Any) -> Any:
    """The array where another one is: itself, if it is there."""
    return device_of(other).to_device(array)


def write_back_to_device(numbers: ndarray, array: Any) -> None:
    """Write the numbers, which :func:`on_cpu` gave and which were changed there, to where they came from."""
    if numbers is not array:
        array[...] = GPU.to_device(numbers)


def freeze(array: Any) -> None:
    """Make an array read-only, where arrays can be: CuPy's cannot."""
    if not is_on_gpu(array):
        array.flags.writeable = False


def is_frozen(array: Any) -> bool:
    """Whether it is read-only."""
    return not is_on_gpu(array) and not array.flags.writeable


def check_reachable(array: Any, name: str = "an operand") -> None:
    """Raise ValueError for an array on a GPU that is not CuPy's, calling it by its name."""
    if type(array) is not ndarray and hasattr(array, "__cuda_array_interface__") and not is_on_gpu(array):
        call = name if name.isidentifier() else "x"
        raise ValueError(f"{name} is an array on a GPU; pass one of CuPy's, cupy.asarray({call}), or of NumPy's.")
