"""Composites that a policy fuses: steps in the format of `reduce`, results and gradients rounded once."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import simfloat as sf

POLICY = sf.policies["bf16-standard"].override(
    operation=("softmax", "log_softmax", "logsumexp", "layer_norm"), fused=True
)
RNG = np.random.default_rng(3)
X = sf.round(RNG.normal(size=(5, 9)).astype(np.float32), sf.BF16)
G = sf.round(RNG.normal(size=(5, 9)).astype(np.float32), sf.BF16)


def softmax_slope(y, g):
    """y * g - y * sum(y * g), every operation in FP32."""
    product = sf.multiply(y, g, sf.FP32)
    total = sf.sum(product, accumulate=sf.FP32, axis=1)[:, None]
    return sf.subtract(product, sf.multiply(y, total, sf.FP32), sf.FP32)


def through(function, x=X, g=G, policy=POLICY):
    """The result and the gradient, by PyTorch."""
    leaf = torch.from_numpy(x.copy()).requires_grad_()
    with sf.torch.simulate(torch.nn.Identity(), policy):
        y = function(leaf * 1.0)
        y.backward(torch.from_numpy(g.copy())[tuple(map(slice, y.shape))])
    return y.detach().numpy(), leaf.grad.numpy()


def test_the_result_of_a_fused_composite_has_the_bits_of_our_own():
    for theirs, ours in (
        (lambda x: x.softmax(1), lambda x: x.softmax(1)),
        (lambda x: x.log_softmax(1), lambda x: x.log_softmax(1)),
        (lambda x: x.logsumexp(1), lambda x: x.logsumexp(1)),
        (lambda x: F.layer_norm(x, (9,)), lambda x: sf.nn.LayerNorm(9, elementwise_affine=False)(x)),
    ):
        fused, apart = (
            through(lambda x, of=theirs: torch.atleast_2d(of(x)), policy=p)[0] for p in (POLICY, "bf16-standard")
        )
        with sf.simulate(POLICY):
            own = ours(sf.Tensor(X)).data
        np.testing.assert_array_equal(fused.reshape(own.shape), own)
        assert not np.array_equal(fused, apart)


def test_the_gradient_of_a_fused_softmax_is_computed_in_fp32_and_rounded_once():
    y, gradient = through(lambda x: x.softmax(1))
    np.testing.assert_array_equal(gradient, sf.round(softmax_slope(y, G), sf.BF16))
    assert not np.array_equal(gradient, through(lambda x: x.softmax(1), policy="bf16-standard")[1])


def test_gradients_of_a_fused_layer_norm_are_rounded_to_the_roles_of_what_they_belong_to():
    policy = replace(sf.policies["bf16-standard"], fused=True, activation_gradients=sf.E5M2, weight_gradients=sf.FP16)
    torch.manual_seed(0)
    model, x = torch.nn.LayerNorm(9), torch.from_numpy(X.copy()).requires_grad_()
    with sf.torch.simulate(model, policy):
        model(x).backward(torch.from_numpy(G.copy()))
    for gradient, format in ((x.grad, "e5m2"), (model.weight.grad, "fp16"), (model.bias.grad, "fp16")):
        np.testing.assert_array_equal(gradient, sf.round(gradient.numpy(), format))
    y = F.layer_norm(torch.from_numpy(X).double(), (9,)).numpy()
    np.testing.assert_allclose(model.weight.grad, (y * G).sum(0), rtol=2**-11, atol=2**-18)


def test_sums_that_are_exact_and_means_of_bags_are_not_fused():
    policy = replace(sf.policies["bf16-standard"], fused=True)
    bag = torch.nn.EmbeddingBag(4, 3, mode="mean")
    with sf.torch.simulate(bag, policy), pytest.raises(ValueError, match="_embedding_bag.*fused=False"):
        bag(torch.tensor([[0, 1]]))
    with pytest.raises(ValueError, match="fused softmax"):
        through(lambda x: x.softmax(1), policy=replace(policy, reduce=sf.exact))
