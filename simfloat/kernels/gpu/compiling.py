"""Thread loops compiled to PTX, on any machine: by numba-cuda and NVIDIA's NVVM, which ask for no GPU.

**numba-cuda** takes the place of Numba's own `numba.cuda`, and is imported from here, beside NumPy 2.5 as well.
numba-cuda 0.30 asks NumPy for `row_stack`, which is `vstack` and which NumPy 2.5 no longer has, and for times without a
unit, of which that warns.

**One argument.** A kernel receives all as one argument: a structure of its numbers, laid out as in C. Numba gives a
kernel a parameter for every number, and there are 28 of them in a grid, and at least seven in an array. CuPy converts
each at every launch, which took half of its time. A structure costs what a single number does: the kernel's PTX reads
its parameters from one (:func:`with_one_parameter`), and what a launch receives is laid out as that
(:func:`pack_arguments`). Every number lies at the next multiple of its size, which is where a driver puts parameters,
too.

**No contraction.** NVVM contracts a * b + c to one rounding unless it is told not to, which no option of numba-cuda's
decorators does; so its intermediate code is handed to NVVM here. With ``fma=0`` every sum and product is written with a
rounding of its own (``add.rn``), which the driver's assembler keeps; subnormal numbers are kept, divisions and roots
are rounded.

**One code for all GPUs.** A driver assembles what was written for the oldest generation for its own. NVVM writes the
newest version of PTX that it knows, which drivers older than itself refuse, though it says nothing there that the
version of that generation does not; so that one is named.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from struct import Struct
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from simfloat.kernels.compile import cache

_has_row_stack = hasattr(np, "row_stack")
if not _has_row_stack:
    np.row_stack = np.vstack
try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from numba import cuda
        from numba.cuda.np import arrayobj as _  # noqa: F401
finally:
    if not _has_row_stack:
        del np.row_stack

__all__ = ["cuda"]


#: (kind, element type, axes or length, GPU) of an argument: all that its type follows from, and where an array lies.
ArgumentKind = tuple[str, Any, int, int | None]

#: What the structure is called in PTX.
NAME = b"received"

INTEGER, FLOAT = np.dtype(np.int64), np.dtype(np.float64)
_integer, _float = Struct("q").pack, Struct("d").pack

#: What puts what Numba has of an array into bytes, by its axes: CuPy's have at most 64.
ARRAY_HEADERS = [Struct(f"{5 + 2 * axes}q").pack for axes in range(65)]


def pack_arguments(count: int, arguments: tuple[Any, ...]) -> tuple[tuple[ArgumentKind, ...], np.void]:
    """The kinds of arguments, and the structure of the number of threads and of theirs."""
    kinds, structure = [], _integer(count)
    for argument in arguments:
        kind, size, content = describe_argument(argument)
        kinds.append(kind)
        # As C aligns a structure: a driver expects each parameter at a multiple of its size, and so do the kernel's
        # reads.
        if beyond := len(structure) % size:
            structure += bytes(size - beyond)
        structure += content
    return tuple(kinds), np.void(structure)


def describe_argument(argument: Any) -> tuple[ArgumentKind, int, bytes]:
    """The kind of an argument, the size of each of its numbers, and these: an array on the GPU, or what goes by value.

    For an array those are what Numba has of one: two pointers to what owns it, which nothing here reads, its size, the
    bytes of an element, where it lies, its shape and its strides.
    """
    if isinstance(argument, np.ndarray):
        dtype = argument.dtype
        return ("numbers", dtype, argument.size, None), dtype.itemsize, argument.tobytes()
    if isinstance(argument, np.generic):
        dtype = argument.dtype
        return ("number", dtype, 0, None), dtype.itemsize, argument.tobytes()
    if isinstance(argument, float):
        return ("number", FLOAT, 0, None), 8, _float(argument)
    if isinstance(argument, int):
        return ("number", INTEGER, 0, None), 8, _integer(argument)
    shape, dtype, memory = argument.shape, argument.dtype, argument.data
    axes = len(shape)
    # Packed by hand, by one call for each number of axes: CuPy converts every argument of a launch by itself, and with
    # 28 numbers of a grid that took half of a launch's time.
    header = ARRAY_HEADERS[axes](0, 0, argument.size, dtype.itemsize, memory.ptr, *shape, *argument.strides)
    return ("array", dtype, axes, memory.device_id), 8, header


def argument_types(kinds: tuple[ArgumentKind, ...]) -> tuple[Any, ...]:
    """Numba's types of arguments."""
    from numba.cuda import types
    from numba.cuda.np.numpy_support import from_dtype

    makers = {
        "array": lambda element, axes: types.Array(element, axes, "C"),
        "numbers": types.UniTuple,
        "number": lambda element, _: element,
    }
    return tuple(makers[kind](from_dtype(dtype), extent) for kind, dtype, extent, _ in kinds)


def with_one_parameter(ptx: bytes, entry: bytes) -> bytes:
    """The PTX of a kernel with one parameter in the place of all: a structure of them, in their order."""
    head, start, rest = ptx.partition(b".entry " + entry + b"(")
    parameters, end, body = rest.partition(b")")
    places, size = {}, 0
    for bits, name in re.findall(rb"\.param \.[a-z](\d+) (?:[^,]*\s)?([\w$]+)", parameters):
        width = int(bits) // 8
        size += -size % width
        places[b"[" + name + b"]"] = b"[%s+%d]" % (NAME, size)
        size += width
    body = re.sub(rb"\[[\w$]+\]", lambda match: places.get(match[0], match[0]), body)
    return head + start + b"\n\t.param .align 8 .b8 %s[%d]\n" % (NAME, size) + end + body


