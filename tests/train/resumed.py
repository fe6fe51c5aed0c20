"""A training that is stopped and resumed with other parts."""

from functools import partial

import simfloat as sf
from tests.train import toy


def calm():
    return 0.0


def parts():
    """The parts of a training; tests change one of them."""
    narrow, wide = sf.policies["fp8-hybrid"], sf.policies["bf16-standard"]
    return {
        "policy": narrow,
        "seed": 3,
        "model": lambda: sf.nn.MLP([3, 5, 2]),
        "optimizer": partial(sf.optim.SGD, lr=0.25, momentum=0.5),
        "loss_fn": sf.nn.cross_entropy,
        "scaler": sf.optim.DynamicLossScale(8.0),
        "schedule": partial(sf.optim.StepLR, step_size=2),
        "switching": sf.Switching(narrow, wide, calm, above=1.0),
        "clip": 1.0,
        "accumulation": 2,
        "batches": list(toy.batches(12)),
    }


def fit(steps, given, observer=None, **options):
    """The model, optimizer, scaler, simulation and history after a training of such parts."""
    sf.nn.seed(1)
    model = given["model"]()
    optimizer = given["optimizer"](model.parameters())
    simulation = sf.simulate(given["policy"], seed=given["seed"], observer=observer)
    names = ("scaler", "switching", "clip", "accumulation")
    schedule = given["schedule"] and given["schedule"](optimizer)
    with simulation:
        history = sf.train.fit(
            model, given["loss_fn"], given["batches"], optimizer, schedule=schedule, steps=steps, progress=False,
            **{name: given[name] for name in names}, **options,
        )  # fmt: skip
    return model, optimizer, simulation, history


WARM_UP = partial(sf.optim.LinearLR, total_iters=3)


def sequential(optimizer, step_size=2):
    schedules = [WARM_UP(optimizer), sf.optim.StepLR(optimizer, step_size)]
    return sf.optim.SequentialLR(optimizer, schedules, [3])
