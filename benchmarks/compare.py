"""Compare sums by the fastest loops with sums by the float64 loops: python -m benchmarks.compare --results 1e9.

Each case has its own seed. It is a product of hard operands in a random accumulator, which is computed twice:
unchanged, and with an additional row that only the slow loops accept. This row must not change a bit of the others.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from simfloat.tools.selftest.checks import DETERMINISTIC, hard_operands

FORMATS = (sf.FP32, sf.TF32, sf.BF16, sf.FP16, sf.E5M2, sf.E4M3)
MODES = (*DETERMINISTIC, sf.stochastic(), sf.stochastic(8), sf.stochastic(11, "A"), sf.stochastic(4, "C"))
ORDERS = ("sequential", "products", "pairwise", "kahan", "blocked")

#: Values that no loop in float32 accepts: the first has too many bits, the second has products beyond all exponents.
BESIDE = (1 + 2.0**-40, 2.0**800)


class Case(NamedTuple):
    """A product, and the family to which it belongs."""

    a: NDArray
    b: NDArray
    accumulate: sf.Accumulator
    family: str
    beside: float


def drawn(seed: int) -> Case:
    """Draw the case of a seed."""
    rng = np.random.default_rng(seed)
    rounding, order = MODES[rng.integers(len(MODES))], ORDERS[rng.integers(len(ORDERS))]
    if rng.random() < 0.2:
        rounding = rounding.saturating()
    format = _format(rng)
    accumulate = {
        "sequential": lambda: sf.sequential(format, rounding=rounding),
        "products": lambda: sf.sequential(format, rounding=rounding, products=_format(rng)),
        "pairwise": lambda: sf.pairwise(format, rounding=rounding),
        "kahan": lambda: sf.kahan(format, rounding=rounding),
        "blocked": lambda: sf.blocked(int(rng.integers(1, 20)), sf.sequential(format, rounding=rounding), _format(rng)),
    }[order]()
    m, n, k = (int(2 ** rng.uniform(0, highest)) for highest in (8, 9, 7))
    inputs = (*FORMATS[1:], format)[rng.integers(len(FORMATS))]
    a, b = hard_operands(rng, inputs if inputs.has_negative_zero else sf.FP16, m, max(k, 11), n)
    a, b = a[:, :k].astype(np.float32), b[:k].astype(np.float32)
    if rng.random() < 0.5:  # products anywhere in the range of the format, and beyond both ends
        exponent = int(rng.integers(format.emin - format.mantissa_bits - 3, format.emax + 3))
        a = np.ldexp(a, np.clip(exponent, -120, 100))
    if rng.random() < 0.3:
        specials = rng.choice(np.float32([np.inf, -np.inf, np.nan, -0.0]), a.shape)
        a = np.where(rng.random(a.shape) < 0.3 / a.size**0.5, specials, a)
    return Case(a, b, accumulate, f"{order} {rounding.mode}", BESIDE[rng.integers(len(BESIDE))])


def _format(rng: np.random.Generator) -> sf.Format:
    if rng.random() < 0.7:
        return FORMATS[rng.integers(len(FORMATS))]
    special = ("ieee", "fn", "fnuz")[rng.integers(3)]
    bias = int(rng.integers(-20, 60)) if rng.random() < 0.3 else None
    return sf.Format(int(rng.integers(3, 9)), int(rng.integers(1, 24)), bias=bias, special=special)


def compared(case: Case, seed: int) -> NDArray | None:
    """Return a mask of the results that differ, or None if the case cannot be emulated."""
    beside = np.vstack([case.a.astype(np.float64), np.full((1, case.a.shape[1]), case.beside)])
    try:
        quick = sf.matmul(case.a, case.b, accumulate=case.accumulate, output=sf.FP64, stream=sf.BitStream(seed))
        slow = sf.matmul(beside, case.b, accumulate=case.accumulate, output=sf.FP64, stream=sf.BitStream(seed))[:-1]
    except ValueError:
        return None
    differs: NDArray = (quick.view(np.uint64) != slow.view(np.uint64)) & ~(np.isnan(quick) & np.isnan(slow))
    return differs


@click.command()
@click.option("--results", type=float, default=1e6, show_default=True, help="number of results to compare")
@click.option("--seed", default=0, show_default=True, help="seed of the first case; the next cases have the next seeds")
def main(results: float, seed: int) -> None:
    """Compare sums by the fastest loops with sums by the float64 loops; exit with 1 if a bit differs."""
    counts, start, told = Counter[str](), time.monotonic(), 0.0
    with np.errstate(all="ignore"):
        while counts.total() < results:
            case = drawn(seed)
            differs = compared(case, seed)
            if differs is not None and differs.any():
                tell(case, seed, differs)
                sys.exit(1)
            if differs is not None:
                counts[case.family] += differs.size
            seed += 1
            if time.monotonic() - start > told:
                told += 30
                print(f"{counts.total():.3g} results, the next case is --seed {seed}", flush=True)
    for family, count in sorted(counts.items()):
        print(f"{count:15,} {family}")
    print(f"{counts.total():15,} results are the same; the next case is --seed {seed}")


def tell(case: Case, seed: int, differs: NDArray) -> None:
    """Print how to reproduce a difference."""
    row, column = np.argwhere(differs)[0]
    print(f"{differs.sum()} results of {differs.size} differ, the first at [{row}, {column}] of:", file=sys.stderr)
    print(f"    case = benchmarks.compare.drawn({seed})", file=sys.stderr)
    print(
        f"    sf.matmul(case.a, case.b, accumulate={case.accumulate!r}, stream=sf.BitStream({seed}))", file=sys.stderr
    )
    print(f"    python -m benchmarks.compare --seed {seed} --results 1", file=sys.stderr)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.compare")
