"""The update of a parameter as a compiled program, if all its operations are elementwise and on float32 arrays.

A step is recorded once (`RecordedStep`), and then serves all parameters with the same update rules
(`run_as_program`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.operands import FLOAT32, flat
from simfloat.arithmetic.programs import (
    Instructions,
    NoProgram,
    NumberTrace,
    ProgramGrid,
    ProgramWriter,
    Register,
    are_usable,
    program_grid,
    run,
)
from simfloat.arithmetic.target import is_precise, is_wide
from simfloat.formats import Format
from simfloat.kernels import program_table
from simfloat.kernels.rounding.events import PRECISE, TOTAL, UNCHANGED, WIDE
from simfloat.simulation.place import UpdateRules
from simfloat.simulation.updates import COUNTERS, STEP, UpdateArithmetic, count_stalled

#: The name of the new parameter among the outputs.
WEIGHT = ""

#: The position of the gradient among the vectors that a program reads; the optimizer state follows.
GRADIENT = 1


class ObservedMoment(NamedTuple):
    """A moment with stalled elements to be counted for an observer.

    `before` is the position of its vector among the vectors that the program reads, None for a new moment; `after` is
    its position among the vectors that the program writes.
    """

    stream: str
    before: int | None
    after: int

    def count_stalls(self, read: Sequence[NDArray], written: Sequence[NDArray]) -> int:
        """Count the elements that keep their value under a nonzero gradient."""
        before = None if self.before is None else read[self.before]
        return count_stalled(before, written[self.after], read[GRADIENT])


class UpdateNumbers(NamedTuple):
    """The scalars of a step."""

    scalars: NDArray[np.float64]
    counters: dict[str, NDArray]  # after the step


class UpdateProgram(NamedTuple):
    """The update of a parameter: it reads the weight, the gradient and the optimizer state, in this order."""

    instructions: Instructions
    outputs: tuple[str, ...]  # the names of the arrays that it writes
    state_names: tuple[str, ...]  # the names of stored arrays, then of counters
    trace: NumberTrace  # of counters and options
    scalars: tuple[int, ...]  # the positions of its scalars in the trace
    counters: dict[str, int]  # the positions of the counters after the step
    moments: tuple[ObservedMoment, ...]

    def step_numbers(self, values: Sequence[float]) -> UpdateNumbers | None:
        """Return the scalars of a step; None if the program is not valid for these values."""
        traced = self.trace.repeat_with(values)
        if traced is None:
            return None
        scalars = [traced[place] for place in self.scalars]
        if not are_usable(scalars):
            raise NoProgram
        counters = {name: np.array(traced[place], COUNTERS[name]) for name, place in self.counters.items()}
        return UpdateNumbers(np.array(scalars or [0.0]), counters)


class RecordedStep(UpdateArithmetic):
    """A step on registers instead of arrays: the weight, the gradient, and the optimizer state with these names.

    The step records which scalars it uses, so that the program also runs with other values of them. Raises NoProgram
    for an operation that is not elementwise, and for a format or a mode that programs do not support.
    """

    __slots__ = ("_before", "_grid", "_moments", "_names", "_rules", "_trace", "_writer")

    state: dict[str, Any]
    _weight: Any

    def __init__(
        self, rules: UpdateRules, names: tuple[str, ...], counters: dict[str, Any], trace: NumberTrace
    ) -> None:
        self._rules, self._writer, self._trace = rules, ProgramWriter(rules.is_observed), trace
        self._grid = program_grid(rules.weights, rules.rounding, "update")
        self._weight = self._writer.input(rules.weights)
        self.gradient: Any = self._writer.input()
        self._before: dict[str, Any] = {name: self._writer.input() for name in names} | counters
        self.state = dict(self._before)
        self._names = names
        self._moments: list[str] = []

    def program(self, u: Any) -> UpdateProgram:
        """Return the program that ends with the addition of u."""
        after: Any = self._last_addition(u)
        # An array of the state that the step did not change is not written: the stored array remains.
        changed_state = {name: x for name, x in self.state.items() if x is not self._before.get(name)}
        outputs = {WEIGHT: after, **{name: x for name, x in changed_state.items() if name not in COUNTERS}}
        counters = {name: self._trace.place_of(x) for name, x in changed_state.items() if name in COUNTERS}
        places = {name: GRADIENT + 1 + number for number, name in enumerate(self._names)}
        written = [*outputs]
        moments = tuple([ObservedMoment(f".{x}", places.get(x), written.index(x)) for x in self._moments])
        instructions = self._writer.program([*outputs.values()])
        scalars = tuple(map(self._trace.place_of, self._writer.scalars))
        return UpdateProgram(
            instructions, tuple(outputs), tuple(changed_state), self._trace, scalars, counters, moments
        )

    @property
    def format(self) -> Format:
        """The format of results."""
        return self._rules.weights

    @property
    def _is_compensated(self) -> bool:
        return self._rules.is_compensated

    def sign(self, x: Any) -> Any:
        """Return -1, 0 or 1, exactly; NaN for NaN."""
        return self._writer.apply_unrounded(program_table.SIGN, x)

    def negative(self, x: Any) -> Any:
        """Return -x, exactly."""
        return self._writer.apply_unrounded(program_table.NEGATE, x)

    def magnitude(self, x: Any) -> Any:
        """Return |x|, rounded to `weights`."""
        larger = self._writer.apply_unrounded(program_table.LARGEST, x, self.negative(x))
        # The larger one of two zeros may be -0.
        size = self._writer.apply_unrounded(program_table.LARGEST, self._writer.fill(0.0), larger)
        return self._writer.round(size, self._grid)

    def at_least(self, least: float, x: Any) -> Any:
        """Raise NoProgram: there is no instruction."""
        raise NoProgram

    def sum(self, x: Any, axis: int | None = None) -> Any:
        """Raise NoProgram: a sum is not elementwise."""
        raise NoProgram

    def matmul(self, a: Any, b: Any) -> Any:
        """Raise NoProgram: a matrix product is not elementwise."""
        raise NoProgram

    def count(self) -> Any:
        """Return the number of this step of the parameter, starting with 1, and store it."""
        self.state[STEP] = self.state.get(STEP, 0.0) + 1.0
        return self.state[STEP]

    def product(self, name: str, factor: Any) -> Any:
        """Return the float32 product of this factor and all earlier ones, and store it."""
        self.state[name] = self._trace.apply(_single_product, self.state.get(name, 1.0), factor)
        return self.state[name]

    def previous_moment(self, name: str, shape: tuple[int, ...]) -> Any:
        """Return the moment of this name after the last step; zeros before the first step."""
        if name in self.state:
            return self.state[name]
        return self._writer.fill(0.0)

    def _apply(self, operation: str, *operands: Any) -> Any:
        return self._writer.apply(operation, operands, self._grid)

    def _round_moment(self, name: str, value: Any) -> Any:
        return self._writer.round(value, self._grid_of_moment(name))

    def _add_to_moment(self, name: str, a: Any, b: Any) -> Any:
        if self._rules.is_observed:
            self._moments.append(name)
        return self._writer.apply("add", (a, b), self._grid_of_moment(name), "moment")

    def _add_to_parameter(self, w: Any, u: Any) -> Any:
        grid = program_grid(self._rules.weights, self._rules.last, "parameter")
        return self._writer.apply("add", (w, u), grid, "update")

    def _larger(self, a: Any, b: Any) -> Any:
        return self._writer.apply_unrounded(program_table.LARGEST, a, b)

    def _grid_of_moment(self, name: str) -> ProgramGrid:
        return program_grid(self._rules.optimizer_state, self._rules.rounding, f".{name}")


def _single_product(a: float, b: float) -> float:
    return float(np.float32(a) * np.float32(b))


Addend = Callable[[Any, Any, SimpleNamespace], Any]

#: The latest programs by everything that determines their instructions. There are several if scalars decide on the
#: operations, and None if there is no program.
_programs: dict[Any, tuple[UpdateProgram, ...] | None] = {}

#: Maximum numbers of kinds of programs, and of programs of a kind in addition to the latest.
MOST, MOST_OF_A_KIND = 256, 15


def run_as_program(
    kind: Any, addend: Addend, step: UpdateArithmetic, gradient: NDArray, options: SimpleNamespace
) -> bool:
    """Update a parameter by a program; return True if this was possible. Otherwise nothing is changed.

    `kind` identifies the function `addend`, which returns the value to add to the parameter from the step, the
    gradient and the options.
    """
    rules, state = step.rules, step.state
    if rules is None:
        return False
    names = tuple(name for name in state if name not in COUNTERS)
    arrays = [step.weight, gradient, *(state[name] for name in names)]
    for x in arrays:
        if type(x) is not np.ndarray or x.dtype != FLOAT32:
            return False
    counters = {name: float(state[name]) for name in COUNTERS if name in state}
    try:
        program, (scalars, counted) = _program(kind, addend, rules, names, counters, options)
    except NoProgram:
        return False
    shape = gradient.shape
    outputs = {name: step.memory(name, shape) for name in program.outputs}
    vectors = [flat(x) for x in arrays], [flat(x) for x in outputs.values()]
    events = run(program.instructions, scalars, *vectors, step.take_draw)
    if events is None:
        return False
    stalled = {moment.stream: moment.count_stalls(*vectors) for moment in program.moments}
    for row, (names_of_row, format) in zip(events, program.instructions.counted, strict=True):
        row[WIDE], row[PRECISE] = row[TOTAL] * is_wide(format), row[TOTAL] * is_precise(format)
        if names_of_row.operation == "moment":
            row[UNCHANGED] = stalled[names_of_row.stream]
        step.notify(row, *names_of_row)
    for name in program.state_names:
        state[name] = outputs[name] if name in outputs else counted[name]
    step.store(outputs[WEIGHT])
    return True


def _program(
    kind: Any,
    addend: Addend,
    rules: UpdateRules,
    names: tuple[str, ...],
    counters: dict[str, float],
    options: SimpleNamespace,
) -> tuple[UpdateProgram, UpdateNumbers]:
    """Return the program of an update, cached or new, with its scalars; NoProgram if there is none."""
    # The scalars of a step are in one list: first the counters, then the options. `_split_option` appends them in the
    # order in which `_with_numbers` reads them, so both traverse nested tuples in the same order.
    values = [*counters.values()]
    key = (
        kind,
        rules,
        names,
        (*counters,),
        tuple([(name, _split_option(value, values)) for name, value in vars(options).items()]),
    )
    # None is cached also: a step without a program is not recorded again every time.
    programs = _programs.get(key, ())
    if programs is None:
        raise NoProgram
    for program in programs:
        step_numbers = program.step_numbers(values)
        if step_numbers is not None:
            return program, step_numbers
    try:
        trace = NumberTrace(values)
        program = _write_program(addend, rules, names, counters, options, trace, iter(trace.traced_inputs))
    except (TypeError, AttributeError):
        # An operation on a scalar cannot be traced, so the program is only valid for these scalars.
        return _program_for_these(key, values, addend, rules, names, counters, options)
    except NoProgram:
        _keep(key, None)
        raise
    _keep(key, (*programs[-MOST_OF_A_KIND:], program))
    return program, _numbers(program, values)


def _program_for_these(
    key: Any,
    values: list[float],
    addend: Addend,
    rules: UpdateRules,
    names: tuple[str, ...],
    counters: dict[str, float],
    options: SimpleNamespace,
) -> tuple[UpdateProgram, UpdateNumbers]:
    """Return a program that is only valid for these values, with its scalars; NoProgram if there is none."""
    key = (*key, *map(repr, values))  # texts distinguish 0.0 from -0.0
    programs = _programs.get(key, ())
    if programs is None:
        raise NoProgram
    if not programs:
        try:
            programs = (_write_program(addend, rules, names, counters, options, NumberTrace(()), iter(values)),)
        except NoProgram:
            _keep(key, None)
            raise
        _keep(key, programs)
    return programs[0], _numbers(programs[0], ())


def _write_program(
    addend: Addend,
    rules: UpdateRules,
    names: tuple[str, ...],
    counters: dict[str, float],
    options: SimpleNamespace,
    trace: NumberTrace,
    numbers: Iterator[Any],
) -> UpdateProgram:
    """Write the program of an update, with `numbers` instead of the counters and options."""
    counts = {name: next(numbers) for name in counters}
    chosen = SimpleNamespace(**{name: _with_numbers(value, numbers) for name, value in vars(options).items()})
    step = RecordedStep(rules, names, counts, trace)
    u = addend(step, step.gradient, chosen)
    if not isinstance(u, Register):
        raise NoProgram  # any other type is an error, which is raised without a program
    return step.program(u)


def _numbers(program: UpdateProgram, values: Sequence[float]) -> UpdateNumbers:
    step_numbers = program.step_numbers(values)
    assert step_numbers is not None, "a trace is valid for its own scalars"
    return step_numbers


def _keep(key: Any, programs: tuple[UpdateProgram, ...] | None) -> None:
    if len(_programs) >= MOST:
        _programs.clear()
    _programs[key] = programs


def _split_option(value: Any, values: list[float]) -> Any:
    """Append the scalars of an option to `values`, and return the rest, which all programs of a kind share."""
    if type(value) is float:
        values.append(value)
        return None
    return tuple([_split_option(part, values) for part in value]) if type(value) is tuple else repr(value)


def _with_numbers(value: Any, numbers: Iterator[Any]) -> Any:
    """Return an option with its scalars replaced by these."""
    if type(value) is float:
        return next(numbers)
    return tuple([_with_numbers(part, numbers) for part in value]) if type(value) is tuple else value
