"""Pooling: PyTorch's values and gradients, and every sum term by term."""

import itertools

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits

torch = pytest.importorskip("torch", reason="needs torch as an oracle")

SHAPES = [(1, 1, 5, 5), (2, 2, 9, 4)]
KINDS = {
    "max": (sf.Tensor.max_pool2d, torch.nn.functional.max_pool2d, {}),
    "max dilated": (sf.Tensor.max_pool2d, torch.nn.functional.max_pool2d, dict(dilation=2)),
    "average": (sf.Tensor.avg_pool2d, torch.nn.functional.avg_pool2d, {}),
    "average of pixels": (sf.Tensor.avg_pool2d, torch.nn.functional.avg_pool2d, dict(count_include_pad=False)),
    "average by another number": (sf.Tensor.avg_pool2d, torch.nn.functional.avg_pool2d, dict(divisor_override=3)),
}


@pytest.mark.parametrize("ceil", [False, True], ids=("floor", "ceil"))
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_gradients_and_refusals_are_torchs(kind, ceil, rng):
    mine, theirs, more = KINDS[kind]
    refused = 0
    for shape, window, stride, padding in itertools.product(
        SHAPES, (1, 2, 3, (3, 2)), (None, 1, 2, (1, 3)), (0, 1, (1, 0))
    ):
        options = dict(kernel_size=window, stride=stride, padding=padding, ceil_mode=ceil, **more)
        x = rng.standard_normal(shape)
        a, b = torch.tensor(x, requires_grad=True), sf.Tensor(x, requires_grad=True)
        try:
            want = theirs(a, **options)
        except RuntimeError:
            with pytest.raises(ValueError), sf.simulate("fp64"):
                mine(b, **options)
            refused += 1
            continue
        g = rng.standard_normal(tuple(want.shape))
        want.backward(torch.tensor(g))
        with sf.simulate("fp64"):
            got = mine(b, **options)
            got.backward(g)
        np.testing.assert_allclose(got.data, want.detach().numpy(), rtol=1e-14, atol=1e-15)
        np.testing.assert_allclose(b.grad, a.grad.numpy(), rtol=1e-14, atol=1e-15)
    assert refused < 60


def test_the_first_of_equal_pixels_has_the_gradient():
    with sf.simulate("fp32"):
        x = sf.Tensor(np.zeros((1, 1, 3, 3)), requires_grad=True)
        x.max_pool2d(2, stride=1).backward(np.array([[[[1.0, 2.0], [4.0, 8.0]]]]))
        lowest = sf.Tensor(np.full((1, 1, 2, 2), -np.inf), requires_grad=True)
        y = lowest.max_pool2d(2, padding=1)
        y.backward(np.array([[[[1.0, 2.0], [4.0, 8.0]]]]))
    assert x.grad[0, 0].tolist() == [[1.0, 2.0, 0.0], [4.0, 8.0, 0.0], [0.0, 0.0, 0.0]]
    assert np.isneginf(y.data).all()
    assert lowest.grad[0, 0].tolist() == [[1.0, 2.0], [4.0, 8.0]], "a place in the padding never has it"


def test_a_window_with_nan_gives_nan_and_its_first_one_has_the_gradient():
    with sf.simulate("fp32"):
        x = sf.Tensor(np.array([[[[1.0, np.nan], [np.nan, 9.0]]]]), requires_grad=True)
        y = x.max_pool2d(2)
        y.backward(np.full((1, 1, 1, 1), 3.0))
    assert np.isnan(y.data).all() and x.grad[0, 0].tolist() == [[0.0, 3.0], [0.0, 0.0]]


POLICY = sf.Policy(compute=sf.FP16, activations=sf.BF16, gradients=sf.Format(8, 5), reduce=sf.pairwise(sf.BF16))


