"""An MLP, a convolutional network and a small GPT, and the parts of their policies that a search may change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import simfloat as sf
from experiments.block_scaling.problems import gpt
from experiments.fp8_hybrid.problems import digits
from experiments.operation_lists.problems import convolutional
from experiments.problem import Problem
from experiments.training import Problems

#: The formats of values; operands of products may also be E4M3 with one scale per tensor.
FORMATS = {
    "E4M3": sf.E4M3,
    "E4M3 scaled": sf.scaled(sf.E4M3, sf.per_tensor()),
    "E5M2": sf.E5M2,
    "BF16": sf.BF16,
    "FP16": sf.FP16,
}

#: Roles of the whole model, in addition to the operands of each layer.
ROLES = ("activations", "weights")


#: The number of steps: a search runs a hundred trainings and more.
STEPS = {"digits": 100, "convolutional": 60, "gpt": 100}


def shortened(name: str, problem: Callable[[int, bool], Problem], seed: int, tiny: bool) -> Problem:
    """Return the problem of another experiment, limited to its first steps."""
    made = problem(seed, tiny)
    return replace(made, steps=min(made.steps, STEPS[name]))


TRAINED: Problems = {
    name: partial(shortened, name, problem)
    for name, problem in (("digits", digits), ("convolutional", convolutional), ("gpt", gpt))
}

#: The parts of each problem: layers, by the pattern of their paths, and roles. SGD without momentum has no state; the
#: state of Adam has the format of the weights.
PARTS: dict[str, tuple[str, ...]] = {
    "digits": ("hidden.0", "hidden.1", "head", *ROLES),
    "convolutional": ("0", "3", "7", *ROLES),
    "gpt": ("blocks.0.self_attn*", "blocks.0.linear1", "blocks.0.linear2", *ROLES),
}
