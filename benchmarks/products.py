"""Matrix products of 512^3, in multiply-adds a second, compared with a BLAS product."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import simfloat as sf
from benchmarks.measure import Row, giga, seconds, threads

SIZE = 512


def rows() -> Iterator[Row]:
    """Accumulators on one thread, with the gain of all threads."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, SIZE, SIZE)).astype(np.float32)
    work = SIZE**3
    blas = seconds(lambda: a @ b)
    yield Row("BLAS float32 (numpy, its own threads)", giga(work, blas))
    half, brain, eight = (tuple(sf.round(x, f) for x in (a, b)) for f in (sf.FP16, sf.BF16, sf.E4M3))
    cases = [
        ("FP16 from FP16", half, sf.FP16, 1.2),
        ("BF16 from BF16", brain, sf.BF16, 1.2),
        ("FP16 from E4M3", eight, sf.FP16, 3.0),
        ("FP32 from FP32", (a, b), sf.FP32, 10.0),
        ("FP32 from BF16", brain, sf.FP32, 10.0),
        ("FP16 unfused", half, sf.sequential(sf.FP16, products=sf.FP16), 1.2),
        ("FP16 toward_zero", half, sf.sequential(sf.FP16, rounding=sf.toward_zero), None),
        ("FP16 stochastic", half, sf.sequential(sf.FP16, rounding=sf.stochastic()), 0.3),
        ("exact from BF16, to FP32", brain, sf.exact, None),
    ]
    for name, operands, accumulate, target in cases:
        times = {count: _time(operands, accumulate, count) for count in sorted({1, sf.get_threads()})}
        one, most = times[1], min(times.values())
        gain = f"{one / most:.2f} times that on {max(times)} threads"
        yield Row(f"{name}, one thread", giga(work, one), gain, f">= {target} G/s, >= 1.7 times" if target else "")


def _time(operands: tuple[np.ndarray, np.ndarray], accumulate: object, count: int) -> float:
    with threads(count):
        stream = sf.BitStream(0)
        return seconds(lambda: sf.matmul(*operands, accumulate=accumulate, output=sf.FP32, stream=stream))
