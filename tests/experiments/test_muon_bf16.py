"""Muon's iteration in narrow formats, compared with float64 and with the library's Muon; artificial results."""

import numpy as np
import pytest

import simfloat as sf
from experiments.muon_bf16.findings import findings
from experiments.muon_bf16.iterations import COEFFICIENTS, PRECISIONS, STEPS, draw, in_float64, iterate
from experiments.muon_bf16.problems import RoundedMuon
from simfloat.studies.verdicts import EQUAL, NOT_REPRODUCED, REPRODUCED, WORSE


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


def made_up(bf16, training):
    """Results with this distance in BF16 for coefficients that converge, and these losses relative to FP32."""
    results = []
    for seed in range(10):
        noise = 1 + 0.0001 * (seed % 2 - 0.5)
        stops = {precision: 1e-6 if precision == "FP32" else bf16 for precision in PRECISIONS}
        rows = [
            {"size": size, "coefficients": name, "steps": steps, "precision": precision, "change": 0.01 * noise,
             "error": (0.2 if name == "Muon's" else stops[precision]) * noise ** (precision == "BF16")}
            for size in (8, 16) for name in COEFFICIENTS for steps in STEPS for precision in PRECISIONS
        ]  # fmt: skip
        results.append({"kind": "iterations", "seed": seed, "rows": rows})
        results += [
            {
                "kind": "training",
                "problem": "digits",
                "variant": name,
                "seed": seed,
                "loss": [training.get(name, 1.0) * noise ** (name != "FP32")],
            }
            for name in PRECISIONS
        ]
    return results


def test_the_claims_hold_where_bf16_is_as_near_and_trains_as_well_and_fail_for_runs_that_diverge():
    found = [finding.verdict for finding in findings(made_up(1e-2, {"E4M3 operands": np.nan}))]
    assert found == [EQUAL, REPRODUCED, REPRODUCED, REPRODUCED, EQUAL, EQUAL, WORSE]
    assert findings(made_up(1e-6, {}))[2].verdict == NOT_REPRODUCED
