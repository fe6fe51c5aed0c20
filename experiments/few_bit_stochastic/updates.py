"""Training with BF16 weights, in which the last addition of the update is stochastic with few random bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import simfloat as sf
from experiments.problem import Problem
from experiments.update_cancellation.problems import digits
from simfloat.studies import Job

#: Small enough for most updates to be below the spacing of BF16.
LR, STEPS, TINY_STEPS = 0.005, 1000, 10

#: Numbers of random bits of the last addition.
BITS, TINY_BITS = (1, 2, 3, 4, 6, 8, 32), (1, 4, 8, 32)


def measure_training(job: Job) -> dict[str, Any]:
    """Return held-out loss and accuracy of the digits after training."""
    steps = TINY_STEPS if job["tiny"] else STEPS
    problem = replace(digits(job["seed"], job["tiny"]), steps=steps)
    if job["mode"] == "nearest":
        return train(problem, sf.nearest_even, job["seed"])
    return train(problem, sf.stochastic(job["bits"], job["mode"]), job["seed"])


def train(problem: Problem, rounding: sf.Rounding, seed: int) -> dict[str, Any]:
    """Train by SGD in FP32, except for w + u, which is rounded to BF16 in this mode."""
    model, stream = problem.model(), sf.BitStream(seed)
    for parameter in model.parameters():
        parameter.data = sf.round(parameter.data, sf.BF16)
    with sf.simulate("fp32"):
        for x, y in problem.batches(seed):
            for parameter in model.parameters():
                parameter.grad = None
            problem.loss(model(x), y).backward()
            for parameter in model.parameters():
                update = sf.multiply(-LR, np.asarray(parameter.grad), sf.FP32)
                drawn = stream if rounding.is_stochastic else None
                parameter.data = sf.add(parameter.data, update, sf.BF16, rounding, stream=drawn)
    return problem.evaluate(model)
