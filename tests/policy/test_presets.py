"""Presets of narrow contractions follow their sources for operands, sums and everything else."""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits

RNG = np.random.default_rng(11)
X, G = RNG.standard_normal((3, 8)), RNG.standard_normal((3, 4))


def stepped(policy, times=1):
    """A linear layer's output and the gradients of its input and weight, after so many steps in one simulation."""
    layer, x = sf.nn.Linear(8, 4, bias=False, rng=2), sf.Tensor(sf.round(X, sf.BF16), requires_grad=True)
    simulation = sf.simulate(policy)
    for number in range(times):
        x.grad = layer.weight.grad = None
        with simulation:
            y = layer(x * 1.0 if number else x)
            y.backward(G)
    return y.data, x.grad, layer.weight


def scaled_product(a, b, a_format, b_format, accumulate, a_scale=None, b_scale=None):
    """The product of two operands that are scaled as wholes, computed in steps."""
    with np.errstate(all="ignore"):
        s, t = (
            float(np.float32(f.max) / np.abs(m).max().astype(np.float32)) if given is None else given
            for m, f, given in ((a, a_format, a_scale), (b, b_format, b_scale))
        )
    p = sf.multiply(a, s, a_format, sf.nearest_even.saturating())
    q = sf.multiply(b, t, b_format, sf.nearest_even.saturating())
    total = sf.matmul(p, q, accumulate=accumulate)
    return sf.divide(sf.divide(total, s, sf.FP64), t, sf.BF16)


@pytest.mark.parametrize("name, forward, backward", [
    ("fp8-hybrid", sf.sequential(sf.FP32), sf.sequential(sf.FP32)),
    ("fp8-hopper", sf.tensor_core("hopper", sf.E4M3), sf.tensor_core("hopper", (sf.E5M2, sf.E4M3))),
])  # fmt: skip
def test_fp8_contractions_are_e4m3_forward_and_take_gradients_in_e5m2(name, forward, backward):
    y, x_grad, weight = stepped(sf.policies[name])
    x, w = sf.round(X, sf.BF16), weight.data
    assert_bits(y, scaled_product(x, w.T, sf.E4M3, sf.E4M3, forward))
    assert_bits(x_grad, scaled_product(G, w, sf.E5M2, sf.E4M3, backward))
    assert_bits(weight.grad, scaled_product(G.T, x, sf.E5M2, sf.E4M3, backward))


def test_delayed_scaling_takes_its_scale_from_the_steps_before():
    policy = sf.policies["fp8-delayed"]
    w, x = stepped(policy)[2].data, sf.round(X, sf.BF16)
    assert_bits(stepped(policy)[0], scaled_product(x, w.T, sf.E4M3, sf.E4M3, sf.FP32, 1.0, 1.0))
    assert_bits(stepped(policy, 2)[0], scaled_product(x, w.T, sf.E4M3, sf.E4M3, sf.FP32))


@pytest.mark.parametrize("name", [name for name in sf.policies if name.startswith(("fp8", "mx", "nvfp4"))])
def test_narrow_presets_keep_the_rest_in_bf16_and_parameters_in_fp32(name):
    recipe = sf.policies[name].recipe()
    assert recipe.activations == recipe.activation_gradients == recipe.weight_gradients == sf.BF16
    assert recipe.weights == sf.FP32 and recipe.reduce == sf.sequential(sf.FP32)
    formats = (recipe.compute.format, recipe.compute_gradients.format)
    assert formats == {
        "fp8-hybrid": (sf.E4M3, sf.E5M2), "fp8-delayed": (sf.E4M3, sf.E5M2), "fp8-hopper": (sf.E4M3, sf.E5M2),
        "fp8-deepseek": (sf.E4M3, sf.E4M3), "mxfp8": (sf.E4M3, sf.E4M3), "mxfp4": (sf.E2M1, sf.E2M1),
        "nvfp4": (sf.E2M1, sf.E2M1),
    }[name]  # fmt: skip


@pytest.mark.parametrize("name", ["fp8-deepseek", "mxfp8", "mxfp4"])
def test_presets_of_blocks_scale_every_operand_along_k_of_its_product(name):
    policy = sf.policies[name]
    recipe = policy.recipe()
    y, x_grad, weight = stepped(policy)
    x, w, options = sf.round(X, sf.BF16), weight.data, dict(accumulate=policy.accumulate, output=sf.BF16)
    assert_bits(y, sf.matmul(x, w.T, inputs=(recipe.compute, recipe.compute_weights), **options))
    assert_bits(x_grad, sf.matmul(G, w, inputs=(recipe.compute_gradients, recipe.compute_weights), **options))
    assert_bits(weight.grad, sf.matmul(G.T, x, inputs=(recipe.compute_gradients, recipe.compute), **options))


def test_deepseeks_weights_are_scaled_in_squares_and_its_sums_promoted_every_128_products(rng):
    recipe = sf.policies["fp8-deepseek"].recipe()
    assert recipe.compute.scale == sf.block(128, sf.FP32)
    assert recipe.compute_weights.scale == sf.block((128, 128), sf.FP32)
    a, b = rng.standard_normal((2, 300)), rng.standard_normal((300, 3))
    total = np.zeros((2, 3))
    for first in range(0, 300, 128):
        x, y = a[:, first : first + 128], b[first : first + 128]
        s = np.float32(448) / np.abs(x).max(1, keepdims=True).astype(np.float32)
        t = np.float32(448) / np.float32(np.abs(y).max())
        q, r = sf.multiply(x, s, sf.E4M3), sf.multiply(y, t, sf.E4M3)
        part = sf.matmul(q, r, accumulate=sf.tensor_core("hopper", sf.E4M3))
        total = sf.add(total, sf.divide(part, s.astype(float) * t, sf.FP32), sf.FP32)
    got = sf.matmul(a, b, inputs=(recipe.compute, recipe.compute_weights), accumulate=recipe.accumulate)
    assert_bits(got, total)
