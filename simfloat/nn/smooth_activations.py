"""Activations with exponentials: composites that round each step, unless the policy rounds them once as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.autodiff import Parameter, Tensor
from simfloat.autodiff.composites import composite_operation
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor, tensor_of
from simfloat.nn.arguments import as_axis, as_number, as_positive, as_size, check_not_in_place
from simfloat.nn.layer import Activation, Layer, composite
from simfloat.options import InitVar, option, with_options
from simfloat.simulation.formulas import Rounded, activations
from simfloat.simulation.formulas.losses import log_sigmoid


@with_options
class SiLU(Layer):
    """x * sigmoid(x), the composite `silu`, also known as swish.

    Parameters:
        inplace: must be False; tensors are never overwritten.

    Raises:
        ValueError: if inplace is true.

    Source: Elfwing et al., arXiv 1702.03118.

    Examples:
        >>> layer = sf.nn.SiLU()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-1.0, 0.0, 1.0])
        >>> y.data
        array([-0.26953125,  0.        ,  0.73046875], dtype=float32)
    """

    inplace: InitVar[bool] = option(check_not_in_place, default=False)

    def forward(self, x: Operand) -> Tensor:
        """Map x of any shape to a tensor of the same shape."""
        formula, slope = activations.silu, activations.silu_slope
        return tensor_of(composite_operation("silu", formula, (slope,), x, reads="operands"))


@with_options
class Mish(Activation):
    """x * tanh(softplus(x)).

    Parameters:
        inplace: must be False; tensors are never overwritten.

    Raises:
        ValueError: if inplace is true.

    Source: Misra, arXiv 1908.08681.

    Examples:
        >>> layer = sf.nn.Mish()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-1.0, 0.0, 1.0])
        >>> y.data
        array([-0.30273438,  0.        ,  0.86328125], dtype=float32)
    """

    inplace: InitVar[bool] = option(check_not_in_place, default=False)

    _function = composite("mish", activations.mish, activations.mish_slope)


@with_options
class Softplus(Activation):
    """log1p(exp(beta * x)) / beta, or x itself if beta * x > threshold.

    Parameters:
        beta: the steepness, a finite number above 0.
        threshold: the value of beta * x above which the result is x.

    Raises:
        ValueError: if beta or threshold is not a finite number; if beta is not above 0.

    Examples:
        >>> layer = sf.nn.Softplus()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-1.0, 0.0, 30.0])
        >>> y.data
        array([ 0.3125    ,  0.69140625, 30.        ], dtype=float32)
    """

    beta: float = option(as_positive, default=1.0)
    threshold: float = option(as_number, default=20.0)

    _function = composite("softplus", activations.softplus, activations.softplus_slope)


@with_options
class LogSigmoid(Activation):
    """log(sigmoid(x)), computed as min(x, 0) - log1p(exp(-|x|)), so that no exponential overflows.

    Examples:
        >>> layer = sf.nn.LogSigmoid()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-200.0, 0.0, 1.0])
        >>> y.data
        array([-200.        ,   -0.69140625,   -0.3125    ], dtype=float32)
    """

    _function = composite("log_sigmoid", log_sigmoid, activations.log_sigmoid_slope)


@with_options
class ELU(Activation):
    """x if x > 0, otherwise expm1(x) * alpha.

    Parameters:
        alpha: the factor for negative elements, a finite number.
        inplace: must be False; tensors are never overwritten.

    Raises:
        ValueError: if alpha is not a finite number; if inplace is true.

    Source: Clevert et al., arXiv 1511.07289.

    Examples:
        >>> layer = sf.nn.ELU()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-1.0, 0.0, 1.0])
        >>> y.data
        array([-0.6328125,  0.       ,  1.       ], dtype=float32)
    """

    alpha: float = option(as_number, default=1.0)
    inplace: InitVar[bool] = option(check_not_in_place, default=False)

    _function = composite("elu", activations.elu, activations.elu_slope)


@with_options
class CELU(ELU):
    """x if x > 0, otherwise expm1(x / alpha) * alpha.

    The division is a multiplication by 1 / alpha, a float64 factor.

    Parameters:
        alpha: the factor for negative elements, a finite number other than 0.
        inplace: must be False; tensors are never overwritten.

    Raises:
        ValueError: if alpha is 0 or not a finite number; if inplace is true.

    Source: Barron, arXiv 1704.07483.

    Examples:
        >>> layer = sf.nn.CELU(2.0)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-1.0, 0.0, 1.0])
        >>> y.data
        array([-0.78515625,  0.        ,  1.        ], dtype=float32)
    """

    def _start(self, **arguments: Any) -> None:
        if not self.alpha:
            raise ValueError("alpha must not be 0: x is divided by it.")

    def forward(self, x: Operand) -> Tensor:
        """Map x of any shape to a tensor of the same shape."""
        return self._function(x, alpha=self.alpha, input_scale=1 / self.alpha)


@with_options
class SELU(Layer):
    """scale * x if x > 0, otherwise scale * alpha * expm1(x), with scale = 1.0507... and alpha = 1.6732...

    The product scale * alpha is one float64 factor.

    Parameters:
        inplace: must be False; tensors are never overwritten.

    Raises:
        ValueError: if inplace is true.

    Source: Klambauer et al., arXiv 1706.02515.

    Examples:
        >>> layer = sf.nn.SELU()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-1.0, 0.0, 1.0])
        >>> y.data
        array([-1.109375,  0.      ,  1.046875], dtype=float32)
    """

    inplace: InitVar[bool] = option(check_not_in_place, default=False)

    def forward(self, x: Operand) -> Tensor:
        """Map x of any shape to a tensor of the same shape."""
        return ELU._function(x, alpha=activations.SELU_ALPHA, scale=activations.SELU_SCALE)


@with_options
class GLU(Layer):
    """a * sigmoid(b), where a and b are the first and the second half of x along one axis.

    Parameters:
        dim: the axis; by default the last. The result has half as many elements along it.

    Raises:
        ValueError: if dim is not an integer; when called, if the axis is missing or has an odd number of elements.

    Source: Dauphin et al., arXiv 1612.08083.

    Examples:
        >>> layer = sf.nn.GLU()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([1.0, 2.0, 0.0, 1.0])
        >>> y.data
        array([0.5      , 1.4609375], dtype=float32)
    """

    dim: int = option(as_axis, default=-1)

    _function = composite("glu", activations.glu, activations.glu_slope)

    def forward(self, x: Operand) -> Tensor:
        """Map x to a tensor with half as many elements along the axis."""
        x = as_tensor(x)
        if not -x.ndim <= self.dim < x.ndim or x.shape[self.dim] % 2:
            raise ValueError(f"GLU(dim={self.dim}) needs an even number of elements along this axis, got {x.shape}.")
        return self._function(x, axis=self.dim)


@with_options
class PReLU(Layer):
    """x if x > 0, otherwise weight * x with a learned weight.

    Parameters:
        num_parameters: the number of learned slopes: 1 for all elements together, or the number of channels (axis 1)
            for a slope per channel.
        init: the initial value of every slope.

    Raises:
        ValueError: if num_parameters is not a positive integer or init is not a finite number; when called, if x has
            another number of channels.

    Source: He et al., arXiv 1502.01852.

    Examples:
        >>> layer = sf.nn.PReLU()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([-1.0, 0.0, 1.0])
        >>> y.data
        array([-0.25,  0.  ,  1.  ], dtype=float32)
    """

    num_parameters: int = option(as_size, default=1)
    init: InitVar[float] = option(as_number, default=0.25)

    def _start(self, **arguments: Any) -> None:
        self.weight = Parameter(np.full(self.num_parameters, as_number("init", arguments["init"]), np.float32))

    def forward(self, x: Operand) -> Tensor:
        """Map x, of any shape or (N, num_parameters, ...), to a tensor of the same shape."""
        x, count = as_tensor(x), self.num_parameters
        channels = x.shape[1] if x.ndim > 1 else 1
        if count not in (1, channels):
            raise ValueError(f"PReLU({count}) needs x with as many channels as axis 1, got shape {x.shape}.")
        shape = () if count == 1 else (1, count, *[1] * (x.ndim - 2))
        shared = tuple(i for i in range(x.ndim) if count == 1 or i != 1)

        def formula(u: Rounded, x: NDArray, weight: NDArray) -> NDArray:
            return activations.prelu(u, x, weight.reshape(shape))

        def to_x(u: Rounded, g: NDArray, outputs: NDArray | None, x: NDArray, weight: NDArray) -> NDArray:
            return activations.prelu_to_x(u, g, x, weight.reshape(shape))

        def to_weight(u: Rounded, g: NDArray, outputs: NDArray | None, x: NDArray, weight: NDArray) -> NDArray:
            return u.sum(activations.prelu_to_slope(u, g, x, weight.reshape(shape)), shared).reshape(count)

        return tensor_of(composite_operation("prelu", formula, (to_x, to_weight), x, self.weight, reads="operands"))
