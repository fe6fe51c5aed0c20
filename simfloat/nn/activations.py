"""Activations as layers without parameters; the piecewise linear ones are among them."""

from __future__ import annotations

from typing import Literal

from simfloat.autodiff import Tensor
from simfloat.autodiff.composites import composite_operation
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor, tensor_of
from simfloat.nn.arguments import apply_activation, as_number, check_axes, check_not_in_place
from simfloat.nn.module import Module
from simfloat.simulation.formulas import activations
from simfloat.simulation.formulas.activations import gelu_tanh, gelu_tanh_slope


class ReLU(Module):
    """max(x, 0).

    Parameters:
        inplace: must be False; tensors are never overwritten.

    Raises:
        ValueError: if inplace is true.

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
        """Map x of any shape to a tensor of the same shape."""
        return as_tensor(x).relu()


class LeakyReLU(Module):
    """x if x > 0, otherwise negative_slope * x, rounded once.

    Parameters:
        negative_slope: the factor for negative elements, a finite number.
        inplace: must be False; tensors are never overwritten.

    Raises:
        ValueError: if negative_slope is not a finite number; if inplace is true.

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
        """Map x of any shape to a tensor of the same shape."""
        return as_tensor(x).leaky_relu(self.negative_slope)

    def extra_repr(self) -> str:
        """Return the slope as text."""
        return f"negative_slope={self.negative_slope}"


class Tanh(Module):
    """The hyperbolic tangent of x, rounded once.

    Examples:
        >>> layer = sf.nn.Tanh()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-1.0, 0.0, 1.0])
        >>> y.data
        array([-0.76171875,  0.        ,  0.76171875], dtype=float32)
    """

    def forward(self, x: Operand) -> Tensor:
        """Map x of any shape to a tensor of the same shape."""
        return as_tensor(x).tanh()


class Sigmoid(Module):
    """1 / (1 + exp(-x)), rounded once as a single operation.

    Examples:
        >>> layer = sf.nn.Sigmoid()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-1.0, 0.0, 1.0])
        >>> y.data
        array([0.26953125, 0.5       , 0.73046875], dtype=float32)
    """

    def forward(self, x: Operand) -> Tensor:
        """Map x of any shape to a tensor of the same shape."""
        return as_tensor(x).sigmoid()


class GELU(Module):
    """x * Phi(x), where Phi is the distribution function of the standard normal distribution.

    Parameters:
        approximate: "none" is one operation, rounded once. "tanh" is the composite `gelu_tanh`, x / 2 * (1 +
            tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))), with each step rounded.

    Raises:
        ValueError: if approximate is neither "none" nor "tanh".

    Source: Hendrycks and Gimpel, arXiv 1606.08415.

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
        """Map x of any shape to a tensor of the same shape."""
        if self.approximate == "none":
            return as_tensor(x).gelu()
        return tensor_of(composite_operation("gelu_tanh", gelu_tanh, (gelu_tanh_slope,), x, reads="operands"))

    def extra_repr(self) -> str:
        """Return the approximation as text."""
        return f"approximate={self.approximate!r}"


class Softmax(Module):
    """exp(d) / sum(exp(d)) with d = x - max(x), along one axis.

    Parameters:
        dim: the axis; by default the last.

    Raises:
        ValueError: if `dim` is not an integer; when called, if the axis is missing.

    Examples:
        >>> layer = sf.nn.Softmax()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([0.0, 1.0, 2.0])
        >>> y.data
        array([0.09033203, 0.24511719, 0.66796875], dtype=float32)
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        check_axes(dim=dim)
        self.dim = dim

    def forward(self, x: Operand) -> Tensor:
        """Map x of any shape to a tensor of the same shape."""
        return as_tensor(x).softmax(self.dim)

    def extra_repr(self) -> str:
        """Return the axis as text."""
        return f"dim={self.dim}"


