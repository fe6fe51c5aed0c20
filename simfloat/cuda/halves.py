"""Numbers of FP16 and BF16 as images of 16 bits: see `kernels/halves.py`."""

from __future__ import annotations

from simfloat.cuda.instructions import image_of_bfloat, result_of_bfloat
from simfloat.cuda.loop import threads_over
from simfloat.kernels.halves import image, result


def converting(convert):
    """The loop that converts a matrix."""

    @threads_over("out")
    def loop(i, x, out):
        row, column = i // out.shape[1], i % out.shape[1]
        out[row, column] = convert(x[row, column])

    return loop


images_of = {"halves": converting(image), "bfloats": converting(image_of_bfloat)}
numbers_of = {"halves": converting(result), "bfloats": converting(result_of_bfloat)}
