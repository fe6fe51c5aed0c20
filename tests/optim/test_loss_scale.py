"""Loss scaling: its methods, its rules, its states, and invalid uses."""

import copy
import json
import math
import pickle
from collections import namedtuple

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits
from tests.optim.scalers import parameters, scales


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


@pytest.mark.parametrize("policy", ["bf16-standard", "fp32"])
def test_a_scaled_loss_is_rounded_to_nearest_even_in_fp32(policy, rng):
    losses = rng.standard_normal(100).astype(np.float32)
    with sf.simulate(policy):
        got = sf.optim.StaticLossScale(1000.0).scale(sf.Tensor(losses))
    assert_bits(got.data, losses * np.float32(1000.0))


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


@pytest.mark.parametrize("make", [
    lambda: sf.optim.StaticLossScale(1024.0),
    lambda: sf.optim.DynamicLossScale(growth_interval=3, hysteresis=2),
    sf.optim.LogNormalLossScale,
])  # fmt: skip
def test_a_state_goes_through_json_and_continues_with_the_same_scales(make):
    largest = [np.inf, 1.5, 0.0, 3.0, 7.0, np.inf, np.inf, 2.0] * 3
    whole, first, second = make(), make(), make()
    expected = scales(whole, largest)
    assert scales(first, largest[:11]) == expected[:11]
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert scales(second, largest[11:]) == expected[11:]


def test_a_state_of_numpys_numbers_becomes_one_of_pythons():
    scaler = sf.optim.LogNormalLossScale()
    scales(scaler, [3.0, 5.0])
    other = sf.optim.LogNormalLossScale()
    other.load_state_dict({name: np.array(value)[()] for name, value in scaler.state_dict().items()})
    assert json.dumps(other.state_dict()) == json.dumps(scaler.state_dict())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda parts: pickle.loads(pickle.dumps(parts))])
def test_copies_of_a_scaler_in_the_middle_of_a_step_know_what_was_found(copied):
    scaler, optimizer = sf.optim.DynamicLossScale(8.0), sf.optim.SGD(parameters([1.0], [2.0]), lr=1.0)
    with sf.simulate("fp32"):
        for parameter, g in zip(optimizer.params, ([8.0], [np.inf]), strict=True):
            parameter.grad = np.float32(g)
        scaler.unscale_(optimizer)
        scaler, optimizer = copied((scaler, optimizer))
        assert optimizer.params[0].grad == 1 and scaler.is_skipping(optimizer)
        with pytest.raises(ValueError, match="unscale_ was already called for this optimizer since the last update"):
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    assert optimizer.params[0].data == 1 and scaler.get_scale() == 4


def test_a_state_that_does_not_fit_is_refused_and_nothing_of_it_taken():
    scaler = sf.optim.DynamicLossScale()
    before = scaler.state_dict()
    for state, message in [
        (sf.optim.StaticLossScale(2.0).state_dict(), "The state is not DynamicLossScale's: missing .'growth_factor'"),
        ({**before, "speed": 1}, r"unknown \['speed'\]"),
        ({**before, "scale": 8.0, "_growth_tracker": -1}, "_growth_tracker must be an integer of at least 0, got -1"),
        ({**before, "scale": np.nan}, "init_scale must be a finite number"),
        ([], "takes a result of DynamicLossScale.state_dict, got a list"),
    ]:
        with pytest.raises(ValueError, match=message):
            scaler.load_state_dict(state)
        assert scaler.state_dict() == before


@pytest.mark.parametrize("text", [
    "StaticLossScale(8.0)", "DynamicLossScale(65536.0)", "DynamicLossScale(4.0, growth_interval=3, hysteresis=2)",
    "LogNormalLossScale()", "LogNormalLossScale(overflow=65536.0)", "LayerwiseLossScale(1.0, max_factor=4.0)",
])  # fmt: skip
def test_a_scaler_prints_as_the_call_that_makes_it(text):
    assert repr(eval(f"sf.optim.{text}")) == text


class WithMine(sf.optim.DynamicLossScale):
    """A subclass with an entry of its own, which passes the initial scale on by position."""

    state_names = {**sf.optim.DynamicLossScale.state_names, "mine": False}

    def __init__(self, scale=4.0, *, mine=3, **options):
        super().__init__(scale, **options)
        self.mine = mine


def test_entries_of_a_subclass_are_loaded():
    loaded = WithMine()
    loaded.load_state_dict(WithMine(8.0, mine=7, growth_interval=5).state_dict())
    assert (loaded.get_scale(), loaded.mine, loaded.growth_interval) == (8.0, 7, 5)


