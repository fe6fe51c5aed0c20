"""The jobs: a GPT of each depth and seed is trained in FP32, and its logits are computed by every kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.attention_rows.jobs import loss_of
from experiments.block_scaling.problems import letters
from experiments.kernel_orders.kernels import FORMS, REFERENCE, policies
from experiments.models import GPT
from experiments.options import Options
from experiments.problem import turned
from simfloat.studies import Job, Result

#: Numbers of blocks, heads of a block, pieces of text in a batch, and the learning rate.
DEPTHS, HEADS, BATCH, RATE = (1, 2), 4, 8, 3e-3


class Size(NamedTuple):
    """The width of a model, letters of a context, steps of Adam, and held-out pieces of text."""

    width: int
    context: int
    steps: int
    pieces: int


#: Sizes by the field "tiny" of a job.
SIZES = {False: Size(64, 32, 200, 64), True: Size(16, 10, 2, 2)}


def jobs(options: Options) -> list[Job]:
    """Return a job for each seed and depth."""
    return [{"seed": seed, "depth": depth, "tiny": options.tiny} for seed in options.seed_numbers for depth in DEPTHS]


def run(job: Job) -> Result:
    """Train a model, and return a row for each form and kernel."""
    (text, count), size = letters(), SIZES[job["tiny"]]
    pieces = np.lib.stride_tricks.sliding_window_view(turned(text, job["seed"]), size.context + 1)
    train, test = np.split(pieces, [9 * len(pieces) // 10])
    held_out = test[size.context :: len(test) // size.pieces][: size.pieces]
    model = train_model(train, count, job)
    rows: list[dict[str, Any]] = []
    for form in FORMS:
        kernels = policies(form)
        logs = {name: log_shares(model, held_out[:, :-1], policy) for name, policy in kernels.items()}
        for name in kernels:
            if name != REFERENCE:
                row = {"form": form, "kernel": name, **difference(logs[REFERENCE], logs[name])}
                row["loss"] = float(-np.take_along_axis(logs[name], held_out[:, 1:, np.newaxis], -1).mean())
                rows.append(row)
    return {**job, "rows": rows}


def train_model(train: NDArray[np.int64], count: int, job: Job) -> GPT:
    """Train a model in FP32, and return it."""
    size = SIZES[job["tiny"]]
    model = GPT(count, size.context, size.width, job["depth"], HEADS, seed=job["seed"])
    optimizer, rng = sf.optim.Adam(model.parameters(), lr=RATE), np.random.default_rng([job["seed"], 1])
    with sf.simulate("fp32"):
        for _ in range(size.steps):
            optimizer.zero_grad()
            loss_of(model, train[rng.integers(0, len(train), BATCH)], count).backward()
            optimizer.step()
    return model


def log_shares(model: GPT, tokens: NDArray[np.int64], policy: sf.Policy) -> NDArray[np.float64]:
    """Return logarithms of the probabilities of the next letters, in float64 from the logits."""
    with sf.simulate(policy), sf.no_grad():
        logits = np.asarray(model(tokens).data, np.float64)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def difference(reference: NDArray[np.float64], other: NDArray[np.float64]) -> dict[str, float]:
    """Return the mean divergence of probabilities (nats per letter), and the share of greedy letters that differ."""
    ratio = reference - other
    # The sum of p log(p / q) is the sum of p (q / p - 1 + log(p / q)). These terms are small if p and q are close.
    divergence = (np.exp(reference) * (np.expm1(-ratio) + ratio)).sum(axis=-1)
    flipped = reference.argmax(axis=-1) != other.argmax(axis=-1)
    return {"divergence": float(divergence.mean()), "flipped": float(flipped.mean())}
