"""Where the kernels of a convolution lie on volumes: their slices are channels of the images that kernels meet."""

from __future__ import annotations

from typing import NamedTuple

from numpy.typing import NDArray

from simfloat.accumulate.geometry import Geometry, Pair


class Volumes(NamedTuple):
    """A convolution's geometry along the depth of volumes, as rows of one column, and on their slices.

    Operands are rounded as they are, a slice once for all depths of the kernels, and taken apart by `met` after that.
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
