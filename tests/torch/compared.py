"""Comparisons of a simulated model with the same model unsimulated, and of functions in both front ends."""

from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import simfloat as sf
from tests.bits import assert_all_bits, assert_bits


class SingleOperations(TorchDispatchMode):
    """A mode of the program that receives every operation, so that none is part of a larger call."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **kwargs or {})


def simulated(function, *operands, policy="bf16-standard", model=None):
    """The result of a function under a policy."""
    with sf.torch.simulate(nn.Identity() if model is None else model, policy):
        return function(*operands)


def is_bf16(x):
    """True if all numbers are of BF16."""
    return torch.equal(x, x.bfloat16().to(x.dtype))


def perceptron(*between, sizes=(3, 4, 2), seed=0, **options):
    """Two linear layers, and other ones between them."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(*sizes[:2], **options), *between, nn.Linear(*sizes[1:], **options))


def step(model, optimizer, x):
    """A step of training to zeros, in either package."""
    optimizer.zero_grad()
    z = model(x)
    (z * z).mean().backward()
    optimizer.step()


def bits_of(model):
    """Copies of all parameters."""
    return [p.detach().clone() for p in model.parameters()]


def entries(recorder):
    """All counts of a recorder, with its histograms."""
    return {key: events.tolist() for key, events in recorder.entries()}


def three_ways(run):
    """The results of `run(observer)`: in few calls, and observed; then as single operations, with the same counts."""
    observed, single = sf.Recorder(), sf.Recorder()
    results = [run(None), run(observed)]
    with SingleOperations():
        results.append(run(single))
    assert entries(observed) == entries(single) and observed.first_nan == single.first_nan
    return results


def assert_alike(first, *others):
    """Require the same bits of results, some of which may be None."""
    for other in others:
        for a, b in zip(first, other, strict=True):
            assert (a is b is None) or assert_bits(b.detach().numpy(), a.detach().numpy()) is None


class Function(nn.Module):
    """A function as a module, after a parameter of its own, so that gradients go through it."""

    def __init__(self, function):
        super().__init__()
        self.function, self.factor = function, nn.Parameter(torch.ones(()))

    def forward(self, x, *others):
        return self.function(x * self.factor, *others)

    @classmethod
    def of(cls, function):
        """The function that creates such a module."""
        return partial(cls, function)


def found(make, given, policy, dtype=torch.float64):
    """The results, and the gradients of parameters and of what came in."""
    torch.manual_seed(0)
    model = make().to(dtype)
    given = [x.to(dtype).clone().requires_grad_() if x.is_floating_point() else x for x in given]

    def run():
        results = model(*given)
        results = [results] if isinstance(results, torch.Tensor) else [results[0]]
        weights = (torch.linspace(0.5, 1.5, x.numel(), dtype=dtype).reshape(x.shape) for x in results)
        sum((x * w).sum() for x, w in zip(results, weights, strict=True)).backward()
        return [x.detach() for x in results]

    if policy is None:
        results = run()
    else:
        with sf.torch.simulate(model, policy):
            results = run()
    leaves = [*model.parameters(), *(x for x in given if x.is_floating_point())]
    return [*results, *(x.grad for x in leaves), *(x.clone() for x in model.buffers())]


def compare_with_plain(make, *given):
    """Under fp64 all is what plain PyTorch gives, up to the order of sums."""
    plain, simulated = found(make, given, None), found(make, given, "fp64")
    largest = max(float(x.abs().nan_to_num(0.0, 0.0).max()) for x in plain)
    for a, b in zip(plain, simulated, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-12, atol=1e-12 * largest, equal_nan=True)


def check_format(make, *given):
    """Under bf16-standard all numbers are of BF16."""
    for x in found(make, given, "bf16-standard", torch.float32):
        assert torch.equal(x.nan_to_num(), x.nan_to_num().to(torch.bfloat16).to(x.dtype))


def of_torch(policy, function, arrays):
    """The result and the gradients of parameters, which are multiplied by 1 first, under PyTorch."""
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.from_numpy(x.copy())) for x in arrays])
    with sf.torch.simulate(model, policy):
        result = function(F, *(p * 1.0 for p in model))
        (result * 1.5).sum().backward()
    return [result.detach().numpy(), *(np.zeros(p.shape) if p.grad is None else p.grad.numpy() for p in model)]


def of_ours(policy, function, arrays):
    """The same of tensors of this package."""
    parameters = [sf.Parameter(x.copy()) for x in arrays]
    with sf.simulate(policy):
        result = function(sf.nn, *(p * 1.0 for p in parameters))
        (result * 1.5).sum().backward()
    return [result.data, *(np.zeros(p.shape) if p.grad is None else p.grad for p in parameters)]


def assert_functions_alike(policies, theirs, ours, *arrays):
    """Require the same result and gradients of functions of a package and arrays in both front ends."""
    for name, policy in policies.items():
        assert_all_bits(of_ours(policy, ours, arrays), of_torch(policy, theirs, arrays), name)


def made(kind, nn, *sizes):
    """A model whose layers the function `build` of a class makes of a package's."""

    def start(self):
        nn.Module.__init__(self)
        kind.build(self, nn, *sizes)

    return type(kind.__name__, (kind, nn.Module), {"__init__": start})()


def twins(kind, *sizes, seed=0, dtype=torch.float32):
    """A model of PyTorch, and the same one of this package with its weights."""
    torch.manual_seed(seed)
    theirs, ours = made(kind, torch.nn, *sizes).to(dtype), made(kind, sf.nn, *sizes)
    ours.load_state_dict({key: value.numpy().copy() for key, value in theirs.state_dict().items()})
    return theirs, ours


class Perceptron:
    """Two layers."""

    def build(self, nn, inputs=3, hidden=4, outputs=2):
        self.first, self.second = nn.Linear(inputs, hidden), nn.Linear(hidden, outputs)

    def forward(self, x):
        return self.second(self.first(x).tanh())


def of_layer(layer, x, running):
    """The result of a layer, and the gradients of its inputs and parameters."""
    with running:
        y = layer(x * 1.0)
        (y * y).sum().backward()
    numbers = [y, x.grad, *(parameter.grad for parameter in layer.parameters())]
    return [
        each.detach().numpy() if isinstance(each, torch.Tensor) else getattr(each, "data", each) for each in numbers
    ]


def assert_layers_alike(policies, make, x):
    """Require the same result and gradients of the layers that a function makes of PyTorch and of this package."""
    for name, policy in policies.items():
        dtype = np.float64 if name == "fp64" else np.float32
        theirs, ours = make(torch.nn).to(torch.from_numpy(np.zeros(1, dtype)).dtype), make(sf.nn)
        assert ours.extra_repr() == "" or type(ours).__name__ == type(theirs).__name__
        rng = np.random.default_rng(21)
        with torch.no_grad():
            for parameter in theirs.parameters():
                parameter.copy_(torch.from_numpy(rng.uniform(0.25, 1.5, parameter.shape)))
        ours.load_state_dict({key: value.numpy().copy() for key, value in theirs.state_dict().items()})
        a, b = torch.from_numpy(x.astype(dtype)).requires_grad_(), sf.Tensor(x.astype(dtype), requires_grad=True)
        simulation = sf.torch.simulate(theirs, policy, 3)
        assert_all_bits(of_layer(ours, b, sf.simulate(policy, 3)), of_layer(theirs, a, simulation), name)
