"""Sums of FP32 numbers and products as libraries make them on vector registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate._sequential import sequential
from simfloat.accumulate.accumulator import Accumulator
from simfloat.accumulate.bounds import Bounds, format_bounds
from simfloat.accumulate.engine import Engine, Region, takes_stacks
from simfloat.accumulate.library_orders import ORDERS, Places
from simfloat.accumulate.long_pairwise import FEW_RESULTS, are_ones
from simfloat.accumulate.operand_bounds import OperandBounds, Problem
from simfloat.arithmetic.machines import CPU
from simfloat.arithmetic.operands import FloatType
from simfloat.formats import FP32, FP64, Format

#: The orders whose products are rounded before they are added.
UNFUSED = ("numpy-einsum", "torch-sum")

#: Products of a sum from which on it is long: few such sums have a loop of their own, which reads both vectors where
#: they lie. For other sums the factors of all lanes are written out side by side.
LEAST_LONG_SUM = 1 << 8

#: Float32 numbers of running sums that are kept at once, some megabytes.
REGISTER_SUMS_AT_ONCE = 1 << 20


def library_sum(name: str) -> LibrarySum:
    """Products of FP32 vectors of any length, summed on vector registers in the order of a library.

    =================  ======================================================================================
    `openblas-avx512`  np.dot with OpenBLAS from SkylakeX on: four registers of 16 lanes, which are folded to
                       8 lanes for 32 products more; then the registers are added one after the other
    `openblas-avx2`    the same from Haswell and Zen on: four registers of 8 lanes
    `mkl-avx512`       torch.dot with Intel's MKL: four registers of 16 lanes, of which the first ones take
                       what is left; then the registers are added as a tree
    `mkl-avx2`         the same with registers of 8 lanes
    `numpy-einsum`     np.einsum("i,i->", a, b) on x86: one register of 4 lanes, four at a time in reversed order
    `torch-sum`        torch.sum of contiguous numbers on x86: four registers of 8 lanes, in cascades of 16 steps
    `torch-bfloat16`   torch.dot of BF16 numbers with AVX2, before its result is rounded to BF16: eight registers of 8
                       lanes, another for 16 products that are left, which are folded by halves; then what is left
    =================  ======================================================================================

    A lane is a chain of fused multiply-adds in FP32; in `numpy-einsum` and `torch-sum` products are rounded to FP32
    first, and so are those that `torch-bfloat16` has left over from 16. OpenBLAS rounds products beyond the last 32 to
    FP32, adds them in FP64, adds the sum of all others, and rounds to FP32 at last. Vectors are contiguous, and no
    longer than one thread takes: 10 000 products of OpenBLAS, 32 768 numbers of PyTorch. np.sum has an accumulator of
    its own, :func:`simfloat.numpy_sum`, in any format.

    Orders are those of OpenBLAS 0.3.31 (kernel/x86_64/sdot.c), MKL 2024.2, NumPy 2.4 (einsum_sumprod.c.src) and
    PyTorch 2.13 (ATen/native/cpu/SumKernel.cpp); :func:`simfloat.reveal` shows which one a machine has.

    Raises ValueError for another name, and for operands that are no FP32 numbers.

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
        """Numbers of FP32."""
        return format_bounds(FP32)

    def engine_for_all(self, a: Format, b: Format) -> Engine | None:
        """The engine for all numbers of formats that FP32 holds; None for wider formats."""
        # FP16, BF16 and FP8 operands are FP32 numbers, and their products are summed by the same instructions.
        if not (format_bounds(a).are_in_format(FP32) and format_bounds(b).are_in_format(FP32)):
            return None
        any_number = OperandBounds(format_bounds(FP32), FP32, True)
        return self.engine(Problem(any_number, any_number, LEAST_LONG_SUM, FP32))

    def engine(self, problem: Problem) -> Engine:
        """The chains of lanes, and how lanes are added."""
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
    """Sums on registers."""

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
        # No order has more than 64 lanes at once: four registers of 16, or eight of 8.
        rows = max(1, REGISTER_SUMS_AT_ONCE // (64 * max(out.shape[1], 1)))
        for top in range(0, len(a), rows):
            sums = RegisterSums(self, a[top : top + rows], b, region)
            out[top : top + rows] = ORDERS[self.name](sums, b.shape[0])[0]


class RegisterSums(NamedTuple):
    """An order's sums as numbers: registers are arrays (lanes, rows, columns)."""

    engine: RegistersEngine
    a: NDArray
    b: NDArray
    region: Region

    def chain(self, places: Places, start: NDArray | None = None) -> NDArray:
        """Every lane's products from where it starts."""
        if start is None:
            lanes = places.runs * places.lanes
            start = np.zeros((lanes, len(self.a), self.b.shape[1]), np.float32, like=self.b)
        return self._sum_lanes(self.engine.chain, places, start)

    def add(self, x: NDArray, y: NDArray) -> NDArray:
        """FP32's own addition."""
        with np.errstate(all="ignore"):
            return x + y

    def chain_rounded_products(self, places: Places, x: NDArray) -> NDArray:
        """Every lane's chain of products that are rounded to FP32 before they are added."""
        return self._sum_lanes(self.engine.unfused, places, x)

    def chain_in_double(self, places: Places, x: NDArray) -> NDArray:
        """The products in FP64, then the register, then one rounding to FP32."""
        zero = np.zeros(x.shape, np.float64, like=x)
        tail = self._sum_lanes(self.engine.wide, places, zero)
        with np.errstate(all="ignore"):
            return (tail + x).astype(np.float32)

    def _sum_lanes(self, engine: Engine, places: Places, start: NDArray) -> NDArray:
        """The sums of each lane's products, from what the lanes hold."""
        indices = places.indices()
        if not indices.size:
            return start
        lanes, (m, n) = indices.shape[1], start.shape[1:]
        # Places beyond the last product are zeros. They change nothing: a chain starts from
        # +0 and is never -0, since to nearest even only -0 and -0 make -0.
        short = max(int(indices.max()) + 1 - self.b.shape[0], 0)
        here = np.array(indices.tolist(), np.int64, like=self.b)
        a, b = np.pad(self.a, ((0, 0), (0, short))), np.pad(self.b, ((0, short), (0, 0)))
        left = np.array(a[:, here].transpose(2, 0, 1), engine.carrier, order="C", like=a)
        right = np.array(b[here].swapaxes(0, 1), engine.carrier, order="C", like=b)
        sums = np.array(start, engine.carrier, order="C", like=start)
        if takes_stacks(engine):  # takes all lanes below one another
            engine.run(left.reshape(lanes * m, -1), right.reshape(-1, n), sums.reshape(lanes * m, n), self.region)
        else:
            for lane in range(lanes):
                engine.run(left[lane], right[lane], sums[lane], self.region)
        return sums


class LongSums(NamedTuple):
    """An order's sum of a row times a column of many products, by a loop of its own: registers are arrays (lanes,)."""

    x: NDArray[np.float32]
    y: NDArray[np.float32]
    kind: str  # of a lane's steps: "fused", "unfused", or of "ones" as factors

    def chain(self, places: Places, start: NDArray | None = None) -> NDArray:
        """Every lane's products from where it starts."""
        return self._sum_lanes(self.kind, places, start)

    def add(self, x: NDArray, y: NDArray) -> NDArray:
        """FP32's own addition."""
        with np.errstate(all="ignore"):
            return x + y

    def chain_rounded_products(self, places: Places, x: NDArray) -> NDArray:
        """Every lane's chain of products that are rounded to FP32 before they are added."""
        return self._sum_lanes("ones" if self.kind == "ones" else "unfused", places, x)

    def chain_in_double(self, places: Places, x: NDArray) -> NDArray:
        """The products in FP64, then the register, then one rounding to FP32."""
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
    """The sum of a row and a column."""
    if x.strides == (0,):  # ones may be the left factors: those of a transposed product
        x, y = y, x
    x = np.ascontiguousarray(x)
    if are_ones(y):
        return LongSums(x, x, "ones")
    return LongSums(x, np.ascontiguousarray(y), "unfused" if name in UNFUSED else "fused")
