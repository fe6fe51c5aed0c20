"""The devices that compute: the memory of arrays, and the loops that run on them.

**Loops** are listed with their signatures; tests compare `Device.loops` with that list.

**CuPy and subnormal numbers.** CuPy compiles elementwise code with ``-ftz=true``: subnormal operands and results become
zeros, and so does a subnormal value that is only converted or compared. CuPy has no option to change that. So the flag
is removed from the compiler options that CuPy passes, in the whole process, and its results then equal those of NumPy.

**Arrays decide.** A call finds the device of its operands once, with ``device_of``, and passes it on: in the keys of
caches, and to the engines of sums in their `Region`. A loop is always taken from the device of the array that it
writes, so another device is added only in this file. A device provides

* `arrays`, the module of its arrays, with the names of NumPy. NumPy's own functions also work on its arrays (NEP 18).
  Arrays are created by this module or with ``like=``, and arrays full of a value with `full_like` and `ones_like`: with
  `like=`, NumPy's `full` and `ones` also pass `device=`, which CuPy does not accept;
* `loops`, all that :class:`Loops` lists, with the same names, signatures and bits. Parameters of grids and matrix units
  are small NumPy arrays that are never written to; `out`, `words` and operands are on the device.

Scalar arithmetic is written once, in `kernels`; only loops differ.
"""

from __future__ import annotations

import gc
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Protocol, cast

import numpy as np
from numpy import ndarray

from simfloat import kernels
from simfloat.common import as_rectangular_array
from simfloat.environment import in_usual_environment
from simfloat.kernels import gpu

Loop = Callable[..., Any]


class RoundingLoops(Protocol):
    """Loops that round arrays: (x, words, out, numbers)."""

    copy: Loop
    round_directed: Loop
    round_general: Loop
    round_half: Loop  # if the device rounds to FP16 in hardware
    round_image: Loop
    round_nearest: Loop
    round_stochastic: Loop
    round_to_odd: Loop


class ElementwiseLoops(Protocol):
    """Loops for exact results, by the name of the operation; all take three operands."""

    exact_results: Mapping[str, Loop]  # (a, b, c, sign, out)
    paired_results: Mapping[str, Loop]  # (a, b, c, sign, words, out, numbers)
    double_results: Mapping[str, Loop]  # the same in FP64, for operations that the hardware does not round
    doubles_in_mode: Mapping[str, Loop]  # in FP64, in deterministic modes: (a, b, c, sign, words, out, numbers)
    native_results: Mapping[str, Loop]  # (a, b, c, out), for operations that the hardware rounds


class ConvertedLoops(Protocol):
    """Loops for results in FP16 of float32 operands, if the device rounds to FP16 in hardware."""

    converted_results: Mapping[str, Loop]  # (a, b, c, out)


class SingleLoops(Protocol):
    """Loops for results of float32 operands in lanes of float32, by the name of the operation."""

    single_results: Mapping[str, Loop]  # (a, b, c, sign, out, numbers, kind): see kernels.elementwise.float32


class FlagLoops(Protocol):
    """Loops for IEEE exceptions of results, on the CPU."""

    flag_results: Loop  # (exact, out, thresholds, flags) -> others
    flag_by_draws: Loop  # (exact, out, thresholds, flags) -> (doubts, others)
    rounded_flags: Loop  # (x, out, numbers, kind, thresholds, flags) -> others, in lanes of float32
    halved_flags: Loop  # the same, if the hardware rounds to FP16
    single_flags: Mapping[str, Loop]  # (a, b, c, sign, out, numbers, kind, thresholds, flags) -> others
    converted_flags: Mapping[str, Loop]  # the same, if the hardware rounds to FP16
    native_flags: Mapping[str, Loop]  # (a, b, c, sign, out, thresholds, flags) -> others, of results in FP32
    double_flags: Mapping[str, Loop]  # (a, b, c, sign, out, flags) -> others, of results in FP64


class LookupLoops(Protocol):
    """Loops for results in tables, on the CPU: (x, table, out) -> True if the table has all operands."""

    look_up_bfloat16: Loop
    look_up_float16: Loop


