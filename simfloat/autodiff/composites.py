"""Composites: operations that are made of others, each of which is rounded as the policy says for it.

`composite_operation` carries a composite out by a formula, forward and backward, as one operation of the record.

Where the policy fuses a composite, its steps are rounded to the format of `reduce`, forward and backward, and the
result once, to `activations`. Gradients add up inside, in the format of `reduce` too, and are rounded once where they
leave, to their roles: gradients of operands when they are added up, those of other tensors that the steps use once for
every use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from numpy.typing import NDArray

from simfloat.autodiff.movement import viewable_numbers
from simfloat.autodiff.record import (
    BegunOperation,
    Operand,
    OperationResult,
    Operations,
    Reads,
    Result,
    begin,
    finish,
    sum_to_shape,
)
from simfloat.autodiff.reductions import Axes, normalized_axes
from simfloat.autodiff.variable import Derivative, Variable, as_variable
from simfloat.common import check_flags, is_integer
from simfloat.environment import in_usual_environment
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.context import composite
from simfloat.simulation.formulas import Rounded, Slope, keepdims_shape, slopes
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


@in_usual_environment
class Composites(Operations[Result]):
    """The composites of a tensor."""

    def softmax(self, axis: int = -1) -> Result:
        """exp(d) / sum(exp(d)) with d = x - max(x) along `axis`, each step rounded unless it is fused."""
        axes = _axes_with_elements(self, axis)

        def slope(u: Rounded, g: NDArray, y: NDArray, x: NDArray | None) -> NDArray:
            return slopes.softmax_slope(u, g, y, axes)

        formula = partial(slopes.softmax, axes=axes)
        return self.from_result(composite_operation("softmax", formula, (slope,), self, reads="result"))

    def log_softmax(self, axis: int = -1) -> Result:
        """d - log(sum(exp(d))) with d = x - max(x) along `axis`, each step rounded unless it is fused."""
        axes = _axes_with_elements(self, axis)

        def slope(u: Rounded, g: NDArray, y: NDArray, x: NDArray | None) -> NDArray:
            return slopes.log_softmax_slope(u, g, y, axes)

        formula = partial(slopes.log_softmax, axes=axes)
        return self.from_result(composite_operation("log_softmax", formula, (slope,), self, reads="result"))

    def logsumexp(self, axis: Axes = None, keepdims: bool = False) -> Result:
        """log(sum(exp(d))) + m with d = x - m and m = max(x) along `axis`; -inf, with no gradient, where all x are."""
        check_flags(keepdims=keepdims)
        axes = _axes_with_elements(self, axis)
        shape = keepdims_shape(self.shape, axes)

        def formula(u: Rounded, x: NDArray) -> NDArray:
            result = slopes.logsumexp(u, x, axes)
            return result.reshape(shape) if keepdims else result

        def slope(u: Rounded, g: NDArray, y: NDArray, x: NDArray) -> NDArray:
            return slopes.logsumexp_slope(u, g.reshape(shape), y.reshape(shape), x)

        return self.from_result(composite_operation("logsumexp", formula, (slope,), self))

    def var(self, axis: Axes = None, keepdims: bool = False, *, correction: int = 0) -> Result:
        """The sum of (x - mean(x))^2 over `axis`, divided by their number less `correction`.

        Raises ValueError unless correction is an integer from 0.
        """
        if not is_integer(correction, 0):
            raise ValueError(f"correction is an integer from 0, got {correction!r}.")

        def steps(x: Any) -> Any:
            squares = (x - x.mean(axis, keepdims=True)).square()
            if not correction:
                return squares.mean(axis, keepdims)
            count = math.prod(x.shape[i] for i in normalized_axes(axis, x.ndim))
            return squares.sum(axis, keepdims) / float(max(count - correction, 0))

        return run_composite("var", steps, [self], self.from_result)


def run_composite(
    name: str, steps: Callable[..., Any], operands: Sequence[Variable], from_result: Callable[[OperationResult], Result]
) -> Result:
    """The composite `name` of the catalog: `steps` of the operands, in whose place their operations run."""
    is_fused = current().place(name).recipe.fused
    inside = [from_result(_enter(name, x)) for x in operands] if is_fused else operands
    with composite(name):
        result = steps(*inside)
    if not is_fused:
        return result
    if not isinstance(result, Operations):
        raise ValueError(f"A fused composite gives one tensor, whose numbers are rounded once; {name} gave {result!r}.")
    return from_result(_leave(name, result, operands or [result]))


def _enter(name: str, x: Variable) -> OperationResult:
    """An operand as the inside of the fused composite sees it: the same numbers."""
    started = begin(name, x)
    used = started.operands[0]
    return finish(started, viewable_numbers(used), used.format, lambda u, g: u.round(g), is_view=True)


def _leave(name: str, result: Variable, operands: Sequence[Variable]) -> OperationResult:
    """The result of the fused composite, rounded as results of operations on these operands are."""
    arithmetic = begin(name, *operands).forward
    return finish(begin(name, result), arithmetic.round(result.numbers), arithmetic.format, lambda u, g: g)


def _axes_with_elements(x: Any, axis: Axes) -> tuple[int, ...]:
    """Axes as numbers; ValueError where there is no element along them."""
    axes = normalized_axes(axis, x.ndim)
    if not all(x.shape[i] for i in axes):
        raise ValueError(f"A softmax needs at least one element along axis {axis}, got shape {x.shape}.")
    return axes
