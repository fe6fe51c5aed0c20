"""The jobs: the same products by every unit, for several lengths and intervals of promotion."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.operands import DATA, Operands, draw_operands
from experiments.options import Options
from experiments.tensor_core_generations.units import EIGHT, GENERATIONS, HALF, Unit, promoted
from simfloat.studies import Job, Result

#: Products per sum, up to DeepSeek-V3's example.
LENGTHS, TINY_LENGTHS = (16, 64, 256, 1024, 4096), (16, 256)
INTERVALS, TINY_INTERVALS = (32, 64, 128, 256, 512, 1024, 2048, 4096), (32, 256)

#: Rows and columns of a product: 65536 sums, because the largest error of many sums is searched.
SIZE, TINY_SIZE = 256, 8

#: The number of sums in which the largest error is also searched: a product of a few rows.
FEW = 2048

#: Operands on which generations differ (Xie et al., arXiv 2511.10909, equation 10): the exact result is -0.875.
EXAMPLE = ((-(2.0**13), -0.5, -0.25, -0.125), (2.0**10, 1.0, 1.0, 1.0), 2.0**23)


def jobs(options: Options) -> list[Job]:
    """Return FP16 and FP8 products for every kind of data and every seed."""
    return [
        {"kind": kind, "data": data, "seed": seed, "tiny": options.tiny}
        for kind in RUNS
        for data in DATA
        for seed in options.seed_numbers
    ]


def run(job: Job) -> Result:
    """Run a job."""
    return {**job, "rows": RUNS[job["kind"]](job)}


def half(job: Job) -> list[dict[str, Any]]:
    """Return errors of FP16 products by length, and, for the shortest, which results differ between units."""
    rows: list[dict[str, Any]] = []
    pairs: list[dict[str, Any]] = []
    for length in TINY_LENGTHS if job["tiny"] else LENGTHS:
        operands, results = products(job, length, sf.FP16, HALF)
        rows += [{"unit": key, "length": length, **errors(operands, result)} for key, result in results.items()]
        pairs = pairs or [
            {"first": first, "second": second, "differing": float(np.mean(results[first] != results[second]))}
            for first, second in combinations(results, 2)
        ]
    return rows + pairs


def eight(job: Job) -> list[dict[str, Any]]:
    """Return errors of FP8 products by length, and those of the longest ones by the interval of promotion."""
    lengths, intervals = (TINY_LENGTHS, TINY_INTERVALS) if job["tiny"] else (LENGTHS, INTERVALS)
    rows = []
    for length in lengths:
        operands, results = products(job, length, sf.E4M3, EIGHT)
        rows += [{"unit": key, "length": length, **errors(operands, result)} for key, result in results.items()]
    units = [Unit(str(interval), "", promoted(interval)) for interval in intervals]
    operands, results = products(job, lengths[-1], sf.E4M3, units)
    return rows + [{"interval": int(key), **errors(operands, result)} for key, result in results.items()]


RUNS = {"fp16": half, "fp8": eight}


def products(
    job: Job, length: int, format: sf.Format, units: tuple[Unit, ...] | list[Unit]
) -> tuple[Operands, dict[str, NDArray]]:
    """Return operands of a length, and their product by every unit."""
    operands = draw_operands(job["data"], job["seed"], length, TINY_SIZE if job["tiny"] else SIZE, format)
    return operands, {unit.key: sf.matmul(operands.a, operands.b, accumulate=unit.accumulator) for unit in units}


def errors(operands: Operands, product: NDArray) -> dict[str, float]:
    """Return errors relative to sum |a b|: their mean magnitude, the largest, and the mean with the sign of the sum.

    "spread" is the largest error relative to the root mean square of the elements, and "few_spread" the same among the
    first 2048 elements.
    """
    error = operands.error(product)
    deviation = np.abs(product - operands.exact) / np.sqrt(np.mean(operands.exact**2))
    return {
        "error": float(np.mean(np.abs(error))),
        "greatest": float(np.max(np.abs(error))),
        "outward": float(np.mean(error * np.sign(operands.exact))),
        "spread": float(np.max(deviation)),
        "few_spread": float(np.max(deviation.ravel()[:FEW])),
    }


def example() -> dict[str, float]:
    """Return the result of every generation for the paper's operands."""
    a, b, c = EXAMPLE
    return {name: float(sf.dot(a, b, accumulate=sf.tensor_core(name, sf.FP16), initial=c)) for name in GENERATIONS}
