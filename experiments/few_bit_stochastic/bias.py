"""Stochastic rounding with few random bits, for every draw and every number: how often it rounds away from zero.

A number lies between two neighbours. The fraction f is its distance from the neighbour nearer to zero, relative to the
distance of the neighbours. Rounding away should have the probability f. N random bits turn f into multiples of 2^-N,
depending on the variant (IEEE P3109): A truncates f, B and C round it to nearest, with ties up and ties to even.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import simfloat as sf

VARIANTS = ("A", "B", "C")

#: Numbers of random bits, and of bits that a number has beyond the format.
BITS, EXTRA = range(1, 7), range(2, 11)

#: The format; every other format has the same fractions.
FORMAT = sf.FP16


def measure_bias(tiny: bool) -> list[dict[str, Any]]:
    """Return for each variant, random bits and extra bits the mean of P(away) - f over all f, and that of the theory.

    "exceptions" counts the fractions for which P(away) is not the multiple of 2^-N to which the variant turns f.
    """
    rows = []
    for variant in VARIANTS:
        for bits in range(1, 3) if tiny else BITS:
            for extra in range(2, 5) if tiny else EXTRA:
                fractions = np.arange(2**extra) / 2**extra
                chance = chance_of_rounding_away(fractions, bits, variant)
                bias = float(np.mean(chance - fractions))
                exceptions = int(np.sum(chance != rounded_fraction(fractions, bits, variant)))
                known = {"mode": variant, "bits": bits, "extra": extra}
                rows.append(
                    {**known, "bias": bias, "theory": mean_bias(variant, bits, extra), "exceptions": exceptions}
                )
    return rows


def chance_of_rounding_away(fractions: NDArray, bits: int, variant: str) -> NDArray[np.float64]:
    """Return the share of the 2^bits draws with which 1 + f eps is rounded to 1 + eps."""
    numbers = np.repeat(1 + fractions * FORMAT.eps, 2**bits)
    draws = sf.GivenBits(np.tile(np.arange(2**bits), len(fractions)))
    rounded = sf.round(numbers, FORMAT, sf.stochastic(bits, variant), stream=draws)
    return np.mean(rounded.reshape(len(fractions), -1) > 1, axis=1)


def rounded_fraction(fractions: NDArray, bits: int, variant: str) -> NDArray[np.float64]:
    """Return the multiple of 2^-bits to which the variant turns f."""
    steps = fractions * 2**bits
    whole = {"A": np.floor(steps), "B": np.floor(steps + 0.5), "C": np.rint(steps)}[variant]
    return whole / 2**bits


def mean_bias(variant: str, bits: int, extra: int) -> float:
    """Return the mean of the rounded fractions over all fractions of `extra` bits, minus their own mean."""
    if extra <= bits or variant == "C":
        return 0.0
    return 2.0 ** -(extra + 1) - (2.0 ** -(bits + 1) if variant == "A" else 0)
