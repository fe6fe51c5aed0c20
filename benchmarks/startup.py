"""The time of a new process for its imports and its first results, which must not compile anything again."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click

from benchmarks.measure import Row

FIRST_CALLS = """
import numpy as np, simfloat as sf
x = np.ones((4, 4), np.float32)
sf.round(x, sf.FP16), sf.add(x, x, sf.BF16), sf.matmul(x, x, accumulate=sf.FP16)
from simfloat import kernels
arrays, operations = kernels.rounding_loops, kernels.operation_loops
sums = kernels.stepwise.stepwise_loops["fused"].values()
loops = [arrays.round_nearest, operations.exact_results["add"], arrays.bit_facts, *sums]
print(sum(sum(loop.stats.cache_misses.values()) for loop in loops))
"""


#: Imports to time: only the package; its formats, sums and policies; its layers and optimizers.
IMPORTS = {
    "import simfloat": "import simfloat",
    "its numbers, sums and policies": "import simfloat as sf; sf.round, sf.matmul, sf.policies",
    "its layers and optimizers": "import simfloat as sf; sf.nn, sf.optim",
}
README = Path(__file__).with_name("README.md")


def rows() -> Iterator[Row]:
    """Yield rows of import times, and of the first calls of a first and of a second process."""
    numpy = _process("import numpy")
    yield Row("import numpy", f"{1e3 * numpy:.0f} ms")
    for what, code in IMPORTS.items():
        ours = _process(code)
        yield Row(what, f"{1e3 * ours:.0f} ms", f"{ours / numpy:.2f} times numpy", "<= 1.5" if what == code else "")
        _check(what, ours / numpy)
    _compiled()  # the next process finds on disk what this one compiles
    start = time.perf_counter()
    compiled = _compiled()
    yield Row(
        "first results of a second process", f"{time.perf_counter() - start:.2f} s", f"{compiled} kernels compiled", "0"
    )


def _check(what: str, ratio: float) -> None:
    """Raise an error if an import takes longer than the README of the benchmarks says."""
    told = re.search(rf"\| `?{re.escape(what)}`? \|[^|]*\| ([\d.]+) times", README.read_text(encoding="utf-8"))
    if told is None or ratio > 1.25 * float(told[1]) + 0.1:
        says = f"says {told[1]} times" if told else "says nothing"
        raise click.ClickException(
            f"{what!r} takes {ratio:.2f} times as long as `import numpy`, and {README.name} {says}. Find "
            "unnecessary imports with `python -X importtime`, or correct the page."
        )


def _process(code: str) -> float:
    """Return the seconds of the interpreter for `code`, less those for no code: the least of ten runs."""

    def run(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - start

    return min(run(code) for _ in range(10)) - min(run("") for _ in range(10))


def _compiled() -> int:
    done = subprocess.run([sys.executable, "-c", FIRST_CALLS], check=True, capture_output=True, text=True)
    return int(done.stdout)
