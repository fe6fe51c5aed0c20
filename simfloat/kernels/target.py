"""What the processor that kernels are compiled for does itself, by the features that LLVM names.

Results are the same everywhere; loops are chosen by it. A feature that LLVM does not name is not used: without it LLVM
would widen the operands, round twice where a fused multiply-add of FP16 is meant, and call what may not be there. The
names are part of the key under which compiled kernels are kept.
"""

from __future__ import annotations

from numba.core.registry import cpu_target


def _architecture_and_features() -> tuple[str, frozenset[str]]:
    """The target's architecture, and the features that it has."""
    triple, _, features = cpu_target.target_context.codegen().magic_tuple()
    return triple.partition("-")[0], frozenset(name[1:] for name in features.split(",") if name.startswith("+"))


ARCHITECTURE, FEATURES = _architecture_and_features()
_is_arm = ARCHITECTURE in ("aarch64", "arm64")

#: Fused multiply-adds in one instruction.
FUSES = _is_arm or "fma" in FEATURES

#: float32 to FP16, rounded to nearest even, and back: F16C on x86; every 64-bit ARM.
CONVERTS_FP16 = _is_arm or "f16c" in FEATURES

#: Sums, products and fused multiply-adds in FP16, each rounded once: AVX512-FP16 on x86, FEAT_FP16 on ARM.
COMPUTES_FP16 = "fullfp16" in FEATURES if _is_arm else {"avx512fp16", "avx512vl"} <= FEATURES

#: Bits of a vector. LLVM's tuning for Intel's processors prefers 256 where there are 512, which halves the lanes of all
#: loops here, so 512 is asked for (see `vectors`); AMD's prefer 512 anyway, and no instruction changes.
VECTORS = 512 if "avx512f" in FEATURES else 256 if "avx2" in FEATURES else 128
