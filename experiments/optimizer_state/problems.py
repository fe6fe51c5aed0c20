"""The problems: the digits, trained by Adam with a long or a short memory."""

from __future__ import annotations

from functools import partial

import numpy as np

import simfloat as sf
from experiments import datasets
from experiments.optimizer_state.stall import DEEPSEEK, DEFAULT
from experiments.problem import Problem
from experiments.training import Problems


def digits(seed: int, tiny: bool, beta2: float = DEFAULT) -> Problem:
    """Classify 1797 images of digits, 8 x 8, judged on training data: the question is about the optimizer."""
    x, y = datasets.digits()
    return Problem(
        x=x.astype(np.float32),
        y=y,
        model=lambda: sf.nn.MLP([64, 32, 10], rng=seed),
        loss=sf.nn.cross_entropy,
        optimizer=partial(sf.optim.Adam, lr=2e-3, betas=(0.9, beta2)),
        batch=32,
        steps=3 if tiny else 1000,
        measures=lambda model, output, y: {"accuracy": float(np.mean(output.argmax(axis=1) == y))},
    )


#: Adam with PyTorch's default memory of 1000 steps, and with DeepSeek-V3's memory of 20.
PROBLEMS: Problems = {"long-memory": digits, "short-memory": partial(digits, beta2=DEEPSEEK)}
