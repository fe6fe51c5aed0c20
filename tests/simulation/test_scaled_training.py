"""Training under scaled casts: every contraction scales the unrounded values along its own k."""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits

FINE, SQUARE = sf.block(4, sf.FP32), sf.block((4, 4), sf.FP32)
DEEP = sf.Policy(
    compute=sf.scaled(sf.E4M3, FINE), compute_weights=sf.scaled(sf.E4M3, SQUARE),
    compute_gradients=sf.scaled(sf.E5M2, FINE), weights=sf.FP32, activations=sf.BF16, accumulate=sf.FP32,
)  # fmt: skip
MICRO = sf.Policy(
    compute=sf.scaled(sf.E4M3, sf.block(32, sf.E8M0)), weights=sf.FP32, activations=sf.BF16,
    accumulate=sf.tensor_core("blackwell", scales=(32, sf.E8M0)),
)  # fmt: skip
POLICIES = pytest.mark.parametrize("policy", [DEEP, MICRO], ids=["squares", "microscaling"])


@POLICIES
@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolutions_three_products_scale_along_their_own_k(policy, groups, rng):
    x, g = rng.standard_normal((2, 4, 5, 4)) * 30, rng.standard_normal((2, 6, 3, 2)) * 1e-4
    layer = sf.nn.Conv2d(4, 6, 3, stride=2, padding=(1, 1), groups=groups, bias=False, rng=1)
    tensor = sf.Tensor(x, requires_grad=True)
    with sf.simulate(policy):
        y = layer(tensor)
        y.backward(g)
    recipe, w = policy.recipe(), layer.weight.data
    forward, weights, gradients = recipe.compute, recipe.compute_weights, recipe.compute_gradients
    options = dict(accumulate=policy.accumulate, output=sf.BF16)
    assert_bits(y.data, sf.conv2d(x, w, stride=2, padding=1, groups=groups, inputs=(forward, weights), **options))
    # The gradient of an image: of gradients spread by the stride, with zeros around, and of mirrored kernels.
    spread = np.zeros((2, 6, 7, 6))
    spread[:, :, 1:6:2, 1:4:2] = g
    turned = w.reshape(groups, 6 // groups, 4 // groups, 3, 3).swapaxes(1, 2).reshape(4, 6 // groups, 3, 3)
    want = sf.conv2d(spread, turned[:, :, ::-1, ::-1], groups=groups, inputs=(gradients, weights), **options)
    assert_bits(tensor.grad, want)
    # The gradient of a kernel: over images and pixels of the result.
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    patches = windows[:, :, ::2, ::2].transpose(0, 2, 3, 1, 4, 5)
    for group in range(groups):
        outputs, channels = (slice(group * n // groups, (group + 1) * n // groups) for n in (6, 4))
        left = g[:, outputs].transpose(1, 0, 2, 3).reshape(6 // groups, 12)
        right = patches[:, :, :, channels].reshape(12, -1)
        want = sf.matmul(left, right, inputs=(gradients, forward), **options)
        assert_bits(layer.weight.grad[outputs], want.reshape(6 // groups, 4 // groups, 3, 3))
