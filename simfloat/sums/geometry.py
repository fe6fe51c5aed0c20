"""The geometry of convolutions: where kernels lie on images and volumes, and patches written out as matrices.

The slices of a volume are channels of the images that kernels meet.

Patches of images, im2col, are written out whole for operands that are scaled in blocks, which run along k of the
im2col: a pixel has as many elements as there are kernels' places that meet it, each with the scale of its own block.
And so they are on a GPU.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import device_of
from simfloat.arithmetic.operands import FloatType, copy
from simfloat.common import is_integer
from simfloat.sums.contraction import prepare_sum, round_sums, with_progress_bar
from simfloat.sums.plan import Options, PreparedSum
from simfloat.sums.product import multiply_matrices
from simfloat.sums.tiles import sums_of_matrices

Pair = tuple[int, int]


class Geometry(NamedTuple):
    """The sizes of a convolution; every pair is (rows, columns).

    Images are spread, zeros between their pixels, and get zeros around them; kernels meet what that gives.
    """

    window: Pair  # of a kernel
    stride: Pair
    before: Pair  # rows above and columns left of an image; what is negative is cut off
    after: Pair  # rows below and columns right of it
    dilation: Pair
    groups: int
    result: Pair
    spacing: Pair = (1, 1)  # steps from a pixel to the next
    is_transposed: bool = False  # whether images are results, or gradients of results, of a convolution

    @property
    def slices(self) -> Geometry:
        """The geometry on the images that kernels meet, as `Volumes` have one: this one."""
        return self

    @property
    def planes(self) -> int:
        """How many images a kernel meets in one of the operand: itself."""
        return 1

    @property
    def layers(self) -> int:
        """How many channels a kernel meets for one of the operand: itself."""
        return 1

    def images_for_kernels(self, x: NDArray) -> NDArray:
        """The images that kernels meet: these."""
        return x

    @property
    def pixels(self) -> int:
        """How many pixels a channel of the result has."""
        return self.result[0] * self.result[1]

    def covers_images(self, size: Pair) -> bool:
        """Whether the windows cover images of this size, each pixel once."""
        covered = self.result[0] * self.window[0], self.result[1] * self.window[1]
        return self.stride == self.window and self.dilation == (1, 1) and self.before == (0, 0) and covered == size

    def pad_images(self, x: NDArray, dtype: FloatType, border: float = 0.0) -> NDArray:
        """The images, spread and with zeros around them, or another number, in an array of this type."""
        if self.before == self.after == (0, 0) and self.spacing == (1, 1) and x.dtype == dtype:
            return x
        sizes, inside, remaining = [], [], []
        for size, step, first, last in zip(x.shape[2:], self.spacing, self.before, self.after, strict=True):
            total = first + (size - 1) * step + 1 + last
            cut = -(min(first, 0) // step)  # pixels that lie before the first place
            start = first + cut * step
            count = max(min(size - cut, len(range(start, total, step))), 0)
            sizes.append(total)
            inside.append(slice(start, start + count * step, step))
            remaining.append(slice(cut, cut + count))
        shape = (*x.shape[:2], *sizes)
        out = device_of(x).new_array("zeros", shape, dtype)
        if border:
            out[...] = border
        out[:, :, inside[0], inside[1]] = x[:, :, remaining[0], remaining[1]]
        return out

    def windows(self, x: NDArray) -> NDArray:
        """A view (image, channel, kernel row, kernel column, row, column) of padded images: what each place meets."""
        # Strides alone make the windows: a pixel that several kernels' places meet lies in memory once.
        image, channel, row, column = x.strides
        return device_of(x).arrays.lib.stride_tricks.as_strided(
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

    def for_image_gradient(self, size: Pair) -> Geometry:
        """That of the convolution that takes gradients of results to those of images of this size.

        Its kernels are those of `mirrored_kernels`. Results are spread by the stride; what their kernels did not reach
        of an image, at its end, gets zeros.
        """
        # A pixel is met by every window that begins up to `reach` before it, so the spread
        # results get a border of that width, less the border that the image itself had.
        reach = [gap * (places - 1) for gap, places in zip(self.dilation, self.window, strict=True)]
        before = [r - first for r, first in zip(reach, self.before, strict=True)]
        spread = [(places - 1) * step + 1 for places, step in zip(self.result, self.stride, strict=True)]
        after = [n + r - first - s for n, r, first, s in zip(size, reach, before, spread, strict=True)]
        return self._replace(
            stride=(1, 1),
            before=(before[0], before[1]),
            after=(after[0], after[1]),
            result=size,
            spacing=self.stride,
            is_transposed=True,
        )


def mirrored_kernels(w: NDArray, groups: int) -> NDArray:
    """Kernels (O, C / groups, h, w) as those (C, O / groups, h, w) of the transposed convolution, mirrored."""
    outputs, channels, *window = w.shape
    parts = w.reshape(groups, outputs // groups, channels, *window).swapaxes(1, 2)
    return parts.reshape(groups * channels, outputs // groups, *window)[:, :, ::-1, ::-1]


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
    steps, gaps, window = read_pair("stride", stride, 1), read_pair("dilation", dilation, 1), (w.shape[2], w.shape[3])
    before, after = read_padding(padding, steps, gaps, window)
    padded = [sum(sizes) for sizes in zip(before, x.shape[2:], after, strict=True)]
    spans = [gap * (places - 1) + 1 for gap, places in zip(gaps, window, strict=True)]
    if 0 in window or spans[0] > padded[0] or spans[1] > padded[1]:
        raise ValueError(
            f"Kernels need at least one place and room in the padded image: w of shape {w.shape} with dilation {gaps} "
            f"spans {spans[0]} x {spans[1]}, x of shape {x.shape} with padding {padding} has {padded[0]} x {padded[1]}."
        )
    rows, columns = ((size - span) // step + 1 for size, span, step in zip(padded, spans, steps, strict=True))
    return Geometry(window, steps, before, after, gaps, int(groups), (rows, columns))


def read_padding(padding: Any, steps: Pair, gaps: Pair, window: Pair) -> tuple[Pair, Pair]:
    """(rows above, columns left) and (rows below, columns right) of an image.

    As in torch.nn.Conv2d, "same" gives results as large as images; of an odd number the one more lies at the end.
    """
    if not isinstance(padding, str):
        pair = read_pair("padding", padding, 0)
        return pair, pair
    if padding not in ("same", "valid") or (padding == "same" and steps != (1, 1)):
        raise ValueError(
            f"padding is an integer, a pair of them, 'valid' or, with a stride of 1, 'same'; got {padding!r} with "
            f"stride {steps}."
        )
    down, right = (gap * (places - 1) if padding == "same" else 0 for gap, places in zip(gaps, window, strict=True))
    return (down // 2, right // 2), (down - down // 2, right - right // 2)


def as_images(x: NDArray) -> NDArray:
    """Sequences (N, C, L), and their kernels, as images of one row; images as they are."""
    return x[:, :, None] if x.ndim == 3 else x


def read_row_option(name: str, value: Any, least: int, row: int) -> Pair:
    """An option of sequences, one integer, as that of images of one row, for whose rows it is `row`."""
    number = value[0] if isinstance(value, tuple | list) and len(value) == 1 else value
    if not is_integer(number, least):
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}.")
    return row, int(number)


def read_pair(name: str, value: Any, least: int) -> Pair:
    """(rows, columns) of an option, which may be one integer for both."""
    pair = (value, value) if is_integer(value, least) else value
    if isinstance(pair, tuple | list) and len(pair) == 2 and all(is_integer(number, least) for number in pair):
        return int(pair[0]), int(pair[1])
    raise ValueError(
        f"{name} must be an integer of at least {least}, or a pair (rows, columns) of them; got {value!r}."
    )


class Volumes(NamedTuple):
    """A convolution's geometry along the depth of volumes, as rows of one column, and on their slices.

    Operands are rounded as they are, a slice once for all depths of the kernels, and taken apart by
    `images_for_kernels` after that.
    """

    depth: Geometry
    slices: Geometry

    @property
    def planes(self) -> int:
        """How many slices a result has."""
        return self.depth.result[0]

    @property
    def layers(self) -> int:
        """How many slices of a volume a kernel meets."""
        return self.depth.window[0]

    def for_image_gradient(self, size: tuple[int, Pair]) -> Volumes:
        """That of the convolution that takes gradients of results to those of volumes of this size."""
        depth, slices = size
        return Volumes(self.depth.for_image_gradient((depth, 1)), self.slices.for_image_gradient(slices))

    def images_for_kernels(self, x: NDArray) -> NDArray:
        """The slices that a kernel meets, for each of its depths: (N, C, D, H, W) as (N * planes, C * layers, H, W)."""
        # Along the depth a volume is an image of d rows, each a whole slice
        # of h * w pixels: `Geometry` pads and strides it.
        n, c, d, h, w = x.shape
        geometry = self.depth._replace(result=(self.planes, h * w))
        windows = geometry.windows(geometry.pad_images(x.reshape(n, c, d, h * w), x.dtype))
        return windows.transpose(0, 4, 1, 2, 3, 5).reshape(-1, c * self.layers, h, w)


def convolve_by_im2col(
    x: NDArray, w: NDArray, geometry: Geometry, options: Options, initial: NDArray | None = None
) -> NDArray[np.floating]:
    """(N, O, rows, columns) from images x (N, C, H, W) and kernels w (O, C / groups, h, w)."""
    patches, kernels = im2col(x, w, geometry)
    shape, depth = (len(x), len(w), *geometry.result), math.prod(w.shape[1:])
    a, b, work = prepare_sum(patches, kernels, shape, depth, options, initial=initial)
    count = math.prod(shape)
    sums = with_progress_bar(lambda work: sums_of_images(a, b, work, geometry), work, count, depth, options.accumulator)
    return round_sums(sums, shape, options, work, a, b)


def im2col(x: NDArray, w: NDArray, geometry: Geometry) -> tuple[NDArray, NDArray]:
    """The factors of a convolution: (images, groups, pixels, k) and (groups, k, channels)."""
    groups, depth = geometry.groups, math.prod(w.shape[1:])
    patches = _in_c_order(_windows(x, geometry)).reshape(len(x), groups, depth, geometry.pixels).swapaxes(-1, -2)
    return patches, w.reshape(groups, len(w) // groups, depth).swapaxes(-1, -2)


def sums_of_images(patches: NDArray, kernels: NDArray, work: PreparedSum, geometry: Geometry) -> NDArray:
    """The unrounded sums of a convolution's factors as one vector in C order of (N, O, rows, columns)."""
    shape = (len(patches), geometry.groups, geometry.pixels, kernels.shape[-1])
    return sums_of_matrices(shape, patches, kernels, work, is_transposed=True)


