"""The geometry of convolutions: the positions of kernels on images and volumes, and patches as matrices.

A convolution of volumes is computed as one of images, with slices of the volumes as channels.

Patches of images (im2col) are stored in full for operands that are scaled in blocks, which run along k of the im2col. A
pixel then occurs once for every kernel element that reads it, each time with the scale of another block. Patches are
also stored in full on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
Triple = tuple[int, int, int]


class Geometry(NamedTuple):
    """The sizes of a convolution; every pair is (rows, columns).

    Zeros are inserted between the pixels of images (`spacing`) and around them. Kernels are applied to the result.
    """

    window: Pair  # of a kernel
    stride: Pair
    before: Pair  # rows above and columns left of an image; a negative number removes pixels
    after: Pair  # rows below and columns right of it
    dilation: Pair
    groups: int
    result: Pair
    spacing: Pair = (1, 1)  # the step from one pixel to the next
    is_transposed: bool = False  # True if images are results of a convolution, or gradients of results

    @property
    def slices(self) -> Geometry:
        """The geometry on the images that kernels are applied to: itself. `Volumes` have another one."""
        return self

    @property
    def planes(self) -> int:
        """The number of images of this geometry per image of the operand: 1."""
        return 1

    @property
    def layers(self) -> int:
        """The number of channels of this geometry per channel of the operand: 1."""
        return 1

    def images_for_kernels(self, x: NDArray) -> NDArray:
        """Return the images that kernels are applied to: x itself."""
        return x

    @property
    def pixels(self) -> int:
        """The number of pixels of a channel of the result."""
        return self.result[0] * self.result[1]

    def covers_images(self, size: Pair) -> bool:
        """Return True if the windows cover images of this size, each pixel once."""
        covered = self.result[0] * self.window[0], self.result[1] * self.window[1]
        return self.stride == self.window and self.dilation == (1, 1) and self.before == (0, 0) and covered == size

    def pad_images(self, x: NDArray, dtype: FloatType, border: float = 0.0) -> NDArray:
        """Return the images with zeros between pixels and zeros, or `border`, around them, in this dtype."""
        if self.before == self.after == (0, 0) and self.spacing == (1, 1) and x.dtype == dtype:
            return x
        sizes, inside, remaining = [], [], []
        for size, step, first, last in zip(x.shape[2:], self.spacing, self.before, self.after, strict=True):
            total = first + (size - 1) * step + 1 + last
            cut = -(min(first, 0) // step)  # pixels before the first position
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
        """Return a view of padded images, (image, channel, kernel row, kernel column, row, column)."""
        # Strides are enough: a pixel that several kernel elements read is stored once.
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

    def for_image_gradient(self, size: tuple[int, ...]) -> Geometry:
        """Return the geometry of the convolution from gradients of results to gradients of images of this size.

        Its kernels are `mirrored_kernels`. `stride` becomes the spacing of the results. The part of an image at its end
        that no kernel reached gets zeros.
        """
        # A pixel is read by every window that begins up to `reach` before it. So the spread results get a border of
        # that width, minus the border of the image itself.
        reach = [gap * (places - 1) for gap, places in zip(self.dilation, self.window, strict=True)]
        before = [r - first for r, first in zip(reach, self.before, strict=True)]
        spread = [(places - 1) * step + 1 for places, step in zip(self.result, self.stride, strict=True)]
        after = [n + r - first - s for n, r, first, s in zip(size, reach, before, spread, strict=True)]
        return self._replace(
            stride=(1, 1),
            before=(before[0], before[1]),
            after=(after[0], after[1]),
            result=(size[0], size[1]),
            spacing=self.stride,
            is_transposed=True,
        )


def mirrored_kernels(w: NDArray, groups: int) -> NDArray:
    """Return the kernels of the transposed convolution, mirrored: (C, O / groups, h, w) from (O, C / groups, h, w)."""
    outputs, channels, *window = w.shape
    parts = w.reshape(groups, outputs // groups, channels, *window).swapaxes(1, 2)
    mirror = (slice(None), slice(None), *[slice(None, None, -1)] * len(window))
    return parts.reshape(groups * channels, outputs // groups, *window)[mirror]


#: The shapes of operands, by the number of axes of an image or a volume, for messages.
SHAPES = {2: ("x (N, C, H, W)", "(O, C / groups, h, w)"), 3: ("x (N, C, D, H, W)", "(O, C / groups, d, h, w)")}


def geometry_of(
    x: NDArray, w: NDArray, stride: Any, padding: Any, dilation: Any, groups: Any, axes: int = 2
) -> Geometry | Volumes:
    """Return the geometry for the options of a user and these images or, with three `axes`, volumes, and their kernels.

    Raises ValueError if they do not fit.
    """
    needed = f"conv{axes}d needs {SHAPES[axes][0]} and w {SHAPES[axes][1]}"
    if x.ndim != axes + 2 or w.ndim != axes + 2:
        raise ValueError(f"{needed}, got shapes {x.shape} and {w.shape}.")
    if not is_integer(groups, 1):
        raise ValueError(f"groups must be a positive integer, got {groups!r}.")
    if x.shape[1] != w.shape[1] * groups or len(w) % groups:
        raise ValueError(
            f"{needed} with C and O multiples of groups, got shapes {x.shape} and {w.shape} with groups={groups}."
        )
    steps, gaps = read_sizes("stride", stride, 1, axes), read_sizes("dilation", dilation, 1, axes)
    window = w.shape[2:]
    before, after = read_padding(padding, steps, gaps, window)
    padded = [sum(sizes) for sizes in zip(before, x.shape[2:], after, strict=True)]
    spans = [gap * (places - 1) + 1 for gap, places in zip(gaps, window, strict=True)]
    if 0 in window or any(span > size for span, size in zip(spans, padded, strict=True)):
        raise ValueError(
            f"Kernels need at least one element and must fit into the padded image: w of shape {w.shape} with dilation "
            f"{gaps} spans {by(spans)}, x of shape {x.shape} with padding {padding} has {by(padded)}."
        )
    result = tuple((size - span) // step + 1 for size, span, step in zip(padded, spans, steps, strict=True))
    return geometry_along(window, steps, before, after, gaps, int(groups), result)


def geometry_along(
    window: Any, stride: Any, before: Any, after: Any, dilation: Any, groups: int, result: Any
) -> Geometry | Volumes:
    """Return the geometry for sizes along two axes, or along three axes of volumes."""
    if len(window) == 2:
        return Geometry(window, stride, before, after, dilation, groups, result)
    depth = Geometry(
        (window[0], 1), (stride[0], 1), (before[0], 0), (after[0], 0), (dilation[0], 1), groups, (result[0], 1)
    )
    return Volumes(depth, Geometry(window[1:], stride[1:], before[1:], after[1:], dilation[1:], groups, result[1:]))


def transposed_geometry(
    places: Any, window: Any, stride: Any, padding: Any, dilation: Any, more: Any, groups: int
) -> tuple[Geometry | Volumes, tuple[int, ...]]:
    """Return the geometry of the convolution whose results have the size `places`, and the size of its images.

    `more` is the output padding of the transposed convolution, which adds pixels at the end of the images.
    """
    size = tuple(
        (n - 1) * step - 2 * width + gap * (kernel - 1) + extra + 1
        for n, kernel, step, width, gap, extra in zip(places, window, stride, padding, dilation, more, strict=True)
    )
    return geometry_along(window, stride, padding, padding, dilation, groups, places), size


def by(sizes: Sequence[int]) -> str:
    """Return sizes as text, such as 3 x 4."""
    return " x ".join(map(str, sizes))


def read_padding(
    padding: Any, steps: tuple[int, ...], gaps: tuple[int, ...], window: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the zeros before and after an image along each axis: (rows above, columns left) and (rows below, ...).

    As in torch.nn.Conv2d, "same" gives results as large as the images. If their total is odd, the end gets one more.
    """
    if not isinstance(padding, str):
        border = read_sizes("padding", padding, 0, len(steps))
        return border, border
    if padding not in ("same", "valid") or (padding == "same" and any(step != 1 for step in steps)):
        raise ValueError(
            f"padding is an integer, {'a triple' if len(steps) == 3 else 'a pair'} of them, 'valid' or, with a stride "
            f"of 1, 'same'; got {padding!r} with stride {steps}."
        )
    totals = [gap * (places - 1) if padding == "same" else 0 for gap, places in zip(gaps, window, strict=True)]
    return tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)