class EncodingLoops(Protocol):
    """Loops for codes of numbers and numbers of codes, on the CPU; each returns True if all elements are valid."""

    encode: Loop  # (x, codes, numbers)
    encode_float32: Loop
    encode_images: Loop
    are_numbers: Loop  # (x, images, limits, anchor)
    decode: Loop  # (codes, out, numbers)
    decode_images: Loop  # (codes, out, bits)
    decode_by_table: Loop  # (codes, table, out)


class ImageLoops(Protocol):
    """Loops between numbers and bit patterns, by the kind of steps, for steps that the device has in hardware."""

    image_loops: Mapping[str, Loop]  # (x, out)
    number_loops: Mapping[str, Loop]  # (images, out)


class CountingLoops(Protocol):
    """Loops that count events of roundings, and find the bounds of an array."""

    count_results: Loop  # (out, numbers, events, lost, is_wide, is_precise) -> shown
    count_ends: Loop  # (exact, out, numbers, events, shown) -> undecided
    count_unchanged: Loop  # (a, b, out, sign, either) -> count
    move_events: Loop  # (events, totals, repeats)
    bit_facts: Loop  # (x) -> (precision, low, least, high, finite)


class RandomLoops(Protocol):
    """Loops for random words, for devices on which other loops do not compute them: see bit_stream.random_words."""

    fill_words: Loop  # (words, start, call, stage, seed)


class ProgramLoops(Protocol):
    """The loops for programs of operations on vectors."""

    count_stalled: Loop  # (before, after, gradient) -> count, on the CPU
    move_events: Loop  # (events, sums), on the CPU
    run_program: Loop  # (instructions, registers, scalars, grids, signs, draws, first, inputs, outputs, events)


class RoundedTiles(Protocol):
    """Loops for sums that are rounded at every step on lanes, if the processor rounds up, down and toward zero."""

    steps: Mapping[str, Loop]  # (a, b, out, grid_numbers, product_numbers, sign)


class LaneOrders(Protocol):
    """Loops for sums in other orders on lanes, by the order and the mode."""

    loops: Mapping[str, Mapping[str, Loop]]  # (a, b, out, numbers, sign) -> True if a value was too large


class StepwiseLoops(Protocol):
    """Loops for sums by the steps of an order, by the order and the kind of steps.

    They are (a, b, out, grid_numbers, product_numbers, sign); if steps may draw, (..., pair, place, seed).
    """

    stepwise_loops: Mapping[str, Mapping[str, Loop]]


class RunningSumLoops(Protocol):
    """Loops for all partial sums of such an order, on the CPU: (a, b, out, numbers, sign, pair, place, seed), by
    order."""

    running_loops: Mapping[str, Loop]


class PairwiseLoops(Protocol):
    """Loops for sums in a tree of neighbours, by the kind of step: (a, b, out, numbers, sign, pair, place, seed)."""

    pairwise_loops: Mapping[str, Loop]


class TreeLoops(Protocol):
    """Loops for sums in a custom order, by the kind of step."""

    tree_loops: Mapping[str, Loop]  # (a, b, out, program, numbers, sign, pair, place, seed)


class LongOrders(Protocol):
    """Loops for sums of long vectors in the orders of libraries, on the CPU."""

    chains: Mapping[str, Loop]  # (x, y, sums, first, steps, stride, turned), by the kind of products
    numpys: Mapping[str, Loop]  # (x, out, largest, numbers, sign), by the kind of step


class FusedLoops(Protocol):
    """Loops for sums of tensor cores."""

    fill_powers: Loop  # (x, least, out)
    #: By the alignment of terms and the rounding of totals:
    #: (a, b, a_powers, b_powers, out, unit_numbers, grid_numbers, finite, place, seed)
    loops: Mapping[str, Mapping[str, Loop]]
    fused_groups: Loop  # (a, b, a_scales, b_scales, a_powers, b_powers, out, unit_numbers, grid_numbers, block)


class IntegerSumLoops(Protocol):
    """Loops for sums of matrix units in 32-bit lanes, on the CPU.

    They are (a, b, out, first, unit_numbers, grid_numbers, place, seed) -> number.
    """

    loops: Mapping[str, Loop]


