"""Reported bugs of other libraries in updates and moments in 16 bits."""

from fractions import Fraction

import numpy as np
import pytest

import simfloat as sf
from tests.public_cases.oracle import BF16, rounded


def trained(optimizer, policy, gradient, steps=1, start=1.0, observer=None, **options):
    """A weight after some steps with the same gradient."""
    weight = sf.nn.Parameter(np.array([start]))
    update = optimizer([weight], **options)
    with sf.simulate(policy, seed=0, observer=observer):
        for _ in range(steps):
            update.zero_grad()
            (weight * gradient).sum().backward()
            update.step()
    return weight.data.item(), update


def test_adams_eps_is_zero_in_fp16_and_a_zero_gradient_is_nan():
    """Steps with zero gradients gave NaN. https://github.com/google-deepmind/optax/issues/1754"""
    assert np.isnan(trained(sf.optim.Adam, "fp16-standard", 0.0)[0])
    assert trained(sf.optim.Adam, "fp16-standard", 0.0, eps=2.0**-22)[0] == 1.0
    assert trained(sf.optim.Adam, "fp16-master", 0.0)[0] == 1.0


def test_a_hundred_updates_below_half_a_step_leave_a_bf16_weight_where_it_was():
    """Weights in bf16 did not move at a usual rate. https://github.com/workofart/ml-by-hand/pull/85"""
    options = {"gradient": 1.0, "steps": 100, "start": 2.0, "lr": 0.0017}
    assert trained(sf.optim.SGD, "bf16-standard", **options)[0] == 2.0
    moved = trained(sf.optim.SGD, "bf16-fp32-weights", **options)[0]
    assert abs(moved - 1.83) < 1e-3


def test_kahans_compensation_moves_a_bf16_weight_as_its_formula_says():
    """Small updates were lost in bfloat16 without it. https://github.com/tenstorrent/tt-metal/pull/15518"""
    lr, weight, rest = 2.0**-11, 1.0, 0.0
    for _ in range(50):
        update = rounded(-lr, BF16)
        y = rounded(Fraction(update) - Fraction(rest), BF16)
        total = rounded(Fraction(weight) + Fraction(y), BF16)
        rest = rounded(Fraction(rounded(Fraction(total) - Fraction(weight), BF16)) - Fraction(y), BF16)
        weight = total
    found, _ = trained(sf.optim.SGD, "bf16-kahan", 1.0, steps=50, lr=lr)
    assert found == weight < 0.98
    assert trained(sf.optim.SGD, "bf16-standard", 1.0, steps=50, lr=lr)[0] == 1.0


@pytest.mark.parametrize("beta", [0.999, 0.9999])
def test_a_moment_is_made_with_the_beta_that_was_asked_for(beta):
    """beta2 was cut to 0.99609375 in bfloat16 before use. https://github.com/tenstorrent/tt-metal/issues/55935"""
    _, adam = trained(sf.optim.Adam, "bf16-standard", 1.0, betas=(0.9, beta))
    (state,) = adam.state_dict()["state"].values()
    assert np.asarray(state["exp_avg_sq"]).item() == rounded(Fraction(1 - beta), BF16)


def test_weight_decay_below_half_a_step_is_counted_as_lost():
    """No weight decayed in bfloat16 with Adam. https://github.com/Nerogar/OneTrainer/issues/996"""
    recorder, options = sf.Recorder(), {"steps": 40, "lr": 1e-3, "weight_decay": 1e-2}
    assert trained(sf.optim.AdamW, "bf16-standard", 0.0, observer=recorder, **options)[0] == 1.0
    assert recorder.lost_updates() == 1.0
    assert abs(trained(sf.optim.AdamW, "bf16-fp32-weights", 0.0, **options)[0] - (1 - 1e-5) ** 40) < 1e-6
