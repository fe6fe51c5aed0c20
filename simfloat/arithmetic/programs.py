"""Programs: rounded operations on vectors that are written down first, and carried out in one go.

Each operation is rounded once, as `compute` rounds it, and draws the same random bits; what is saved are passes over
memory and calls. A program serves all vectors to which the same is done.

**Traced numbers** write down how they are made, so that the same is made of others. What a function does with numbers
is traced by giving it a `TracedNumber` for each, and repeated by `NumberTrace.again`. What it asks of numbers, such as
whether one is zero, is noted with the answer; where another number has another answer, the trace does not hold. A
traced number refuses with TypeError what would leave no trace, as math.sqrt of it.

**The writer** chooses which instruction serves an operation, and where its results are kept.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.arithmetic.bit_stream import Draw
from simfloat.arithmetic.machines import CPU
from simfloat.arithmetic.plan import COUNTING, DRAWING, element_ranges
from simfloat.arithmetic.target import odd_suffices
from simfloat.arithmetic.threads import LEAST_WORK, run_all
from simfloat.formats import FP32, Format, Rounding, nearest_even
from simfloat.kernels import program_table as table
from simfloat.kernels.program_table import INPUTS, OUTPUTS
from simfloat.kernels.rounding.events import SIZE

#: How a number is made: its place among all, a function of two numbers, and their places.
TraceStep = tuple[int, Callable[[Any, Any], Any], int, int]


class NumberTrace:
    """What is done with numbers of which so many are given."""

    def __init__(self, inputs: Sequence[float]) -> None:
        self._numbers: list[Any] = list(inputs)
        self._count = len(inputs)
        self._steps: list[TraceStep] = []
        self._answers: list[tuple[int, Any]] = []

    @property
    def traced_inputs(self) -> list[TracedNumber]:
        """The numbers that were given."""
        return [TracedNumber(self, place) for place in range(self._count)]

    def place_of(self, x: Any) -> int:
        """The place of a traced number, or of one that is the same always."""
        if isinstance(x, TracedNumber):
            return x.place
        self._numbers.append(x)
        return len(self._numbers) - 1

    def apply(self, function: Callable[[Any, Any], Any], a: Any, b: Any) -> TracedNumber:
        """A function of two numbers."""
        first, second = self.place_of(a), self.place_of(b)
        place = self.place_of(function(self._numbers[first], self._numbers[second]))
        self._steps.append((place, function, first, second))
        return TracedNumber(self, place)

    def decide(self, function: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
        """What a function says of two numbers, on which the trace hangs from now on."""
        place = self.apply(function, a, b).place
        self._answers.append((place, self._numbers[place]))
        return self._numbers[place]

    def repeat_with(self, inputs: Sequence[float]) -> list[Any] | None:
        """All numbers by their places, of these that are given; None if one has another answer."""
        numbers = self._numbers.copy()
        numbers[: self._count] = inputs
        for place, function, a, b in self._steps:
            numbers[place] = function(numbers[a], numbers[b])
        return numbers if all(numbers[place] == answer for place, answer in self._answers) else None


class TracedNumber:
    """A number of a trace."""

    __slots__ = ("place", "trace")
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, trace: NumberTrace, place: int) -> None:
        self.trace, self.place = trace, place

    def __neg__(self) -> TracedNumber:
        return self.trace.apply(_negative, self, None)

    def __abs__(self) -> TracedNumber:
        return self.trace.apply(_magnitude, self, None)

    def __bool__(self) -> bool:
        return bool(self.trace.decide(operator.ne, self, 0))


def _negative(x: Any, _: Any) -> Any:
    return -x


def _magnitude(x: Any, _: Any) -> Any:
    return abs(x)


def _operator_method(function: Callable[[Any, Any], Any]) -> Callable[[TracedNumber, Any], TracedNumber]:
    return lambda self, other: self.trace.apply(function, self, other)


def _right_operator_method(function: Callable[[Any, Any], Any]) -> Callable[[TracedNumber, Any], TracedNumber]:
    return lambda self, other: self.trace.apply(function, other, self)


def _comparison_method(function: Callable[[Any, Any], Any]) -> Callable[[TracedNumber, Any], Any]:
    return lambda self, other: self.trace.decide(function, self, other)


for _name in ("add", "sub", "mul", "truediv", "pow"):
    setattr(TracedNumber, f"__{_name}__", _operator_method(getattr(operator, _name)))
    setattr(TracedNumber, f"__r{_name}__", _right_operator_method(getattr(operator, _name)))
for _name in ("lt", "le", "eq", "ne", "ge", "gt"):
    setattr(TracedNumber, f"__{_name}__", _comparison_method(getattr(operator, _name)))


#: Scalars between these magnitudes have products and quotients whose error terms float64 holds.
LEAST, MOST = 2.0**-300, 2.0**300


class NoProgram(Exception):
    """Something that programs have no instruction for: the operations are to be carried out one by one."""


#: A scalar, or one that is traced.
Scalar = float | TracedNumber

#: Results that float64's own, rounded once more, are not: see `kernels/programs.py`.
NOT_BY_FLOAT64 = (table.SUM_WITH_SCALAR, table.QUOTIENT_BY_SCALAR)


class Register(NamedTuple):
    """Numbers of a program, one for each element of its vectors: what the instruction of this number gives."""

    number: int
    format: Format | None = None  # of which all its numbers are known to be
    shape: tuple[int, ...] = ()  # stands for that of any vector


class ProgramGrid(NamedTuple):
    """Where results go: a format, a mode, the name of the stream that it draws from, and how programs round so."""

    format: Format
    rounding: Rounding
    stream: str
    rounding_kind: int | None  # a number of `HOW`; None where programs do not
    has_few_bits: bool  # whether results of its numbers are float32's, rounded once more


class EventLabel(NamedTuple):
    """Under which names an observer receives what an instruction does."""

    stream: str  # that of the arithmetic that makes its results
    operation: str

    @property
    def is_either(self) -> bool:
        """Whether either addend of a sum may be lost; of an update's only the second one counts."""
        return self.operation != "update"


