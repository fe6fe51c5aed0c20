"""Trainings of every kind of model, with every optimizer and loss scale."""

from functools import partial

import numpy as np

import simfloat as sf
from tests.cuda.cases.layers import ROWS, device_of, input_of, public


def trained(model, loss_fn, batch, policy, make, scaler=None):
    """Two steps where the batch is: the losses, what a recorder counted, and all that is kept."""
    watching = sf.Recorder(more=True)
    with sf.simulate(policy, seed=3, observer=watching):
        optimizer = make(model.parameters())
        options = {"scaler": scaler, "schedule": sf.optim.StepLR(optimizer, 1), "clip": 1.0, "progress": False}
        history = sf.train.fit(model, loss_fn, [batch] * 2, optimizer, device=device_of(batch[0]), **options)
    yield from (np.array(history[column]) for column in ("loss", "scaled_norm", "norm"))
    yield np.array([list(watching.counts(phase=phase).values()) for phase in ("forward", "backward", "update")])
    yield from model.state_dict().values()
    for kept in optimizer.state_dict()["state"].values():
        yield from (value for value in kept.values() if hasattr(value, "dtype"))


def training(move):
    rng = np.random.default_rng(11)
    x, y = rng.standard_normal((5, 4)).astype(np.float32), np.array([0, 1, 1, 0, 1])
    for policy in ("bf16-stochastic", "bf16-kahan", "fp8-hybrid"):
        model = sf.nn.MLP([4, 3, 2], rng=1)
        make = partial(sf.optim.SGD, lr=0.1, momentum=0.9)
        yield from trained(model, sf.nn.cross_entropy, (move(x), move(y)), policy, make)


def training_of_images(move):
    rng = np.random.default_rng(12)
    x, y = rng.standard_normal((2, 1, 5, 5)).astype(np.float32), rng.standard_normal((2, 2)).astype(np.float32)
    layers = [
        *(sf.nn.Conv2d(1, 2, 2, rng=1), sf.nn.BatchNorm2d(2), sf.nn.ReLU(), sf.nn.MaxPool2d(2), sf.nn.AvgPool2d(2, 1)),
        *(sf.nn.Flatten(), sf.nn.Dropout(0.3), sf.nn.Linear(2, 2, rng=2), sf.nn.LayerNorm(2)),
    ]
    scaler = sf.optim.DynamicLossScale(2.0**4)
    model = sf.nn.Sequential(*layers)
    make = partial(sf.optim.AdamW, lr=0.01, amsgrad=True)
    yield from trained(model, sf.nn.mse_loss, (move(x), move(y)), "amp-fp16", make, scaler)


class Text(sf.nn.Module):
    """Words to words, through a layer that looks at all of a line."""

    def __init__(self, kind):
        super().__init__()
        self.words = sf.nn.Embedding(5, 4, rng=1)
        self.layer = kind(4, 2, batch_first=True, rng=2)
        self.head = sf.nn.Linear(4 if kind is sf.nn.MultiHeadAttention else 2, 5, rng=3)

    def forward(self, x):
        known = self.words(x)
        inputs = (known, known, known) if isinstance(self.layer, sf.nn.MultiHeadAttention) else (known,)
        return self.head(self.layer(*inputs)[0].maximum(-0.5))


def training_of_sequences(move):
    x, y = np.array([[0, 1, 2], [3, 0, 1]]), np.array([[1, 2, 0], [4, 1, 2]])
    for kind, policy in ((sf.nn.GRU, "nvfp4"), (sf.nn.MultiHeadAttention, "fp8-delayed")):
        make = partial(sf.optim.Adagrad, lr=0.1)
        yield from trained(Text(kind), sf.nn.cross_entropy, (move(x), move(y)), policy, make)


