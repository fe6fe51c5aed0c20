"""Activations as layers without parameters, including the piecewise linear ones."""

from __future__ import annotations

from typing import Any, Literal

from simfloat.autodiff import Tensor
from simfloat.autodiff.composites import composite_operation
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor, tensor_of
from simfloat.nn.arguments import as_axis, as_number, check_not_in_place, either, number_from_zero
from simfloat.nn.layer import Activation, Layer, composite, method
from simfloat.options import InitVar, option, with_options
from simfloat.simulation.formulas import activations
from simfloat.simulation.formulas.activations import gelu_tanh, gelu_tanh_slope


@with_options
class ReLU(Activation):
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

    inplace: InitVar[bool] = option(check_not_in_place, default=False)

    _function = method("relu")


@with_options
class LeakyReLU(Activation):
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

    negative_slope: float = option(as_number, default=0.01)
    inplace: InitVar[bool] = option(check_not_in_place, default=False)

    _function = method("leaky_relu")


@with_options
class Tanh(Activation):
    """The hyperbolic tangent of x, rounded once.

    Examples:
        >>> layer = sf.nn.Tanh()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-1.0, 0.0, 1.0])
        >>> y.data
        array([-0.76171875,  0.        ,  0.76171875], dtype=float32)
    """

    _function = method("tanh")


@with_options
class Sigmoid(Activation):
    """1 / (1 + exp(-x)), rounded once as a single operation.

    Examples:
        >>> layer = sf.nn.Sigmoid()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-1.0, 0.0, 1.0])
        >>> y.data
        array([0.26953125, 0.5       , 0.73046875], dtype=float32)
    """

    _function = method("sigmoid")


@with_options
class GELU(Layer):
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

    approximate: Literal["none", "tanh"] = option(either("none", "tanh"), default="none")

    def forward(self, x: Operand) -> Tensor:
        """Map x of any shape to a tensor of the same shape."""
        if self.approximate == "none":
            return as_tensor(x).gelu()
        return tensor_of(composite_operation("gelu_tanh", gelu_tanh, (gelu_tanh_slope,), x, reads="operands"))


@with_options
class Softmax(Activation):
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

    dim: int = option(as_axis, default=-1)

    _function = method("softmax")


@with_options
class LogSoftmax(Activation):
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

    dim: int = option(as_axis, default=-1)

    _function = method("log_softmax")


@with_options
class Hardtanh(Activation):
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

    min_val: float = option(as_number, default=-1.0)
    max_val: float = option(as_number, default=1.0)
    inplace: InitVar[bool] = option(check_not_in_place, default=False)

    _function = method("hardtanh")

    def _start(self, **arguments: Any) -> None:
        if self.min_val >= self.max_val:
            raise ValueError("min_val must be below max_val, got {min_val!r} and {max_val!r}.".format(**arguments))


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


@with_options
class Hardsigmoid(Activation):
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

    inplace: InitVar[bool] = option(check_not_in_place, default=False)

    _function = composite("hardsigmoid", activations.hardsigmoid, activations.hardsigmoid_slope)


@with_options
class Hardswish(Activation):
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

    inplace: InitVar[bool] = option(check_not_in_place, default=False)

    _function = composite("hardswish", activations.hardswish, activations.hardswish_slope)


@with_options
class Softshrink(Activation):
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

    lambd: float = option(number_from_zero, default=0.5)

    _function = composite("softshrink", activations.softshrink, activations.shrink_slope)


@with_options
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

    _function = composite("hardshrink", activations.hardshrink, activations.shrink_slope)
