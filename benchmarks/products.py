"""Matrix products of 512^3, in multiply-adds per second on one thread, and the cost of small products and calls."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

import simfloat as sf
from benchmarks.measure import Row, giga, seconds, threads
from simfloat.sums import Accumulator

SIZE, SMALL, STACK = 512, 32, 64
DIRECTED = (sf.toward_zero, sf.toward_positive, sf.toward_negative, sf.nearest_away, sf.to_odd)

#: A BLAS product on one thread, in another process: the number of its threads is fixed when NumPy is imported.
BLAS = f"""
import time
import numpy as np
from benchmarks.measure import seconds
a, b = np.random.default_rng(0).standard_normal((2, {SIZE}, {SIZE})).astype(np.float32)
print(seconds(lambda: a @ b, clock=time.process_time))
"""

Pair = tuple[np.ndarray, np.ndarray]


def rows() -> Iterator[Row]:
    """Yield rows of accumulators on one thread, with the gain of all threads; then of small products and calls."""
    blas = _blas_on_one_thread()
    yield Row("BLAS float32", giga(SIZE**3, blas))
    for name, operands, accumulate, target in _cases(SIZE):
        times = {count: _time(operands, accumulate, count) for count in sorted({1, sf.get_threads()})}
        one, most = times[1], min(times.values())
        gain = f"{one / most:.2f} times that on {max(times)} threads"
        if name == "FP32 from FP32":
            gain += f"; BLAS {one / blas:.1f} times that"
        yield Row(name, giga(SIZE**3, one), gain, f">= {target} G/s, >= 1.8 times" if target else "")
    for name in ("FP16 from FP16", "FP16 from E4M3", "FP32 from FP32", "Hopper tensor core, FP16"):
        small, large, stack = _rate(SMALL, name), _rate(SIZE, name), _rate(SMALL, name, STACK)
        shares = f"{small / large:.2f} of the large rate; in a stack of {STACK} {stack / large:.2f}"
        yield Row(f"{name}, {SMALL}^3", giga(small, 1), shares, ">= 0.25")
    for name, call in _calls():
        yield Row(name, f"{1e6 * seconds(call, least_runs=2000):.1f} us", "", "<= 15 us")


def _cases(size: int) -> list[tuple[str, Pair, Accumulator | sf.Format, float | None]]:
    """Return tuples (name, operands, accumulator, target in 10^9 per second)."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, size, size)).astype(np.float32)
    half, brain, e4m3, e5m2 = (_rounded(f, a, b) for f in (sf.FP16, sf.BF16, sf.E4M3, sf.E5M2))
    wide = {
        "16 binades": tuple(x * 2.0 ** rng.uniform(-8, 8, x.shape).astype(np.float32) for x in (a, b)),
        "gradients": (a * np.float32(1e-4), b),
    }
    random, short, emulated = sf.stochastic(), sf.stochastic(8), sf.nearest_even.saturating()
    return [
        ("FP16 from FP16", half, sf.FP16, 3.0),
        ("BF16 from BF16", brain, sf.BF16, 3.0),
        *((f"FP16 from FP16, {name}", _rounded(sf.FP16, *x), sf.FP16, 3.0) for name, x in wide.items()),
        *((f"BF16 from BF16, {name}", _rounded(sf.BF16, *x), sf.BF16, 3.0) for name, x in wide.items()),
        ("FP16 unfused", half, sf.sequential(sf.FP16, products=sf.FP16), 4.0),
        ("BF16 unfused", brain, sf.sequential(sf.BF16, products=sf.BF16), 4.0),
        ("FP32 unfused", (a, b), sf.sequential(sf.FP32, products=sf.FP32), None),
        ("FP16 from E4M3", e4m3, sf.FP16, 5.0),
        ("FP16 from E5M2", e5m2, sf.FP16, 5.0),
        ("FP32 from FP32", (a, b), sf.FP32, 15.0),
        ("FP32 from BF16", brain, sf.FP32, 15.0),
        *((f"FP16 {mode}", half, sf.sequential(sf.FP16, rounding=mode), 1.5) for mode in DIRECTED),
        *((f"BF16 {mode}", brain, sf.sequential(sf.BF16, rounding=mode), 1.5) for mode in DIRECTED),
        ("FP16 stochastic", half, sf.sequential(sf.FP16, rounding=random), 0.6),
        ("BF16 stochastic", brain, sf.sequential(sf.BF16, rounding=random), 0.6),
        ("FP16 stochastic, unfused", half, sf.sequential(sf.FP16, rounding=random, products=sf.FP16), 0.6),
        ("BF16 stochastic, unfused", brain, sf.sequential(sf.BF16, rounding=random, products=sf.BF16), 0.6),
        ("FP16 stochastic, 8 bits", half, sf.sequential(sf.FP16, rounding=short), None),
        ("BF16 stochastic, 8 bits", brain, sf.sequential(sf.BF16, rounding=short), None),
        ("BF16 stochastic, 8 bits, unfused", brain, sf.sequential(sf.BF16, rounding=short, products=sf.BF16), None),
        ("exact from BF16, to FP32", brain, sf.exact, 0.5),
        ("FP16 pairwise", half, sf.pairwise(sf.FP16), 2.0),
        ("FP16 Kahan", half, sf.kahan(sf.FP16), 1.0),
        ("BF16 Kahan", brain, sf.kahan(sf.BF16), 1.0),
        *((f"BF16 pairwise, {mode}", brain, sf.pairwise(sf.BF16, rounding=mode), None) for mode in (random, short)),
        *((f"BF16 Kahan, {mode}", brain, sf.kahan(sf.BF16, rounding=mode), None) for mode in (random, short)),
        # This mode differs from nearest_even only if sums overflow; no hardware supports it.
        ("FP16 emulated", half, sf.sequential(sf.FP16, rounding=emulated), None),
        ("FP16 from E4M3, emulated", e4m3, sf.sequential(sf.FP16, rounding=emulated), None),
        ("FP16 unfused, emulated", half, sf.sequential(sf.FP16, rounding=emulated, products=sf.FP16), None),
        ("FP16 pairwise, emulated", half, sf.pairwise(sf.FP16, rounding=emulated), None),
        ("FP16 Kahan, emulated", half, sf.kahan(sf.FP16, rounding=emulated), None),
        ("FP16 in blocks of 128, FP32", half, sf.blocked(128, sf.FP16, sf.FP32), 3.0),
        ("Hopper tensor core, FP16", half, sf.tensor_core("hopper", sf.FP16), 2.5),
        ("Hopper tensor core, E4M3", e4m3, sf.tensor_core("hopper", sf.E4M3), 2.5),
        ("the same, promoted every 128", e4m3, sf.blocked(128, sf.tensor_core("hopper", sf.E4M3), sf.FP32), 2.5),
        ("Volta tensor core, FP16", half, sf.tensor_core("volta", sf.FP16), 2.5),
        ("CDNA1 matrix core, FP16", half, sf.matrix_core("cdna1", sf.FP16), None),
        ("CDNA3 matrix core, FP16", half, sf.matrix_core("cdna3", sf.FP16), None),
    ]


