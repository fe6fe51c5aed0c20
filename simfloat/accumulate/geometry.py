"""Where the kernels of a convolution lie on an image."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.formats.integers import is_integer

Pair = tuple[int, int]


class Geometry(NamedTuple):
    """The sizes of a convolution; every pair is (rows, columns)."""

    window: Pair  # of a kernel
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int
    result: Pair

    @property
    def pixels(self) -> int:
        """How many pixels a channel of the result has."""
        return self.result[0] * self.result[1]

    def windows(self, x: NDArray) -> NDArray:
        """A view (image, channel, kernel row, kernel column, row, column) of padded images: what each place meets."""
        image, channel, row, column = x.strides
        return np.lib.stride_tricks.as_strided(
            x,
            (*x.shape[:2], *self.window, *self.result),
            (
                image,
                channel,
                row * self.dilation[0],
                column * self.dilation[1],
                row * self.stride[0],
                column * self.stride[1],
            ),
        )


def geometry_of(x: NDArray, w: NDArray, stride: Any, padding: Any, dilation: Any, groups: Any) -> Geometry:
    """The geometry that users ask for, for images and kernels of these shapes; ValueError for what does not fit."""
    if x.ndim != 4 or w.ndim != 4:
        raise ValueError(
            f"conv2d needs x (N, C, H, W) and w (O, C / groups, h, w), got shapes {x.shape} and {w.shape}."
        )
    if not is_integer(groups, 1):
        raise ValueError(f"groups must be a positive integer, got {groups!r}.")
    if x.shape[1] != w.shape[1] * groups or len(w) % groups:
        raise ValueError(
            f"conv2d needs x (N, C, H, W) and w (O, C / groups, h, w) with C and O multiples of groups, got shapes "
            f"{x.shape} and {w.shape} with groups={groups}."
        )
    steps, border, gaps = _pair("stride", stride, 1), _pair("padding", padding, 0), _pair("dilation", dilation, 1)
    window = (w.shape[2], w.shape[3])
    padded = [size + 2 * width for size, width in zip(x.shape[2:], border, strict=True)]
    spans = [gap * (places - 1) + 1 for gap, places in zip(gaps, window, strict=True)]
    if 0 in window or spans[0] > padded[0] or spans[1] > padded[1]:
        raise ValueError(
            f"Kernels need at least one place and room in the padded image: w of shape {w.shape} with dilation {gaps} "
            f"spans {spans[0]} x {spans[1]}, x of shape {x.shape} with padding {border} has {padded[0]} x {padded[1]}."
        )
    rows, columns = ((size - span) // step + 1 for size, span, step in zip(padded, spans, steps, strict=True))
    return Geometry(window, steps, border, gaps, int(groups), (rows, columns))


def _pair(name: str, value: Any, least: int) -> Pair:
    """(rows, columns) of an option, which may be one integer for both."""
    pair = (value, value) if is_integer(value, least) else value
    if isinstance(pair, tuple | list) and len(pair) == 2 and all(is_integer(number, least) for number in pair):
        return int(pair[0]), int(pair[1])
    raise ValueError(
        f"{name} must be an integer of at least {least}, or a pair (rows, columns) of them; got {value!r}."
    )
