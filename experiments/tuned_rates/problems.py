"""The problems, as functions of the learning rate: digits, characters, late flights, topics, speakers and clothes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments import datasets
from experiments.bfloat16_models import clicks, speech, texts
from experiments.bfloat16_models.texts import CONTEXT, HELD_OUT, characters, next_characters
from experiments.digits import accuracy
from experiments.fashion_mnist.problems import RATE, clothes
from experiments.judging import accuracy as share_of_hits
from experiments.judging import auc, measured_as, perplexity
from experiments.models import GPT, BERTClassifier, SpeechClassifier
from experiments.problem import Problem, reserved, split
from experiments.task import Task

#: With few samples, seeds that choose and seeds that decide have one half each, so both train on equally many samples.
HALVES = 2


class Tuned(NamedTuple):
    """A problem, its measure, its earlier rate, and the rates that are tried, as exponents of half octaves."""

    make: Callable[[int, bool, float], Problem]
    task: Task
    earlier: float
    exponents: range
    tuning: tuple[int, ...]  # the seeds that choose the rates
    deciding: int  # the largest number of seeds that decide
    schedules: tuple[str, ...] = ("constant",)
    arms: tuple[str, ...] = ("fp32", "bf16-standard", "bf16-stochastic")
    repeating: tuple[int, ...] = ()  # further seeds that each try the constant rates of FP32 and of nearest updates


#: All policies.
ALL_ARMS = (*Tuned._field_defaults["arms"], "bf16-kahan", "bf16-fp32-weights")


def rate_of(exponent: int) -> float:
    """Return 2^(exponent / 2)."""
    return float(2.0 ** (exponent / 2))


def parts(
    x: NDArray, y: NDArray, held_out: int, seed: int, number: int = 5
) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Split the samples that the seed may use; seeds that choose rates share no sample with seeds that decide."""
    seen = reserved(len(x), seed, number)
    train, test = (seen[rows] for rows in split(len(seen), min(held_out, len(seen) // 4), seed))
    return x[train], y[train], x[test], y[test]


def mlp(seed: int, tiny: bool, rate: float) -> Problem:
    """Classify digits by an MLP 64-32-10 as in update-cancellation."""
    images, y = datasets.digits()
    x, y, test_x, test_y = parts(images.astype(np.float32).reshape(-1, 64), y, 400, seed)
    return Problem(
        x=x,
        y=y,
        model=lambda: sf.nn.MLP([64, 32, 10], rng=seed),
        loss=sf.nn.cross_entropy,
        optimizer=partial(sf.optim.SGD, lr=rate),
        batch=32,
        steps=2 if tiny else 500,
        test=(test_x, test_y),
        measures=accuracy,
    )


def gpt(seed: int, tiny: bool, rate: float) -> Problem:
    """Predict characters by the GPT of bfloat16-models."""
    windows, alphabet = characters()
    x, y, test_x, test_y = parts(windows[:, :-1], windows[:, 1:], HELD_OUT, seed)
    return Problem(
        x=x,
        y=y,
        model=partial(GPT, alphabet, CONTEXT, 32, layers=1, heads=2, seed=seed),
        loss=next_characters,
        optimizer=partial(sf.optim.AdamW, lr=rate, betas=(0.9, 0.95), weight_decay=0.01),
        batch=16,
        steps=2 if tiny else 200,
        test=(test_x[:20] if tiny else test_x, test_y[:20] if tiny else test_y),
        measures=measured_as("perplexity", perplexity),
    )


def dlrm(seed: int, tiny: bool, rate: float) -> Problem:
    """Predict late flights by the DLRM of bfloat16-models."""
    rows, late = clicks.rows()
    sizes = datasets.flights().sizes
    x, y, test_x, test_y = parts(rows, late, clicks.HELD_OUT, seed)
    return Problem(
        x=x,
        y=y,
        model=partial(clicks.LateFlights, x.shape[1] - len(sizes), sizes, seed),
        loss=sf.nn.binary_cross_entropy_with_logits,
        optimizer=partial(sf.optim.SGD, lr=rate),
        batch=64,
        steps=5 if tiny else 500,
        test=(test_x[:20] if tiny else test_x, test_y[:20] if tiny else test_y),
        measures=measured_as("auc", auc),
    )


def bert(seed: int, tiny: bool, rate: float) -> Problem:
    """Predict the topics of passages by the BERT of bfloat16-models."""
    x, y, test_x, test_y = parts(*texts.passages(), 1000, seed, HALVES)
    return Problem(
        x=x,
        y=y,
        model=partial(
            BERTClassifier, texts.WORDS + 2, texts.PASSAGE, 32, layers=1, heads=2, classes=len(texts.TOPICS), seed=seed
        ),
        loss=sf.nn.cross_entropy,
        optimizer=partial(sf.optim.AdamW, lr=rate, betas=(0.9, 0.95), weight_decay=0.01),
        batch=16,
        steps=5 if tiny else 250,
        test=(test_x[:20] if tiny else test_x, test_y[:20] if tiny else test_y),
        measures=measured_as("accuracy", share_of_hits),
    )


def rnn(seed: int, tiny: bool, rate: float) -> Problem:
    """Identify speakers by the recurrent network of bfloat16-models."""
    utterances = [speech.halved(part) for part in ("train", "test")]
    x, y = (np.concatenate([each[part] for each in utterances]) for part in (0, 1))
    x, y, test_x, test_y = parts(x, y, 200, seed, HALVES)
    return Problem(
        x=x,
        y=y,
        model=partial(SpeechClassifier, 12, 24, 9, "RNN", seed=seed),
        loss=sf.nn.cross_entropy,
        optimizer=partial(sf.optim.AdamW, lr=rate, betas=(0.9, 0.95), weight_decay=0.01),
        batch=16,
        steps=5 if tiny else 400,
        test=(test_x, test_y),
        measures=measured_as("accuracy", share_of_hits),
    )


TUNED: Mapping[str, Tuned] = {
    "MLP": Tuned(
        mlp,
        Task("MLP, digits", "accuracy", "accuracy (%)"),
        0.02,
        range(-6, 4),
        (0, 1),
        10,
        ("constant", "cosine"),
        ALL_ARMS,
        repeating=(2, 3, 4, 5, 6),
    ),
    "GPT": Tuned(gpt, Task("GPT, characters", "perplexity", "perplexity"), 0.001, range(-17, -8), (0,), 5),
    "RNN": Tuned(rnn, Task("RNN, speakers", "accuracy", "accuracy (%)"), 0.001, range(-14, -8), (0,), 5),
    "DLRM": Tuned(dlrm, Task("DLRM, flights", "auc", "AUC (%)"), 0.1, range(-3, 2), (0,), 5),
    "BERT": Tuned(
        bert, Task("BERT, topics", "accuracy", "accuracy (%)"), 0.0007, range(-20, -16), (0,), 5, arms=ALL_ARMS
    ),
    "CNN": Tuned(
        clothes,
        Task("CNN, clothes", "accuracy", "accuracy (%)"),
        RATE,
        range(-14, -5),
        (0,),
        5,
        ("constant", "cosine"),
    ),
}
