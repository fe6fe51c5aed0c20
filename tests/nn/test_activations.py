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


def test_relu_is_the_tensors_own():
    with sf.simulate("fp16-standard"):
        assert_bits(sf.nn.ReLU()([-1.0, 0.1]).data, sf.round([0.0, 0.1], sf.FP16))


def test_a_leaky_relu_that_lists_leave_alone_runs_in_its_operands_format():
    policy = sf.Policy(compute=sf.FP16).override(operation="leaky_relu", activations="widest")
    with sf.simulate(policy):
        assert sf.nn.LeakyReLU()(sf.Tensor([-1.0]) * 1.0).format == sf.FP16


def test_a_number_becomes_flat_as_one_element():
    with sf.simulate("fp64"):
        assert sf.Tensor(1.0).flatten().shape == (1,)


def test_padding_keeps_the_format_and_rounds_its_number_to_it():
    with sf.simulate("fp16-standard"):
        x = sf.Tensor([[1.0, 2.0]]) * 1.0
        assert x.pad((1, 0, 0, 1), -np.inf).format == sf.FP16
        assert_bits(x.pad((0, 2)).data, [[1.0, 2.0, 0.0, 0.0]])
        assert_bits(sf.Tensor(np.ones(1, np.float32)).pad((1, 0), 0.1).data, [0.1, 1.0])
        assert_bits(x.pad((1, 1), 0.1).data, np.float32([[0.0999755859375, 1.0, 2.0, 0.0999755859375]]))
        assert_bits(x.pad((1, 0), -1e9).data, np.float32([[-np.inf, 1.0, 2.0]]))


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
