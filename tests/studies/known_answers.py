"""Trainings with losses that are known by construction, for tests of the search, also in other processes."""

import numpy as np

import simfloat as sf

#: What each format of each part adds to the loss.
ADDED = {
    "compute": {"E4M3": 0.004, "E5M2": 0.002},
    "activations": {"E4M3": 0.05, "E5M2": 0.2, "BF16": 0.003, "FP16": 0.001},
    "weights": {"E4M3": 0.5, "E5M2": float("inf"), "BF16": 0.006, "FP16": 0.002},
}


def added(policy, table=ADDED):
    recipe = policy.recipe()
    return sum(table[role].get(getattr(recipe, role).name, 0.0) for role in table)


def additive(policy, seed):
    """Losses of which the parts add up; the seed changes all of them alike."""
    return (1 + added(policy)) * (1 + seed / 10)


def trained_line(policy, seed):
    """A real training: a line, whose slope is learned."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((32, 2))
    y = x @ [[1.0], [0.5]] + 0.1 * rng.standard_normal((32, 1))
    model = sf.nn.Sequential(sf.nn.Linear(2, 3, rng=seed), sf.nn.Linear(3, 1, rng=seed))
    optimizer = sf.optim.SGD(model.parameters(), lr=0.1)
    with sf.simulate(policy, seed=seed):
        for _ in range(12):
            optimizer.zero_grad()
            loss = sf.nn.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
    return loss.item()
