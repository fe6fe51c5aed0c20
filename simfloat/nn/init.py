"""Initial values, with the names of torch.nn.init: each function fills a parameter and returns it.

Values are computed in double precision. They come from `rng`, a NumPy generator or a seed, or else from the generator
of `simfloat.nn.seed`. A model uses a parameter rounded to the policy's `weights`. For weights (outputs, inputs, ...),
the fan in is inputs times the size of the other axes, and the fan out is outputs times that size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simfloat.autodiff import Tensor
from simfloat.nn.arguments import as_number, generator_of

if TYPE_CHECKING:
    from simfloat.nn.arguments import Seed

__all__ = [
    "calculate_gain", "constant_", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_", "orthogonal_", "uniform_",
    "xavier_normal_", "xavier_uniform_", "zeros_",
]  # fmt: skip

#: Gains by activation: an activation shrinks values, and the gain enlarges initial weights to compensate. The gain of
#: leaky_relu follows from its slope.
GAINS = {
    "linear": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2.0), "selu": 3 / 4,
    **{f"conv{transposed}{n}d": 1.0 for transposed in ("", "_transpose") for n in (1, 2, 3)},
}  # fmt: skip


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the gain that torch recommends for an activation.

    Parameters:
        nonlinearity: the name of the activation, such as "relu" or "leaky_relu".
        param: the slope of leaky_relu; by default 0.01.

    Returns:
        The gain, a float.

    Raises:
        ValueError: if the activation is unknown.
    """
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else as_number("param", param)) ** 2))
    if nonlinearity not in GAINS:
        raise ValueError(f"Unknown nonlinearity {nonlinearity!r}; there are {', '.join(GAINS)} and leaky_relu.")
    return GAINS[nonlinearity]


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, *, rng: Seed = None) -> Tensor:
    """Fill a tensor with uniform values from a to b.

    Parameters:
        tensor: the Parameter or Tensor.
        a, b: the bounds.
        rng: a NumPy generator or a seed; by default the generator of `simfloat.nn.seed`.

    Returns:
        The tensor.

    Raises:
        ValueError: if a is larger than b.
    """
    if not as_number("a", a) <= as_number("b", b):
        raise ValueError(f"uniform_ needs a <= b, the ends of the interval; got a={a!r}, b={b!r}.")
    return _fill(tensor, lambda shape: generator_of(rng).uniform(a, b, shape))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, *, rng: Seed = None) -> Tensor:
    """Fill a tensor with normal values.

    Parameters:
        tensor: the Parameter or Tensor.
        mean, std: the mean and the standard deviation.
        rng: a NumPy generator or a seed; by default the generator of `simfloat.nn.seed`.

    Returns:
        The tensor.

    Raises:
        ValueError: if std is negative.
    """
    center, width = as_number("mean", mean), as_number("std", std, 0.0)
    return _fill(tensor, lambda shape: generator_of(rng).normal(center, width, shape))


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill a tensor with one value.

    Parameters:
        tensor: the Parameter or Tensor.
        val: the value, a finite number.

    Returns:
        The tensor.

    Raises:
        ValueError: if val is not a finite number.
    """
    return _fill(tensor, lambda shape: np.full(shape, as_number("val", val)))


def ones_(tensor: Tensor) -> Tensor:
    """Fill a tensor with ones.

    Parameters:
        tensor: the Parameter or Tensor.

    Returns:
        The tensor itself.
    """
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill a tensor with zeros.

    Parameters:
        tensor: the Parameter or Tensor.

    Returns:
        The tensor itself.
    """
    return constant_(tensor, 0.0)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, *, rng: Seed = None) -> Tensor:
    """Fill a tensor with uniform values in +-gain * sqrt(6 / (fan in + fan out)).

    Parameters:
        tensor: the Parameter or Tensor (outputs, inputs, ...).
        gain: a factor; see `calculate_gain`.
        rng: a NumPy generator or a seed; by default the generator of `simfloat.nn.seed`.

    Returns:
        The tensor.

    Raises:
        ValueError: if the tensor has fewer than two axes; if gain is not a finite number.

    Source: Glorot and Bengio, AISTATS 2010.
    """
    bound = as_number("gain", gain) * math.sqrt(6.0 / sum(_fans(tensor)))
    return uniform_(tensor, -bound, bound, rng=rng)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, *, rng: Seed = None) -> Tensor:
    """Fill a tensor with normal values of the standard deviation gain * sqrt(2 / (fan in + fan out)).

    Parameters:
        tensor: the Parameter or Tensor (outputs, inputs, ...).
        gain: a factor; see `calculate_gain`.
        rng: a NumPy generator or a seed; by default the generator of `simfloat.nn.seed`.

    Returns:
        The tensor.

    Raises:
        ValueError: if the tensor has fewer than two axes; if gain is not a finite number.

    Source: Glorot and Bengio, AISTATS 2010.
    """
    return normal_(tensor, 0.0, as_number("gain", gain) * math.sqrt(2.0 / sum(_fans(tensor))), rng=rng)


