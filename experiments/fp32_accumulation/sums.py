"""Sums of FP16 products of several lengths, accumulated in several ways and rounded to FP16."""

from __future__ import annotations

from typing import Any

import numpy as np

import simfloat as sf
from experiments.operands import draw_operands
from simfloat.studies import Result

#: The accumulators of the sums.
ACCUMULATORS: dict[str, sf.Accumulator] = {
    "fp32": sf.sequential(sf.FP32),
    "volta-fp32": sf.tensor_core("volta", sf.FP16),
    "volta-fp16": sf.tensor_core("volta", sf.FP16, output=sf.FP16),
    "fp16": sf.sequential(sf.FP16),
}

#: Their names in a figure.
LABELS = {
    "fp32": "FP32",
    "volta-fp32": "tensor core, FP32",
    "volta-fp16": "tensor core, FP16",
    "fp16": "FP16",
}

#: Products per sum, and rows and columns of a matrix of sums.
LENGTHS, TINY_LENGTHS = tuple(2**k for k in range(4, 15)), (16, 64)
SIZE, TINY_SIZE = 16, 4


def sums(data: str, seed: int, tiny: bool) -> Result:
    """Return a row for each length and accumulator.

    "error" is the root mean square of the errors relative to sum |a b|, "short" the mean lost share of a sum.
    """
    rows: list[dict[str, Any]] = []
    for length in TINY_LENGTHS if tiny else LENGTHS:
        operands = draw_operands(data, seed, length, TINY_SIZE if tiny else SIZE, sf.FP16)
        for name, accumulate in ACCUMULATORS.items():
            found = np.asarray(sf.matmul(operands.a, operands.b, accumulate=accumulate, output=sf.FP16), np.float64)
            error = float(np.sqrt(np.mean(operands.error(found) ** 2)))
            short = float(np.mean(1 - found / operands.exact))
            rows.append({"accumulator": name, "length": length, "error": error, "short": short})
    return {"rows": rows}
