"""The update of a parameter as a program, where all its operations are elementwise and on float32 arrays.

A step is written down once (`RecordedStep`) and then serves all parameters to which the same is done
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

#: Among the outputs, what the parameter becomes.
WEIGHT = ""

#: The place of the gradient among the vectors that a program reads; behind it stand those that are kept.
GRADIENT = 1


class ObservedMoment(NamedTuple):
    """A moment whose observer receives how many of its elements stall, by the places of its vectors among those that
    the program reads, None if it is new, and writes.
    """

    stream: str
    before: int | None
    after: int

    def count_stalls(self, read: Sequence[NDArray], written: Sequence[NDArray]) -> int:
        """Count the elements that stay as they were under a gradient other than zero."""
        before = None if self.before is None else read[self.before]
        return count_stalled(before, written[self.after], read[GRADIENT])


class UpdateNumbers(NamedTuple):
    """The numbers of a step."""

    scalars: NDArray[np.float64]
    counters: dict[str, NDArray]  # after the step


class UpdateProgram(NamedTuple):
    """The update of a parameter: it reads the weight, the gradient and what is kept, in this order."""

    instructions: Instructions
    outputs: tuple[str, ...]  # what it writes, by name
    state_names: tuple[str, ...]  # what of that is kept, and the names of counters, in this order
    trace: NumberTrace  # of counters and options
    scalars: tuple[int, ...]  # the places of its scalars in the trace
    counters: dict[str, int]  # and of what the counters are after the step
    moments: tuple[ObservedMoment, ...]

    def step_numbers(self, values: Sequence[float]) -> UpdateNumbers | None:
        """The numbers of a step; None if the program does not serve these values."""
        traced = self.trace.repeat_with(values)
        if traced is None:
            return None
        scalars = [traced[place] for place in self.scalars]
        if not are_usable(scalars):
            raise NoProgram
        counters = {name: np.array(traced[place], COUNTERS[name]) for name, place in self.counters.items()}
        return UpdateNumbers(np.array(scalars or [0.0]), counters)


class RecordedStep(UpdateArithmetic):
    """A step whose arrays are registers: the weight, the gradient, and what is kept of a parameter by these names.

    Its numbers are traced, so that it serves others. Raises NoProgram for what is no elementwise operation, and where a
    format or a mode needs more than programs have.
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
        """The program that ends with the addition of u."""
        after: Any = self._last_addition(u)
        # An array of the state that the step left alone is not written: it stays the array that is kept already.
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
        """What results are rounded to."""
        return self._rules.weights

    @property
    def _is_compensated(self) -> bool:
        return self._rules.is_compensated

    def sign(self, x: Any) -> Any:
        """-1, 0 or 1, exactly; NaN for NaN."""
        return self._writer.apply_unrounded(program_table.SIGN, x)

    def negative(self, x: Any) -> Any:
        """-x, exactly."""
        return self._writer.apply_unrounded(program_table.NEGATE, x)

    def magnitude(self, x: Any) -> Any:
        """|x|, rounded to `weights`."""
        larger = self._writer.apply_unrounded(program_table.LARGEST, x, self.negative(x))
        # The larger one of two zeros may be -0.
        size = self._writer.apply_unrounded(program_table.LARGEST, self._writer.fill(0.0), larger)
        return self._writer.round(size, self._grid)

    def at_least(self, least: float, x: Any) -> Any:
        """No instruction."""
        raise NoProgram

    def sum(self, x: Any, axis: int | None = None) -> Any:
        """No elementwise operation."""
        raise NoProgram

    def matmul(self, a: Any, b: Any) -> Any:
        """No elementwise operation."""
        raise NoProgram

    def count(self) -> Any:
        """The number of this step of the parameter, the first being 1; it is kept."""
        self.state[STEP] = self.state.get(STEP, 0.0) + 1.0
        return self.state[STEP]

    def product(self, name: str, factor: Any) -> Any:
        """The product of this factor and those of the steps before in float32; it is kept."""
        self.state[name] = self._trace.apply(_single_product, self.state.get(name, 1.0), factor)
        return self.state[name]

    def previous_moment(self, name: str, shape: tuple[int, ...]) -> Any:
        """The moment of this name as the last step left it; zeros at first."""
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

#: The latest programs by what their instructions follow from: several where numbers decide what is done, None where
#: there is no program.
_programs: dict[Any, tuple[UpdateProgram, ...] | None] = {}

#: So many kinds of programs are known at most, and so many programs of a kind beside the latest.
MOST, MOST_OF_A_KIND = 256, 15


def run_as_program(
    kind: Any, addend: Addend, step: UpdateArithmetic, gradient: NDArray, options: SimpleNamespace
) -> bool:
    """Update a parameter by a program; returns whether it was done. Where it was not, nothing was changed.

    `kind` stands for the function `addend`: what is added to the parameter, of the step, the gradient and the options.
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
    """The program of an update, known or written now, with its numbers; NoProgram if there is none."""
    # The numbers of a step stand in one list, those of the counters before those of the options. `_split_option`
    # appends them in the order in which `_with_numbers` takes them out, so both walk through nested tuples alike.
    values = [*counters.values()]
    key = (
        kind,
        rules,
        names,
        (*counters,),
        tuple([(name, _split_option(value, values)) for name, value in vars(options).items()]),
    )
    # None is known too: a step without a program is not recorded again each time it is made.
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
    except (TypeError, AttributeError):  # what is done with a number leaves no trace: the program is for these numbers
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
    """Return a program that serves these values alone, with its numbers; NoProgram if there is none."""
    key = (*key, *map(repr, values))  # texts tell 0.0 from -0.0
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
    """The program of an update, whose numbers stand in place of those of the counters and options."""
    counts = {name: next(numbers) for name in counters}
    chosen = SimpleNamespace(**{name: _with_numbers(value, numbers) for name, value in vars(options).items()})
    step = RecordedStep(rules, names, counts, trace)
    u = addend(step, step.gradient, chosen)
    if not isinstance(u, Register):
        raise NoProgram  # what it is instead is an error
    return step.program(u)


def _numbers(program: UpdateProgram, values: Sequence[float]) -> UpdateNumbers:
    step_numbers = program.step_numbers(values)
    assert step_numbers is not None, "a trace holds for the numbers it is of"
    return step_numbers


def _keep(key: Any, programs: tuple[UpdateProgram, ...] | None) -> None:
    if len(_programs) >= MOST:
        _programs.clear()
    _programs[key] = programs


def _split_option(value: Any, values: list[float]) -> Any:
    """Return what an option has in common in all programs of a kind, and append its numbers to `values`."""
    if type(value) is float:
        values.append(value)
        return None
    return tuple([_split_option(part, values) for part in value]) if type(value) is tuple else repr(value)


def _with_numbers(value: Any, numbers: Iterator[Any]) -> Any:
    """An option with these numbers in place of its own."""
    if type(value) is float:
        return next(numbers)
    return tuple([_with_numbers(part, numbers) for part in value]) if type(value) is tuple else value
