"""What a policy does to the gradient of one batch, beside the gradient in FP64."""

from __future__ import annotations

import copy

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.problem import Problem
from simfloat import nn
from simfloat.optim import StaticLossScale

#: Samples and their labels.
Batch = tuple[NDArray, NDArray]


def random_batch(problem: Problem, seed: int, samples: int) -> Batch:
    """Samples of a problem, drawn apart from those that it trains with."""
    rows = np.random.default_rng([seed, 2]).integers(0, len(problem.x), samples)
    return problem.x[rows], problem.y[rows]


def train_half(model: nn.Module, problem: Problem, seed: int) -> None:
    """Make half the problem's steps, in FP32."""
    optimizer = problem.optimizer(model.parameters())
    with sf.simulate("fp32", seed=seed):
        sf.train.fit(model, problem.loss, problem.batches(seed), optimizer, steps=problem.steps // 2, progress=False)
    model.zero_grad()


def gradient(
    model: nn.Module, problem: Problem, batch: Batch, policy: sf.Policy, scale: float = 1.0
) -> tuple[NDArray[np.float64], sf.Recorder]:
    """The gradients of all parameters in one vector, without the loss scale, and what was counted on the way."""
    model, recorder = copy.deepcopy(model), sf.Recorder()
    with sf.simulate(policy, observer=recorder):
        StaticLossScale(scale).scale(problem.loss(model(batch[0]), batch[1])).backward()
    return np.concatenate([np.asarray(p.grad, np.float64).ravel() / scale for p in model.parameters()]), recorder


def relative_error(gradient: NDArray, exact: NDArray) -> float:
    """The 2-norm of the difference, relative to that of the exact gradient; infinite if a number is not finite."""
    if not np.isfinite(gradient).all():
        return float("inf")
    return float(np.linalg.norm(gradient - exact) / np.linalg.norm(exact))