def weight_gradient_by_im2col(g: NDArray, x: NDArray, geometry: Geometry, options: Options) -> NDArray[np.floating]:
    """(O, C / groups, h, w) from g (N, O, rows, columns) and images x (N, C, H, W)."""
    return multiply_matrices(*weight_gradient_factors(g, x, geometry), options).reshape(kernel_shape(g, x, geometry))


def weight_gradient_factors(g: NDArray, x: NDArray, geometry: Geometry) -> tuple[NDArray, NDArray]:
    """The factors of the gradient of kernels: (groups, outputs, k) and (groups, k, places), k over (image, pixel)."""
    groups, outputs, channels = geometry.groups, g.shape[1] // geometry.groups, x.shape[1] // geometry.groups
    depth, places = len(x) * geometry.pixels, channels * math.prod(geometry.window)
    # k runs over (image, pixel) in both factors, so that each result is one sum over the whole batch.
    gradients = g.reshape(len(x), groups, outputs, geometry.pixels).transpose(1, 2, 0, 3)
    patches = _in_c_order(_windows(x, geometry).transpose(0, 4, 5, 1, 2, 3)).reshape(depth, groups, places)
    return gradients.reshape(groups, outputs, depth), patches.swapaxes(0, 1)


def kernel_shape(g: NDArray, x: NDArray, geometry: Geometry) -> tuple[int, ...]:
    """The shape (O, C / groups, h, w) of the kernels."""
    return g.shape[1], x.shape[1] // geometry.groups, *geometry.window


def _in_c_order(patches: NDArray) -> NDArray:
    """The numbers of a view in C order."""
    return patches if patches.flags.c_contiguous else copy(patches, patches.dtype)


def _windows(x: NDArray, geometry: Geometry) -> NDArray:
    """(image, channel, kernel row, kernel column, row, column): what each place of the kernels meets."""
    return geometry.windows(geometry.pad_images(x, x.dtype))
