"""Losses: torch's values and gradients, and every step rounded."""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits

torch = pytest.importorskip("torch", reason="needs torch as an oracle")
F = torch.nn.functional

RNG = np.random.default_rng(5)
X, Y = 2 * RNG.standard_normal((6, 4)), 2 * RNG.standard_normal((6, 4))
TRUTH, FACTORS, CLASSES = (Y > 0).astype(float), RNG.uniform(0.5, 2, 4), RNG.integers(0, 4, 6)
SOME = np.where(np.arange(6) % 3, CLASSES, -100)


IMAGES, MASKS = RNG.standard_normal((2, 4, 3, 5)), RNG.integers(0, 4, (2, 3, 5))


@pytest.mark.parametrize("function", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("options", [{}, dict(reduction="none"), dict(ignore_index=2, weight=FACTORS)], ids=str)
def test_classes_may_be_axis_1_as_in_torch(function, options):
    a, b = torch.tensor(IMAGES, requires_grad=True), sf.Tensor(IMAGES, requires_grad=True)
    theirs = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    want = getattr(F, function)(a, torch.tensor(MASKS), **theirs)
    want.sum().backward()
    last = np.moveaxis(IMAGES, 1, -1)
    with sf.simulate("fp64"):
        got = getattr(sf.nn, function)(b, MASKS, **options)
        got.sum().backward()
        assert_bits(getattr(sf.nn, function)(last, MASKS, **options).data, got.data)
    np.testing.assert_allclose(got.data, want.detach().numpy(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(b.grad, a.grad.numpy(), rtol=1e-12, atol=1e-14)


def test_where_a_target_fits_classes_on_either_axis_the_axis_must_be_said():
    x, target = RNG.standard_normal((2, 3, 3)), RNG.integers(0, 3, (2, 3))
    with sf.simulate("fp64"):
        with pytest.raises(ValueError, match=r"target of shape \(2, 3\) fits an input \(2, 3, 3\) .* pass axis=-1 or"):
            sf.nn.cross_entropy(x, target)
        first, last = (sf.nn.cross_entropy(x, target, axis=axis).item() for axis in (1, -1))
        swapped = sf.nn.cross_entropy(np.swapaxes(x, 1, 2), target, axis=-1).item()
    assert first == swapped != last
    assert first == pytest.approx(F.cross_entropy(torch.tensor(x), torch.tensor(target)).item(), rel=1e-12)


def test_a_negative_log_likelihood_is_the_second_half_of_a_cross_entropy():
    with sf.simulate("bf16-standard"):
        logarithms = sf.Tensor(X).log_softmax()
        assert_bits(sf.nn.nll_loss(logarithms, SOME).data, sf.nn.cross_entropy(X, SOME).data)
    with sf.simulate(sf.policies["bf16-standard"].override(operation="cross_entropy", activations=sf.FP32)):
        assert sf.nn.nll_loss(X, CLASSES).format == sf.FP32


def test_every_step_of_a_smooth_l1_loss_is_rounded():
    f = sf.BF16
    with sf.simulate("bf16-standard"):
        got = sf.nn.smooth_l1_loss(X, Y, beta=0.7, reduction="none").data
    d = np.abs(sf.subtract(X, Y, f))
    curve = sf.divide(sf.multiply(sf.multiply(d, d, f), 0.5, f), 0.7, f)
    assert_bits(got, np.where(d < 0.7, curve, sf.subtract(d, 0.35, f)))


def test_every_step_of_a_binary_cross_entropy_is_rounded():
    f = sf.BF16
    with sf.simulate("bf16-standard"):
        got = sf.nn.binary_cross_entropy_with_logits(X, TRUTH, reduction="none", pos_weight=FACTORS).data
    log_sigmoid = sf.subtract(np.minimum(sf.round(X, f), 0), sf.log1p(sf.exp(-np.abs(sf.round(X, f)), f), f), f)
    factor = sf.add(sf.multiply(sf.subtract(FACTORS, 1.0, f), TRUTH, f), 1.0, f)
    first = sf.multiply(sf.subtract(1.0, TRUTH, f), X, f)
    assert_bits(got, sf.subtract(first, sf.multiply(log_sigmoid, factor, f), f))


def test_the_gradient_of_a_binary_cross_entropy_is_right_at_zero_and_far_away():
    x = np.array([0.0, -0.0, 1e3, -1e3])
    for target, want in ((0.0, [0.5, 0.5, 1.0, 0.0]), (1.0, [-0.5, -0.5, 0.0, -1.0])):
        t = sf.Tensor(x, requires_grad=True)
        with sf.simulate("fp64"):
            loss = sf.nn.binary_cross_entropy_with_logits(t, np.full(4, target), reduction="sum")
            loss.backward()
        assert np.isfinite(loss.item()) and t.grad.tolist() == want


def test_rows_that_are_ignored_get_no_gradient_and_none_at_all_gives_nan():
    t = sf.Tensor(X, requires_grad=True)
    with sf.simulate("bf16-standard"):
        sf.nn.cross_entropy(t, SOME).backward()
        assert not t.grad[SOME == -100].any() and t.grad[SOME != -100].all()
        assert np.isnan(sf.nn.cross_entropy(X, np.full(6, -100)).item())
        assert sf.nn.cross_entropy(X, np.full(6, -100), reduction="sum").item() == 0.0


@pytest.mark.parametrize("call, message", [
    (lambda: sf.nn.mse_loss(X, Y, reduction="avg"), "reduction must be one of 'mean', 'sum', 'none', got 'avg'"),
    (lambda: sf.nn.cross_entropy(X, CLASSES, reduction=None), "reduction must be one of"),
    (lambda: sf.nn.smooth_l1_loss(X, Y, beta=-1.0), "beta must be a finite number from 0.0, got -1.0"),
    (lambda: sf.nn.smooth_l1_loss(X, Y, beta="a"), "beta must hold real numbers"),
    (lambda: sf.nn.smooth_l1_loss(X, Y[0]), r"one shape, got \(6, 4\) and \(4,\)"),
    (lambda: sf.nn.binary_cross_entropy_with_logits(X, Y, weight=np.ones(3)), r"weight of shape \(3,\) does not"),
    (lambda: sf.nn.binary_cross_entropy_with_logits(X, Y, pos_weight=np.ones((2, 6, 4))), "pos_weight of shape"),
    (lambda: sf.nn.cross_entropy(X, CLASSES, weight=np.ones(3)), "one element for each of 4 classes"),
    (
        lambda: sf.nn.cross_entropy(X, CLASSES, label_smoothing=2),
        "label_smoothing is a probability, a number from 0 to 1",
    ),
    (lambda: sf.nn.nll_loss(X, CLASSES[:5]), r"nll_loss needs a target of shape \(6,\), got \(5,\)"),
    (
        lambda: sf.nn.nll_loss(X, Y),
        r"takes class numbers as integers, got dtype float64. Convert .* target.argmax\(-1\)",
    ),
    (lambda: sf.nn.cross_entropy(IMAGES, CLASSES), r"shape \(2, 4, 3\) or \(2, 3, 5\), got \(6,\)"),
    (lambda: sf.nn.cross_entropy(IMAGES, MASKS, axis=-1), r"target of shape \(2, 4, 3\), got \(2, 3, 5\)"),
    (lambda: sf.nn.cross_entropy(X, CLASSES, axis=0), "axis, the axis of classes, must be -1 .* got 0"),
    (lambda: sf.nn.cross_entropy(X, np.full(6, -1)), "Class numbers must be from 0 to 3, got -1 to"),
])  # fmt: skip
def test_bad_use_is_refused(call, message):
    with pytest.raises(ValueError, match=message), sf.simulate("fp32"):
        call()


def test_ctc_loss_as_a_module_is_torchs():
    given = np.log(np.full((4, 2, 3), 1 / 3)), np.array([[0, 1], [1, 1]]), np.array([4, 4]), np.array([2, 1])
    with sf.simulate("fp64"):
        got = sf.nn.CTCLoss(blank=2)(*given).item()
    assert got == pytest.approx(torch.nn.CTCLoss(blank=2)(*map(torch.tensor, given)).item(), rel=1e-12)
