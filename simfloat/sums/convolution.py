"""Convolutions, which are products of kernels and patches of images, and the gradient of their kernels.

The gradient is a product of the gradients of the results and the pixels that the results were computed from.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.bit_stream import Draw, Stream
from simfloat.arithmetic.machines import is_on_gpu
from simfloat.arithmetic.operands import as_operand
from simfloat.arithmetic.target import Observer
from simfloat.arithmetic.threads import busy_threads, run_all, scratch
from simfloat.environment import in_usual_environment
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import RoundingLike
from simfloat.sums.accumulator import Accumulator, Engine, Region, takes_stacks
from simfloat.sums.contraction import prepare_sum, round_sums, with_progress_bar
from simfloat.sums.geometry import (
    Geometry,
    Pair,
    Volumes,
    convolve_by_im2col,
    geometry_of,
    im2col,
    read_sizes,
    sums_of_images,
    weight_gradient_by_im2col,
    weight_gradient_factors,
)
from simfloat.sums.plan import Options, PreparedSum
from simfloat.sums.product import Inputs, read_options, refuse_flags
from simfloat.sums.tiles import FEW_COLUMNS, TURNED, UPRIGHT, stack_matrices, start_sums, sums_of_matrices

#: Elements of the patches that are gathered at a time. They stay in the cache while all kernels use them.
PATCH_ELEMENTS = 1 << 18

#: Below this number of pixels, gathering in smaller pieces would cost the inner loop more than the cache gains.
LEAST_PIXELS = 256


@in_usual_environment
def conv2d(
    x: ArrayLike,
    w: ArrayLike,
    *,
    stride: int | Pair = 1,
    padding: int | Pair = 0,
    dilation: int | Pair = 1,
    groups: int = 1,
    inputs: Inputs = None,
    accumulate: Accumulator | FormatLike,
    output: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    initial: ArrayLike | None = None,
    stream: Stream | None = None,
    observer: Observer | None = None,
    flags: bool = False,
) -> NDArray[np.floating]:
    """Convolve images `x` with kernels `w`.

    As usual in neural networks, kernels are not mirrored. Each element of the result is one sum, as in
    :func:`simfloat.matmul`, with k over (channel, kernel row, kernel column). Elements of the padding are operands +0
    that take part in the sum: times an infinity they give NaN.

    Casts with scales: a scale for a whole operand covers the images, or the kernels, themselves. Blocks run along k, so
    a pixel is scaled separately in every patch that contains it. If either operand has blocks, the operands are these
    patches: pixels that no kernel reads do not affect a scale for a whole operand, and blocks across k are within one
    image.

    Parameters:
        x: images (N, C, H, W).
        w: kernels (O, C / groups, h, w).
        stride, padding, dilation: integers or pairs (rows, columns); by default 1, 0 and 1.
        groups: the number of groups. Each group of C / groups channels gives O / groups channels of the result.
        inputs: a format or a :func:`simfloat.cast` that x and w are first rounded to, or a pair of them; by default
            none.
        accumulate: an accumulator, or a format, which means `sequential(format)`.
        output: the format of the result; by default the format of the accumulator.
        rounding: the mode in which sums are rounded to `output`; by default to nearest even.
        initial: start values of the sums, an array that broadcasts to the result; by default +0.
        stream: the random bits of stochastic modes (`BitStream` or `GivenBits`). Stochastic steps number the elements
            of the result in C order.
        observer: receives the rounding events of the casts and of the results.
        flags: must be False, because convolutions have no flags; `matmul` has them.

    Returns:
        An array (N, O, rows, columns). It is float32 if x and w are float32 and the output format fits into float32,
        otherwise float64.

    Raises:
        ValueError: if the shapes do not fit together, or if kernels are larger than the padded images.
        ValueError: for the options that :func:`simfloat.matmul` rejects.

    Examples:
        >>> image, kernel = np.ones((1, 1, 4, 4)), np.full((1, 1, 3, 3), 0.1)
        >>> sf.conv2d(image, kernel, inputs=sf.FP16, accumulate=sf.FP16)
        array([[[[0.90039062, 0.90039062],
                 [0.90039062, 0.90039062]]]])
    """
    if flags is not False:
        refuse_flags("conv2d", flags)
    x, w = as_operand(x, "x"), as_operand(w, "w")
    geometry = geometry_of(x, w, stride, read_sizes("padding", padding, 0, 2), dilation, groups)
    options = read_options([x, w], inputs, accumulate, output, rounding, stream, observer, "conv2d")
    initial = None if initial is None else as_operand(initial, "initial")
    return convolve(x, w, geometry, options, initial)


def convolve(
    x: NDArray, w: NDArray, geometry: Geometry | Volumes, options: Options, initial: NDArray | None = None
) -> NDArray[np.floating]:
    """Convolve; geometry and options are not checked.

    For volumes x (N, C, D, H, W), slices are channels of w, and the result is (N * planes, O, rows, columns).
    """
    slices = geometry.slices
    if options.plan.has_blocks:
        return convolve_by_im2col(geometry.images_for_kernels(x), w, slices, options, initial)
    shape, depth = (len(x) * geometry.planes, len(w), *slices.result), math.prod(w.shape[1:])
    x, w, work = prepare_sum(x, w, shape, depth, options, initial=initial)
    images, count = geometry.images_for_kernels(x), math.prod(shape)
    sums = with_progress_bar(lambda work: _sums(images, w, slices, work), work, count, depth, options.accumulator)
    return round_sums(sums, shape, options, work, x, w)


def _sums(x: NDArray, w: NDArray, geometry: Geometry, work: PreparedSum) -> NDArray:
    """Return the unrounded sums as one vector in C order."""
    engine, draw = work.engine, work.draw
    if is_on_gpu(x):
        return sums_of_images(*im2col(x, w, geometry), work, geometry)
    groups, pixels = geometry.groups, geometry.pixels
    channels, depth = len(w) // groups, math.prod(w.shape[1:])
    # The innermost loop runs over columns: pixels, or channels if there are few pixels.
    swap = pixels < min(channels, FEW_COLUMNS)
    weights = w.reshape(groups, channels, depth)
    with np.errstate(invalid="ignore"):  # conversion of a signalling NaN
        weights = np.array(weights.swapaxes(1, 2) if swap else weights, engine.carrier, order="C")
        windows = geometry.windows(geometry.pad_images(x, engine.carrier))
    sums = np.zeros((len(x), groups, channels, pixels), engine.carrier)
    if work.initial is not None:
        start_sums(work.initial.reshape(sums.shape), sums)
    task = _ConvolutionTask(geometry, engine, windows, weights, sums, draw, swap)
    threads = busy_threads(sums.size * depth * engine.cost)
    run_all(task.compute_all, _tiles_of_threads(_tiles(len(x), depth, geometry, threads, swap), threads))
    return sums.reshape(-1)


class _ImageRows(NamedTuple):
    """A tile: the rows from `first` to before `last` of the result of one image."""

    image: int
    first: int
    last: int


class _ConvolutionTask(NamedTuple):
    """The data that all tiles share."""

    geometry: Geometry
    engine: Engine
    windows: NDArray  # (images, channels, kernel row, kernel column, rows, columns)
    weights: NDArray  # (groups, channels, depth), or with the last two swapped
    sums: NDArray  # (images, groups, channels, pixels)
    draw: Draw | None
    swap: bool

    def compute_all(self, tiles: list[_ImageRows]) -> None:
        for tile in tiles:
            self._compute(tile)

    def _compute(self, tile: _ImageRows) -> None:
        _, groups, channels, pixels = self.sums.shape
        start, stop = tile.first * self.geometry.result[1], tile.last * self.geometry.result[1]
        depth = self.weights.shape[1 if self.swap else 2]
        patches, out = self._patches(tile).reshape(groups, depth, stop - start), self.sums[tile.image, ..., start:stop]
        if groups > 1 and self.draw is None and takes_stacks(self.engine):
            # All groups in one call of the loop. With a call for each group, a step of a depthwise convolution of 128
            # channels took 2.9 times as long (14 x 14 pixels, BF16; AMD Zen 3).
            self._multiply(patches, self.weights, out, UPRIGHT if self.swap else TURNED)
            return
        row_step, column_step = (1, pixels) if self.swap else (pixels, 1)
        for group in range(groups):
            first = (tile.image * groups + group) * channels * pixels + start
            region = Region(first, row_step, column_step, self.draw, not self.swap)
            self._multiply(patches[group], self.weights[group], out[group], region)

    def _multiply(self, patches: NDArray, weights: NDArray, out: NDArray, region: Region) -> None:
        """Add the engine's sums to `out`, which need not be contiguous; of one group, or of all groups as a stack."""
        left, right = weights, patches
        if self.swap:
            left, right, out = np.ascontiguousarray(patches.swapaxes(-1, -2)), weights, out.swapaxes(-1, -2)
        sums = out
        # Some rows of a channel of the result are not contiguous, and loops accept only contiguous sums.
        if not out.flags.c_contiguous:
            sums = scratch("convolved", out.size, self.engine.carrier).reshape(out.shape)
            sums[:] = out
        self.engine.run(stack_matrices(left), stack_matrices(right), stack_matrices(sums), region)
        if sums is not out:
            out[:] = sums

    def _patches(self, tile: _ImageRows) -> NDArray:
        """Return the patches of the kernels, (channels, kernel row, kernel column, rows, columns), contiguous in
        memory."""
        windows = self.windows[tile.image, :, :, :, tile.first : tile.last]
        # For kernels of one element and stride 1, the windows are the images themselves: nothing is gathered.
        if windows.flags.carray:
            return windows
        patches = scratch("patches", windows.size, self.engine.carrier).reshape(windows.shape)
        np.copyto(patches, windows)
        return patches


