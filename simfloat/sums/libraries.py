"""Sums of FP32 products in the orders of libraries, which use vector registers.

Each order is written once, for numbers and for trees. A register contains partial sums, one per lane. An order does not
depend on the kind of `sums` that it is given, numbers or nodes of a tree: a register is an array with the lanes as its
first axis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import CPU
from simfloat.arithmetic.operands import FloatType
from simfloat.formats import FP32, FP64, Format
from simfloat.sums.accumulator import Accumulator, Engine, Region, takes_stacks
from simfloat.sums.bounds import Bounds, format_bounds
from simfloat.sums.one_format import FEW_RESULTS, are_ones
from simfloat.sums.operands import OperandBounds, Problem
from simfloat.sums.sequential import sequential


class Places(NamedTuple):
    """The products that lanes take, one per step, in several runs of lanes that are stacked.

    Lane l of run r takes product `first` + (r * steps + s) * stride + l at step s; products beyond the last one are
    zeros. In every group of `reversed_steps` steps the order is reversed.
    """

    first: int
    steps: int
    lanes: int
    stride: int
    runs: int = 1
    reversed_steps: int = 1

    def indices(self) -> NDArray[np.int64]:
        """Return the indices of the products, (steps, lanes of all runs)."""
        steps = np.arange(self.steps)
        # Within a group of n steps, step s becomes n - 1 - s: NumPy's unrolled loop begins with the last of four.
        steps += self.reversed_steps - 1 - 2 * (steps % self.reversed_steps)
        runs = np.arange(self.runs)[:, np.newaxis] * self.steps * self.stride + np.arange(self.lanes)
        return self.first + steps[:, np.newaxis] * self.stride + runs.reshape(-1)


class RegisterArithmetic(Protocol):
    """The operations of which an order consists."""

    def chain(self, places: Places, start: Any = None) -> Any:
        """Return a register that adds these products one after the other, to zero or to another register."""

    def add(self, x: Any, y: Any) -> Any:
        """Return the sums of two registers, lane by lane."""

    def chain_rounded_products(self, places: Places, x: Any) -> Any:
        """Return a register that adds these products one after the other to another register, rounded before the
        addition."""

    def chain_in_double(self, places: Places, x: Any) -> Any:
        """Return the sum of these products in double precision, plus a register of one lane."""


#: Values in a buffer of NumPy's iterators.
BUFFER = 8192

#: Levels of PyTorch's cascades.
CASCADES = 4

#: A function that returns the sum of this number of products as a register of one lane.
Order = Callable[[RegisterArithmetic, int], Any]


def _registers(sums: RegisterArithmetic, first: int, stop: int, width: int, count: int) -> list[Any]:
    """Return registers that sum complete blocks from zero: register r takes the r-th `width` products of every
    block."""
    together = sums.chain(Places(first, (stop - first) // (count * width), count * width, count * width))
    return _split_register(together, count)


def _split_register(x: Any, count: int) -> list[Any]:
    """Split a wide register into `count` registers."""
    width = len(x) // count
    return [x[part * width : (part + 1) * width] for part in range(count)]


def _continue_registers(sums: RegisterArithmetic, registers: list[Any], first: int, stop: int) -> list[Any]:
    """Add the products of further complete blocks to registers."""
    width = len(registers[0])
    block = len(registers) * width
    return [
        sums.chain(Places(first + part * width, (stop - first) // block, width, block), register)
        for part, register in enumerate(registers)
    ]


def _add_halves(sums: RegisterArithmetic, x: Any) -> Any:
    """Add the upper half of a register to its lower half."""
    half = len(x) // 2
    return sums.add(x[:half], x[half:])


def _add_pairs(sums: RegisterArithmetic, x: Any) -> Any:
    """Add neighbouring lanes."""
    return sums.add(x[::2], x[1::2])


def _fold_lanes(sums: RegisterArithmetic, x: Any) -> Any:
    """Add the lanes of a register: halves while there are more than four, then pairs."""
    while len(x) > 1:
        x = _add_halves(sums, x) if len(x) > 4 else _add_pairs(sums, x)
    return x


def openblas_avx512(sums: RegisterArithmetic, terms: int) -> Any:
    """Sum like OpenBLAS for SkylakeX and later: four registers of 16 lanes, folded to 8 for 32 products.

    Source: kernel/x86_64/sdot_microk_skylakex-2.c.
    """
    # A round of the wide registers takes 64 products. If 32 products remain, the registers are halved for one more
    # round.
    whole, run = terms - terms % 64, terms - terms % 32
    registers = [_add_halves(sums, register) for register in _registers(sums, 0, whole, 16, 4)]
    total, *others = _continue_registers(sums, registers, whole, run)
    for register in others:
        total = sums.add(total, register)
    return sums.chain_in_double(Places(run, terms - run, 1, 1), _fold_lanes(sums, total))


def openblas_avx2(sums: RegisterArithmetic, terms: int) -> Any:
    """Sum like OpenBLAS for Haswell, Zen and later, with four registers of 8 lanes.

    Source: kernel/x86_64/sdot_microk_haswell-2.c.
    """
    run = terms - terms % 32
    r0, r1, r2, r3 = (_add_halves(sums, register) for register in _registers(sums, 0, run, 8, 4))
    total = sums.add(sums.add(r0, r1), sums.add(r2, r3))
    return sums.chain_in_double(Places(run, terms - run, 1, 1), _fold_lanes(sums, total))


def _mkl(sums: RegisterArithmetic, terms: int, width: int) -> Any:
    """Return one register, summed with four; the rest is added to two of them, then to one, then to a part of one."""
    block = 4 * width
    whole = terms - terms % block
    registers = _registers(sums, 0, whole, width, 4)
    # The remaining products after complete rounds go to the first two registers, then to the first one, and then to a
    # part of that one, while its other lanes add zeros.
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
    """Sum like Intel's MKL with AVX-512, as probes show."""
    return _fold_lanes(sums, _mkl(sums, terms, 16))