class ProgramRow(NamedTuple):
    """An instruction, whose result is the register of its own number."""

    opcode: int
    a: int  # the number of a register, or of a scalar, an input or an output
    b: int = 0
    how: int = table.NOT
    grid: ProgramGrid | None = None
    quick: int = table.EXACTLY
    counted: EventLabel | None = None


class Instructions(NamedTuple):
    """What is done, as the loop takes it."""

    rows: NDArray[np.int64]
    registers: int
    grids: NDArray[np.float64]
    signs: NDArray[np.float64]
    draws: tuple[tuple[int, str], ...]  # the instructions that draw, and the names of the streams they draw from
    counted: tuple[tuple[EventLabel, Format], ...]  # what is counted, in the order of its counts


@lru_cache(maxsize=512)
def program_grid(format: Format, rounding: Rounding, stream: str) -> ProgramGrid:
    """The grid of a format and a mode, which draws from the stream of this name."""
    has_few_bits = kernels.rounding.grid.has_exponents_of_float32(format) and kernels.rounding.grid.has_few_bits(
        format, rounding
    )
    return ProgramGrid(format, rounding, stream, _rounding_kind(format, rounding), has_few_bits)


#: The numbers of the ways of `grid.way_of` in which a program rounds to plain grids.
WAYS = {
    "nearest": table.NEAREST,
    "directed": table.DIRECTED,
    "sticky": table.STICKY,
    "random": table.STOCHASTIC,
}


def _rounding_kind(format: Format, rounding: Rounding) -> int | None:
    if not (format.fits_float32 and format.has_nan and odd_suffices(format, rounding)):
        return None
    if format == FP32 and rounding == nearest_even:
        return table.SINGLE
    if not kernels.rounding.grid.has_plain_grid(format, rounding):
        return table.GENERAL
    return WAYS[kernels.rounding.grid.way_of(rounding)]


