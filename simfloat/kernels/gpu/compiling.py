"""Compilation of thread loops to PTX by numba-cuda and NVIDIA's NVVM, on any computer, with or without a GPU.

**numba-cuda** replaces Numba's built-in `numba.cuda`, and is imported from here, also with NumPy 2.5. numba-cuda 0.30
uses two things that NumPy 2.5 has removed or deprecated: `row_stack`, an alias of `vstack`, and times without a unit,
which cause a warning.

**One argument.** A kernel receives all arguments as one structure, laid out as in C. Numba gives a kernel a parameter
for every scalar: a grid has 31 of them, and an array at least seven. CuPy converts each of them at every launch, which
took half of its time. A structure costs as much as one scalar. The PTX of the kernel is changed to read its parameters
from one structure (:func:`with_one_parameter`), and a launch passes its arguments in the same layout
(:func:`pack_arguments`). Every scalar is at the next multiple of its size, as in the parameters of a driver.

**No contraction.** NVVM contracts a * b + c to one rounding by default, and no option of numba-cuda's decorators
prevents it; therefore its intermediate code is passed to NVVM here. With ``fma=0`` every sum and product is a separate
rounded instruction (``add.rn``), which the assembler of the driver preserves. Subnormal numbers are kept, and divisions
and roots are rounded correctly.

**One code for all GPUs.** A driver assembles code for the oldest generation for its own GPU. NVVM declares the newest
version of PTX that it supports, which older drivers reject, although the code uses only features of the oldest
generation. So the PTX version of that generation is declared.
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


#: (kind, element type, axes or length, GPU) of an argument: everything that determines its type, and the GPU of an
#: array.
ArgumentKind = tuple[str, Any, int, int | None]

#: The name of the structure in PTX.
NAME = b"received"

INTEGER, FLOAT = np.dtype(np.int64), np.dtype(np.float64)
_integer, _float = Struct("q").pack, Struct("d").pack

#: Functions that pack Numba's description of an array into bytes, by the number of axes; CuPy's arrays have at most 64.
ARRAY_HEADERS = [Struct(f"{5 + 2 * axes}q").pack for axes in range(65)]


def pack_arguments(count: int, arguments: tuple[Any, ...]) -> tuple[tuple[ArgumentKind, ...], np.void]:
    """Return the kinds of arguments, and the structure of the number of threads and the arguments."""
    kinds, structure = [], _integer(count)
    for argument in arguments:
        kind, size, content = describe_argument(argument)
        kinds.append(kind)
        # The alignment of a C structure: a driver expects each parameter at a multiple of its size, and so do the
        # kernel's reads.
        if beyond := len(structure) % size:
            structure += bytes(size - beyond)
        structure += content
    return tuple(kinds), np.void(structure)


def describe_argument(argument: Any) -> tuple[ArgumentKind, int, bytes]:
    """Return the kind of an argument, the size of each of its scalars, and its bytes: an array on the GPU, or values.

    The bytes of an array are Numba's description of it: two pointers to its owner, which are not read here, its size,
    the bytes of an element, its address, its shape and its strides.
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
    # Packed by hand, with one call for each number of axes: CuPy converts every argument of a launch separately, and
    # for the scalars of a grid that took half of the time of a launch.
    header = ARRAY_HEADERS[axes](0, 0, argument.size, dtype.itemsize, memory.ptr, *shape, *argument.strides)
    return ("array", dtype, axes, memory.device_id), 8, header


def argument_types(kinds: tuple[ArgumentKind, ...]) -> tuple[Any, ...]:
    """Return the Numba types of arguments."""
    from numba.cuda import types
    from numba.cuda.np.numpy_support import from_dtype

    makers = {
        "array": lambda element, axes: types.Array(element, axes, "C"),
        "numbers": types.UniTuple,
        "number": lambda element, _: element,
    }
    return tuple(makers[kind](from_dtype(dtype), extent) for kind, dtype, extent, _ in kinds)


