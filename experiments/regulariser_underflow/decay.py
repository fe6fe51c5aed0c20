"""Training with a regulariser: the course of weights that only the regulariser changes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.digits import digits_problem
from experiments.problem import Problem
from experiments.variants import Scaler, make_scaler
from simfloat.studies import Result

#: The number of evaluations of a run, and of a tiny one.
RECORDS, TINY_RECORDS = 20, 2

#: The standard deviation of initial weights: GPT-2's.
DEVIATION = 0.02

LR, MOMENTUM = 0.1, 0.9


class Decay(NamedTuple):
    """The regulariser lambda |w|^2 of a run, as a term of the loss or as the optimizer's weight decay."""

    lam: float
    is_in_loss: bool


def problem_of(seed: int, tiny: bool) -> Problem:
    """Classify digits by an MLP with small initial weights; at least three pixels are zero in all images."""
    return digits_problem(partial(small_model, seed), sf.optim.SGD, batch=64, steps=4 if tiny else 400, seed=seed)


def small_model(seed: int) -> sf.nn.Module:
    """Return an MLP with weights that start normal with a small deviation."""
    rng = np.random.default_rng(seed)
    model = sf.nn.MLP([64, 32, 10], rng=rng)
    for _, parameter in weights_of(model):
        parameter.data = rng.normal(0, DEVIATION, parameter.shape)
    return model


def weights_of(model: sf.nn.Module) -> list[tuple[str, sf.Parameter]]:
    """Return the regularised parameters: all except the biases."""
    return [(name, parameter) for name, parameter in model.named_parameters() if name.endswith("weight")]


def run_decay(seed: int, tiny: bool, policy: sf.Policy, decay: Decay, scaler: Scaler | None) -> Result:
    """Train, and measure the weights of pixels that are always zero: only the regulariser changes them.

    "dead" is their norm relative to the initial one, "unmoved" the share of them that did not change, "loss" the
    held-out loss without the regulariser.
    """
    problem = problem_of(seed, tiny)
    model = problem.model()
    optimizer = optimizer_of(model, decay)
    scale = make_scaler(scaler) if scaler else sf.optim.StaticLossScale(1.0)
    pixels = np.flatnonzero((problem.x == 0).all(axis=0))
    rows, start = [], dead_weights(model, pixels, policy)
    every = problem.steps // (TINY_RECORDS if tiny else RECORDS)
    with sf.simulate(policy, seed=seed):
        for iteration, (x, y) in enumerate(problem.batches(seed), 1):
            optimizer.zero_grad()
            loss = problem.loss(model(x), y)
            scale.scale(loss + penalty(model, decay.lam) if decay.is_in_loss else loss).backward()
            scale.step(optimizer)
            scale.update()
            if iteration % every == 0:
                dead = dead_weights(model, pixels, policy)
                shares = {"dead": float(norm(dead) / norm(start)), "unmoved": float(np.mean(dead == start))}
                rows.append({"iteration": iteration, "loss": problem.evaluate(model)["loss"], **shares})
    return {key: [row[key] for row in rows] for key in rows[0]}


def penalty(model: sf.nn.Module, lam: float) -> sf.Tensor:
    """Return lambda |w|^2, in the formats of the policy; its gradient is 2 lambda w."""
    first, *others = ((weight * weight).sum() for _, weight in weights_of(model))
    return sum(others, start=first) * lam


def optimizer_of(model: sf.nn.Module, decay: Decay) -> sf.optim.Optimizer:
    """Return SGD with momentum, and with weight decay 2 lambda on the weights unless the regulariser is in the loss."""
    weights = [parameter for _, parameter in weights_of(model)]
    biases = [parameter for name, parameter in model.named_parameters() if not name.endswith("weight")]
    decays: Iterable[float] = (0.0 if decay.is_in_loss else 2 * decay.lam, 0.0)
    groups = [{"params": params, "weight_decay": wd} for params, wd in zip((weights, biases), decays, strict=True)]
    return sf.optim.SGD(groups, lr=LR, momentum=MOMENTUM)


def dead_weights(model: sf.nn.Module, pixels: NDArray, policy: sf.Policy) -> NDArray[np.float64]:
    """Return the weights of these pixels, as the policy stores them."""
    name = "hidden.0.weight"
    return np.asarray(sf.round(model.state_dict()[name][:, pixels], policy.recipe(name).weights), np.float64)


def norm(x: NDArray) -> float:
    """Return the Euclidean norm of all elements."""
    return float(np.linalg.norm(x))
