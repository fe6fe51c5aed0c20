"""Batch normalization: torch's values, gradients and state; every step rounded; running statistics."""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits
from tests.roles import EACH_ITS_OWN
from tests.rounded import Rounded

torch = pytest.importorskip("torch", reason="needs torch as an oracle")


def results_and_gradients(mine, theirs, x, g):
    """The results of both layers in double precision, and the gradients with respect to their operand, in pairs."""
    a, b = sf.Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    want = theirs(b)
    want.backward(torch.tensor(g))
    with sf.simulate("fp64"):
        got = mine(a)
        got.backward(g)
    return [(got.data, want.detach()), (a.grad, b.grad)]


@pytest.mark.parametrize("name, shape", [("BatchNorm2d", (4, 3, 5, 6)), ("BatchNorm2d", (1, 3, 1, 2)),
                                         ("BatchNorm1d", (7, 3)), ("BatchNorm1d", (4, 3, 5))])  # fmt: skip
@pytest.mark.parametrize(
    "options",
    [{}, dict(momentum=None), dict(momentum=0.0), dict(affine=False), dict(track_running_stats=False), dict(eps=0.5)],
    ids=str,
)
def test_training_and_evaluation_are_torchs_in_double_precision(name, shape, options, rng):
    mine, theirs = getattr(sf.nn, name)(3, **options), getattr(torch.nn, name)(3, **options).double()
    assert list(mine.state_dict()) == list(theirs.state_dict())
    for step in range(4):
        if step == 3:
            mine.eval(), theirs.eval()
        x, g = 3 * rng.standard_normal(shape) + 1, rng.standard_normal(shape)
        pairs = results_and_gradients(mine, theirs, x, g)
        pairs += [(p.grad, q.grad) for p, q in zip(mine.parameters(), theirs.parameters(), strict=True)]
        pairs += list(zip(mine.state_dict().values(), theirs.state_dict().values(), strict=True))
        for ready, other in pairs:
            assert ready.shape == tuple(other.shape)
            np.testing.assert_allclose(ready, other.numpy(), rtol=1e-11, atol=1e-12)
    mine.load_state_dict(theirs.state_dict())


def test_every_step_is_rounded(rng):
    policy = sf.Policy(compute=sf.BF16, activations=sf.FP16, reduce=sf.sequential(sf.FP32))
    layer, x = sf.nn.BatchNorm2d(2, eps=0.01, momentum=0.3), rng.standard_normal((3, 2, 4, 5))
    layer.weight.data, layer.bias.data = [1.5, 0.75], [0.1, -2.0]
    with sf.simulate(policy):
        got = layer(x)
    for channel in range(2):
        values, eps, one = x[:, channel].reshape(-1), 0.01, sf.FP16
        mean = sf.divide(sf.sum(values, accumulate=sf.FP32, output=one), 60.0, one)
        d = sf.subtract(values, mean, one)
        total = sf.sum(sf.multiply(d, d, one), accumulate=sf.FP32, output=one)
        scale = sf.rsqrt(sf.add(sf.divide(total, 60.0, one), eps, one), one)
        weight, bias = (sf.round(p.data[channel], sf.BF16) for p in (layer.weight, layer.bias))
        want = sf.add(sf.multiply(sf.multiply(d, scale, one), weight, one), bias, one)
        assert_bits(got.data[:, channel].reshape(-1), want)
        for running, old, new in (
            (layer.running_mean, 0.0, mean), (layer.running_var, 1.0, sf.divide(total, 59.0, one)),
        ):  # fmt: skip
            moved = sf.add(sf.multiply(1 - 0.3, old, one), sf.multiply(0.3, new, one), one)
            assert_bits(running[channel], moved)


