"""A problem: data, a model and its loss, how it is trained and how it is judged, and which samples are held out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.options import FIRST_SEED

#: Further measures of a model with the weights it has, from its outputs and the labels.
Measures = Callable[[sf.nn.Module, NDArray, NDArray], dict[str, float]]


@dataclass(frozen=True)
class Problem:
    """What is trained, apart from the policy: the same data, initial weights and batches for every policy.

    `model` makes a fresh model, always the same; `loss` takes its output and the labels; `optimizer` takes its
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
    records: int = 40  # how often a run is looked at

    def batches(self, seed: int) -> Iterator[tuple[NDArray, NDArray]]:
        """The batches of a run, in order."""
        rng = np.random.default_rng([seed, 1])
        for _ in range(self.steps):
            rows = rng.integers(0, len(self.x), self.batch)
            yield self.x[rows], self.y[rows]

    def evaluate(self, model: sf.nn.Module) -> dict[str, float]:
        """The loss and the further measures on the test data, computed in FP64 by a copy of the model."""
        copy = self.model()
        copy.load_state_dict(model.state_dict())
        x, y = self.test or (self.x, self.y)
        with sf.simulate("fp64"), sf.no_grad():
            output = copy(x)
            return {"loss": float(self.loss(output, y).item()), **self.measures(copy, output.data, y)}


def split(count: int, held_out: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The numbers of the samples to train on, and of those that are held out, both in random order.

    Verdicts over seeds are verdicts over splits too: a claim does not hang on the one that happened to be drawn. The
    split is independent of the run's initial weights and batches, which have other streams of the same seed.
    """
    order = np.random.default_rng([seed, 4]).permutation(count)
    return order[held_out:], order[:held_out]


def reserved(count: int, seed: int) -> NDArray[np.int64]:
    """The numbers of the samples that the run of a seed may see: no sample is seen by runs of both kinds.

    A fifth is for the seeds below FIRST_SEED, by whose runs sizes and rates are chosen, the others for those that
    decide.
    """
    order = np.random.default_rng(0).permutation(count)
    return order[: count // 5] if seed < FIRST_SEED else order[count // 5 :]


def turned(text: NDArray, seed: int) -> NDArray:
    """The text as a ring that begins elsewhere, so that another part of it is the last one, which is held out."""
    return np.roll(text, np.random.default_rng([seed, 4]).integers(len(text)))


def split_quarter(count: int, seed: int | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same, with a quarter held out; without a seed, one split for all runs of an experiment."""
    held_out = count - 3 * count // 4
    if seed is not None:
        return split(count, held_out, seed)
    order = np.random.default_rng(0).permutation(count)
    return order[:-held_out], order[-held_out:]
