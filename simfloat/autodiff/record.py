"""How an operation is carried out and recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from numpy.typing import ArrayLike, NDArray

from simfloat.autodiff.place import Place, Unit
from simfloat.autodiff.simulation import current, is_recording
from simfloat.autodiff.tape import Derivative, Node
from simfloat.autodiff.tensor import Parameter, Tensor

Operand = Tensor | ArrayLike


def begin(operation: str, *operands: Tensor) -> Place:
    """The place of an operation on these operands, whose parameters are brought into their format first."""
    simulation = current()
    for operand in operands:
        if isinstance(operand, Parameter):
            operand.conform(simulation.place("update", operand.path).recipe.weights)
    return simulation.place(operation)


def finish(place: Place, data: NDArray, parents: tuple[Tensor, ...], *derivatives: Derivative | None) -> Tensor:
    """The result as a tensor, recorded if one of the parents requires a gradient."""
    result = Tensor(data)
    if is_recording():
        for parent in parents:
            if parent.requires_grad:
                result.requires_grad = True
                result.node = Node(parents, derivatives, place)
                break
    return result


@contextmanager
def composite(name: str) -> Iterator[None]:
    """A ``with`` block whose operations are parts of the composite `name`, for overrides by operation."""
    simulation = current()
    simulation.enter_composite(name)
    try:
        yield
    finally:
        simulation.leave_composite()


def summed_to(unit: Unit, gradient: NDArray, shape: tuple[int, ...]) -> NDArray:
    """The gradient summed over the axes along which an operand of `shape` was broadcast."""
    if gradient.shape == shape:
        return gradient
    added = gradient.ndim - len(shape)
    axes = [i for i in range(gradient.ndim) if i < added or (shape[i - added] == 1 and gradient.shape[i] != 1)]
    return unit.sum(gradient, tuple(axes)).reshape(shape)


def passed_to(unit: Unit, gradient: NDArray, shape: tuple[int, ...]) -> NDArray:
    """The same for a gradient that is otherwise unchanged: it is rounded to its role either way."""
    return unit.round(gradient) if gradient.shape == shape else summed_to(unit, gradient, shape)
