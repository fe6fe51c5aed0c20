"""Compare whole steps of a classifier, forward, backward and update, with a computation by the definition.

The model is an MLP with a hidden layer, cross-entropy, and SGD with momentum. The computation uses no tensors or
kernels: sums, products and quotients are fractions, exponentials and logarithms are decimals of 60 digits. Each result
is rounded by the definition, in the order of the operations.
"""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits
from tests.roles import EACH_ITS_OWN
from tests.rounded import Rounded

LR, MOMENTUM = 0.0625, 0.5

POLICIES = {
    **{name: sf.policies[name] for name in ("fp32", "bf16-standard", "bf16-kahan", "fp16-standard", "fp16-master")},
    "every role its own format": EACH_ITS_OWN,
    "toward zero": sf.Policy(compute=sf.BF16, weights=sf.FP32, rounding=sf.toward_zero),
}


def loss_and_slope(x, labels, forward, back, reduce):
    """Cross-entropy of logits, and its gradient g - exp(y) * sum(g), where y is the log_softmax."""
    count, one_hot = float(len(x)), np.eye(x.shape[1])[labels]
    below = forward.sub(x, x.max(1, keepdims=True))
    powers = forward.exp(below)
    total = forward.sum(powers, reduce, 1)
    logarithms = forward.sub(below, forward.log(total))
    picked = logarithms[range(len(x)), labels]
    loss = forward.div(forward.sum(forward.to(-picked), reduce), count)

    g = back.div(-1.0, count) * one_hot
    return loss, back.sub(g, back.mul(back.exp(logarithms), back.sum(g, reduce, 1)))


def step(x, labels, parameters, state, recipe):
    """The loss, the gradients and the new parameters."""
    mode, by, by_back, reduce = (
        recipe.rounding, recipe.accumulate.format, recipe.accumulate_gradients.format, recipe.reduce,
    )  # fmt: skip
    compute, compute_gradients = Rounded(recipe.compute), Rounded(recipe.compute_gradients)
    forward, back = Rounded(recipe.activations, mode), Rounded(recipe.activation_gradients, mode)
    to_weight = Rounded(recipe.weight_gradients, mode)
    w1, b1, w2, b2 = parameters

    before = forward.add(forward.matmul(x, w1.T, compute, by), b1)
    hidden = np.where(before > 0, before, 0.0)
    logits = forward.add(forward.matmul(hidden, w2.T, compute, by), b2)
    loss, g = loss_and_slope(logits, labels, forward, back, reduce.format)

    w2_slope = to_weight.product(compute_gradients.to(g).T, compute.to(hidden), by_back)
    through = back.product(compute_gradients.to(g), compute.to(w2), by_back)
    g1 = np.where(before > 0, through, 0.0)
    w1_slope = to_weight.product(compute_gradients.to(g1).T, compute.to(x), by_back)
    b1_slope, b2_slope = (to_weight.sum(rows, reduce.format, 0)[0] for rows in (g1, g))
    slopes = w1_slope, b1_slope, w2_slope, b2_slope
    return loss, slopes, [updated(*each, recipe) for each in zip(parameters, slopes, state, strict=True)]


def updated(w, slope, state, recipe):
    """The parameter after SGD with momentum, nearest or with Kahan's compensation."""
    store, moment, last = (
        Rounded(recipe.weights, recipe.rounding),
        Rounded(recipe.optimizer_state, recipe.rounding),
        Rounded(recipe.weights),
    )
    m = moment.add(store.mul(MOMENTUM, state["m"]), slope) if "m" in state else moment.to(slope)
    u = store.mul(-LR, m)
    if recipe.update == "kahan" and "lost" in state:
        u = store.sub(u, state["lost"])
    new = last.add(w, u)
    state |= {"m": m, "lost": store.sub(store.sub(new, w), u)}
    return new


@pytest.mark.parametrize("name", POLICIES)
def test_steps_of_a_classifier_equal_a_computation_by_the_definition_bit_for_bit(name):
    policy, rng = POLICIES[name], np.random.default_rng(2)
    x, labels = rng.standard_normal((4, 3)) * 2.0 ** rng.integers(-2, 3, (4, 3)), np.array([2, 0, 1, 2])
    model = sf.nn.MLP([3, 4, 3], rng=7)
    optimizer = sf.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    weights, state = Rounded(policy.recipe().weights), [{} for _ in range(4)]
    parameters = [weights.to(parameter.data) for parameter in model.parameters()]
    with sf.simulate(policy):
        for _ in range(3):
            optimizer.zero_grad()
            loss = sf.nn.cross_entropy(model(x), labels)
            loss.backward()
            optimizer.step()
            want, slopes, parameters = step(x, labels, parameters, state, policy.recipe())
            assert_bits(loss.data, want)
            for parameter, slope, value in zip(model.parameters(), slopes, parameters, strict=True):
                assert_bits(parameter.grad, slope)
                assert_bits(parameter.data, value)
