"""Programs for a GPU that chain one instruction along k. Their compilation needs no GPU.

Sections are those of the PTX ISA of CUDA 13.2. A chunk of 32 bytes of k is 8 words of every row of a and of every
column of b. In memory it is two blocks of 16 bytes of k, each with one row (column) after the other. This is the
layout of matrices in shared memory that is called K-major without swizzling (9.7.15.5.1.2.1.3, Canonical Layouts):
with T elements in 16 bytes, ((8, m), (T, 2)) : ((T, SBO), (1, LBO)), so that element (i, k) is at

    i % 8 * T + i // 8 * SBO + k % T + k // T * LBO

Eight rows fill 128 bytes, the stride offset (SBO). The leading offset (LBO) leads to the second block of k. The 8
columns of b are one group of eight, so their LBO is 128 bytes and their SBO, which is also set to 128, is not used.

Fragments: thread 4 g + t of a warp holds these words (9.7.14.5, and 9.7.15.5.1.1 for `wgmma`). From a, the words t of
rows g and g + 8 of the first block, then of the second block; from b, the words t of column g of both blocks; and of
the sums, columns 2 t and 2 t + 1 of rows g and g + 8. Each warp of a warpgroup holds 16 rows of a; it reads b from
shared memory.
"""

from __future__ import annotations

from string import Template
from typing import Any

import simfloat as sf
from benchmarks.tensor_cores.instructions import Unit

PROGRAM = Template("""
extern "C" __global__ void products(const unsigned* a, const unsigned* b, const $sum* c, $sum* d, int chunks) {
  int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
  size_t row = (size_t)blockIdx.x * $rows + 16 * warp + g, place = (4 * row + t) * $words, below = place + 32 * $words;
  a += (size_t)blockIdx.x * chunks * (8 * $rows) + (16 * warp + g) * 4 + t;
  b += (size_t)blockIdx.x * chunks * 64;
  $sum x[2 * $words];
  for (int n = 0; n < $words; ++n) { x[n] = c[place + n]; x[$words + n] = c[below + n]; }
  $before
  for (int chunk = 0; chunk < chunks; ++chunk, a += 8 * $rows, b += 64) {
    $step
  }
  for (int n = 0; n < $words; ++n) { d[place + n] = x[n]; d[below + n] = x[$words + n]; }
}
""")

#: The four words of a that a thread holds.
A = '"r"(a[0]), "r"(a[32]), "r"(a[4 * $rows]), "r"(a[4 * $rows + 32])'

MMA = f"""asm volatile("$instruction {{$sums}}, {{$four}}, {{$two}}, {{$sums}};"
                 : $x : {A}, "r"(b[4 * g + t]), "r"(b[4 * g + t + 32]));"""

#: The matrix descriptor of b (9.7.15.5.1.2.2): its address, LBO and SBO without their last four bits.
SHARED = """__shared__ __align__(128) unsigned shared[64];
  unsigned long long address = __cvta_generic_to_shared(shared);
  unsigned long long matrix = (address & 0x3FFFF) >> 4 | 128ull >> 4 << 16 | 128ull >> 4 << 32;"""

#: A fence makes the stores to shared memory visible to the asynchronous proxy, which reads them, before the barrier.
WGMMA = f"""if (threadIdx.x < 64) shared[threadIdx.x] = b[threadIdx.x];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    asm volatile("wgmma.fence.sync.aligned;\\n"
                 "$instruction {{$sums}}, {{$four}}, $matrix, 1, 1, 1$transpose;\\n"
                 "wgmma.commit_group.sync.aligned;\\n"
                 "wgmma.wait_group.sync.aligned 0;\\n"
                 : $x : {A}, "l"(matrix) : "memory");
    __syncthreads();"""


def source(unit: Unit) -> str:
    """Return the program of an instruction."""
    words = 2 if unit.sums == sf.FP32 else 1
    kind = "f" if unit.sums == sf.FP32 else "r"
    held = 2 * words
    parts = {
        "instruction": unit.name,
        "rows": unit.rows,
        "words": words,
        "sum": "float" if unit.sums == sf.FP32 else "unsigned",
        "sums": _registers(0, held),
        "four": _registers(held, held + 4),
        "two": _registers(held + 4, held + 6),
        "matrix": f"%{held + 4}",
        # Operands of 16 bits may be transposed; these are not.
        "transpose": ", 0" if unit.a in (sf.FP16, sf.BF16) else "",
        "x": ", ".join(f'"+{kind}"(x[{n}])' for n in range(held)),
    }
    asynchronous = unit.family == "wgmma"
    step = Template(WGMMA if asynchronous else MMA).substitute(parts)
    return PROGRAM.substitute(parts, step=step, before=SHARED if asynchronous else "")


def _registers(start: int, stop: int) -> str:
    return ", ".join(f"%{n}" for n in range(start, stop))


def compiled(unit: Unit, capability: int) -> bytes:
    """Return the machine code of its program. Raises RuntimeError with the message of the compiler if it fails."""
    from cuda.bindings import nvrtc

    # Instructions that only one architecture has need a target with the suffix a.
    target = f"sm_{capability}{'a' if unit.family == 'wgmma' else ''}"
    program = _checked(nvrtc.nvrtcCreateProgram(source(unit).encode(), b"products.cu", 0, [], []))
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, 1, [f"--gpu-architecture={target}".encode()])
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = _read(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
            raise RuntimeError(f"{status.name}: {log.decode(errors='replace').strip(chr(0)).strip()}")
        return _read(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _read(program: Any, size: Any, read: Any) -> bytes:
    """Return the log of NVRTC for a program."""
    image = bytes(_checked(size(program)))
    _checked(read(program, image))
    return image


def _checked(result: tuple[Any, ...]) -> Any:
    """Return the results of a call of NVRTC after checking its status."""
    status, *values = result
    if status.value:
        raise RuntimeError(status.name)
    return values[0] if values else None
