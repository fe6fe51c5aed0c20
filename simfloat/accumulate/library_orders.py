"""The orders in which libraries sum FP32 numbers and products, each written once for numbers and for trees.

A register holds a row of running sums, one a lane. What `sums` makes of it, numbers or nodes of a tree, an order does
not know: registers are arrays whose first axis are the lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

#: Places of products, (steps, lanes): which product a lane takes at every step. Those beyond the last one are zeros.
Places = NDArray[np.int64]


class RegisterArithmetic(Protocol):
    """What an order is carried out with."""

    def chain(self, places: Places, start: Any = None) -> Any:
        """A register that takes these products, one after the other, from zero or from another register."""

    def add(self, x: Any, y: Any) -> Any:
        """The sums of two registers, lane by lane."""

    def with_double(self, places: Places, x: Any) -> Any:
        """A chain in double precision to which a register of one lane is added."""


#: Numbers of a buffer of NumPy's iterators.
BUFFER = 8192

#: Levels of PyTorch's cascades.
CASCADES = 4

#: The one sum of so many products as a register of one lane.
Order = Callable[[RegisterArithmetic, int], Any]


def _blocks(start: int, stop: int, width: int, registers: int) -> list[Places]:
    """The places of each register for whole blocks: register r takes the r-th `width` products of every block."""
    places = np.arange(start, stop).reshape(-1, registers, width)
    return [places[:, register] for register in range(registers)]


def _in_halves(sums: RegisterArithmetic, x: Any) -> Any:
    """The upper half of a register is added to its lower one."""
    half = len(x) // 2
    return sums.add(x[:half], x[half:])


def _in_pairs(sums: RegisterArithmetic, x: Any) -> Any:
    """Neighbours are added."""
    return sums.add(x[::2], x[1::2])


def _folded(sums: RegisterArithmetic, x: Any) -> Any:
    """The lanes of a register are added: halves while there are more than four, then pairs."""
    while len(x) > 1:
        x = _in_halves(sums, x) if len(x) > 4 else _in_pairs(sums, x)
    return x


def openblas_avx512(sums: RegisterArithmetic, terms: int) -> Any:
    """OpenBLAS from SkylakeX on, kernel/x86_64/sdot_microk_skylakex-2.c: four registers of 16, folded to 8 for 32."""
    whole, run = terms - terms % 64, terms - terms % 32
    wide = [sums.chain(places) for places in _blocks(0, whole, 16, 4)]
    registers = [_in_halves(sums, register) for register in wide]
    rest = _blocks(whole, run, 8, 4)
    registers = [sums.chain(places, register) for places, register in zip(rest, registers, strict=True)]
    total = registers[0]
    for register in registers[1:]:
        total = sums.add(total, register)
    return sums.with_double(np.arange(run, terms)[:, np.newaxis], _folded(sums, total))


def openblas_avx2(sums: RegisterArithmetic, terms: int) -> Any:
    """OpenBLAS from Haswell and Zen on, kernel/x86_64/sdot_microk_haswell-2.c: four registers of 8."""
    run = terms - terms % 32
    r0, r1, r2, r3 = (_in_halves(sums, sums.chain(places)) for places in _blocks(0, run, 8, 4))
    total = sums.add(sums.add(r0, r1), sums.add(r2, r3))
    return sums.with_double(np.arange(run, terms)[:, np.newaxis], _folded(sums, total))


def _mkl(sums: RegisterArithmetic, terms: int, width: int) -> Any:
    """Four registers; the rest fills two, then one, then a part of one, beside zeros."""
    block = 4 * width
    whole = terms - terms % block
    registers = [sums.chain(places) for places in _blocks(0, whole, width, 4)]
    for count in (2, 1):
        stop = whole + count * width
        if stop <= terms:
            for register, places in enumerate(_blocks(whole, stop, width, count)):
                registers[register] = sums.chain(places, registers[register])
            whole = stop
    if whole < terms:
        registers[0] = sums.chain(np.arange(whole, whole + width)[np.newaxis], registers[0])
    r0, r1, r2, r3 = registers
    return sums.add(sums.add(r0, r1), sums.add(r2, r3))


def mkl_avx512(sums: RegisterArithmetic, terms: int) -> Any:
    """Intel's MKL with AVX-512, as probes show it."""
    return _folded(sums, _mkl(sums, terms, 16))


def mkl_avx2(sums: RegisterArithmetic, terms: int) -> Any:
    """Intel's MKL with AVX2, as probes show it: pairs are added, then halves, then pairs."""
    return _in_pairs(sums, _in_halves(sums, _in_pairs(sums, _mkl(sums, terms, 8))))


def numpy_einsum(sums: RegisterArithmetic, terms: int) -> Any:
    """np.einsum("i,i->") on x86, einsum_sumprod.c.src: buffers of 8192, each in one register of 4 lanes."""
    total = sums.chain(np.arange(0)[:, np.newaxis])
    for start in range(0, terms, BUFFER):
        stop = min(start + BUFFER, terms)
        whole = stop - (stop - start) % 16
        places = np.arange(start, whole).reshape(-1, 4, 4)[:, ::-1].reshape(-1, 4)
        rest = np.arange(whole, stop + -stop % 4).reshape(-1, 4)
        total = sums.add(total, _folded(sums, sums.chain(np.concatenate([places, rest]))))
    return total


def torch_sum(sums: RegisterArithmetic, terms: int) -> Any:
    """PyTorch on x86, ATen/native/cpu/SumKernel.cpp: rows of registers of 8 lanes; scalars left over come first."""
    width = 8 if terms >= 8 else 1
    whole = terms - terms % width
    row, total = _row(sums, np.arange(whole).reshape(-1, width)), sums.chain(np.arange(whole, terms)[:, np.newaxis])
    for lane in range(width):
        total = sums.add(total, row[lane : lane + 1])
    return total


def _row(sums: RegisterArithmetic, places: Places) -> Any:
    """`row_sum`: four registers take turns, the first one what is left over; they are added one after the other."""
    width, whole = places.shape[1], len(places) - len(places) % 4
    first, *others = (_cascade(sums, places[:whole].reshape(-1, 4, width)[:, register]) for register in range(4))
    total = sums.chain(places[whole:], first)
    for register in others:
        total = sums.add(total, register)
    return total


def _cascade(sums: RegisterArithmetic, places: Places) -> Any:
    """`multi_row_sum`: runs of a power of two steps, whose sums go up through levels as in a counter with carries."""
    power = max(4, (len(places) - 1).bit_length() // CASCADES)
    zero, taken = sums.chain(places[:0]), 0
    levels: list[Any] = [zero] * CASCADES
    while taken + 2**power <= len(places):
        run = sums.chain(places[taken : taken + 2**power])
        taken += 2**power
        for level in range(1, CASCADES):
            levels[level], levels[level - 1] = sums.add(levels[level], run), zero
            run = levels[level]
            if taken & ((2**power - 1) << level * power):
                break
    total = sums.chain(places[taken:])
    for level in levels[1:]:
        total = sums.add(total, level)
    return total


#: The orders by name.
ORDERS: dict[str, Order] = {
    "openblas-avx512": openblas_avx512,
    "openblas-avx2": openblas_avx2,
    "mkl-avx512": mkl_avx512,
    "mkl-avx2": mkl_avx2,
    "numpy-einsum": numpy_einsum,
    "torch-sum": torch_sum,
}