@pytest.mark.parametrize("policy", [sf.policies["fp16-master"], EACH_ITS_OWN], ids=["master", "roles"])
def test_every_step_of_the_gradients_is_rounded_to_the_role_of_what_they_belong_to(policy, rng):
    """PyTorch's formulas: each gradient normalizes the rows anew, in its own role."""
    recipe, (x, g) = policy.recipe(), rng.standard_normal((2, 2, 3, 4, 2))
    act, u, v = map(Rounded, (recipe.activations, recipe.activation_gradients, recipe.weight_gradients))
    layer, t = sf.nn.BatchNorm2d(3, eps=0.01), sf.Tensor(x, requires_grad=True)
    layer.weight.data = rng.standard_normal(3)
    with sf.simulate(policy):
        layer(t).backward(g)
    rows, slopes = (each.transpose(0, 2, 3, 1).reshape(-1, 3) for each in (x, g))
    weight, count, by = Rounded(recipe.weights).to(layer.weight.data), float(len(rows)), recipe.reduce.format
    mean = act.div(act.sum(rows, by, 0), count)
    centred = act.sub(rows, mean)
    scale = act.rsqrt(act.add(act.div(act.sum(act.mul(centred, centred), by, 0), count), 0.01))
    assert_bits(layer.bias.grad, v.sum(slopes, by, 0)[0])
    assert_bits(layer.weight.grad, v.sum(v.mul(slopes, v.mul(v.sub(rows, mean), scale)), by, 0)[0])
    normal, passed = u.mul(u.sub(rows, mean), scale), u.mul(slopes, weight)
    along = u.div(u.sum(u.mul(passed, normal), by, 0), count)
    centred = u.sub(passed, u.div(u.sum(passed, by, 0), count))
    want = u.mul(u.sub(centred, u.mul(normal, along)), scale)
    assert_bits(t.grad.transpose(0, 2, 3, 1).reshape(-1, 3), want)


def test_evaluation_takes_the_running_statistics_and_leaves_them(rng):
    layer, x = sf.nn.BatchNorm2d(2).eval(), rng.standard_normal((1, 2, 1, 1))
    layer.running_mean, layer.running_var = [0.5, -1.0], [2.0, 0.25]
    before = layer.state_dict()
    with sf.simulate("bf16-standard"):
        got = layer(x)
    scale = sf.rsqrt(sf.add(layer.running_var, 1e-5, sf.BF16), sf.BF16)
    d = sf.subtract(x[0, :, 0, 0], layer.running_mean, sf.BF16)
    assert_bits(got.data[0, :, 0, 0], sf.multiply(d, scale, sf.BF16))
    for path, value in layer.state_dict().items():
        assert_bits(value, before[path])


def test_a_fused_layer_rounds_its_result_once(rng):
    layer, x = sf.nn.BatchNorm2d(3), rng.standard_normal((2, 3, 4, 4))
    wide = sf.nn.BatchNorm2d(3)
    policy = sf.Policy(compute=sf.BF16, weights=sf.FP32, reduce=sf.FP32)
    with sf.simulate(policy.override(operation="batch_norm", fused=True)):
        got = layer(x)
    with sf.simulate("fp32"):
        exact = wide(x)
    assert_bits(got.data, sf.round(exact.data, sf.BF16))
    statistic = sf.multiply(0.1, x.mean((0, 2, 3)), sf.BF16)
    assert np.abs(layer.running_mean - statistic).max() < 2**-8 * np.abs(statistic).max()
    assert_bits(layer.running_mean, sf.round(layer.running_mean, sf.BF16))


def test_a_batch_norm_without_bias_is_torchs(rng):
    mine, theirs = sf.nn.BatchNorm1d(3, bias=False), torch.nn.BatchNorm1d(3).double()
    theirs.register_parameter("bias", None)  # the argument exists from PyTorch 2.13 on
    assert list(mine.state_dict()) == list(theirs.state_dict())
    for is_training in (True, False):
        mine.train(is_training), theirs.train(is_training)
        x, g = rng.standard_normal((2, 7, 3))
        pairs = results_and_gradients(mine, theirs, x, g)
        for ready, other in (*pairs, (mine.weight.grad, theirs.weight.grad)):
            np.testing.assert_allclose(ready, other.numpy(), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("options", [{}, dict(momentum=None), dict(track_running_stats=False)], ids=str)
def test_a_batch_of_nothing_is_normalized_to_nothing_and_moves_no_statistics(options):
    mine, theirs = sf.nn.BatchNorm2d(3, **options), torch.nn.BatchNorm2d(3, **options)
    x, recorder = np.zeros((0, 3, 4, 5), np.float32), sf.Recorder()
    a, b = sf.Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    theirs(b).sum().backward()
    with sf.simulate("bf16-standard", observer=recorder):
        result = mine(a)
        result.sum().backward()
    assert result.shape == a.grad.shape == x.shape and recorder.counts()["nan"] == 0
    for p, q in zip(mine.parameters(), theirs.parameters(), strict=True):
        assert_bits(p.grad, q.grad.numpy())
    for p, q in zip(mine.buffers(), theirs.buffers(), strict=True):
        assert_bits(p, q.numpy())
