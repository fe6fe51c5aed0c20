"""The experiment on FP8 formats: the count of lost gradients, and precision."""

import numpy as np
import pytest

import simfloat as sf
from experiments.fp8_hybrid.measurements import lost_gradients, measure_precision
from experiments.fp8_hybrid.policies import HYBRID, VARIANTS


def test_precision_is_what_the_formats_say():
    bits = measure_precision(seed=0, samples=20_000)["bits"]
    assert bits == pytest.approx({"E4M3": sf.E4M3.precision, "E5M2": sf.E5M2.precision}, abs=0.02)


@pytest.mark.parametrize("size, lost", [(2.0**-10, 1.0), (2.0**-10 * 1.01, 0.0), (0.0, 0.0)])
def test_a_gradient_is_lost_that_is_not_zero_and_becomes_zero_as_an_operand(size, lost):
    x, w = sf.Tensor(np.ones((1, 1))), sf.Tensor(np.ones((1, 1)), requires_grad=True)
    recorder = sf.Recorder()
    with sf.simulate(sf.Policy(compute=sf.E4M3, weights=sf.FP32, activations=sf.FP32), observer=recorder):
        (x @ w).backward(np.full((1, 1), size, np.float32))
    assert lost_gradients(recorder) == lost


def test_nothing_is_lost_where_nothing_is_rounded():
    assert lost_gradients(sf.Recorder()) == 0.0


def test_the_hybrid_is_the_preset():
    preset, own = sf.policies["fp8-hybrid"].recipe(), HYBRID.policy.recipe()
    assert vars(preset) == vars(own) and len({variant.key for variant in VARIANTS}) == len(VARIANTS) == 10
