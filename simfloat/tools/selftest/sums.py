"""Check sums on the CPU and on a GPU.

Every step is compared with the definition, exact sums with fractions, and stagnation with a table of known values.
Every family of GPU kernels is compared with the CPU on the same operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from simfloat.arithmetic.catalog import FUNCTIONS
from simfloat.arithmetic.machines import GPU, on_cpu
from simfloat.formats.definition import round_value
from simfloat.sums.trees import ROUNDED_ORDERS
from simfloat.tools.selftest import definitions
from simfloat.tools.selftest.checks import DETERMINISTIC, Batch, Check, adversarial, hard_operands
from simfloat.tools.selftest.orders import dot, fused_dot, matrix, mma_dot

CASES = [
    *((format, inputs) for format in (sf.FP16, sf.BF16, sf.FP32) for inputs in (sf.FP16, sf.BF16, sf.E4M3, sf.FP32)),
    *((sf.E4M3, sf.E4M3), (sf.TF32, sf.BF16), (sf.Format(11, 30), sf.FP32)),
]

#: The modes of steps, and for short self-tests those without rarely used modes that need extra loops to be compiled.
MODES = (*DETERMINISTIC, sf.stochastic(), sf.stochastic(4, "A"))
QUICK_MODES = tuple(mode for mode in MODES if mode not in (sf.to_odd, sf.stochastic(4, "A")))

#: Stochastic pairwise and compensated loops take twice as long to compile as others; short self-tests leave them out.
QUICK_MODES_OF_ORDERS = tuple(mode for mode in QUICK_MODES if not mode.is_stochastic)


def sequential(quick: bool) -> Iterator[Batch]:
    """Check products of matrices whose sums have cancellations and ties, with fused and with rounded products."""
    rng = np.random.default_rng(7)
    for format, inputs in CASES[::4] if quick else CASES:
        a, b = hard_operands(rng, inputs, 2, 24, 3)
        # Tiny products, too: all their sums are below the smallest normal number.
        tiny = a * 2.0 ** (format.emin - format.mantissa_bits)
        for rounding in QUICK_MODES if quick else MODES:
            for products in (None, format):
                accumulate = sf.sequential(format, rounding=rounding, products=products)
                yield _by_steps(accumulate, a, b, inputs)
                yield _by_steps(accumulate, tiny, b, inputs)


def other_orders(quick: bool) -> Iterator[Batch]:
    """Check pairwise, compensated and blocked sums of 21 terms in all modes; quickly, in deterministic ones."""
    rng = np.random.default_rng(9)
    for format in (sf.FP16,) if quick else (sf.FP16, sf.BF16, sf.FP32, sf.E4M3):
        a, b = hard_operands(rng, sf.BF16, 2, 21, 3)
        for rounding in QUICK_MODES_OF_ORDERS if quick else MODES:
            inner, outer = sf.sequential(format, rounding=rounding), sf.pairwise(sf.FP32, rounding=rounding)
            others = (order.make(format, rounding) for order in ROUNDED_ORDERS[2:])
            for accumulate in (*others, sf.blocked(6, inner, outer)):
                yield _by_steps(accumulate, a, b, sf.BF16)


def in_fp16(quick: bool) -> Iterator[Batch]:
    """Check FP16 sums with rows longer than vectors: rounded by the hardware, and emulated by a saturating mode."""
    rng = np.random.default_rng(14)
    emulated = sf.nearest_even.saturating()
    for inputs in (sf.FP16, sf.E4M3) if quick else (sf.FP16, sf.E4M3, sf.E5M2, sf.E2M1):
        a, b = hard_operands(rng, inputs, 5, 21, 67)
        tiny = sf.round(a * 2.0**-14, sf.FP16)
        for order, left in product(ROUNDED_ORDERS, (a, tiny)):
            got, want = (
                sf.matmul(left.astype(np.float32), b.astype(np.float32), accumulate=order.make(sf.FP16, rounding))
                for rounding in (sf.nearest_even, emulated)
            )
            inside = np.abs(want) < sf.FP16.max
            yield Batch(
                "matmul", (), (f"{inputs} numbers", order.make(sf.FP16, sf.nearest_even)), got[inside], want[inside]
            )


def _by_steps(accumulate: Any, a: NDArray, b: NDArray, inputs: sf.Format) -> Batch:
    """Return the product of two matrices, compared with the definition step by step."""
    got = sf.matmul(a, b, accumulate=accumulate, stream=sf.BitStream(3))
    want = matrix(a, b, lambda x, y, element: dot(accumulate, x, y, element=element, seed=3))
    return Batch("matmul", (), (f"{inputs} numbers", accumulate), got, want)


def fused(quick: bool) -> Iterator[Batch]:
    """Check fused sums of 37 terms, aligned and truncated: units of four architectures, and custom units."""
    rng = np.random.default_rng(10)
    units = [sf.tensor_core(*unit).unit for unit in (("volta", "FP16"), ("ampere", "FP16", "FP16"), ("ada", "E4M3"))]
    units += [sf.tensor_core("hopper", "FP16").unit, sf.fused(5, 13), sf.fused(3, 8, sf.FP16, zero_exponent=2)]
    units += [sf.fused(6, 11, sf.BF16, rounding=sf.stochastic(8), align=sf.to_odd)]
    units += [sf.fused(6, 11, sf.BF16, rounding=sf.toward_negative), sf.fused(4, 13, sf.E5M2, align=sf.nearest_even)]
    for inputs in (sf.FP16,) if quick else (sf.FP16, sf.BF16, sf.E4M3, sf.E2M1):
        a, b = (rng.standard_normal(shape) * 2.0 ** rng.integers(-9, 3, shape) for shape in ((3, 37), (37, 4)))
        a[rng.random(a.shape) < 0.1] = 0.0
        left, right = (sf.round(x, inputs) for x in (a, b))
        for unit in units:
            got = sf.matmul(left, right, inputs=inputs, accumulate=unit, output=sf.FP32, stream=sf.BitStream(3))
            ends = (inputs.emin, inputs.emin)
            want = matrix(left, right, lambda x, y, i, it=unit, ends=ends: fused_dot(it, x, y, ends, element=i, seed=3))
            yield Batch("matmul", (), (f"{inputs} numbers", unit), got, want)


def addends(quick: bool) -> Iterator[Batch]:
    """Check sums that start from an addend, D = A B + C, in every order that has a partial sum."""
    rng = np.random.default_rng(12)
    rounded = sf.sequential(sf.FP16, rounding=sf.toward_negative, products=sf.BF16)
    random = sf.sequential(sf.BF16, rounding=sf.stochastic(8))
    accumulators: list[Any] = [sf.sequential(sf.FP16), rounded, random, sf.kahan(sf.BF16), sf.fused(5, 13)]
    accumulators += [sf.tensor_core("hopper", "FP16").unit, sf.blocked(6, sf.FP16, sf.FP32)]
    emins = (sf.FP16.emin, sf.FP16.emin)
    for _ in range(1 if quick else 8):
        a, b = hard_operands(rng, sf.FP16, 2, 21, 3)
        for accumulate in accumulators:
            c = sf.round(rng.standard_normal((2, 3)) * 2.0 ** rng.integers(-9, 9, (2, 3)), accumulate.result)
            got = sf.matmul(a, b, inputs=sf.FP16, accumulate=accumulate, initial=c, stream=sf.BitStream(3))
            starts = c.ravel().tolist()
            want = matrix(
                a,
                b,
                lambda x, y, i, by=accumulate, starts=starts: dot(by, x, y, emins, starts[i], element=i, seed=3),
            )
            yield Batch("matmul", (), ("FP16 numbers", accumulate, "initial=c"), got, want)


def two_steps(quick: bool) -> Iterator[Batch]:
    """Check FP8 products by `mma` on Hopper, in two steps from zero, with and without an addend."""
    rng = np.random.default_rng(13)
    pairs = [(sf.E4M3, sf.E5M2)] if quick else [(x, y) for x in (sf.E4M3, sf.E5M2) for y in (sf.E4M3, sf.E5M2)]
    for (left, right), output in ((pair, output) for pair in pairs for output in (sf.FP32, sf.FP16)):
        unit = sf.tensor_core("hopper", (left, right), output, instruction="mma")
        a, b = (rng.standard_normal(shape) * 2.0 ** rng.integers(-9, 3, shape) for shape in ((3, 75), (75, 4)))
        a, b = sf.round(a, left), sf.round(b, right)
        for c in (np.zeros((3, 4)), sf.round(rng.standard_normal((3, 4)), output)):
            got, starts, emins = (
                sf.matmul(a, b, accumulate=unit, initial=c),
                c.ravel().tolist(),
                (left.emin, right.emin),
            )
            want = matrix(
                a, b, lambda x, y, i, to=output, emins=emins, starts=starts: mma_dot(to, x, y, emins, starts[i])
            )
            yield Batch("matmul", (), (unit, "initial=c"), got, want)


def matrix_units(quick: bool) -> Iterator[Batch]:
    """Check the example of the authors of MMA-Sim on every matrix unit: 2^23 - 2^23 - 1/2 - 1/4 - 1/8."""
    a, b = np.zeros(68), np.zeros(68)
    a[0], b[0] = 2.0**12, 2.0**11
    a[64:], b[64:] = (-(2.0**13), -0.5, -0.25, -0.125), (2.0**10, 1.0, 1.0, 1.0)
    for kind, architecture, inputs, want in definitions.UNITS:
        unit = getattr(sf, kind)(architecture, inputs)
        yield Batch("dot", (), (unit,), sf.dot(a, b, accumulate=unit), want)


def convolutions(quick: bool) -> Iterator[Batch]:
    """Check convolutions of images, element by element, with padding, strides and groups."""
    rng = np.random.default_rng(11)
    x, w = sf.round(rng.standard_normal((2, 4, 7, 6)), sf.FP16), sf.round(rng.standard_normal((6, 2, 3, 2)), sf.FP16)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    for accumulate in (sf.sequential(sf.FP16), sf.pairwise(sf.BF16), sf.tensor_core("hopper", sf.FP16)):
        got = sf.conv2d(x, w, accumulate=accumulate, padding=1, stride=2, groups=2)
        want = np.empty_like(got)
        for n, o, i, j in np.ndindex(got.shape):
            channels = slice(2 * (o // 3), 2 * (o // 3) + 2)
            patch = padded[n, channels, 2 * i : 2 * i + 3, 2 * j : 2 * j + 2]
            want[n, o, i, j] = sf.dot(patch.ravel(), w[o].ravel(), accumulate=accumulate)
        yield Batch("conv2d", (), (accumulate,), got, want)


def exact(quick: bool) -> Iterator[Batch]:
    """Check exact sums of numbers of very different sizes, rounded once."""
    rng = np.random.default_rng(8)
    for inputs, spread in ((sf.FP16, 10), (sf.BF16, 40), (sf.FP32, 100), (sf.FP64, 400)):
        a, b = rng.standard_normal((3, 50)), rng.standard_normal((50, 3))
        a *= 2.0 ** rng.integers(-spread, spread + 1, a.shape)
        a[:, 25:], b[25:] = -a[:, :25], b[:25] * (1 + 2.0**-6)
        left, right = (sf.round(x, inputs, sf.nearest_even.saturating()) for x in (a, b))
        totals = [
            [sum(map(_product, row, column), Fraction(0)) for column in right.T.tolist()] for row in left.tolist()
        ]
        for output in (sf.E4M3, sf.FP16, sf.BF16, sf.FP32):
            for rounding in DETERMINISTIC[:1] if quick else DETERMINISTIC:
                got = sf.matmul(left, right, accumulate=sf.exact, output=output, rounding=rounding)
                want = [[round_value(total, output, rounding) for total in row] for row in totals]
                yield Batch("matmul", (), (f"{inputs} numbers", "exact", output, rounding), got, want)


def stagnation(quick: bool) -> Iterator[Batch]:
    """Check where sums of ones and the harmonic series stop growing."""
    for name, stops in definitions.COUNTING:
        got = [sf.sum(np.ones(count), accumulate=sf.CATALOG[name]) for count in (stops - 1, stops, stops + 100)]
        yield Batch("sum", (), ("ones", name), np.array(got, np.float64), np.array([stops - 1, stops, stops], float))
    for name, first, value in definitions.HARMONIC:
        format = sf.CATALOG[name]
        reciprocals = sf.divide(1.0, np.arange(1, first + 200), format)
        got = [sf.sum(reciprocals[:count], accumulate=format) for count in (first - 2, first - 1, first, first + 199)]
        yield Batch("sum", (), ("1/k", name), np.array(got[1:], np.float64), np.full(3, value))
        yield Batch("sum grows until k =", (), (first - 1, name), np.array(got[0] < value), np.array(True))


def _product(x: float, y: float) -> Fraction:
    """Return the exact product."""
    return Fraction(x) * Fraction(y)


#: The number of values in a batch; a short self-test uses a sixteenth of it.
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

#: Sums that a GPU computes in tiles if a result is large, as a step is one or two instructions; with the input format.
TILED: tuple[tuple[Any, sf.Format], ...] = (
    *((format, format) for format in (sf.FP16, sf.BF16, sf.FP32)),
    *((sf.sequential(format, products=format), format) for format in (sf.FP16, sf.BF16, sf.FP32)),
    *((sf.sequential(sf.FP32, rounding=mode), sf.FP32) for mode in DIRECTED),
    *((sf.sequential(sf.FP32, products=sf.FP32, rounding=mode), sf.FP32) for mode in DIRECTED),
)


def hard_images(quick: bool, dtype: Any, seed: int) -> NDArray[np.floating]:
    """Return random bit patterns of the type, including NaN, and values that are hard to round."""
    count, rng = COUNT // 16 if quick else COUNT, np.random.default_rng(seed)
    images = rng.integers(0, 1 << 8 * np.dtype(dtype).itemsize, count, np.uint64)
    x = images.astype(np.uint32).view(np.float32) if dtype is np.float32 else images.view(np.float64)
    hard = adversarial(sf.FP16, rng, count=2)
    with np.errstate(all="ignore"):
        x[: len(hard)] = hard[: len(x)]
    return x


def on_both_machines(function: Callable[..., Any], operands: tuple[NDArray, ...], *options: Any, **named: Any) -> Batch:
    """Return the result of a function on the GPU, compared with the CPU."""
    seeded = {**named, "stream": sf.BitStream(9)} if named.pop("draws", True) else named
    got = on_cpu(function(*map(GPU.to_device, operands), *options, **seeded))
    seeded = {**seeded, "stream": sf.BitStream(9)} if "stream" in seeded else seeded
    want = function(*operands, *options, **seeded)
    shown = operands if np.shape(want) == operands[0].shape else ()
    return Batch(f"{function.__name__} on a GPU", shown, (*options, *named.values()), got, want)


def rounding(quick: bool) -> Iterator[Batch]:
    """Check every mode, in formats for each kind of rounding loop."""
    for dtype in (np.float32, np.float64):
        x = hard_images(quick, dtype, 1)
        for format in FORMATS:
            operand = x if format.has_nan else x[~np.isnan(x)]
            for mode in (*DETERMINISTIC, *RANDOM):
                yield on_both_machines(sf.round, (operand,), format, mode)


def operations(quick: bool) -> Iterator[Batch]:
    """Check every operation and function, with every way in which kernels round them."""
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
    """Check every accumulator on matrices with zeros and cancellations, and results that are large enough for tiles."""
    side, rng = (32 if quick else 256) if COUNT > 1 << 10 else 3, np.random.default_rng(5)
    for accumulate in ACCUMULATORS:
        format = sf.E4M3 if accumulate == sf.tensor_core("hopper", sf.E4M3) else sf.FP16
        a, b = (sf.round(rng.standard_normal((side, side)), format) for _ in range(2))
        a[:, 1::7], b[::5] = 0.0, 0.0
        yield on_both_machines(sf.matmul, (a, b), accumulate=accumulate, output=sf.FP32)
    for accumulate, format in TILED:
        yield on_both_machines(sf.matmul, _steep(format, rng), accumulate=accumulate, output=sf.FP32)


def _steep(format: sf.Format, rng: np.random.Generator) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Return matrices of the format whose product underflows in the first rows and overflows in the last."""
    m, k, n = (741, 33, 749) if COUNT > 1 << 10 else (3, 5, 2)
    powers = np.linspace(format.emin, format.emax - 3, m).round()
    a, b = rng.standard_normal((m, k)) * 2.0 ** powers[:, None], rng.standard_normal((k, n))
    a[m // 2, 1:], b[1, n // 2] = -a[m // 2, 0], np.inf
    return sf.round(a, format), sf.round(b, format)


def events(quick: bool) -> Iterator[Batch]:
    """Check the rounding events that observers receive."""
    for format in (sf.FP16, sf.E4M3, sf.p3109(8, 3)):
        x, heard = hard_images(quick, np.float32, 6), []
        for move in (GPU.to_device, np.asarray):
            recorder = sf.Recorder()
            sf.round(move(x), format, observer=recorder)
            heard.append(np.array([*recorder.counts().values(), *recorder.histogram().values()]))
        yield Batch("counts of round on a GPU", (), (format,), *heard)


#: The checks of a GPU by the name in the report.
CHECKS: dict[str, Check] = {"rounding": rounding, "operations": operations, "sums": sums, "events": events}
