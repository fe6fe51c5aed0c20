"""Programs: rounded operations on vectors that are recorded first, and executed in one call.

Each operation is rounded once, like `compute`, and uses the same random bits. A program saves passes over memory and
calls. It can be run on all vectors to which the same operations apply.

**Traced numbers** record their computation as the lines of a function, which repeats it for other numbers. To trace a
function of scalars, call it with a `TracedNumber` for each; `NumberTrace.write_function` returns the written function.
If the traced function tests a number, for example for zero, the written one compares the result of the test, and
returns None if it differs. Operations that would leave no trace, such as math.sqrt of a traced number, raise TypeError.

**The writer** chooses the instruction for an operation, and the register for its result.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.arithmetic.bit_stream import BitStream
from simfloat.arithmetic.machines import CPU, GPU
from simfloat.arithmetic.plan import COUNTING, DRAWING, element_ranges
from simfloat.arithmetic.target import is_precise, is_wide, odd_suffices
from simfloat.arithmetic.threads import LEAST_WORK, run_all
from simfloat.formats import FP32, Format, Rounding, nearest_even
from simfloat.kernels import program_table as table
from simfloat.kernels.program_table import INPUTS, OUTPUTS, REGISTERS
from simfloat.kernels.rounding.events import PRECISE, SIZE, TOTAL, WIDE


class NumberTrace:
    """The record of a computation with scalars, some of which are inputs."""

    def __init__(self, inputs: Sequence[float]) -> None:
        self.traced_inputs = [TracedNumber(self, f"input_{number}", x) for number, x in enumerate(inputs)]
        self._lines: list[str] = []
        self._constants: dict[str, Any] = {}

    def apply(self, function: Callable[..., Any], *operands: Any) -> TracedNumber:
        """Apply a function to numbers."""
        value = function(*[x.value if isinstance(x, TracedNumber) else x for x in operands])
        result = TracedNumber(self, f"number_{len(self._lines)}", value)
        self._lines.append(f"{result.name} = {self._name_of(function)}({self._names_of(operands)})")
        return result

    def decide(self, function: Callable[..., Any], *operands: Any) -> Any:
        """Return the value of a function of numbers; the trace is valid only for inputs with the same value."""
        result = self.apply(function, *operands)
        self._lines.append(f"if {result.name} != {self._name_of(result.value)}: return None")
        return result.value

    def write_function(self, results: Sequence[Any]) -> Callable[..., tuple[Any, ...] | None]:
        """Return a function of the inputs that computes these numbers; it returns None if a test has another result."""
        inputs = self._names_of(self.traced_inputs)
        lines = [*self._lines, f"return ({self._names_of(results)})"]
        # A list of steps that a loop repeated took 3.5 us with AdamW, and this function takes 0.8 us.
        exec("\n    ".join([f"def numbers({inputs}):", *lines]), self._constants)
        function: Callable[..., tuple[Any, ...] | None] = self._constants["numbers"]
        return function

    def _names_of(self, numbers: Sequence[Any]) -> str:
        return "".join(f"{self._name_of(x)}, " for x in numbers)

    def _name_of(self, x: Any) -> str:
        """Return the name of a traced number, or of a new constant."""
        if isinstance(x, TracedNumber):
            return x.name
        name = f"constant_{len(self._constants)}"
        self._constants[name] = x
        return name


class TracedNumber:
    """A number of a trace, with the name of its variable in the written function."""

    __slots__ = ("name", "trace", "value")
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, trace: NumberTrace, name: str, value: Any) -> None:
        self.trace, self.name, self.value = trace, name, value

    def __neg__(self) -> TracedNumber:
        return self.trace.apply(operator.neg, self)

    def __abs__(self) -> TracedNumber:
        return self.trace.apply(abs, self)

    def __bool__(self) -> bool:
        return bool(self.trace.decide(operator.ne, self, 0))


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


#: For scalars between these magnitudes, float64 can represent the error terms of products and quotients.
LEAST, MOST = 2.0**-300, 2.0**300


class NoProgram(Exception):
    """Raised if programs have no instruction for something: the operations must be executed one by one."""


#: A scalar, or a traced one.
Scalar = float | TracedNumber

#: Operations for which a float64 result, rounded again, is not the exact one rounded once: see `kernels/programs.py`.
NOT_BY_FLOAT64 = (table.SUM_WITH_SCALAR, table.QUOTIENT_BY_SCALAR)


class Register(NamedTuple):
    """The values of a program for each element of its vectors: the result of the instruction with this number."""

    number: int
    format: Format | None = None  # the format of all its values, if it is known
    shape: tuple[int, ...] = ()  # a placeholder for the shape of any vector


class ProgramGrid(NamedTuple):
    """The target of results: a format, a mode, the name of the stream for its draws, and the method of rounding."""

    format: Format
    rounding: Rounding
    stream: str
    rounding_kind: int | None  # a number of `HOW`; None if programs do not support the rounding
    has_few_bits: bool  # True if float32 results of its numbers, rounded again, are right


class EventLabel(NamedTuple):
    """The names under which an observer receives the events of an instruction."""

    stream: str  # the name of the stream of the arithmetic
    operation: str

    @property
    def is_either(self) -> bool:
        """True if either addend of a sum may be lost; for an update only the second one counts."""
        return self.operation != "update"


class ProgramRow(NamedTuple):
    """An instruction; its result is the register with its number."""

    opcode: int
    a: int  # the number of a register, a scalar, an input or an output
    b: int = 0
    how: int = table.NOT
    grid: ProgramGrid | None = None
    quick: int = table.EXACTLY
    counted: EventLabel | None = None


#: The column of a row with the number of its counts, or -1: see `kernels/program_table.py`.
COUNTED = 7


class Instructions(NamedTuple):
    """A program in the form that the loop takes."""

    rows: NDArray[np.int64]
    registers: int
    grids: NDArray[np.float64]
    signs: NDArray[np.float64]
    draws: tuple[tuple[int, str], ...]  # the stochastic instructions, and the names of their streams
    counted: tuple[EventLabel, ...]  # the labels of counts, in their order
    ranges: NDArray[np.int64]  # 1 or 0 for each label: if results count as WIDE, and if they count as PRECISE
    cost: float  # nanoseconds per element

    def count_only(self, chosen: list[int]) -> Instructions:
        """Return the instructions with only these counts."""
        rows, numbers = self.rows.copy(), {place: number for number, place in enumerate(chosen)}
        rows[:, COUNTED] = [numbers.get(place, -1) for place in rows[:, COUNTED].tolist()]
        counted, cost = tuple([self.counted[place] for place in chosen]), self.cost
        cost -= (len(self.counted) - len(counted)) * COUNTING
        return self._replace(rows=rows, counted=counted, ranges=self.ranges[chosen], cost=cost)


@lru_cache(maxsize=512)
def program_grid(format: Format, rounding: Rounding, stream: str) -> ProgramGrid:
    """Return the grid of a format and a mode, with the name of the stream for its draws."""
    has_few_bits = kernels.rounding.grid.has_exponents_of_float32(format) and kernels.rounding.grid.has_few_bits(
        format, rounding
    )
    return ProgramGrid(format, rounding, stream, _rounding_kind(format, rounding), has_few_bits)


#: The kinds of rounding of a program, by the names that `grid.way_of` returns; other names need the general rounding.
WAYS = {"nearest": table.NEAREST, "directed": table.DIRECTED, "sticky": table.STICKY, "random": table.STOCHASTIC}


def _rounding_kind(format: Format, rounding: Rounding) -> int | None:
    rounding.check_overflow(format)
    if not (format.fits_float32 and format.has_nan and odd_suffices(format, rounding)):
        return None
    if format == FP32 and rounding == nearest_even:
        return table.SINGLE
    if not kernels.rounding.grid.has_plain_grid(format, rounding):
        return table.GENERAL
    return WAYS[kernels.rounding.grid.way_of(rounding)]


class ProgramWriter:
    """Records the operations of a program in order; their events are counted or not."""

    def __init__(self, is_counted: bool = False) -> None:
        self._is_counted = is_counted
        self._written: list[ProgramRow] = []
        self._inputs = 0
        #: The scalars, by the numbers that instructions use.
        self.scalars: list[Scalar] = []

    def input(self, format: Format | None = None) -> Register:
        """Return the register of the next input vector, with the format of its values if it is known."""
        if self._inputs == table.INPUTS:
            raise NoProgram
        self._inputs += 1
        return self._register(ProgramRow(table.LOAD, self._inputs - 1), format)

    def apply(
        self, operation: str, operands: Sequence[Register | Scalar], grid: ProgramGrid, named: str = ""
    ) -> Register:
        """Record an operation, rounded once; an observer receives it by its own name or as `named`."""
        if (
            grid.rounding_kind is None
            or operation not in _OPERATIONS
            or (self._is_counted and grid.rounding.is_stochastic)
        ):
            raise NoProgram
        self._counted = EventLabel(grid.stream, named or operation) if self._is_counted else None
        return _OPERATIONS[operation](self, grid, *operands)

    def round(self, x: Register | Scalar, grid: ProgramGrid) -> Register:
        """Record a rounding, which is not observed."""
        if grid.rounding_kind is None or self._is_counted:
            raise NoProgram
        self._counted = None
        return (
            self._multiply(grid, x, 1.0)
            if isinstance(x, Register)
            else self._write_rounded(table.FILL, self._scalar(x), 0, grid)
        )

    def apply_unrounded(self, what: int, a: Register, b: Register | None = None) -> Register:
        """Record an operation without rounding: negated values, signs, or the larger values of two registers."""
        keeps_format = what != table.SIGN and (b is None or a.format == b.format)
        return self._register(
            ProgramRow(what, a.number, 0 if b is None else b.number), a.format if keeps_format else None
        )

    def fill(self, x: Scalar) -> Register:
        """Record a float32 value for all elements."""
        is_single = x.trace.decide(_is_single, x) if isinstance(x, TracedNumber) else _is_single(x)
        if not is_single:
            raise NoProgram
        return self._register(ProgramRow(table.FILL, self._scalar(x)), None)

    def _add(self, grid: ProgramGrid, a: Register | Scalar, b: Register | Scalar) -> Register:
        a, b = self._scalar_last(a, b)
        if not isinstance(b, Register):
            return self._write_rounded(table.SUM_WITH_SCALAR, a.number, self._scalar(b), grid)
        return self._write_rounded(table.SUM, a.number, b.number, grid, is_same=a.format == b.format == grid.format)

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
        """Return the operands of a sum or a product, of which at most the second is a scalar."""
        if isinstance(a, Register):
            return a, b
        return (b, a) if isinstance(b, Register) else (self.fill(a), b)

    def _scalar(self, x: Scalar) -> int:
        """Return the number of a scalar."""
        self.scalars.append(x if isinstance(x, TracedNumber) else float(x))
        return len(self.scalars) - 1

    def _write_rounded(self, what: int, a: int, b: int, grid: ProgramGrid, is_same: bool = True) -> Register:
        """Record an operation that is rounded to a grid; `is_same`: operands of a sum have the format of the grid."""
        assert grid.rounding_kind is not None
        row = ProgramRow(what, a, b, grid.rounding_kind, grid, _fastest_method(what, grid, is_same), self._counted)
        return self._register(row, grid.format)

    def _register(self, written: ProgramRow, format: Format | None) -> Register:
        """Record an instruction and return its result."""
        self._written.append(written)
        return Register(len(self._written) - 1, format)

    def program(self, outputs: Sequence[Register]) -> Instructions:
        """Return the program that writes these registers to its outputs, in this order."""
        if len(outputs) > table.OUTPUTS:
            raise NoProgram
        stored = [ProgramRow(table.STORE, x.number, number) for number, x in enumerate(outputs)]
        return instructions_of((*self._written, *stored))


def are_usable(scalars: Sequence[float]) -> bool:
    """Return True if programs support these scalars."""
    return all(x == 0.0 or LEAST <= abs(x) <= MOST for x in scalars)


def _is_single(x: float) -> bool:
    """Return True if float32 can represent a number."""
    return float(np.float32(x)) == x


def _fastest_method(what: int, grid: ProgramGrid, is_same: bool) -> int:
    """Return the fastest method for results; `is_same`: operands of a sum have the format of the grid."""
    if what == table.FILL or grid.rounding_kind not in (table.SINGLE, table.NEAREST):
        return table.EXACTLY
    if grid.rounding_kind == table.SINGLE:
        return table.IN_FLOAT32
    if grid.has_few_bits:
        return table.FEW_BITS
    return table.DOUBLE if is_same and what not in NOT_BY_FLOAT64 else table.EXACTLY


#: The operations, by their names in `catalog`.
_OPERATIONS: dict[str, Callable[..., Register]] = {
    "add": ProgramWriter._add,
    "subtract": ProgramWriter._subtract,
    "multiply": ProgramWriter._multiply,
    "divide": ProgramWriter._divide,
    "sqrt": ProgramWriter._root,
}


#: Nanoseconds per instruction and element.
COST = 0.15


#: The operands a and b that are registers, for instructions in which not both are.
OPERANDS = {
    **dict.fromkeys((table.LOAD, table.FILL), (False, False)),
    **dict.fromkeys((table.STORE, table.NEGATE, table.SIGN, table.SUM_WITH_SCALAR), (True, False)),
    **dict.fromkeys((table.PRODUCT_WITH_SCALAR, table.QUOTIENT_BY_SCALAR, table.ROOT), (True, False)),
}


@lru_cache(maxsize=256)
def instructions_of(written: tuple[ProgramRow, ...]) -> Instructions:
    """Return the instructions in the form that the loop takes."""
    places, count = _places(written)
    if count > REGISTERS:
        raise NoProgram
    grids = list(dict.fromkeys(each.grid for each in written if each.grid is not None))
    counted: list[EventLabel] = []
    formats: list[Format] = []
    rows = []
    for number, (what, a, b, how, grid, quick, names) in enumerate(written):
        of_a, of_b = OPERANDS.get(what, (True, True))
        row, place, is_either = 0 if grid is None else grids.index(grid), -1, False
        if names is not None and grid is not None:
            place, is_either = len(counted), names.is_either
            counted.append(names)
            formats.append(grid.format)
        operands = places[a] if of_a else a, places[b] if of_b else b
        rows.append((what, places[number], *operands, how, row, quick, place, is_either))
    draws = [(n, x.grid.stream) for n, x in enumerate(written) if x.grid is not None and x.grid.rounding.is_stochastic]
    return Instructions(
        np.array(rows, np.int64),
        count,
        np.array([kernels.rounding.grid.pack_grid(grid.format, grid.rounding) for grid in grids]),
        np.array([grid.rounding.zero_sum for grid in grids]),
        tuple(draws),
        tuple(counted),
        np.array([(is_wide(format), is_precise(format)) for format in formats], np.int64).reshape(-1, 2),
        len(rows) * COST + len(draws) * DRAWING + len(counted) * COUNTING,
    )


def _places(written: tuple[ProgramRow, ...]) -> tuple[list[int], int]:
    """Return the register of every result, and the number of registers; a register is free after its last use."""
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
        # Not the register of an operand: see `kernels/programs.py`.
        places.append(free.pop())
        free += [places[x] for x in dict.fromkeys((*operands, number)) if last[x] == number]
    return places, count


#: Placeholders for vectors that a program does not use.
NONE = (np.zeros(0, np.float32),) * INPUTS

#: The draws of a program without random bits, and the events of a program without counts.
NO_DRAWS, NO_EVENTS = np.zeros((1, 2), np.uint64), np.zeros((0, SIZE), np.int64)

Vectors = Sequence[NDArray[np.float32]]


class LoopReadiness:
    """The decision whether the loop of programs may run; compiling it takes ten seconds if no file contains its code.

    Until the loop is ready, the operations are carried out one by one, with the same bits. It is compiled as soon as
    the operations so far have cost as much time as the compilation would. A first training of a few seconds therefore
    never waits for it, and a long training loses at most twice the time of the compilation.
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
        """Compile the loop at the next program, however short the program is."""
        self.is_ready = True

    def allows(self, instructions: Instructions, size: int) -> bool:
        """True if the loop is compiled or is to be compiled now; otherwise count what the operations cost."""
        # Only the first program searches for compiled code: a search takes 0.45 ms, four times an update by operations.
        is_compiled = self._lost == 0.0 and self._is_compiled(instructions)
        self.is_ready = is_compiled or self._lost >= self.COMPILATION
        self._lost += len(instructions.rows) * (self.CALL + size * self.ELEMENT)
        return self.is_ready

    @staticmethod
    def _is_compiled(instructions: Instructions) -> bool:
        """True if the loop has run in this process, or a file contains its code; one version serves all programs."""
        loop, pieces = CPU.loops.programs.run_program, ([np.zeros(0, np.float32)],) * 2
        arguments = _loop_arguments(instructions, np.zeros(1), NO_DRAWS, *pieces, 0)
        return kernels.compile.jit.is_compiled(loop, arguments)