class ProgramWriter:
    """The operations of a program, in their order; what they do is counted or not."""

    def __init__(self, is_counted: bool = False) -> None:
        self._is_counted = is_counted
        self._written: list[ProgramRow] = []
        self._inputs = 0
        #: By the numbers that instructions have for them.
        self.scalars: list[Scalar] = []

    def input(self, format: Format | None = None) -> Register:
        """The next vector that is read, whose numbers are known to be of a format, or not."""
        if self._inputs == table.INPUTS:
            raise NoProgram
        self._inputs += 1
        return self._register(ProgramRow(table.LOAD, self._inputs - 1), format)

    def apply(
        self, operation: str, operands: Sequence[Register | Scalar], grid: ProgramGrid, named: str = ""
    ) -> Register:
        """An operation, rounded once, which an observer receives by its own name or another."""
        if (
            grid.rounding_kind is None
            or operation not in _OPERATIONS
            or (self._is_counted and grid.rounding.is_stochastic)
        ):
            raise NoProgram
        self._counted = EventLabel(grid.stream, named or operation) if self._is_counted else None
        return _OPERATIONS[operation](self, grid, *operands)

    def round(self, x: Register | Scalar, grid: ProgramGrid) -> Register:
        """Numbers themselves, rounded, which nobody observes."""
        if grid.rounding_kind is None or self._is_counted:
            raise NoProgram
        self._counted = None
        return (
            self._multiply(grid, x, 1.0)
            if isinstance(x, Register)
            else self._write_rounded(table.FILL, self._scalar(x), 0, grid)
        )

    def apply_unrounded(self, what: int, a: Register, b: Register | None = None) -> Register:
        """What rounds nothing: numbers negated, their signs, or the larger ones of two registers."""
        keeps_format = what != table.SIGN and (b is None or a.format == b.format)
        return self._register(
            ProgramRow(what, a.number, 0 if b is None else b.number), a.format if keeps_format else None
        )

    def fill(self, x: Scalar) -> Register:
        """A number of float32 for all elements."""
        is_single = x.trace.decide(_is_single, x, None) if isinstance(x, TracedNumber) else _is_single(x)
        if not is_single:
            raise NoProgram
        return self._register(ProgramRow(table.FILL, self._scalar(x)), None)

    def _add(self, grid: ProgramGrid, a: Register | Scalar, b: Register | Scalar) -> Register:
        a, b = self._scalar_last(a, b)
        if not isinstance(b, Register):
            return self._write_rounded(table.SUM_WITH_SCALAR, a.number, self._scalar(b), grid)
        return self._write_rounded(table.SUM, a.number, b.number, grid, are_its=a.format == b.format == grid.format)

    def _subtract(self, grid: ProgramGrid, a: Register | Scalar, b: Register | Scalar) -> Register:
        return self._add(grid, a, self.apply_unrounded(table.NEGATE, b) if isinstance(b, Register) else -b)

    def _multiply(self, grid: ProgramGrid, a: Register | Scalar, b: Register | Scalar) -> Register:
        a, b = self._scalar_last(a, b)
        if not isinstance(b, Register):
            return self._write_rounded(table.PRODUCT_WITH_SCALAR, a.number, self._scalar(b), grid)
        return self._write_rounded(table.PRODUCT, a.number, b.number, grid)

    def _divide(self, grid: ProgramGrid, a: Register | Scalar, b: Register | Scalar) -> Register:
        a = a if isinstance(a, Register) else self.fill(a)
        if not isinstance(b, Register):
            return self._write_rounded(table.QUOTIENT_BY_SCALAR, a.number, self._scalar(b), grid)
        return self._write_rounded(table.QUOTIENT, a.number, b.number, grid)

    def _root(self, grid: ProgramGrid, x: Register | Scalar) -> Register:
        return self._write_rounded(table.ROOT, (x if isinstance(x, Register) else self.fill(x)).number, 0, grid)

    def _scalar_last(self, a: Register | Scalar, b: Register | Scalar) -> tuple[Register, Register | Scalar]:
        """The operands of a sum or a product, of which at most the second is a scalar."""
        if isinstance(a, Register):
            return a, b
        return (b, a) if isinstance(b, Register) else (self.fill(a), b)

    def _scalar(self, x: Scalar) -> int:
        """The number of a scalar."""
        self.scalars.append(x if isinstance(x, TracedNumber) else float(x))
        return len(self.scalars) - 1

    def _write_rounded(self, what: int, a: int, b: int, grid: ProgramGrid, are_its: bool = True) -> Register:
        """The result of an operation, rounded by a grid; of a sum, are operands its numbers?"""
        assert grid.rounding_kind is not None
        row = ProgramRow(what, a, b, grid.rounding_kind, grid, _quick_way(what, grid, are_its), self._counted)
        return self._register(row, grid.format)

    def _register(self, written: ProgramRow, format: Format | None) -> Register:
        """The result of the next instruction."""
        self._written.append(written)
        return Register(len(self._written) - 1, format)

    def program(self, outputs: Sequence[Register]) -> Instructions:
        """The program that writes these registers to its outputs, in their order."""
        if len(outputs) > table.OUTPUTS:
            raise NoProgram
        stored = [ProgramRow(table.STORE, x.number, number) for number, x in enumerate(outputs)]
        return instructions_of((*self._written, *stored))


