"""Kernel orders: probabilities that are equal do not diverge, and kernels add the same products in other orders."""

import numpy as np
import pytest

import simfloat as sf
from experiments.kernel_orders.findings import findings
from experiments.kernel_orders.jobs import DEPTHS, difference
from experiments.kernel_orders.kernels import FORMS, REFERENCE, orders, policies, units
from simfloat.studies.verdicts import NOT_REPRODUCED, REPRODUCED


def test_the_divergence_is_that_of_kullback_and_leibler_and_greedy_letters_are_compared():
    p, q = np.array([[0.5, 0.25, 0.25], [0.2, 0.3, 0.5]]), np.array([[0.25, 0.5, 0.25], [0.2, 0.3, 0.5]])
    apart = difference(np.log(p), np.log(q))
    assert apart["divergence"] == pytest.approx((p * np.log(p / q)).sum() / 2, rel=1e-12) and apart["flipped"] == 0.5
    assert difference(np.log(p), np.log(p)) == {"divergence": 0.0, "flipped": 0.0}
    near = np.log(p) + np.array([1e-9, -2e-9, 0])
    assert difference(np.log(p), near)["divergence"] == pytest.approx(5.9e-19, rel=0.1), "no digits are cancelled"


def test_each_form_has_four_kernels_that_add_in_other_orders():
    a, b = np.random.default_rng(0).standard_normal((2, 20, 256))
    for sums, operands in ((orders(), sf.FP32), *((units(form), form) for form in (sf.FP16, sf.BF16))):
        products = [sf.matmul(a, b.T, inputs=operands, accumulate=order, output=sf.FP32) for order in sums.values()]
        assert len({product.tobytes() for product in products}) == 4 and list(sums)[0] == REFERENCE
    assert [len(policies(form)) for form in FORMS] == [4] * 4
    assert sf.tensor_core("blackwell", sf.BF16).unit == sf.tensor_core("hopper", sf.BF16).unit, "B200 is left out"


def artificial(divergences):
    """Results of ten seeds with these divergences of the forms."""
    return [
        {"seed": seed, "depth": depth, "rows": [
            {"form": form, "kernel": kernel, "divergence": depth * value * (1 + seed / 50), "flipped": seed % 2 / 1000}
            for form, value in divergences.items() for kernel in list(policies(form))[1:]
        ]}
        for seed in range(10) for depth in DEPTHS
    ]  # fmt: skip


def test_a_form_that_brings_kernels_together_is_told_from_one_that_does_not():
    near, far = {"BF16": 1e-6, "FP32 head": 1e-7, "FP16": 2.5e-7, "LayerCast": 1e-12}, dict.fromkeys(FORMS, 1e-6)
    assert [each.verdict for each in findings(artificial(near))] == [NOT_REPRODUCED] + 4 * [REPRODUCED]
    same = [each.verdict for each in findings(artificial(far))]
    assert same == 3 * [NOT_REPRODUCED] + 2 * [REPRODUCED]
