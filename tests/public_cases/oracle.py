"""Values that are independent of simfloat: fractions, rounded once."""

import math
from fractions import Fraction

#: Precision, exponent of the smallest normal number, exponent of the largest number.
FP16, BF16, FP32 = (11, -14, 15), (8, -126, 127), (24, -126, 127)


def binade(x):
    """The floor of log2 |x|, for a fraction other than 0."""
    guess = abs(x).numerator.bit_length() - abs(x).denominator.bit_length()
    return guess if abs(x) >= Fraction(2) ** guess else guess - 1


def rounded(x, format):
    """The number of the format that is nearest to x, ties to even, infinite beyond the largest one."""
    precision, emin, emax = format
    x = Fraction(x)
    if x == 0:
        return 0.0
    step = Fraction(2) ** (max(binade(x), emin) - precision + 1)
    result = round(x / step) * step
    return float(result) if abs(result) < Fraction(2) ** (emax + 1) else math.copysign(math.inf, x)