#: What NVVM is asked for beside the architecture.
OPTIONS = {"opt": 3, "fma": 0, "ftz": 0, "prec-div": 1, "prec-sqrt": 1}

#: The oldest generation, which code is made for: Ampere; and the version of PTX that came with it.
OLDEST, PTX_VERSION = (8, 0), b"7.0"

#: Functions of LLVM that NVVM 13.0 does not know by that name, and its own names of them.
NVVM_NAMES = {"llvm.trunc.f64": "llvm.nvvm.trunc.d", "llvm.trunc.f32": "llvm.nvvm.trunc.f"}

#: Where tables lie. Numba puts them into constant memory, of which a warp reads one place at a time: functions that
#: look something up took ten times as long as others. Of global memory it reads many at once.
CONSTANT, GLOBAL = "addrspace(4)", "addrspace(1)"

SOURCE_DIGEST = cache.source_digest(resources.files(__package__))


class PtxKernel(NamedTuple):
    """A kernel's name and its PTX."""

    entry: str
    ptx: bytes


def kernel_of(body: Any) -> Any:
    """The kernel of a loop's body in Python: what is compiled, and what a simulator runs."""

    def kernel(count, *arguments):
        i = cuda.grid(1)
        if i < count:
            body(i, *arguments)

    kernel.__name__ = kernel.__qualname__ = f"kernel_of({body.__name__})"
    return kernel


def load_or_compile(body: Any, types: tuple[Any, ...]) -> PtxKernel:
    """The kernel of a body for arguments of these types of Numba's, kept on disk beside the CPU's."""
    name = file_name(body, types)
    for place in cache.kernel_directories():
        content = cache.read_kernel(place / name)
        if content is not None:
            entry, _, ptx = content.partition(b"\n")
            return PtxKernel(entry.decode(), ptx)
    result = compile_to_ptx(body, types)
    any(
        cache.write_kernel(place / name, result.entry.encode() + b"\n" + result.ptx)
        for place in cache.kernel_directories()
    )
    return result


def file_name(body: Any, types: tuple[Any, ...]) -> str:
    """The name of a version's file: the body's, the digest of the kernels' sources, and that of the rest."""
    parts = (*cache.compiler_versions(), version("numba-cuda"), SOURCE_DIGEST, body.__module__, body.__name__, types)
    digest = hashlib.sha256("\n".join(map(str, (*parts, sorted(OPTIONS.items())))).encode()).hexdigest()
    return f"{body.__name__.partition('(')[0]}-{cache.SOURCE_DIGEST}-{digest[:32]}.ptx{cache.SUFFIX}"


def compile_to_ptx(body: Any, types: tuple[Any, ...]) -> PtxKernel:
    """The kernel of a body for arguments of these types."""
    from numba.cuda import compiler
    from numba.cuda.types import Tuple, int64, void

    with _typed_for_oldest_gpu():
        arguments = int64, Tuple(types)
        result = compiler.compile_cuda(kernel_of(body), void, arguments, cc=OLDEST, nvvm_options=OPTIONS)
    library, entry = result.library, result.fndesc.llvm_func_name
    # numba-cuda's own step between typing and NVVM, which its dispatcher would make: Numba's functions return a status,
    # and kernels return nothing.
    compiler.kernel_fixup(library.get_function(entry), False)
    return PtxKernel(entry, with_one_parameter(_assemble_ptx(library.llvm_strs), entry.encode()))


@contextmanager
def _typed_for_oldest_gpu() -> Iterator[None]:
    """While a kernel is typed, numba-cuda asks the GPU at hand for its generation; here it gets the oldest."""
    from numba.cuda import dispatcher

    get_device, device = dispatcher.get_current_device, SimpleNamespace(compute_capability=OLDEST)
    # Typing asks for the generation of the GPU at hand, and fails where there is none. With the oldest one the same PTX
    # is made on every machine, so its file can be shared, and tests need no GPU.
    dispatcher.get_current_device = lambda: device
    try:
        yield
    finally:
        dispatcher.get_current_device = get_device


def _assemble_ptx(modules: list[str]) -> bytes:
    """The PTX of modules of LLVM's intermediate code, with NVIDIA's library of functions at hand."""
    from cuda.pathfinder import find_bitcode_lib
    from numba.cuda.cudadrv import nvvm

    unit = nvvm.CompilationUnit({"arch": f"compute_{OLDEST[0]}{OLDEST[1]}", **OPTIONS})
    for module in map(nvvm.llvm_replace, modules):
        for name, nvvm_name in NVVM_NAMES.items():
            module = module.replace(f'@"{name}"', f'@"{nvvm_name}"')
        unit.add_module(module.replace(CONSTANT, GLOBAL).encode())
    unit.verify()
    unit.lazy_add_module(Path(find_bitcode_lib("device")).read_bytes())
    ptx = unit.compile().rstrip(b"\0 \n") + b"\n"
    return re.sub(rb"^\.version \S+$", b".version " + PTX_VERSION, ptx, count=1, flags=re.MULTILINE)
