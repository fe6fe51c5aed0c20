"""Compare products with the self-test's definition of their accumulators, element by element."""

from fractions import Fraction

import numpy as np

import simfloat as sf
from simfloat.tools.selftest.orders import dot
from tests.bits import DETERMINISTIC, assert_bits
from tests.reference import matrix_product

#: Modes of sums in each order. A loop takes seconds to compile. Its order comes from one source and its steps from
#: another. So all steps of sequential sums are compared with the definition, and other orders only in these modes.
#: Stochastic modes are compared in FP16.
DRAWN = (sf.stochastic(), sf.stochastic(8, "A"))
MODES = {
    sf.sequential: (*DETERMINISTIC, sf.nearest_even.saturating(), *DRAWN, sf.stochastic(4, "A")),
    sf.pairwise: (sf.nearest_even, sf.toward_zero, sf.to_odd, sf.nearest_even.saturating(), *DRAWN),
    sf.kahan: (sf.nearest_even, sf.toward_negative, sf.toward_positive.saturating(), *DRAWN),
}


def exact_sums(a, b):
    """The product of two matrices in fractions."""
    return [
        [sum(Fraction(x) * Fraction(y) for x, y in zip(row, column, strict=True)) for column in b.T.tolist()]
        for row in a.tolist()
    ]


def check(accumulate, a, b, *, inputs=None, initial=None, seed=3, output=sf.FP64):
    """Check the bits against the definition with its draws; without inputs=, operands are arbitrary float64 numbers."""
    pair = inputs if isinstance(inputs, tuple) else (inputs, inputs)
    emins = tuple(-1022 if format is None else format.emin for format in pair)
    options = {"inputs": inputs, "accumulate": accumulate, "initial": initial, "output": output}
    got = sf.matmul(a, b, stream=sf.BitStream(seed), **options)
    starts = np.broadcast_to(0.0 if initial is None else initial, got.shape).ravel().tolist()
    assert_bits(
        got, matrix_product(a, b, lambda x, y, i: dot(accumulate, x, y, emins, starts[i], element=i, seed=seed))
    )
