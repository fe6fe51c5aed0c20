"""The jobs: attention by blocks compared with float64, and the bias of P V for repeated maxima."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.flash_attention.maxima import (
    CURES,
    GAPS,
    REPEATS,
    SHAPE,
    TINY_GAPS,
    TINY_SHAPE,
    draw,
    measure_bias,
    rest,
)
from experiments.flash_attention.online import exact, online, ordinary
from experiments.options import Options
from simfloat.studies import Job, Result

#: Numbers of keys, and keys per block; those of a tiny run.
KEYS, TINY_KEYS = (64, 256, 1024, 4096, 16384), (32, 64)
BLOCKS = (16, 64, 256)

#: Queries, and the width of a value.
QUERIES, WIDTH = 16, 32

#: The rise of the mean score from the first to the last key: the maximum settles early, or moves until the end.
RISES = {"steady": 0.0, "rising": 16.0}

#: The formats of the rescaled output, by the names of their kernels.
KERNELS = {"O in FP32": sf.FP32, "O in BF16": sf.BF16}


def jobs(options: Options) -> list[Job]:
    """Return for each seed a job for each kind of scores, and one of repeated maxima."""
    kinds = [*({"kind": "online", "scores": scores} for scores in RISES), {"kind": "maxima"}]
    return [{**kind, "seed": seed, "tiny": options.tiny} for kind in kinds for seed in options.seed_numbers]


def run(job: Job) -> Result:
    """Run a job."""
    return {**job, "rows": online_rows(job) if job["kind"] == "online" else maxima_rows(job)}


def online_rows(job: Job) -> list[dict[str, Any]]:
    """Return the errors of ordinary attention, and of every kernel for every number of keys and block size."""
    rows = []
    for keys in TINY_KEYS if job["tiny"] else KEYS:
        scores, values = draw_scores(job["seed"], RISES[job["scores"]], keys)
        output = exact(scores, values)
        same = {"keys": keys, "block": keys, "blocks": 1}
        rows.append({**same, "kernel": "ordinary", "error": error(ordinary(scores, values), output)})
        rows += [
            {
                "keys": keys, "block": block, "blocks": -(-keys // block), "kernel": name,
                "error": error(online(scores, values, block, kept), output),
            }
            for block in BLOCKS
            for name, kept in KERNELS.items()
        ]  # fmt: skip
    return rows


def maxima_rows(job: Job) -> list[dict[str, Any]]:
    """Return the bias for each number of equal maxima, each gap below them, and each remedy."""
    shape, gaps = (TINY_SHAPE, TINY_GAPS) if job["tiny"] else (SHAPE, GAPS)
    rows = []
    for repeats in REPEATS:
        for gap in gaps:
            scores, values = draw(job["seed"], repeats, gap, shape)
            same = {"repeats": repeats, "gap": gap, "rest": rest(scores, repeats)}
            rows += [{**same, "cure": cure, **measure_bias(scores, values, cure)} for cure in CURES]
    return rows


def draw_scores(seed: int, rise: float, keys: int) -> tuple[NDArray, NDArray]:
    """Draw FP32 scores from N(0, 1) plus a mean that rises evenly, and BF16 values from N(0, 1)."""
    rng = np.random.default_rng([seed, keys])
    scores = rng.standard_normal((QUERIES, keys)) + np.linspace(0, rise, keys)
    return sf.round(scores, sf.FP32), sf.round(rng.standard_normal((keys, WIDTH)), sf.BF16)


def error(found: NDArray, output: NDArray[np.float64]) -> float:
    """Return the root mean square error, relative to the exact output."""
    return float(np.sqrt(np.mean((np.asarray(found, float) - output) ** 2) / np.mean(output**2)))
