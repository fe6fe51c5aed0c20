"""The effect of a policy on one gradient: its error, its overflows and underflows, and the operations that cause it."""

from __future__ import annotations

import simfloat as sf
from experiments.gradients import Batch, gradient, random_batch, relative_error, train_half
from experiments.operation_lists.policies import EVERYTHING, MEASURED, MIXED
from experiments.operation_lists.problems import PROBLEMS
from experiments.options import FIRST_SEED
from experiments.problem import Problem
from simfloat import nn
from simfloat.studies import Result

#: The number of samples for the gradient.
BATCH, TINY_BATCH = 64, 8

#: The policies whose gradients are attributed to operations, and the model; for the first seed.
ATTRIBUTED, WHERE = (MIXED, EVERYTHING), "convolutional"


def measure_gradients(name: str, seed: int, tiny: bool) -> Result:
    """Return the gradients of a new model and of a half-trained one, under every policy, compared with FP64.

    "stages" has for each policy the gradient's "error", relative to that in FP64 (2-norms over all parameters), and the
    counts of "overflow" and "underflow". "attribution" has the error that each operation in each layer causes alone.
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
    """Return the effect of every policy on the gradient, by the key of the variant."""
    exact, _ = gradient(model, problem, batch, sf.policies["fp64"])
    found = {}
    for variant in MEASURED:
        rounded, recorder = gradient(model, problem, batch, variant.policy)
        counts = recorder.counts()
        error = relative_error(rounded, exact)
        found[variant.key] = {"error": error, "overflow": counts["overflow"], "underflow": counts["underflow"]}
    return found


def attributed(model: nn.Module, problem: Problem, batch: Batch, policy: sf.Policy) -> dict[str, list]:
    """Return the error that each operation in each layer causes alone, for a heat map."""
    grid = sf.attribute(model, problem.loss, batch, policy, by=["layer", "operation"]).grid()
    return {"rows": list(grid.rows), "columns": list(grid.columns), "values": grid.errors.tolist()}
