"""Compare training steps of an MLP under scaled casts with a computation of one value at a time.

The scalar version uses no tensors and no blocks: it rounds with the definition and sums with fractions.
"""

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.definition import round_value
from tests.bits import assert_bits
from tests.reference import operate, sequential_dot
from tests.scalar_casts import clamped_quotient, elements, largest, product, tensor_scale, whole_dot

LR, EVEN = 0.05, sf.nearest_even


def policy(scale, weights=None, gradients=sf.E5M2, **roles):
    """E4M3 forward, scaled; BF16 between, and FP32 parameters."""
    return sf.Policy(
        compute=sf.scaled(sf.E4M3, scale), compute_weights=sf.scaled(sf.E4M3, weights or scale),
        compute_gradients=sf.scaled(gradients, scale), weights=sf.FP32, activations=sf.BF16, **roles,
    )  # fmt: skip


POLICIES = {
    "per tensor": policy(sf.per_tensor()),
    "delayed": policy(sf.delayed(history=2, margin=1)),
    "rows and squares": policy(sf.block(3, sf.FP32), sf.block((2, 3), sf.FP32)),
    "microscaling": policy(sf.block(4, sf.E8M0), accumulate=sf.pairwise(sf.FP32)),
    "on a unit": policy(sf.block(3, sf.FP32), accumulate=sf.tensor_core("hopper")),
    "exact": policy(sf.block(3, sf.FP32), accumulate=sf.exact, reduce=sf.FP32),
}


class Contractions:
    """Products of matrices with the scales of a policy, and what delayed ones remember."""

    def __init__(self, recipe):
        self.recipe, self.amaxes = recipe, {}

    def __call__(self, key, a, b, left, right):
        """a (m, k) times the transpose of b (n, k), rounded to BF16."""
        a, b, accumulate = np.array(a, float), np.array(b, float), self.recipe.accumulate
        if isinstance(left.scale, type(sf.block(1, sf.FP32))):
            return product(a, b.T, (left, right), accumulate, sf.BF16).tolist()
        scales = self._scale((key, 0), a, left), self._scale((key, 1), b, right)
        q, r = elements(a, left.format, scales[0]).tolist(), elements(b, right.format, scales[1]).tolist()
        formats = left.format, right.format
        return [[whole_dot(x, y, formats, scales, accumulate, sf.BF16) for y in r] for x in q]

    def _scale(self, key, x, cast):
        if cast.scale == sf.per_tensor():
            return tensor_scale(x, cast.format)
        before = self.amaxes.get(key, [])
        self.amaxes[key] = [*before, float(largest(x))][-cast.scale.history :]
        return clamped_quotient(cast.format.max / 2**cast.scale.margin, max(before)) if before else 1.0


def do(operation, *operands, format=sf.BF16):
    return operate(operation, format, EVEN, *operands)


def column_sums(rows):
    """Sums over rows through the accumulator of reductions, FP32, rounded to BF16."""
    return [
        round_value(sequential_dot(list(c), [1.0] * len(c), sf.FP32, EVEN), sf.BF16, EVEN)
        for c in zip(*rows, strict=True)
    ]


def scalar_step(x, y, parameters, multiply):
    """Loss, gradients and new parameters of an MLP with one hidden layer and one output."""
    recipe, n = multiply.recipe, len(x)
    data, weights, gradients = recipe.compute, recipe.compute_weights, recipe.compute_gradients
    w1, b1, w2, b2 = parameters
    first = multiply("first", x, w1, data, weights)
    before = [[do("add", v, b) for v, b in zip(row, b1, strict=True)] for row in first]
    hidden = [[max(v, 0.0) for v in row] for row in before]
    out = [do("add", row[0], b2[0]) for row in multiply("second", hidden, w2, data, weights)]
    difference = [do("subtract", o, float(v)) for o, v in zip(out, y, strict=True)]
    total = sequential_dot([do("multiply", d, d) for d in difference], [1.0] * n, sf.FP32, EVEN)
    loss = do("divide", round_value(total, sf.BF16, EVEN), float(n))

    g = [[do("multiply", do("divide", 1.0, float(n)), 2 * d)] for d in difference]
    columns = lambda rows: [list(column) for column in zip(*rows, strict=True)]  # noqa: E731
    w2_grad = multiply("second weight", columns(g), columns(hidden), gradients, data)
    through = multiply("second input", g, columns(w2), gradients, weights)
    g1 = [[v if p > 0 else 0.0 for v, p in zip(*rows, strict=True)] for rows in zip(through, before, strict=True)]
    w1_grad = multiply("first weight", columns(g1), columns(x), gradients, data)
    slopes = w1_grad, column_sums(g1), w2_grad, column_sums(g)
    step = lambda w, s: do("add", w, do("multiply", -LR, s, format=sf.FP32), format=sf.FP32)  # noqa: E731
    moved = [np.vectorize(step)(np.array(w), np.array(s)).tolist() for w, s in zip(parameters, slopes, strict=True)]
    return loss, slopes, moved


@pytest.mark.parametrize("name", POLICIES)
def test_steps_of_an_mlp_equal_a_scalar_computation_bit_for_bit(name):
    rng = np.random.default_rng(5)
    x, y = rng.standard_normal((7, 5)) * 2.0 ** rng.integers(-6, 6, (7, 5)), rng.standard_normal(7)
    model = sf.nn.MLP([5, 4, 1], rng=4)
    optimizer = sf.optim.SGD(model.parameters(), lr=LR)
    parameters = [parameter.data.astype(np.float32).tolist() for parameter in model.parameters()]
    multiply = Contractions(POLICIES[name].recipe())
    sim = sf.simulate(POLICIES[name])
    for _ in range(3):
        with sim:
            optimizer.zero_grad()
            loss = sf.nn.mse_loss(model(x), y[:, np.newaxis])
            loss.backward()
            optimizer.step()
        want, slopes, parameters = scalar_step(x.tolist(), y, parameters, multiply)
        assert_bits([loss.item()], [want])
        for parameter, slope, value in zip(model.parameters(), slopes, parameters, strict=True):
            assert_bits(parameter.grad, slope)
            assert_bits(parameter.data, value)
