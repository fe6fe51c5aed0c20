"""A step that is written down as a program, which then serves all parameters to which the same is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.program_writer import (
    Instructions,
    NoProgram,
    ProgramGrid,
    ProgramWriter,
    are_usable,
    program_grid,
)
from simfloat.arithmetic.traced_numbers import NumberTrace
from simfloat.formats import Format
from simfloat.kernels import program_table
from simfloat.simulation.update_rules import UpdateRules
from simfloat.updates.update_arithmetic import COUNTERS, STEP, UpdateArithmetic, count_stalled

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
