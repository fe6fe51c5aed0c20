"""Rates on a GPU, by CUDA events, as ratios to a copy in its memory and to a product by cuBLAS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np

import simfloat as sf
from benchmarks.measure import Row, giga
from simfloat.arithmetic.machines import what_cuda_lacks

COUNT = 1 << 26
SIDE = 4096
BATCH = 4096

#: (accumulator, format of the operands, smallest allowed rate in 10^9 multiply-adds per second)
PRODUCTS: tuple[tuple[Any, sf.Format, float], ...] = (
    (sf.FP16, sf.FP16, 10_000),
    (sf.BF16, sf.BF16, 10_000),
    (sf.FP16, sf.E4M3, 1_000),
    (sf.sequential(sf.FP16, products=sf.FP16), sf.FP16, 1_000),
    (sf.as_format("e6m9"), sf.as_format("e6m9"), 1_000),
    (sf.FP32, sf.FP32, 10_000),
    (sf.sequential(sf.FP32, rounding=sf.toward_zero), sf.FP32, 10_000),
    (sf.tensor_core("hopper", sf.FP16), sf.FP16, 500),
    (sf.sequential(sf.FP16, rounding=sf.stochastic()), sf.FP16, 300),
)


def rows() -> Iterator[Row]:
    """Yield rows for rounding, products and a training step; one row if there is no GPU."""
    if (missing := what_cuda_lacks()) is not None:
        yield Row(f"not measured: {missing}", "")
        return
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    driver = cupy.cuda.runtime.driverGetVersion()
    yield Row(f"{properties['name'].decode()}, driver {driver}, CuPy {cupy.__version__}", "")
    yield from _rounding(cupy)
    yield from _products(cupy)
    yield from _training(cupy)


def _seconds(cupy: Any, function: Callable[[], object], runs: int = 11) -> float:
    """Return the median time of a call on the GPU, after a first call that compiles and is not counted."""
    function()
    times = []
    for _ in range(runs):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        function()
        stop.record()
        stop.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, stop) / 1e3)
    return median(times)


def _rounding(cupy: Any) -> Iterator[Row]:
    x = cupy.random.default_rng(0).standard_normal(COUNT, dtype=np.float32)
    copy = _seconds(cupy, x.copy)
    yield Row("copy of 2^26 float32", giga(COUNT, copy))
    for format in (sf.FP16, sf.BF16, sf.E4M3):
        time = _seconds(cupy, lambda format=format: sf.round(x, format))
        yield Row(f"round to {format}", giga(COUNT, time), f"{copy / time:.2f} of the copy", ">= 0.8")
    time = _seconds(cupy, lambda: sf.round(x, sf.FP16, sf.stochastic(), stream=sf.BitStream(0)))
    yield Row("round to FP16, stochastic", giga(COUNT, time), f"{copy / time:.2f} of the copy", ">= 0.6")


def _products(cupy: Any) -> Iterator[Row]:
    a, b = cupy.random.default_rng(1).standard_normal((2, SIDE, SIDE), dtype=np.float32)
    work = float(SIDE) ** 3
    blas = _seconds(cupy, lambda: a @ b)
    yield Row(f"cuBLAS, FP32, {SIDE}^3", giga(work, blas))
    for accumulate, format, least in PRODUCTS:
        x, y = sf.round(a, format), sf.round(b, format)
        time = _seconds(cupy, lambda: sf.matmul(x, y, accumulate=accumulate, stream=sf.BitStream(0)), 3)  # noqa: B023
        ratio = f"{blas / time:.3f} of cuBLAS"
        yield Row(f"{accumulate}, of {format}", giga(work, time), ratio, f">= {least / 1e3:g}e12/s")


def _training(cupy: Any) -> Iterator[Row]:
    rng = np.random.default_rng(2)
    x = cupy.asarray(rng.standard_normal((BATCH, 784)).astype(np.float32))
    y = cupy.asarray(rng.integers(0, 10, BATCH))
    for batch in (BATCH, 1):
        model = sf.nn.MLP([784, 256, 128, 10], rng=0).to("cuda")
        optimizer = sf.optim.SGD(model.parameters(), lr=0.1)

        def step(model: Any = model, optimizer: Any = optimizer, batch: int = batch) -> None:
            optimizer.zero_grad()
            sf.nn.cross_entropy(model(sf.Tensor(x[:batch])), y[:batch]).backward()
            optimizer.step()

        with sf.simulate("bf16-standard"):
            time = _seconds(cupy, step)
        yield Row(f"step of an MLP 784-256-128-10, batch {batch}", f"{time * 1e3:.2f} ms", "", "kernels, not launches")
