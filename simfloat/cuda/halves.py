"""FP16 numbers as images: see `kernels/halves.py`."""

from __future__ import annotations

from simfloat.cuda.loop import threads_over
from simfloat.kernels.halves import image, number


@threads_over("out")
def images_of(i, x, out):
    """The images of a matrix of float32."""
    row, column = i // out.shape[1], i % out.shape[1]
    out[row, column] = image(x[row, column])


@threads_over("out")
def numbers_of(i, images, out):
    """The numbers of a matrix of images, as float32."""
    row, column = i // out.shape[1], i % out.shape[1]
    out[row, column] = number(images[row, column])
