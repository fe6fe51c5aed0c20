"""Loss scaling: its methods, and invalid uses."""

from collections import namedtuple

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits
from tests.optim.scalers import parameters


@pytest.mark.parametrize("policy, format", [
    ("fp16-standard", sf.FP32), ("bf16-stochastic", sf.FP32), ("fp64", sf.FP64),
    (sf.Policy(compute=sf.E4M3, rounding=sf.toward_zero.saturating()), sf.FP32),
])  # fmt: skip
def test_the_loss_is_scaled_in_fp32_or_wider_and_its_gradient_is_the_scale_itself(policy, format):
    loss = sf.Tensor(np.array([0.3]), requires_grad=True)
    scaler = sf.optim.StaticLossScale(2.0**20 + 2)
    with sf.simulate(policy):
        rounded = loss * 1.0
        got = scaler.scale(rounded)
        got.backward()
    assert got.format == format
    assert_bits(got.data, sf.multiply(rounded.data, 2.0**20 + 2, format))
    if policy == "fp64":
        assert loss.grad == 2.0**20 + 2
    want = sf.Tensor([1.0], requires_grad=True)
    with sf.simulate(policy):
        scaler.scale(want).backward()
    assert_bits(want.grad, np.array([2.0**20 + 2]))


def test_a_scaled_loss_beyond_fp32_is_infinite_and_observed():
    recorder = sf.Recorder()
    with sf.simulate("fp16-standard", observer=recorder):
        got = sf.optim.StaticLossScale(2.0**100).scale(sf.Tensor(np.float32([2.0**30])))
    assert np.isinf(got.data)
    assert recorder.counts(phase="forward")["overflow"] == 1
    assert "scale" in str(recorder.table())


def test_several_losses_are_scaled_at_once():
    scaler, loss = sf.optim.StaticLossScale(8.0), sf.Tensor([1.5])
    with sf.simulate("fp32"):
        a, (b, c) = scaler.scale((loss, [loss, loss]))
        named = scaler.scale(namedtuple("Named", "first second")(loss, loss))
    assert a.item() == b.item() == c.item() == named.first.item() == named.second.item() == 12.0
    with pytest.raises(ValueError, match="scale takes the loss, a Tensor or a list of them, got a float"):
        scaler.scale(1.0)


def test_gradients_are_unscaled_in_the_format_of_the_weights():
    policy = sf.Policy(compute=sf.E5M2, weights=sf.BF16)
    (p,) = parameters([1.0, 1.0, 1.0])
    p.grad = g = np.array([3.0, 2.0**-20, -57344.0])
    optimizer, scaler = sf.optim.SGD([p], 0.5), sf.optim.StaticLossScale(1000.0)
    with sf.simulate(policy):
        scaler.unscale_(optimizer)
    assert_bits(p.grad, sf.multiply(g, float(np.float32(1 / 1000)), sf.BF16))


def test_weights_wider_than_fp32_are_unscaled_by_the_reciprocal_in_double():
    (p,) = parameters([1.0])
    p.grad = np.array([1.0])
    with sf.simulate("fp64"):
        sf.optim.StaticLossScale(1000.0).unscale_(sf.optim.SGD([p], 0.5))
    assert p.grad == 1 / 1000


@pytest.mark.parametrize("weights", [sf.FP32, sf.E4M3, sf.E2M1], ids=str)
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_a_gradient_that_is_not_finite_stays_so_and_the_step_is_skipped(bad, weights):
    p, q = parameters([1.0, 1.0], [1.0])
    p.grad, q.grad = np.array([bad, 4.0]), np.array([4.0])
    optimizer, scaler = sf.optim.SGD([p, q], 0.5), sf.optim.StaticLossScale(2.0)
    with sf.simulate(sf.Policy(compute=sf.BF16, weights=weights)):
        scaler.unscale_(optimizer)
        assert scaler.is_skipping(optimizer)
        scaler.step(optimizer)
    assert_bits(p.grad, np.array([bad, 2.0]))
    assert q.grad == 2.0 and p.data.tolist() == [1.0, 1.0] and q.data == 1.0


