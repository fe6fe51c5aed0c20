"""Compile a second definition of the arithmetic in C, and check simfloat against it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from simfloat.tools.selftest.checks import DETERMINISTIC, Batch, Check

Array = NDArray[np.float64]

#: The compilers to try, in this order.
COMPILERS = ("cc", "gcc", "clang")

#: The number of results of one call; they fit into the processor's cache.
BLOCK = 1 << 16

FORMATS = (sf.E4M3, sf.E5M2, sf.E4M3FNUZ, sf.p3109(8, 3), sf.FP16, sf.BF16, sf.TF32, sf.FP32)
RANDOM = sf.stochastic(8)

#: The modes in the order of their numbers in `oracle.c`. Other modes are tested only against the other definitions.
MODES = (
    *("nearest_even", "nearest_away", "toward_zero", "toward_positive", "toward_negative", "to_odd"),
    "stochastic",
)
KNOWN = tuple(mode for mode in DETERMINISTIC if mode.mode in MODES)

SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "fma": "f", "round": "r"}


class NoCompiler(Exception):
    """There is no C compiler, or it does not compile the second definition."""


@cache
def library() -> Any:
    """Return the compiled second definition; raise NoCompiler if it cannot be compiled."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise NoCompiler(
            f"the second definition is written in C, and there is no compiler: install one of {', '.join(COMPILERS)}."
        )
    source, folder = Path(__file__).with_name("oracle_sums.c"), Path(tempfile.mkdtemp(prefix="simfloat-"))
    try:
        options = ["-O2", "-std=c99", "-shared", "-fPIC", "-fvisibility=hidden"]
        target = folder / "oracle.so"
        done = subprocess.run([compiler, *options, "-o", target, source], capture_output=True, text=True)
        if done.returncode:
            raise NoCompiler(f"{compiler} does not compile {source}: {done.stderr.strip()}")
        return ctypes.CDLL(str(target))
    finally:
        if sys.platform != "win32":  # Windows locks the file of a loaded library
            shutil.rmtree(folder)


def rules(format: sf.Format, rounding: sf.Rounding) -> NDArray[np.int64]:
    """Return a format and a mode as numbers for `oracle.c`."""
    last = format.emax - format.mantissa_bits
    facts = (format.precision, format.emin, format.emax, int(format.max / 2.0**last), format.has_infinity)
    of_mode = (MODES.index(rounding.mode), rounding.bits, rounding.saturates, format.tininess == "before_rounding")
    return np.array([*facts, format.has_negative_zero, format.clamps, *of_mode], np.int64)


def operate(
    operation: str, format: sf.Format, rounding: sf.Rounding, operands: tuple[Array, ...], draws: NDArray[np.uint32]
) -> tuple[Array, NDArray[np.uint8]]:
    """Return results and flags of arrays by the second definition."""
    a, b, c = (*operands, *operands[:1] * 2)[:3]
    out, flags = np.empty(a.size), np.empty(a.size, np.uint8)
    sign = ctypes.c_int64(ord(SIGNS[operation]))
    arrays = [_address(x) for x in (a, b, c, draws, out, flags)]
    library().oracle_operate(sign, _address(rules(format, rounding)), ctypes.c_int64(a.size), *arrays)
    return out, flags


#: The numbers of orders in `oracle_sums.c`.
ORDERS = {"sequential": 0, "unfused": 1, "kahan": 2, "pairwise": 3}


def sum_in_order(accumulate: Any, a: Array, b: Array, seed: int = 0) -> Array:
    """Return sums of the products of rows: sequential, unfused, Kahan, pairwise, and blocked sums of these."""
    is_blocked = accumulate.maker == "blocked"
    inner, outer = (accumulate.inner, accumulate.outer) if is_blocked else (accumulate, accumulate)
    size = accumulate.size if is_blocked else 0
    sizes = map(ctypes.c_int64, (size, inner.steps(size), outer.stages, *a.shape))
    out = np.empty(len(a))
    library().oracle_ordered(
        *(_address(_summation(order)) for order in (inner, outer)),
        *sizes,
        *map(_address, (a, b)),
        ctypes.c_uint64(seed),
        _address(out),
    )
    return out


def _summation(accumulate: Any) -> NDArray[np.int64]:
    """Return an order with its formats and modes as numbers for `oracle_sums.c`."""
    products = getattr(accumulate, "products", None)
    order = "unfused" if products is not None else accumulate.maker
    sums = rules(accumulate.format, accumulate.rounding)
    return np.array([ORDERS[order], *sums, *rules(products or accumulate.format, accumulate.rounding)], np.int64)


class AlignedSum(NamedTuple):
    """The numbers of an aligned sum, in the order in which `oracle_sums.c` reads them."""

    chunk: int
    fraction_bits: int
    align: int = 2
    is_hardware: bool = True
    zeros_take_part: bool = False
    zero_exponent: int = 0


