"""How many bits the numbers of an array have, and where they lie."""

from __future__ import annotations

import numpy as np

from simfloat.kernels.jit import kernel


@kernel
def bit_facts(x):
    """(fractions, least, greatest, finite) of a vector: the union of the fraction fields and the least and greatest
    exponent field of its finite nonzero elements, as float64, and whether all elements are finite.

    With no finite nonzero element the least field exceeds the greatest.
    """
    fractions, least, greatest, finite = np.uint64(0), np.int64(4095), np.int64(-1), True
    for i in range(x.size):
        image = np.float64(x[i]).view(np.uint64)
        field = np.int64((image >> np.uint64(52)) & np.uint64(0x7FF))
        finite &= field < 2047
        counts = (field < 2047) & (x[i] != 0.0)
        fractions |= (image & np.uint64(0xFFFFFFFFFFFFF)) if counts else np.uint64(0)
        least = min(least, field if counts else np.int64(4095))
        greatest = max(greatest, field if counts else np.int64(-1))
    return np.int64(fractions), least, greatest, finite
