"""Linear layers run as one call if nothing is watched, with the bits of the single operations."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import simfloat as sf
from tests.bits import assert_bits
from tests.torch.compared import assert_alike, three_ways, twins

F = nn.functional
POLICIES = {
    "formats apart": sf.Policy(
        compute=sf.BF16,
        compute_gradients=sf.E5M2,
        activations=sf.Format(8, 7),
        activation_gradients=sf.Format(8, 4),
        weight_gradients=sf.Format(8, 6),
        accumulate=sf.blocked(2, sf.FP16, sf.FP32),
    ),  # fmt: skip
    "scaled": "mxfp8",
}


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.hidden = nn.Embedding(9, 6), nn.Linear(6, 6)
        self.head = nn.Linear(6, 9, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x):
        return self.head(torch.tanh(self.hidden(self.tokens(x.long().remainder(9)))))


class Learned(nn.Module):
    def __init__(self):
        super().__init__()
        self.x, self.layer = nn.Parameter(torch.randn(5, 6)), nn.Linear(6, 4)

    def forward(self, _):
        return self.layer(self.x) + F.linear(self.x, self.layer.weight[1:2])


class Named(nn.Linear):
    def forward(self, x):
        return F.linear(input=x, weight=self.weight, bias=self.bias)


class Convolved(nn.Module):
    def __init__(self):
        super().__init__()
        self.along, self.norm = nn.Conv1d(2, 4, 3, padding=1), nn.BatchNorm1d(4)
        self.apart, self.back = nn.Conv2d(4, 4, 2, groups=2, bias=False), nn.ConvTranspose2d(4, 1, 2, stride=2)

    def forward(self, x):
        y = torch.relu(self.norm(self.along(x.reshape(4, 2, 6)))).view(4, 4, 2, 3)
        return self.back(self.apart(y) + y[:, :, :1, :2])


def perceptron(frozen=(), bias=True):
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 6, bias=bias))
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)
    return model


def penalty(model, x):
    """A loss with the squares of gradients, for which the backward pass is recorded."""
    loss = model(x).square().mean()
    return loss + sum(g.square().sum() for g in torch.autograd.grad(loss, [x, *model.parameters()], create_graph=True))


CASES = {
    "a matrix": (perceptron, lambda model, x: model(x)),
    "several matrices without a bias": (lambda: perceptron(bias=False), lambda model, x: model(x.view(2, 4, 6))),
    "sequences in another order": (lambda: perceptron(bias=False), lambda m, x: m(x.view(2, 4, 6).transpose(0, 1))),
    "convolutions": (Convolved, lambda model, x: model(x)),
    "convolutions with gradients of gradients": (Convolved, penalty),
    "columns that lie one behind the other": (perceptron, lambda model, x: model(x.t().contiguous().t())),
    "a gradient without memory of its own": (lambda: nn.Linear(6, 3), lambda model, x: model(x).sum()),
    "frozen parameters": (lambda: perceptron(["0.weight", "2.bias"]), lambda model, x: model(x)),
    "a layer that is used twice": (lambda: nn.Linear(6, 6), lambda model, x: model(torch.relu(model(x)))),
    "a tied weight": (Tied, lambda model, x: model(x * 10)),
    "a parameter as input, a part of a weight": (Learned, lambda model, x: model(x)),
    "a part that runs again": (perceptron, lambda model, x: checkpoint(model, x, use_reentrant=False)),
    "a backward pass inside of one": (perceptron, lambda model, x: checkpoint(model, x, use_reentrant=True)),
    "operands by their names": (lambda: Named(6, 3), lambda model, x: model(x)),
    "gradients of gradients": (perceptron, penalty),
    "the same by data": (perceptron, lambda model, x: penalty(model, x) * model(x.detach()).mean()),
}


def nodes_of(y):
    known = [] if y.grad_fn is None else [y.grad_fn, *(target for target, _ in y.grad_fn.next_functions)]
    return [type(node).__name__ for node in known]


def steps(make, found, policy, observer=None):
    """Every number of two steps of training, and what autograd knows of results and of what they are views of."""
    torch.manual_seed(0)
    model, x = make(), torch.randn(8, 6, requires_grad=True)
    names, results = [], []
    for module in model.modules():
        module.register_forward_hook(lambda _, __, y: names.extend(nodes_of(y)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    with sf.torch.simulate(model, policy, observer=observer):
        for _ in range(2):
            y = found(model, x)
            y.square().mean().backward()
            results += [y, x.grad, *(p.grad for p in model.parameters())]
            results = [x.detach().clone() if isinstance(x, torch.Tensor) else x for x in results]
            optimizer.step()
    return [*results, *(p.detach() for p in model.parameters())], names


@pytest.mark.parametrize("number, case", list(enumerate(CASES)))
def test_bits_and_counts_are_those_of_single_operations(number, case):
    policy = "scaled" if number % 3 == 0 else "formats apart"
    (plain, names), *others = three_ways(lambda observer: steps(*CASES[case], POLICIES[policy], observer))
    assert "LayerProductBackward" in names and "LayerProductBackward" not in others[1][1] and others[0][1] == names
    assert_alike(plain, *(other for other, _ in others))


def test_the_table_shows_the_layer_as_the_operation_that_it_is():
    model = perceptron()
    with sf.torch.simulate(model, "bf16-standard") as run:
        model(torch.ones(2, 6))
    assert ("aten.addmm.default", "rule", "2") in {(str(func), how, path) for func, how, path in run.met}


def of_some(model, x, found):
    model(x).square().mean().backward(inputs=[model[0].bias, model[2].weight])


def onto_earlier_ones(model, x, found):
    model(x).square().mean().backward()
    model(2 * x).square().mean().backward()


def met_by_an_inner_pass(model, x, found):
    (checkpoint(model, x, use_reentrant=True) + model[2](torch.relu(model[0](x)))).square().mean().backward()


def with_hooks(model, x, found):
    model[0].weight.register_hook(lambda g: found.append(g.clone()) or g / 2)
    model[2].weight.register_post_accumulate_grad_hook(lambda p: found.append(p.grad.clone()))
    model(x).square().mean().backward()


def with_hooks_of_nodes(model, x, found):
    for p in model.parameters():
        node = torch.autograd.graph.get_gradient_edge(p).node
        node.register_hook(lambda *_, p=p: found.append(p.grad.clone()))
        found.append(node)  # which goes when nothing holds it
    model(x).square().mean().backward()


def turned():
    model = perceptron()
    model[0].weight = nn.Parameter(torch.randn(6, 5).t())
    return model


PASSES = (of_some, onto_earlier_ones, met_by_an_inner_pass, with_hooks, with_hooks_of_nodes)


@pytest.mark.parametrize("backward", PASSES)
def test_gradients_are_where_autograd_leaves_them(backward):
    def run(observer):
        make = turned if backward in (onto_earlier_ones, with_hooks) else perceptron
        torch.manual_seed(0)
        model, x, found = make(), torch.randn(8, 6, requires_grad=True), []
        with sf.torch.simulate(model, POLICIES["formats apart"], observer=observer):
            backward(model, x, found)
        own = [p.grad for p in model.parameters()]
        assert all(g is None or g.stride() == p.stride() for g, p in zip(own, model.parameters(), strict=True))
        return [*(g for g in found if isinstance(g, torch.Tensor)), x.grad, *own]

    assert_alike(*three_ways(run))


@pytest.mark.parametrize("down", ["linear", "add"])
def test_shares_of_the_gradient_of_a_layer_used_twice_are_added_as_its_operation_rounds(down):
    policy = sf.Policy(compute=sf.Format(8, 10)).override(operation=down, rounding=sf.toward_negative)
    torch.manual_seed(3)
    shared, x = nn.Linear(4, 4), torch.randn(6, 4)

    def gradients(first, second):
        with sf.torch.simulate(nn.Sequential(first, second), policy):
            nn.functional.cross_entropy(second(first(x)), torch.arange(6) % 4).backward()
        return [(layer.weight.grad.numpy(), layer.bias.grad.numpy()) for layer in (first, second)]

    weights, biases = zip(*gradients(deepcopy(shared), deepcopy(shared)), strict=True)
    weight, bias = gradients(shared, shared)[0]
    modes = {name: sf.toward_negative if name == down else sf.nearest_even for name in ("linear", "add")}
    assert_bits(weight, sf.add(*weights, policy.compute, modes["linear"]))
    assert_bits(bias, sf.add(*biases, policy.compute, modes["add"]))


class TiedEmbedding:
    """An embedding whose weight is also that of the last layer."""

    def build(self, nn):
        self.embedding, self.linear = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
        self.linear.weight = self.embedding.weight

    def forward(self, x):
        return self.linear(self.embedding(x).tanh())


@pytest.mark.parametrize("down", ["embedding", "linear"])
def test_shares_of_the_gradient_of_a_tied_embedding_are_added_by_the_operation_that_computed_the_last(down):
    policy = sf.Policy(compute=sf.Format(8, 4)).override(operation=down, rounding=sf.toward_negative)
    (theirs, ours), x = twins(TiedEmbedding), torch.tensor([1, 2, 1, 0])
    for model, block, values in (
        (theirs, sf.torch.simulate(theirs, policy), x),
        (ours, sf.simulate(policy), x.numpy()),
    ):
        with block:
            y = model(values)
            (y * y).sum().backward()
    assert_bits(theirs.embedding.weight.grad.numpy(), ours.embedding.weight.grad)