def _tiles(images: int, depth: int, geometry: Geometry, threads: int, swap: bool) -> list[_ImageRows]:
    """Return all tiles: at least one for every thread, unless they would become too narrow for the inner loop."""
    rows = geometry.result[0]
    most = max(LEAST_PIXELS, PATCH_ELEMENTS // max(depth * geometry.groups, 1))
    # Patches should fit into the cache, and there should be a tile for every thread. But the loop runs over pixels, so
    # a tile of a few pixels would be slow.
    pieces = max(-(-geometry.pixels // most), -(-threads // max(images, 1)))
    pieces = min(pieces, rows if swap else max(geometry.pixels // FEW_COLUMNS, 1))
    height = -(-rows // pieces)
    starts = range(0, rows, height)
    return [_ImageRows(image, first, min(first + height, rows)) for image in range(images) for first in starts]


def _tiles_of_threads(tiles: list[_ImageRows], threads: int) -> list[list[_ImageRows]]:
    """Return the tiles of each thread."""
    length = max(-(-len(tiles) // max(threads, 1)), 1)
    return [tiles[start : start + length] for start in range(0, len(tiles), length)]


#: Elements of the patches that are gathered at a time. It keeps their memory small compared with the images.
GRADIENT_PATCH_ELEMENTS = 1 << 22


def conv2d_weight_gradient(
    g: NDArray, x: NDArray, geometry: Geometry | Volumes, options: Options
) -> NDArray[np.floating]:
    """Return the gradient (O, C / groups, h, w) of the kernels, from g (N, O, rows, columns) and images x (N, C, H, W).

    Each element is one sum over (image, row, column) of g times the pixel that the kernel element was multiplied by,
    including zeros of the padding: the product of g (O, N * rows * columns) and the transposed im2col of x. For volumes
    x (N, C, D, H, W), g is (N * planes, O, rows, columns), and slices are channels of the result.
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
    """Return the unrounded sums as one vector in C order."""
    engine = work.engine
    if is_on_gpu(x):
        left, right = weight_gradient_factors(g, x, geometry)
        return sums_of_matrices((*left.shape[:2], right.shape[-1]), left, right, work)
    groups, places = geometry.groups, math.prod(geometry.window)
    outputs, channels = g.shape[1] // groups, x.shape[1] // groups
    depth = len(x) * geometry.pixels
    # The innermost loop runs over columns: elements of kernels, or outputs if there are few elements.
    swap = channels * places < min(outputs, FEW_COLUMNS)
    gradients = g.reshape(len(x), groups, outputs, geometry.pixels).transpose((1, 0, 3, 2) if swap else (1, 2, 0, 3))
    with np.errstate(invalid="ignore"):  # conversion of a signalling NaN
        gradients = np.array(gradients, engine.carrier, order="C")
        gradients = gradients.reshape(groups, *((depth, outputs) if swap else (outputs, depth)))
        images = geometry.pad_images(x, engine.carrier)
    if not swap:  # channels next to each other, as in the patches: gathering takes half the time
        images = np.ascontiguousarray(images.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    windows = geometry.windows(images)
    sums = np.zeros((groups, outputs, channels * places), engine.carrier)
    task = _WeightGradientTask(engine, windows, gradients, sums, work.draw, swap)
    threads = busy_threads(sums.size * depth * engine.cost)
    if groups > 1 and work.draw is None and takes_stacks(engine):
        run_all(task.compute_groups, _ranges(groups, channels * places * depth, threads))
    else:
        pieces = min(max(channels * places // FEW_COLUMNS, 1), channels)
        ranges = _ranges(channels, places * depth, -(-threads // groups), pieces)
        run_all(task.compute, [(group, part) for group in range(groups) for part in ranges])
    return sums.reshape(-1)


class _WeightGradientTask(NamedTuple):
    """The data that all tiles share."""

    engine: Engine
    windows: NDArray  # (images, channels, kernel row, kernel column, rows, columns)
    gradients: NDArray  # (groups, outputs, depth), or with the last two swapped
    sums: NDArray  # (groups, outputs, channels and places)
    draw: Draw | None
    swap: bool

    def compute_groups(self, groups: slice) -> None:
        """Sum the gradients of some groups in one call of the loop."""
        self._correlate(groups, slice(None), self.sums[groups], TURNED if self.swap else UPRIGHT)

    def compute(self, tile: tuple[int, slice]) -> None:
        """Sum the gradients of some channels of one group."""
        group, part = tile
        _, outputs, columns = self.sums.shape
        places = math.prod(self.windows.shape[2:4])
        first = group * outputs * columns + part.start * places
        row_step, column_step = (1, columns) if self.swap else (columns, 1)
        region = Region(first, row_step, column_step, self.draw, self.swap)
        out = self.sums[group : group + 1, :, part.start * places : part.stop * places]
        self._correlate(slice(group, group + 1), part, out, region)

    def _correlate(self, groups: slice, part: slice, out: NDArray, region: Region) -> None:
        """Store the engine's sums for these channels of these groups."""
        out = out.swapaxes(1, 2) if self.swap else out
        # Some columns of the result are not contiguous: they are summed in scratch memory of the thread.
        sums = scratch("correlated", out.size, self.engine.carrier).reshape(out.shape)
        sums[:] = 0
        patches, gradients = self._patches(groups, part), self.gradients[groups]
        left, right = (patches, gradients) if self.swap else (gradients, patches)
        self.engine.run(stack_matrices(left), stack_matrices(right), stack_matrices(sums), region)
        out[:] = sums

    def _patches(self, groups: slice, part: slice) -> NDArray:
        """Return the pixels for each kernel element of channels of groups: group, (image, row, column) by (channel,
        kernel row, kernel column)."""
        images, channels, *window = self.windows.shape
        grouped = self.windows.reshape(images, len(self.sums), channels // len(self.sums), *window)[:, groups, part]
        moved = grouped.transpose((1, 2, 3, 4, 0, 5, 6) if self.swap else (1, 0, 5, 6, 2, 3, 4))
        patches = scratch("patches", moved.size, self.engine.carrier).reshape(moved.shape)
        if self.swap:
            np.copyto(patches, moved)
        else:
            # Channels are contiguous in `images`, so the pixels of one kernel element are copied in long runs; copying
            # the whole view at once would copy single elements.
            for place in np.ndindex(*moved.shape[5:]):
                patches[..., *place] = moved[..., *place]
        return patches.reshape(len(moved), math.prod(moved.shape[1:4]), math.prod(moved.shape[4:]))


def _ranges(count: int, elements: int, threads: int, most_pieces: int | None = None) -> list[slice]:
    """Return ranges of channels or groups with so many elements each: at least one range for every thread."""
    most = max(GRADIENT_PATCH_ELEMENTS // max(elements, 1), 1)
    pieces = min(max(-(-count // most), threads), most_pieces or count)
    width = -(-count // pieces)
    return [slice(first, min(first + width, count)) for first in range(0, count, width)]
