"""The jobs: a GPT of each seed is trained in FP32, and its rows are measured before, in the middle and at the end."""

from __future__ import annotations

from typing import Any

import numpy as np

import simfloat as sf
from experiments.attention_rows.rows import causal_scores, heads, measure
from experiments.block_scaling.problems import letters
from experiments.models import GPT
from experiments.options import Options
from experiments.problem import turned
from simfloat.studies import Job, Result

#: Letters of a context, and held-out pieces of text; those of a tiny run.
CONTEXT, TINY_CONTEXT, HELD_OUT, TINY_HELD_OUT = 64, 20, 16, 2

#: The width, the number of blocks, and the number of heads.
WIDTH, BLOCKS, HEADS = 32, 2, 2

#: Steps of Adam after which rows are measured; those of a tiny run; its rate, and pieces of text in a batch.
STAGES, TINY_STAGES, RATE, BATCH = (0, 100, 400), (0, 1), 3e-3, 8

#: Scores are measured as they are, and multiplied, as if attention were sharper.
FACTORS, TINY_FACTORS = (1.0, 2.0, 4.0, 8.0, 16.0), (1.0, 8.0)


def jobs(options: Options) -> list[Job]:
    """Return a job for each seed."""
    return [{"seed": seed, "tiny": options.tiny} for seed in options.seed_numbers]


def run(job: Job) -> Result:
    """Train a model, and return a row for each stage and factor."""
    stages, factors = (TINY_STAGES, TINY_FACTORS) if job["tiny"] else (STAGES, FACTORS)
    context, number = (TINY_CONTEXT, TINY_HELD_OUT) if job["tiny"] else (CONTEXT, HELD_OUT)
    text, count = letters()
    pieces = np.lib.stride_tricks.sliding_window_view(turned(text, job["seed"]), context + 1)
    train, test = np.split(pieces, [9 * len(pieces) // 10])
    held_out = test[context :: len(test) // number]
    model = GPT(count, context, WIDTH, BLOCKS, HEADS, seed=job["seed"])
    optimizer = sf.optim.Adam(model.parameters(), lr=RATE)
    rng = np.random.default_rng([job["seed"], 1])
    rows: list[dict[str, Any]] = []
    with sf.simulate("fp32"):
        for step in range(max(stages) + 1):
            if step in stages:
                loss = float(loss_of(model, held_out, count).item())
                parts = heads(model, held_out[:, :-1])
                for factor in factors:
                    measured = [measure(causal_scores(q, k, factor), v) for q, k, v in parts]
                    means = {key: float(np.mean([each[key] for each in measured])) for key in measured[0]}
                    least = min(each["least"] for each in measured)
                    rows.append({"step": step, "factor": factor, "loss": loss, **means, "least": least})
            batch = train[rng.integers(0, len(train), BATCH)]
            optimizer.zero_grad()
            loss_of(model, batch, count).backward()
            optimizer.step()
    return {**job, "rows": rows}


def loss_of(model: GPT, pieces: np.ndarray, count: int) -> sf.Tensor:
    """Return the cross-entropy of the next letters."""
    return sf.nn.cross_entropy(model(pieces[:, :-1]).reshape(-1, count), pieces[:, 1:].ravel())
