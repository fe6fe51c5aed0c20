"""A small training: a model, batches, fit under any policy, checkpoints, and a program for a process to be killed."""

import numpy as np

import simfloat as sf


def batches(count, start=0):
    for number in range(start, count):
        random = np.random.default_rng(number)
        yield random.standard_normal((4, 3)), random.integers(0, 2, 4)


def parts(seed=3, make=None):
    """A model, an optimizer, a scaler."""
    sf.nn.seed(seed)
    model = make() if make else sf.nn.MLP([3, 5, 2])
    optimizer = sf.optim.Adam(model.parameters(), 0.05)
    return model, optimizer, sf.optim.DynamicLossScale(2.0**14, growth_interval=3)


def fit(policy, steps, start=3, model=None, schedule=None, observer=None, seed=3, **options):
    """Train from the start, or from where `options` say; the states at the end, and the history.

    model and schedule are functions that make them, the latter of an optimizer; start is the seed of initial values.
    """
    model, optimizer, scaler = parts(start, model)
    schedule = schedule and schedule(optimizer)
    simulation = sf.simulate(policy, seed=seed, observer=observer)
    with simulation:
        history = sf.train.fit(
            model, sf.nn.cross_entropy, batches(steps), optimizer, scaler=scaler, schedule=schedule, progress=False,
            **options,
        )  # fmt: skip
    states = [model.state_dict(), optimizer.state_dict(), scaler.state_dict(), simulation.state]
    return states, history


def train_and_tell(connection, folder, steps):
    """Say that all is loaded, and train as far as one comes."""
    fit("bf16-stochastic", 1)
    connection.send("begun")
    fit("bf16-stochastic", steps, observer=sf.Recorder(), checkpoint=folder, resume=folder, every=1)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def newest(folder):
    return folder / names(folder)[-1]
