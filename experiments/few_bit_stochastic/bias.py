"""Stochastic rounding with few random bits, every draw of every number: how often it rounds away from zero.

Between two neighbours a number lies a fraction f of their distance beyond the one nearer to zero. Rounding away should
have the probability f; N random bits make multiples of 2^-N of it, by the variant (IEEE P3109): A cuts f down, B and C
round it to nearest, ties up and ties to even.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import simfloat as sf

VARIANTS = ("A", "B", "C")

#: Random bits, and bits of a number beyond the format's.
BITS, EXTRA = range(1, 7), range(2, 11)

#: The format; any other has the same fractions.
FORMAT = sf.FP16


def measure_bias(tiny: bool) -> list[dict[str, Any]]:
    """For each variant, random bits and extra bits: the mean of P(away) - f over all f, and the theory's.

    "exceptions" counts the fractions for which P(away) is not the multiple of 2^-N that the variant makes of f.
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
    """In how many of the 2^bits draws 1 + f eps is rounded to 1 + eps, over all draws."""
    numbers = np.repeat(1 + fractions * FORMAT.eps, 2**bits)
    draws = sf.GivenBits(np.tile(np.arange(2**bits), len(fractions)))
    rounded = sf.round(numbers, FORMAT, sf.stochastic(bits, variant), stream=draws)
    return np.mean(rounded.reshape(len(fractions), -1) > 1, axis=1)


def rounded_fraction(fractions: NDArray, bits: int, variant: str) -> NDArray[np.float64]:
    """What the variant makes of f: a multiple of 2^-bits."""
    steps = fractions * 2**bits
    whole = {"A": np.floor(steps), "B": np.floor(steps + 0.5), "C": np.rint(steps)}[variant]
    return whole / 2**bits


def mean_bias(variant: str, bits: int, extra: int) -> float:
    """The mean of that over all fractions of so many bits, less their own mean."""
    if extra <= bits or variant == "C":
        return 0.0
    return 2.0 ** -(extra + 1) - (2.0 ** -(bits + 1) if variant == "A" else 0)
