"""NVIDIA's tensor cores as a table: which products each sums at once, and how exactly (MMA-Sim 2.1.1)."""

from __future__ import annotations

from typing import Literal

from simfloat.accumulate.units import Instruction
from simfloat.formats import BF16, E2M1, E2M3, E3M2, E4M3, E5M2, E8M0, FP16, FP32, FP64, TF32

#: The keys of the table.
NvidiaArchitecture = Literal["volta", "turing", "ampere", "ada", "hopper", "blackwell"]

FP8 = (E4M3, E5M2)
SMALL = (E4M3, E5M2, E3M2, E2M3, E2M1)
BOTH = (FP32, FP16)
DOUBLE = Instruction((FP64,), (FP64,), 1)

#: Units of 64 products of E2M1 numbers, which add groups of 16 before they align them.
GROUPED = Instruction((E2M1,), (FP32,), 64, 35, ((32, E8M0), (16, E8M0), (16, E4M3)))

UNITS: dict[NvidiaArchitecture, tuple[Instruction, ...]] = {
    "volta": (Instruction((FP16,), BOTH, 4, 23), DOUBLE),
    "turing": (Instruction((FP16,), BOTH, 8, 24), DOUBLE),
    "ampere": (
        Instruction((FP16,), BOTH, 8, 24),
        Instruction((BF16,), (FP32,), 8, 24),
        Instruction((TF32,), (FP32,), 4, 24),
        DOUBLE,
    ),
    "ada": (
        Instruction((FP16,), BOTH, 8, 24),
        Instruction((BF16,), (FP32,), 8, 24),
        Instruction((TF32,), (FP32,), 4, 24),
        Instruction(FP8, BOTH, 16, 13),
        DOUBLE,
    ),
    "hopper": (
        Instruction((FP16,), BOTH, 16, 25),
        Instruction((BF16,), (FP32,), 16, 25),
        Instruction((TF32,), (FP32,), 8, 25),
        Instruction(FP8, BOTH, 32, 13),
        DOUBLE,
    ),
    "blackwell": (
        Instruction((FP16,), BOTH, 16, 25),
        Instruction((BF16,), (FP32,), 16, 25),
        Instruction((TF32,), (FP32,), 8, 25),
        Instruction(SMALL, BOTH, 32, 25),
        GROUPED,
        Instruction(SMALL, (FP32,), 32, 25, ((32, E8M0),)),
        DOUBLE,
    ),
}

#: The instructions of architectures that have several, by default the first. What they share is the same by either.
INSTRUCTIONS: dict[NvidiaArchitecture, tuple[str, str]] = {"hopper": ("wgmma", "mma"), "blackwell": ("tcgen05", "mma")}

#: FP8 products by `mma` where another instruction is meant for them: two steps of the FP16 unit (16 products, 25
#: fraction bits) from zero, first the products k with k mod 4 < 2, then the others; then one addition to the sum so
#: far, rounded to nearest even in the output format. (Recorded on H100, H200 and B200: MATLAB-tensor-core of
#: north-numerical-computing, replayed in the tests. NVIDIA's assembler, ptxas 13.5, makes these steps of it: FP16
#: numbers of every word's lower half, HMMA from zero, those of the upper half, HMMA, and FADD or HADD2.)
TWO_STEPS = Instruction(FP8, BOTH, 32, 25)
STEP_TERMS = 16

#: What `mma` has there.
MMA = (
    Instruction((FP16,), BOTH, 16, 25),
    Instruction((BF16,), (FP32,), 16, 25),
    Instruction((TF32,), (FP32,), 8, 25),
    TWO_STEPS,
    DOUBLE,
)

#: The exponent with which zeros take part, for FP32 and for FP16 results.
ZERO_EXPONENTS: dict[NvidiaArchitecture, tuple[int, int]] = {
    "volta": (-131, -19),
    "turing": (-132, -20),
    "ampere": (-132, -20),
    "ada": (-132, -20),
    "hopper": (-133, -21),
    "blackwell": (-133, -21),
}
GROUPED_ZERO_EXPONENT = -139