def as_images(x: NDArray) -> NDArray:
    """Return sequences (N, C, L), or their kernels, as images of one row; images are returned unchanged."""
    return x[:, :, None] if x.ndim == 3 else x


def read_row_option(name: str, value: Any, least: int, row: int) -> Pair:
    """Return an option of sequences, one integer, as an option of images of one row; `row` is its value for rows."""
    number = value[0] if isinstance(value, tuple | list) and len(value) == 1 else value
    if not is_integer(number, least):
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}.")
    return row, int(number)


#: An option with a number for each axis.
TUPLES = {2: "a pair (rows, columns)", 3: "a triple (slices, rows, columns)"}


def read_sizes(name: str, value: Any, least: int, axes: int) -> tuple[int, ...]:
    """Return an option of images (rows, columns) or volumes, which may be one integer for all axes."""
    sizes = (value,) * axes if is_integer(value, least) else value
    if isinstance(sizes, tuple | list) and len(sizes) == axes and all(is_integer(number, least) for number in sizes):
        return tuple(map(int, sizes))
    raise ValueError(f"{name} must be an integer of at least {least}, or {TUPLES[axes]} of them; got {value!r}.")


class Volumes(NamedTuple):
    """The geometry of a convolution of volumes: along the depth, as for images of one column, and on slices.

    Operands are rounded first, so each slice is rounded once for all depths of the kernels. `images_for_kernels`
    divides them into slices afterwards.
    """

    depth: Geometry
    slices: Geometry

    @property
    def planes(self) -> int:
        """The number of slices of a result."""
        return self.depth.result[0]

    @property
    def layers(self) -> int:
        """The number of slices of a volume that a kernel reads."""
        return self.depth.window[0]

    def for_image_gradient(self, size: tuple[int, ...]) -> Volumes:
        """Return the geometry of the convolution from gradients of results to gradients of volumes of this size."""
        depth, *slices = size
        return Volumes(self.depth.for_image_gradient((depth, 1)), self.slices.for_image_gradient(tuple(slices)))

    def images_for_kernels(self, x: NDArray) -> NDArray:
        """Return the slices for each depth of the kernel as images: (N * planes, C * layers, H, W) from (N, C, D, H,
        W)."""
        # Along the depth a volume is an image of d rows, each a complete slice of h * w pixels: `Geometry` pads and
        # strides it.
        n, c, d, h, w = x.shape
        geometry = self.depth._replace(result=(self.planes, h * w))
        windows = geometry.windows(geometry.pad_images(x.reshape(n, c, d, h * w), x.dtype))
        return windows.transpose(0, 4, 1, 2, 3, 5).reshape(-1, c * self.layers, h, w)


