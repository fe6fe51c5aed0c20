"""Implement `simfloat info`."""

from __future__ import annotations

import argparse
import platform

import numpy as np

import simfloat as sf
from simfloat import environment
from simfloat.common import table

HELP = "versions, the processor, threads, stored kernels, and the operations that this processor has in hardware"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the command has no arguments."""


def run(options: argparse.Namespace) -> int:
    """Print the facts of this installation and this computer."""
    print(table([*versions(), *machine(), *kernels(), *native()], has_head=False))
    return 0


def versions() -> list[tuple[str, str]]:
    """Return the versions of the packages on which results could depend (they should not)."""
    import llvmlite
    import numba
    from llvmlite import binding

    llvm = ".".join(map(str, binding.llvm_version_info))
    return [
        ("simfloat", sf.__version__),
        ("Python", platform.python_version()),
        ("NumPy", np.__version__),
        ("Numba", f"{numba.__version__}, llvmlite {llvmlite.__version__}, LLVM {llvm}"),
    ]


def machine() -> list[tuple[str, str]]:
    """Return the processor's name in LLVM and its level, the floating-point environment, and the number of threads."""
    from simfloat.kernels.compile import processor

    name = f"{processor.HOST[1]} ({platform.machine()}, {platform.system()})"
    facts = environment.unusual_facts()
    floats = f"unusual: {', '.join(facts)}" if facts else "rounds to nearest, keeps subnormal numbers"
    return [
        ("processor", name),
        ("level", processor.LEVEL.name),
        ("floating point", f"{floats}; results do not depend on it"),
        ("threads", str(sf.get_threads())),
    ]


def kernels() -> list[tuple[str, str]]:
    """Return the directories of compiled kernels, with the number of kernels in each that fit the present sources."""
    from simfloat.kernels.compile import cache

    rows = [
        ("kernels", f"{cache.count_kernels(place)} brought along in {place}") for place in cache.bundled_directory()
    ]
    rows += [("kernels", f"{cache.count_kernels(place)} kept in {place}") for place in cache.kernel_directories()]
    return rows or [("kernels", "kept nowhere: this installation has no sources to tell versions apart by")]


def native() -> list[tuple[str, str]]:
    """Return the operations that kernels use if the processor has them in hardware."""
    from simfloat.kernels.compile import processor

    facts = {
        "FP32 and FP64 to nearest even": True,
        "fused multiply-add, one instruction": processor.FUSES,
        "FP32 rounded to FP16": processor.CONVERTS_FP16,
        "arithmetic in FP16": processor.COMPUTES_FP16,
        "vectors of FP32 rounded down, up and toward zero": processor.ROUNDS_LANES,
        "vectors of 256 bits": processor.VECTORS >= 256,
        "vectors of 512 bits": processor.VECTORS >= 512,
    }
    return [("native", f"{'yes' if has else 'no ':3} {what}") for what, has in facts.items()]