@pytest.mark.parametrize("padding, counts_padding", [(0, True), (1, True), (1, False)])
def test_an_average_is_a_sum_through_reduce_and_a_quotient(padding, counts_padding, rng):
    x = rng.standard_normal((1, 1, 5, 6))
    with sf.simulate(POLICY):
        got = sf.Tensor(x).avg_pool2d((2, 3), stride=(1, 2), padding=padding, count_include_pad=counts_padding).data
    padded, pixels = (np.pad(a[0, 0], padding) for a in (x, np.ones_like(x)))
    for row, column in np.ndindex(*got.shape[2:]):
        place = slice(row, row + 2), slice(2 * column, 2 * column + 3)
        total = sf.sum(padded[place], accumulate=sf.pairwise(sf.BF16), output=sf.BF16)
        count = 6 if counts_padding else pixels[place].sum()
        assert_bits(got[0, 0, row, column], sf.divide(total, count, sf.BF16))


@pytest.mark.parametrize("window, stride, dilation", [((3, 2), (1, 1), 1), ((3, 3), (2, 2), 1), ((2, 2), (1, 1), 2)])
@pytest.mark.parametrize("kind", ["max", "average"])
def test_overlapping_windows_add_their_gradients_in_row_major_order(kind, window, stride, dilation, rng):
    if kind == "average" and dilation > 1:
        dilation, window = 1, (4, 3)
    x, narrow = sf.Tensor(rng.standard_normal((1, 1, 7, 6)), requires_grad=True), sf.Format(8, 5)
    options = dict(dilation=dilation) if kind == "max" else {}
    with sf.simulate(POLICY):
        y = (x.max_pool2d if kind == "max" else x.avg_pool2d)(window, stride, **options)
        g = rng.standard_normal(y.shape)
        y.backward(g)
    for pixel in np.ndindex(7, 6):
        terms = []
        for at in np.ndindex(*y.shape[2:]):
            steps = [p - r * s for p, r, s in zip(pixel, at, stride, strict=True)]
            if all(s % dilation == 0 and 0 <= s // dilation < n for s, n in zip(steps, window, strict=True)):
                rows, columns = (
                    slice(r * s, r * s + dilation * (n - 1) + 1, dilation)
                    for r, s, n in zip(at, stride, window, strict=True)
                )
                met = x.data[0, 0, rows, columns]
                share = g[0, 0][at]
                if kind == "average":
                    terms.append(sf.divide(share, met.size, narrow))
                else:
                    terms.append(share if met.max() == x.data[0, 0][pixel] else 0.0)
        # Windows beyond the border, before the first and behind the last, are +0: pairs keep their places.
        if len(terms) == len(list(overlaps(window, stride))):
            assert_bits(x.grad[0, 0][pixel], sf.sum(terms, accumulate=sf.pairwise(sf.BF16), output=narrow))


def overlaps(window, stride):
    """The windows that share a pixel far from the border."""
    return itertools.product(*(range(-(-n // s)) for n, s in zip(window, stride, strict=True)))


@pytest.mark.parametrize("call, message", [
    (lambda x: x[0].max_pool2d(2), r"max_pool2d needs images \(N, C, H, W\), got shape \(1, 4, 4\)"),
    (lambda x: x.max_pool2d(0), "kernel_size must be an integer of at least 1"),
    (lambda x: x.max_pool2d(2, 0), "stride must be an integer of at least 1"),
    (lambda x: x.max_pool2d(2, padding=2), "at most half of the windows, 2 x 2; got"),
    (lambda x: x.max_pool2d(5), r"do not fit into x of shape \(1, 1, 4, 4\)"),
    (lambda x: x.avg_pool2d(2, divisor_override=0), "divisor_override must be None or an integer from 1"),
])  # fmt: skip
def test_arguments_that_do_not_fit_are_refused(call, message):
    with pytest.raises(ValueError, match=message), sf.simulate("fp32"):
        call(sf.Tensor(np.ones((1, 1, 4, 4))))
