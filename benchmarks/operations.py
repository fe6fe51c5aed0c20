"""Elementwise operations and functions on 2^20 values of 16 bits, in results per second on one thread; convolutions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import simfloat as sf
from benchmarks.measure import Row, giga, seconds, threads
from simfloat.arithmetic.catalog import FUNCTIONS

COUNT = 1 << 20

#: Targets in 10^9 results per second, by the accuracy of an operation.
TARGETS = {"exact": 0.5, "elementary": 0.1, "single": 0.1}

#: (x, w, options) of convolutions: many pixels, small maps, kernels of 1 x 1.
CONVOLUTIONS = {
    "(8, 32, 28, 28) * (64, 32, 3, 3)": ((8, 32, 28, 28), (64, 32, 3, 3), dict(padding=1)),
    "(8, 256, 7, 7) * (256, 256, 3, 3)": ((8, 256, 7, 7), (256, 256, 3, 3), dict(padding=1)),
    "(8, 64, 28, 28) * (64, 64, 1, 1)": ((8, 64, 28, 28), (64, 64, 1, 1), {}),
}


def rows() -> Iterator[Row]:
    """Yield rows of operations, functions and convolutions; the latter are compared with equally large products."""
    rng = np.random.default_rng(0)
    for format in (sf.FP16, sf.BF16):
        operands = [sf.round(np.abs(x), format) for x in rng.standard_normal((3, COUNT)).astype(np.float32)]
        with threads(1):
            for name, row in FUNCTIONS.items():
                yield _row(name, operands[: len(row.operands)], format, TARGETS[row.accuracy])
    for name, (images, kernels, options) in CONVOLUTIONS.items():
        for count in sorted({1, sf.get_threads()}):
            with threads(count):
                yield _convolution(name, images, kernels, options, count)


def _row(name: str, operands: list[np.ndarray], format: sf.Format, target: float) -> Row:
    time = seconds(lambda: getattr(sf, name)(*operands, format))
    return Row(f"{name}, {format}", giga(COUNT, time), "", f">= {target} G/s")


def _convolution(name: str, images: tuple, kernels: tuple, options: dict, count: int) -> Row:
    rng = np.random.default_rng(0)
    x, w = (sf.round(rng.standard_normal(shape).astype(np.float32), sf.FP16) for shape in (images, kernels))
    out = sf.conv2d(x, w, accumulate=sf.FP16, **options)
    depth = w[0].size
    a = sf.round(rng.standard_normal((len(w), depth)).astype(np.float32), sf.FP16)
    b = sf.round(rng.standard_normal((depth, out.size // len(w))).astype(np.float32), sf.FP16)
    ours = seconds(lambda: sf.conv2d(x, w, accumulate=sf.FP16, **options))
    product = seconds(lambda: sf.matmul(a, b, accumulate=sf.FP16))
    rate = giga(out.size * depth, ours)
    return Row(f"conv2d {name}, {count} threads", rate, f"{product / ours:.2f} of the matmul rate", ">= 0.7")
