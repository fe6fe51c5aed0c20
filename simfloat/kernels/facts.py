"""How many bits the numbers of an array have, and where they lie."""

from __future__ import annotations

import numpy as np

from simfloat.kernels.jit import kernel


@kernel
def bit_facts(x, out):
    """Of the finite nonzero elements of a vector: out = [union of fraction fields, least exponent field, greatest].

    Fields are those of the elements as float64; with no such element the least field exceeds the greatest.
    """
    fractions, least, greatest = np.uint64(0), np.int64(4095), np.int64(-1)
    for i in range(x.size):
        image = np.float64(x[i]).view(np.uint64)
        field = np.int64((image >> np.uint64(52)) & np.uint64(0x7FF))
        counts = (field < 2047) & (x[i] != 0.0)
        fractions |= (image & np.uint64(0xFFFFFFFFFFFFF)) if counts else np.uint64(0)
        least = min(least, field if counts else np.int64(4095))
        greatest = max(greatest, field if counts else np.int64(-1))
    out[0], out[1], out[2] = np.int64(fractions), least, greatest
