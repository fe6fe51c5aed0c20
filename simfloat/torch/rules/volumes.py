"""Convolutions of volumes: those of images whose channels are the slices that a kernel meets."""

from __future__ import annotations

from typing import NamedTuple

from numpy.typing import NDArray

from simfloat.accumulate.geometry import Geometry, Pair, turned
from simfloat.simulation.arithmetic import Arithmetic, Input


class Volumes(NamedTuple):
    """Where the kernels of a convolution lie on volumes: along the depth, as rows of one column, and on the slices."""

    depth: Geometry
    slices: Geometry

    def transposed(self, size: tuple[int, Pair]) -> Volumes:
        """That of the convolution that takes gradients of results to those of volumes of this size."""
        depth, slices = size
        return Volumes(self.depth.transposed((depth, 1)), self.slices.transposed(slices))


def slabs(x: NDArray, depth: Geometry) -> NDArray:
    """The slices that a kernel meets, for each of its depths: (N, C, D, H, W) as (N * depths, C * window, H, W)."""
    n, c, d, h, w = x.shape
    geometry = depth._replace(result=(depth.result[0], h * w))
    windows = geometry.windows(geometry.padded(x.reshape(n, c, d, h * w), x.dtype))
    return windows.transpose(0, 4, 1, 2, 3, 5).reshape(-1, c * depth.window[0], h, w)


def convolve(
    arithmetic: Arithmetic, x: NDArray, w: NDArray, geometry: Geometry | Volumes, inputs: tuple[Input, Input]
) -> NDArray:
    """The convolution of images or volumes; sums go through (channel, slice, row, column)."""
    if isinstance(geometry, Geometry):
        return arithmetic.conv2d(x, w, geometry, *inputs)
    kernels = w.reshape(len(w), -1, *w.shape[3:])
    found = arithmetic.conv2d(slabs(x, geometry.depth), kernels, geometry.slices, *inputs)
    return found.reshape(len(x), -1, *found.shape[1:]).swapaxes(1, 2)


def correlate(
    arithmetic: Arithmetic, g: NDArray, x: NDArray, geometry: Geometry | Volumes, inputs: tuple[Input, Input]
) -> NDArray:
    """The gradient of kernels, slices among the channels; sums go through (example, depth, row, column)."""
    if isinstance(geometry, Geometry):
        return arithmetic.correlate(g, x, geometry, *inputs)
    images = g.swapaxes(1, 2).reshape(-1, g.shape[1], *g.shape[3:])
    return arithmetic.correlate(images, slabs(x, geometry.depth), geometry.slices, *inputs)


def backwards(w: NDArray, groups: int) -> NDArray:
    """Kernels as those of the transposed convolution, mirrored in all directions."""
    images = w.reshape(*w.shape[:-2], w.shape[-2] * w.shape[-1]) if w.ndim == 5 else w
    found = turned(images, groups)
    return found.reshape(*found.shape[:2], *w.shape[2:])
