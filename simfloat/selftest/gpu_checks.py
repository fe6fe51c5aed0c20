"""Checks of a GPU: every family of kernels there, compared with the CPU's on the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from simfloat.accumulate.rounded_orders import ROUNDED_ORDERS
from simfloat.arithmetic.catalog import FUNCTIONS
from simfloat.arithmetic.machines import GPU, on_cpu
from simfloat.selftest.comparison import Batch, Check
from simfloat.selftest.hard_numbers import DETERMINISTIC, adversarial

#: Numbers of a batch; a sixteenth of them with `quick`.
COUNT = 1 << 20

FORMATS = (sf.FP16, sf.BF16, sf.E4M3, sf.FP32, sf.E2M1, sf.E8M0, sf.p3109(8, 3), sf.Format(5, 3, subnormals=False))
RANDOM = (sf.stochastic(), sf.stochastic(8, "A"), sf.stochastic(13, "B"))
NARROW = (sf.FP16, sf.E4M3)

ACCUMULATORS: tuple[Any, ...] = (
    *(sf.FP16, sf.BF16, sf.FP32, sf.FP64),
    *(sf.sequential(sf.BF16, rounding=mode) for mode in (*DETERMINISTIC[1:], *RANDOM)),
    *(sf.sequential(sf.FP16, products=sf.FP16, rounding=mode) for mode in (sf.toward_zero, RANDOM[2])),
    *(order.make(sf.FP16, mode) for order in ROUNDED_ORDERS[1:] for mode in (sf.nearest_even, *RANDOM[:2])),
    *(sf.pairwise(sf.BF16), sf.kahan(sf.FP32), sf.blocked(32, sf.FP16, sf.FP32), sf.exact, sf.fused(8, 20)),
    sf.fused(8, 14, sf.BF16, rounding=sf.stochastic(8), align=sf.to_odd),
    sf.lanes(8, sf.FP16, sf.FP32),
    *(sf.tensor_core(name, sf.FP16) for name in ("volta", "turing", "ampere", "ada", "hopper", "blackwell")),
    *(sf.tensor_core("hopper", sf.E4M3), sf.tensor_core("volta", sf.FP16, sf.FP16)),
    *(sf.matrix_core(name, sf.FP16) for name in ("cdna1", "cdna2", "cdna3")),
)

DIRECTED = (sf.toward_zero, sf.toward_positive, sf.toward_negative)

#: Sums that a GPU makes in tiles if a result is large, steps being an instruction or two; with the operands' format.
TILED: tuple[tuple[Any, sf.Format], ...] = (
    *((format, format) for format in (sf.FP16, sf.BF16, sf.FP32)),
    *((sf.sequential(format, products=format), format) for format in (sf.FP16, sf.BF16, sf.FP32)),
    *((sf.sequential(sf.FP32, rounding=mode), sf.FP32) for mode in DIRECTED),
    *((sf.sequential(sf.FP32, products=sf.FP32, rounding=mode), sf.FP32) for mode in DIRECTED),
)


def hard_images(quick: bool, dtype: Any, seed: int) -> NDArray[np.floating]:
    """Any images of the type, NaN among them, and numbers that are hard to round."""
    count, rng = COUNT // 16 if quick else COUNT, np.random.default_rng(seed)
    images = rng.integers(0, 1 << 8 * np.dtype(dtype).itemsize, count, np.uint64)
    x = images.astype(np.uint32).view(np.float32) if dtype is np.float32 else images.view(np.float64)
    hard = adversarial(sf.FP16, rng, count=2)
    with np.errstate(all="ignore"):
        x[: len(hard)] = hard[: len(x)]
    return x


def on_both_machines(function: Callable[..., Any], operands: tuple[NDArray, ...], *options: Any, **named: Any) -> Batch:
    """What a function gives on the GPU, beside what it gives on the CPU."""
    seeded = {**named, "stream": sf.BitStream(9)} if named.pop("draws", True) else named
    got = on_cpu(function(*map(GPU.to_device, operands), *options, **seeded))
    seeded = {**seeded, "stream": sf.BitStream(9)} if "stream" in seeded else seeded
    want = function(*operands, *options, **seeded)
    shown = operands if np.shape(want) == operands[0].shape else ()
    return Batch(f"{function.__name__} on a GPU", shown, (*options, *named.values()), got, want)


def rounding(quick: bool) -> Iterator[Batch]:
    """Every mode, of formats for each way of rounding."""
    for dtype in (np.float32, np.float64):
        x = hard_images(quick, dtype, 1)
        for format in FORMATS:
            operand = x if format.has_nan else x[~np.isnan(x)]
            for mode in (*DETERMINISTIC, *RANDOM):
                yield on_both_machines(sf.round, (operand,), format, mode)


def operations(quick: bool) -> Iterator[Batch]:
    """Every operation and function, rounded where it is made, from round-to-odd, from pairs, and by the hardware."""
    for dtype in (np.float32, np.float64):
        x = [hard_images(quick, dtype, seed) for seed in (2, 3, 4)]
        for name, row in FUNCTIONS.items():
            operands = tuple(x[: len(row.operands)])
            for format, mode in (
                *((format, sf.nearest_even) for format in (*NARROW, sf.FP32, sf.FP64)),
                *((sf.BF16, sf.toward_negative), (sf.FP32, sf.stochastic())),
            ):
                yield on_both_machines(getattr(sf, name), operands, format, mode)


def sums(quick: bool) -> Iterator[Batch]:
    """Every accumulator, of matrices with zeros and cancellation among them; and results large enough for tiles."""
    side, rng = (32 if quick else 256) if COUNT > 1 << 10 else 3, np.random.default_rng(5)
    for accumulate in ACCUMULATORS:
        format = sf.E4M3 if accumulate == sf.tensor_core("hopper", sf.E4M3) else sf.FP16
        a, b = (sf.round(rng.standard_normal((side, side)), format) for _ in range(2))
        a[:, 1::7], b[::5] = 0.0, 0.0
        yield on_both_machines(sf.matmul, (a, b), accumulate=accumulate, output=sf.FP32)
    for accumulate, format in TILED:
        yield on_both_machines(sf.matmul, _steep(format, rng), accumulate=accumulate, output=sf.FP32)


def _steep(format: sf.Format, rng: np.random.Generator) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Matrices of the format whose product underflows in the first rows and overflows in the last."""
    m, k, n = (741, 33, 749) if COUNT > 1 << 10 else (3, 5, 2)
    powers = np.linspace(format.emin, format.emax - 3, m).round()
    a, b = rng.standard_normal((m, k)) * 2.0 ** powers[:, None], rng.standard_normal((k, n))
    a[m // 2, 1:], b[1, n // 2] = -a[m // 2, 0], np.inf
    return sf.round(a, format), sf.round(b, format)


def events(quick: bool) -> Iterator[Batch]:
    """The events of roundings that observers receive."""
    for format in (sf.FP16, sf.E4M3, sf.p3109(8, 3)):
        x, heard = hard_images(quick, np.float32, 6), []
        for move in (GPU.to_device, np.asarray):
            recorder = sf.Recorder()
            sf.round(move(x), format, observer=recorder)
            heard.append(np.array([*recorder.counts().values(), *recorder.histogram().values()]))
        yield Batch("counts of round on a GPU", (), (format,), *heard)


#: Every check of a GPU by the name under which it is reported.
CHECKS: dict[str, Check] = {"rounding": rounding, "operations": operations, "sums": sums, "events": events}
