"""Layers of this package and of PyTorch have the same results and gradients, bit for bit."""

import numpy as np
import pytest
import torch

import simfloat as sf
from tests.torch.compared import assert_layers_alike

RNG = np.random.default_rng(21)
EDGES = np.array([0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 6.0, 25.0, -25.0, 100.0, -100.0, 2.0**-20], np.float32)
ROWS = np.concatenate([2 * RNG.standard_normal(50).astype(np.float32), EDGES]).reshape(4, 4, 4)
IMAGES = RNG.standard_normal((2, 4, 5, 6)).astype(np.float32)

POLICIES = {
    **{
        name: sf.policies[name]
        for name in (
            "fp32", "bf16-standard", "fp16-standard", "amp-bf16", "apex-o2", "fp8-hybrid", "fp8-delayed", "nvfp4",
        )
    },
    "roles": sf.Policy(
        compute=sf.E4M3, activations=sf.FP16, activation_gradients=sf.E5M2, weight_gradients=sf.BF16, weights=sf.FP32
    ),
    "fused": sf.Policy(compute=sf.BF16, fused=True),
    "widest": sf.Policy(compute=sf.BF16, activations="widest"),
    "toward zero": sf.Policy(compute=sf.BF16, rounding=sf.toward_zero),
}  # fmt: skip

#: By name: the layer in either library, and what it gets.
LAYERS = {
    "SiLU": (lambda nn: nn.SiLU(), ROWS),
    "Sigmoid": (lambda nn: nn.Sigmoid(), ROWS),
    "Tanh": (lambda nn: nn.Tanh(), ROWS),
    "LogSoftmax": (lambda nn: nn.LogSoftmax(-1), ROWS),
    "Mish": (lambda nn: nn.Mish(), ROWS),
    "Softplus": (lambda nn: nn.Softplus(), ROWS),
    "Softplus, steep": (lambda nn: nn.Softplus(3.0, 5.0), ROWS),
    "LogSigmoid": (lambda nn: nn.LogSigmoid(), ROWS),
    "ELU": (lambda nn: nn.ELU(), ROWS),
    "ELU, less": (lambda nn: nn.ELU(0.3), ROWS),
    "CELU": (lambda nn: nn.CELU(1.5), ROWS),
    "SELU": (lambda nn: nn.SELU(), ROWS),
    "GLU": (lambda nn: nn.GLU(1), ROWS),
    "PReLU": (lambda nn: nn.PReLU(), ROWS),
    "PReLU of channels": (lambda nn: nn.PReLU(4, 0.1), ROWS),
    "Hardtanh": (lambda nn: nn.Hardtanh(), ROWS),
    "ReLU6": (lambda nn: nn.ReLU6(), ROWS),
    "Hardsigmoid": (lambda nn: nn.Hardsigmoid(), ROWS),
    "Hardswish": (lambda nn: nn.Hardswish(), ROWS),
    "Softshrink": (lambda nn: nn.Softshrink(0.7), ROWS),
    "Hardshrink": (lambda nn: nn.Hardshrink(0.7), ROWS),
    "GroupNorm": (lambda nn: nn.GroupNorm(2, 4), IMAGES),
    "GroupNorm, plain": (lambda nn: nn.GroupNorm(4, 4, 1e-3, affine=False), IMAGES),
    "InstanceNorm1d": (lambda nn: nn.InstanceNorm1d(4), ROWS),
    "InstanceNorm2d": (lambda nn: nn.InstanceNorm2d(4, affine=True), IMAGES),
    "Conv1d": (lambda nn: nn.Conv1d(4, 6, 2, stride=2, padding=1, dilation=2, groups=2), ROWS),
    "Conv1d, same": (lambda nn: nn.Conv1d(4, 2, 3, padding="same", bias=False), ROWS),
    "ConvTranspose1d": (
        lambda nn: nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2, dilation=2),
        ROWS,
    ),
    "MaxPool1d": (lambda nn: nn.MaxPool1d(3, 2, 1), ROWS),
    "MaxPool1d, ceil": (lambda nn: nn.MaxPool1d(2, stride=1, dilation=2, ceil_mode=True), ROWS),
    "AvgPool1d": (lambda nn: nn.AvgPool1d(3, 2, 1, count_include_pad=False), ROWS),
    "AdaptiveAvgPool1d": (lambda nn: nn.AdaptiveAvgPool1d(2), ROWS),
    "Unflatten": (lambda nn: nn.Unflatten(1, (2, -1)), ROWS),
    "Identity": (lambda nn: nn.Identity(54, unused=True), ROWS),
    "Dropout2d, evaluated": (lambda nn: nn.Dropout2d(0.5).eval(), IMAGES),
    "RMSNorm": (lambda nn: nn.RMSNorm(6), IMAGES),
    "RMSNorm of two axes": (lambda nn: nn.RMSNorm((5, 6), 1e-3), IMAGES),
    "RMSNorm, plain": (lambda nn: nn.RMSNorm(6, elementwise_affine=False), IMAGES),
}

OPTIONS = {"padding": 2, "stride": 2, "dilation": 2, "groups": 2}

#: The bias's gradient adds what came to the addition, and the product's gradients read what it was rounded to.
NARROW_ADDITIONS = sf.Policy(compute=sf.FP32, reduce=sf.BF16).override(operation="add", activations=sf.FP16)

