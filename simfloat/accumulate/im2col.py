"""Convolutions as products of matrices: the patches of images, im2col, are written out whole.

So it is for operands that are scaled in blocks, which run along k of the im2col: a pixel has as many elements as there
are kernels' places that meet it, each with the scale of its own block. And so it is on a GPU.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.contraction import prepare_sum, round_sums
from simfloat.accumulate.geometry import Geometry
from simfloat.accumulate.long_sums import with_progress_bar
from simfloat.accumulate.product import multiply_matrices
from simfloat.accumulate.product_plan import Options, PreparedSum
from simfloat.accumulate.tiles import sums_of_matrices
from simfloat.arithmetic.arrays import copy


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
