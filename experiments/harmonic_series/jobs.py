"""The jobs: the points where sums stop growing, and the harmonic series by every summation method."""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.options import Options
from simfloat.studies import Job, Result

#: Formats, the first term of the harmonic series that changes nothing, and the sum at that point.
STOPS = {
    "E5M2": (5, 2.0),
    "E4M3": (9, 3.0),
    "E3M4": (16, 3.5),
    "BF16": (65, 5.0625),
    "FP16": (513, 7.0859375),
    "FP32": (2097152, 15.403682708740234),
}

#: The formats of a tiny run.
SHORT = ("E5M2", "E4M3", "E3M4", "BF16", "FP16")

#: Formats whose Kahan sums end within 1 / u^2 terms, before terms are zero.
KAHAN_STOPS = ("E5M2", "E4M3", "BF16")

#: Formats of the series, and the number of its terms.
FOLLOWED = ("FP16", "BF16")
LENGTHS, TINY_LENGTHS = tuple(2**k for k in range(4, 15)), (16, 64)

#: The number of stochastic sums of each length for every seed.
SUMS, TINY_SUMS = 256, 4

#: Equal steps of a quarter of the spacing from 1, all within one binade; and the number of such sums.
STEPS, TINY_STEPS, WALKS, TINY_WALKS = (64, 256, 1024), (64,), 4096, 64
QUARTER = 0.25


def jobs(options: Options) -> list[Job]:
    """Return the deterministic jobs once, and stochastic sums for every seed."""
    seeds, tiny = options.seed_numbers, options.tiny
    return [
        {"kind": "stops", "seed": seeds[0], "tiny": tiny},
        {"kind": "kahan", "seed": seeds[0], "tiny": tiny},
        {"kind": "series", "seed": seeds[0], "tiny": tiny},
        *({"kind": "stochastic", "seed": seed, "tiny": tiny} for seed in seeds),
        *({"kind": "walks", "seed": seed, "tiny": tiny} for seed in seeds),
    ]


def run(job: Job) -> Result:
    """Run a job."""
    return {**job, "rows": RUNS[job["kind"]](job)}


def terms(count: int, format: sf.Format) -> NDArray[np.float64]:
    """Return 1, 1/2, ... 1/count, each rounded to the format."""
    return np.asarray(sf.divide(1.0, np.arange(1, count + 1), format), np.float64)


def stops(job: Job) -> list[dict[str, Any]]:
    """Return for each format the first term that leaves the sum unchanged, that sum, and where counting stops."""
    rows = []
    for name in SHORT if job["tiny"] else STOPS:
        format = sf.as_format(name)
        count = STOPS[name][0] + 8
        sums = sf.partial_sums(terms(count, format), np.ones(count), accumulate=format)
        first = int(np.flatnonzero(sums[1:] == sums[:-1])[0]) + 2
        rows.append({"format": name, "first": first, "sum": float(sums[-1]), "count": counted(format)})
    return rows


def counted(format: sf.Format) -> float:
    """Return the largest number that adding ones reaches; FP32 is not tried."""
    if format == sf.FP32:
        return float("nan")
    return float(sf.sum(np.ones(4 * 2**format.precision), accumulate=format))


def kahan_stops(job: Job) -> list[dict[str, Any]]:
    """Return for each format the last term that changes a Kahan sum of 1 / u^2 terms, and that sum."""
    rows = []
    for name in KAHAN_STOPS:
        format = sf.as_format(name)
        x = terms(round(format.unit_roundoff**-2), format)
        total = kahan_sum(x, format, len(x))
        # Sums of positive terms do not fall: those equal to the last one start where it is first reached.
        reached = partial(_reaches, total, x, format)
        last = bisect_left(range(len(x)), True, key=reached)
        rows.append({"format": name, "last": last, "sum": total, "unit_roundoff": format.unit_roundoff})
    return rows


def kahan_sum(x: NDArray, format: sf.Format, count: int) -> float:
    """Return the Kahan sum of the first terms."""
    return float(sf.sum(x[:count], accumulate=sf.kahan(format)))


def _reaches(total: float, x: NDArray, format: sf.Format, count: int) -> bool:
    return kahan_sum(x, format, count) == total


def series(job: Job) -> list[dict[str, Any]]:
    """Return sums of each length by every deterministic method, and the exact sums of the same terms."""
    rows = []
    for name in FOLLOWED:
        format = sf.as_format(name)
        for length in TINY_LENGTHS if job["tiny"] else LENGTHS:
            x = terms(length, format)
            known = {"format": name, "length": length, "exact": float(sf.sum(x, accumulate=sf.exact, output=sf.FP64))}
            rows += [
                {**known, "way": way, "sum": float(sf.sum(x, accumulate=accumulate))}
                for way, accumulate in ways(format).items()
            ]
    return rows


def ways(format: sf.Format) -> dict[str, sf.Accumulator]:
    """Return the summation methods that round to nearest."""
    return {"recursive": sf.sequential(format), "Kahan": sf.kahan(format), "pairwise": sf.pairwise(format)}


def stochastic(job: Job) -> list[dict[str, Any]]:
    """Return mean and standard deviation of stochastic sums of each length, relative to the exact sum."""
    sums, rows = TINY_SUMS if job["tiny"] else SUMS, []
    for name in FOLLOWED:
        format = sf.as_format(name)
        for length in TINY_LENGTHS if job["tiny"] else LENGTHS:
            x = terms(length, format)
            accumulate = sf.sequential(format, rounding=sf.stochastic())
            found = sf.sum(np.tile(x, (sums, 1)), axis=1, accumulate=accumulate, stream=sf.BitStream(job["seed"]))
            exact = float(sf.sum(x, accumulate=sf.exact, output=sf.FP64))
            known = {"format": name, "length": length, "exact": exact}
            rows.append({**known, "mean": float(np.mean(found)), "deviation": float(np.std(found, ddof=1))})
    return rows


def walks(job: Job) -> list[dict[str, Any]]:
    """Return mean and standard deviation of stochastic sums 1 + m delta in FP16, and those of the theory."""
    eps, rows = sf.FP16.eps, []
    for steps in TINY_STEPS if job["tiny"] else STEPS:
        x = np.full((TINY_WALKS if job["tiny"] else WALKS, steps + 1), QUARTER * eps)
        x[:, 0] = 1.0
        accumulate = sf.sequential(sf.FP16, rounding=sf.stochastic())
        found = sf.sum(x, axis=1, accumulate=accumulate, stream=sf.BitStream(job["seed"]))
        rows.append(
            {
                "steps": steps,
                "rise": float(np.mean(found) - 1) / (steps * QUARTER * eps),
                "deviation": float(np.std(found, ddof=1)),
                "theory": eps * float(np.sqrt(steps * QUARTER * (1 - QUARTER))),
            }
        )
    return rows


RUNS = {"stops": stops, "kahan": kahan_stops, "series": series, "stochastic": stochastic, "walks": walks}
