"""Compare two steps of a convolutional network with a computation of one rounded value at a time.

The network has a convolution with bias, batch normalization, ReLU, the largest of windows, a residual block, averages
of windows and a linear layer; the loss is the mean squared error, the optimizer plain SGD.
"""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits
from tests.reference import sequential_dot
from tests.roles import EACH_ITS_OWN
from tests.rounded import Rounded

LR, EPS, MOMENTUM = 0.05, 1e-3, 0.25


class Network(sf.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = sf.nn.Conv2d(2, 3, 3, padding=1, rng=0)
        self.norm = sf.nn.BatchNorm2d(3, eps=EPS, momentum=MOMENTUM)
        self.second = sf.nn.Conv2d(3, 3, 3, padding=1, bias=False, rng=1)
        self.head = sf.nn.Linear(3, 2, rng=2)

    def forward(self, x):
        pooled = sf.nn.MaxPool2d(2)(self.norm(self.first(x)).relu())
        block = self.second(pooled) + pooled
        return self.head(sf.nn.AvgPool2d(2)(block).flatten(1))


def patches(x, h=3, w=3):
    """Rows (image, row, column) of what kernels meet on padded images, over (channel, kernel row, kernel column)."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    rows = [
        padded[n, :, i : i + h, j : j + w].ravel()
        for n in range(len(x)) for i in range(x.shape[2]) for j in range(x.shape[3])
    ]  # fmt: skip
    return np.array(rows)


def images(rows, like):
    """Rows (image, row, column) of channels as images."""
    return rows.reshape(like.shape[0], *like.shape[2:], -1).transpose(0, 3, 1, 2)


def windows(x):
    """Images cut into windows of 2 x 2: (..., row, column, place)."""
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, h // 2, w // 2, 4)


def unwindowed(parts):
    n, c, h, w, _ = parts.shape
    return parts.reshape(n, c, h, w, 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, 2 * h, 2 * w)


class Oracle:
    """The network's step under a policy of sequential accumulators."""

    def __init__(self, recipe, state):
        self.state = dict(state)
        self.compute, self.narrow = Rounded(recipe.compute), Rounded(recipe.compute_gradients)
        self.act, self.store = Rounded(recipe.activations), Rounded(recipe.weights)
        self.to_act, self.to_weight = Rounded(recipe.activation_gradients), Rounded(recipe.weight_gradients)
        self.by, self.back = recipe.accumulate.format, recipe.accumulate_gradients.format
        self.reduce = recipe.reduce.format

    def contract(self, u, a, b, a_cast, b_cast, by):
        """Rows of `a` times columns of `b`, each rounded by its cast."""
        a, b = a_cast.to(a), b_cast.to(b)
        return u.to(
            [[sequential_dot(row.tolist(), column.tolist(), by, sf.nearest_even) for column in b.T] for row in a]
        )

    def convolve(self, x, w):
        rows = self.contract(self.act, patches(x), w.reshape(len(w), -1).T, self.compute, self.compute, self.by)
        return images(rows, x)

    def convolved_back(self, g, x, w):
        """The gradients of images and kernels."""
        mirrored = w.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1].reshape(w.shape[1], -1)
        rows = self.contract(self.to_act, patches(g), mirrored.T, self.narrow, self.compute, self.back)
        columns = g.transpose(1, 0, 2, 3).reshape(len(w), -1)
        to_w = self.contract(self.to_weight, columns, patches(x), self.narrow, self.compute, self.back)
        return images(rows, x), to_w.reshape(w.shape)

    def normalize(self, rows, weight, bias):
        """Rows (number, channel), and the values for the backward pass."""
        act, count = self.act, float(len(rows))
        mean = act.div(act.sum(rows, self.reduce, 0), count)
        centred = act.sub(rows, mean)
        total = act.sum(act.mul(centred, centred), self.reduce, 0)
        scale = act.rsqrt(act.add(act.div(total, count), EPS))
        for name, new in (("running_mean", mean[0]), ("running_var", act.div(total, count - 1)[0])):
            kept = act.mul(1.0 - MOMENTUM, self.state[f"norm.{name}"])
            self.state[f"norm.{name}"] = act.add(kept, act.mul(MOMENTUM, new))
        return act.add(act.mul(act.mul(centred, scale), weight), bias), (rows, mean, scale)

    def normalized_back(self, g, weight, kept):
        """The gradients of rows, weight and bias, by PyTorch's formulas: each normalizes rows anew, in its own role."""
        u, v, (rows, mean, scale), count = self.to_act, self.to_weight, kept, float(len(g))
        to_bias = v.sum(g, self.reduce, 0)[0]
        to_weight = v.sum(v.mul(g, v.mul(v.sub(rows, mean), scale)), self.reduce, 0)[0]
        normal, passed = u.mul(u.sub(rows, mean), scale), u.mul(g, weight)
        along = u.div(u.sum(u.mul(passed, normal), self.reduce, 0), count)
        centred = u.sub(passed, u.div(u.sum(passed, self.reduce, 0), count))
        return u.mul(u.sub(centred, u.mul(normal, along)), scale), to_weight, to_bias

    def step(self, x, y):
        """The loss and all gradients; the state is updated."""
        act, u = self.act, self.to_act
        p = {name: self.store.to(value) if "running" not in name else value for name, value in self.state.items()}
        first = act.add(self.convolve(x, p["first.weight"]), p["first.bias"][:, None, None])
        rows, kept = self.normalize(first.transpose(0, 2, 3, 1).reshape(-1, 3), p["norm.weight"], p["norm.bias"])
        active = images(np.where(rows <= 0, 0.0, rows), x)
        parts = windows(active)
        pooled = parts.max(-1)
        block = act.add(self.convolve(pooled, p["second.weight"]), pooled)
        sums = act.sum(windows(block).reshape(-1, 4), self.reduce, 1)
        features = act.div(sums, 4.0).reshape(len(x), 3)
        product = self.contract(act, features, p["head.weight"].T, self.compute, self.compute, self.by)
        output = act.add(product, p["head.bias"])
        difference = act.sub(output, y)
        loss = act.div(act.sum(act.mul(difference, difference), self.reduce), float(y.size))

        g = u.mul(u.div(1.0, float(y.size)), u.mul(u.sub(output, y), 2.0))
        to_head = {
            "head.weight": self.contract(self.to_weight, g.T, features, self.narrow, self.compute, self.back),
            "head.bias": self.to_weight.sum(g, self.reduce, 0)[0],
        }
        g = self.contract(u, g, p["head.weight"], self.narrow, self.compute, self.back)
        g = unwindowed(np.repeat(u.div(g, 4.0)[:, :, None, None, None], 4, -1))
        through, to_second = self.convolved_back(g, pooled, p["second.weight"])
        g = u.add(u.to(g), through)
        g = unwindowed(np.where(np.arange(4) == parts.argmax(-1)[..., None], g[..., None], 0.0))
        g = np.where(active > 0, g, 0.0).transpose(0, 2, 3, 1).reshape(-1, 3)
        g, to_weight, to_bias = self.normalized_back(g, p["norm.weight"], kept)
        to_first_bias = self.to_weight.sum(g, self.reduce, 0)[0]
        _, to_first = self.convolved_back(images(u.to(g), x), x, p["first.weight"])
        gradients = {
            "first.weight": to_first, "first.bias": to_first_bias, "norm.weight": to_weight, "norm.bias": to_bias,
            "second.weight": to_second, **to_head,
        }  # fmt: skip
        for name, gradient in gradients.items():
            self.state[name] = self.store.add(p[name], self.store.mul(-LR, gradient))
        return float(loss), gradients


POLICIES = {
    "bf16-standard": sf.policies["bf16-standard"],
    "fp16 with a master copy": sf.policies["fp16-master"],
    "every role its own format": EACH_ITS_OWN,
}


@pytest.mark.parametrize("name", POLICIES)
def test_steps_of_a_convolutional_network_equal_a_scalar_computation_bit_for_bit(name, rng):
    model, policy = Network(), POLICIES[name]
    x, y = rng.standard_normal((2, 2, 4, 4)), rng.standard_normal((2, 2))
    oracle = Oracle(policy.recipe(), model.state_dict())
    optimizer = sf.optim.SGD(model.parameters(), lr=LR)
    for _ in range(2):
        with sf.simulate(policy):
            optimizer.zero_grad()
            loss = sf.nn.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        want, gradients = oracle.step(x, y)
        assert_bits([loss.item()], [want])
        for path, parameter in model.named_parameters():
            assert_bits(parameter.grad, gradients[path])
        for path, value in model.state_dict().items():
            if path != "norm.num_batches_tracked":
                assert_bits(value, oracle.state[path])
