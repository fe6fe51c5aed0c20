"""Updates carried out as programs, where all that they do is elementwise and on float32 arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic import program_runs
from simfloat.arithmetic.nan_causes import is_precise, is_wide
from simfloat.arithmetic.operands import FLOAT32, flat
from simfloat.arithmetic.program_writer import NoProgram, Register
from simfloat.arithmetic.traced_numbers import NumberTrace
from simfloat.kernels.events import PRECISE, TOTAL, UNCHANGED, WIDE
from simfloat.simulation.update_rules import UpdateRules
from simfloat.updates.recorded_step import WEIGHT, RecordedStep, UpdateNumbers, UpdateProgram
from simfloat.updates.update_arithmetic import COUNTERS, UpdateArithmetic

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
    events = program_runs.run(program.instructions, scalars, *vectors, step.take_draw)
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
    # The numbers of a step stand in one list, those of the counters before those of the options. `_split_option` appends them
    # in the order in which `_with_numbers` takes them out again, so both have to walk through nested tuples alike.
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