def are_usable(scalars: Sequence[float]) -> bool:
    """Whether programs may have these scalars."""
    return all(x == 0.0 or LEAST <= abs(x) <= MOST for x in scalars)


def _is_single(x: float, _: Any = None) -> bool:
    """Whether it is a number of float32."""
    return float(np.float32(x)) == x


def _quick_way(what: int, grid: ProgramGrid, are_its: bool) -> int:
    """How results may be made sooner than from exact ones; of sums, are operands numbers of the grid's format?"""
    if what == table.FILL or grid.rounding_kind not in (table.SINGLE, table.NEAREST):
        return table.EXACTLY
    if grid.rounding_kind == table.SINGLE:
        return table.IN_FLOAT32
    if grid.has_few_bits:
        return table.FEW_BITS
    return table.DOUBLE if are_its and what not in NOT_BY_FLOAT64 else table.EXACTLY


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
}


@lru_cache(maxsize=256)
def instructions_of(written: tuple[ProgramRow, ...]) -> Instructions:
    """The instructions as the loop takes them."""
    places, count = _places(written)
    grids = list(dict.fromkeys(each.grid for each in written if each.grid is not None))
    counted: list[tuple[EventLabel, Format]] = []
    rows = []
    for number, (what, a, b, how, grid, quick, names) in enumerate(written):
        of_a, of_b = OPERANDS.get(what, (True, True))
        row, place, is_either = 0 if grid is None else grids.index(grid), -1, False
        if names is not None and grid is not None:
            place, is_either = len(counted), names.is_either
            counted.append((names, grid.format))
        operands = places[a] if of_a else a, places[b] if of_b else b
        rows.append((what, places[number], *operands, how, row, quick, place, is_either))
    return Instructions(
        np.array(rows, np.int64),
        count,
        np.array([kernels.rounding.grid.pack_grid(grid.format, grid.rounding) for grid in grids]),
        np.array([grid.rounding.zero_sum for grid in grids]),
        tuple(
            (n, x.grid.stream) for n, x in enumerate(written) if x.grid is not None and x.grid.rounding.is_stochastic
        ),
        tuple(counted),
    )