class LogSoftmax(Module):
    """The logarithm of Softmax: d - log(sum(exp(d))) with d = x - max(x), along one axis.

    Parameters:
        dim: the axis; by default the last.

    Raises:
        ValueError: if `dim` is not an integer; when called, if the axis is missing.

    Examples:
        >>> layer = sf.nn.LogSoftmax()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([0.0, 1.0, 2.0])
        >>> y.data
        array([-2.40625, -1.40625, -0.40625], dtype=float32)
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        check_axes(dim=dim)
        self.dim = dim

    def forward(self, x: Operand) -> Tensor:
        """Map x of any shape to a tensor of the same shape."""
        return as_tensor(x).log_softmax(self.dim)

    def extra_repr(self) -> str:
        """Return the axis as text."""
        return f"dim={self.dim}"


class Hardtanh(Module):
    """min(max(x, min_val), max_val); the derivative is 1 between the bounds, and 0 at both of them.

    Parameters:
        min_val, max_val: the bounds, finite numbers.
        inplace: must be False; tensors are never overwritten.

    Raises:
        ValueError: if min_val is not below max_val; if inplace is true.

    Examples:
        >>> layer = sf.nn.Hardtanh()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-2.0, 0.5, 2.0])
        >>> y.data
        array([-1. ,  0.5,  1. ], dtype=float32)
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        check_not_in_place(inplace)
        self.min_val, self.max_val = as_number(min_val, "min_val"), as_number(max_val, "max_val")
        if self.min_val >= self.max_val:
            raise ValueError(f"min_val must be below max_val, got {min_val!r} and {max_val!r}.")

    def forward(self, x: Operand) -> Tensor:
        """Map x of any shape to a tensor of the same shape."""
        return as_tensor(x).hardtanh(self.min_val, self.max_val)

    def extra_repr(self) -> str:
        """Return the bounds as text."""
        return f"min_val={self.min_val}, max_val={self.max_val}"


class ReLU6(Hardtanh):
    """min(max(x, 0), 6).

    Parameters:
        inplace: must be False; tensors are never overwritten.

    Raises:
        ValueError: if inplace is true.

    Examples:
        >>> layer = sf.nn.ReLU6()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-1.0, 3.0, 8.0])
        >>> y.data
        array([0., 3., 6.], dtype=float32)
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        """Return an empty text: the name of the layer contains the bounds."""
        return ""


class Hardsigmoid(Module):
    """min(max(x + 3, 0), 6) / 6.

    Parameters:
        inplace: must be False; tensors are never overwritten.

    Raises:
        ValueError: if inplace is true.

    Examples:
        >>> layer = sf.nn.Hardsigmoid()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-4.0, 0.0, 1.0])
        >>> y.data
        array([0.        , 0.5       , 0.66796875], dtype=float32)
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        check_not_in_place(inplace)

    def forward(self, x: Operand) -> Tensor:
        """Map x of any shape to a tensor of the same shape."""
        return apply_activation("hardsigmoid", activations.hardsigmoid, activations.hardsigmoid_slope, x)


class Hardswish(Module):
    """x * min(max(x + 3, 0), 6) / 6.

    Parameters:
        inplace: must be False; tensors are never overwritten.

    Raises:
        ValueError: if inplace is true.

    Source: Howard et al., arXiv 1905.02244.

    Examples:
        >>> layer = sf.nn.Hardswish()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-4.0, 1.0, 4.0])
        >>> y.data
        array([-0.        ,  0.66796875,  4.        ], dtype=float32)
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        check_not_in_place(inplace)

    def forward(self, x: Operand) -> Tensor:
        """Map x of any shape to a tensor of the same shape."""
        return apply_activation("hardswish", activations.hardswish, activations.hardswish_slope, x)


class Softshrink(Module):
    """x - lambd if x > lambd, x + lambd if x < -lambd, and 0 otherwise.

    Parameters:
        lambd: the bound, a number from 0.

    Raises:
        ValueError: if lambd is negative.

    Examples:
        >>> layer = sf.nn.Softshrink()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-1.0, 0.25, 2.0])
        >>> y.data
        array([-0.5,  0. ,  1.5], dtype=float32)
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = as_number(lambd, "lambd", 0.0)

    def forward(self, x: Operand) -> Tensor:
        """Map x of any shape to a tensor of the same shape."""
        return apply_activation("softshrink", activations.softshrink, activations.shrink_slope, x, lambd=self.lambd)

    def extra_repr(self) -> str:
        """Return the bound as text."""
        return f"lambd={self.lambd}"


class Hardshrink(Softshrink):
    """x if |x| > lambd, otherwise 0.

    Parameters:
        lambd: the bound, a number from 0.

    Raises:
        ValueError: if lambd is negative.

    Examples:
        >>> layer = sf.nn.Hardshrink()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-1.0, 0.25, 2.0])
        >>> y.data
        array([-1.,  0.,  2.], dtype=float32)
    """

    def forward(self, x: Operand) -> Tensor:
        """Map x of any shape to a tensor of the same shape."""
        return apply_activation("hardshrink", activations.hardshrink, activations.shrink_slope, x, lambd=self.lambd)