def sum_aligned(
    unit: AlignedSum, output: sf.Format, rounding: sf.Rounding, inputs: sf.Format, a: Array, b: Array, seed: int = 0
) -> Array:
    """Return sums of the products of rows: aligned, truncated and added one chunk at a time."""
    out, unit_numbers = np.empty(len(a)), np.array([*unit, inputs.emin, inputs.emin], np.int64)
    facts = (_address(x) for x in (rules(output, rounding), unit_numbers))
    library().oracle_fused(
        *facts, *map(ctypes.c_int64, a.shape), *map(_address, (a, b)), ctypes.c_uint64(seed), _address(out)
    )
    return out


def _address(x: NDArray) -> ctypes.c_void_p:
    """Return a pointer to the data of an array."""
    assert x.flags.c_contiguous
    return x.ctypes.data_as(ctypes.c_void_p)  # the pointer keeps the array alive


def _modes(quick: bool) -> list[sf.Rounding]:
    """Return the modes in which operations are checked."""
    return [*KNOWN, sf.nearest_even.saturating(), *([] if quick else [sf.toward_positive.saturating()]), RANDOM]


def _cases(operation: str, count: int, quick: bool) -> Iterator[Batch]:
    """Yield an operation on `count` blocks of numbers in every format, mode and tininess rule."""
    rng = np.random.default_rng([31, *map(ord, operation)])
    for number, format in enumerate(FORMATS):
        for index, rounding in enumerate(_modes(quick)):
            for turn in range(count):
                tininess = ("after_rounding", "before_rounding")[(number + index + turn) % 2]
                yield from _block(operation, replace(format, tininess=tininess), rounding, rng)


def _block(operation: str, format: sf.Format, rounding: sf.Rounding, rng: np.random.Generator) -> Iterator[Batch]:
    """Yield the results of one block, and its flags if they differ."""
    operands = _numbers(operation, format, rng)
    draws = rng.integers(0, 2 ** max(rounding.bits, 1), BLOCK).astype(np.uint32)
    want, want_flags = operate(operation, format, rounding, operands, draws)
    stream = sf.GivenBits(draws) if rounding.is_stochastic else None
    got, flags = getattr(sf, operation)(*operands, format, rounding, stream=stream, flags=True)
    yield Batch(operation, operands, (format, rounding), got, want)
    differing = Batch(f"flags of {operation}", operands, (format, rounding), flags, want_flags)
    if differing.first_difference():
        yield differing


