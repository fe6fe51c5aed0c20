"""Findings on numbers and sums."""

from __future__ import annotations

import numpy as np

from experiments.independent.narrow import (
    Array,
    Remade,
    holds,
    lies_between,
    seeds,
    stochastically,
    to_nearest,
)

#: Significant bits.
FP16, BF16 = 11, 8


def harmonic_series() -> Remade:
    """Add 1 + 1/2 + 1/3 + ... in FP16 and BF16, until a term changes nothing."""
    stops = {}
    for name, bits in (("FP16", FP16), ("BF16", BF16)):
        total, k = 0.0, 0
        while (k := k + 1) and (following := float(to_nearest(total + to_nearest(1 / k, bits), bits))) != total:
            total = following
        stops[name] = (k, total)
    right = stops == {"FP16": (513, 7.0859375), "BF16": (65, 5.0625)}
    return Remade("harmonic-series", "the harmonic series", f"{stops}", holds(not right))


def counting() -> Remade:
    """Add 1 + 1 + 1 + ... by NumPy's own float16, and by rounding to BF16's bits."""
    ends = [float(np.cumsum(np.ones(5000, np.float16), dtype=np.float16)[-1])]
    total = 0.0
    for _ in range(1000):
        total = float(to_nearest(total + 1, BF16))
    return Remade("harmonic-series", "counting by ones", f"{[*ends, total]}", holds([*ends, total] != [2048, 256]))


def below_the_least() -> Remade:
    """Find numbers below 2^-24 that NumPy's float16 does not round to zero."""
    x = np.linspace(0, 2.0**-24, 4097)[1:-1]
    kept = float(np.mean(x.astype(np.float16) != 0))
    return Remade("loss-scaling", "regression: any value smaller", f"{100 * kept:.0f} % are kept", holds(kept > 0))


def small_updates() -> tuple[Remade, Remade]:
    """Combine every FP16 weight from 1 to 2 with updates around a 2048th of it, by NumPy's float16."""
    weights = np.arange(1024, 2048, dtype=np.float64)[:, np.newaxis] / 1024
    drawn = 2.0 ** np.random.default_rng(seeds(1)[0]).uniform(-13, -10, 3000)
    updates = drawn.astype(np.float16).astype(np.float64)
    lost = (weights.astype(np.float16) + updates.astype(np.float16)) == weights.astype(np.float16)
    ratio = weights / updates
    below, kept = int(lost[ratio < 2048].sum()), int((~lost)[ratio >= 4096].sum())
    recovered = int((~lost)[(ratio > 2048) & (ratio < 4096)].sum())
    return (
        Remade("master-weights", "an update can be lost only", f"{below} lost, {kept} kept", holds(below + kept)),
        Remade("master-weights", "with a ratio larger", f"{recovered} are kept", holds(recovered)),
    )


def accumulator_bits() -> tuple[Remade, Remade]:
    """Find the mantissa bits that sums of products need for an error of 5 %, by their length."""
    found: dict[str, list[float]] = {"uniform": [], "normal": []}
    lengths = 2 ** np.arange(7, 13)
    for seed in seeds(5):
        for name, needed in found.items():
            rng = np.random.default_rng(seed)
            draw = rng.random if name == "uniform" else rng.standard_normal
            products = to_nearest(draw((lengths[-1], 200)), 4) * to_nearest(draw((lengths[-1], 200)), 4)
            bits = [needed_bits(products[:length]) for length in lengths]
            needed.append(np.polyfit(np.log2(lengths), bits, 1)[0])
    uniform, normal = found["uniform"], found["normal"]
    return (
        Remade(
            "accumulator-width", "all of one sign", slope(uniform), lies_between(np.subtract(uniform, 1), -0.1, 0.1)
        ),
        Remade("accumulator-width", "of both signs", slope(normal), lies_between(np.subtract(normal, 0.5), -0.1, 0.1)),
    )


def needed_bits(products: Array, allowed: float = 0.05) -> float:
    """Interpolate the mantissa bits at which the error of the columns' sums is the allowed one."""
    exact = products.sum(axis=0)
    before = np.inf
    for bits in range(2, 15):
        total = np.zeros(products.shape[1])
        for row in products:
            total = to_nearest(total + row, bits + 1)
        error = float(np.sqrt(np.mean((total - exact) ** 2) / np.mean(exact**2)))
        if error <= allowed:
            return bits if np.isinf(before) else bits - np.log(allowed / error) / np.log(before / error)
        before = error
    return 15.0


def slope(values: list[float]) -> str:
    """Return the bits per doubling as text."""
    return f"{np.mean(values):.2f} bits a doubling"


#: For each format: its largest number, half of the step to the next one beyond, and the exponent of the largest.
LARGEST = {
    "E4M3": (448, 16, 8),
    "E5M2": (57344, 4096, 15),
    "E3M2": (28, 2, 4),
    "E2M3": (7.5, 0.25, 2),
    "E2M1": (6, 1, 2),
}


def block_scales() -> Remade:
    """Scale blocks of 32 values by powers of two that are rounded down, or up: does the largest value saturate?"""
    down, up = [], []
    for seed in seeds(5):
        largest = np.abs(np.random.default_rng(seed).standard_normal((4096, 32))).max(axis=1)
        for most, half, exponent in LARGEST.values():
            down.append(np.mean(largest / np.exp2(np.floor(np.log2(largest)) - exponent) > most + half))
            up.append(np.mean(largest / np.exp2(np.ceil(np.log2(largest / most))) > most + half))
    measured = f"{100 * min(down):.1f} to {100 * max(down):.1f} %, and {100 * max(up):.1f} %"
    return Remade("block-scaling", "scales rounded down", measured, holds(min(down) == 0 or max(up) > 0))


def stochastic_sums() -> Remade:
    """Compare the mean of stochastic sums of the harmonic series with the exact sum: within a twentieth."""
    words, measured = [], []
    for bits in (FP16, BF16):
        terms, means = to_nearest(1 / np.arange(1, 16385), bits), []
        for seed in seeds(5):
            rng, total = np.random.default_rng(seed), np.zeros(256)
            for term in terms:
                total = stochastically(total + term, bits, rng)
            means.append(total.mean() / terms.sum())
        words.append(lies_between(np.log(means), -np.log(1.05), np.log(1.05)))
        measured.append(f"{np.mean(means):.4f}")
    verdict = "reproduced" if set(words) == {"reproduced"} else "inconclusive"
    return Remade("harmonic-series", "stochastic rounding does not", f"{' and '.join(measured)} of it", verdict)