def optimizers(move):
    """Every optimizer with one of these updates: to nearest, stochastic, Kahan's, of FP32 weights behind FP16 ones."""
    policies = "bf16-standard", "bf16-stochastic", "bf16-kahan", "fp16-master"
    batch = move(input_of((5, 4))), move(input_of((5, 3)))
    for place, name in enumerate(sorted(public(sf.optim, sf.optim.Optimizer) - {"Optimizer"})):
        model, make = sf.nn.Linear(4, 3, bias=False, rng=1), partial(getattr(sf.optim, name), lr=0.25)
        yield from trained(model, sf.nn.mse_loss, batch, policies[place % 4], make)


#: Optimizers with updates that run as programs, and their policies.
UPDATES = {
    "SGD": partial(sf.optim.SGD, lr=0.25),
    "momentum": partial(sf.optim.SGD, lr=0.25, momentum=0.5, dampening=0.25, weight_decay=0.5),
    "Nesterov": partial(sf.optim.SGD, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": partial(sf.optim.Adam, lr=0.1, weight_decay=0.1),
    "AdamW": partial(sf.optim.AdamW, lr=0.1),
    "Lion": partial(sf.optim.Lion, lr=0.1, weight_decay=0.1),
    "RMSprop": partial(sf.optim.RMSprop, lr=0.1, momentum=0.5, centered=True),
}
UPDATE_POLICIES = (
    *("bf16-standard", "bf16-stochastic", "bf16-kahan", "fp16-master", "fp8-hybrid"),
    sf.Policy(compute=sf.BF16, optimizer_state=sf.E5M2, rounding=sf.stochastic(8)),
)

#: Numbers for two threads: zeros, subnormal numbers, infinities and NaN, too.
WEIGHTS = np.array([1.5, -0.3, 3e38, -0.0, 1e-40, np.inf, 7.0], np.float32)
GRADIENTS = np.array(
    [[0.1, 2.0, -3e38, 0.0, 1e-41, 1.0, np.nan], [-5.0, 0.0, 0.3, 1e-20, -1e-39, 2.0, 1.0]], np.float32
)


def updated(make, policy, move):
    """Two updates of two parameters: the parameters, the optimizer state, and then the calls of the random streams."""
    weights = [sf.Parameter(move(WEIGHTS)), sf.Parameter(move(WEIGHTS[:3]))]
    for name, weight in zip("ab", weights, strict=True):
        weight.name = name
    optimizer, simulation = make(weights), sf.simulate(policy, seed=3)
    for gradient in GRADIENTS:
        for weight in weights:
            weight.grad = move(gradient[: weight.size])
        with simulation:
            optimizer.step()
    yield from (weight.data for weight in weights)
    yield from (value for state in optimizer.state for value in state.values())
    yield np.array([stream["calls"] for stream in simulation.state["streams"]])


def updates(move):
    """Every kind of update, each under two policies; no observer watches, so that an update on a GPU is one launch."""
    for number, make in enumerate(UPDATES.values()):
        for place in (number, number + 2):
            yield from updated(make, UPDATE_POLICIES[place % len(UPDATE_POLICIES)], move)


def loss_scales(move):
    """Every loss scale."""
    batch, make = (move(input_of((5, 4))), move(input_of((5, 3)))), partial(sf.optim.SGD, lr=0.25)
    for name in sorted(public(sf.optim, sf.optim.LossScale) - {"LossScale"}):
        scaler = getattr(sf.optim, name)(*[8.0] * (name in ("StaticLossScale", "DynamicLossScale")))
        yield from trained(sf.nn.MLP([4, 5, 3], rng=1), sf.nn.mse_loss, batch, "fp16-master", make, scaler)
        yield np.array(scaler.get_scale())


def clipped(move):
    """Gradients cut to a norm of every order, and each number by itself."""
    for order in (1, 2, 3, np.inf):
        for policy in ("bf16-standard", "fp32"):
            with sf.simulate(policy):
                weight = sf.Parameter(move(input_of(ROWS)))
                (weight * weight).sum().backward()
                yield np.array(float(sf.optim.clip_grad_norm_([weight], 1.5, norm_type=order)))
                yield weight.grad
                sf.optim.clip_grad_value_([weight], 0.25)
                yield weight.grad
