"""The machines that compute: where arrays lie and where loops run.

**Loops** are listed with their signatures; `Device.loops` is held to that list.

**CuPy and subnormal numbers.** CuPy compiles what computes element by element with ``-ftz=true``: subnormal operands
and results are zeros, and so is a subnormal number that only changes its type or is compared. No option of CuPy's
changes that, so the flag is taken out of what it asks the compiler for, in the whole process: its results are then
NumPy's.

**Arrays decide.** A call asks once on which machine its operands lie, ``device_of``, and hands the answer on: as part
of the key of what it remembers, and to the engines of sums in their `Region`. A loop is always reached through the
machine of the array that it writes, so another machine is added here alone. It provides

* `arrays`, the module of its arrays, with NumPy's names: what NumPy's own functions do, they do for its arrays too
  (NEP 18), and arrays are created by it or with ``like=``, or where they are full of a number by `full_like` and
  `ones_like`: given `like=`, NumPy's `full` and `ones` pass `device=`, too, which CuPy's do not take;
* `loops`, all that :class:`Loops` lists, under the same names and with the same signatures and bits. Numbers of grids
  and units come as small NumPy arrays that are never written to; `out`, `words` and operands lie on the machine.

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
from simfloat.kernels import gpu

Loop = Callable[..., Any]


class RoundingLoops(Protocol):
    """Rounding: (x, words, out, numbers)."""

    copy: Loop
    round_directed: Loop
    round_general: Loop
    round_half: Loop  # where the machine rounds to FP16 itself
    round_image: Loop
    round_nearest: Loop
    round_stochastic: Loop
    round_to_odd: Loop


class ElementwiseLoops(Protocol):
    """Exact results by the name of the operation, of three operands each."""

    exact_results: Mapping[str, Loop]  # (a, b, c, sign, out)
    paired_results: Mapping[str, Loop]  # (a, b, c, sign, words, out, numbers)
    double_results: Mapping[str, Loop]  # the same in FP64, of what the machine does not round itself
    native_results: Mapping[str, Loop]  # (a, b, c, out), of what the machine rounds itself


class ConvertedLoops(Protocol):
    """Results in FP16 of float32 operands, where the machine rounds to it itself."""

    converted_results: Mapping[str, Loop]  # (a, b, c, out)


class SingleLoops(Protocol):
    """Results of float32 operands in float32's lanes, by the name of the operation."""

    single_results: Mapping[
        str, Loop
    ]  # (a, b, c, sign, out, numbers, kind): see kernels.elementwise.float32.single_loop


class FlagLoops(Protocol):
    """IEEE exceptions of results, on the CPU."""

    flag_results: Loop  # (exact, out, thresholds, flags) -> others
    flag_by_draws: Loop  # (exact, out, thresholds, flags) -> (doubts, others)
    rounded_flags: Loop  # (x, out, numbers, kind, thresholds, flags) -> others, in float32's lanes
    halved_flags: Loop  # the same, where the machine rounds to FP16 itself
    single_flags: Mapping[str, Loop]  # (a, b, c, sign, out, numbers, kind, thresholds, flags) -> others
    converted_flags: Mapping[str, Loop]  # the same, where the machine rounds to FP16 itself
    native_flags: Mapping[str, Loop]  # (a, b, c, sign, out, thresholds, flags) -> others, of results in FP32
    double_flags: Mapping[str, Loop]  # (a, b, c, sign, out, flags) -> others, of results in FP64


class LookupLoops(Protocol):
    """Results found in tables, on the CPU: (x, table, out) -> whether all operands have a place there."""

    look_up_bfloat16: Loop
    look_up_float16: Loop


class EncodingLoops(Protocol):
    """Codes of a format's numbers, and numbers of its codes, on the CPU; each returns whether all have one."""

    encode: Loop  # (x, codes, numbers)
    encode_float32: Loop
    encode_images: Loop
    decode: Loop  # (codes, out, numbers)
    decode_images: Loop  # (codes, out, bits)
    decode_by_table: Loop  # (codes, table, out)


class ImageLoops(Protocol):
    """Matrices of numbers as images, by the kind of steps, where the machine makes steps of that kind itself."""

    image_loops: Mapping[str, Loop]  # (x, out)
    number_loops: Mapping[str, Loop]  # (images, out)


class CountingLoops(Protocol):
    """Events of roundings, and what an array's numbers have in common."""

    count_results: Loop  # (out, numbers, events) -> shown
    count_ends: Loop  # (exact, out, numbers, events, shown) -> undecided
    count_unchanged: Loop  # (a, b, out, sign, either) -> count
    bit_facts: Loop  # (x) -> (precision, low, least, high, finite)


class RandomLoops(Protocol):
    """Random words, of machines whose loops do not make them themselves: see stream.random_words."""

    fill_words: Loop  # (words, start, call, stage, seed)


class ProgramLoops(Protocol):
    """Programs of operations on vectors, on the CPU."""

    run_program: Loop  # (instructions, registers, scalars, grids, signs, draws, first, inputs, outputs, events)