def mkl_avx2(sums: RegisterArithmetic, terms: int) -> Any:
    """Sum like Intel's MKL with AVX2, as probes show: pairs are added, then halves, then pairs."""
    return _add_pairs(sums, _add_halves(sums, _add_pairs(sums, _mkl(sums, terms, 8))))


def numpy_einsum(sums: RegisterArithmetic, terms: int) -> Any:
    """Sum like np.einsum("i,i->") on x86 (einsum_sumprod.c.src): buffers of 8192, each in one register of 4 lanes."""
    # np.einsum reads its operands through an iterator, one buffer at a time: each is summed, and the sums are added in
    # turn.
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
    """Sum like PyTorch on x86, in rows of registers of 8 lanes; remaining scalars are added first.

    Source: ATen/native/cpu/SumKernel.cpp.
    """
    width = 8 if terms >= 8 else 1
    whole = terms - terms % width
    row, total = _sum_row(sums, whole // width, width), sums.chain(Places(whole, terms - whole, 1, 1))
    for lane in range(width):
        total = sums.add(total, row[lane : lane + 1])
    return total


def _sum_row(sums: RegisterArithmetic, count: int, width: int) -> Any:
    """Sum like `row_sum`: four registers take turns, the first one takes the rest; they are added one after the
    other."""
    whole = count - count % 4
    first, *others = _split_register(_sum_cascade(sums, whole // 4, 4 * width), 4)
    total = sums.chain(Places(whole * width, count - whole, width, width), first)
    for register in others:
        total = sums.add(total, register)
    return total


def _sum_cascade(sums: RegisterArithmetic, steps: int, width: int) -> Any:
    """Sum like `multi_row_sum`: runs of a power of two steps, with sums that are carried up as in a counter.

    A complete run of sums at one level becomes one sum of the next level. The remaining sums of each level are added at
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
    """Sum stacked registers one after the other, in `runs` groups, each from zero."""
    total = _zeros(sums, runs * width)
    parts = x.reshape(runs, len(x) // max(runs * width, 1), width, *x.shape[1:])
    for part in range(parts.shape[1]):
        total = sums.add(total, parts[:, part].reshape(total.shape))
    return total


def _zeros(sums: RegisterArithmetic, lanes: int) -> Any:
    """Return a register of zeros."""
    return sums.chain(Places(0, 0, lanes, lanes))


def torch_bfloat16(sums: RegisterArithmetic, terms: int) -> Any:
    """Sum like torch.dot of BF16 with AVX2: eight registers of 8 lanes; their upper halves are added to the lower ones.

    Another register takes remaining groups of sixteen. The last products are added one by one. Source:
    `bf16_dot_with_fp32_arith` in ATen/native/BlasKernel.cpp.
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


#: The orders in which products are rounded before they are added.
UNFUSED = ("numpy-einsum", "torch-sum")

#: The number of products at which a sum is long. A few such sums have a separate loop, which reads both vectors in
#: place. For other sums the factors of all lanes are copied side by side.
LEAST_LONG_SUM = 1 << 8

#: The number of float32 partial sums that are stored at once, some megabytes.
REGISTER_SUMS_AT_ONCE = 1 << 20


def library_sum(name: str) -> LibrarySum:
    """Sum FP32 products on vector registers, in the order of a library.

    Vectors of any length are accepted. `name` is one of:

    =================  ======================================================================================
    `openblas-avx512`  np.dot with OpenBLAS for SkylakeX and later: four registers of 16 lanes, which are folded to 8
                       lanes for 32 more products, and are then added one after the other
    `openblas-avx2`    the same for Haswell, Zen and later, with four registers of 8 lanes
    `mkl-avx512`       torch.dot with Intel's MKL: four registers of 16 lanes; the first ones take the remaining
                       products, and then the registers are added as a tree
    `mkl-avx2`         the same with registers of 8 lanes
    `numpy-einsum`     np.einsum("i,i->", a, b) on x86: one register of 4 lanes, four steps at a time in reversed order
    `torch-sum`        torch.sum of contiguous values on x86: four registers of 8 lanes, in cascades of 16 steps
    `torch-bfloat16`   torch.dot of BF16 values with AVX2, before its result is rounded to BF16: eight registers of 8
                       lanes and another one for a remaining group of 16 products, which are folded by halves; then the
                       last products are added one by one
    =================  ======================================================================================

    A lane is a chain of fused multiply-adds in FP32. In `numpy-einsum` and `torch-sum` products are rounded to FP32
    first, and so are the last products of `torch-bfloat16` that do not fill a group of 16. OpenBLAS rounds the products
    after the last complete 32 to FP32, adds them in FP64, adds the sum of all others, and rounds to FP32 at the end.

    The orders apply to contiguous vectors of a length that one thread sums: up to 10,000 products for OpenBLAS, and
    32,768 values for PyTorch. For np.sum there is :func:`simfloat.numpy_sum`, in any format.

    Parameters:
        name: a name from the first column.

    Returns:
        The accumulator.

    Raises:
        ValueError: if the name is unknown.
        ValueError: when it is used, if operands are not FP32 numbers.

    Source: OpenBLAS 0.3.31 (kernel/x86_64/sdot.c), MKL 2024.2, NumPy 2.4 (einsum_sumprod.c.src) and PyTorch 2.13
    (ATen/native/cpu/SumKernel.cpp). :func:`simfloat.reveal` shows which order a computer uses.

    Examples:
        >>> a = np.random.default_rng(0).standard_normal((2, 100)).astype(np.float32)
        >>> sf.dot(*a, accumulate=sf.library_sum("numpy-einsum")), sf.dot(*a, accumulate=sf.FP32)
        (array(4.688886, dtype=float32), array(4.688887, dtype=float32))
    """
    if not isinstance(name, str) or name not in ORDERS:
        raise ValueError(f"A library's order is one of {', '.join(ORDERS)}; got {name!r}.")
    return LibrarySum(name)


@dataclass(frozen=True, repr=False)
class LibrarySum(Accumulator):
    """See :func:`library_sum`."""

    name: str

    __hash__ = Accumulator.__hash__
    maker: ClassVar[str] = "library_sum"
    result: ClassVar[Format] = FP32
    needs_narrow_operands: ClassVar[bool] = True

    def sums(self, products: Bounds, terms: int) -> Bounds:
        """Return the bounds of FP32."""
        return format_bounds(FP32)

    def engine_for_all(self, a: Format, b: Format) -> Engine | None:
        """Return the engine for all numbers of formats that FP32 can represent; None for wider formats."""
        # FP16, BF16 and FP8 operands are FP32 numbers, and their products are summed by the same instructions.
        if not (format_bounds(a).are_in_format(FP32) and format_bounds(b).are_in_format(FP32)):
            return None
        any_number = OperandBounds(format_bounds(FP32), FP32, True)
        return self.engine(Problem(any_number, any_number, LEAST_LONG_SUM, FP32))

    def engine(self, problem: Problem) -> Engine:
        """Return an engine with the chains of lanes and the order in which lanes are added."""
        for operand in (problem.a, problem.b):
            if not (operand.is_float32 or operand.format == FP32 or operand.bounds.are_in_format(FP32)):
                raise _refusal(self, operand)
        unfused, wide = (sequential(format, products=FP32).engine(problem) for format in (FP32, FP64))
        chain = unfused if self.name in UNFUSED else sequential(FP32).engine(problem)
        return RegistersEngine(self.name, chain, unfused, wide)


def _refusal(accumulator: LibrarySum, operand: OperandBounds) -> ValueError:
    return ValueError(
        f"{accumulator} takes FP32 operands; these have up to {operand.bounds.precision} bits and reach from "
        f"2^{operand.bounds.low} to 2^{operand.bounds.high}. Pass inputs=sf.FP32 to round them."
    )


class RegistersEngine(NamedTuple):
    """Sums in the order of a library, on registers."""

    name: str
    chain: Engine
    unfused: Engine
    wide: Engine
    takes_ones: bool = True
    carrier: FloatType = np.float32
    cost: float = 0.2

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        if out.size <= FEW_RESULTS and len(b) >= LEAST_LONG_SUM and region.machine is CPU:
            for i in range(out.shape[0]):
                for j in range(out.shape[1]):
                    out[i, j] = ORDERS[self.name](_long_sums(self.name, a[i], b[:, j]), len(b))[0]
            return
        if region.machine is CPU:
            a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
        # An order uses at most 64 lanes at once: four registers of 16, or eight of 8.
        rows = max(1, REGISTER_SUMS_AT_ONCE // (64 * max(out.shape[1], 1)))
        for top in range(0, len(a), rows):
            sums = RegisterSums(self, a[top : top + rows], b, region)
            out[top : top + rows] = ORDERS[self.name](sums, b.shape[0])[0]


class RegisterSums(NamedTuple):
    """The arithmetic of an order on numbers: a register is an array (lanes, rows, columns)."""

    engine: RegistersEngine
    a: NDArray
    b: NDArray
    region: Region

    def chain(self, places: Places, start: NDArray | None = None) -> NDArray:
        """Return each lane's chain of products, added to `start`."""
        if start is None:
            lanes = places.runs * places.lanes
            start = np.zeros((lanes, len(self.a), self.b.shape[1]), np.float32, like=self.b)
        return self._sum_lanes(self.engine.chain, places, start)

    def add(self, x: NDArray, y: NDArray) -> NDArray:
        """Return the sum in FP32."""
        with np.errstate(all="ignore"):
            return x + y

    def chain_rounded_products(self, places: Places, x: NDArray) -> NDArray:
        """Return each lane's chain of products that are rounded to FP32 before they are added."""
        return self._sum_lanes(self.engine.unfused, places, x)

    def chain_in_double(self, places: Places, x: NDArray) -> NDArray:
        """Return the sum of the products in FP64, plus the register, rounded once to FP32."""
        zero = np.zeros(x.shape, np.float64, like=x)
        tail = self._sum_lanes(self.engine.wide, places, zero)
        with np.errstate(all="ignore"):
            return (tail + x).astype(np.float32)

    def _sum_lanes(self, engine: Engine, places: Places, start: NDArray) -> NDArray:
        """Add the products of each lane to the values in `start`."""
        indices = places.indices()
        if not indices.size:
            return start
        lanes, (m, n) = indices.shape[1], start.shape[1:]
        # Products beyond the last one are zeros. They change nothing: a chain starts from +0 and is never -0, since to
        # nearest even only the sum of -0 and -0 is -0.
        short = max(int(indices.max()) + 1 - self.b.shape[0], 0)
        here = np.array(indices.tolist(), np.int64, like=self.b)
        a, b = np.pad(self.a, ((0, 0), (0, short))), np.pad(self.b, ((0, short), (0, 0)))
        left = np.array(a[:, here].transpose(2, 0, 1), engine.carrier, order="C", like=a)
        right = np.array(b[here].swapaxes(0, 1), engine.carrier, order="C", like=b)
        sums = np.array(start, engine.carrier, order="C", like=start)
        if takes_stacks(engine):  # takes all lanes in one stack
            engine.run(left.reshape(lanes * m, -1), right.reshape(-1, n), sums.reshape(lanes * m, n), self.region)
        else:
            for lane in range(lanes):
                engine.run(left[lane], right[lane], sums[lane], self.region)
        return sums


class LongSums(NamedTuple):
    """The arithmetic of an order on a long row times a column, by a separate loop: a register is an array (lanes,)."""

    x: NDArray[np.float32]
    y: NDArray[np.float32]
    kind: str  # the steps of a lane: "fused", "unfused", or "ones" for factors of one

    def chain(self, places: Places, start: NDArray | None = None) -> NDArray:
        """Return each lane's chain of products, added to `start`."""
        return self._sum_lanes(self.kind, places, start)

    def add(self, x: NDArray, y: NDArray) -> NDArray:
        """Return the sum in FP32."""
        with np.errstate(all="ignore"):
            return x + y

    def chain_rounded_products(self, places: Places, x: NDArray) -> NDArray:
        """Return each lane's chain of products that are rounded to FP32 before they are added."""
        return self._sum_lanes("ones" if self.kind == "ones" else "unfused", places, x)

    def chain_in_double(self, places: Places, x: NDArray) -> NDArray:
        """Return the sum of the products in FP64, plus the register, rounded once to FP32."""
        tail, total = slice(places.first, places.first + places.steps), np.zeros(1)
        with np.errstate(all="ignore"):
            products = self.x[tail] if self.kind == "ones" else self.x[tail] * self.y[tail]
            for product in products.astype(np.float64):
                total += product
            return (total + x).astype(np.float32)

    def _sum_lanes(self, kind: str, places: Places, start: NDArray | None) -> NDArray:
        shape = places.runs, places.lanes
        sums = np.zeros(shape, np.float32) if start is None else start.reshape(shape).copy()
        loop = CPU.loops.long_orders.chains[kind]
        loop(self.x, self.y, sums, places.first, places.steps, places.stride, places.reversed_steps)
        return sums.reshape(-1)


def _long_sums(name: str, x: NDArray, y: NDArray) -> LongSums:
    """Return the arithmetic for a row and a column."""
    if x.strides == (0,):  # in a transposed product, ones may be the left factors
        x, y = y, x
    x = np.ascontiguousarray(x)
    if are_ones(y):
        return LongSums(x, x, "ones")
    return LongSums(x, np.ascontiguousarray(y), "unfused" if name in UNFUSED else "fused")
