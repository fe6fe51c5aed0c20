"""The second definition, `oracle.c`, compiled by this machine's C compiler, and checks of simfloat against it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from simfloat.formats.rounding import MODES
from simfloat.selftest.comparison import Batch, Check
from simfloat.selftest.hard_numbers import DETERMINISTIC

Array = NDArray[np.float64]

#: Compilers that are looked for.
COMPILERS = ("cc", "gcc", "clang")

#: Results of one call, which stay in a cache.
BLOCK = 1 << 16

FORMATS = (sf.E4M3, sf.E5M2, sf.E4M3FNUZ, sf.p3109(8, 3), sf.FP16, sf.BF16, sf.TF32, sf.FP32)
RANDOM = sf.stochastic(8)
SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "fma": "f", "round": "r"}


class NoCompiler(Exception):
    """There is no C compiler, or it does not compile the second definition."""


@cache
def library() -> Any:
    """The compiled second definition. Raises NoCompiler with a sentence that says what is missing."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise NoCompiler(
            f"the second definition is C, and there is no compiler: install one of {', '.join(COMPILERS)}."
        )
    source, folder = Path(__file__).with_name("oracle.c"), Path(tempfile.mkdtemp(prefix="simfloat-"))
    try:
        options = ["-O2", "-std=c99", "-shared", "-fPIC", "-fvisibility=hidden"]
        target = folder / "oracle.so"
        done = subprocess.run([compiler, *options, "-o", target, source], capture_output=True, text=True)
        if done.returncode:
            raise NoCompiler(f"{compiler} does not compile {source}: {done.stderr.strip()}")
        return ctypes.CDLL(str(target))
    finally:
        if sys.platform != "win32":  # which keeps a library's file as long as it is loaded
            shutil.rmtree(folder)


def rules(format: sf.Format, rounding: sf.Rounding) -> NDArray[np.int64]:
    """A format and a mode as `oracle.c` reads them."""
    modes = [*MODES, "stochastic"]
    last = format.emax - format.mantissa_bits
    facts = (format.precision, format.emin, format.emax, int(format.max / 2.0**last), format.has_infinity)
    of_mode = (modes.index(rounding.mode), rounding.bits, rounding.saturates, format.tininess == "before_rounding")
    return np.array([*facts, format.has_negative_zero, format.clamps, *of_mode], np.int64)


def operate(
    operation: str, format: sf.Format, rounding: sf.Rounding, operands: tuple[Array, ...], draws: NDArray[np.uint32]
) -> tuple[Array, NDArray[np.uint8]]:
    """Results and flags of vectors by the second definition."""
    a, b, c = (*operands, *operands[:1] * 2)[:3]
    out, flags = np.empty(a.size), np.empty(a.size, np.uint8)
    sign = ctypes.c_int64(ord(SIGNS[operation]))
    arrays = [_address(x) for x in (a, b, c, draws, out, flags)]
    library().oracle_operate(sign, _address(rules(format, rounding)), ctypes.c_int64(a.size), *arrays)
    return out, flags


def sequential(format: sf.Format, rounding: sf.Rounding, a: Array, b: Array) -> Array:
    """Sums of the products of rows."""
    out, sizes = np.empty(len(a)), map(ctypes.c_int64, a.shape)
    library().oracle_sequential(_address(rules(format, rounding)), *sizes, *map(_address, (a, b, out)))
    return out


def fused(unit: Any, inputs: sf.Format, a: Array, b: Array) -> Array:
    """The same aligned, cut and added a chunk at a time."""
    mode = sf.nearest_even if unit.output == sf.FP16 else sf.toward_zero
    numbers = *a.shape, unit.terms, unit.fraction_bits, inputs.emin, inputs.emin
    out = np.empty(len(a))
    pointers = map(_address, (a, b, out))
    library().oracle_fused(_address(rules(unit.output, mode)), *map(ctypes.c_int64, numbers), *pointers)
    return out


def _address(x: NDArray) -> ctypes.c_void_p:
    assert x.flags.c_contiguous
    return ctypes.c_void_p(x.ctypes.data)


def _modes(quick: bool) -> list[sf.Rounding]:
    return [*DETERMINISTIC, sf.nearest_even.saturating(), *([] if quick else [sf.toward_positive.saturating()]), RANDOM]


def _cases(operation: str, count: int, quick: bool) -> Iterator[Batch]:
    """An operation on `count` blocks of numbers in every format, mode and tininess."""
    rng = np.random.default_rng([31, *map(ord, operation)])
    for number, format in enumerate(FORMATS):
        for index, rounding in enumerate(_modes(quick)):
            for turn in range(count):
                tininess = ("after_rounding", "before_rounding")[(number + index + turn) % 2]
                yield from _block(operation, replace(format, tininess=tininess), rounding, rng)


