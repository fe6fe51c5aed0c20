"""How many bits the numbers of an array have, and where they lie."""

from __future__ import annotations

import numpy as np

from simfloat.kernels.jit import kernel


@kernel
def bit_facts(x):
    """(precision, low, least, high, finite) of a vector: the fields of accumulate.Facts, of its finite nonzero elements
    as float64; those of the number one if there are none.
    """
    fractions, first, last, finite = np.uint64(0), np.int64(4095), np.int64(-1), True
    for i in range(x.size):
        image = np.float64(x[i]).view(np.uint64)
        field = np.int64((image >> np.uint64(52)) & np.uint64(0x7FF))
        finite &= field < 2047
        counts = (field < 2047) & (x[i] != 0.0)
        fractions |= (image & np.uint64(0xFFFFFFFFFFFFF)) if counts else np.uint64(0)
        first = min(first, field if counts else np.int64(4095))
        last = max(last, field if counts else np.int64(-1))
    # Without compilation, when the loops are debugged, these are NumPy's numbers so far.
    low, high, finite = int(first) - 1023, int(last) - 1022, bool(finite)
    if last < 0:
        return 1, 0, 0, 1, finite
    if first == 0:
        # A subnormal float64 is a multiple of the smallest one.
        return 53, -1074, -1074, max(high, -1021), finite
    # Below the hidden bit, as many bits as the fractions use together.
    used = 52 if fractions != np.uint64(0) else 0
    while used > 0 and fractions & np.uint64(1) == np.uint64(0):
        fractions >>= np.uint64(1)
        used -= 1
    return used + 1, low - used, low, high, finite
