"""Layer-wise adaptive loss scaling: the factors by their formula, and the gradients."""

import copy
import math
import pickle
from statistics import NormalDist

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits

FP16 = sf.Policy(compute=sf.FP16, weights=sf.FP32)


def data(seed=0, rows=16, columns=12):
    return np.float32(np.random.default_rng(seed).standard_normal((rows, columns)))


def backward(model, scaler, x, small=1.0, policy=FP16):
    """The unscaled gradients of a small loss by path, and the scales that they had."""
    optimizer = sf.optim.SGD(model.parameters(), 0.1)
    optimizer.zero_grad()
    with sf.simulate(policy):
        loss = (model(x) * small).sum()
        (scaler.scale(loss) if scaler else loss).backward()
        scales = {path: scaler.scale_of(p) for path, p in model.named_parameters()} if scaler else {}
        if scaler:
            scaler.unscale_(optimizer)
    return {path: p.grad for path, p in model.named_parameters()}, scales


def formula(g, w, fan, scale, u_min=2.0**-24, largest=65504.0, share=1e-3):
    """The factor of Zhao et al. 2019, written with means and standard deviations as there."""
    g, w = np.float64(g), np.float64(w)
    deviation = math.sqrt((g.std() ** 2 + g.mean() ** 2) * (w.std() ** 2 + w.mean() ** 2)) * math.sqrt(0.5 * fan)
    alpha = u_min / (deviation * NormalDist().inv_cdf((1 + share) / 2))
    bounds = (largest / fan / (abs(g).max() * abs(w).max()), largest / abs(g).max(), 1024 / scale, 16)
    return 2.0 ** math.floor(math.log2(max(min(alpha, *bounds), 1)))


@pytest.mark.parametrize("exponent, share", [(-19, 1e-3), (-14, 1e-4), (7, 1e-12), (9, 1e-12)])
def test_every_layer_has_the_factor_of_the_formula_and_weights_that_of_the_layers_behind_them(exponent, share):
    sf.nn.seed(1)
    model = sf.nn.Sequential(*(sf.nn.Linear(n, m, bias=False) for n, m in ((12, 9), (9, 7), (7, 5), (5, 3))))
    small = 2.0**exponent
    _, scales = backward(model, sf.optim.LayerwiseLossScale(underflow=share), data(), small)
    g, scale = np.full((16, 3), sf.round(small, sf.FP16)), 1.0
    for path in ("3.weight", "2.weight", "1.weight"):
        assert scales[path] == scale
        w = dict(model.named_parameters())[path].data
        factor = formula(g, w, len(w), scale, share=share)
        g = sf.matmul(g * factor, w, inputs=sf.FP16, accumulate=sf.FP32, output=sf.FP16)
        scale *= factor
    assert scales["0.weight"] == scale > 1, "or this would show nothing"


