"""The orders in which libraries sum FP32 numbers and products, each written once for numbers and for trees.

A register holds a row of running sums, one a lane. What `sums` makes of it, numbers or nodes of a tree, an order does
not know: registers are arrays whose first axis are the lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class Places(NamedTuple):
    """Which products lanes take, one at every step, in several runs of lanes that lie below one another.

    Lane l of run r takes at step s product `first` + (r * steps + s) * stride + l; those beyond the last one are zeros.
    Of every `turned` steps the last one comes first.
    """

    first: int
    steps: int
    lanes: int
    stride: int
    runs: int = 1
    reversed_steps: int = 1

    def indices(self) -> NDArray[np.int64]:
        """The products, (steps, lanes of all runs)."""
        steps = np.arange(self.steps)
        # Within a group of n steps, step s becomes n - 1 - s: NumPy's unrolled loop begins with the last of four.
        steps += self.reversed_steps - 1 - 2 * (steps % self.reversed_steps)
        runs = np.arange(self.runs)[:, np.newaxis] * self.steps * self.stride + np.arange(self.lanes)
        return self.first + steps[:, np.newaxis] * self.stride + runs.reshape(-1)


class RegisterArithmetic(Protocol):
    """What an order is carried out with."""

    def chain(self, places: Places, start: Any = None) -> Any:
        """A register that takes these products, one after the other, from zero or from another register."""

    def add(self, x: Any, y: Any) -> Any:
        """The sums of two registers, lane by lane."""

    def chain_rounded_products(self, places: Places, x: Any) -> Any:
        """A chain of products that are rounded before they are added, from a register on."""

    def chain_in_double(self, places: Places, x: Any) -> Any:
        """A chain in double precision to which a register of one lane is added."""


#: Numbers of a buffer of NumPy's iterators.
BUFFER = 8192

#: Levels of PyTorch's cascades.
CASCADES = 4

#: The one sum of so many products as a register of one lane.
Order = Callable[[RegisterArithmetic, int], Any]


def _registers(sums: RegisterArithmetic, first: int, stop: int, width: int, count: int) -> list[Any]:
    """Registers that take whole blocks from zero: register r the r-th `width` products of every block."""
    together = sums.chain(Places(first, (stop - first) // (count * width), count * width, count * width))
    return _split_register(together, count)


def _split_register(x: Any, count: int) -> list[Any]:
    """A wide register as several ones."""
    width = len(x) // count
    return [x[part * width : (part + 1) * width] for part in range(count)]


def _continue_registers(sums: RegisterArithmetic, registers: list[Any], first: int, stop: int) -> list[Any]:
    """Registers that go on with whole blocks."""
    width = len(registers[0])
    block = len(registers) * width
    return [
        sums.chain(Places(first + part * width, (stop - first) // block, width, block), register)
        for part, register in enumerate(registers)
    ]


def _add_halves(sums: RegisterArithmetic, x: Any) -> Any:
    """The upper half of a register is added to its lower one."""
    half = len(x) // 2
    return sums.add(x[:half], x[half:])


def _add_pairs(sums: RegisterArithmetic, x: Any) -> Any:
    """Neighbours are added."""
    return sums.add(x[::2], x[1::2])


def _fold_lanes(sums: RegisterArithmetic, x: Any) -> Any:
    """The lanes of a register are added: halves while there are more than four, then pairs."""
    while len(x) > 1:
        x = _add_halves(sums, x) if len(x) > 4 else _add_pairs(sums, x)
    return x


def openblas_avx512(sums: RegisterArithmetic, terms: int) -> Any:
    """OpenBLAS from SkylakeX on, kernel/x86_64/sdot_microk_skylakex-2.c: four registers of 16, folded to 8 for 32."""
    # A round of the wide registers takes 64 products. If 32 are left, the registers are halved and take one round more.
    whole, run = terms - terms % 64, terms - terms % 32
    registers = [_add_halves(sums, register) for register in _registers(sums, 0, whole, 16, 4)]
    total, *others = _continue_registers(sums, registers, whole, run)
    for register in others:
        total = sums.add(total, register)
    return sums.chain_in_double(Places(run, terms - run, 1, 1), _fold_lanes(sums, total))


def openblas_avx2(sums: RegisterArithmetic, terms: int) -> Any:
    """OpenBLAS from Haswell and Zen on, kernel/x86_64/sdot_microk_haswell-2.c: four registers of 8."""
    run = terms - terms % 32
    r0, r1, r2, r3 = (_add_halves(sums, register) for register in _registers(sums, 0, run, 8, 4))
    total = sums.add(sums.add(r0, r1), sums.add(r2, r3))
    return sums.chain_in_double(Places(run, terms - run, 1, 1), _fold_lanes(sums, total))


def _mkl(sums: RegisterArithmetic, terms: int, width: int) -> Any:
    """Four registers; the rest fills two, then one, then a part of one, beside zeros."""
    block = 4 * width
    whole = terms - terms % block
    registers = _registers(sums, 0, whole, width, 4)
    # What is left after whole rounds goes to the first two registers, then to the
    # first one, and at last to a part of that, whose other lanes take zeros.
    for count in (2, 1):
        stop = whole + count * width
        if stop <= terms:
            registers[:count] = _continue_registers(sums, registers[:count], whole, stop)
            whole = stop
    if whole < terms:
        registers[:1] = _continue_registers(sums, registers[:1], whole, whole + width)
    r0, r1, r2, r3 = registers
    return sums.add(sums.add(r0, r1), sums.add(r2, r3))


def mkl_avx512(sums: RegisterArithmetic, terms: int) -> Any:
    """Intel's MKL with AVX-512, as probes show it."""
    return _fold_lanes(sums, _mkl(sums, terms, 16))


