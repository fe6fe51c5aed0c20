"""The jobs: sums of products in FP16 and BF16, to nearest and stochastically, of several lengths."""

from __future__ import annotations

from typing import Any

import numpy as np

import simfloat as sf
from experiments.operands import DATA, draw_operands
from experiments.options import Options
from simfloat.studies import Job, Result

FORMATS = {"fp16": sf.FP16, "bf16": sf.BF16}
ROUNDINGS = {"nearest": sf.nearest_even, "stochastic": sf.stochastic()}

#: Products per sum, and rows and columns of a matrix of sums.
LENGTHS, TINY_LENGTHS = tuple(2**k for k in range(4, 15)), (16, 64)
SIZE, TINY_SIZE = 16, 4


def jobs(options: Options) -> list[Job]:
    """Return both formats, on both kinds of data, for every seed."""
    return [
        {"kind": "sums", "format": format, "data": data, "seed": seed, "tiny": options.tiny}
        for format in FORMATS
        for data in DATA
        for seed in options.seed_numbers
    ]


def run(job: Job) -> Result:
    """Run a job: a row for each length and rounding."""
    lengths = TINY_LENGTHS if job["tiny"] else LENGTHS
    return {**job, "rows": [row for length in lengths for row in errors(job, length)]}


def errors(job: Job, length: int) -> list[dict[str, Any]]:
    """Return the largest error of the sums and its root mean square, relative to sum |a b|."""
    format, rows = FORMATS[job["format"]], []
    operands = draw_operands(job["data"], job["seed"], length, TINY_SIZE if job["tiny"] else SIZE, format)
    for name, rounding in ROUNDINGS.items():
        stream = sf.BitStream(job["seed"]) if rounding.is_stochastic else None
        accumulate = sf.sequential(format, rounding=rounding)
        error = operands.error(sf.matmul(operands.a, operands.b, accumulate=accumulate, stream=stream))
        mean_square = float(np.sqrt(np.mean(error**2)))
        rows.append(
            {"rounding": name, "length": length, "greatest": float(np.max(np.abs(error))), "error": mean_square}
        )
    return rows
