"""Loss scaling: the changes of the dynamic and the log-normal scale."""

import math

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits
from tests.optim.scalers import parameters, scales


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
