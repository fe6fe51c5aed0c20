"""What the processor that kernels are compiled for does itself, by what LLVM knows of it.

Results are the same everywhere; loops are chosen by it. What LLVM does not take a processor to have is not used:
without FP16 arithmetic LLVM would widen the operands, round twice where a fused multiply-add is meant, and call what
may not be there. The processor's name and features are part of the key under which compiled kernels are kept.
"""

from __future__ import annotations

import re

from llvmlite import binding as llvm
from numba.core.registry import cpu_target

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
    made = machine.emit_assembly(llvm.parse_assembly(f'target triple = "{triple}"\n{FMA_OF_HALVES}'))
    return re.search(r"^\t(fmadd\th|vfmadd\d+sh\t)", made, re.MULTILINE) is not None


TRIPLE, PROCESSOR, _features = cpu_target.target_context.codegen().magic_tuple()
ARCHITECTURE = TRIPLE.partition("-")[0]
FEATURES = frozenset(name[1:] for name in _features.split(",") if name.startswith("+"))
_is_arm = ARCHITECTURE in ("aarch64", "arm64")

#: Fused multiply-adds in one instruction.
FUSES = _is_arm or "fma" in FEATURES

#: float32 to FP16, rounded to nearest even, and back: F16C on x86; every 64-bit ARM.
CONVERTS_FP16 = _is_arm or "f16c" in FEATURES

#: Sums, products and fused multiply-adds in FP16, each rounded once: AVX512-FP16 on x86, FEAT_FP16 on ARM.
COMPUTES_FP16 = computes_fp16(TRIPLE, PROCESSOR, _features)

#: The same in BF16, subnormal numbers included, and FP32 in a directed mode by the instruction itself: only on GPUs.
COMPUTES_BF16 = COMPUTES_DIRECTED = False

#: Bits of a vector. LLVM's tuning for Intel's processors prefers 256 where there are 512, which halves the lanes of all
#: loops here, so 512 is asked for (see `vectors`); AMD's prefer 512 anyway, and no instruction changes.
VECTORS = 512 if "avx512f" in FEATURES else 256 if "avx2" in FEATURES else 128

#: Whether a loop can have float32 rounded down, up and toward zero, on vectors: by instructions that say so themselves,
#: or by the processor's mode, which LLVM writes on x86 and on ARM.
ROUNDS_BY_INSTRUCTION = ARCHITECTURE == "x86_64" and VECTORS == 512
ROUNDS_LANES = FUSES and (_is_arm or VECTORS >= 256)