def mkl_avx2(sums: RegisterArithmetic, terms: int) -> Any:
    """Intel's MKL with AVX2, as probes show it: pairs are added, then halves, then pairs."""
    return _add_pairs(sums, _add_halves(sums, _add_pairs(sums, _mkl(sums, terms, 8))))


def numpy_einsum(sums: RegisterArithmetic, terms: int) -> Any:
    """np.einsum("i,i->") on x86, einsum_sumprod.c.src: buffers of 8192, each in one register of 4 lanes."""
    # np.einsum reads its operands through an iterator, a buffer at a time: each is a sum, and these are added in turn.
    full = terms // BUFFER
    buffers = sums.chain(Places(0, BUFFER // 4, 4, 4, runs=full, reversed_steps=4))
    totals = _add_pairs(sums, _add_pairs(sums, buffers))
    total = _add_in_turn(sums, totals, 1, 1)
    if full * BUFFER < terms:
        whole = terms - (terms - full * BUFFER) % 16
        start = sums.chain(Places(full * BUFFER, (whole - full * BUFFER) // 4, 4, 4, reversed_steps=4))
        tail = sums.chain(Places(whole, -(-(terms - whole) // 4), 4, 4), start)
        total = sums.add(total, _fold_lanes(sums, tail))
    return total


def torch_sum(sums: RegisterArithmetic, terms: int) -> Any:
    """PyTorch on x86, ATen/native/cpu/SumKernel.cpp: rows of registers of 8 lanes; scalars left over come first."""
    width = 8 if terms >= 8 else 1
    whole = terms - terms % width
    row, total = _sum_row(sums, whole // width, width), sums.chain(Places(whole, terms - whole, 1, 1))
    for lane in range(width):
        total = sums.add(total, row[lane : lane + 1])
    return total


def _sum_row(sums: RegisterArithmetic, count: int, width: int) -> Any:
    """`row_sum`: four registers take turns, the first one what is left over; they are added one after the other."""
    whole = count - count % 4
    first, *others = _split_register(_sum_cascade(sums, whole // 4, 4 * width), 4)
    total = sums.chain(Places(whole * width, count - whole, width, width), first)
    for register in others:
        total = sums.add(total, register)
    return total


def _sum_cascade(sums: RegisterArithmetic, steps: int, width: int) -> Any:
    """`multi_row_sum`: runs of a power of two steps, whose sums go up through levels as in a counter with carries.

    So the sums of as many runs, one after the other, are runs of the next level; what is left at each level is added in
    the end.
    """
    # PyTorch's max(4, CeilLog2(size) / num_levels): the levels share the steps evenly, and none has fewer than sixteen.
    size = 1 << max(4, (steps - 1).bit_length() // CASCADES)
    runs = steps // size
    total = sums.chain(Places(runs * size * width, steps - runs * size, width, width))
    level = sums.chain(Places(0, size, width, width, runs=runs))
    for number in range(1, CASCADES):
        count = len(level) // width
        whole = 0 if number == CASCADES - 1 else count - count % size
        left = _add_in_turn(sums, level[whole * width :], width, 1)
        level = _add_in_turn(sums, level[: whole * width], width, whole // size)
        total = sums.add(total, left)
    return total


def _add_in_turn(sums: RegisterArithmetic, x: Any, width: int, runs: int) -> Any:
    """The sums of registers that lie below one another, in so many runs, each from zero."""
    total = _zeros(sums, runs * width)
    parts = x.reshape(runs, len(x) // max(runs * width, 1), width, *x.shape[1:])
    for part in range(parts.shape[1]):
        total = sums.add(total, parts[:, part].reshape(total.shape))
    return total


def _zeros(sums: RegisterArithmetic, lanes: int) -> Any:
    """A register of nothing."""
    return sums.chain(Places(0, 0, lanes, lanes))


def torch_bfloat16(sums: RegisterArithmetic, terms: int) -> Any:
    """torch.dot of BF16 with AVX2, ATen/native/BlasKernel.cpp, `bf16_dot_with_fp32_arith`: eight registers of 8 lanes,
    whose upper halves are added to the lower ones; one more for sixteens that are left; then products of numbers.
    """
    whole, sixteens = terms - terms % 64, terms - terms % 16
    total = sums.chain(Places(0, whole // 64, 64, 64))
    tail = sums.chain(Places(whole, (sixteens - whole) // 8, 8, 8))
    while len(total) > 1:
        total = _add_halves(sums, total)
    while len(tail) > 1:
        tail = _add_halves(sums, tail)
    return sums.chain_rounded_products(Places(sixteens, terms - sixteens, 1, 1), sums.add(total, tail))


#: The orders by name.
ORDERS: dict[str, Order] = {
    "openblas-avx512": openblas_avx512,
    "openblas-avx2": openblas_avx2,
    "mkl-avx512": mkl_avx512,
    "mkl-avx2": mkl_avx2,
    "numpy-einsum": numpy_einsum,
    "torch-bfloat16": torch_bfloat16,
    "torch-sum": torch_sum,
}
