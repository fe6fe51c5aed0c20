"""Activations and Flatten as layers."""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits


def test_leaky_relu_is_one_product_rounded_once():
    x = np.array([1.5, -1.5, 0.0, -0.0, np.inf, -np.inf, np.nan, 2.0**-9, -(2.0**-9)])
    with sf.simulate("bf16-standard"):
        t = sf.Tensor(x, requires_grad=True)
        y = sf.nn.LeakyReLU(0.1)(t)
        y.backward(np.full(9, 3.0))
    slopes = np.where(x > 0, 1, 0.1)
    assert_bits(y.data, sf.multiply(x, slopes, sf.BF16))
    assert_bits(t.grad, sf.multiply(3.0, slopes, sf.BF16))


@pytest.mark.parametrize("call, message", [
    (lambda t: t.pad((1,)), "a pair of integers from 0 for each of the last axes"),
    (lambda t: t.pad((1, -1)), r"got \(1, -1\)"),
    (lambda t: t.pad((1, 1, 1, 1, 1, 1)), r"shape \(2, 3\) got"),
    (lambda t: t.pad(2), "got 2"),
    (lambda t: t.pad((1, 1), [0.0]), "value of pad must be one number, got"),
    (lambda t: t.flatten(2), "axes from -2 to 1, got 2 to -1"),
    (lambda t: t.flatten(1, 0), "from the first to the last, got 1 to 0 of 2"),
    (lambda t: sf.nn.LeakyReLU([0.1]), "negative_slope must be a finite number"),
    (lambda t: sf.nn.LeakyReLU("a"), "negative_slope must hold real numbers"),
    (lambda t: sf.nn.ReLU(inplace=True), "inplace must be False, got True: tensors are never overwritten"),
    (lambda t: sf.nn.LeakyReLU(0.1, True), "inplace must be False, got True"),
    (lambda t: sf.nn.Dropout(0.1, True), "inplace must be False, got True"),
])  # fmt: skip
def test_bad_use_is_refused(call, message):
    with pytest.raises(ValueError, match=message), sf.simulate("fp32"):
        call(sf.Tensor(np.ones((2, 3))))
