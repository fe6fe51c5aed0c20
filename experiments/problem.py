"""A problem: data, model, loss, training, measures, and held-out samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.options import FIRST_SEED

#: Further measures of a model with its current weights, from its outputs and the labels.
Measures = Callable[[sf.nn.Module, NDArray, NDArray], dict[str, float]]


@dataclass(frozen=True)
class Problem:
    """Everything of a training except the policy: data, initial weights and batches are the same for every policy.

    `model` creates a fresh model, always the same; `loss` takes its output and the labels; `optimizer` takes its
    parameters. Batches are drawn with replacement. The model is judged on `test`, by default the training data.
    """

    x: NDArray
    y: NDArray
    model: Callable[[], sf.nn.Module]
    loss: Callable[[sf.Tensor, NDArray], sf.Tensor]
    optimizer: Callable[[Iterable[sf.Parameter]], sf.optim.Optimizer]
    batch: int
    steps: int
    test: tuple[NDArray, NDArray] | None = None
    measures: Measures = lambda model, output, y: {}
    records: int = 40  # the number of evaluations of a run

    def batches(self, seed: int) -> Iterator[tuple[NDArray, NDArray]]:
        """Yield the batches of a run, in order."""
        rng = np.random.default_rng([seed, 1])
        for _ in range(self.steps):
            rows = rng.integers(0, len(self.x), self.batch)
            yield self.x[rows], self.y[rows]

    def evaluate(self, model: sf.nn.Module) -> dict[str, float]:
        """Return the loss and the further measures on the test data, computed in FP64 by a copy of the model."""
        copy = self.model()
        copy.load_state_dict(model.state_dict())
        x, y = self.test or (self.x, self.y)
        with sf.simulate("fp64"), sf.no_grad():
            output = copy(x)
            return {"loss": float(self.loss(output, y).item()), **self.measures(copy, output.data, y)}


def split(count: int, held_out: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of the training samples and of the held-out samples, both in random order.

    Verdicts over seeds are also verdicts over splits: no claim depends on one split. The split is independent of the
    initial weights and batches of the run, which have other streams of the same seed.
    """
    order = np.random.default_rng([seed, 4]).permutation(count)
    return order[held_out:], order[:held_out]


def reserved(count: int, seed: int, parts: int = 5) -> NDArray[np.int64]:
    """Return the indices of the samples that the run of a seed may use.

    Seeds below FIRST_SEED choose sizes and rates, and use one of `parts` equal parts of the samples. The other seeds
    decide the claims, and use the rest.
    """
    order = np.random.default_rng(0).permutation(count)
    return order[: count // parts] if seed < FIRST_SEED else order[count // parts :]


def turned(text: NDArray, seed: int) -> NDArray:
    """Rotate the text, so that another part of it is the last one, which is held out."""
    return np.roll(text, np.random.default_rng([seed, 4]).integers(len(text)))


def split_quarter(count: int, seed: int | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a split with a quarter held out; without a seed, it is the same for all runs of an experiment."""
    held_out = count - 3 * count // 4
    if seed is not None:
        return split(count, held_out, seed)
    order = np.random.default_rng(0).permutation(count)
    return order[:-held_out], order[-held_out:]