def _numbers(operation: str, format: sf.Format, rng: np.random.Generator) -> tuple[Array, ...]:
    """Return operands: for `round` float64 values in the range of the format, otherwise numbers of the format."""
    if operation == "round":
        low, high = format.emin - format.precision - 2, format.emax + 3
        x = rng.uniform(-2, 2, BLOCK) * 2.0 ** rng.integers(low, high, BLOCK)
        # A third has at most one more bit than the format: ties, and numbers of the format.
        x[::3] = sf.round(x[::3], sf.Format(11, format.mantissa_bits + 1))
        x[:4] = 0.0, -0.0, np.inf, np.nan
        return (x,)
    count = 3 if operation == "fma" else 2
    chosen = [sf.decode(rng.integers(0, 1 << format.bits, BLOCK), format).astype(np.float64) for _ in range(count)]
    if operation != "fma":
        # Operands of similar size have more cancellations and ties.
        near = sf.round(chosen[0][::2] * 2.0 ** rng.integers(-format.precision - 2, 3, BLOCK // 2), format)
        chosen[1][::2] = np.where(rng.random(BLOCK // 2) < 0.5, near, chosen[1][::2])
    else:
        with np.errstate(all="ignore"):
            product = chosen[0][::2] * chosen[1][::2] * 2.0 ** rng.integers(-format.precision - 2, 3, BLOCK // 2)
        chosen[2][::2] = -sf.round(product, format)
    return tuple(chosen)


def _ordered_sums(blocks: int, quick: bool) -> Iterator[Batch]:
    """Check sums of 12 products, rounded at every step, in every order and mode."""
    rng = np.random.default_rng(32)
    for format in (sf.E5M2, sf.FP16, sf.BF16, sf.FP32):
        for rounding in (*KNOWN, RANDOM, sf.stochastic(16)):
            for accumulate in _orders(format, rounding):
                for _ in range(blocks):
                    a, b = _rows(format, 12, rng)
                    got = _dots(a, b, accumulate)
                    yield Batch("dot", (), (format, accumulate), got, sum_in_order(accumulate, a, b))


def _orders(format: sf.Format, rounding: sf.Rounding) -> Iterator[Any]:
    """Yield the accumulators of a format and a mode."""
    fused, unfused = (sf.sequential(format, rounding, products=products) for products in (None, format))
    kahan, pairwise = sf.kahan(format, rounding), sf.pairwise(format, rounding)
    yield from (fused, unfused, kahan, pairwise)
    yield from (sf.blocked(5, fused, unfused), sf.blocked(3, kahan, pairwise), sf.blocked(4, pairwise, kahan))


#: The modes of totals and of alignments in custom units.
TOTALS = (sf.nearest_even, sf.toward_zero, sf.toward_negative, sf.to_odd, RANDOM, sf.stochastic(16))
ALIGNMENTS = (sf.toward_zero, sf.nearest_even, sf.to_odd, sf.toward_negative)


def _fused_sums(blocks: int, quick: bool) -> Iterator[Batch]:
    """Check sums of 19 products by custom units."""
    rng = np.random.default_rng(33)
    for index, (inputs, output) in enumerate(
        product((sf.E5M2, sf.FP16, sf.BF16), (sf.FP32, sf.FP16, sf.BF16, sf.E4M3))
    ):
        for number, (rounding, align) in enumerate(product((None, *TOTALS), ALIGNMENTS)):
            terms, bits = ((4, 23), (8, 20), (16, 13), (32, 9))[(index + number) % 4]
            zero = None if number % 2 else -30
            accumulate = sf.fused(terms, bits, output, rounding=rounding, align=align, zero_exponent=zero)
            mode = rounding or (sf.toward_zero if output == sf.FP32 else sf.nearest_even)
            is_hardware = rounding is None and output == sf.FP32
            unit = AlignedSum(terms, bits, MODES.index(align.mode), is_hardware, zero is not None, zero or 0)
            for _ in range(blocks):
                a, b = _rows(inputs, 19, rng)
                got = _dots(a, b, accumulate, inputs)
                yield Batch("dot", (), (inputs, accumulate), got, sum_aligned(unit, output, mode, inputs, a, b))


#: Tensor cores: formats of operands, products per chunk, fraction bits and the exponent of zeros, by Xie et al.
UNITS: dict[Any, tuple[tuple[sf.Format, ...], AlignedSum]] = {
    "volta": ((sf.FP16,), AlignedSum(4, 23, zeros_take_part=True, zero_exponent=-131)),
    "ampere": ((sf.FP16, sf.BF16), AlignedSum(8, 24, zeros_take_part=True, zero_exponent=-132)),
    "hopper": ((sf.FP16, sf.BF16), AlignedSum(16, 25, zeros_take_part=True, zero_exponent=-133)),
}


def _unit_sums(blocks: int, quick: bool) -> Iterator[Batch]:
    """Check sums of 37 products on tensor cores, including small products together with zeros."""
    rng = np.random.default_rng(34)
    for architecture, (formats, unit) in UNITS.items():
        for inputs in formats:
            for scale in (1.0, 2.0**-9) if inputs == sf.FP16 else (1.0, 2.0**-64):
                for _ in range(blocks):
                    a, b = (sf.round(x * scale, inputs).astype(np.float64) for x in _rows(inputs, 37, rng))
                    accumulate = sf.tensor_core(architecture, inputs)
                    want = sum_aligned(unit, sf.FP32, sf.toward_zero, inputs, a, b)
                    yield Batch("dot", (), (inputs, accumulate), _dots(a, b, accumulate, inputs), want)


def _rows(format: sf.Format, terms: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return rows of numbers of the format, a few binades apart, with zeros."""
    shape = (BLOCK // 16, terms)
    x = (rng.uniform(-2, 2, shape) * 2.0 ** rng.integers(-6, 4, shape) for _ in range(2))
    a, b = (sf.round(v * (rng.random(shape) < 0.95), format, sf.nearest_even.saturating()) for v in x)
    a[::2, -1], b[::2, -1] = -a[::2, 0], b[::2, 0]
    return a.astype(np.float64), b.astype(np.float64)


def _dots(a: Array, b: Array, accumulate: Any, inputs: sf.Format | None = None) -> Array:
    """Return the dot products of rows."""
    stream = sf.BitStream(0)
    products = sf.matmul(a[:, None, :], b[:, :, None], inputs=inputs, accumulate=accumulate, stream=stream)
    return products.reshape(-1).astype(np.float64)


def _operation_check(operation: str, blocks: int) -> Check:
    """Return a check of an operation; a quick one has a tenth of the blocks, at least one."""
    return lambda quick: _cases(operation, max(blocks // 10, 1) if quick else blocks, quick)


def _sums(check: Any, blocks: int) -> Check:
    """Return a check of sums; a quick one has a tenth of the blocks, at least one."""
    return lambda quick: check(max(blocks // 10, 1) if quick else blocks, quick)


#: The checks by name: about 10^8 results in total; operations also compare flags.
CHECKS: dict[str, Check] = {
    "rounding, in C": _operation_check("round", 6),
    **{
        f"{operation}, in C": _operation_check(operation, 4)
        for operation in ("add", "subtract", "multiply", "divide", "fma")
    },
    "orders of sums, in C": _sums(_ordered_sums, 1),
    "fused sums, in C": _sums(_fused_sums, 1),
    "tensor cores, in C": _sums(_unit_sums, 4),
}
