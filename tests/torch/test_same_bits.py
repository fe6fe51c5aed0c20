"""A multilayer perceptron has the same bits as with the layers and the optimizer of simfloat."""

from itertools import pairwise

import numpy as np
import pytest
import torch

import simfloat as sf

LAYERS = (7, 6, 5, 3)


class Theirs(torch.nn.Module):
    def __init__(self, dtype):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second, self.third = (torch.nn.Linear(a, b, dtype=dtype) for a, b in pairwise(LAYERS))

    def forward(self, x):
        return self.third(self.second(self.first(x).relu()).tanh())


class Ours(sf.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.first, self.second, self.third = (sf.nn.Linear(a, b) for a, b in pairwise(LAYERS))
        self.load_state_dict({key: value.numpy().copy() for key, value in model.state_dict().items()})

    def forward(self, x):
        return self.third(self.second(self.first(x).relu()).tanh())


def torch_loss(z, y):
    d = z - y
    return (d * d).mean()


def torch_cross_entropy(z, labels):
    shifted = z - z.amax(1, keepdim=True).detach()
    return (shifted.exp().sum(1).log() - (shifted * labels).sum(1)).mean()


def own_cross_entropy(z, labels):
    shifted = z - z.detach().max(1, keepdims=True)
    return (shifted.exp().sum(1).log() - (shifted * labels).sum(1)).mean()


LOSSES = [(torch_loss, torch_loss), (torch_cross_entropy, own_cross_entropy)]


def bits_of_torch(policy, loss, options, dtype):
    model = Theirs(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, **options)
    rng = np.random.default_rng(1)
    found, recorder = [], sf.Recorder()
    with sf.torch.simulate(model, policy, 5, recorder):
        for _ in range(3):
            x, y = (torch.from_numpy(rng.normal(size=(4, n))).to(dtype) for n in (7, 3))
            optimizer.zero_grad()
            value = loss(model(x), y)
            value.backward()
            optimizer.step()
            found.append(float(value.detach()))
            found += [p.grad.numpy().copy() for p in model.parameters()]
            found += [p.detach().numpy().copy() for p in model.parameters()]
    return found, recorder


def bits_of_ours(policy, loss, options, dtype):
    model = Ours(Theirs(dtype))
    optimizer = sf.optim.SGD(list(model.parameters()), lr=0.3, **options)
    rng = np.random.default_rng(1)
    found, recorder = [], sf.Recorder()
    with sf.simulate(policy, 5, recorder):
        for _ in range(3):
            x, y = (rng.normal(size=(4, n)).astype(str(dtype).removeprefix("torch.")) for n in (7, 3))
            optimizer.zero_grad()
            value = loss(model(sf.Tensor(x)), sf.Tensor(y))
            value.backward()
            optimizer.step()
            found.append(value.item())
            found += [p.grad for p in model.parameters()]
            found += [p.data.copy() for p in model.parameters()]
    return found, recorder


@pytest.mark.parametrize("losses", LOSSES, ids=["squares", "cross_entropy"])
@pytest.mark.parametrize("policy", sf.policies)
def test_a_perceptron_has_the_bits_of_our_own_engine_under_every_preset(policy, losses):
    dtype = torch.float64 if policy == "fp64" else torch.float32
    options = {"momentum": 0.9, "weight_decay": 0.01, "nesterov": losses is LOSSES[0]}
    theirs, _ = bits_of_torch(policy, losses[0], options, dtype)
    ours, _ = bits_of_ours(policy, losses[1], options, dtype)
    for number, (a, b) in enumerate(zip(theirs, ours, strict=True)):
        np.testing.assert_array_equal(a, b, err_msg=str(number))
