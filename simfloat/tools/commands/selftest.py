"""Implement `simfloat selftest [--quick] [--device cuda | --oracle]`."""

from __future__ import annotations

import argparse
import platform
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context

import numpy as np

import simfloat as sf
from simfloat.environment import unusual_facts

HELP = "check that every bit is computed as defined on this computer"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the choice of cases and of the device."""
    parser.add_argument("--quick", action="store_true", help="a tenth of the cases")
    beside = parser.add_mutually_exclusive_group()
    beside.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="cuda: compare the GPU's bits with the CPU's"
    )
    beside.add_argument("--oracle", action="store_true", help="compare 10^8 results with a second definition, in C")


def run(options: argparse.Namespace) -> int:
    """Check the library on this computer; return 1 if a check failed."""
    import numba

    from simfloat.tools.selftest import CHECKS, run

    if options.device == "cuda":
        return run_on_gpu(options.quick)
    if options.oracle:
        return run_oracle(options.quick)

    versions = f"Python {platform.python_version()}, NumPy {np.__version__}, Numba {numba.__version__}"
    print(f"simfloat {sf.__version__} on {platform.machine()}, {sf.get_threads()} threads; {versions}", flush=True)
    if facts := unusual_facts():
        print(f"This process has an unusual floating-point environment: it {' and '.join(facts)}.", flush=True)
    with compile_ahead(list(reversed(CHECKS))):
        return 0 if run(CHECKS, options.quick) else 1


def run_on_gpu(quick: bool) -> int:
    """Compare rounding, operations, sums and events with the CPU; return 1 if a bit differs, 2 without a GPU."""
    from simfloat.arithmetic.machines import device_named
    from simfloat.tools.selftest import run, sums

    try:
        device_named("cuda")
    except ValueError as error:
        print(f"simfloat selftest: {error}", file=sys.stderr)
        return 2
    return 0 if run(sums.CHECKS, quick) else 1


def run_oracle(quick: bool) -> int:
    """Compare with the second definition; return 1 if a bit differs, 2 without a C compiler."""
    from simfloat.tools.selftest import oracle, run

    try:
        oracle.library()
    except oracle.NoCompiler as error:
        print(f"simfloat selftest: {error}", file=sys.stderr)
        return 2
    return 0 if run(oracle.CHECKS, quick) else 1


@contextmanager
def compile_ahead(names: Sequence[str]) -> Iterator[None]:
    """Let the other cores run checks within the block, to compile kernels before they are needed here.

    They begin with the last checks and store their kernels on disk. Nothing is done if there are kernels on disk
    already, or no writable directory for them.
    """
    from simfloat.kernels.compile import cache
    from simfloat.tools.commands.warmup import ignore_interrupts

    places, others = cache.kernel_directories(), sf.get_threads() - 1
    cold = bool(places) and not any(map(cache.count_kernels, (*cache.bundled_directory(), *places)))
    context = get_context("spawn")
    shares = [names[first::others] for first in range(others)] if cold else []
    processes = [context.Process(target=carry_out, args=(share,), daemon=True) for share in shares]
    with ignore_interrupts():
        for process in processes:
            process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()


def carry_out(names: Sequence[str]) -> None:
    """Run quick versions of the named checks, to compile their kernels."""
    from simfloat import terminal
    from simfloat.tools.selftest import CHECKS

    terminal.silence()
    sf.set_threads(1)  # the other cores belong to the other processes
    for name in names:
        deque(CHECKS[name](True), maxlen=0)
