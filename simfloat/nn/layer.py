"""Layers that declare their options, and the function of an activation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from numpy.typing import NDArray

from simfloat.autodiff import Tensor
from simfloat.autodiff.composites import composite_operation
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor, tensor_of
from simfloat.nn.module import Module
from simfloat.options import read_options, stored_options
from simfloat.simulation.formulas import Rounded


class Layer(Module):
    """The common base of layers that declare their options: it reads, stores and prints them."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        for name, value in read_options(type(self), arguments).items():
            setattr(self, name, value)
        self._start(**arguments)

    def _start(self, **arguments: Any) -> None:
        """Do what is left after the options were stored: check them together, make parameters and buffers."""

    def _options(self) -> dict[str, Any]:
        """Return the stored options by name."""
        return {name: getattr(self, name) for name in stored_options(type(self))}

    def extra_repr(self) -> str:
        """Return the options as text."""
        shown = ((name, repr(value) if isinstance(value, str) else value) for name, value in self._options().items())
        return ", ".join(f"{name}={value}" for name, value in shown)


class Activation(Layer):
    """The common base of activations: `_function` takes x, and the options by name."""

    _function: ClassVar[Callable[..., Tensor]]

    def forward(self, x: Operand) -> Tensor:
        """Map x of any shape to a tensor of the same shape."""
        return self._function(as_tensor(x), **self._options())


def method(name: str) -> Any:
    """Return the `_function` of an activation that is a method of tensors, which takes the options in their order."""
    return staticmethod(lambda x, **options: getattr(x, name)(*options.values()))


def composite(name: str, formula: Callable[..., NDArray], slope: Callable[..., NDArray]) -> Any:
    """Return the `_function` of an activation that is a composite, from its name, its formula and its derivative.

    The formula takes the arithmetic, x and options by name; the derivative also the gradient, before x.
    """

    def function(x: Operand, **options: Any) -> Tensor:
        def to_x(u: Rounded, g: NDArray, outputs: NDArray | None, x: NDArray) -> NDArray:
            return slope(u, g, x, **options)

        return tensor_of(composite_operation(name, partial(formula, **options), (to_x,), x, reads="operands"))

    return staticmethod(function)