def with_one_parameter(ptx: bytes, entry: bytes) -> bytes:
    """Return the PTX of a kernel with one parameter in place of all: a structure of them, in the same order."""
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


#: Options of NVVM in addition to the architecture.
OPTIONS = {"opt": 3, "fma": 0, "ftz": 0, "prec-div": 1, "prec-sqrt": 1}

#: The oldest supported generation, Ampere, for which code is compiled, and the version of PTX that came with it.
OLDEST, PTX_VERSION = (8, 0), b"7.0"

#: LLVM functions that NVVM 13.0 does not support by that name, and NVVM's names for them.
NVVM_NAMES = {"llvm.trunc.f64": "llvm.nvvm.trunc.d", "llvm.trunc.f32": "llvm.nvvm.trunc.f"}

#: Address spaces of tables. Numba puts them into constant memory, from which a warp reads one address at a time:
#: functions with table look-ups took ten times as long as others. From global memory it reads many at once.
CONSTANT, GLOBAL = "addrspace(4)", "addrspace(1)"

_SOURCES = cache.source_files(resources.files(__package__), __package__)
SOURCE_DIGEST = cache.digest_of(_SOURCES, _SOURCES)


class PtxKernel(NamedTuple):
    """The name of a kernel, and its PTX."""

    entry: str
    ptx: bytes


def kernel_of(body: Any) -> Any:
    """Return the kernel of a loop body in Python, which is compiled, or run by a simulator."""

    def kernel(count, *arguments):
        i = cuda.grid(1)
        if i < count:
            body(i, *arguments)

    kernel.__name__ = kernel.__qualname__ = f"kernel_of({body.__name__})"
    return kernel


def load_or_compile(body: Any, types: tuple[Any, ...]) -> PtxKernel:
    """Return the kernel of a body for arguments of these Numba types; it is stored next to the CPU's kernels."""
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
    """Return the file name of a version: body, digest of the kernel sources, digest of everything else."""
    parts = (*cache.compiler_versions(), version("numba-cuda"), SOURCE_DIGEST, body.__module__, body.__name__, types)
    digest = hashlib.sha256("\n".join(map(str, (*parts, sorted(OPTIONS.items())))).encode()).hexdigest()
    return f"{body.__name__.partition('(')[0]}-{cache.SOURCE_DIGEST}-{digest[:32]}.ptx{cache.SUFFIX}"


def compile_to_ptx(body: Any, types: tuple[Any, ...]) -> PtxKernel:
    """Return the kernel of a body, compiled for arguments of these types."""
    from numba.cuda import compiler
    from numba.cuda.types import Tuple, int64, void

    with _typed_for_oldest_gpu():
        arguments = int64, Tuple(types)
        result = compiler.compile_cuda(kernel_of(body), void, arguments, cc=OLDEST, nvvm_options=OPTIONS)
    library, entry = result.library, result.fndesc.llvm_func_name
    # Numba's functions return a status, but kernels must return nothing. numba-cuda's dispatcher removes it by this
    # step after typing.
    compiler.kernel_fixup(library.get_function(entry), False)
    return PtxKernel(entry, with_one_parameter(_assemble_ptx(library.llvm_strs), entry.encode()))


@contextmanager
def _typed_for_oldest_gpu() -> Iterator[None]:
    """Make numba-cuda use the oldest generation while a kernel is typed, not the generation of the current GPU."""
    from numba.cuda import dispatcher

    get_device, device = dispatcher.get_current_device, SimpleNamespace(compute_capability=OLDEST)
    # Typing queries the generation of the current GPU, and fails without a GPU. With the oldest generation, the same
    # PTX is generated on every computer, so its file can be shared, and tests need no GPU.
    dispatcher.get_current_device = lambda: device
    try:
        yield
    finally:
        dispatcher.get_current_device = get_device


def _assemble_ptx(modules: list[str]) -> bytes:
    """Return the PTX of modules of LLVM's intermediate code, linked with NVIDIA's library of device functions."""
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