@pytest.mark.parametrize("seed", range(2))
def test_the_dynamic_scale_takes_the_way_of_torchs_grad_scaler(seed):
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    random = np.random.default_rng(seed)
    options = dict(
        init_scale=2.0 ** random.integers(-20, 126),
        growth_factor=random.choice([2.0, 1.5, 3.7]),
        backoff_factor=random.choice([0.5, 0.7, 0.25]),
        growth_interval=int(random.integers(1, 4)),
    )
    ours, theirs = sf.optim.DynamicLossScale(**options), torch.amp.GradScaler("cpu", **options)
    ps = parameters([1.0, 2.0], [3.0])
    ts = [torch.tensor(p.data.copy(), requires_grad=True) for p in ps]
    first, second = sf.optim.SGD(ps[:1], 0.5), sf.optim.SGD(ps[1:], 0.5)
    theirs_first, theirs_second = torch.optim.SGD(ts[:1], 0.5), torch.optim.SGD(ts[1:], 0.5)
    theirs.scale(torch.ones(()))
    for _ in range(100):
        for p, t in zip(ps, ts, strict=True):
            g = np.float32(random.standard_normal(p.shape) * 1e-3 * ours.get_scale())
            g[..., 0] = random.choice([g[..., 0], np.inf, np.nan], p=[0.8, 0.1, 0.1])
            p.grad, t.grad = g.copy(), torch.tensor(g)
        with sf.simulate("fp32"):
            if random.random() < 0.5:
                ours.unscale_(first)
                theirs.unscale_(theirs_first)
            for mine, other in ((first, theirs_first), (second, theirs_second)):
                ours.step(mine)
                theirs.step(other)
        ours.update()
        theirs.update()
        assert ours.get_scale() == theirs.get_scale()
        for p, t in zip(ps, ts, strict=True):
            assert_bits(p.data, t.detach().numpy())
            assert_bits(p.grad, t.grad.numpy())
    state = theirs.state_dict()
    assert {name: ours.state_dict()[name] for name in state} == state
    ours.load_state_dict(state)


def test_a_growth_to_infinity_is_not_carried_out_and_a_scale_never_vanishes():
    assert scales(sf.optim.DynamicLossScale(2.0**127, growth_interval=1), [0.0, 0.0]) == [2.0**127] * 2
    assert scales(sf.optim.DynamicLossScale(2.0**-125), [np.inf] * 3) == [2.0**-126] * 3


def test_apexs_rule_has_a_largest_scale():
    scaler = sf.optim.DynamicLossScale.apex()
    assert scaler.get_scale() == 2.0**16
    scaler.growth_interval = 1
    assert scales(scaler, [0.0] * 10)[-3:] == [2.0**24] * 3


def test_megatrons_rule_starts_high_forgives_one_overflow_and_does_not_fall_below_one():
    scaler = sf.optim.DynamicLossScale.megatron()
    assert scaler.get_scale() == 2.0**32 and scaler.growth_interval == 1000
    assert scales(scaler, [np.inf] * 40) == [2.0**32, *(2.0**n for n in range(31, 0, -1)), *[1.0] * 8]


def test_hysteresis_forgives_the_first_overflows_since_a_clean_step():
    scaler = sf.optim.DynamicLossScale(16.0, growth_interval=2, hysteresis=2, min_scale=4.0)
    bad, good = np.inf, 1.0
    #       forgiven, halved, halved; restored, forgiven, count starts again, growth, forgiven, halved, and not below 4
    steps = [bad, bad, bad, good, bad, good, good, bad, bad, bad, bad]
    assert scales(scaler, steps) == [16, 8, 4, 4, 4, 4, 8, 8, 4, 4, 4]


def log_normal(largest, overflow=16.0):
    """The scales by the textbook formulas: averages corrected for their start, mean square less squared mean."""
    mean = square = center = 0.0
    t, scale, found = 0, 1.0, []
    for g in largest:
        if g:
            x, t = (math.log2(g) if math.isfinite(g) else overflow), t + 1
            mean, center = 0.99 * mean + 0.01 * x, 0.999 * center + 0.001 * x
            square = 0.999 * square + 0.001 * x * x
            m1, m2 = center / (1 - 0.999**t), square / (1 - 0.999**t)
            spread = mean / (1 - 0.99**t) + 3.09 * math.sqrt(max(m2 - m1 * m1, 0.0))
            scale = 2 ** min(max(16 - spread, 0), 14)
        found.append(scale)
    return found


def test_the_log_normal_scale_follows_the_largest_gradients():
    assert sf.optim.LogNormalLossScale().get_scale() == 1.0
    assert scales(sf.optim.LogNormalLossScale(), [2.0**5] * 3) == [2.0**11] * 3
    assert scales(sf.optim.LogNormalLossScale(), [1.0]) == [2.0**14]
    random = np.random.default_rng(2)
    largest = np.float32(2 ** random.normal(6, 2, 200)).tolist()
    largest[20], largest[30], largest[31] = math.inf, 0.0, math.nan
    got = scales(sf.optim.LogNormalLossScale(), largest)
    np.testing.assert_allclose(got, log_normal(largest), rtol=1e-6)
    assert all(s == np.float32(s) for s in got) and got[29] == got[30]


def test_the_references_quirk_holds_the_scale_at_one_for_thousands_of_steps():
    quirk = sf.optim.LogNormalLossScale(overflow=2.0**16)
    for _ in range(100):
        quirk.adapt(True, 2.0**5)
    assert quirk.get_scale() == 2.0**11
    quirk.adapt(False, math.inf)
    steps = 0
    while quirk.get_scale() == 1.0:
        quirk.adapt(True, 2.0**5)
        steps += 1
    assert 10_000 < steps < 14_000
