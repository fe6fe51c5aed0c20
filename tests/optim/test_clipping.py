"""Clipping of gradients: as in PyTorch under fp64, and bit for bit by the definition under narrow policies."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.optim.clipping import FEW, sequential_sum, sum_of_squares
from tests.bits import assert_bits
from tests.rounded import Rounded


def parameters(gradients):
    found = []
    for i, gradient in enumerate(gradients):
        p = sf.Parameter(np.ones(np.shape(gradient), np.float32))
        p.name, p.grad = f"p{i}", gradient
        found.append(p)
    return found


GRADIENTS = ([[3.0, -4.0], [0.5, 1.25]], [12.0, 0.1, -7.7], 2.0)


@pytest.mark.parametrize("norm_type", [2.0, 1, np.inf, "inf", 3.0, 0.5])
@pytest.mark.parametrize("max_norm", [1.0, 1e-3, 0.0, 1e6, np.inf])
def test_clipping_by_norm_is_torchs(norm_type, max_norm):
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    mine, theirs = parameters(map(np.array, GRADIENTS)), []
    for g in GRADIENTS:
        theirs.append(torch.zeros(np.shape(g), dtype=torch.float64, requires_grad=True))
        theirs[-1].grad = torch.tensor(g, dtype=torch.float64)
    with sf.simulate("fp64"):
        norm = sf.optim.clip_grad_norm_(mine, max_norm, norm_type)
    want = torch.nn.utils.clip_grad_norm_(theirs, max_norm, float(norm_type))
    np.testing.assert_allclose(norm, want.item(), rtol=1e-12)
    for p, t in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(p.grad, t.grad.numpy(), rtol=1e-12)


@pytest.mark.parametrize("clip", [2.5, 0.0, 100, np.inf])
def test_clipping_by_value_is_torchs(clip):
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    mine = parameters([np.array([3.0, -4.0, 0.5, np.nan, np.inf, -0.0])])
    theirs = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    theirs.grad = torch.tensor(mine[0].grad)
    with sf.simulate("fp64"):
        assert sf.optim.clip_grad_value_(mine, clip) is None
    torch.nn.utils.clip_grad_value_(theirs, clip)
    np.testing.assert_array_equal(mine[0].grad, theirs.grad.numpy())


@pytest.mark.parametrize("policy", [
    sf.policies["bf16-standard"], sf.policies["fp16-master"],
    sf.Policy(compute=sf.FP16, weights=sf.Format(8, 9), reduce=sf.Format(8, 12)).override("p1", weights=sf.FP32),
])  # fmt: skip
@pytest.mark.parametrize("norm_type", [1.0, 2.0])
def test_every_operation_is_rounded_as_documented(policy, norm_type):
    rng = np.random.default_rng(4)
    gradients = [rng.standard_normal((2, 3)), rng.standard_normal(4)]
    mine = parameters(gradients)
    whole = Rounded(policy.recipe().weights)
    own = [Rounded(policy.recipe(p.path).weights) for p in mine]
    by = policy.recipe().reduce.format
    sums = [q.sum(q.mul(g, g) if norm_type == 2 else np.abs(g), by) for q, g in zip(own, gradients, strict=True)]
    norm = whole.sum(np.array(sums), by)
    norm = whole.sqrt(norm) if norm_type == 2 else norm
    k = whole.div(0.7, whole.add(norm, 1e-6))
    with sf.simulate(policy):
        got = sf.optim.clip_grad_norm_(mine, 0.7, norm_type)
    assert_bits(got, norm)
    for p, q, g in zip(mine, own, gradients, strict=True):
        assert_bits(p.grad, q.mul(k, g))


def test_gradients_that_need_no_clipping_do_not_change():
    mine = parameters([np.array([0.1, -0.2])])
    before = mine[0].grad
    with sf.simulate("bf16-standard"):
        sf.optim.clip_grad_norm_(mine, 1.0)
        assert mine[0].grad is before
        sf.optim.clip_grad_value_(mine, 0.15)
    assert_bits(mine[0].grad, [0.1, -sf.round(0.15, sf.BF16)])


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_norm_that_is_not_finite_is_an_error_only_where_asked_for(value):
    mine = parameters([np.array([1.0, value]), np.array([2.0])])
    with sf.simulate("fp32"):
        with pytest.raises(ValueError, match="norm of the gradients is (inf|nan), and error_if_nonfinite forbids"):
            sf.optim.clip_grad_norm_(mine, 1.0, error_if_nonfinite=True)
        assert mine[1].grad.tolist() == [2.0]
        norm = sf.optim.clip_grad_norm_(mine, 1.0)
    assert not np.isfinite(norm)
    assert mine[1].grad.tolist() == [0.0] if value == np.inf else np.isnan(mine[1].grad).all()


def test_parameters_without_gradients_and_empty_ones_count_nothing():
    without, empty, [single] = sf.Parameter([1.0]), parameters([np.zeros((0, 2))]), parameters([np.array([3.0])])
    with sf.simulate("bf16-standard"):
        assert sf.optim.clip_grad_norm_([without], 1.0) == 0.0
        assert sf.optim.clip_grad_norm_([], 1.0) == 0.0
        assert sf.optim.clip_grad_norm_(empty, 1.0, np.inf) == 0.0
        assert sf.optim.clip_grad_norm_((p for p in [without, *empty, single]), 1.0) == 3.0
        assert sf.optim.clip_grad_norm_(single, 1.0).item() == pytest.approx(1.0, rel=0.01)
        sf.optim.clip_grad_value_([without, *empty], 1.0)
    assert without.grad is None


def test_clipping_is_observed_below_the_parameters_path():
    mine, recorder = parameters([np.full(3, 300.0)]), sf.Recorder()
    with sf.simulate(sf.Policy(compute=sf.FP16), observer=recorder):
        sf.optim.clip_grad_norm_(mine, 1.0)
    assert recorder.counts("p0.clip", phase="update")["overflow"] == 3, "300^2 is beyond FP16"
    assert recorder.counts("clip", phase="update")["total"] == 4, "the sum over parameters, its root, + 1e-6, and k"
    assert mine[0].grad.tolist() == [0.0] * 3
    with pytest.raises(ValueError, match="matches nothing"):
        recorder.counts("p0")


ONE = sf.Parameter([1.0])


@pytest.mark.parametrize("make, message", [
    (lambda: sf.optim.clip_grad_norm_([ONE], -1.0), "max_norm must not be negative"),
    (lambda: sf.optim.clip_grad_norm_([ONE], np.nan), "max_norm must be a finite number"),
    (lambda: sf.optim.clip_grad_norm_([ONE], "1"), "max_norm must be a real number"),
    (lambda: sf.optim.clip_grad_norm_([ONE], 1.0, 0), "norm_type must be above zero, got 0"),
    (lambda: sf.optim.clip_grad_norm_([ONE], 1.0, -2.0), "norm_type must not be negative"),
    (lambda: sf.optim.clip_grad_norm_([ONE], 1.0, 2.0, 1), "error_if_nonfinite must be True or False"),
    (lambda: sf.optim.clip_grad_norm_([ONE, ONE], 1.0), "parameter 1 was given twice"),
    (lambda: sf.optim.clip_grad_norm_(sf.Tensor([1.0]), 1.0), "Clipping takes model.parameters.. or a list"),
    (lambda: sf.optim.clip_grad_norm_([np.ones(3)], 1.0), "Clipping takes model.parameters.., got a ndarray among"),
    (lambda: sf.optim.clip_grad_norm_(sf.nn.MLP([1, 1]), 1.0), "Clipping takes .* got a MLP"),
    (lambda: sf.optim.clip_grad_value_([ONE], -1.0), "clip_value must not be negative"),
    (lambda: sf.optim.clip_grad_value_(None, 1.0), "Clipping takes .* got a NoneType"),
])  # fmt: skip
def test_wrong_arguments_are_refused_by_name(make, message):
    with sf.simulate("fp32"), pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("clip", [sf.optim.clip_grad_norm_, sf.optim.clip_grad_value_])
def test_clipping_needs_a_policy(clip):
    with pytest.raises(ValueError, match="needs a policy in force"):
        clip(parameters([np.ones(2)]), 1.0)


def as_stated(x):
    """The definition, number by number."""
    values = [float(value) * float(value) for value in x.ravel()]
    while len(values) > FEW:
        half = (len(values) + 1) // 2
        values = [values[i] + values[half + i] if half + i < len(values) else values[i] for i in range(half)]
    total = 0.0
    for value in values:
        total += value
    return total


@pytest.mark.parametrize("shape", [(0,), (1,), (FEW,), (FEW + 1,), (129,), (13, 17), (5, 4, 31)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_squares_are_added_in_the_order_that_is_stated(shape, dtype, rng):
    x = (rng.standard_normal(shape) * 10.0 ** rng.integers(-9, 9, shape)).astype(dtype)
    kept = x.copy()
    assert sum_of_squares(x) == as_stated(x)
    assert sum_of_squares(np.asfortranarray(x)) == as_stated(x)
    assert_bits(x, kept)


def test_what_is_not_finite_stays_so_without_a_warning():
    assert sum_of_squares(np.array([np.inf, 1.0])) == np.inf and np.isnan(sum_of_squares(np.array([np.inf, np.nan])))
    assert sum_of_squares(np.full(2, 1e200)) == np.inf


def test_numbers_are_added_one_after_another():
    assert sequential_sum([1.0, 1e16, -1e16]) == 0.0 and sequential_sum([]) == 0.0
