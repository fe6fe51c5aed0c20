"""Rounding 2^24 float32 values, compared with a copy of them and with ml_dtypes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import simfloat as sf
from benchmarks.measure import Row, giga, optional, seconds, threads

COUNT = 1 << 24


def rows() -> Iterator[Row]:
    """Yield rows of nearest and stochastic rounding to formats of at most 16 bits, on one thread and on all."""
    x = np.random.default_rng(0).standard_normal(COUNT).astype(np.float32)
    for count in sorted({1, sf.get_threads()}):
        with threads(count):
            copy = seconds(lambda: sf.round(x, sf.FP32))
            plain = seconds(x.copy)
            yield Row(f"copy (numpy), 1 thread of {count}", giga(COUNT, plain))
            yield Row(f"copy (kernel), {count} threads", giga(COUNT, copy))
            ceiling = min(copy, plain)
            nearest = {}
            for format in (sf.FP16, sf.BF16, sf.E4M3, sf.E5M2, sf.E4M3FNUZ, sf.E2M1):
                nearest[format] = seconds(lambda format=format: sf.round(x, format))
                target = ">= 0.8" if format == sf.BF16 else ">= 0.4"
                name = f"{format} nearest_even, {count} threads"
                yield Row(name, giga(COUNT, nearest[format]), f"{ceiling / nearest[format]:.2f} of the copy", target)
            yield from _other_modes(x, count, nearest[sf.FP16], ceiling)
            yield from _ml_dtypes(x, count, nearest[sf.E4M3])


def _other_modes(x: np.ndarray, count: int, nearest: float, copy: float) -> Iterator[Row]:
    random = seconds(lambda: sf.round(x, sf.FP16, sf.stochastic(), stream=sf.BitStream(0)))
    ratio = f"{nearest / random:.2f} of nearest_even"
    yield Row(f"FP16 stochastic, {count} threads", giga(COUNT, random), ratio, ">= 0.4")
    for rounding in (sf.toward_zero, sf.to_odd):
        time = seconds(lambda rounding=rounding: sf.round(x, sf.FP16, rounding))
        yield Row(f"FP16 {rounding}, {count} threads", giga(COUNT, time), f"{copy / time:.2f} of the copy")


def _ml_dtypes(x: np.ndarray, count: int, ours: float) -> Iterator[Row]:
    if peer := optional("ml_dtypes"):
        part = x[: COUNT // 16]
        theirs = 16 * seconds(lambda: part.astype(peer.float8_e4m3fn).astype(np.float32))
        ratio = f"ours is {theirs / ours:.0f} times as fast, {count} threads"
        yield Row("E4M3 round trip of ml_dtypes", giga(COUNT, theirs), ratio, ">= 10")
