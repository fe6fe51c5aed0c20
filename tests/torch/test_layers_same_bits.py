"""Layers of this package and of PyTorch have the same results and gradients, bit for bit."""

import numpy as np
import pytest
import torch

import simfloat as sf
from tests.bits import assert_bits

RNG = np.random.default_rng(21)
EDGES = np.array([0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 6.0, 25.0, -25.0, 100.0, -100.0, 2.0**-20], np.float32)
ROWS = np.concatenate([2 * RNG.standard_normal(50).astype(np.float32), EDGES]).reshape(4, 4, 4)
IMAGES = RNG.standard_normal((2, 4, 5, 6)).astype(np.float32)

POLICIES = {
    **{
        name: sf.policies[name]
        for name in (
            "fp32",
            "bf16-standard",
            "fp16-standard",
            "amp-bf16",
            "apex-o2",
            "fp8-hybrid",
            "fp8-delayed",
            "nvfp4",
        )
    },
    "roles": sf.Policy(
        compute=sf.E4M3, activations=sf.FP16, activation_gradients=sf.E5M2, weight_gradients=sf.BF16, weights=sf.FP32
    ),
    "fused": sf.Policy(compute=sf.BF16, fused=True),
    "widest": sf.Policy(compute=sf.BF16, activations="widest"),
    "toward zero": sf.Policy(compute=sf.BF16, rounding=sf.toward_zero),
}

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


def with_numbers(layer):
    """PyTorch's layer with parameters that differ."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.from_numpy(RNG.uniform(0.25, 1.5, parameter.shape).astype(np.float32)))
    return layer


def of_torch(layer, policy, x):
    t = torch.from_numpy(x.copy()).requires_grad_()
    with sf.torch.simulate(layer, policy, 3):
        y = layer(t * 1.0)
        (y * 1.5).sum().backward()
    return [y.detach().numpy(), t.grad.numpy(), *(p.grad.numpy() for p in layer.parameters())]


def of_ours(layer, policy, x):
    t = sf.Tensor(x.copy(), requires_grad=True)
    with sf.simulate(policy, 3):
        y = layer(t * 1.0)
        (y * 1.5).sum().backward()
    return [y.data, t.grad, *(p.grad for p in layer.parameters())]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_has_the_same_bits_under_both_front_ends(name, policy):
    make, x = LAYERS[name]
    theirs, ours = with_numbers(make(torch.nn)), make(sf.nn)
    assert ours.extra_repr() == "" or type(ours).__name__ == type(theirs).__name__
    ours.load_state_dict({key: value.numpy().copy() for key, value in theirs.state_dict().items()})
    found, wanted = of_ours(ours, POLICIES[policy], x), of_torch(theirs, POLICIES[policy], x)
    for got, want in zip(found, wanted, strict=True):
        assert_bits(got, want)
