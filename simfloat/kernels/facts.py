"""How many bits the numbers of an array have, and where they lie."""

from __future__ import annotations

import numpy as np

from simfloat.kernels.jit import kernel, scalar

#: What is found of no numbers: below the lowest exponent field and above the highest.
NO_FIRST, NO_LAST = 4095, -1


@kernel
def bit_facts(x):
    """(precision, low, least, high, finite) of a vector: the fields of accumulate.Facts, of its finite nonzero elements
    as float64; those of the number one if there are none.
    """
    fractions, first, last, finite = np.uint64(0), np.int64(NO_FIRST), np.int64(NO_LAST), True
    for i in range(x.size):
        field, fraction = fields_of(x[i])
        counts = (field < 2047) & (x[i] != 0.0)
        finite &= field < 2047
        fractions |= fraction if counts else np.uint64(0)
        first = min(first, field if counts else np.int64(NO_FIRST))
        last = max(last, field if counts else np.int64(NO_LAST))
    return _facts_from(fractions, first, last, finite)


@scalar
def fields_of(x):
    """The biased exponent and the fraction in a number's image as float64."""
    image = np.float64(x).view(np.uint64)
    return np.int64((image >> np.uint64(52)) & np.uint64(0x7FF)), image & np.uint64(0xFFFFFFFFFFFFF)


def facts_from(fractions, first, last, finite):
    """The facts of numbers whose fractions use these bits together, and whose fields lie from `first` to `last`."""
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


_facts_from = scalar(facts_from)
