"""Cases that are computed with NumPy arrays and on a GPU or its stand-in; every case returns arrays.

A case takes a function that moves an array: `given` leaves it on the CPU.
"""

import numpy as np

from tests.bits import assert_bits
from tests.cuda.cases import arrays, elementwise, layers, sums, tiles, trainings

CASES = {
    case.__name__: case
    for case in (
        *(elementwise.rounding, elementwise.given_bits, elementwise.codes, elementwise.exact_operations),
        *(elementwise.functions, elementwise.careful_functions, elementwise.shapes, elementwise.layouts),
        *(elementwise.spacings, elementwise.events),
        *(sums.sums, sums.steps, sums.running_sums, sums.products, sums.convolutions, sums.nothing),
        *(tiles.tiles, arrays.reads, arrays.writes),
        *(layers.layers, layers.attention, layers.losses, layers.conditions, layers.slopes),
        *(trainings.training, trainings.training_of_images, trainings.training_of_sequences),
        *(trainings.optimizers, trainings.updates, trainings.loss_scales, trainings.clipped),
    )
}


def given(x):
    """Return NumPy arrays unchanged."""
    return x


def results(case, move):
    """What a case gives; on the GPU, that which stayed there."""
    return [x if isinstance(x, np.ndarray) else x.get() for x in case(move)]


def compare(got, want):
    """The results of a case on two machines: types, shapes and bits."""
    assert len(got) == len(want)
    for one, other in zip(got, want, strict=True):
        assert one.dtype == other.dtype
        assert_bits(one, other)