def kaiming_uniform_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", *, rng: Seed = None
) -> Tensor:
    """Fill a tensor with uniform values in +-gain * sqrt(3 / fan).

    Parameters:
        tensor: the Parameter or Tensor (outputs, inputs, ...).
        a: the slope, if the nonlinearity is leaky_relu.
        mode: "fan_in" or "fan_out".
        nonlinearity: the activation that determines the gain; see `calculate_gain`.
        rng: a NumPy generator or a seed; by default the generator of `simfloat.nn.seed`.

    Returns:
        The tensor.

    Raises:
        ValueError: if `mode` is neither "fan_in" nor "fan_out".

    Source: He et al., ICCV 2015.
    """
    bound = math.sqrt(3.0) * _kaiming(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, rng=rng)


def kaiming_normal_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", *, rng: Seed = None
) -> Tensor:
    """Fill a tensor with normal values of the standard deviation gain / sqrt(fan).

    Parameters:
        tensor: the Parameter or Tensor (outputs, inputs, ...).
        a: the slope, if the nonlinearity is leaky_relu.
        mode: "fan_in" or "fan_out".
        nonlinearity: the activation that determines the gain; see `calculate_gain`.
        rng: a NumPy generator or a seed; by default the generator of `simfloat.nn.seed`.

    Returns:
        The tensor.

    Raises:
        ValueError: if `mode` is neither "fan_in" nor "fan_out".

    Source: He et al., ICCV 2015.
    """
    return normal_(tensor, 0.0, _kaiming(tensor, a, mode, nonlinearity), rng=rng)


def orthogonal_(tensor: Tensor, gain: float = 1.0, *, rng: Seed = None) -> Tensor:
    """Fill a tensor with orthonormal rows times gain, or with orthonormal columns if it has more rows than columns.

    All axes except the first are treated as one. LAPACK computes the vectors, so their last bits may differ between
    computers.

    Parameters:
        tensor: the Parameter or Tensor (outputs, inputs, ...).
        gain: a factor.
        rng: a NumPy generator or a seed; by default the generator of `simfloat.nn.seed`.

    Returns:
        The tensor.

    Raises:
        ValueError: if the tensor has fewer than two axes; if gain is not a finite number.

    Source: Saxe et al., ICLR 2014.
    """

    factor = as_number("gain", gain)

    def draw(shape: tuple[int, ...]) -> NDArray:
        rows, columns = shape[0], math.prod(shape[1:])
        normal_numbers = generator_of(rng).standard_normal((max(rows, columns), min(rows, columns)))
        q, r = np.linalg.qr(normal_numbers)
        q = q * np.where(np.diag(r) < 0, -1.0, 1.0)
        return factor * (q if rows >= columns else q.T).reshape(shape)

    _fans(tensor)
    return _fill(tensor, draw)


def _fill(tensor: Tensor, draw: Callable[[tuple[int, ...]], NDArray]) -> Tensor:
    """Replace the values of a tensor; return the tensor."""
    if not isinstance(tensor, Tensor):
        raise ValueError(f"Initial values fill a Parameter or a Tensor, got a {type(tensor).__name__}.")
    tensor.data = draw(tensor.shape)
    return tensor


def _fans(tensor: Tensor) -> tuple[int, int]:
    """Return the fan in and the fan out of a tensor."""
    if not isinstance(tensor, Tensor) or tensor.ndim < 2 or not tensor.size:
        shape = getattr(tensor, "shape", None)
        raise ValueError(f"Fan in and fan out need weights (outputs, inputs, ...), got shape {shape}.")
    outputs, inputs, *window = tensor.shape
    return inputs * math.prod(window), outputs * math.prod(window)


def _kaiming(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    """Return the standard deviation that preserves the size of values through a layer."""
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"mode must be 'fan_in' or 'fan_out', got {mode!r}.")
    fan = _fans(tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)
