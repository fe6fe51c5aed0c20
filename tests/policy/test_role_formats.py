"""Every tensor that a training step makes, in every phase, is in the format that its role has in the policy."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic.catalog import OPERATIONS
from simfloat.autodiff import tape
from simfloat.simulation import widest

RNG = np.random.default_rng(7)


def mlp():
    model = sf.nn.MLP([5, 4, 3], rng=0)
    return model, sf.nn.cross_entropy, RNG.standard_normal((6, 5)), RNG.integers(0, 3, 6)


class Residual(sf.nn.Module):
    """A convolution with batch norm, added to what came in."""

    def __init__(self):
        super().__init__()
        self.conv = sf.nn.Conv2d(2, 2, 3, padding=1, rng=0)
        self.norm = sf.nn.BatchNorm2d(2)

    def forward(self, x):
        return (self.norm(self.conv(x)) + x).relu()


def cnn():
    layers = sf.nn.Conv2d(1, 2, 3, rng=1), Residual(), sf.nn.MaxPool2d(2), sf.nn.Flatten(), sf.nn.Linear(8, 3, rng=2)
    return sf.nn.Sequential(*layers), sf.nn.cross_entropy, RNG.standard_normal((4, 1, 6, 6)), RNG.integers(0, 3, 4)


class Sequences(sf.nn.Module):
    """An LSTM over embedded tokens, and a classifier of its last state."""

    def __init__(self):
        super().__init__()
        self.embedding = sf.nn.Embedding(7, 3, rng=0)
        self.lstm = sf.nn.LSTM(3, 4, batch_first=True, rng=1)
        self.norm = sf.nn.LayerNorm(4)
        self.head = sf.nn.Linear(4, 3, rng=2)

    def forward(self, tokens):
        states, _ = self.lstm(self.embedding(tokens))
        return self.head(self.norm(states[:, -1]))


def lstm():
    return Sequences(), sf.nn.cross_entropy, RNG.integers(0, 7, (4, 3)), RNG.integers(0, 3, 4)


class Decoder(sf.nn.Module):
    """One block of a GPT: causal attention and a GELU layer, each behind layer norm and added to what came in."""

    def __init__(self):
        super().__init__()
        self.token, self.position = sf.nn.Embedding(5, 4, rng=0), sf.nn.Embedding(3, 4, rng=1)
        self.before, self.between = sf.nn.LayerNorm(4), sf.nn.LayerNorm(4)
        self.attention = sf.nn.MultiHeadAttention(4, 2, batch_first=True, rng=2)
        self.feed = sf.nn.Sequential(sf.nn.Linear(4, 8, rng=3), sf.nn.GELU(), sf.nn.Linear(8, 4, rng=4))
        self.head = sf.nn.Linear(4, 5, bias=False, rng=5)

    def forward(self, tokens):
        x = self.token(tokens) + self.position(np.arange(3))
        y = self.before(x)
        mask = np.triu(np.ones((3, 3), bool), 1)
        x = x + self.attention(y, y, y, need_weights=False, attn_mask=mask, is_causal=True)[0]
        return self.head(x + self.feed(self.between(x)))


def gpt():
    return Decoder(), sf.nn.cross_entropy, RNG.integers(0, 5, (2, 3)), RNG.integers(0, 5, (2, 3))


MODELS = {"mlp": mlp, "cnn": cnn, "lstm": lstm, "gpt": gpt}


def holds(format, numbers):
    """Whether all are numbers of the format."""
    numbers = np.asarray(numbers)
    kept = numbers[np.isfinite(numbers)]
    return bool((sf.round(kept, format, sf.toward_zero) == kept).all())


def nodes_of(tensor):
    """All tensors that operations made, back from this one."""
    found, stack = {}, [tensor]
    while stack:
        variable = stack.pop()
        if id(variable) not in found and variable.node is not None:
            found[id(variable)] = variable
            stack += variable.node.parents
    return list(found.values())


def role(policy, node, name, parameter=None):
    """The format that a role has for an operation, or for the parameter that its gradient reaches."""
    return getattr(policy.recipe(parameter or node.place.path, *node.place.operations), name)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("preset", sf.policies)
def test_tensors_are_in_the_formats_of_their_roles(preset, model, monkeypatch):
    policy, (model, loss_fn, x, y) = sf.policies[preset], MODELS[model]()
    gradients, contribution = [], tape._contribution

    def heard(node, number, *rest):
        result = contribution(node, number, *rest)
        gradients.append((node, number, result))
        return result

    monkeypatch.setattr(tape, "_contribution", heard)
    optimizer = sf.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with sf.simulate(policy):
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
    made = nodes_of(loss)
    assert made and gradients
    for variable in made:
        check_result(policy, variable)
    for node, number, gradient in gradients:
        check_gradient(policy, node, number, gradient)
    for (path, parameter), state in zip(model.named_parameters(), optimizer.state, strict=True):
        recipe = policy.recipe(path, "update")
        assert parameter.format == recipe.weights and holds(recipe.weights, parameter.data)
        assert holds(recipe.optimizer_state, state.pop("momentum_buffer"))
        assert all(holds(recipe.weights, numbers) for numbers in state.values()), "a Kahan update's compensation"
    for path, module in model.named_modules():
        if isinstance(module, sf.nn.BatchNorm2d):
            format = policy.recipe(path, "batch_norm").activations
            assert holds(format, module.running_mean) and holds(format, module.running_var)


def check_result(policy, variable):
    node = variable.node
    if OPERATIONS[node.place.operation].kind == "movement":
        assert variable.format is None or holds(variable.format, variable.numbers)
        return
    want = role(policy, node, "activations")
    if want == "widest":
        # Scalars do not count beside arrays.
        want = widest(f for x, f in zip(node.parents, node.formats, strict=True) if x.format is not None or x.ndim)
    assert variable.format == want and holds(want, variable.numbers), node.place.operations


def check_gradient(policy, node, number, gradient):
    path = node.paths[number]
    name = "activation_gradients" if path is None else "weight_gradients"
    own = path if path is None or path.startswith(node.place.path) else f"{node.place.path}.{path.rpartition('.')[2]}"
    want = role(policy, node, name, own)
    if want == "widest":
        want = node.formats[number]
    assert holds(want, gradient), (node.place.operations, number)
