"""LayerNorm."""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits
from tests.nn.against_torch import compare

RNG = np.random.default_rng(8)
X = RNG.standard_normal((3, 4, 5))


@pytest.mark.parametrize("shape, options", [
    (5, {}), ((4, 5), {"eps": 0.1}), ([5], {"bias": False}), (5, {"elementwise_affine": False}),
])  # fmt: skip
def test_layer_norm_equals_torchs(shape, options):
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    theirs = torch.nn.LayerNorm(shape, **options)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter)
    compare(sf.nn.LayerNorm(shape, **options), theirs, X)


def scalar_norm(row, weight, bias, eps, format):
    """The steps on a row of numbers, each rounded to the format, sums in FP32."""

    def mean(numbers):
        return float(sf.divide(sf.sum(numbers, accumulate=sf.FP32, output=format), len(numbers), format))

    average = mean(row)
    below = [float(sf.subtract(x, average, format)) for x in row]
    variance = mean([float(sf.multiply(d, d, format)) for d in below])
    scale = float(sf.rsqrt(sf.add(variance, eps, format), format))
    scaled = [float(sf.multiply(d, scale, format)) for d in below]
    return [float(sf.add(sf.multiply(s, w, format), b, format)) for s, w, b in zip(scaled, weight, bias, strict=True)]


def test_every_step_is_rounded_and_a_fused_one_once():
    layer = sf.nn.LayerNorm(6)
    layer.weight.data[:], layer.bias.data[:] = sf.round(RNG.standard_normal((2, 6)), sf.BF16)
    x = sf.round(RNG.standard_normal((7, 6)) * 3 + 1, sf.BF16)
    policy = sf.policies["bf16-standard"]
    with sf.simulate(policy):
        stepwise = layer(x)
    with sf.simulate(policy.override(operation="layer_norm", fused=True)):
        fused = layer(x)
    w, b = layer.weight.data, layer.bias.data
    assert stepwise.format == fused.format == sf.BF16
    for row, step, once in zip(x, stepwise.data, fused.data, strict=True):
        assert_bits(step, scalar_norm(row, w, b, 1e-5, sf.BF16))
        assert_bits(once, sf.round(scalar_norm(row, w, b, 1e-5, sf.FP32), sf.BF16))


def test_parameters_of_a_fused_layer_get_gradients_in_their_role():
    layer = sf.nn.LayerNorm(6)
    policy = sf.Policy(compute=sf.BF16, weight_gradients=sf.E5M2, fused=True)
    wide = sf.nn.LayerNorm(6)
    x, g = sf.round(RNG.standard_normal((2, 7, 6)), sf.BF16)
    with sf.simulate(policy):
        layer(x).backward(g)
    with sf.simulate("fp32"):
        wide(x).backward(g)
    assert_bits(layer.weight.grad, sf.round(wide.weight.grad, sf.E5M2))
    assert_bits(layer.bias.grad, sf.round(wide.bias.grad, sf.E5M2))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: sf.nn.LayerNorm(0), "normalized_shape must be a positive integer, got 0"),
        (lambda: sf.nn.LayerNorm(()), "normalized_shape must be a positive integer, got None"),
        (lambda: sf.nn.LayerNorm(3, eps=-1), "eps must be a finite number from 0.0, got -1"),
        (lambda: sf.nn.LayerNorm(3, eps=np.inf), "eps must be a finite number from 0.0, got inf"),
        (lambda: sf.nn.LayerNorm((2, 3))(np.ones((3, 2))), r"A LayerNorm of \(2, 3\) takes .* got \(3, 2\)"),
        (lambda: sf.nn.LayerNorm((2, 3))(np.ones(3)), r"takes .* got \(3,\)"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message), sf.simulate("fp32"):
        call()


def test_it_prints_as_the_call_that_makes_it():
    assert repr(sf.nn.LayerNorm(4, bias=False)).startswith("LayerNorm((4,), eps=1e-05, bias=False)")
