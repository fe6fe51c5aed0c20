"""Activations as layers without parameters."""

from __future__ import annotations

from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff import Operand, Tensor, as_tensor
from simfloat.nn.module import Module


class ReLU(Module):
    """The larger of x and 0."""

    def forward(self, x: Operand) -> Tensor:
        """x of any shape -> the same shape."""
        return as_tensor(x).relu()


class LeakyReLU(Module):
    """x where it is positive, else negative_slope * x, rounded once.

    Raises ValueError unless the slope is one number.
    """

    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        if as_operand(negative_slope, "negative_slope").ndim:
            raise ValueError(f"negative_slope must be one number, got {negative_slope!r}.")
        self.negative_slope = float(negative_slope)

    def forward(self, x: Operand) -> Tensor:
        """x of any shape -> the same shape."""
        return as_tensor(x).leaky_relu(self.negative_slope)

    def extra_repr(self) -> str:
        """Its slope."""
        return f"negative_slope={self.negative_slope}"
