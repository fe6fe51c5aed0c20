"""Averages of windows, activations with a bend, and running sums."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import simfloat as sf
from tests.bits import assert_bits
from tests.torch.compared import Function, check_format, compare_with_plain

X = torch.from_numpy(np.random.default_rng(2).normal(size=(2, 3, 7, 6)))

FUNCTIONS = {
    "avg_pool2d": lambda x: F.avg_pool2d(x, (3, 2), 2, 1, ceil_mode=True, count_include_pad=False),
    "overlapping": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "divisor": lambda x: F.avg_pool2d(x, 2, divisor_override=3),
    "one image": lambda x: F.avg_pool2d(x[0], 2),
    "avg_pool1d": lambda x: F.avg_pool1d(x[0], 2),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, (3, 4)),
    "adaptive to one": lambda x: F.adaptive_avg_pool2d(x, 1),
    "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(x[0], 4),
    "softplus": lambda x: F.softplus(x * 30, beta=0.5, threshold=3),
    "elu": lambda x: F.elu(x, 0.7),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 1.3),
    "elu_": lambda x: F.elu(x * 1.0, 0.5, inplace=True),
    "cumsum": lambda x: x.cumsum(-1) * x.cumsum(1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_and_gradients_are_those_of_plain_pytorch_and_numbers_of_the_policys_format(name):
    compare_with_plain(Function.of(FUNCTIONS[name]), X)
    check_format(Function.of(FUNCTIONS[name]), X)


def test_averages_of_unlike_windows_have_the_bits_of_our_own():
    # simfloat adds gradients one window after the other.
    with sf.torch.simulate(torch.nn.Identity(), "bf16-standard"):
        theirs = FUNCTIONS["adaptive"](X.float())
    with sf.simulate("bf16-standard"):
        assert_bits(sf.nn.AdaptiveAvgPool2d((3, 4))(X.float().numpy()).data, theirs)


@pytest.mark.parametrize("kind", ["MaxPool", "AvgPool"])
@pytest.mark.parametrize("reduce", [sf.FP16, sf.pairwise(sf.BF16)], ids=str)
def test_windows_that_give_a_pixel_nothing_are_zeros_in_its_sum_as_in_our_own_layers(kind, reduce):
    policy = sf.Policy(compute=sf.FP32, reduce=reduce)
    x = torch.randn(2, 1, 6, 5, generator=torch.Generator().manual_seed(1))
    for window, step, border in ((3, 2, 1), (2, 1, 0), (4, 1, 2)):
        own, image = getattr(sf.nn, kind + "2d")(window, step, border), sf.Tensor(x.numpy(), requires_grad=True)
        with sf.simulate(policy):
            y = own(image)
            (y * y).sum().backward()
        for axes, shape, options in (
            (2, x.shape, (window, step, border)),
            (3, (*x.shape, 1), ((window, window, 1), (step, step, 1), (border, border, 0))),
        ):
            theirs, pixels = getattr(torch.nn, f"{kind}{axes}d")(*options), x.reshape(shape).requires_grad_()
            with sf.torch.simulate(theirs, policy):
                y = theirs(pixels)
                (y * y).sum().backward()
            np.testing.assert_array_equal(pixels.grad.reshape(x.shape), image.grad)
