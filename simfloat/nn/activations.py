"""Activations as layers without parameters, those made of straight lines among them."""

from __future__ import annotations

from typing import Literal

from simfloat.autodiff import Tensor
from simfloat.autodiff.composites import composite_operation
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor, tensor_of
from simfloat.nn.arguments import apply_activation, as_number, check_not_in_place
from simfloat.nn.module import Module
from simfloat.simulation.formulas import activations
from simfloat.simulation.formulas.activations import gelu_tanh, gelu_tanh_slope


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


class Hardtanh(Module):
    """x, no less than min_val and no more than max_val; its derivative is 1 between them, and 0 at both.

    Raises ValueError unless min_val is a number below max_val, and for `inplace`.

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
        """x of any shape -> the same shape."""
        return as_tensor(x).hardtanh(self.min_val, self.max_val)

    def extra_repr(self) -> str:
        """Its bounds."""
        return f"min_val={self.min_val}, max_val={self.max_val}"


class ReLU6(Hardtanh):
    """x, no less than 0 and no more than 6. Raises ValueError for `inplace`.

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
        """Nothing: its bounds are in its name."""
        return ""


class Hardsigmoid(Module):
    """x + 3, no less than 0 and no more than 6, divided by 6. Raises ValueError for `inplace`.

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
        """x of any shape -> the same shape."""
        return apply_activation("hardsigmoid", activations.hardsigmoid, activations.hardsigmoid_slope, x)


class Hardswish(Module):
    """x times x + 3, no less than 0 and no more than 6, divided by 6: Howard et al., arXiv 1905.02244.

    Raises ValueError for `inplace`.

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
        """x of any shape -> the same shape."""
        return apply_activation("hardswish", activations.hardswish, activations.hardswish_slope, x)


class Softshrink(Module):
    """x - lambd above lambd, x + lambd below -lambd, and 0 between. Raises ValueError for a negative lambd.

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
        """x of any shape -> the same shape."""
        return apply_activation("softshrink", activations.softshrink, activations.shrink_slope, x, lambd=self.lambd)

    def extra_repr(self) -> str:
        """Its bound."""
        return f"lambd={self.lambd}"


class Hardshrink(Softshrink):
    """x, and 0 between -lambd and lambd. Raises ValueError for a negative lambd.

    Examples:
        >>> layer = sf.nn.Hardshrink()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-1.0, 0.25, 2.0])
        >>> y.data
        array([-1.,  0.,  2.], dtype=float32)
    """

    def forward(self, x: Operand) -> Tensor:
        """x of any shape -> the same shape."""
        return apply_activation("hardshrink", activations.hardshrink, activations.shrink_slope, x, lambd=self.lambd)
