"""Dropping numbers at random while training."""

from __future__ import annotations

import math

import numpy as np

from simfloat.arithmetic.bit_stream import Draw, random_words
from simfloat.arithmetic.machines import on_device_of
from simfloat.autodiff import Tensor
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor
from simfloat.nn.arguments import as_probability, check_not_in_place
from simfloat.nn.module import Module
from simfloat.simulation.simulation import current


class Dropout(Module):
    """While training each number is dropped with probability `p`, and the others multiplied by 1 / (1 - p).

    The product is rounded, where a list of casts leaves it alone to the format of x; evaluation changes nothing. Which
    numbers are dropped follows from the simulation's seed, the module's path and how often it ran: other layers and
    other policies change none of it.

    Raises ValueError unless p is a number from 0 to 1, and for `inplace`. Source: Srivastava et
    al., JMLR 15, 2014.

    Examples:
        >>> layer = sf.nn.Dropout(0.5)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones(8))
        >>> y.data
        array([2., 0., 2., 0., 0., 0., 2., 2.], dtype=float32)
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        check_not_in_place(inplace)
        self.p = as_probability(p)

    def forward(self, x: Operand) -> Tensor:
        """x of any shape -> the same shape."""
        return dropout(x, self.p) if self.training else as_tensor(x)

    def extra_repr(self) -> str:
        """Its probability."""
        return f"p={self.p}"


class _ChannelDropout(Dropout):
    """What dropouts of channels share."""

    _ndims: tuple[int, ...] = ()

    def forward(self, x: Operand) -> Tensor:
        """x of the layer's shape -> the same shape."""
        x = as_tensor(x)
        if x.ndim not in self._ndims:
            named = " or ".join(map(str, self._ndims))
            raise ValueError(f"{type(self).__name__} needs x of {named} axes, got shape {x.shape}.")
        return dropout(x, self.p, self._ndims[0] - 2) if self.training else x


class Dropout1d(_ChannelDropout):
    """While training each channel of sequences (N, C, L), or (C, L), is dropped with probability `p`, as by Dropout.

    Raises ValueError as Dropout, and for another number of axes.

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
    """While training each channel of images (N, C, H, W), or (C, H, W), is dropped with probability `p`, as by Dropout.

    Raises ValueError as Dropout, and for another number of axes.

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
    """x with each number dropped with probability p, and the others multiplied by 1 / (1 - p).

    A call takes the next draw of the stream of `dropout` at the layer that runs: 32 bits a number in C order, which is
    kept unless they lie below p * 2^32. Along so many last axes numbers are dropped `together`, by one draw.
    """
    x = as_tensor(x)
    if p == 0:
        return x
    stream = current().stream("dropout")
    apart = x.shape[: x.ndim - together]
    words = random_words(Draw(stream.take_call(), stream.seed), 0, math.prod(apart))
    passes = (words >= p * 2.0**32).reshape(*apart, *[1] * together)
    mask = on_device_of(np.broadcast_to(passes, x.shape), x.numbers)
    factor = 1 / (1 - p) if p < 1 else 0.0
    exact = np.float32 if float(np.float32(factor)) == factor else np.float64
    return x.times_factors(np.where(mask, exact(factor), exact(0)))
