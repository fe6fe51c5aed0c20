"""A convolution has the bits of the package's own layer, forward and in all of its gradients."""

import numpy as np
import pytest
import torch

import simfloat as sf

OPTIONS = {"padding": 2, "stride": 2, "dilation": 2, "groups": 2}

#: The bias's gradient adds what came to the addition, and the product's gradients read what it was rounded to.
NARROW_ADDITIONS = sf.Policy(compute=sf.FP32, reduce=sf.BF16, name="narrow additions").override(
    operation="add", activations=sf.FP16
)


@pytest.mark.parametrize("layer", ["Conv2d", "ConvTranspose2d", "Conv3d", "ConvTranspose3d"])
@pytest.mark.parametrize("policy", [*sf.policies, NARROW_ADDITIONS], ids=lambda policy: getattr(policy, "name", policy))
def test_a_convolution_and_its_gradients_have_the_bits_of_our_own_under_every_preset(policy, layer):
    dtype, rng = np.float64 if policy == "fp64" else np.float32, np.random.default_rng(1)
    torch.manual_seed(0)
    theirs = getattr(torch.nn, layer)(4, 6, 3, **OPTIONS, dtype=torch.float64 if policy == "fp64" else torch.float32)
    own = getattr(sf.nn, layer)(4, 6, 3, **OPTIONS)
    own.load_state_dict({key: value.numpy().copy() for key, value in theirs.state_dict().items()})
    x = rng.normal(size=(2, 4, *((7, 6) if layer.endswith("2d") else (4, 5, 6)))).astype(dtype)
    a, b = torch.from_numpy(x.copy()).requires_grad_(), sf.Tensor(x.copy(), requires_grad=True)
    with sf.torch.simulate(theirs, policy, 3):
        y = theirs(a * 1.0)
        g = rng.normal(size=y.shape).astype(dtype)
        (y * torch.from_numpy(g)).sum().backward()
    with sf.simulate(policy, 3):
        z = own(b * 1.0)
        (z * sf.Tensor(g)).sum().backward()
    np.testing.assert_array_equal(y.detach(), z.data)
    np.testing.assert_array_equal(a.grad, b.grad)
    np.testing.assert_array_equal(theirs.weight.grad, own.weight.grad)
    np.testing.assert_array_equal(theirs.bias.grad, own.bias.grad)


@pytest.mark.parametrize("scale", [None, sf.per_tensor()])
def test_numbers_of_a_volume_are_rounded_once_and_scaled_as_a_whole(scale):
    policy = sf.Policy(
        compute=sf.cast(sf.E4M3, sf.stochastic(9), scale=scale),
        weights=sf.FP32,
        activations=sf.FP32,
        accumulate=sf.FP32,
    )
    x, results, recorded = torch.randn(2, 1, 6, 5, generator=torch.Generator().manual_seed(1)), [], []
    x[:, :, 5] = 100.0  # which no kernel meets
    for kind, shape in (("Conv2d", x.shape), ("Conv3d", (*x.shape, 1))):
        layer, recorder = getattr(torch.nn, kind)(1, 1, (3, *[1] * (len(shape) - 3)), bias=False), sf.Recorder()
        layer.stride = (2, *[1] * (len(shape) - 3))
        torch.nn.init.ones_(layer.weight)
        image = x.reshape(shape).requires_grad_()
        with sf.torch.simulate(layer, policy, 3, observer=recorder):
            layer(image).square().sum().backward()
        results.append((image.grad.ravel(), layer.weight.grad.ravel()))
        recorded.append(recorder.table())
    for two, three in zip(*results, strict=True):
        np.testing.assert_array_equal(two, three)
    assert str(recorded[0]) == str(recorded[1])
