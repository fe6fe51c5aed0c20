"""What the processor that kernels are compiled for does itself, by what LLVM knows of it.

Results are the same everywhere; loops are chosen by it. What LLVM does not take a processor to have is not used:
without FP16 arithmetic LLVM would widen the operands, round twice where a fused multiply-add is meant, and call what
may not be there. The processor is that of the level which kernels are compiled for (`levels.py`).
"""

from __future__ import annotations

from simfloat.kernels.levels import CODEGEN, HOST, computes_fp16

TRIPLE, PROCESSOR, _features = CODEGEN.magic_tuple()
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

#: Whether float32's subnormal numbers slow arithmetic down. An Intel Xeon with AVX-512 takes up to a hundred times as
#: long with them. An AMD Zen 3 (family 25, model 1) does not: it made 9.2e9 multiply-adds a second of FP16 sums toward
#: zero, 64 x 64 x 64, without subnormal numbers, and 8.9e9 where 99 % of the sums were such. On an AMD Zen 4 the loops
#: that avoid them halved that rate. Levels do not tell, so the processor's own name decides, as LLVM has it. A
#: processor that was not measured is taken to be slow.
SLOW_WITH_SUBNORMALS = HOST[1] not in ("znver3", "znver4")
