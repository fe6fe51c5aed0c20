"""Adam's second moment for random gradients of a known size, and then for gradients a tenth as large."""

from __future__ import annotations

from typing import Any

import numpy as np

import simfloat as sf
from simfloat.studies import Job

#: Parameters, steps with gradients from N(0, 1), and steps with gradients a tenth as large.
SIZE, RISE, FALL = 256, 2000, 4000
TINY_RISE, TINY_FALL = 20, 40

#: Rows of a run.
ROWS = 60

#: The factor by which the gradients become smaller.
DROP = 0.1

#: PyTorch's default; DeepSeek-V3's; and the number below 1 in BF16, whose products always change a BF16 number.
DEFAULT, DEEPSEEK, NEXT_TO_ONE = 0.999, 0.95, 1 - 2.0**-8


def follow_moment(job: Job) -> list[dict[str, Any]]:
    """Return rows of the step, the mean of v, the exact average, and the share of stalled elements since the last row.

    An element is stalled if it does not change although the exact average does.
    """
    rise, fall = (TINY_RISE, TINY_FALL) if job["tiny"] else (RISE, FALL)
    rng = np.random.default_rng(job["seed"])
    parameter = sf.Parameter(np.zeros(SIZE))
    optimizer = sf.optim.Adam([parameter], lr=0.0, betas=(0.9, job["beta2"]))
    recorder = sf.Recorder(path="*exp_avg_sq", phase="update")
    rows, exact = [], np.zeros(SIZE)
    with sf.simulate(sf.Policy.from_dict(job["policy"]), seed=job["seed"], observer=recorder):
        for step in range(1, rise + fall + 1):
            gradient = np.float32(rng.standard_normal(SIZE) * (1.0 if step <= rise else DROP))
            parameter.grad = gradient
            optimizer.step()
            exact = job["beta2"] * exact + (1 - job["beta2"]) * np.square(gradient, dtype=np.float64)
            if step % ((rise + fall) // ROWS) == 0:
                counts = recorder.counts()
                recorder.reset()
                moment = float(np.mean(optimizer.state[0]["exp_avg_sq"]))
                stalled = counts["unchanged"] / counts["total"]
                rows.append({"step": step, "moment": moment, "exact": float(np.mean(exact)), "stalled": stalled})
    return rows


def held_significands(beta2: float, format: sf.Format) -> int:
    """Return how many numbers of one binade equal their own product with beta2, and so never decay."""
    steps = 2 ** (format.precision - 1)
    numbers = 1 + np.arange(steps) / steps
    return int(np.sum(sf.multiply(numbers, beta2, format) == numbers))
