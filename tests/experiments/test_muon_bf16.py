"""Muon's iteration in narrow formats, compared with float64 and with the library's Muon."""

import numpy as np
import pytest

import simfloat as sf
from experiments.muon_bf16.iterations import COEFFICIENTS, PRECISIONS, draw, in_float64, iterate
from experiments.muon_bf16.problems import RoundedMuon


def test_the_matrix_next_to_one_is_that_of_its_polar_decomposition_to_which_the_iteration_converges():
    g, orthogonal = draw(3, 8)
    left, values, right = np.linalg.svd(g)
    assert np.allclose(left @ right, orthogonal) and values[0] / values[-1] == pytest.approx(100)
    assert np.allclose(in_float64(g, 30, COEFFICIENTS["converging"]), orthogonal)


def test_in_fp64_the_iteration_is_float64s_but_for_its_last_bits():
    g, _ = draw(4, 8)
    fp64 = PRECISIONS["FP32"]._replace(operands=sf.FP64, results=sf.FP64)
    found, expected = iterate(g, 1, COEFFICIENTS["Muon's"], fp64), in_float64(g, 1, COEFFICIENTS["Muon's"])
    assert np.abs(found - expected).max() < 2**-22, "sums are in FP32"


@pytest.mark.parametrize("shape", [(4, 6), (6, 4)])
def test_an_update_is_that_of_the_librarys_muon(shape):
    g = np.random.default_rng(0).standard_normal(shape)
    weights = []
    for make in (
        lambda p: sf.optim.Muon(p, lr=0.5, weight_decay=0.0),
        lambda p: RoundedMuon(p, 0.5, PRECISIONS["FP32"]),
    ):
        weight = sf.Parameter(np.zeros(shape))
        optimizer = make([weight])
        with sf.simulate("fp32"):
            (weight * g).sum().backward()
            optimizer.step()
        weights.append(np.asarray(weight.data))
    scale = np.sqrt(max(1.0, shape[0] / shape[1]))  # the library's follows the shape
    np.testing.assert_allclose(weights[0], scale * weights[1], rtol=1e-4, atol=1e-5)