def _rounded(format: sf.Format, *operands: np.ndarray) -> Pair:
    a, b = (sf.round(x, format, sf.nearest_even.saturating()) for x in operands)
    return a, b


def _calls() -> list[tuple[str, Callable[[], object]]]:
    """Return calls with so few values that only the call takes time."""
    a, b = _rounded(sf.FP16, *np.random.default_rng(0).standard_normal((2, 4, 4)).astype(np.float32))
    x, y = a.ravel(), b.ravel()
    return [
        ("matmul of 4 x 4, FP32", lambda: sf.matmul(a, b, accumulate=sf.FP32)),
        ("matmul of 4 x 4, FP16", lambda: sf.matmul(a, b, accumulate=sf.FP16)),
        ("dot of 16, FP16", lambda: sf.dot(x, y, accumulate=sf.FP16)),
        ("sum of 16, FP16", lambda: sf.sum(x, accumulate=sf.FP16)),
        ("add of 16, FP16", lambda: sf.add(x, y, sf.FP16)),
        ("round of 16, FP16", lambda: sf.round(x, sf.FP16)),
    ]


def _rate(size: int, name: str, stack: int = 1) -> float:
    """Return the multiply-adds per second of a case at another size, for `stack` products in one call."""
    (a, b), accumulate = next((x, accumulate) for case, x, accumulate, _ in _cases(size) if case == name)
    operands = (np.stack([a] * stack), np.stack([b] * stack)) if stack > 1 else (a, b)
    return stack * size**3 / _time(operands, accumulate, 1)


def _time(operands: Pair, accumulate: Accumulator | sf.Format, count: int) -> float:
    # The processor time of one thread depends less on other programs.
    clock = time.thread_time if count == 1 else time.perf_counter
    with threads(count):
        stream = sf.BitStream(0)
        return seconds(lambda: sf.matmul(*operands, accumulate=accumulate, output=sf.FP32, stream=stream), clock=clock)


def _blas_on_one_thread() -> float:
    """Return the seconds of the product in another process."""
    single = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", BLAS]
    return float(subprocess.run(command, env={**os.environ, **single}, check=True, capture_output=True).stdout)
