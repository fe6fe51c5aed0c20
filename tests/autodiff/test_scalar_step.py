"""Compare one training step under narrow policies with a computation of one value at a time.

The step is a linear layer of one output with bias, mean squared error, and SGD with momentum and weight decay. The
scalar version uses no tensors: it rounds with the definition, in the documented order.
"""

from hashlib import blake2b

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.definition import round_value
from tests.bits import assert_bits
from tests.reference import operate, sequential_dot

LR, MOMENTUM, DECAY = 0.05, 0.9, 0.01
EVEN = sf.nearest_even


class Scalar:
    """Rounded arithmetic on Python floats."""

    def __init__(self, format):
        self.format = format

    def __call__(self, operation, *operands):
        return operate(operation, self.format, EVEN, *operands)

    def round(self, x):
        return round_value(float(x), self.format, EVEN)

    def dot(self, a, b, accumulate):
        return self.round(sequential_dot(a, b, accumulate, EVEN))


def scalar_step(x, y, weight, bias, state, recipe, update):
    """Forward, backward and update; returns loss, gradients, weight, bias and the optimizer's state."""
    rows, columns = x.shape
    n = float(rows)
    compute, grad_compute = Scalar(recipe.compute), Scalar(recipe.compute_gradients)
    act, to_act = Scalar(recipe.activations), Scalar(recipe.activation_gradients)
    to_weight, store, moment = Scalar(recipe.weight_gradients), Scalar(recipe.weights), Scalar(recipe.optimizer_state)
    accumulate = recipe.accumulate.format

    w = [store.round(v) for v in weight]
    b = store.round(bias)
    xc = [[compute.round(v) for v in row] for row in x]
    out = [act("add", act.dot(xc[i], [compute.round(v) for v in w], accumulate), b) for i in range(rows)]
    difference = [act("subtract", out[i], float(y[i])) for i in range(rows)]
    squares = [act("multiply", d, d) for d in difference]
    loss = act("divide", act.dot(squares, [1.0] * rows, accumulate), n)

    g = to_act("divide", 1.0, n)
    # As in PyTorch, what the backward pass computes with is computed there, and rounded to gradients' role.
    doubled = [to_act("multiply", to_act("subtract", out[i], float(y[i])), 2.0) for i in range(rows)]
    g = [to_act("multiply", g, d) for d in doubled]
    g = [to_act.round(v) for v in g]
    g_out = [to_act.round(v) for v in g]
    grad_bias = to_weight.dot(g, [1.0] * rows, accumulate)
    gc = [grad_compute.round(v) for v in g_out]
    grad_weight = [to_weight.dot(gc, [xc[i][j] for i in range(rows)], accumulate) for j in range(columns)]

    new = []
    for value, gradient, memory in zip([*w, b], [*grad_weight, grad_bias], state, strict=True):
        d = store("add", gradient, store("multiply", DECAY, value))
        m = moment.round(d) if memory["m"] is None else moment("add", store("multiply", MOMENTUM, memory["m"]), d)
        memory["m"] = m
        u = store("multiply", -LR, m)
        if update == "kahan":
            y_ = u if memory["c"] is None else store("subtract", u, memory["c"])
            s = store("add", value, y_)
            memory["c"] = store("subtract", store("subtract", s, value), y_)
        else:
            s = store("add", value, u)
        new.append(s)
    return loss, grad_weight, grad_bias, new[:-1], new[-1]


POLICIES = {
    "bf16-standard": sf.policies["bf16-standard"],
    "bf16-kahan": sf.policies["bf16-kahan"],
    "bf16-fp32-weights": sf.policies["bf16-fp32-weights"],
    "fp16-standard": sf.policies["fp16-standard"],
    "fp16-master": sf.policies["fp16-master"],
    "every role its own format": sf.Policy(
        compute=sf.BF16,
        compute_gradients=sf.E5M2,
        weights=sf.Format(8, 12),
        activations=sf.FP16,
        activation_gradients=sf.Format(8, 9),
        weight_gradients=sf.Format(8, 11),
        optimizer_state=sf.Format(8, 10),
        accumulate=sf.Format(8, 14),
    ),
}


@pytest.mark.parametrize("name", POLICIES)
def test_steps_equal_a_scalar_computation_bit_for_bit(name):
    policy = POLICIES[name]
    rng = np.random.default_rng(11)
    x, y = rng.standard_normal((5, 3)), rng.standard_normal(5)
    model = sf.nn.Linear(3, 1, rng=4)
    weight, bias = model.weight.data[0].tolist(), float(model.bias.data[0])
    optimizer = sf.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=DECAY)
    state = [{"m": None, "c": None} for _ in range(4)]
    with sf.simulate(policy):
        for _ in range(3):
            optimizer.zero_grad()
            loss = sf.nn.mse_loss(model(x), y[:, np.newaxis])
            loss.backward()
            gradients = model.weight.grad.copy(), model.bias.grad.copy()
            optimizer.step()
            want = scalar_step(x, y, weight, bias, state, policy.recipe(), policy.update)
            assert_bits([loss.item()], [want[0]])
            assert_bits(gradients[0][0], want[1])
            assert_bits(gradients[1], [want[2]])
            weight, bias = want[3], want[4]
            assert_bits(model.weight.data[0], weight)
            assert_bits(model.bias.data, [bias])


@pytest.mark.parametrize("policy, mode", [
    (sf.Policy(compute=sf.BF16, update=sf.stochastic(bits=4)), sf.stochastic(bits=4)),
    (sf.Policy(compute=sf.BF16, update=sf.stochastic(3, "A")), sf.stochastic(3, "A")),
    (sf.Policy(compute=sf.BF16, update="stochastic", rounding=sf.stochastic(bits=2)), sf.stochastic(bits=2)),
    (sf.Policy(compute=sf.BF16, update="stochastic", rounding=sf.toward_zero), sf.stochastic()),
    (sf.Policy(compute=sf.BF16).override("w", update=sf.stochastic(bits=6)), sf.stochastic(bits=6)),
], ids=str)  # fmt: skip
def test_a_stochastic_update_draws_as_many_bits_as_the_policy_says(policy, mode):
    w = sf.Parameter(sf.round(np.random.default_rng(0).standard_normal(500).astype(np.float32), sf.BF16))
    w.name, w.grad = "w", sf.round(np.random.default_rng(1).standard_normal(500).astype(np.float32), sf.BF16)
    before = w.data.copy()
    with sf.simulate(policy, seed=5):
        sf.optim.SGD([w], lr=2.0**-10).step()  # the product is exact, and draws nothing that matters
    stream = sf.BitStream(
        int.from_bytes(blake2b(b'[5, "w", "update", "update", null]', digest_size=8).digest(), "little")
    )
    assert_bits(w.data, sf.add(before, w.grad * np.float32(-(2.0**-10)), sf.BF16, mode, stream=stream))
    assert sf.Policy.from_dict(policy.to_dict()) == policy and eval(repr(policy), vars(sf)) == policy