def _places(written: tuple[ProgramRow, ...]) -> tuple[list[int], int]:
    """The place of every instruction's result, and how many places there are: one is free again after its last use."""
    read = [
        [
            x
            for x, is_register in zip((each.a, each.b), OPERANDS.get(each.opcode, (True, True)), strict=True)
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


#: Nanoseconds that an instruction takes for an element.
COST = 0.15

#: What stands for vectors that a program has not.
NONE = (np.zeros(0, np.float32),) * INPUTS

Vectors = Sequence[NDArray[np.float32]]


class LoopReadiness:
    """The decision whether the loop of programs may run, which takes ten seconds to compile where no file holds it.

    Until then operations are carried out one by one, with the same bits. The loop is compiled as soon as the operations
    so far have taken longer than instructions of programs by the time of its compilation: a first training of some
    seconds never waits for it, and a long one loses at most that time twice.
    """

    #: Nanoseconds by which an operation takes longer than an instruction: for its call, and for each element. Measured
    #: on an AMD EPYC (Zen 3): 20 us and 0.9 ns with AdamW, 3 us and nearly nothing with SGD.
    CALL, ELEMENT = 12_000, 0.8

    #: Nanoseconds of processor time that the compilation takes.
    COMPILATION = 10e9

    def __init__(self) -> None:
        self.is_ready = False
        self._lost = 0.0

    def compile_at_once(self) -> None:
        """Compile the loop at the next program, however short it is."""
        self.is_ready = True

    def allows(self, instructions: Instructions, size: int) -> bool:
        """True if the loop is compiled or is to be compiled now; otherwise count what the operations cost."""
        loop, pieces = CPU.loops.programs.run_program, ([np.zeros(0, np.float32)],) * 2
        arguments = _loop_arguments(instructions, np.zeros(1), np.zeros((1, 2), np.uint64), *pieces, 0)
        if self._lost >= self.COMPILATION or kernels.compile.jit.is_compiled(loop, arguments):
            self.is_ready = True
        self._lost += len(instructions.rows) * (self.CALL + size * self.ELEMENT)
        return self.is_ready


READINESS = LoopReadiness()


def run(
    instructions: Instructions,
    scalars: NDArray[np.float64],
    inputs: Vectors,
    outputs: Vectors,
    take_draw: Callable[[str], Draw],
) -> NDArray[np.int64] | None:
    """Carry out a program on float32 vectors of one length, which may be read and written; draws are taken by name.

    Returns the events of what is counted, a row each; None where counting is not for programs, or the loop is not
    compiled yet, and all is to be done in another way.
    """
    if not READINESS.is_ready and not READINESS.allows(instructions, inputs[0].size):
        return None
    rows, drawing = instructions.rows, instructions.draws
    draws = np.zeros((len(rows), 2) if drawing else (1, 2), np.uint64)
    for row, stream in drawing:
        draw = take_draw(stream)
        draws[row] = draw.seed, draw.call
    counts = len(instructions.counted)
    cost = len(rows) * COST + len(drawing) * DRAWING + counts * COUNTING
    work = partial(_run_piece, instructions, scalars, draws, inputs, outputs)
    size = inputs[0].size
    if size * cost < LEAST_WORK:
        return work((0, size))
    parts = run_all(work, element_ranges(size, cost))
    counted = [events for events in parts if events is not None]
    return np.sum(counted, axis=0) if len(counted) == len(parts) else None


def _run_piece(
    instructions: Instructions,
    scalars: NDArray[np.float64],
    draws: NDArray[np.uint64],
    inputs: Vectors,
    outputs: Vectors,
    piece: tuple[int, int],
) -> NDArray[np.int64] | None:
    start, stop = piece
    if stop - start < inputs[0].size:
        inputs, outputs = ([x[start:stop] for x in vectors] for vectors in (inputs, outputs))
    arguments = _loop_arguments(instructions, scalars, draws, inputs, outputs, start)
    return arguments[-1] if CPU.loops.programs.run_program(*arguments) else None


def _loop_arguments(
    instructions: Instructions,
    scalars: NDArray[np.float64],
    draws: NDArray[np.uint64],
    inputs: Vectors,
    outputs: Vectors,
    start: int,
) -> tuple[Any, ...]:
    """Return the arguments of the loop, of which the last receives the events."""
    rows, registers, grids, signs, _, counted = instructions
    read = (*inputs, *NONE[len(inputs) : INPUTS])
    written = (*outputs, *NONE[len(outputs) : OUTPUTS])
    events = np.zeros((len(counted), SIZE), np.int64)
    return rows, registers, scalars, grids, signs, draws, start, read, written, events
