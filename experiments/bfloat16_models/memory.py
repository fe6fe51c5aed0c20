"""The number of bytes that training keeps for each weight."""

from __future__ import annotations

import simfloat as sf
from experiments.problem import Problem
from experiments.training import training_step
from simfloat.analysis.cost import value_bits
from simfloat.simulation.updates import COMPENSATION, STEP


def memory(problem: Problem, policy: sf.Policy) -> dict[str, float]:
    """Return bytes per weight: of weights, of the optimizer's moments, and of the corrections of Kahan summation.

    They are counted after a step, in the formats that the policy gives each parameter, whatever the storage type.
    """
    model = problem.model()
    step = training_step(problem, model)
    with sf.simulate(policy, seed=0):
        step.make_step([next(problem.batches(0))])
    bits = dict.fromkeys(("weight_bytes", "moment_bytes", "kahan_bytes"), 0.0)
    parameters = list(model.named_parameters())
    for (path, parameter), kept in zip(parameters, step.optimizer.state, strict=True):
        recipe = policy.recipe(path)
        bits["weight_bytes"] += recipe.weights.bits * parameter.data.size
        for name, array in kept.items():
            if name == COMPENSATION:
                bits["kahan_bytes"] += recipe.weights.bits * array.size
            elif name != STEP:
                bits["moment_bytes"] += value_bits(recipe.optimizer_state) * array.size
    weights = sum(parameter.data.size for _, parameter in parameters)
    return {name: count / 8 / weights for name, count in bits.items()}
