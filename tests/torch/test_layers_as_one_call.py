"""Linear and recurrent layers run as one call if nothing is watched, with the bits and counts of single operations."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import simfloat as sf
from tests.bits import assert_bits
from tests.torch.compared import SingleOperations, assert_alike, entries, three_ways, twins

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
    leaves = [leaf for leaf in (x, *model.parameters()) if leaf.requires_grad]
    return loss + sum(g.square().sum() for g in torch.autograd.grad(loss, leaves, create_graph=True))


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
    "gradients of gradients of parameters alone": (perceptron, lambda model, x: penalty(model, x.detach())),
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


@pytest.mark.parametrize("case, path, operation, roles", [
    ("a matrix", "0", None, {"compute": sf.FP16, "activation_gradients": sf.Format(3, 3)}),
    ("a matrix", "2", None, {"activation_gradients": sf.E4M3, "reduce": sf.FP16}),
    ("several matrices without a bias", "*", None, {"weight_gradients": sf.E5M2}),
    ("gradients of gradients", "0", None, {"activations": sf.E4M3}),
    ("a part that runs again", "2", None, {"compute_gradients": sf.E3M4, "accumulate": sf.FP16}),
    ("a backward pass inside of one", "0", None, {"activation_gradients": sf.Format(3, 3)}),
    ("a tied weight", "head", None, {"compute": sf.FP16, "activation_gradients": sf.E4M3}),
    ("a tied weight", "tokens", None, {"weights": sf.BF16, "weight_gradients": sf.E5M2}),
    ("convolutions", "along", None, {"activation_gradients": sf.Format(3, 3), "reduce": sf.FP16}),
    ("frozen parameters", None, ("exp", "relu"), {"activations": sf.E4M3}),
    ("a matrix", None, "update", {"rounding": sf.toward_zero}),
])  # fmt: skip
def test_an_override_of_a_layer_or_of_other_operations_needs_no_single_operations(case, path, operation, roles):
    policy = POLICIES["formats apart"].override(path, operation=operation, **roles)
    (plain, names), *others = three_ways(lambda observer: steps(*CASES[case], policy, observer))
    assert names.count("LayerProductBackward") == steps(*CASES[case], POLICIES["formats apart"])[1].count(
        "LayerProductBackward"
    )
    assert "LayerProductBackward" not in others[1][1]
    assert_alike(plain, *(other for other, _ in others))


@pytest.mark.parametrize("path, operation", [("*.weight", None), ("0.bias", None), (None, "contraction"), ("0", "add")])
def test_an_override_of_a_part_of_a_layer_has_the_bits_of_single_operations(path, operation):
    role = {"weight_gradients": sf.E5M2} if path else {"activations": sf.E4M3}
    policy = POLICIES["formats apart"].override(path, operation=operation, **role)
    (plain, _), *others = three_ways(lambda observer: steps(*CASES["a matrix"], policy, observer))
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


def both_results(layer, x):
    """Outputs and last states."""
    outputs, ends = layer(x)
    return outputs.square().sum() + sum((end**3).sum() for end in (ends if isinstance(ends, tuple) else (ends,)))


def last_state(layer, x):
    """Return only the last states."""
    ends = layer(x)[1]
    return (ends[-1] if isinstance(ends, tuple) else ends).sum()


def twice(layer, x):
    """A layer whose weights serve two sequences, the second one from where the first one ended."""
    outputs, ends = layer(x)
    return (outputs[1:] * layer(2 * x, ends)[0][1:]).sum()


def computed_again(layer, x):
    """A layer that runs computed_again in the backward pass."""
    return checkpoint(lambda x: layer(x)[0], x, use_reentrant=False).square().sum()


def slope_of_slopes(layer, x):
    """Gradients of gradients of gradients, by the weights."""
    (g,) = torch.autograd.grad(layer(x)[0].square().sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.square().sum(), x, create_graph=True)
    return h.square().sum()


def inner_step(layer, x):
    """A loss after a step of an inner training."""
    weights = list(layer.parameters())
    gradients = torch.autograd.grad(layer(x)[0].square().sum(), weights, create_graph=True)
    return sum(((w - 0.1 * g) ** 3).sum() for w, g in zip(weights, gradients, strict=True))


def inner_step_from_a_state(layer, x):
    """A loss after an inner step from a first state with a gradient; the inner backward pass also reads this state."""
    state = torch.cat([x[:1], x[:1, :, :1]], -1)
    gradients = torch.autograd.grad(layer(x, state)[0].square().sum(), list(layer.parameters()), create_graph=True)
    return sum(g.square().sum() for g in gradients)


RECURRENT = {
    "LSTM": lambda: nn.LSTM(3, 4),
    "LSTM, deep, both ways": lambda: nn.LSTM(3, 4, 2, bidirectional=True, dropout=0.3),
    "GRU": lambda: nn.GRU(3, 4),
    "RNN": lambda: nn.RNN(3, 4, 2),
    "RNN with relu": lambda: nn.RNN(3, 4, nonlinearity="relu", bias=False),
}

#: Gradients of weights and of activations in different formats.
ROLES = sf.Policy(compute=sf.FP32, activations=sf.BF16, activation_gradients=sf.BF16, weight_gradients=sf.FP16)


def found(make, loss, policy, **options):
    """The state after two steps, and the table of operations."""
    torch.manual_seed(0)
    layer, x = make(), torch.randn(3, 2, 3, requires_grad=True)
    optimizer, left = torch.optim.SGD(layer.parameters(), lr=0.1), []
    with sf.torch.simulate(layer, policy, **options) as run:
        for _ in range(2):
            optimizer.zero_grad()
            x.grad = None
            result = loss(layer, x)
            result.backward()
            left += [result.detach(), x.grad, *(p.grad.clone() for p in layer.parameters())]
            optimizer.step()
    return left, {row[0] for row in run.table().rows}


def one_step(layer, x):
    """An infinite gradient for the output of the last step. Some gradients are missing: they are zero and not NaN."""
    return (layer(x)[0][-1] / 0).sum()


RECURRENT_CASES = [
    ("LSTM, deep, both ways", one_step, "bf16-standard"),
    ("LSTM", both_results, "fp8-hybrid"), ("LSTM", last_state, "bf16-standard"), ("LSTM", computed_again, "fp32"),
    ("LSTM", inner_step, ROLES), ("LSTM, deep, both ways", both_results, "bf16-standard"), ("GRU", twice, ROLES),
    ("GRU", slope_of_slopes, "bf16-standard"), ("GRU", inner_step_from_a_state, "bf16-standard"),
    ("RNN", inner_step, ROLES), ("RNN with relu", slope_of_slopes, ROLES),
]  # fmt: skip


@pytest.mark.parametrize(("name", "loss", "policy"), RECURRENT_CASES)
def test_one_call_has_the_bits_and_counts_of_single_operations(name, loss, policy):
    observed, single = sf.Recorder(), sf.Recorder()
    together, table = found(RECURRENT[name], loss, policy)
    counted, counted_table = found(RECURRENT[name], loss, policy, observer=observed)
    with SingleOperations():
        apart, watched = found(RECURRENT[name], loss, policy, observer=single)
    forward = {"aten.sigmoid_.default", "aten.tanh.default", "aten.relu.default"}
    # A GRU with a Recorder runs as single operations.
    assert not forward & table and bool(forward & counted_table) == (name == "GRU") and forward & watched
    assert_alike(together, counted, apart)
    assert entries(observed) == entries(single) and observed.first_nan == single.first_nan


class Each(sf.Observer):
    """An observer that may need every single operation."""

    def observe(self, events, operation, path="", phase="forward"):
        """Ignore the events."""


def test_an_observer_an_override_and_draws_meet_single_operations():
    plain, _ = found(RECURRENT["GRU"], both_results, "bf16-standard")
    observed, table = found(RECURRENT["GRU"], both_results, "bf16-standard", observer=Each())
    assert_alike(plain, observed)
    assert "aten.sigmoid_.default" in table
    for policy in (
        sf.policies["bf16-standard"].override(operation="sigmoid", activations=sf.FP32),
        sf.Policy(compute=sf.BF16, rounding=sf.stochastic()),
    ):
        assert "aten.sigmoid_.default" in found(RECURRENT["GRU"], both_results, policy)[1]


def test_weights_that_are_written_between_both_passes_are_an_error():
    layer = nn.RNN(3, 4)
    with sf.torch.simulate(layer, "fp32"):
        loss = layer(torch.ones(2, 1, 3))[0].sum()
        with torch.no_grad():
            layer.weight_hh_l0 += 1
        with pytest.raises(RuntimeError, match="inplace"):
            loss.backward()


class Begun(nn.LSTM):
    """A layer whose first states are a parameter."""

    def __init__(self):
        super().__init__(3, 4)
        self.begin = nn.Parameter(torch.linspace(-1, 2, 8).reshape(1, 2, 4))

    def forward(self, x):
        return super().forward(x, (self.begin, self.begin))


def test_a_parameter_as_the_first_state_has_the_role_of_a_parameter():
    assert_alike(*(results for results, _ in three_ways(lambda o: found(Begun, both_results, ROLES, observer=o))))
