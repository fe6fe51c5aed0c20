"""Composites that are carried out by a formula, forward and backward, as one operation of the record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from simfloat.autodiff.record import BegunOperation, Operand, OperationResult, Reads, begin, finish, sum_to_shape
from simfloat.autodiff.variable import Derivative, as_variable
from simfloat.formulas.rounded import Slope
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.inside import CompositeArithmetic
from simfloat.simulation.place import Place
from simfloat.simulation.simulation import Simulation, current


def composite_operation(
    name: str, formula: Callable[..., Any], slopes: tuple[Slope, ...], *operands: Operand, reads: Reads = "both"
) -> OperationResult:
    """The composite `name` of the catalog, by a formula of the arithmetic and the operands' arrays.

    The formula gives the result, or a tuple of it and of what slopes read besides. Of each operand there is a slope, a
    function of the arithmetic of its gradient's role, the gradient of the result, what the formula gave, and the
    arrays; `reads` says which of these all slopes read, and they get None for others. Gradients are summed over axes
    along which an operand was broadcast.

    Forward, each step is rounded as the policy says for its operation inside of the composite; backward, as it says for
    the composite itself. Where it is fused, steps are rounded to the format of `reduce`, and the result and each
    gradient once, to their roles.
    """
    started, simulation = begin(name, *map(as_variable, operands)), current()
    arrays = [x.numbers for x in started.operands]
    inside = CompositeArithmetic.forward(simulation, started.place, [(x.numbers, x.format) for x in started.operands])
    outputs = formula(inside, *arrays)
    result = inside.round_result(outputs[0] if isinstance(outputs, tuple) else outputs, tuple(arrays))
    if started.place.recipe.fused:
        outputs = (result, *outputs[1:]) if isinstance(outputs, tuple) else result
    read_outputs = outputs
    if reads not in ("result", "both"):  # what no slope reads is not kept for it
        read_outputs = (None, *outputs[1:]) if isinstance(outputs, tuple) else None
    read = arrays if reads in ("operands", "both") else [None] * len(arrays)
    derivatives = [
        _derivative(simulation, started, number, lambda u, g, slope=slope: slope(u, g, read_outputs, *read))
        for number, slope in enumerate(slopes)
    ]
    return finish(started, result, inside.format_of(result), *derivatives, reads=reads, inside=inside.places)


def _derivative(simulation: Simulation, started: BegunOperation, number: int, slope: Slope) -> Derivative:
    """The gradient of the operand of this number, by its slope."""
    operand, place, path = started.operands[number], started.place, started.paths[number]
    shape = operand.shape
    if not place.recipe.fused:
        return lambda u, g: sum_to_shape(u, slope(u, g), shape)
    format = operand.stored_format if place.takes_formats else None

    def rounds(step: Place, _: Any) -> Arithmetic:
        return step.to_activation(number, format) if path is None else step.to_weight(path, number, format)

    def fused(u: Arithmetic, g: NDArray) -> NDArray:
        inside = CompositeArithmetic(simulation, place, rounds)
        return u.round(sum_to_shape(inside, slope(inside, g), shape))

    return fused
