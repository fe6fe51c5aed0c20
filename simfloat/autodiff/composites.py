"""Composites: operations that consist of other operations, each rounded as the policy says for it.

`composite_operation` computes a composite by a formula, forward and backward, as one recorded operation.

If the policy fuses a composite, its steps are rounded to the format of `reduce`, forward and backward, and the result
is rounded once, to `activations`. Inside, gradients are also added in the format of `reduce`. They are rounded once
to their roles when they leave: the gradient of an operand after it is summed, the gradient of another tensor that the
steps use once for every use.
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
)
from simfloat.autodiff.reductions import Axes, normalized_axes
from simfloat.autodiff.variable import Derivative, Variable
from simfloat.common import check_flags, is_integer
from simfloat.environment import in_usual_environment
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.context import composite
from simfloat.simulation.formulas import Rounded, Slope, keepdims_shape, slopes, sum_to_shape
from simfloat.simulation.inside import CompositeArithmetic
from simfloat.simulation.place import Place
from simfloat.simulation.simulation import current


def composite_operation(
    name: str, formula: Callable[..., Any], slopes: tuple[Slope, ...], *operands: Operand, reads: Reads = "both"
) -> OperationResult:
    """Compute the composite `name` of the catalog by a formula.

    The formula takes the arithmetic and the arrays of the operands. It returns the result, or a tuple of the result
    and other arrays that slopes read. For each operand there is a slope: a function of the arithmetic of the role of
    its gradient, the gradient of the result, the outputs of the formula, and the arrays. `reads` says which of these
    the slopes read; the others are passed as None. Gradients are summed over axes along which an operand was
    broadcast.

    In the forward pass, each step is rounded as the policy says for this operation inside the composite; in the
    backward pass, as it says for the composite. If the composite is fused, steps are rounded to the format of
    `reduce`, and the result and each gradient once, to their roles.
    """
    started = begin(name, *operands)
    place, arrays = started.bound.place, [x.numbers for x in started.operands]
    inside = CompositeArithmetic.forward(started.simulation, place, [(x.numbers, x.format) for x in started.operands])
    outputs = formula(inside, *arrays)
    result = inside.round_result(outputs[0] if isinstance(outputs, tuple) else outputs, tuple(arrays))
    if place.is_fused:
        outputs = (result, *outputs[1:]) if isinstance(outputs, tuple) else result
    read_outputs = outputs
    if reads not in ("result", "both"):  # do not keep arrays that no slope reads
        read_outputs = (None, *outputs[1:]) if isinstance(outputs, tuple) else None
    read = arrays if reads in ("operands", "both") else [None] * len(arrays)
    derivative = _fused_derivative if place.is_fused else _derivative
    derivatives = [derivative(started, number, slope, read_outputs, read) for number, slope in enumerate(slopes)]
    return finish(started, result, inside.format_of(result), *derivatives, reads=reads, inside=inside.places)


def _derivative(started: BegunOperation, number: int, slope: Slope, outputs: Any, read: Sequence[Any]) -> Derivative:
    """Return the gradient of operand `number` by its slope."""
    shape = started.operands[number].numbers.shape
    return lambda u, g: sum_to_shape(u, slope(u, g, outputs, *read), shape)


def _fused_derivative(
    started: BegunOperation, number: int, slope: Slope, outputs: Any, read: Sequence[Any]
) -> Derivative:
    """Return the gradient of operand `number` of a composite that is rounded once."""
    bound, operand, simulation = started.bound, started.operands[number], started.simulation
    place, path, shape = bound.place, bound.paths[number], operand.numbers.shape
    format = operand.stored_format if place.takes_formats else None

    def rounds(step: Place, _: Any) -> Arithmetic:
        return step.to_operand(path, number, format)

    def fused(u: Arithmetic, g: NDArray) -> NDArray:
        inside = CompositeArithmetic(simulation, place, rounds)
        return u.round(sum_to_shape(inside, slope(inside, g, outputs, *read), shape))

    return fused


@in_usual_environment
class Composites(Operations[Result]):
    """The composites of a tensor."""

    def softmax(self, axis: int = -1) -> Result:
        """exp(d) / sum(exp(d)) with d = x - max(x) along `axis`; each step is rounded unless softmax is fused."""
        axes = _axes_with_elements(self, axis)

        def slope(u: Rounded, g: NDArray, y: NDArray, x: NDArray | None) -> NDArray:
            return slopes.softmax_slope(u, g, y, axes)

        formula = partial(slopes.softmax, axes=axes)
        return self.from_result(composite_operation("softmax", formula, (slope,), self, reads="result"))

    def log_softmax(self, axis: int = -1) -> Result:
        """d - log(sum(exp(d))) with d = x - max(x) along `axis`; each step is rounded unless log_softmax is fused."""
        axes = _axes_with_elements(self, axis)

        def slope(u: Rounded, g: NDArray, y: NDArray, x: NDArray | None) -> NDArray:
            return slopes.log_softmax_slope(u, g, y, axes)

        formula = partial(slopes.log_softmax, axes=axes)
        return self.from_result(composite_operation("log_softmax", formula, (slope,), self, reads="result"))

    def logsumexp(self, axis: Axes = None, keepdims: bool = False) -> Result:
        """log(sum(exp(d))) + m with d = x - m and m = max(x) along `axis`; -inf without gradient if all x are -inf."""
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
        """Return the sum of (x - mean(x))^2 over `axis`, divided by the number of elements minus `correction`.

        `keepdims=True` keeps the reduced axes with size 1. Raises ValueError unless correction is an integer from 0.
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
    """Run the composite `name` of the catalog: `steps` of the operands, whose operations run inside the composite."""
    is_fused = current().place(name).is_fused
    inside = [from_result(_enter(name, x)) for x in operands] if is_fused else operands
    with composite(name):
        result = steps(*inside)
    if not is_fused:
        return result
    if not isinstance(result, Operations):
        raise ValueError(
            f"A fused composite must return one tensor, which is rounded once; {name} returned {result!r}."
        )
    return from_result(_leave(name, result, operands or [result]))


def _enter(name: str, x: Variable) -> OperationResult:
    """Return an operand for the inside of the fused composite, with the same values."""
    started = begin(name, x)
    used = started.operands[0]
    return finish(started, viewable_numbers(used), used.format, lambda u, g: u.round(g), is_view=True)


def _leave(name: str, result: Variable, operands: Sequence[Variable]) -> OperationResult:
    """Return the result of the fused composite, rounded as the result of an operation on these operands."""
    arithmetic = begin(name, *operands).forward
    return finish(begin(name, result), arithmetic.round(result.numbers), arithmetic.format, lambda u, g: g)


def _axes_with_elements(x: Any, axis: Axes) -> tuple[int, ...]:
    """Return axes as non-negative numbers; ValueError if there is no element along them."""
    axes = normalized_axes(axis, x.ndim)
    if not all(x.shape[i] for i in axes):
        raise ValueError(f"A softmax needs at least one element along axis {axis}, got shape {x.shape}.")
    return axes