def convolve_by_im2col(
    x: NDArray, w: NDArray, geometry: Geometry, options: Options, initial: NDArray | None = None
) -> NDArray[np.floating]:
    """Convolve images x (N, C, H, W) with kernels w (O, C / groups, h, w); return (N, O, rows, columns)."""
    patches, kernels = im2col(x, w, geometry)
    shape, depth = (len(x), len(w), *geometry.result), math.prod(w.shape[1:])
    a, b, work = prepare_sum(patches, kernels, shape, depth, options, initial=initial)
    count = math.prod(shape)
    sums = with_progress_bar(lambda work: sums_of_images(a, b, work, geometry), work, count, depth, options.accumulator)
    return round_sums(sums, shape, options, work, a, b)


def im2col(x: NDArray, w: NDArray, geometry: Geometry) -> tuple[NDArray, NDArray]:
    """Return the factors of a convolution: (images, groups, pixels, k) and (groups, k, channels)."""
    groups, depth = geometry.groups, math.prod(w.shape[1:])
    patches = _in_c_order(_windows(x, geometry)).reshape(len(x), groups, depth, geometry.pixels).swapaxes(-1, -2)
    return patches, w.reshape(groups, len(w) // groups, depth).swapaxes(-1, -2)


def sums_of_images(patches: NDArray, kernels: NDArray, work: PreparedSum, geometry: Geometry) -> NDArray:
    """Return the unrounded sums of the factors of a convolution as one vector in C order of (N, O, rows, columns)."""
    shape = (len(patches), geometry.groups, geometry.pixels, kernels.shape[-1])
    return sums_of_matrices(shape, patches, kernels, work, is_transposed=True)


def weight_gradient_by_im2col(g: NDArray, x: NDArray, geometry: Geometry, options: Options) -> NDArray[np.floating]:
    """Return the gradient (O, C / groups, h, w) from g (N, O, rows, columns) and images x (N, C, H, W)."""
    return multiply_matrices(*weight_gradient_factors(g, x, geometry), options).reshape(kernel_shape(g, x, geometry))


def weight_gradient_factors(g: NDArray, x: NDArray, geometry: Geometry) -> tuple[NDArray, NDArray]:
    """Return the factors of the gradient of kernels, (groups, outputs, k) and (groups, k, elements of a kernel)."""
    groups, outputs, channels = geometry.groups, g.shape[1] // geometry.groups, x.shape[1] // geometry.groups
    depth, places = len(x) * geometry.pixels, channels * math.prod(geometry.window)
    # k runs over (image, pixel) in both factors, so each result is one sum over the whole batch.
    gradients = g.reshape(len(x), groups, outputs, geometry.pixels).transpose(1, 2, 0, 3)
    patches = _in_c_order(_windows(x, geometry).transpose(0, 4, 5, 1, 2, 3)).reshape(depth, groups, places)
    return gradients.reshape(groups, outputs, depth), patches.swapaxes(0, 1)


def kernel_shape(g: NDArray, x: NDArray, geometry: Geometry) -> tuple[int, ...]:
    """Return the shape (O, C / groups, h, w) of the kernels."""
    return g.shape[1], x.shape[1] // geometry.groups, *geometry.window


def _in_c_order(patches: NDArray) -> NDArray:
    """Return the values of a view in C order."""
    return patches if patches.flags.c_contiguous else copy(patches, patches.dtype)


def _windows(x: NDArray, geometry: Geometry) -> NDArray:
    """Return the windows of the kernels, (image, channel, kernel row, kernel column, row, column)."""
    return geometry.windows(geometry.pad_images(x, x.dtype))