class Residual(sf.nn.Module):
    """x + f(x), whose two branches meet with different scales."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer, self.first = (sf.nn.Linear(12, n) for n in (12, 3, 12))

    def forward(self, x):
        x = self.first(x)
        return self.outer(x + self.inner(x))


class Parted(sf.nn.Module):
    """Two parts of one result, whose gradients are put together in one scale."""

    def __init__(self):
        super().__init__()
        self.first, self.short, self.long = sf.nn.Linear(12, 8), sf.nn.Linear(4, 4), sf.nn.MLP([4, 6, 4])

    def forward(self, x):
        left, right = self.first(x).split(4, 1)
        return self.short(left) + self.long(right)


class Attention(sf.nn.Module):
    """A convolution, and a product of activations."""

    def __init__(self):
        super().__init__()
        self.conv, self.query = sf.nn.Conv2d(2, 3, 3), sf.nn.Linear(6, 4, bias=False)

    def forward(self, x):
        x = self.conv(x).reshape(len(x) * 3, 6)
        return self.query(x) @ self.query(x).T


IMAGES = np.float32(np.random.default_rng(1).standard_normal((2, 2, 4, 5)))


@pytest.mark.parametrize("make, x, small, options, falling", [
    (lambda: sf.nn.MLP([12, 8, 8, 8, 3]), data(), 8.0, {}, ["hidden.0.weight", "head.weight"]),
    (Residual, data(), 8.0, {}, ["first.weight", "inner.weight", "outer.weight"]),
    (Parted, data(), 8.0, {}, ["first.weight", "long.hidden.0.weight", "long.head.weight"]),
    (Attention, IMAGES, 1.0, {"max_factor": 4.0}, ["conv.weight", "query.weight"]),
])  # fmt: skip
def test_where_nothing_underflows_scales_rise_towards_the_input_and_change_no_bit(make, x, small, options, falling):
    policy = sf.Policy(compute=sf.BF16, weights=sf.FP32, gradients=sf.FP16)
    sf.nn.seed(8)
    model = make()
    plain, _ = backward(model, None, x, small, policy)
    # With so small a share factors are taken although they are not needed.
    got, scales = backward(model, sf.optim.LayerwiseLossScale(underflow=1e-12, **options), x, small, policy)
    factors = [scales[path] for path in falling]
    assert factors == sorted({*factors}, reverse=True) and factors[0] > 1
    for path in plain:
        assert_bits(got[path], plain[path])


def test_gradients_of_several_backward_passes_are_added_in_one_scale():
    policy = sf.Policy(compute=sf.BF16, weights=sf.FP32, gradients=sf.FP32)
    sums, scaler = [], sf.optim.LayerwiseLossScale(underflow=1e-12)
    for used in (None, scaler):
        sf.nn.seed(5)
        model = sf.nn.MLP([12, 8, 8, 3])
        with sf.simulate(policy.override(operation="contraction", gradients=sf.FP16)):
            for seed, small in ((0, 2.0**-3), (1, 2.0**-12), (2, 1.0)):
                loss = (model(data(seed)) * small).sum()
                (used.scale(loss) if used else loss).backward()
            if used:
                used.unscale_(sf.optim.SGD(model.parameters(), 0.1))
        sums.append([p.grad for p in model.parameters()])
    for plain, got in zip(*sums, strict=True):
        np.testing.assert_allclose(got, plain, rtol=1e-5, atol=1e-6)


def test_an_earlier_gradient_that_a_lower_common_scale_makes_subnormal_is_rounded_to_nearest():
    sf.nn.seed(5)
    model = sf.nn.Sequential(*(sf.nn.Linear(n, m, bias=False) for n, m in ((12, 8), (8, 8), (8, 3))))
    scaler, weight = sf.optim.LayerwiseLossScale(underflow=1e-12), model[0].weight
    later = data(1) * (np.arange(12) < 6)  # the other columns of the later gradient are zero
    with sf.simulate(sf.Policy(compute=sf.FP16, accumulate=sf.FP32, weights=sf.FP32)):
        scaler.scale((model(data()) * 2.0**-20).sum()).backward()
        before, high = np.float64(weight.grad), scaler.scale_of(weight)
        scaler.scale((model(later) * 2.0**15).sum()).backward()
    low = scaler.scale_of(weight)
    wanted = sf.round(before * low / high, sf.FP16)[:, 6:]
    assert np.count_nonzero(wanted != sf.round(before * low / high, sf.FP16, sf.to_odd)[:, 6:]) > 9
    assert_bits(weight.grad[:, 6:], wanted)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_step_that_is_not_finite_is_skipped_and_leaves_the_scale(bad):
    model = sf.nn.MLP([12, 4, 3])
    scaler = sf.optim.LayerwiseLossScale(2.0)
    optimizer = sf.optim.SGD(model.parameters(), 0.1)
    with sf.simulate(FP16):
        scaler.scale((model(data()) * bad).sum()).backward()
        before = model.state_dict()
        scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0
    for path, weights in model.state_dict().items():
        assert_bits(weights, before[path])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda parts: pickle.loads(pickle.dumps(parts))])
def test_copies_between_backward_and_step_know_the_factor_of_every_gradient(copied):
    sf.nn.seed(1)
    model, scaler = sf.nn.MLP([3, 32, 2]), sf.optim.LayerwiseLossScale(2.0)
    with sf.simulate("amp-fp16"):
        scaler.scale(sf.nn.mse_loss(model(np.ones((4, 3))), np.zeros((4, 2))) * 2.0**-14).backward()
    twin, other = copied((model, scaler))
    factors = [scaler.scale_of(parameter) for parameter in model.parameters()]
    assert [other.scale_of(parameter) for parameter in twin.parameters()] == factors
    assert factors[0] > factors[-1] == 2


def test_options_and_state():
    scaler = sf.optim.LayerwiseLossScale(4.0, max_factor=8.0)
    fresh = sf.optim.LayerwiseLossScale()
    fresh.load_state_dict(scaler.state_dict())
    assert fresh.state_dict() == {"scale": 4.0, "underflow": 1e-3, "max_factor": 8.0, "max_scale": 1024.0}
    for options, message in [
        (dict(underflow=1.0), "underflow must be a share from 1e-12 to below 1, got 1.0"),
        (dict(max_factor=0.5), "max_factor must be at least 1, got 0.5"),
        (dict(init_scale=0.0), "init_scale must be a positive number of float32"),
    ]:
        with pytest.raises(ValueError, match=message):
            sf.optim.LayerwiseLossScale(**options)


def test_a_weight_in_another_shape_has_no_factor_of_its_own():
    w, scaler = sf.Parameter(data(1, 3)), sf.optim.LayerwiseLossScale(8.0)
    with sf.simulate(FP16):
        scaler.scale(((data() @ w.T) * 2.0**-24).sum()).backward()
    assert scaler.scale_of(w) == 8.0
