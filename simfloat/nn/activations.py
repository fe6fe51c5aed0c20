"""Activations as layers without parameters."""

from __future__ import annotations

from typing import Literal

from simfloat.autodiff import Tensor
from simfloat.autodiff.by_formula import composite_operation
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor, tensor_of
from simfloat.formulas.activation_formulas import gelu_tanh, gelu_tanh_slope
from simfloat.nn.layer_arguments import as_number, check_not_in_place
from simfloat.nn.module import Module


class ReLU(Module):
    """The larger of x and 0. Raises ValueError for `inplace`.

    Examples:
        >>> layer = sf.nn.ReLU()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-1.0, 0.0, 1.0])
        >>> y.data
        array([0., 0., 1.], dtype=float32)
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        check_not_in_place(inplace)

    def forward(self, x: Operand) -> Tensor:
        """x of any shape -> the same shape."""
        return as_tensor(x).relu()


class LeakyReLU(Module):
    """x where it is positive, else negative_slope * x, rounded once.

    Raises ValueError unless the slope is one number, and for `inplace`.

    Examples:
        >>> layer = sf.nn.LeakyReLU(0.25)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-1.0, 0.0, 1.0])
        >>> y.data
        array([-0.25,  0.  ,  1.  ], dtype=float32)
    """

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        check_not_in_place(inplace)
        self.negative_slope = as_number(negative_slope, "negative_slope")

    def forward(self, x: Operand) -> Tensor:
        """x of any shape -> the same shape."""
        return as_tensor(x).leaky_relu(self.negative_slope)

    def extra_repr(self) -> str:
        """Its slope."""
        return f"negative_slope={self.negative_slope}"


class Tanh(Module):
    """The hyperbolic tangent of x.

    Examples:
        >>> layer = sf.nn.Tanh()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-1.0, 0.0, 1.0])
        >>> y.data
        array([-0.76171875,  0.        ,  0.76171875], dtype=float32)
    """

    def forward(self, x: Operand) -> Tensor:
        """x of any shape -> the same shape."""
        return as_tensor(x).tanh()


class Sigmoid(Module):
    """1 / (1 + exp(-x)), one operation, rounded once.

    Examples:
        >>> layer = sf.nn.Sigmoid()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-1.0, 0.0, 1.0])
        >>> y.data
        array([0.26953125, 0.5       , 0.73046875], dtype=float32)
    """

    def forward(self, x: Operand) -> Tensor:
        """x of any shape -> the same shape."""
        return as_tensor(x).sigmoid()


class GELU(Module):
    """x * Phi(x), Phi being the distribution function of the normal distribution: Hendrycks and Gimpel, 1606.08415.

    Without an approximation it is one operation, rounded once. With ``approximate="tanh"`` it is the composite
    `gelu_tanh`: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))), each step rounded.

    Raises ValueError for another approximation.

    Examples:
        >>> layer = sf.nn.GELU()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-1.0, 0.0, 1.0])
        >>> y.data
        array([-0.15820312,  0.        ,  0.83984375], dtype=float32)
    """

    def __init__(self, approximate: Literal["none", "tanh"] = "none") -> None:
        super().__init__()
        if approximate not in ("none", "tanh"):
            raise ValueError(f"approximate must be 'none' or 'tanh', got {approximate!r}.")
        self.approximate = approximate

    def forward(self, x: Operand) -> Tensor:
        """x of any shape -> the same shape."""
        if self.approximate == "none":
            return as_tensor(x).gelu()
        return tensor_of(composite_operation("gelu_tanh", gelu_tanh, (gelu_tanh_slope,), x, reads="operands"))

    def extra_repr(self) -> str:
        """Its approximation."""
        return f"approximate={self.approximate!r}"


class Softmax(Module):
    """exp(d) / sum(exp(d)) with d = x - max(x) along the axis `dim`.

    Examples:
        >>> layer = sf.nn.Softmax()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([0.0, 1.0, 2.0])
        >>> y.data
        array([0.09033203, 0.24511719, 0.66796875], dtype=float32)
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Operand) -> Tensor:
        """x of any shape -> the same shape."""
        return as_tensor(x).softmax(self.dim)

    def extra_repr(self) -> str:
        """Its axis."""
        return f"dim={self.dim}"


class LogSoftmax(Module):
    """d - log(sum(exp(d))) with d = x - max(x) along the axis `dim`: the logarithm of Softmax.

    Examples:
        >>> layer = sf.nn.LogSoftmax()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([0.0, 1.0, 2.0])
        >>> y.data
        array([-2.40625, -1.40625, -0.40625], dtype=float32)
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Operand) -> Tensor:
        """x of any shape -> the same shape."""
        return as_tensor(x).log_softmax(self.dim)

    def extra_repr(self) -> str:
        """Its axis."""
        return f"dim={self.dim}"