def test_gradients_are_unscaled_all_or_none():
    p, q = parameters([1.0], [-1.0])
    p.grad, q.grad = np.array([4.0]), np.array([-4.0])
    q.name = "q"
    unsigned = sf.Format(5, 2, signed=False, special="finite")
    policy = sf.Policy(compute=sf.FP32).override("q", weights=unsigned)
    scaler, optimizer = sf.optim.StaticLossScale(2.0), sf.optim.SGD([p, q], 0.5)
    with pytest.raises(ValueError, match="q"), sf.simulate(policy):
        scaler.unscale_(optimizer)
    assert p.grad == 4.0 and q.grad == -4.0


def test_a_gradient_that_becomes_infinite_when_it_is_unscaled_is_not_finite():
    (p,) = parameters([1.0])
    p.grad = np.array([1e38])
    optimizer, scaler = sf.optim.SGD([p], 0.5), sf.optim.StaticLossScale(2.0**-20)
    with sf.simulate("fp32"):
        scaler.step(optimizer)
    assert p.data == 1.0


@pytest.mark.parametrize("verbs, message", [
    (["unscale_", "unscale_"], "unscale_ was already called for this optimizer since the last update"),
    (["step", "unscale_"], "step was already called for this optimizer since the last update"),
    (["step", "step"], "step was already called for this optimizer since the last update"),
    (["unscale_", "step", "step"], "step was already called for this optimizer since the last update"),
    (["update"], "update needs a step"),
    (["step", "update", "update"], "update needs a step"),
    (["forget", "step"], "step needs gradients; no parameter of the optimizer has one"),
])  # fmt: skip
def test_verbs_out_of_order_are_refused(verbs, message):
    (p,) = parameters([1.0])
    p.grad = np.ones(1)
    optimizer, scaler = sf.optim.SGD([p], 0.5), sf.optim.DynamicLossScale()
    calls = {
        "unscale_": lambda: scaler.unscale_(optimizer),
        "step": lambda: scaler.step(optimizer),
        "update": scaler.update,
        "forget": optimizer.zero_grad,
    }
    with sf.simulate("fp32"):
        for verb in verbs[:-1]:
            calls[verb]()
        with pytest.raises(ValueError, match=message):
            calls[verbs[-1]]()


def test_after_ctrl_c_in_a_step_the_next_ones_gradients_are_unscaled(monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    (p,) = parameters([1.0])
    optimizer, scaler = sf.optim.SGD([p], 0.5), sf.optim.StaticLossScale(4.0)
    with sf.simulate("fp32"):
        p.grad = np.float32([4.0])
        monkeypatch.setattr(optimizer, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            scaler.step(optimizer)
        monkeypatch.undo()
        p.grad = np.float32([4.0])  # the loop is begun again
        scaler.step(optimizer)
    assert p.data == 0.5


def test_update_takes_a_scale_too():
    scaler = sf.optim.StaticLossScale(2.0)
    scaler.update(64)
    assert scaler.get_scale() == 64.0


@pytest.mark.parametrize("call, message", [
    (lambda o: o.StaticLossScale(0), "scale must be a positive number of float32, at least 2\\*\\*-126, got 0"),
    (lambda o: o.StaticLossScale(1e39), "scale must be a positive number of float32"),
    (lambda o: o.StaticLossScale("8"), "scale must be a real number, got '8'"),
    (lambda o: o.DynamicLossScale(np.inf), "init_scale must be a finite number"),
    (lambda o: o.DynamicLossScale(growth_factor=1.0), "growth_factor must be greater than 1, got 1.0"),
    (lambda o: o.DynamicLossScale(backoff_factor=1.0), "backoff_factor must lie between 0 and 1, got 1.0"),
    (lambda o: o.DynamicLossScale(growth_interval=0), "growth_interval must be an integer of at least 1, got 0"),
    (lambda o: o.DynamicLossScale(growth_interval=2.5), "growth_interval must be an integer of at least 1, got 2.5"),
    (lambda o: o.DynamicLossScale(hysteresis=0), "hysteresis must be an integer of at least 1"),
    (lambda o: o.DynamicLossScale(max_scale=2.0), "init_scale must lie between min_scale and max_scale"),
    (lambda o: o.LogNormalLossScale(beta1=1.0), "beta1 must be less than 1"),
    (lambda o: o.LogNormalLossScale(min_scale=2.0), "S starts at 1, between min_scale and max_scale"),
    (lambda o: o.StaticLossScale(2.0).unscale_([]), "takes an optimizer of simfloat.optim, got a list"),
    (lambda o: o.StaticLossScale(2.0).update(np.nan), "new_scale must be a finite number"),
])  # fmt: skip
def test_invalid_scales_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(sf.optim)
