"""Training with narrow accumulators: a wide MLP on the digits, in large batches, so that sums are long."""

from __future__ import annotations

from functools import partial

import numpy as np

import simfloat as sf
from experiments import datasets
from experiments.accumulator_width.dots import accumulator
from experiments.problem import Problem, split_quarter
from experiments.training import Problems
from experiments.variants import Variant

#: Stored mantissa bits of the accumulators in training, and products per chunk.
BITS, CHUNK = (2, 3, 4, 5), 16


def wide_digits(seed: int, tiny: bool) -> Problem:
    """Classify digits by an MLP 64-256-10 in batches of 256: contractions sum 64 and 256 products."""
    x, y = datasets.digits()
    x = x.astype(np.float32)
    train, test = split_quarter(len(x), seed)
    return Problem(
        x=x[train],
        y=y[train],
        model=lambda: sf.nn.MLP([64, 16 if tiny else 256, 10], rng=seed),
        loss=sf.nn.cross_entropy,
        optimizer=partial(sf.optim.SGD, lr=0.2),
        batch=16 if tiny else 256,
        steps=2 if tiny else 100,
        test=(x[test], y[test]),
        measures=lambda model, output, y: {"accuracy": float(np.mean(output.argmax(axis=1) == y))},
    )


def policy(accumulate: sf.Accumulator, name: str) -> sf.Policy:
    """Return BF16 with FP32 weights; the accumulator sums contractions, everything else is summed in FP32."""
    return sf.Policy(compute=sf.BF16, weights=sf.FP32, accumulate=accumulate, reduce=sf.FP32, name=name)


FP32 = Variant("fp32", policy(sf.sequential(sf.FP32), "FP32 sums"), "FP32 sums")

VARIANTS = [
    FP32,
    *(Variant(f"{bits}", policy(accumulator(bits), f"{bits} bits"), f"{bits} bits") for bits in BITS),
    *(
        Variant(f"{bits} chunked", policy(accumulator(bits, CHUNK), f"{bits} bits, chunked"), f"{bits} bits, chunked")
        for bits in BITS
    ),
]

PROBLEMS: Problems = {"digits": wide_digits}
