"""Measures of models on held-out data and on training data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.problem import Measures, Problem

#: A measure that compares outputs with labels.
Measure = Callable[[NDArray, NDArray], float]

#: The largest number of samples of each kind on which a model is judged, and that of a tiny run.
SAMPLE, TINY_SAMPLE = 400, 20

#: The number of evaluations of a run: an evaluation costs as much as many steps.
RECORDS = 10


def measured_as(name: str, measure: Measure) -> Measures:
    """Return the `measures` of a problem: this measure of its test data, by that name."""
    return lambda model, output, labels: {name: measure(output, labels)}


def judged(problem: Problem, name: str, measure: Measure, tiny: bool, sample: int = SAMPLE) -> Problem:
    """Return the problem, judged by a measure on its test data, and as "train_..." on its training data.

    Both use the first `sample` samples in their order.
    """
    sample = TINY_SAMPLE if tiny else sample
    held_out = problem.test or (problem.x, problem.y)
    x, y = problem.x[:sample], problem.y[:sample]

    def measures(model: sf.nn.Module, output: NDArray, labels: NDArray) -> dict[str, float]:
        return {name: measure(output, labels), f"train_{name}": measure(model(x).data, y)}

    test = held_out[0][:sample], held_out[1][:sample]
    return replace(problem, test=test, measures=measures, records=RECORDS)


def accuracy(output: NDArray, labels: NDArray) -> float:
    """Return the share of samples whose largest logit is that of their class."""
    return float(np.mean(output.argmax(axis=-1) == labels))


def auc(output: NDArray, labels: NDArray) -> float:
    """Return the area under the receiver operating characteristic.

    It is the probability that a sample of class 1 has a larger output than one of class 0; equal outputs count as half.
    """
    _, ranks, counts = np.unique(output, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts - 1) / 2
    positive = np.asarray(labels, bool)
    ones, zeros = positive.sum(), (~positive).sum()
    return float((middle[ranks][positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def perplexity(output: NDArray, labels: NDArray) -> float:
    """Return e to the cross-entropy of the next tokens, for logits (N, T, tokens) and tokens (N, T)."""
    shifted = output - output.max(axis=-1, keepdims=True)
    log_likelihood = np.take_along_axis(shifted, labels[..., np.newaxis], -1)[..., 0] - np.log(np.exp(shifted).sum(-1))
    return float(np.exp(-log_likelihood.mean()))
