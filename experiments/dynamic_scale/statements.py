"""Statements about FP16 and loss scaling, tested on the gradients of a training.

They come from a tutorial page on mixed precision. For each, we count the cases that it predicts wrongly, or that
contradict the correct fact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.dynamic_scale.problems import digits
from experiments.problem import Problem
from simfloat.studies import Result

#: Two statements of the tutorial: gradients below this limit are rounded to zero in FP16; the smallest number of FP16.
SAID_TO_VANISH, SAID_TO_BE_SMALLEST = 2.0**-11, 2.0**-14

#: Values that rounding to nearest in FP16 turns into zero: half the smallest subnormal number, or less.
VANISHES = sf.FP16.smallest_subnormal / 2

#: A power of two that takes no gradient of the problem out of FP16's range.
SCALE = 2.0**10

#: A loss scale under which every gradient overflows, and one under which every gradient underflows.
FAR_TOO_LARGE, FAR_TOO_SMALL = 2.0**40, 2.0**-40


def measure_statements(seed: int, tiny: bool) -> Result:
    """Count over the gradients of a training in FP32: the results of those that the tutorial calls lost, and so on."""
    problem, steps = digits(seed, tiny), 8 if tiny else 200
    counts: Counter[str] = Counter()
    exponents: Counter[str] = Counter()
    for gradients in gradients_of(problem, seed, steps):
        counts.update(count_step(gradients))
        nonzero = gradients[gradients != 0]
        found, number = np.unique(np.floor(np.log2(np.abs(nonzero))).astype(int), return_counts=True)
        exponents.update(dict(zip(map(str, found), number.tolist(), strict=True)))
        exponents["zero"] += len(gradients) - len(nonzero)
    return {
        "steps": steps,
        "counts": {**counts, **count_numbers(), **count_losses(problem, seed), **count_skipped(problem, seed)},
        "exponents": dict(exponents),
    }


def gradients_of(problem: Problem, seed: int, steps: int) -> Iterator[NDArray[np.float64]]:
    """Return the gradients of all parameters in one vector, for each of the first steps in FP32."""
    model = problem.model()
    optimizer = problem.optimizer(model.parameters())
    with sf.simulate("fp32", seed=seed):
        for _, (x, y) in zip(range(steps), problem.batches(seed), strict=False):
            model.zero_grad()
            problem.loss(model(x), y).backward()
            optimizer.step()
            yield np.concatenate([np.asarray(p.grad, np.float64).ravel() for p in model.parameters()])


def count_step(gradients: NDArray[np.float64]) -> dict[str, int]:
    """Return counts over the gradients of one step."""
    size = np.abs(gradients[gradients != 0])
    rounded, scaled = sf.round(size, sf.FP16), sf.round(SCALE * size, sf.FP16) / SCALE
    below, normal = size < SAID_TO_VANISH, size >= sf.FP16.smallest_normal
    return {
        "gradients": len(size),
        "below": int(below.sum()),
        "below-lost": int((below & (rounded == 0)).sum()),
        "lost": int((size <= VANISHES).sum()),
        "normal": int(normal.sum()),
        "normal-changed": int((rounded != scaled)[normal].sum()),
        "subnormal": int((~normal).sum()),
        "subnormal-better": int((np.abs(scaled - size) < np.abs(rounded - size))[~normal].sum()),
        "alarms": int(size.min() < SAID_TO_VANISH),
        "false-alarms": int(size.min() < SAID_TO_VANISH and (rounded != 0).all()),
        "negative-minimum": int(gradients.min() < 0),
    }


def count_numbers() -> dict[str, int]:
    """Count powers of two below the "smallest" number that are exact in FP16; and losses that are scaled in FP16."""
    powers = 2.0 ** np.arange(-24, -14)
    losses = np.linspace(1, 3, 100)
    return {
        "powers": len(powers),
        "powers-lost": int((sf.round(powers, sf.FP16) != powers).sum()),
        "losses": len(losses),
        "losses-overflow": int(np.isinf(sf.multiply(losses, 2.0**16, sf.FP16)).sum()),
        "losses-overflow-fp32": int(np.isinf(sf.multiply(losses, 2.0**16, sf.FP32)).sum()),
    }


def count_losses(problem: Problem, seed: int) -> dict[str, int]:
    """Count steps with a loss that is NaN: if all gradients underflow, and if they overflow unchecked."""
    return {
        f"nan-{name}": sum(int(np.isnan(loss)) for loss in unguarded_losses(problem, seed, scale))
        for name, scale in (("underflow", FAR_TOO_SMALL), ("overflow", FAR_TOO_LARGE))
    }


def unguarded_losses(problem: Problem, seed: int, scale: float, steps: int = 10) -> list[float]:
    """Return the losses of steps in FP16 whose gradients are scaled, unscaled, and used unchecked."""
    model = problem.model()
    optimizer, scaler = problem.optimizer(model.parameters()), sf.optim.StaticLossScale(scale)
    losses = []
    with sf.simulate("fp16-master", seed=seed):
        for _, (x, y) in zip(range(steps), problem.batches(seed), strict=False):
            model.zero_grad()
            loss = problem.loss(model(x), y)
            losses.append(loss.item())
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            scaler.update()
            optimizer.step()
    return losses


def count_skipped(problem: Problem, seed: int, steps: int = 12) -> dict[str, int]:
    """Count skipped steps, those of them that changed a weight, and those that were repeated with their batch."""
    model = problem.model()
    optimizer, scaler = problem.optimizer(model.parameters()), sf.optim.DynamicLossScale(2.0**24)
    skipped = changed = repeated = 0
    last = None
    with sf.simulate("fp16-master", seed=seed):
        for _, (x, y) in zip(range(steps), problem.batches(seed), strict=False):
            repeated += int(last is not None and np.array_equal(x, last))
            model.zero_grad()
            scaler.scale(problem.loss(model(x), y)).backward()
            before = model.state_dict()
            scaler.unscale_(optimizer)
            was_skipped = scaler.is_skipping(optimizer)
            scaler.step(optimizer)
            scaler.update()
            after = model.state_dict()
            skipped += int(was_skipped)
            changed += int(was_skipped and any((before[name] != after[name]).any() for name in before))
            last = x if was_skipped else None
    return {"skipped": skipped, "skipped-changed": changed, "skipped-repeated": repeated}
