"""The time that a new process takes: to import, and to its first results, which must not be compiled again."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.measure import Row

FIRST_CALLS = """
import numpy as np, simfloat as sf
x = np.ones((4, 4), np.float32)
sf.round(x, sf.FP16), sf.add(x, x, sf.BF16), sf.matmul(x, x, accumulate=sf.FP16)
from simfloat import kernels
loops = [kernels.rounding.round_nearest, kernels.elementwise.exact_results["add"], kernels.facts.bit_facts]
loops += list(kernels.sequential.steps.values())
print(sum(sum(loop.stats.cache_misses.values()) for loop in loops))
"""


def rows() -> Iterator[Row]:
    """Import times, and the first calls of a first and of a second process."""
    numpy, ours = _process("import numpy"), _process("import simfloat")
    yield Row("import numpy", f"{1e3 * numpy:.0f} ms")
    yield Row("import simfloat", f"{1e3 * ours:.0f} ms", f"{ours / numpy:.2f} times numpy", "<= 1.5")
    _compiled()  # whatever it compiles, the next process finds on disk
    start = time.perf_counter()
    compiled = _compiled()
    yield Row(
        "first results of a second process", f"{time.perf_counter() - start:.2f} s", f"{compiled} kernels compiled", "0"
    )


def _process(code: str) -> float:
    """Seconds of the interpreter for `code`, less those for nothing: the least of ten."""

    def run(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - start

    return min(run(code) for _ in range(10)) - min(run("") for _ in range(10))


def _compiled() -> int:
    done = subprocess.run([sys.executable, "-c", FIRST_CALLS], check=True, capture_output=True, text=True)
    return int(done.stdout)
