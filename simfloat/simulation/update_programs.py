"""The update of a parameter as a compiled program, if all its operations are elementwise and on float32 arrays.

On a GPU, such an update is one launch.

A step is recorded once (`RecordedStep`), and then serves all parameters with the same update rules
(`run_as_program`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.casts import Cast
from simfloat.arithmetic.machines import CPU, GPU, is_on_gpu, on_cpu
from simfloat.arithmetic.operands import FLOAT32, empty, flat
from simfloat.arithmetic.programs import (
    EventLabel,
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
from simfloat.arithmetic.target import AddingObserver, BoundCounts, WithPath, bound_counts, notify
from simfloat.formats import Format
from simfloat.kernels import program_table
from simfloat.kernels.rounding.events import END_OF_FLOAT32, FIRST_OF_FLOAT32, SIZE, UNCHANGED
from simfloat.simulation.place import Place, UpdateRules
from simfloat.simulation.updates import COUNTERS, STEP, UpdateArithmetic

#: The name of the new parameter among the outputs.
WEIGHT = ""

#: The position of the gradient among the vectors that a program reads; the optimizer state follows.
GRADIENT = 1


#: The value of a moment before the first step.
NO_MOMENT = np.zeros(1, np.float32)

#: The columns of the events that float32 results may have.
EVENTS_OF_FLOAT32 = np.r_[tuple(map(slice, FIRST_OF_FLOAT32, END_OF_FLOAT32))]


class ObservedMoment(NamedTuple):
    """A moment with stalled elements to be counted for an observer.

    `before` is the position of its vector among the vectors that the program reads, None for a new moment; `after` is
    its position among the vectors that the program writes.
    """

    before: int | None
    after: int


class UpdateProgram(NamedTuple):
    """The update of a parameter: it reads the weight, the gradient and the optimizer state, in this order."""

    instructions: Instructions
    outputs: tuple[str, ...]  # the names of the arrays that it writes
    state_names: tuple[str, ...]  # the names of stored arrays, then of counters
    compute_numbers: Callable[..., Sequence[float] | None]  # (counters, options) -> the scalars, then new counters
    scalar_count: int
    counters: tuple[str, ...]
    moments: dict[str, ObservedMoment]  # by the name of their stream

    def with_numbers(self, numbers: Sequence[float]) -> UpdateNumbers | None:
        """Return the program with the scalars and counters of a step; None if programs do not support a scalar."""
        scalars, counters = numbers[: self.scalar_count], numbers[self.scalar_count :]
        if not are_usable(scalars):
            return None
        return UpdateNumbers(self, np.array(scalars or [0.0]), dict(zip(self.counters, counters, strict=True)))


class WithoutProgram(NamedTuple):
    """An update that is no program, for the numbers for which `compute_numbers` returns a value."""

    compute_numbers: Callable[..., Sequence[float] | None]

    def with_numbers(self, numbers: Sequence[float]) -> None:
        """Return None: no program computes with these numbers."""


class UpdateNumbers(NamedTuple):
    """A program with the scalars of a step."""

    program: UpdateProgram
    scalars: NDArray[np.float64]
    counters: dict[str, float]  # after the step


class ObservedResult(NamedTuple):
    """The instructions with the results of one operation, and the observer that receives their events."""

    rows: list[int]  # of the events; several rows for an observer that only adds up events
    observer: WithPath
    operation: str
    moment: ObservedMoment | None
    counts: BoundCounts | None  # of an observer that only adds up events


class BoundUpdate:
    """A program at the place of a parameter: its random streams, and the observers of its results."""

    __slots__ = ("_moments", "_without_counts", "_sums", "instructions", "observed", "program", "streams")

    def __init__(self, program: UpdateProgram, place: Place) -> None:
        instructions = program.instructions
        self.program = program
        self.streams: list[Any] = [place.target_of_update(stream).stream for _, stream in instructions.draws]
        observers = [place.target_of_update(label.stream).observer for label in instructions.counted]
        wanted = [number for number, observer in enumerate(observers) if observer is not None]
        self.instructions = instructions.count_only(wanted) if len(wanted) < len(observers) else instructions
        self.observed: list[ObservedResult] = []
        # Sums of the events that the observer has not received yet, in the columns of float32 results. Adding 17 KB for
        # each row of each update took as long as the update.
        self._sums: NDArray[np.int64] | None = None
        rows: dict[EventLabel, list[int]] = {}
        for row, number in enumerate(wanted):
            label, observer = instructions.counted[number], observers[number]
            assert isinstance(observer, WithPath)
            counts = bound_counts(observer, label.operation)
            if label in rows and counts is not None:
                rows[label].append(row)
            else:
                rows[label] = [row]
                moment = program.moments[label.stream] if label.operation == "moment" else None
                self.observed.append(ObservedResult(rows[label], observer, label.operation, moment, counts))
        self._without_counts = [result for result in self.observed if result.counts is None]
        self._moments = [(result.rows[0], result.moment) for result in self.observed if result.moment is not None]

    def notify(self, events: NDArray[np.int64], read: Sequence[NDArray], written: Sequence[NDArray]) -> None:
        """Send the events of an update to the observers, and set `events` to zero for the next update."""
        for row, moment in self._moments:
            before = NO_MOMENT if moment.before is None else read[moment.before]
            # All results are finite. Otherwise the loop would have refused to count them.
            count = CPU.loops.programs.count_stalled(before, written[moment.after], read[GRADIENT])
            events[row, UNCHANGED] = count
        for result in self._without_counts:
            notify(result.observer, events[result.rows[0]].copy(), result.operation)
        counts = self.observed[0].counts
        if counts is not None:
            with counts.lock:
                self._add(counts.observer, events)
        else:
            events[:, EVENTS_OF_FLOAT32] = 0

    def _add(self, observer: AddingObserver, events: NDArray[np.int64]) -> None:
        """Add events to the sums; the observer receives them before its counts are read."""
        if self._sums is None:
            for result in self.observed:
                if result.counts is not None:
                    result.counts.vector()  # the keys of an observer have the order of their first events
            # After Ctrl-C between these lines, the function waits twice, and the second call has nothing to add.
            observer.add_later(self._add_sums)
            self._sums = np.zeros((len(events), len(EVENTS_OF_FLOAT32)), np.int64)
        CPU.loops.programs.move_events(events, self._sums)

    def _add_sums(self) -> None:
        """Add the sums of events to the counts of the observer."""
        sums, self._sums = self._sums, None
        if sums is None:
            return
        for result in self.observed:
            if result.counts is not None:
                result.counts.vector()[EVENTS_OF_FLOAT32] += sums[result.rows].sum(0)


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
        counters = {name: x for name, x in changed_state.items() if name in COUNTERS}
        places = {name: GRADIENT + 1 + number for number, name in enumerate(self._names)}
        written = [*outputs]
        moments = {f".{x}": ObservedMoment(places.get(x), written.index(x)) for x in self._moments}
        instructions = self._writer.program([*outputs.values()])
        scalars = self._writer.scalars
        compute_numbers = self._trace.write_function([*scalars, *counters.values()])
        return UpdateProgram(
            instructions, tuple(outputs), tuple(changed_state), compute_numbers, len(scalars), tuple(counters), moments
        )

    @property
    def format(self) -> Format:
        """The format of results."""
        return self._rules.weights

    @property
    def _is_compensated(self) -> bool:
        return self._rules.is_compensated

    @property
    def _moment_cast(self) -> Cast:
        return self._rules.optimizer_state

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
        return program_grid(self._moment_cast.format, self._moment_cast.rounding, f".{name}")


def _single_product(a: float, b: float) -> float:
    return float(np.float32(a) * np.float32(b))


Addend = Callable[[Any, Any, SimpleNamespace], Any]

#: The latest programs by everything that determines their instructions. There are several if scalars decide on the
#: operations.
_programs: dict[Any, tuple[UpdateProgram | WithoutProgram, ...]] = {}

#: The stored arrays of a parameter, by name.
State = dict[str, NDArray]

#: Maximum numbers of kinds of programs, and of programs of a kind in addition to the latest.
MOST, MOST_OF_A_KIND = 256, 15


class UpdateGroup:
    """The updates of one step that share a formula and its options.

    `kind` identifies the function `addend`, which returns the value to add to the parameter from the step, the
    gradient and the options. Parameters with the same update rules, names in their state and counters share a program
    and its scalars.
    """

    __slots__ = ("_addend", "_kind", "_options", "_values", "numbers")

    def __init__(self, kind: Any, addend: Addend, options: SimpleNamespace) -> None:
        self._addend, self._options = addend, options
        # `_split_options` appends the scalars in the order in which `_with_numbers` reads them, so both traverse nested
        # tuples in the same order.
        self._values: list[float] = []
        self._kind = kind, tuple(vars(options)), _split_options(vars(options).values(), self._values)
        #: The programs with their scalars, by rules, names and bits of counters; None if there is no program.
        self.numbers: dict[Any, UpdateNumbers | None] = {}

    def find_numbers(self, rules: UpdateRules, state: State) -> UpdateNumbers | None:
        """Return the program of an update, cached or new, with its scalars; None if there is none."""
        # The scalars of a step are in one list: first the counters, then the options.
        values = [*[float(state[name]) for name in COUNTERS if name in state], *self._values]
        key = self._kind, rules, _split_names(state)
        programs = _programs.get(key, ())
        for program in programs:
            numbers = program.compute_numbers(*values)
            if numbers is not None:
                return program.with_numbers(numbers)
        if len(_programs) >= MOST:
            _programs.clear()
        program = self._new_program(rules, state, values)
        _programs[key] = (*programs[-MOST_OF_A_KIND:], program)
        numbers = program.compute_numbers(*values)
        assert numbers is not None, "a program is valid for the scalars with which it was recorded"
        return program.with_numbers(numbers)

    def _new_program(self, rules: UpdateRules, state: State, values: list[float]) -> UpdateProgram | WithoutProgram:
        trace = NumberTrace(values)
        try:
            try:
                return self._record(rules, state, trace, iter(trace.traced_inputs))
            except (TypeError, AttributeError):
                # An operation on a scalar cannot be traced, so the program is only valid for these scalars.
                trace = NumberTrace(values)
                for x in trace.traced_inputs:
                    trace.decide(repr, x)  # texts distinguish 0.0 from -0.0
                return self._record(rules, state, trace, iter(values))
        except NoProgram:
            # It is not recorded again every time. Other numbers may have a program: the first step of SGD has none if
            # an observer counts the copy of the gradient to the momentum, and has one without momentum.
            return WithoutProgram(trace.write_function(()))

    def _record(self, rules: UpdateRules, state: State, trace: NumberTrace, numbers: Iterator[Any]) -> UpdateProgram:
        """Record the program of an update, with `numbers` instead of the counters and options."""
        names, counters = _split_names(state)
        counts = {name: next(numbers) for name in counters}
        chosen = {name: _with_numbers(value, numbers) for name, value in vars(self._options).items()}
        step = RecordedStep(rules, names, counts, trace)
        u = self._addend(step, step.gradient, SimpleNamespace(**chosen))
        if not isinstance(u, Register):
            raise NoProgram  # any other type is an error, which is raised without a program
        return step.program(u)


#: No memory: new arrays are allocated.
NO_MEMORY: State = {}


def run_as_program(
    group: UpdateGroup, place: Place, weight: NDArray, gradient: NDArray, state: State, memory: State = NO_MEMORY
) -> NDArray | None:
    """Update the state of a parameter, and return its new values; None if no program can do so: nothing is changed.

    `memory` has arrays in C order for results, by the name of the moment, or `WEIGHT` for the values of the parameter.
    """
    rules = place.update_rules
    if rules is None:
        return None
    kind = type(gradient)
    device = CPU if kind is np.ndarray else GPU
    # On a GPU, an observer needs single operations: `run` counts nothing there.
    if device is GPU and (rules.is_observed or not is_on_gpu(gradient)):
        return None
    arrays: list[NDArray] = [weight, gradient]
    names: list[Any] = [rules]
    for name, x in state.items():
        if name in COUNTERS:
            # PyTorch's fused optimizers store counters on the GPU.
            names += name, x.tobytes() if device is CPU else on_cpu(x).tobytes()
        else:
            arrays.append(x)
            names.append(name)
    for x in arrays:
        if type(x) is not kind or x.dtype != FLOAT32:
            return None
    key = tuple(names)
    if key not in group.numbers:
        group.numbers[key] = group.find_numbers(rules, state)
    numbers = group.numbers[key]
    if numbers is None:
        return None
    program, bound = numbers.program, place.bound_update
    if bound is None or bound.program is not program:
        bound = place.bound_update = BoundUpdate(program, place)
    outputs = {
        name: memory[name] if name in memory else empty(gradient.shape, FLOAT32, device) for name in program.outputs
    }
    read, written = [flat(x) for x in arrays], [x.reshape(-1) for x in outputs.values()]
    zeros = _take_zeros(len(bound.instructions.counted)) if bound.observed else None
    events = run(bound.instructions, numbers.scalars, read, written, bound.streams, zeros)
    if events is None:
        return None
    if bound.observed:
        bound.notify(events, read, written)
        _spare.setdefault(len(events), []).append(events)
    for name in program.state_names:
        state[name] = outputs[name] if name in outputs else np.array(numbers.counters[name], COUNTERS[name])
    return outputs[WEIGHT]


#: Unused arrays of zeros for events, by their number of rows. A row has 17 KB.
_spare: dict[int, list[NDArray[np.int64]]] = {}


def _take_zeros(rows: int) -> NDArray[np.int64]:
    """Return an array of zeros for the events of an update."""
    try:
        return _spare[rows].pop()
    except (KeyError, IndexError):
        return np.zeros((rows, SIZE), np.int64)


def _split_names(state: State) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of arrays in the state of a parameter, and the names of counters."""
    return tuple([name for name in state if name not in COUNTERS]), tuple([name for name in COUNTERS if name in state])


def _split_options(options: Iterable[Any], values: list[float]) -> tuple[Any, ...]:
    """Append the scalars of options to `values`, and return the rest, which all programs of a kind share."""
    rest: list[Any] = []
    for option in options:
        if type(option) is float:
            values.append(option)
            rest.append(None)
        else:
            rest.append(_split_options(option, values) if type(option) is tuple else repr(option))
    return tuple(rest)


def _with_numbers(value: Any, numbers: Iterator[Any]) -> Any:
    """Return an option with its scalars replaced by these."""
    if type(value) is float:
        return next(numbers)
    return tuple([_with_numbers(part, numbers) for part in value]) if type(value) is tuple else value
