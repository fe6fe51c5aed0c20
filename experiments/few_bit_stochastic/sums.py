"""Long sums under stochastic rounding with few random bits."""

from __future__ import annotations

from typing import Any

import numpy as np

import simfloat as sf
from experiments.few_bit_stochastic.bias import FORMAT, VARIANTS
from simfloat.studies import Job

#: Terms per sum, and the number of sums.
TERMS, TINY_TERMS, SUMS, TINY_SUMS = 4096, 64, 256, 8

#: Numbers of random bits; the last is simfloat's default.
BITS, TINY_BITS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 32), (1, 3, 6, 32)

#: The number of bits that El Arar et al. suggest for this number n of terms: half of log2 n.
SUGGESTED = 6

#: Equal terms that are added to 1: a fraction 2^-6 of the spacing there.
SMALL, SMALL_BITS = 6, range(1, 9)


def measure_sums(job: Job) -> list[dict[str, Any]]:
    """Return the mean and root mean square of the relative errors of sums of random terms from U(0, 1)."""
    terms, sums = (TINY_TERMS, TINY_SUMS) if job["tiny"] else (TERMS, SUMS)
    x = np.asarray(sf.round(np.random.default_rng(job["seed"]).uniform(0, 1, (sums, terms)), FORMAT), np.float64)
    exact = x.sum(axis=1)  # exact: multiples of 2^-24 below 2^12
    rows = []
    for variant in VARIANTS:
        for bits in TINY_BITS if job["tiny"] else BITS:
            accumulate = sf.sequential(FORMAT, rounding=sf.stochastic(bits, variant))
            error = sf.sum(x, axis=1, accumulate=accumulate, stream=sf.BitStream(job["seed"])) / exact - 1
            square = float(np.sqrt(np.mean(error**2)))
            rows.append({"mode": variant, "bits": bits, "drift": float(np.mean(error)), "error": square})
    return rows + stagnation(job["seed"], terms)


def stagnation(seed: int, terms: int) -> list[dict[str, Any]]:
    """Return if a sum of equal, small terms ever leaves 1, and if the variant allows it."""
    small = FORMAT.eps * 2.0**-SMALL
    x = np.concatenate([[1.0], np.full(terms, small)])
    rows = []
    for variant in VARIANTS:
        for bits in SMALL_BITS:
            accumulate = sf.sequential(FORMAT, rounding=sf.stochastic(bits, variant))
            total = float(sf.sum(x, accumulate=accumulate, stream=sf.BitStream(seed)))
            rows.append({"mode": variant, "small_bits": bits, "moves": total > 1, "can": can_move(variant, bits)})
    return rows


def can_move(variant: str, bits: int) -> bool:
    """True if 2^-SMALL is not rounded to 0 as a multiple of 2^-bits: down by A, to nearest by B and C, ties up by B."""
    return bits >= (SMALL - 1 if variant == "B" else SMALL)