READINESS = LoopReadiness()


def run(
    instructions: Instructions,
    scalars: NDArray[np.float64],
    inputs: Vectors,
    outputs: Vectors,
    streams: Sequence[BitStream],
    zeros: NDArray[np.int64] | None = None,
) -> NDArray[np.int64] | None:
    """Run a program on float32 vectors of one length, which may be read and written.

    `streams` are the random streams of its stochastic instructions, in their order. Returns the counted events, one row
    per label. They are in the array `zeros`, which contains only zeros, if it is given and one thread runs the program.
    Returns None if the loop cannot count the events or is not compiled yet. The operations must then be executed in
    another way. On a GPU, events are never counted: reading them would take longer than the single operations.
    """
    size, device = inputs[0].size, CPU if type(inputs[0]) is np.ndarray else GPU
    if instructions.counted and device is GPU:
        return None
    # On a GPU, the single operations are compiled, too.
    if device is CPU and not READINESS.is_ready and not READINESS.allows(instructions, size):
        return None
    draws = np.zeros((len(instructions.rows), 2), np.uint64) if streams else NO_DRAWS
    for (row, _), stream in zip(instructions.draws, streams, strict=True):
        draws[row] = stream.seed, stream.take_call()
    loop = device.loops.programs.run_program
    if not device.in_pieces or size * instructions.cost < LEAST_WORK:
        work = [_loop_arguments(instructions, scalars, draws, inputs, outputs, 0, zeros)]
        is_counted = loop(*work[0])
    else:
        work = [
            _loop_arguments(instructions, scalars, draws, [x[i:j] for x in inputs], [x[i:j] for x in outputs], i)
            for i, j in element_ranges(size, instructions.cost)
        ]
        is_counted = all(run_all(lambda arguments: loop(*arguments), work))
    if not is_counted:
        return None
    events: NDArray[np.int64] = work[0][-1] if len(work) == 1 else np.sum([each[-1] for each in work], axis=0)
    if instructions.counted:
        events[:, WIDE : PRECISE + 1] = events[:, TOTAL : TOTAL + 1] * instructions.ranges
    return events


def _loop_arguments(
    instructions: Instructions,
    scalars: NDArray[np.float64],
    draws: NDArray[np.uint64],
    inputs: Vectors,
    outputs: Vectors,
    start: int,
    zeros: NDArray[np.int64] | None = None,
) -> tuple[Any, ...]:
    """Return the arguments of the loop; the last one, `zeros` or a new array, receives the events."""
    rows, registers, grids, signs, _, counted, *_ = instructions
    read = (*inputs, *NONE[len(inputs) : INPUTS])
    written = (*outputs, *NONE[len(outputs) : OUTPUTS])
    events = zeros
    if events is None:
        events = np.zeros((len(counted), SIZE), np.int64) if counted else NO_EVENTS
    return rows, registers, scalars, grids, signs, draws, start, read, written, events
