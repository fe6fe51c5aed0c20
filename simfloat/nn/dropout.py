"""Dropout: set random elements to zero during training."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Draw, random_words
from simfloat.arithmetic.machines import on_device_of
from simfloat.autodiff import Tensor
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor
from simfloat.nn.arguments import as_probability, check_not_in_place
from simfloat.nn.layer import Layer
from simfloat.options import InitVar, option, with_options
from simfloat.simulation.simulation import current


@with_options
class Dropout(Layer):
    """x * mask / (1 - p) in training, where each element of the mask is 0 with probability `p` and otherwise 1.

    The elements that remain are multiplied by the factor 1 / (1 - p), and the product is rounded. Under automatic mixed
    precision, if dropout is on no list of casts, the product is rounded to the format of x. In evaluation the layer
    returns x unchanged.

    The choice of elements depends on the seed of the simulation, the path of the module and the number of its calls.
    Other layers and other policies do not change it.

    Parameters:
        p: the probability of a zero, from 0 to 1.
        inplace: must be False; tensors are never overwritten.

    Raises:
        ValueError: if p is not a number from 0 to 1; if inplace is true.

    Source: Srivastava et al., JMLR 15, 2014.

    Examples:
        >>> layer = sf.nn.Dropout(0.5)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones(8))
        >>> y.data
        array([2., 0., 2., 0., 0., 0., 2., 2.], dtype=float32)
    """

    p: float = option(as_probability, default=0.5)
    inplace: InitVar[bool] = option(check_not_in_place, default=False)

    def forward(self, x: Operand) -> Tensor:
        """Map x of any shape to a tensor of the same shape."""
        return dropout(x, self.p) if self.training else as_tensor(x)


class _ChannelDropout(Dropout):
    """The common base of dropout layers that drop channels."""

    _ndims: tuple[int, ...] = ()

    def forward(self, x: Operand) -> Tensor:
        """Map x of a supported shape to a tensor of the same shape."""
        x = as_tensor(x)
        if x.ndim not in self._ndims:
            named = " or ".join(map(str, self._ndims))
            raise ValueError(f"{type(self).__name__} needs x of {named} axes, got shape {x.shape}.")
        return dropout(x, self.p, self._ndims[0] - 2) if self.training else x


class Dropout1d(_ChannelDropout):
    """Dropout that drops each channel of sequences (N, C, L) or (C, L) as a whole, with probability `p`.

    Parameters:
        p: the probability of a zero, from 0 to 1.
        inplace: must be False; tensors are never overwritten.

    Raises:
        ValueError: if p is not a number from 0 to 1; if inplace is true; when called, if x has another number of axes.

    Examples:
        >>> layer = sf.nn.Dropout1d(0.5)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((1, 3, 2)))
        >>> y.data
        array([[[2., 2.],
                [0., 0.],
                [2., 2.]]], dtype=float32)
    """

    _ndims = (3, 2)


class Dropout2d(_ChannelDropout):
    """Dropout that drops each channel of images (N, C, H, W) or (C, H, W) as a whole, with probability `p`.

    Parameters:
        p: the probability of a zero, from 0 to 1.
        inplace: must be False; tensors are never overwritten.

    Raises:
        ValueError: if p is not a number from 0 to 1; if inplace is true; when called, if x has another number of axes.

    Examples:
        >>> layer = sf.nn.Dropout2d(0.5)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((1, 2, 1, 2)))
        >>> y.data
        array([[[[2., 2.]],
        <BLANKLINE>
                [[0., 0.]]]], dtype=float32)
    """

    _ndims = (4, 3)


def dropout(x: Operand, p: float, together: int = 0) -> Tensor:
    """Set each element of x to zero with probability p, and multiply the others by 1 / (1 - p).

    A call takes the next draw from the stream `dropout` of the running layer: 32 bits per element, in C order. An
    element remains if its bits, as an integer, are at least p * 2^32. The elements along the last `together` axes share
    one draw, and are dropped together.
    """
    x = as_tensor(x)
    if p == 0:
        return x
    passes = draw_passes(x.shape[: x.ndim - together], p).reshape(*x.shape[: x.ndim - together], *[1] * together)
    mask = on_device_of(np.broadcast_to(passes, x.shape), x.numbers)
    factor = 1 / (1 - p) if p < 1 else 0.0
    exact = np.float32 if float(np.float32(factor)) == factor else np.float64
    return x.times_factors(np.where(mask, exact(factor), exact(0)))


def draw_passes(shape: tuple[int, ...], p: float) -> NDArray[np.bool_]:
    """Return booleans that are False with probability p, from the next draw of the stream `dropout`."""
    stream = current().stream("dropout")
    words = random_words(Draw(stream.take_call(), stream.seed), 0, math.prod(shape))
    return (words >= p * 2.0**32).reshape(shape)
