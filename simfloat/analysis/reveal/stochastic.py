"""Find the stochastic rounding of an unknown sum by the distribution of its results."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from simfloat.analysis.reveal.probe import failure_message
from simfloat.common import check_count, one_number
from simfloat.environment import in_usual_environment
from simfloat.formats import Rounding, stochastic

#: The largest precision that can be found.
MOST_PRECISION = 53

#: Repetitions that decide if a result varies.
REPETITIONS = 40

#: The rarest result that is counted has the probability 2^RARE_BITS / runs. With 2^4, roundings that differ by one
#: random bit often gave the same shares.
RARE_BITS = 7

#: The rounding that stands for all with too many bits to be distinguished: its probabilities are the distances.
MANY_BITS = stochastic()

#: A rounding is excluded if its log-likelihood is lower by this than that of the observed shares: one in 10^8.
EXCESS = 24.0


@dataclass(frozen=True, repr=False)
class RevealedRounding:
    """The result of :func:`simfloat.reveal_rounding`.

    Parameters:
        precision: the number of bits of results, with the leading one.
        roundings: the stochastic roundings that fit the distribution, the best one first; empty if none fits, or if
            results do not vary.
        shares: for every distance nu of the exact result from the smaller neighbour, the share of results that were the
            larger neighbour.
        reason: a sentence that explains the result.
    """

    precision: int
    roundings: tuple[Rounding, ...]
    shares: dict[Fraction, float]
    reason: str

    def __repr__(self) -> str:
        fits = ", ".join(map(str, self.roundings)) or "no stochastic rounding"
        return f"<RevealedRounding {fits}; precision {self.precision}: {self.reason}>"


def larger_share(rounding: Rounding, nu: Fraction) -> Fraction:
    """Return the probability of the larger neighbour at distance nu from the smaller one, in units of their gap.

    Source: IEEE P3109 interim report 4.0, section 4.7.4.
    """
    scaled = nu * 2**rounding.bits
    shares = {"A": math.floor(scaled), "B": math.floor(scaled + Fraction(1, 2)), "C": round(scaled)}
    return Fraction(shares[rounding.variant], 2**rounding.bits)


@in_usual_environment
def reveal_rounding(f: Callable[[Any, Any], Any], *, runs: int = 4096) -> RevealedRounding:
    """Find the stochastic rounding with which a function adds two products, by the distribution of its results.

    The sums 1 + 2^-j show the precision p: the first of them with a result other than the exact sum is halfway between
    two numbers. The sums 1 + nu 2^(1-p) are then repeated, for those nu at which roundings with N random bits differ
    from others: 2^-(N+1) and 3 * 2^-(N+1). A likelihood compares the share of results that are the larger neighbour
    with the probability under every variant and number of bits.

    Roundings with more than log2(runs) - 7 bits cannot be distinguished from a rounding with 32 bits, because the
    results in which they differ are too rare.

    Parameters:
        f: a function; ``f(a, b)`` returns one value, the sum of the products of two vectors of length 2. It receives
            new float64 arrays.
        runs: the number of repetitions of each sum, at least 256.

    Returns:
        A `RevealedRounding` with `precision`, `roundings`, `shares` and `reason`.

    Raises:
        ValueError: if `runs` is below 256, if f raises an error or does not return one number, or if a sum is not one
            of the neighbours.

    Examples:
        >>> stream, order = sf.BitStream(0), sf.sequential(sf.BF16, sf.stochastic(bits=3, variant="A"))
        >>> box = lambda a, b: sf.dot(a, b, accumulate=order, stream=stream)
        >>> sf.reveal_rounding(box, runs=2048).roundings
        (stochastic(bits=3, variant='A'),)
    """
    check_count("runs", runs, 256)

    def add(x: float) -> float:
        try:
            result = f(np.array([1.0, x]), np.ones(2))
        except Exception as error:
            raise ValueError(failure_message("float64", 2, error)) from error
        value = one_number(result)
        if value is None:
            raise ValueError("f must return one number, the sum of the products of two vectors.")
        return value

    precision = next((j for j in range(1, MOST_PRECISION) if _is_inexact(add, j)), None)
    if precision is None:
        return RevealedRounding(MOST_PRECISION, (), {}, "No sum was rounded.")
    gap = 2.0 ** (1 - precision)
    if len({add(gap / 2) for _ in range(REPETITIONS)}) == 1:
        return RevealedRounding(precision, (), {}, "Results do not vary: use reveal.")
    most = int(math.log2(runs)) - RARE_BITS
    distances = sorted(
        {Fraction(odd, 2 ** (bits + 1)) for bits in range(1, most + 1) for odd in (1, 3) if odd < 2**bits}
    )
    counts = {nu: _count_larger(add, float(nu), gap, runs) for nu in distances}
    candidates = [stochastic(bits, variant) for bits in range(1, most + 1) for variant in "ABC"]
    likelihoods = {rounding: _likelihood(rounding, counts, runs) for rounding in (*candidates, MANY_BITS)}
    best = sum(_log_share(count, runs, count / runs) for count in counts.values())
    fitting = [rounding for rounding, value in likelihoods.items() if value > best - EXCESS]
    fitting.sort(key=lambda rounding: -likelihoods[rounding])
    reason = f"{len(fitting)} of {len(likelihoods)} roundings fit the shares of {len(counts)} sums."
    if MANY_BITS in fitting:
        reason += f" All roundings with more than {most} random bits look like {MANY_BITS} in {runs} runs."
    return RevealedRounding(precision, tuple(fitting), {nu: count / runs for nu, count in counts.items()}, reason)


def _is_inexact(add: Callable[[float], float], j: int) -> bool:
    """Return True if a result of 1 + 2^-j is not exact."""
    return any(add(2.0**-j) != 1 + 2.0**-j for _ in range(REPETITIONS))


def _count_larger(add: Callable[[float], float], nu: float, gap: float, runs: int) -> int:
    """Count the results that are the larger neighbour of 1 + nu gap."""
    count = 0
    for _ in range(runs):
        value = add(nu * gap)
        if value not in (1.0, 1.0 + gap):
            raise ValueError(f"1 + {nu * gap} gave {value}, which is neither 1 nor {1 + gap}: f is not such a sum.")
        count += value != 1.0
    return count


def _likelihood(rounding: Rounding, counts: dict[Fraction, int], runs: int) -> float:
    """Return the logarithm of the likelihood of the counts."""
    return sum(_log_share(count, runs, float(larger_share(rounding, nu))) for nu, count in counts.items())


def _log_share(count: int, runs: int, share: float) -> float:
    """Return the logarithm of share^count (1 - share)^(runs - count)."""
    if (share == 0 and count) or (share == 1 and count < runs):
        return -math.inf
    return count * math.log(share or 1) + (runs - count) * math.log((1 - share) or 1)
