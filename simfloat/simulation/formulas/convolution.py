"""Convolutions of sequences, images and volumes, and transposed convolutions: results, and gradients of both operands.

Each of them is one contraction:

* a result, over (input channel, position in the kernel), with the positions in row-major order;
* the gradient of images, over (output channel, position in the mirrored kernel): the transposed convolution, which is
  the convolution of the gradient, spread by the stride, with the mirrored kernels;
* the gradient of kernels, over (image, position in the result).

Sequences are images of one row. Volumes are convolved as images, whose channels are the slices that a kernel reads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from simfloat.simulation.arithmetic import Arithmetic, Input
from simfloat.sums.geometry import Geometry, Volumes, as_images, mirrored_kernels

#: The roundings of both operands of a contraction.
Inputs = tuple[Input, Input]


class ConvolutionFormula(NamedTuple):
    """A convolution or a transposed convolution, for operands of any number of axes.

    `geometry` and `size` are the geometry of the convolution and the size of its images. A transposed convolution
    takes results of this convolution, and returns images of this size.
    """

    geometry: Geometry | Volumes
    size: Any
    is_transposed: bool = False

    def result(self, u: Arithmetic, x: NDArray, w: NDArray, inputs: Inputs) -> NDArray:
        """Return the result for images `x` and kernels `w`."""
        contract = self._to_images if self.is_transposed else self._from_images
        result = contract(u, as_images(x), as_images(w), inputs)
        return result[:, :, 0] if x.ndim == 3 else result

    def to_x(self, u: Arithmetic, g: NDArray, w: NDArray, shape: tuple[int, ...], inputs: Inputs) -> NDArray:
        """Return the gradient of the images, which have this shape."""
        contract = self._from_images if self.is_transposed else self._to_images
        return contract(u, as_images(g), as_images(w), inputs).reshape(shape)

    def to_kernels(self, u: Arithmetic, g: NDArray, x: NDArray, shape: tuple[int, ...], inputs: Inputs) -> NDArray:
        """Return the gradient of the kernels, which have this shape; `inputs` are the roundings of `g` and `x`."""
        g, x = as_images(g), as_images(x)
        if self.is_transposed:  # the gradient is an image of the convolution, and x is a result
            g, x, inputs = x, g, inputs[::-1]
        results = g.swapaxes(1, 2).reshape(-1, g.shape[1], *g.shape[3:]) if g.ndim == 5 else g
        return u.correlate(results, x, self.geometry, *inputs).reshape(shape)

    def _from_images(self, u: Arithmetic, x: NDArray, w: NDArray, inputs: Inputs) -> NDArray:
        return _convolve(u, x, w, self.geometry, inputs)

    def _to_images(self, u: Arithmetic, g: NDArray, w: NDArray, inputs: Inputs) -> NDArray:
        mirrored = mirrored_kernels(w, self.geometry.slices.groups)
        return _convolve(u, g, mirrored, self.geometry.for_image_gradient(self.size), inputs)


def _convolve(u: Arithmetic, x: NDArray, w: NDArray, geometry: Geometry | Volumes, inputs: Inputs) -> NDArray:
    """Return the convolution of images or volumes, in their number of axes."""
    if isinstance(geometry, Geometry):
        return u.conv2d(x, w, geometry, *inputs)
    slices = u.conv2d(x, w.reshape(len(w), -1, *w.shape[3:]), geometry, *inputs)
    return slices.reshape(len(x), -1, *slices.shape[1:]).swapaxes(1, 2)