#: Sums in an order and a format that bits depend on.
SUMS = sf.Policy(compute=sf.FP32, activation_gradients=sf.BF16, reduce=sf.pairwise(sf.BF16))

EVERY = {**{name: sf.policies[name] for name in sf.policies}, "sums": SUMS}

#: Layers of many sums, under every preset: their names, arguments, and the shape of images.
POOLS = [
    ("MaxPool1d", (3, 2, 1), (2, 3, 9)),
    ("MaxPool2d", (3, 2, 1), (2, 3, 7, 6)),
    ("MaxPool3d", (3, 2, 1), (2, 3, 5, 6, 7)),
    ("MaxPool3d", ((1, 2, 3), (2, 1, 1), 0, (1, 2, 1), False, True), (2, 3, 4, 6, 7)),
    ("AvgPool1d", (3, 2, 1), (2, 3, 9)),
    ("AvgPool2d", ((3, 2), 2, 1, True, False), (2, 3, 7, 6)),
    ("AvgPool2d", (3, 1, 1), (2, 3, 7, 6)),
    ("AvgPool2d", (2, None, 0, False, True, 3), (2, 3, 7, 6)),
    ("AvgPool3d", (3, 2, 1, True, False), (2, 3, 5, 6, 7)),
    ("AvgPool3d", (2,), (2, 3, 4, 6, 2)),
    ("AvgPool3d", (2, 1, 0, False, True, 3), (3, 5, 6, 7)),
    ("AdaptiveAvgPool3d", ((2, 3, 4),), (2, 3, 5, 6, 7)),
    ("AdaptiveAvgPool3d", ((None, 1, 7),), (2, 3, 5, 6, 7)),
    ("AdaptiveAvgPool3d", (1,), (2, 3, 5, 6, 7)),
    ("AdaptiveMaxPool1d", (4,), (2, 3, 9)),
    ("AdaptiveMaxPool2d", ((3, None),), (2, 3, 7, 6)),
    ("AdaptiveMaxPool2d", (9,), (2, 3, 7, 6)),
    ("AdaptiveMaxPool3d", ((2, 3, 4),), (2, 3, 5, 6, 7)),
    ("AdaptiveMaxPool3d", (2,), (3, 5, 6, 7)),
]

CONVOLUTIONS = [
    (f"{kind}{axes}d", (2, 4, *shape))
    for kind in ("Conv", "ConvTranspose")
    for axes, shape in ((2, (7, 6)), (3, (4, 5, 6)))
]


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_has_the_same_bits_under_both_front_ends(name):
    # The gradient of the slopes is two operations in PyTorch, and the first one also rounds.
    left_out = "fused" if name == "PReLU of channels" else ""
    assert_layers_alike({key: value for key, value in POLICIES.items() if key != left_out}, *LAYERS[name])


@pytest.mark.parametrize("name, shape", CONVOLUTIONS)
def test_a_convolution_has_the_same_bits_under_both_front_ends_and_every_preset(name, shape):
    x = np.random.default_rng(1).normal(size=shape)
    policies = {**EVERY, "narrow additions": NARROW_ADDITIONS}
    assert_layers_alike(policies, lambda nn: getattr(nn, name)(4, 6, 3, **OPTIONS), x)


@pytest.mark.parametrize("name, arguments, shape", POOLS, ids=str)
def test_pooling_has_the_same_bits_under_both_front_ends_and_every_preset(name, arguments, shape):
    # CUDA kernels multiply the gradient of a mean by a reciprocal, which rounds twice.
    policies = {key: value for key, value in EVERY.items() if key != "as-written-cuda" or arguments != (1,)}
    x = np.random.default_rng(4).normal(size=shape)
    assert_layers_alike(policies, lambda nn: getattr(nn, name)(*arguments), x)


@pytest.mark.parametrize("scale", [None, sf.per_tensor()])
def test_numbers_of_a_volume_are_rounded_once_and_scaled_as_a_whole(scale):
    policy = sf.Policy(
        compute=sf.cast(sf.E4M3, sf.stochastic(9), scale=scale),
        weights=sf.FP32,
        activations=sf.FP32,
        accumulate=sf.FP32,
    )
    x, results, recorded = torch.randn(2, 1, 6, 5, generator=torch.Generator().manual_seed(1)), [], []
    x[:, :, 5] = 100.0  # which no kernel meets
    for kind, shape in (("Conv2d", x.shape), ("Conv3d", (*x.shape, 1))):
        layer, recorder = getattr(torch.nn, kind)(1, 1, (3, *[1] * (len(shape) - 3)), bias=False), sf.Recorder()
        layer.stride = (2, *[1] * (len(shape) - 3))
        torch.nn.init.ones_(layer.weight)
        image = x.reshape(shape).requires_grad_()
        with sf.torch.simulate(layer, policy, 3, observer=recorder):
            layer(image).square().sum().backward()
        results.append((image.grad.ravel(), layer.weight.grad.ravel()))
        recorded.append(recorder.table())
    for two, three in zip(*results, strict=True):
        np.testing.assert_array_equal(two, three)
    assert str(recorded[0]) == str(recorded[1])
