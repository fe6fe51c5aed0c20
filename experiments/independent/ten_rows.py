"""Ten rows of docs/claims.md, drawn at random, on other seeds: `python -m experiments.independent.ten_rows`.

It prints a line for each of the ten rows. docs/records/ten_rows.txt has these lines, and experiments/README.md compares
them with the verdicts.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from experiments.independent import casts, detector, scaling, trainings
from experiments.independent.narrow import interval

#: The first seed, and the formats of a training with all numbers in FP16.
FIRST_SEED, FP16 = 31_000, casts.Formats(casts.fp16, casts.fp16, casts.fp16, casts.fp16)


def seeds(count: int) -> range:
    """Return `count` seeds, which no experiment and no other repetition uses."""
    return range(FIRST_SEED, FIRST_SEED + count)


def mean_ratio(losses: ArrayLike, reference: ArrayLike) -> str:
    """Return the geometric mean of the ratios of losses and its interval, as text."""
    logs = np.log(np.divide(losses, reference))
    low, high = np.exp(interval(logs))
    return f"{np.exp(logs.mean()):.3f} [{low:.3f}, {high:.3f}]"


def master_copy() -> str:
    """Train an MLP in FP16 with and without a master copy, at five learning rates."""
    import torch

    rates = [2.0**exponent for exponent in (-12, -9, -7, -5, -3)]

    def losses(dtype: torch.dtype, master: bool, rate: float) -> list[float]:
        return [trainings.train(seed, dtype, master, rate, momentum=0.9, steps=3000)[0] for seed in seeds(5)]

    wide = {rate: losses(torch.float32, False, rate) for rate in rates}
    with_copy = {
        rate: np.exp(np.mean(np.log(np.divide(losses(torch.float16, True, rate), wide[rate])))) for rate in rates
    }
    best = min(rates, key=lambda rate: np.mean(wide[rate]))
    without_copy = {rate: mean_ratio(losses(torch.float16, False, rate), wide[rate]) for rate in (rates[0], best)}
    return (
        f"an MLP at five rates from 2^-12 to 2^-3: {min(with_copy.values()):.3f} to {max(with_copy.values()):.3f} "
        f"times FP32's loss. FP16 weights: {without_copy[rates[0]]} times at 2^-12, {without_copy[best]} at "
        f"2^{np.log2(best):.0f}, the best rate of FP32"
    )


def zeros() -> str:
    """Count the zeros among the gradients of a detector."""
    counts = np.array([detector.train(seed, narrow=False)[1] for seed in seeds(5)])
    shares = 100 * counts[:, 1] / counts[:, 0]
    low, high = interval(shares)
    return f"a detector with other scenes and heads: {shares.mean():.0f} % [{low:.0f}, {high:.0f}]"


def classifier() -> str:
    """Train a classifier of images in FP16 without a scale."""
    shares = {
        formats: [casts.train(casts.Convolutions(seed), seed, 0.1, 300, formats).share for seed in seeds(10)]
        for formats in (FP16, casts.Formats())
    }
    below = np.subtract(shares[casts.Formats()], shares[FP16])
    low, high = interval(below)
    return f"two convolutions: {below.mean():.2f} points below FP32 [{low:.2f}, {high:.2f}]"


class Backoff:
    """A scale that starts at 2^24, doubles after 100 steps without overflow, and is halved by an overflow."""

    def __init__(self) -> None:
        self.scale, self._clean = 2.0**24, 0

    def update(self, logarithm: float | None) -> None:
        """Choose the next scale; after an overflow there is no logarithm of the largest gradient."""
        self._clean = 0 if logarithm is None else self._clean + 1
        if logarithm is None:
            self.scale = max(self.scale / 2, 1.0)
        elif self._clean == 100:
            self.scale, self._clean = min(2 * self.scale, 2.0**24), 0


def loss_under(seed: int, rule: Backoff | scaling.LogNormal | None, formats: casts.Formats = FP16) -> float:
    """Return the held-out loss of a perceptron after 1000 steps under a rule, or without a scale."""
    import torch
    from torch.nn.functional import cross_entropy

    network, losses = casts.Perceptron(seed), []
    x, y, held_x, held_y = casts.split_digits(seed)
    for step, rows in enumerate(np.random.default_rng([seed, 1]).integers(0, len(x), (1000, 8)), 1):
        scale = rule.scale if rule else 1.0
        logits = casts.rounded(network.logits(x[rows], formats), casts.exact, formats.results)
        gradients = torch.autograd.grad(scale * cross_entropy(logits, y[rows]), network.parameters)
        largest = max(float(each.abs().max()) for each in map(formats.results, gradients))
        is_finite = np.isfinite(largest)
        if is_finite:
            with torch.no_grad():
                for parameter, gradient in zip(network.parameters, gradients, strict=True):
                    parameter -= 0.05 * formats.results(gradient) / scale
        if rule:
            rule.update(float(np.log2(largest / scale)) if is_finite else None)
        if step > 800 and step % 20 == 0:
            losses.append(casts.judge(network, held_x, held_y).loss)
    return float(np.mean(losses))


def automatic_scales() -> str:
    """Train a perceptron in FP16 under both automatic scales, and without a scale."""
    wide = [loss_under(seed, None, casts.Formats()) for seed in seeds(5)]
    rules: dict[str, Callable[[], Backoff | scaling.LogNormal | None]] = {
        "Backoff": Backoff,
        "LogNormal": scaling.LogNormal,
        "no scale at all": lambda: None,
    }
    losses = {name: [loss_under(seed, rule()) for seed in seeds(5)] for name, rule in rules.items()}
    texts = [f"{name} {mean_ratio(values, wide)}" for name, values in losses.items()]
    return f"an MLP: {', '.join(texts)} times FP32's loss"


def limits() -> str:
    """Enumerate the numbers of FP16 by the definition of its bits, in fractions."""
    numbers = [
        (Fraction(significand, 1024) + (exponent > 0)) * Fraction(2) ** (max(exponent, 1) - 15)
        for exponent in range(31)
        for significand in range(1024)
    ]
    normal, least = numbers[1024], numbers[1]
    assert numbers == sorted(numbers)
    return f"fractions, every bit pattern: {max(numbers)}, 2^-{normal.denominator.bit_length() - 1} and " + (
        f"2^-{least.denominator.bit_length() - 1}"
    )


def powers_of_two() -> str:
    """Count the powers of two that NumPy's float32 represents."""
    with np.errstate(over="ignore", under="ignore"):
        rounded = [float(np.float32(2.0**exponent)) for exponent in range(-200, 200)]
    exact = sum(each == 2.0**exponent for exponent, each in zip(range(-200, 200), rounded, strict=True))
    return f"NumPy's float32, every power: {exact}"