class SequentialLoops(Protocol):
    """Sums rounded at every step."""

    steps: Mapping[str, Loop]  # (a, b, out, grid_numbers, product_numbers, sign)
    random_steps: Mapping[str, Loop]  # (a, b, out, grid_numbers, product_numbers, place, seed)
    sequential_wide: Loop  # (a, b, out, grid_numbers, product_numbers, sign, place, seed, pair, rounds_products)


class RoundedTiles(Protocol):
    """Sums rounded at every step on lanes, where the processor rounds them up, down and toward zero."""

    steps: Mapping[str, Loop]  # (a, b, out, grid_numbers, product_numbers, sign)


class LaneOrders(Protocol):
    """Sums in other orders on lanes, by the order and the mode."""

    loops: Mapping[str, Mapping[str, Loop]]  # (a, b, out, numbers, sign) -> whether a number was too large


class StepwiseLoops(Protocol):
    """Sums by the steps of an order, all rounded to one format, by the order and the kind of steps."""

    stepwise_loops: Mapping[str, Mapping[str, Loop]]  # (a, b, out, numbers, sign, pair, place, seed)


class RunningSumLoops(Protocol):
    """Every running sum of such an order, on the CPU: (a, b, out, numbers, sign, pair, place, seed), by the order."""

    running_loops: Mapping[str, Loop]


class PairwiseLoops(Protocol):
    """Sums in a tree of neighbours, by the kind of step: (a, b, out, numbers, sign, pair, place, seed)."""

    pairwise_loops: Mapping[str, Loop]


class TreeLoops(Protocol):
    """Sums in an order of one's own, by the kind of step."""

    tree_loops: Mapping[str, Loop]  # (a, b, out, program, numbers, sign, pair, place, seed)


class LongOrders(Protocol):
    """Sums of long vectors in the orders of libraries, on the CPU."""

    chains: Mapping[str, Loop]  # (x, y, sums, first, steps, stride, turned), by the kind of products
    numpys: Mapping[str, Loop]  # (x, out, largest, numbers, sign), by the kind of step


class FusedLoops(Protocol):
    """Sums of tensor cores."""

    fill_powers: Loop  # (x, least, out)
    #: By how terms are aligned and totals are rounded:
    #: (a, b, a_powers, b_powers, out, unit_numbers, grid_numbers, finite, place, seed)
    loops: Mapping[str, Mapping[str, Loop]]
    fused_groups: Loop  # (a, b, a_scales, b_scales, a_powers, b_powers, out, unit_numbers, grid_numbers, block)


class IntegerSumLoops(Protocol):
    """Sums of units in 32-bit lanes, on the CPU: (a, b, out, first, unit_numbers, grid_numbers, place, seed) ->
    number."""

    loops: Mapping[str, Loop]


class MatrixCoreLoops(Protocol):
    """Sums of matrix cores."""

    exact_chunks: Loop  # (a, b, out, terms)
    flushed_pairs: Loop  # (a, b, out, terms, least)
    floored_sums: Loop  # (a, b, a_powers, b_powers, out, terms, parts, finite)


class BinLoops(Protocol):
    """Sums without error."""

    bin_sums: Loop  # (a, b, start, bins, anchors, exact_products)
    carry: Loop  # (bins, anchors)
    odd_totals: Loop  # (bins, out)


class Processor(Protocol):
    """What the machine rounds itself."""

    CONVERTS_FP16: bool  # float32 to FP16
    COMPUTES_FP16: bool  # sums, products and fused multiply-adds in FP16
    COMPUTES_BF16: bool  # in BF16
    COMPUTES_DIRECTED: bool  # in FP32, in the directed modes
    ROUNDS_LANES: bool  # whether it has the loops of RoundedTiles
    SLOW_WITH_SUBNORMALS: bool  # whether float32's subnormal numbers slow these down


class Loops(Protocol):
    """All loops that are reached from outside of `kernels`, by the families that `kernels.FAMILIES` names."""

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
    sequential: SequentialLoops
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
    """Options of the compiler that the flag is not added to."""

    def __add__(self, others: Any) -> CompilerOptions:
        return CompilerOptions((*self, *(option for option in others if option != FLUSHING)))


@cache
def keep_subnormal_numbers() -> None:
    """Have CuPy keep them from now on.

    Raises ValueError if it does not: then it is of a version that is not known here.
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
            f"CuPy {cupy.__version__} takes subnormal numbers of float32 for zeros ({FLUSHING}), and would not do "
            "otherwise: pass NumPy's arrays, or install CuPy 14."
        )


def _forget_compiled(cupy: Any) -> None:
    """Have CuPy look anew for what it has compiled, of which each operation keeps its own."""
    cupy.clear_memo()
    kernel = cupy._core._kernel
    # CuPy's operations each keep the kernels that they compiled with the old flag, in caches that nothing lists: the
    # garbage collector knows all objects. `type(operation)` asks no proxy for its class.
    for operation in gc.get_objects():
        if issubclass(type(operation), kernel.ufunc | kernel.ElementwiseKernel):  # a proxy may stand for nothing
            for memory in ("_kernel_memo", "_elementwise_kernel_memo"):
                getattr(operation, memory, {}).clear()


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
GPU = Device("cupy", cast(Loops, gpu), in_pieces=False)

#: Ten times the least compute capability: see `kernels/gpu/compiling.py`, which is not imported here.
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
    keep_subnormal_numbers()
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
