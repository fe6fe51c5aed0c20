"""The gradient of a convolution's kernels: products of the gradients of results and the pixels that they came from."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.contraction import prepare_sum, round_sums
from simfloat.accumulate.engine import Engine, Region
from simfloat.accumulate.geometry import Geometry
from simfloat.accumulate.im2col import weight_gradient_by_im2col, weight_gradient_factors
from simfloat.accumulate.long_sums import with_progress_bar
from simfloat.accumulate.product_plan import Options, PreparedSum
from simfloat.accumulate.tiles import FEW_COLUMNS, sums_of_matrices
from simfloat.accumulate.volumes import Volumes
from simfloat.arithmetic.bit_stream import Draw
from simfloat.arithmetic.machines import is_on_gpu
from simfloat.arithmetic.threads import busy_threads, run_all, scratch

#: Elements of the patches that are gathered at a time, so that memory stays small beside that of the images.
GRADIENT_PATCH_ELEMENTS = 1 << 22


def conv2d_weight_gradient(
    g: NDArray, x: NDArray, geometry: Geometry | Volumes, options: Options
) -> NDArray[np.floating]:
    """(O, C / groups, h, w) from g (N, O, rows, columns) and images x (N, C, H, W) of a convolution of this geometry.

    Each result is one sum over (image, row, column) of g times what the kernel's place met there, zeros in the padding
    included: the product of g (O, N * rows * columns) and the transposed im2col of x. Of volumes x (N, C, D, H, W), g
    is (N * planes, O, rows, columns), and slices are channels of the result.
    """
    slices = geometry.slices
    if options.plan.has_blocks:
        return weight_gradient_by_im2col(g, geometry.images_for_kernels(x), slices, options)
    channels = x.shape[1] * geometry.layers // slices.groups
    shape = (g.shape[1], channels, *slices.window)
    depth, count = len(g) * slices.pixels, math.prod(shape)
    g, x, work = prepare_sum(g, x, shape, depth, options)
    images = geometry.images_for_kernels(x)
    sums = with_progress_bar(
        lambda work: _weight_sums(g, images, slices, work), work, count, depth, options.accumulator
    )
    return round_sums(sums, shape, options, work, g, x)


def _weight_sums(g: NDArray, x: NDArray, geometry: Geometry, work: PreparedSum) -> NDArray:
    """The unrounded sums as one vector in C order."""
    engine = work.engine
    if is_on_gpu(x):
        left, right = weight_gradient_factors(g, x, geometry)
        return sums_of_matrices((*left.shape[:2], right.shape[-1]), left, right, work)
    groups, places = geometry.groups, math.prod(geometry.window)
    outputs, channels = g.shape[1] // groups, x.shape[1] // groups
    depth = len(x) * geometry.pixels
    # The innermost loop runs over columns: places of kernels, or if these are few, outputs.
    swap = channels * places < min(outputs, FEW_COLUMNS)
    gradients = g.reshape(len(x), groups, outputs, geometry.pixels).transpose((1, 0, 3, 2) if swap else (1, 2, 0, 3))
    with np.errstate(invalid="ignore"):  # converting a signalling NaN
        gradients = np.array(gradients, engine.carrier, order="C")
        gradients = gradients.reshape(groups, *((depth, outputs) if swap else (outputs, depth)))
        images = geometry.pad_images(x, engine.carrier)
    if not swap:  # channels next to each other, as the patches have them: twice as quick to gather
        images = np.ascontiguousarray(images.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    windows = geometry.windows(images)
    sums = np.zeros((groups, outputs, channels * places), engine.carrier)
    task = _WeightGradientTask(engine, windows, gradients, sums, work.draw, swap)
    threads = busy_threads(sums.size * depth * engine.cost)
    run_all(task.compute, _ranges(groups, channels, places, depth, threads))
    return sums.reshape(-1)


class _ChannelRange(NamedTuple):
    """What is computed at a time: of a group the channels from `first` to before `last`."""

    group: int
    first: int
    last: int


class _WeightGradientTask(NamedTuple):
    """What the tiles have in common."""

    engine: Engine
    windows: NDArray  # (images, channels, kernel row, kernel column, rows, columns)
    gradients: NDArray  # (groups, outputs, depth), or with the last two swapped
    sums: NDArray  # (groups, outputs, channels and places)
    draw: Draw | None
    swap: bool

    def compute(self, tile: _ChannelRange) -> None:
        groups, outputs, columns = self.sums.shape
        channels = self.windows.shape[1] // groups
        places = columns // channels
        start, stop = tile.first * places, tile.last * places
        out = self.sums[tile.group, :, start:stop]
        out = out.T if self.swap else out
        first = tile.group * outputs * columns + start
        row_step, column_step = (1, columns) if self.swap else (columns, 1)
        region = Region(first, row_step, column_step, self.draw, self.swap)
        # A tile is some columns of the result, which are not contiguous: it is summed in memory of the thread's own.
        sums = scratch("correlated", out.size, self.engine.carrier).reshape(out.shape)
        sums[:] = 0
        channel = tile.group * channels
        patches = self._patches(self.windows[:, channel + tile.first : channel + tile.last])
        left, right = (patches, self.gradients[tile.group]) if self.swap else (self.gradients[tile.group], patches)
        self.engine.run(left, right, sums, region)
        out[:] = sums

    def _patches(self, windows: NDArray) -> NDArray:
        """What each place of the kernels met, (image, row, column) by (channel, kernel row, kernel column)."""
        order = (1, 2, 3, 0, 4, 5) if self.swap else (0, 4, 5, 1, 2, 3)
        moved = windows.transpose(order)
        patches = scratch("patches", moved.size, self.engine.carrier).reshape(moved.shape)
        if self.swap:
            np.copyto(patches, moved)
        else:
            # Channels lie side by side in `images`, so one place of the kernels is copied in long
            # runs; to copy the whole view at once would take its elements one by one.
            for place in np.ndindex(*moved.shape[4:]):
                patches[..., *place] = moved[..., *place]
        return patches.reshape(math.prod(moved.shape[:3]), math.prod(moved.shape[3:]))


def _ranges(groups: int, channels: int, places: int, depth: int, threads: int) -> list[_ChannelRange]:
    """All tiles: at least one for every thread, unless they got too narrow for the inner loop."""
    most = max(GRADIENT_PATCH_ELEMENTS // max(depth * places, 1), 1)
    pieces = max(-(-channels // most), -(-threads // groups))
    pieces = min(pieces, max(channels * places // FEW_COLUMNS, 1), channels)
    width = -(-channels // pieces)
    return [
        _ChannelRange(group, first, min(first + width, channels))
        for group in range(groups)
        for first in range(0, channels, width)
    ]
