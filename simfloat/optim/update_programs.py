"""Updates carried out as programs, where all that they do is elementwise and on float32 arrays."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic import program_runs
from simfloat.arithmetic.arrays import empty
from simfloat.arithmetic.operands import FLOAT32, flat
from simfloat.arithmetic.program_writer import NoProgram, Register
from simfloat.optim.recorded_step import WEIGHT, RecordedStep, UpdateProgram
from simfloat.optim.step import COUNTERS, Step
from simfloat.simulation.place import UpdateRules

Addend = Callable[[Any, Any, SimpleNamespace], Any]

#: The latest programs, None where there is none, by all that they follow from.
_known: dict[Any, UpdateProgram | None] = {}

#: So many programs are known at most: those of an optimizer that counts its steps serve one step.
MOST = 64


def run_as_program(kind: Any, addend: Addend, step: Step, gradient: NDArray, options: SimpleNamespace) -> bool:
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
    counters = {name: state[name] for name in COUNTERS if name in state}
    program = _program(kind, addend, rules, names, counters, options)
    if program is None:
        return False
    shape = gradient.shape
    outputs = {name: empty(shape, np.float32) for name in program.outputs}
    program_runs.run(program.program, [flat(x) for x in arrays], [flat(x) for x in outputs.values()], step.take_draw)
    for name in program.kept:
        state[name] = outputs[name] if name in outputs else program.counters[name].copy()
    step.store(outputs[WEIGHT])
    return True


def _program(
    kind: Any,
    addend: Addend,
    rules: UpdateRules,
    names: tuple[str, ...],
    counters: dict[str, NDArray],
    options: SimpleNamespace,
) -> UpdateProgram | None:
    """The program of an update, known or written now; None if there is none."""
    # Texts tell 0.0 from -0.0.
    key = kind, rules, names, tuple((name, float(count)) for name, count in counters.items()), repr(options)
    if key not in _known:
        if len(_known) >= MOST:
            _known.clear()
        step = RecordedStep(rules, names, counters)
        try:
            u = addend(step, step.gradient, options)
            _known[key] = step.program(u) if isinstance(u, Register) else None  # what it is instead is an error
        except NoProgram:
            _known[key] = None
    return _known[key]