def _block(operation: str, format: sf.Format, rounding: sf.Rounding, rng: np.random.Generator) -> Iterator[Batch]:
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
    """Operands: any float64 numbers of the format's range for a rounding, else any numbers of the format."""
    if operation == "round":
        low, high = format.emin - format.precision - 2, format.emax + 3
        x = rng.uniform(-2, 2, BLOCK) * 2.0 ** rng.integers(low, high, BLOCK)
        # A third has few bits behind the format's last one: ties, and numbers of the format.
        x[::3] = sf.round(x[::3], sf.Format(11, format.mantissa_bits + 1))
        x[:4] = 0.0, -0.0, np.inf, np.nan
        return (x,)
    count = 3 if operation == "fma" else 2
    chosen = [sf.decode(rng.integers(0, 1 << format.bits, BLOCK), format).astype(np.float64) for _ in range(count)]
    if operation != "fma":
        # Operands near each other meet, cancel and tie more often.
        near = sf.round(chosen[0][::2] * 2.0 ** rng.integers(-format.precision - 2, 3, BLOCK // 2), format)
        chosen[1][::2] = np.where(rng.random(BLOCK // 2) < 0.5, near, chosen[1][::2])
    else:
        with np.errstate(all="ignore"):
            product = chosen[0][::2] * chosen[1][::2] * 2.0 ** rng.integers(-format.precision - 2, 3, BLOCK // 2)
        chosen[2][::2] = -sf.round(product, format)
    return tuple(chosen)


def _sequential_sums(blocks: int, quick: bool) -> Iterator[Batch]:
    """Sums of 12 products, rounded at every step."""
    rng = np.random.default_rng(32)
    for format in (sf.E5M2, sf.FP16, sf.BF16, sf.FP32):
        for rounding in DETERMINISTIC:
            for _ in range(blocks):
                a, b = _rows(format, 12, rng)
                got = _dots(a, b, sf.sequential(format, rounding=rounding))
                yield Batch("dot", (), (format, rounding), got, sequential(format, rounding, a, b))


def _fused_sums(blocks: int, quick: bool) -> Iterator[Batch]:
    """Sums of 19 products by tensor cores' rules."""
    rng = np.random.default_rng(33)
    for inputs in (sf.E5M2, sf.E4M3, sf.FP16, sf.BF16):
        for unit in (sf.fused(4, 23), sf.fused(16, 25), sf.fused(8, 24, sf.FP16), sf.fused(32, 13, sf.Format(8, 13))):
            for _ in range(blocks):
                a, b = _rows(inputs, 19, rng)
                yield Batch("dot", (), (inputs, unit), _dots(a, b, unit, inputs), fused(unit, inputs, a, b))


def _rows(format: sf.Format, terms: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Rows of numbers of the format, a few binades apart, with zeros."""
    shape = (BLOCK // 16, terms)
    x = (rng.uniform(-2, 2, shape) * 2.0 ** rng.integers(-6, 4, shape) for _ in range(2))
    a, b = (sf.round(v * (rng.random(shape) < 0.95), format, sf.nearest_even.saturating()) for v in x)
    a[::2, -1], b[::2, -1] = -a[::2, 0], b[::2, 0]
    return a.astype(np.float64), b.astype(np.float64)


def _dots(a: Array, b: Array, accumulate: Any, inputs: sf.Format | None = None) -> Array:
    """The dot products of rows."""
    products = sf.matmul(a[:, None, :], b[:, :, None], inputs=inputs, accumulate=accumulate)
    return products.reshape(-1).astype(np.float64)


def _named(operation: str, blocks: int) -> Check:
    """A check of an operation; a tenth of the blocks for a quick one, but one of each kind."""
    return lambda quick: _cases(operation, max(blocks // 10, 1) if quick else blocks, quick)


def _sums(check: Any, blocks: int) -> Check:
    return lambda quick: check(max(blocks // 10, 1) if quick else blocks, quick)


#: Every check by its name: about 10^8 results together, each with its flags.
CHECKS: dict[str, Check] = {
    "rounding, in C": _named("round", 6),
    **{f"{operation}, in C": _named(operation, 4) for operation in ("add", "subtract", "multiply", "divide", "fma")},
    "sequential sums, in C": _sums(_sequential_sums, 2),
    "fused sums, in C": _sums(_fused_sums, 2),
}
