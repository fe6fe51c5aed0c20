"""Scales of MX blocks by each rule: saturated elements, and the errors of the blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from simfloat.studies import Job

FORMATS = {format.name or "": format for format in (sf.E4M3, sf.E5M2, sf.E3M2, sf.E2M3, sf.E2M1)}
RULES = ("floor", "ceil", "rceil", "even")

#: The elements of a block.
BLOCK = 32

#: The number of blocks for a seed, and in a tiny run.
BLOCKS, TINY_BLOCKS = 4096, 64

#: Distributions of the values: most weights and activations, and their outliers.
DATA = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "heavy-tailed": lambda rng, shape: rng.standard_t(3, shape),
}


def measure_rules(job: Job) -> list[dict[str, Any]]:
    """Return a row for each format and rule.

    "saturated" is the share of elements that exceed the largest number of the format by more than rounding explains.
    "blocks" is the share of blocks with such an element. "error" is the root mean square of the errors, relative to
    that of the values.
    """
    shape = (TINY_BLOCKS if job["tiny"] else BLOCKS, BLOCK)
    rng = np.random.default_rng([job["seed"], list(DATA).index(job["data"])])
    x = np.asarray(sf.round(DATA[job["data"]](rng, shape), sf.BF16), np.float64)
    return [
        {"format": name, "rule": rule, **_errors(x, format, rule)} for name, format in FORMATS.items() for rule in RULES
    ]


def _errors(x: NDArray, format: sf.Format, rule: str) -> dict[str, float]:
    blocks = sf.block_quantize(x, format, rule=rule)
    scales = np.repeat(np.float64(blocks.scales), BLOCK, axis=1)
    saturated = np.abs(x / scales) > format.max + sf.ulp(format.max, format) / 2
    lost = blocks.elements * scales - x
    return {
        "saturated": float(np.mean(saturated)),
        "blocks": float(np.mean(saturated.any(axis=1))),
        "error": float(np.sqrt(np.mean(lost**2) / np.mean(x**2))),
    }
