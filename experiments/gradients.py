"""Histograms of the exponents of gradients, and errors of gradients compared with FP64."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Container
from functools import partial

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.problem import Problem
from simfloat import nn
from simfloat.optim import StaticLossScale
from simfloat.telemetry.entries import Key, count_zeros, exponent_counts
from simfloat.telemetry.ranges import Histogram

#: Samples and their labels.
Batch = tuple[NDArray, NDArray]


def gradient_histograms(recorder: sf.Recorder, parameters: Container[str]) -> dict[str, dict[str, int]]:
    """Return histograms of the exponents of all gradients in a recorder, for "activations" and for "parameters".

    `parameters` are the paths of the parameters. Gradients of activations are the results of backward operations at
    the other paths of a model. Roundings of operands, which would count them again, and operations inside the loss are
    excluded.
    """
    is_activation = partial(_is_activation, parameters)
    return {
        "activations": _histogram(recorder, is_activation),
        "parameters": _histogram(recorder, lambda key: key.path in parameters),
    }


def as_histogram(counts: dict[str, int]) -> Histogram:
    """Return one of these histograms in the form of `Recorder.histogram`; JSON turned the exponents into text."""
    return {"zero" if name == "zero" else int(name): count for name, count in counts.items()}


def _is_activation(parameters: Container[str], key: Key) -> bool:
    return bool(key.path) and key.path not in parameters and not key.operation.startswith("cast_")


def _histogram(recorder: sf.Recorder, belongs: Callable[[Key], bool]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for key, events in recorder.entries():
        if key.phase == "backward" and belongs(key):
            total.update({str(exponent): count for exponent, count in exponent_counts(events).items()})
            total["zero"] += count_zeros(events)
    return dict(total)


def random_batch(problem: Problem, seed: int, samples: int) -> Batch:
    """Return samples of a problem that are drawn independently of its training batches."""
    rows = np.random.default_rng([seed, 2]).integers(0, len(problem.x), samples)
    return problem.x[rows], problem.y[rows]


def train_half(model: nn.Module, problem: Problem, seed: int) -> None:
    """Train for half of the problem's steps, in FP32."""
    optimizer = problem.optimizer(model.parameters())
    with sf.simulate("fp32", seed=seed):
        sf.train.fit(model, problem.loss, problem.batches(seed), optimizer, steps=problem.steps // 2, progress=False)
    model.zero_grad()


def gradient(
    model: nn.Module, problem: Problem, batch: Batch, policy: sf.Policy, scale: float = 1.0
) -> tuple[NDArray[np.float64], sf.Recorder]:
    """Return the gradients of all parameters in one vector, without the loss scale, and the recorded counts."""
    model, recorder = copy.deepcopy(model), sf.Recorder()
    with sf.simulate(policy, observer=recorder):
        StaticLossScale(scale).scale(problem.loss(model(batch[0]), batch[1])).backward()
    return np.concatenate([np.asarray(p.grad, np.float64).ravel() / scale for p in model.parameters()]), recorder


def relative_error(gradient: NDArray, exact: NDArray) -> float:
    """Return the 2-norm of the difference, relative to the exact gradient; infinite if a value is not finite."""
    if not np.isfinite(gradient).all():
        return float("inf")
    return float(np.linalg.norm(gradient - exact) / np.linalg.norm(exact))