def batches() -> str:
    """Train an autoencoder in FP16 without a scale, in large and in small batches."""
    large, small = (
        mean_ratio(*([scaling.autoencoder(seed, narrow, batch) for seed in seeds(5)] for narrow in (True, False)))
        for batch in (256, 16)
    )
    return f"an autoencoder without a scale: {large} times FP32's loss in batches of 256, {small} in batches of 16"


def skipped_steps() -> str:
    """Train an MLP under dynamic scales that skip few and many steps."""
    wide = [scaling.held_out_loss(seed, None) for seed in seeds(10)]
    few, from_above, many = (
        mean_ratio([scaling.held_out_loss(seed, n, 2.0**exponent) for seed in seeds(10)], wide)
        for n, exponent in ((2000, 16), (2000, 24), (6, 16))
    )
    return f"an MLP, N = 2000: {few} from 2^16, {from_above} from 2^24; N = 6: {many}"


#: Repetitions of the rows of the page, numbered from the top, or the reason why a row has none.
ROWS: dict[int, Callable[[], str] | str] = {
    1: master_copy,
    15: zeros,
    24: classifier,
    36: "none: a property of hardware",
    44: automatic_scales,
    53: "none: the source names no model",
    77: limits,
    80: powers_of_two,
    86: batches,
    90: skipped_steps,
}

if __name__ == "__main__":
    for place in sorted(random.Random(20261130).sample(range(129), 10)):
        repeated = ROWS[place + 1]
        print(f"{place + 1}: {repeated if isinstance(repeated, str) else repeated()}", flush=True)
