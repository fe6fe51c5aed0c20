"""Connectionist temporal classification."""

import itertools
import math

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits
from tests.nn.against_torch import close

RNG = np.random.default_rng(31)
X = RNG.standard_normal((6, 4, 5)) * 2
TARGETS = np.array([[1, 2, 3], [2, 2, 4], [3, 1, 0], [4, 0, 0]])
INPUTS, LENGTHS = np.array([6, 5, 4, 6]), np.array([3, 3, 2, 0])


def losses(torch, x, targets, inputs, lengths, **options):
    """torch's losses and ours, with the gradients of their sum with respect to the input of a log_softmax."""
    theirs = torch.tensor(x, requires_grad=True)
    tensors = [torch.tensor(v) for v in (targets, inputs, lengths)]
    want = torch.nn.functional.ctc_loss(theirs.log_softmax(-1), *tensors, **options)
    want.sum().backward()
    with sf.simulate("fp64"):
        ours = sf.Tensor(x, requires_grad=True)
        got = sf.nn.ctc_loss(ours.log_softmax(-1), targets, inputs, lengths, **options)
        got.sum().backward()
    return (want.detach().numpy(), theirs.grad.numpy()), (got.data, ours.grad)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses_and_gradients_equal_torchs(reduction):
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    for want, got in zip(*losses(torch, X, TARGETS, INPUTS, LENGTHS, reduction=reduction), strict=True):
        close(got, want)


def test_the_blank_may_be_any_class_and_targets_may_come_one_after_the_other():
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    targets = np.where(TARGETS == 4, 0, TARGETS)
    flat = np.concatenate([row[:n] for row, n in zip(targets, [3, 3, 2, 1], strict=True)])
    for given in (targets, flat):
        for want, got in zip(*losses(torch, X, given, INPUTS, np.array([3, 3, 2, 1]), blank=4), strict=True):
            close(got, want)


def test_one_sequence_needs_no_axis_for_its_number():
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    for reduction in ("none", "mean"):
        for want, got in zip(*losses(torch, X[:, 0], TARGETS[0], 6, 3, reduction=reduction), strict=True):
            close(got, want)


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_targets_that_fit_no_way_have_an_infinite_loss_and_no_gradient_or_no_loss(zero_infinity):
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    inputs = np.array([2, 3, 4, 6])  # 1 2 3 needs three steps, 2 2 4 needs four
    options = {"reduction": "none", "zero_infinity": zero_infinity}
    (want, wanted), (got, gradient) = losses(torch, X, TARGETS, inputs, LENGTHS, **options)
    close(np.where(np.isinf(got), 9.0, got), np.where(np.isinf(want), 9.0, want))
    assert np.isinf(got).tolist() == [not zero_infinity] * 2 + [False] * 2
    assert np.isnan(gradient).tolist() == np.isnan(wanted).tolist()
    assert np.isnan(gradient).any() != zero_infinity
    close(np.nan_to_num(gradient), np.nan_to_num(wanted))


def test_a_sequence_without_steps_fits_no_targets_alone():
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    (want, _), (got, gradient) = losses(torch, X, TARGETS, np.array([0, 6, 6, 0]), LENGTHS, reduction="none")
    assert got[[0, 3]].tolist() == want[[0, 3]].tolist() == [np.inf, 0]
    close(got[1:], want[1:])
    assert not gradient[:, [0, 3]].any()


def test_the_loss_is_that_of_all_ways_counted_one_by_one():
    steps, classes, target = 4, 3, [1, 1]
    x = RNG.standard_normal((steps, classes))
    probabilities = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    total = 0.0
    for way in itertools.product(range(classes), repeat=steps):
        shortened = [label for label, _ in itertools.groupby(way) if label]
        total += math.prod(probabilities[t, c] for t, c in enumerate(way)) if shortened == target else 0.0
    with sf.simulate("fp64"):
        loss = sf.nn.ctc_loss(sf.Tensor(x).log_softmax(), target, steps, 2, reduction="none")
    assert abs(loss.item() + math.log(total)) < 1e-14


def test_every_step_is_rounded():
    x = sf.round(RNG.standard_normal((2, 1, 3)) - 2, sf.BF16)
    with sf.simulate("bf16-standard"):
        loss = sf.nn.ctc_loss(x, [[1]], [2], [1], reduction="none")

    def logsumexp(*terms):
        largest = max(terms)
        total = 0.0
        for term in terms:
            power = 0.0 if term == -math.inf else sf.exp(sf.subtract(term, largest, sf.BF16), sf.BF16)
            total = sf.add(total, power, sf.FP32)
        return float(sf.add(sf.log(sf.round(total, sf.BF16), sf.BF16), largest, sf.BF16))

    start = [float(x[0, 0, 0]), float(x[0, 0, 1]), -math.inf]
    middle = sf.add(logsumexp(start[1], start[0]), x[1, 0, 1], sf.BF16)
    last = sf.add(logsumexp(-math.inf, start[1]), x[1, 0, 0], sf.BF16)
    assert_bits(loss.data, [-logsumexp(float(middle), float(last))])
    assert loss.format == sf.BF16


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: sf.nn.ctc_loss(X[0, 0], [1], 1, 1), r"takes log_probs \(T, N, C\) or \(T, C\).*got \(5,\)"),
        (lambda: sf.nn.ctc_loss(X, TARGETS, INPUTS, LENGTHS, blank=5), "blank is a class, from 0 to 4, got 5"),
        (lambda: sf.nn.ctc_loss(X, TARGETS, INPUTS + 1, LENGTHS), "Input lengths go from 0 to 6; got 7 at 0"),
        (
            lambda: sf.nn.ctc_loss(X, TARGETS, INPUTS[:3], LENGTHS),
            r"Input lengths are .* got shape \(3,\)",
        ),
        (lambda: sf.nn.ctc_loss(X, TARGETS, INPUTS, LENGTHS + 1), "Target lengths go from 0 to 3; got 4 at 0"),
        (lambda: sf.nn.ctc_loss(X, TARGETS + 2, INPUTS, LENGTHS), r"Targets go from 0 to 4; got 5 at \(0, 2\)"),
        (
            lambda: sf.nn.ctc_loss(X, TARGETS[:2], INPUTS, LENGTHS),
            r"Targets are \(N, S\) = \(4, at least 3\), or 8",
        ),
        (lambda: sf.nn.ctc_loss(X, TARGETS, INPUTS, [3, 3, 3, 0]), "Targets are classes other than the blank, 0"),
        (lambda: sf.nn.ctc_loss(X, TARGETS * 1.0, INPUTS, LENGTHS), "Targets must be integers, got dtype float64"),
        (lambda: sf.nn.ctc_loss(X, TARGETS, INPUTS, LENGTHS, reduction="max"), "reduction must be one of .* got 'max'"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message), sf.simulate("fp32"):
        call()