class MatrixCoreLoops(Protocol):
    """Loops for sums of matrix cores."""

    exact_chunks: Loop  # (a, b, out, terms)
    flushed_pairs: Loop  # (a, b, out, terms, least)
    floored_sums: Loop  # (a, b, a_powers, b_powers, out, terms, parts, finite)


class BinLoops(Protocol):
    """Loops for sums without error."""

    bin_sums: Loop  # (a, b, start, bins, anchors, exact_products)
    carry: Loop  # (bins, anchors)
    odd_totals: Loop  # (bins, out)


class Processor(Protocol):
    """The roundings that the device has in hardware."""

    CONVERTS_FP16: bool  # float32 to FP16
    COMPUTES_FP16: bool  # sums, products and fused multiply-adds in FP16
    COMPUTES_BF16: bool  # in BF16
    COMPUTES_DIRECTED: bool  # in FP32, in the directed modes
    ROUNDS_LANES: bool  # True if it has the loops of RoundedTiles
    SLOW_WITH_SUBNORMALS: bool  # True if subnormal float32 values slow these loops down


class Loops(Protocol):
    """All loops that are used outside of `kernels`, by the families that `kernels.FAMILIES` names."""

    rounding_loops: RoundingLoops
    operation_loops: ElementwiseLoops
    converted: ConvertedLoops
    single: SingleLoops
    encoding: EncodingLoops
    flag_loops: FlagLoops
    lookups: LookupLoops
    halves: ImageLoops
    counting: CountingLoops
    programs: ProgramLoops
    random: RandomLoops
    rounded_tiles: RoundedTiles
    lane_orders: LaneOrders
    stepwise: StepwiseLoops
    running_sums: RunningSumLoops
    pairwise_loops: PairwiseLoops
    tree_loops: TreeLoops
    long_orders: LongOrders
    fused_loops: FusedLoops
    integer_sums: IntegerSumLoops
    matrix_core_loops: MatrixCoreLoops
    bins: BinLoops
    processor: Processor


FLUSHING = "-ftz=true"


class CompilerOptions(tuple):
    """Compiler options without the flag."""

    def __add__(self, others: Any) -> CompilerOptions:
        return CompilerOptions((*self, *(option for option in others if option != FLUSHING)))


@cache
@in_usual_environment
def keep_subnormal_numbers() -> None:
    """Make CuPy keep subnormal numbers.

    Raises ValueError if it does not keep them, as an unknown version of CuPy may do.
    """
    cupy = import_module("cupy")
    compiler = getattr(cupy.cuda, "compiler", None)
    compile = getattr(compiler, "_compile_with_cache_cuda", None)
    if compile is not None:

        def compile_without(source: Any, options: Any, *rest: Any, **named: Any) -> Any:
            return compile(source, CompilerOptions(options), *rest, **named)

        compiler._compile_with_cache_cuda = compile_without  # type: ignore[union-attr]
        _forget_compiled(cupy)
    smallest = cupy.asarray(np.array([2.0**-149], np.float32))
    if not smallest.astype(np.float64).get()[0]:
        raise ValueError(
            f"CuPy {cupy.__version__} flushes subnormal numbers of float32 to zero ({FLUSHING}), which cannot be "
            "changed in this version: pass NumPy's arrays, or install CuPy 14."
        )


def _forget_compiled(cupy: Any) -> None:
    """Make CuPy forget the kernels that it has compiled; each operation has its own cache."""
    cupy.clear_memo()
    kernel = cupy._core._kernel
    # CuPy's operations each cache the kernels that they compiled with the old flag, and nothing lists these caches, but
    # the garbage collector has a list of all objects. `type(operation)` does not touch the class of a proxy.
    for operation in gc.get_objects():
        if issubclass(type(operation), kernel.ufunc | kernel.ElementwiseKernel):  # a proxy may have no target
            for memory in ("_kernel_memo", "_elementwise_kernel_memo"):
                getattr(operation, memory, {}).clear()


