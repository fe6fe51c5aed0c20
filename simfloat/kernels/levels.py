"""Instruction levels: kernels are compiled for a set of instructions that many processors have, not for one of them.

So the files of compiled kernels fit all processors of a level: a shared home directory, a container's image or a wheel
can have them. The levels of x86 are those of its psABI, with AVX512-FP16 as one of our own, since sums in FP16 are many
times quicker by it. Kernels use no instruction that a processor has beyond its level (91 of them were searched, on an
Intel Xeon with AVX512-FP16), and are as quick as those compiled for the processor by name: benchmarks/README.md. How
wide vectors are is asked for in `jit.py`. Processors below all levels, and those with vectors that no level has (SVE),
are compiled for by name.

Results are the same at every level.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from llvmlite import binding as llvm
from numba.core.codegen import JITCPUCodegen
from numba.core.registry import cpu_target


class Level(NamedTuple):
    """What kernels are compiled for: LLVM's name of a processor, and features as LLVM writes them."""

    name: str
    processor: str
    features: str

    def is_within(self, features: str) -> bool:
        """Whether a processor with these features has all of the level's."""
        return set(self.features.split(",")) <= set(features.split(","))


_V2 = "+cx16,+popcnt,+sahf,+sse3,+sse4.1,+sse4.2,+ssse3"
_V3 = f"{_V2},+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+xsave"
_V4 = f"{_V3},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"

#: The levels of x86, the highest first.
X86 = (
    Level("x86-64-v4-fp16", "x86-64-v4", f"{_V4},+avx512fp16"),
    Level("x86-64-v4", "x86-64-v4", _V4),
    Level("x86-64-v3", "x86-64-v3", _V3),
)

#: Those of ARM: all of Apple's computers; ARMv8.2 with arithmetic in FP16; every other one.
APPLE = Level("apple-m1", "apple-m1", "+neon,+fullfp16")
ARM_WITH_FP16 = Level("armv8.2-fp16", "generic", "+neon,+fullfp16")
ARM = Level("armv8", "generic", "+neon")

FMA_OF_HALVES = """
declare half @llvm.fma.f16(half, half, half)
define half @step(half %a, half %b, half %c) {
  %sum = call half @llvm.fma.f16(half %a, half %b, half %c)
  ret half %sum
}
"""


def computes_fp16(triple: str, processor: str, features: str) -> bool:
    """Whether LLVM makes one instruction of a fused multiply-add in FP16: of numbers that stay in their 16 bits.

    Features alone do not tell: of ARM's processors LLVM finds out few of them on Linux, and none on macOS. What else a
    processor has, FP16 arithmetic with it, follows from its name.
    """
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=processor, features=features)
    assembly = machine.emit_assembly(llvm.parse_assembly(f'target triple = "{triple}"\n{FMA_OF_HALVES}'))
    return re.search(r"^\t(fmadd\th|vfmadd\d+sh\t)", assembly, re.MULTILINE) is not None


def highest_level(triple: str, processor: str, features: str) -> Level:
    """The highest level that a processor reaches; one for itself alone where it reaches none, or has more than any."""
    architecture, _, system = triple.partition("-")
    host_level = Level(processor, processor, features)
    if architecture == "x86_64":
        return next((level for level in X86 if level.is_within(features)), host_level)
    # SVE's vectors have no fixed length, and no level here asks for them: such processors are compiled for by name.
    if architecture not in ("aarch64", "arm64") or "+sve" in features.split(","):
        return host_level
    if "darwin" in system or "macos" in system:
        return APPLE
    return ARM_WITH_FP16 if computes_fp16(triple, processor, features) else ARM


def reachable_levels() -> list[Level]:
    """The levels that kernels for this processor can be compiled for: its own, and those of x86 below it."""
    return [LEVEL, *(level for level in X86 if level != LEVEL and level.is_within(HOST[2]))]


class LevelCodegen(JITCPUCodegen):
    """Numba's code generator, for a level. That of the process, with which users' functions are compiled, stays."""

    def _get_host_cpu_name(self) -> str:
        return LEVEL.processor

    def _get_host_cpu_features(self) -> str:
        return LEVEL.features


#: What LLVM finds this processor to be, or Numba's settings say that it is; and its level.
HOST = cpu_target.target_context.codegen().magic_tuple()
LEVEL = highest_level(*HOST)
CODEGEN = LevelCodegen("simfloat")
