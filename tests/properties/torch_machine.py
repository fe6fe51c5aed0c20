"""The machine that runs programs in PyTorch, through our front end for it."""

from contextlib import contextmanager, suppress

import torch
from torch import nn

import simfloat as sf
from tests.properties.machines import Machine


class Root(nn.Module):
    """The model: layers in slots, which a function runs."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
        self.d, self.e = Perceptron(), nn.LayerNorm(4)
        self.scale = nn.Parameter(torch.ones((1, 4)))

    def forward(self, function):
        return function()


class Perceptron(nn.Module):
    """Two layers."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 6), nn.Linear(6, 4)

    def forward(self, x):
        return self.outer(self.inner(x).relu())


class Modules(Machine):
    """By modules and optimizers of PyTorch. What replaces the model, or opens another simulation, leaves the block."""

    new_model, nested_module = Root, staticmethod(nn.Sequential)
    concatenate, mse_loss = staticmethod(torch.cat), staticmethod(nn.functional.mse_loss)
    cross_entropy, data = staticmethod(nn.functional.cross_entropy), staticmethod(torch.from_numpy)
    classes, no_grad = staticmethod(torch.from_numpy), staticmethod(torch.no_grad)

    def __init__(self, program, observer=None):
        super().__init__(program)
        self.observer = observer

    def new_optimizer(self, kind, options):
        return getattr(torch.optim, kind)(self.model.parameters(), **options)

    def simulation(self, policy, seed):
        return sf.torch.simulate(self.model, policy, seed, observer=self.observer)

    def leaf(self, x):
        return torch.from_numpy(x.copy()).requires_grad_()

    def numbers(self, x):
        return x.detach().numpy().copy()

    def gradient(self, x):
        return None if x.grad is None else self.numbers(x.grad)

    def write_parameter(self, parameter, numbers):
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(numbers))

    def write(self, slot):
        with self.outside():
            super().write(slot)

    def copy(self, kind):
        with self.outside():
            super().copy(kind)
            runs = [self.simulation(run.policy, run.state["seed"]) for run in self.simulations]
            for run, new in zip(self.simulations, runs, strict=True):
                new.load_state(run.state)
            self.simulations = runs

    def nested(self, policy, body, loss):
        with self.outside():
            super().nested(policy, body, loss)

    def restore(self, parameters, state):
        with self.outside():
            super().restore(parameters, state)

    @contextmanager
    def outside(self):
        """A piece of the program outside of the block."""
        with suppress(ValueError):  # for an override that matched nothing so far
            self.block.__exit__(None, None, None)
        try:
            yield
        finally:
            self.enter()

    def state_of(self, simulation):
        return simulation.state