@dataclass(frozen=True, eq=False)
class Device:
    """The module of the arrays of a device, and the loops that take them; one object per device, used as a key."""

    module: str  # the module of its arrays
    loops: Loops
    in_pieces: bool  # True if work is divided into blocks that stay in a cache, and pieces for several threads

    @property
    def arrays(self) -> ModuleType:
        """The module of its arrays."""
        return np if self is CPU else sys.modules.get(self.module) or import_module(self.module)

    def to_device(self, array: Any) -> Any:
        """Return the array on this device: itself, if it is there."""
        if self is not GPU:
            return on_cpu(array)
        if isinstance(array, ndarray) and array.ndim == 0:  # CuPy would fill a new array with it, which turns -0 into 0
            return self.arrays.asarray(array.reshape(1)).reshape(())
        return self.arrays.asarray(array)

    def new_array(self, function: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return a new array in C order, "empty" or "zeros"; ValueError if the memory of a GPU is too small."""
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


#: NumPy's arrays and Numba's loops, each of which is imported and compiled at its first use.
CPU = Device("numpy", cast(Loops, kernels), in_pieces=True)

#: CuPy's arrays and the same loops as CUDA grids.
GPU = Device("cupy", cast(Loops, gpu), in_pieces=False)

#: Ten times the least compute capability, as in `kernels/gpu/compiling.py`, which is not imported here.
OLDEST_GENERATION = 80


def device_named(device: Any) -> Device:
    """Return the device that users call "cpu" or "cuda"; ValueError for other names, and if no GPU is found."""
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
    """Return the reason why this process cannot compute on a GPU, or None."""
    for module, name in (("cupy", "CuPy"), ("numba_cuda", "numba-cuda")):
        if module not in sys.modules and find_spec(module) is None:
            return f"{name} is not installed"
    try:
        if not GPU.arrays.cuda.runtime.getDeviceCount():
            return "CuPy finds no GPU"
        generation = int(GPU.arrays.cuda.Device().compute_capability)
    except Exception as error:  # from CuPy, or from the loader if a library is missing
        return f"CuPy finds no GPU: {error}"
    if generation < OLDEST_GENERATION:
        return f"the GPU's compute capability is {generation / 10}, and kernels need 8.0, Ampere's, or a newer one"
    return None


def device_of(array: Any, *others: Any) -> Device:
    """Return the device of arrays: the GPU if one of them is there.

    Raises ValueError for GPU arrays of another library, and if a GPU array is combined with a NumPy array of more than
    one element.
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
                f"One operand is on a GPU, but another one, of shape {one.shape}, is not: pass cupy.asarray of it, "
                "or x.to('cuda') for a tensor of PyTorch."
            )
    return GPU


def is_on_gpu(array: Any) -> bool:
    """Return True if an array is a CuPy array."""
    kind: Any = type(array)
    if kind is ndarray or not _is_cupys(kind):
        return False
    keep_subnormal_numbers()
    return True


@cache
def _is_cupys(kind: type) -> bool:
    """Return True if a type is CuPy's array type; cached, since CuPy computes the interface of an array each time."""
    return kind.__module__.partition(".")[0] == "cupy" and hasattr(kind, "__cuda_array_interface__")


def as_array(x: Any, name: str = "an operand") -> Any:
    """Return `x` if it is a CuPy array, otherwise as a NumPy array; ValueError with its name if it is not an array."""
    return x if type(x) is ndarray or is_on_gpu(x) else as_rectangular_array(x, name)


def on_cpu(array: Any) -> ndarray:
    """Return an array as a NumPy array: itself, if it is one."""
    return array.get() if is_on_gpu(array) else array


def on_device_of(array: Any, other: Any) -> Any:
    """Return an array on the device of another one: itself, if it is there."""
    return device_of(other).to_device(array)


def write_back_to_device(numbers: ndarray, array: Any) -> None:
    """Write values that :func:`on_cpu` returned, and that were changed, back to their array."""
    if numbers is not array:
        array[...] = GPU.to_device(numbers)


def freeze(array: Any) -> None:
    """Make an array read-only, if it is on the CPU: CuPy arrays cannot be read-only."""
    if not is_on_gpu(array):
        array.flags.writeable = False


def check_reachable(array: Any, name: str = "an operand") -> None:
    """Raise ValueError, with its name, for an array on a GPU that is not a CuPy array."""
    if type(array) is not ndarray and hasattr(array, "__cuda_array_interface__") and not is_on_gpu(array):
        call = name if name.isidentifier() else "x"
        raise ValueError(f"{name} is an array on a GPU; pass one of CuPy's, cupy.asarray({call}), or of NumPy's.")
