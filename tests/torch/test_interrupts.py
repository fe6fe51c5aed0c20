"""After Ctrl-C, or an error in an optimizer step, that a program catches, all later bits are unchanged."""

import importlib
import signal
import sys
from contextlib import contextmanager

import pytest
import torch
from torch import nn

import simfloat as sf
from tests.torch.compared import bits_of, perceptron, step

X = torch.linspace(-1, 2, 32).reshape(8, 4).sin()
STOCHASTIC = sf.Policy(compute=sf.BF16, rounding=sf.stochastic(), weights=sf.BF16, update="stochastic")
ERRORS = [KeyboardInterrupt, ValueError]


class Failing(nn.Module):
    error = None

    def forward(self, x):
        if self.error is not None:
            raise self.error
        return x


def model_of():
    return perceptron(nn.Sequential(Failing()), sizes=(4, 8, 3), seed=1)


def numbers_of(model):
    return [p.tolist() for p in bits_of(model)]


@contextmanager
def handled():
    """A block in which Ctrl-C is what it is in a notebook, wherever the tests run."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def interrupted(action, first, stride=1):
    """Do it again and again, each time with Ctrl-C later, wherever it is held back; whether each came through."""
    left = 0

    def at_instructions(frame, event, argument):
        nonlocal left
        frame.f_trace_opcodes = True
        if event == "opcode" and signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            left -= 1
            if left == 0:
                signal.raise_signal(signal.SIGINT)
        return at_instructions

    came, count, before = [], first, sys.gettrace()
    while left <= 0:
        left = count
        sys.settrace(at_instructions)
        try:
            action()
        except KeyboardInterrupt:
            came.append(True)
        else:
            came.append(False)
        finally:
            sys.settrace(before)
        yield count
        count += stride
    assert came[:-1] == [True] * (len(came) - 1) and len(came) > 3


def settings():
    """The settings of PyTorch that a block changes and restores."""
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    read = [setting._read() for setting in importlib.import_module("simfloat.torch.settings").SETTINGS]
    optimizers = importlib.import_module("torch.optim.optimizer")
    hooks = len(optimizers._global_optimizer_pre_hooks), len(optimizers._global_optimizer_post_hooks)
    return read, hooks, _get_current_dispatch_mode_stack(), torch.is_grad_enabled()


@pytest.mark.parametrize("error", ERRORS)
def test_a_module_that_raised_an_error_is_not_running(error):
    results = []
    for fails in (False, True):
        model = model_of()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        with sf.torch.simulate(model, STOCHASTIC, seed=3) as run:
            step(model, optimizer, X)
            if fails:
                state, model[1][0].error = run.state, error
                with pytest.raises(error):
                    model(X)
                run.load_state(state)
                model[1][0].error = None
                with run.aside():  # which is refused while a module runs
                    model(X)
            step(model, optimizer, X)
        results.append((numbers_of(model), run.state))
    assert results[0] == results[1]


@pytest.mark.parametrize("error", ERRORS)
def test_an_optimizer_that_raised_an_error_is_not_stepping(error, monkeypatch):
    def fail(*args, **options):
        raise error

    model = nn.Linear(4, 3)
    optimizer = torch.optim.RMSprop(model.parameters())
    with sf.torch.simulate(model, "bf16-standard") as run:
        model(X).sum().backward()
        with torch.no_grad():
            want = [model.weight @ X[0], model(X)]
        monkeypatch.setattr(importlib.import_module("torch.optim.rmsprop"), "_single_tensor_rmsprop", fail)
        with pytest.raises(error):
            optimizer.step()
        with torch.no_grad():
            assert all(map(torch.equal, [model.weight @ X[0], model(X)], want))
        with run.aside():
            assert torch.equal(model(X), want[1])


def test_a_block_is_begun_and_ended_as_a_whole():
    model = model_of()
    optimizer = torch.optim.RMSprop(model.parameters())
    start = {name: x.clone() for name, x in model.state_dict().items()}
    run = sf.torch.simulate(model, STOCHASTIC, seed=3)
    state = run.state

    def steps():
        model.load_state_dict(start)
        run.load_state(state)
        with run:
            step(model, optimizer, X)
        return numbers_of(model), run.state

    def metrics():
        with run, run.paused():
            float(X.sum())

    want, before = steps(), settings()
    with handled():
        for action in (steps, metrics):
            for count in interrupted(action, first=1, stride=8999):
                assert settings() == before, count
                optimizer = torch.optim.RMSprop(model.parameters())
                assert steps() == want, count
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())
    assert not any(parameter._backward_hooks for parameter in model.parameters())


def test_parameters_are_registered_again_after_an_interrupt(monkeypatch):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    stored = importlib.import_module("simfloat.torch.parameters").StoredParameters
    know = stored._know

    def interrupt(self, path, tensor):
        if path == "1.weight":
            raise KeyboardInterrupt
        know(self, path, tensor)

    with sf.torch.simulate(model, "fp32") as run:
        run.policy = "bf16-standard"
        monkeypatch.setattr(stored, "_know", interrupt)
        with pytest.raises(KeyboardInterrupt):
            model(X)
        monkeypatch.setattr(stored, "_know", know)
        found = model(X).detach()
    with sf.torch.simulate(model, "bf16-standard"):
        assert torch.equal(found, model(X))
