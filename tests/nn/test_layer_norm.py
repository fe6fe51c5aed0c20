"""LayerNorm."""

import numpy as np

import simfloat as sf
from tests.bits import assert_bits

RNG = np.random.default_rng(8)


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


def test_it_prints_as_the_call_that_makes_it():
    assert repr(sf.nn.LayerNorm(4, bias=False)).startswith("LayerNorm((4,), eps=1e-05, bias=False)")
