"""What a policy does to one gradient: its error, the roundings that went wrong, and which operations it is due to."""

from __future__ import annotations

import simfloat as sf
from experiments.gradients import Batch, gradient, random_batch, relative_error, train_half
from experiments.operation_lists.policies import EVERYTHING, MEASURED, MIXED
from experiments.operation_lists.problems import PROBLEMS
from experiments.options import FIRST_SEED
from experiments.problem import Problem
from simfloat import nn
from simfloat.studies import Result

#: Samples of the gradient that is looked at.
BATCH, TINY_BATCH = 64, 8

#: Whose gradients are attributed to operations, and of which model; for the first seed.
ATTRIBUTED, WHERE = (MIXED, EVERYTHING), "convolutional"


def measure_gradients(name: str, seed: int, tiny: bool) -> Result:
    """The gradient of a new model, and of one that made half its steps in FP32, under every policy beside FP64.

    "stages" has for each policy the gradient's "error", relative to that in FP64 (2-norms over all parameters), and the
    counts of "overflow" and "underflow"; "attribution" the error that each operation in each layer makes by itself.
    """
    problem = PROBLEMS[name](seed, tiny)
    batch = random_batch(problem, seed, TINY_BATCH if tiny else BATCH)
    model = problem.model()
    stages = {"start": errors(model, problem, batch)}
    train_half(model, problem, seed)
    stages["middle"] = errors(model, problem, batch)
    chosen = ATTRIBUTED if (name, seed) == (WHERE, FIRST_SEED) else ()
    return {"stages": stages, "attribution": {v.key: attributed(model, problem, batch, v.policy) for v in chosen}}


def errors(model: nn.Module, problem: Problem, batch: Batch) -> dict[str, dict[str, float]]:
    """What every policy does to the gradient, by the variant's key."""
    exact, _ = gradient(model, problem, batch, sf.policies["fp64"])
    found = {}
    for variant in MEASURED:
        rounded, recorder = gradient(model, problem, batch, variant.policy)
        counts = recorder.counts()
        error = relative_error(rounded, exact)
        found[variant.key] = {"error": error, "overflow": counts["overflow"], "underflow": counts["underflow"]}
    return found


def attributed(model: nn.Module, problem: Problem, batch: Batch, policy: sf.Policy) -> dict[str, list]:
    """The error that each operation in each layer makes by itself, as a heat map takes it."""
    grid = sf.attribute(model, problem.loss, batch, policy, by=["layer", "operation"]).grid()
    return {"rows": list(grid.rows), "columns": list(grid.columns), "values": grid.errors.tolist()}
