"""Writing a program: which instruction serves an operation, and where its results are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.arithmetic.target import odd_suffices
from simfloat.formats import FP32, Format, Rounding, nearest_even
from simfloat.kernels import program_table as table

#: Scalars between these magnitudes have products and quotients whose error terms float64 holds.
LEAST, MOST = 2.0**-300, 2.0**300


class NoProgram(Exception):
    """Something that programs have no instruction for: the operations are to be carried out one by one."""


#: What is rounded where it is made, to nearest even, by the way in which its grid rounds.
QUICK_PRODUCTS = {table.NEAREST: (table.NEAREST_PRODUCT, table.NOT), table.SINGLE: (table.SINGLE_PRODUCT, table.NOT)}
QUICK_QUOTIENTS = {table.NEAREST: (table.NEAREST_QUOTIENT, table.NOT), table.SINGLE: (table.SINGLE_QUOTIENT, table.NOT)}
QUICK_ROOTS = {table.NEAREST: (table.NEAREST_ROOT, table.NOT), table.SINGLE: (table.SINGLE_ROOT, table.NOT)}


class Register(NamedTuple):
    """Numbers of a program, one for each element of its vectors: what the instruction of this number gives."""

    number: int
    format: Format | None = None  # of which all its numbers are known to be
    is_single: bool = True  # whether they are float32 numbers
    shape: tuple[int, ...] = ()  # stands for that of any vector


class ProgramGrid(NamedTuple):
    """Where results go: a format, a mode, the name of the stream that it draws from, and how programs round so."""

    format: Format
    rounding: Rounding
    stream: str
    way: int | None  # a number of `HOW`; None where programs do not


class ProgramRow(NamedTuple):
    """An instruction, whose result is the register of its own number."""

    what: int
    a: int  # the number of a register, or of a scalar, an input or an output
    b: int = 0
    how: int = table.NOT
    grid: ProgramGrid | None = None


class Instructions(NamedTuple):
    """What is done, as the loop takes it."""

    rows: NDArray[np.int64]
    registers: int
    grids: NDArray[np.float64]
    signs: NDArray[np.float64]
    draws: tuple[tuple[int, str], ...]  # the instructions that draw, and the names of the streams they draw from


class Program(NamedTuple):
    """What is done with which scalars."""

    instructions: Instructions
    scalars: NDArray[np.float64]


@lru_cache(maxsize=512)
def program_grid(format: Format, rounding: Rounding, stream: str) -> ProgramGrid:
    """The grid of a format and a mode, which draws from the stream of this name."""
    return ProgramGrid(format, rounding, stream, _way_of(format, rounding))


def _way_of(format: Format, rounding: Rounding) -> int | None:
    if not (format.fits_float32 and format.has_nan and odd_suffices(format, rounding)):
        return None
    if format == FP32 and rounding == nearest_even:
        return table.SINGLE
    if not kernels.grid.plain(format, rounding):
        return table.GENERAL
    if rounding.is_stochastic:
        return table.STOCHASTIC
    return {"nearest_even": table.NEAREST, "to_odd": table.TO_ODD}.get(rounding.mode, table.DIRECTED)


class ProgramWriter:
    """The operations of a program, in their order."""

    def __init__(self) -> None:
        self._written: list[ProgramRow] = []
        self._scalars: list[float] = []
        self._inputs = 0

    def input(self, format: Format | None = None) -> Register:
        """The next vector that is read, whose numbers are known to be of a format, or not."""
        if self._inputs == table.INPUTS:
            raise NoProgram
        self._inputs += 1
        return self._register(ProgramRow(table.LOAD, self._inputs - 1), format)

    def apply(self, operation: str, operands: Sequence[Register | float], grid: ProgramGrid) -> Register:
        """An operation, rounded once."""
        if grid.way is None or operation not in _OPERATIONS:
            raise NoProgram
        return _OPERATIONS[operation](self, grid.way, grid, *operands)

    def rounded(self, x: Register | float, grid: ProgramGrid) -> Register:
        """Numbers themselves, rounded."""
        return self.apply("multiply", (x, 1.0), grid)

    def moved(self, what: int, a: Register, b: Register | None = None) -> Register:
        """What rounds nothing: numbers negated, their signs, or the larger ones of two registers."""
        keeps_format = what != table.SIGN and (b is None or a.format == b.format)
        return self._register(
            ProgramRow(what, a.number, 0 if b is None else b.number), a.format if keeps_format else None
        )

    def fill(self, x: float) -> Register:
        """A number for all elements."""
        return self._register(ProgramRow(table.FILL, self._scalar(x)), None, is_single=float(np.float32(x)) == x)

    def _add(self, way: int, grid: ProgramGrid, a: Register | float, b: Register | float) -> Register:
        a, b = self._scalar_last(a, b)
        if not isinstance(b, Register):
            return self._of(table.SUM_WITH_SCALAR, a.number, self._scalar(b), way, grid)
        if way == table.SINGLE and a.is_single and b.is_single:
            return self._of(table.SINGLE_SUM, a.number, b.number, table.NOT, grid)
        if way == table.NEAREST and a.format == b.format == grid.format:
            return self._of(table.NEAREST_SUM, a.number, b.number, table.NOT, grid)
        return self._of(table.SUM, a.number, b.number, way, grid)

    def _subtract(self, way: int, grid: ProgramGrid, a: Register | float, b: Register | float) -> Register:
        return self._add(way, grid, a, self.moved(table.NEGATE, b) if isinstance(b, Register) else -b)

    def _multiply(self, way: int, grid: ProgramGrid, a: Register | float, b: Register | float) -> Register:
        a, b = self._scalar_last(a, b)
        if not isinstance(b, Register):
            if way == table.NEAREST:
                return self._of(table.NEAREST_PRODUCT_WITH_SCALAR, a.number, self._scalar(b), table.NOT, grid)
            return self._of(table.PRODUCT_WITH_SCALAR, a.number, self._scalar(b), way, grid)
        if not (a.is_single and b.is_single):
            raise NoProgram
        what, how = QUICK_PRODUCTS.get(way, (table.PRODUCT, way))
        return self._of(what, a.number, b.number, how, grid)

    def _divide(self, way: int, grid: ProgramGrid, a: Register | float, b: Register | float) -> Register:
        a = a if isinstance(a, Register) else self.fill(a)
        if not isinstance(b, Register):
            return self._of(table.QUOTIENT_BY_SCALAR, a.number, self._scalar(b), way, grid)
        what, how = table.QUOTIENT, way
        if a.is_single and b.is_single:
            what, how = QUICK_QUOTIENTS.get(way, (what, how))
        return self._of(what, a.number, b.number, how, grid)

    def _root(self, way: int, grid: ProgramGrid, x: Register | float) -> Register:
        x = x if isinstance(x, Register) else self.fill(x)
        what, how = QUICK_ROOTS.get(way, (table.ROOT, way)) if x.is_single else (table.ROOT, way)
        return self._of(what, x.number, 0, how, grid)

    def _scalar_last(self, a: Register | float, b: Register | float) -> tuple[Register, Register | float]:
        """The operands of a sum or a product, of which at most the second is a scalar."""
        if isinstance(a, Register):
            return a, b
        return (b, a) if isinstance(b, Register) else (self.fill(a), b)

    def _scalar(self, x: float) -> int:
        """The number of a scalar."""
        if x and not LEAST <= abs(x) <= MOST:  # NaN too
            raise NoProgram
        self._scalars.append(x)
        return len(self._scalars) - 1

    def _of(self, what: int, a: int, b: int, how: int, grid: ProgramGrid) -> Register:
        """The result of an operation, rounded by a grid."""
        return self._register(ProgramRow(what, a, b, how, grid), grid.format)

    def _register(self, written: ProgramRow, format: Format | None, is_single: bool = True) -> Register:
        """The result of the next instruction."""
        self._written.append(written)
        return Register(len(self._written) - 1, format, is_single)

    def program(self, outputs: Sequence[Register]) -> Program:
        """The program that writes these registers to its outputs, in their order."""
        if len(outputs) > table.OUTPUTS:
            raise NoProgram
        stored = [ProgramRow(table.STORE, x.number, number) for number, x in enumerate(outputs)]
        return Program(instructions_of((*self._written, *stored)), np.array(self._scalars or [0.0]))


#: The operations, by the names of `catalog`.
_OPERATIONS: dict[str, Callable[..., Register]] = {
    "add": ProgramWriter._add,
    "subtract": ProgramWriter._subtract,
    "multiply": ProgramWriter._multiply,
    "divide": ProgramWriter._divide,
    "sqrt": ProgramWriter._root,
}


#: Which of the operands a and b are registers, of instructions where not both are.
OPERANDS = {
    **dict.fromkeys((table.LOAD, table.FILL), (False, False)),
    **dict.fromkeys((table.STORE, table.NEGATE, table.SIGN, table.SUM_WITH_SCALAR), (True, False)),
    **dict.fromkeys((table.PRODUCT_WITH_SCALAR, table.QUOTIENT_BY_SCALAR, table.ROOT), (True, False)),
    **dict.fromkeys((table.NEAREST_PRODUCT_WITH_SCALAR, table.NEAREST_ROOT, table.SINGLE_ROOT), (True, False)),
}


@lru_cache(maxsize=256)
def instructions_of(written: tuple[ProgramRow, ...]) -> Instructions:
    """The instructions as the loop takes them."""
    places, count = _places(written)
    grids = list(dict.fromkeys(each.grid for each in written if each.grid is not None))
    rows = []
    for number, (what, a, b, how, grid) in enumerate(written):
        of_a, of_b = OPERANDS.get(what, (True, True))
        row = 0 if grid is None else grids.index(grid)
        rows.append((what, places[number], places[a] if of_a else a, places[b] if of_b else b, how, row))
    return Instructions(
        np.array(rows, np.int64),
        count,
        np.array([kernels.grid.numbers(grid.format, grid.rounding) for grid in grids]),
        np.array([grid.rounding.zero_sum for grid in grids]),
        tuple(
            (n, x.grid.stream) for n, x in enumerate(written) if x.grid is not None and x.grid.rounding.is_stochastic
        ),
    )


def _places(written: tuple[ProgramRow, ...]) -> tuple[list[int], int]:
    """The place of every instruction's result, and how many places there are: one is free again after its last use."""
    read = [
        [
            x
            for x, is_register in zip((each.a, each.b), OPERANDS.get(each.what, (True, True)), strict=True)
            if is_register
        ]
        for each in written
    ]
    last = {x: number for number, operands in enumerate(read) for x in (*operands, number)}
    places: list[int] = []
    free: list[int] = []
    count = 0
    for number, operands in enumerate(read):
        if not free:
            free.append(count)
            count += 1
        # Not a place that an operand has: see `kernels/programs.py`.
        places.append(free.pop())
        free += [places[x] for x in dict.fromkeys((*operands, number)) if last[x] == number]
    return places, count
