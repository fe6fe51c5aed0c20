"""Random Hadamard transforms in products for gradients of parameters, and the whole recipe of NVFP4."""

import copy
from fractions import Fraction

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.definition import round_value
from simfloat.simulation.streams import seed_of
from tests.bits import assert_all_bits, assert_bits
from tests.reference import words_at_python

SIGNS = ("", "backward", "hadamard", None)


def turned(x, seed, size=16):
    """Runs of the rows of x (rows, k), each number an exact sum rounded once to FP32."""
    words = [words_at_python(i // 4, 0, 0, 0, seed_of(seed, SIGNS))[i % 4] for i in range(size)]
    signs = [-1 if word >= 2**31 else 1 for word in words]
    x = np.pad(x, ((0, 0), (0, -x.shape[1] % size)))
    out = np.empty(x.shape)
    for i, j in np.ndindex(*x.shape):
        run = x[i, j // size * size : j // size * size + size].tolist()
        entries = ((-1) ** (k & j % size).bit_count() for k in range(size))
        total = sum((Fraction(v) * s * h for v, s, h in zip(run, signs, entries, strict=True)), Fraction(0))
        out[i, j] = round_value(total / int(size**0.5), sf.FP32, sf.nearest_even)
    return out


def stepped(policy, layer, x, g, seed=0):
    """A layer's output, the gradient of its input, and that of its weight."""
    tensor = sf.Tensor(x, requires_grad=True)
    layer.weight.grad = None
    with sf.simulate(policy, seed=seed):
        y = layer(tensor)
        y.backward(g)
    return y.data, tensor.grad, layer.weight.grad


@pytest.mark.parametrize("size", [4, 16, 64])
def test_the_matrix_is_orthogonal_and_its_signs_follow_from_the_seed(size):
    one, again, other = (sf.hadamard(size).matrix(seed) for seed in (1, 1, 2))
    assert_bits(one @ one.T, np.eye(size))
    assert set(np.abs(one).ravel()) == {size**-0.5}
    assert_bits(one, again)
    assert size == 4 or (one != other).any()


@pytest.mark.parametrize("batch", [5, 16, 33])
def test_the_three_products_of_nvfp4s_recipe(batch, rng):
    policy, layer = sf.policies["nvfp4"], sf.nn.Linear(20, 18, bias=False, rng=3)
    x, g = sf.round(rng.standard_normal((batch, 20)), sf.BF16), sf.round(rng.standard_normal((batch, 18)), sf.BF16)
    y, x_grad, w_grad = stepped(policy, layer, x, g, seed=7)
    fine, square = sf.block(16, sf.E4M3), sf.block((16, 16), sf.E4M3)
    activations, weights = sf.scaled(sf.E2M1, fine), sf.scaled(sf.E2M1, square)
    gradients = sf.cast(sf.E2M1, sf.stochastic(), scale=fine)
    unit = dict(accumulate=sf.tensor_core("blackwell", sf.E2M1, scales=(16, sf.E4M3)), output=sf.BF16)

    def stream(operand):
        return sf.BitStream(seed_of(7, ("", "backward", "linear", operand)))

    w = layer.weight.data
    assert_bits(y, sf.matmul(x, w.T, inputs=(activations, weights), **unit))
    assert_bits(x_grad, sf.matmul(g, w, inputs=(gradients, weights), stream=stream(0), **unit))
    a, b = turned(g.T, 7), turned(x.T, 7).T
    assert_bits(w_grad, sf.matmul(a, b, inputs=(gradients, activations), stream=stream(1), **unit))
    again = stepped(policy, copy.deepcopy(layer), x, g, seed=7)[2]
    other = stepped(policy, layer, x, g, seed=8)[2]
    assert_bits(w_grad, again)
    assert (w_grad != other).any()


def test_a_rotation_leaves_exact_products_unchanged(rng):
    x, g = rng.integers(-9, 9, (21, 6)).astype(float), rng.integers(-9, 9, (21, 5)).astype(float)
    plain = sf.Policy(compute=sf.FP32)
    rotated = sf.Policy(compute=sf.FP32, rotation=sf.hadamard(16))
    layer = sf.nn.Linear(6, 5, bias=False, rng=1)
    assert_all_bits(stepped(rotated, layer, x, g), stepped(plain, layer, x, g))


@pytest.mark.parametrize("groups", [1, 2])
def test_the_gradient_of_kernels_is_turned_along_images_and_pixels(groups, rng):
    x, g = rng.standard_normal((2, 4, 4, 5)), rng.standard_normal((2, 6, 3, 4))
    policy = sf.Policy(compute=sf.BF16, weights=sf.FP32, activations=sf.FP32, rotation=sf.hadamard(4))
    layer = sf.nn.Conv2d(4, 6, 2, groups=groups, bias=False, rng=1)
    y, x_grad, w_grad = stepped(policy, layer, x, g, seed=3)
    plain = stepped(sf.Policy(compute=sf.BF16, weights=sf.FP32, activations=sf.FP32), layer, x, g)
    assert_bits(y, plain[0])
    assert_bits(x_grad, plain[1])
    patches = np.lib.stride_tricks.sliding_window_view(x, (2, 2), (2, 3)).transpose(1, 4, 5, 0, 2, 3)
    for group in range(groups):
        outputs, channels = (slice(group * n // groups, (group + 1) * n // groups) for n in (6, 4))
        a = turned(g[:, outputs].transpose(1, 0, 2, 3).reshape(6 // groups, 24), 3, 4)
        b = turned(patches[channels].reshape(-1, 24), 3, 4)
        want = sf.matmul(a, b.T, inputs=sf.BF16, accumulate=sf.FP32)
        assert_bits(w_grad[outputs], want.reshape(6 // groups, 4 // groups, 2, 2))


def test_the_gradient_of_a_parameter_that_is_an_image_is_turned_along_outputs(rng):
    image, g = sf.Parameter(rng.standard_normal((1, 3, 2, 2))), rng.standard_normal((1, 6, 2, 2))
    kernels = rng.standard_normal((6, 3, 1, 1))
    with sf.simulate(sf.Policy(compute=sf.E4M3, weights=sf.FP32, rotation=sf.hadamard(4), activations=sf.FP32), seed=3):
        image.conv2d(kernels).backward(g)
    a, b = turned(g.reshape(6, 4).T, 3, 4), turned(kernels.reshape(6, 3).T, 3, 4)
    want = sf.matmul(a, b.T, inputs=sf.E4M3, accumulate=sf.FP32)
    assert_bits(image.grad, want.T.reshape(image.shape))


def test_signs_take_no_draw_and_follow_a_loaded_seed(rng):
    x, g = rng.standard_normal((16, 4)), rng.standard_normal((16, 3))
    policy = sf.Policy(compute=sf.E4M3, weights=sf.FP32, activations=sf.FP32, rotation=sf.hadamard(16))
    layer, sim = sf.nn.Linear(4, 3, bias=False, rng=1), sf.simulate(policy, seed=1)
    with sim:
        layer(sf.Tensor(x)).backward(g)
    assert sim.state == {"seed": 1, "streams": []}
    assert_bits(layer.weight.grad, stepped(policy, layer, x, g, seed=1)[2])
    sim.load_state({"seed": 2, "streams": []})
    layer.weight.grad = None
    with sim:
        layer(sf.Tensor(x)).backward(g)
    assert_bits(layer.weight.grad, stepped(policy, layer, x, g, seed=2)[2])


def test_layers_and_parameters_may_be_left_unchanged(rng):
    policy = sf.policies["nvfp4"].override(
        "head", compute=sf.BF16, compute_gradients=sf.BF16, compute_weights=sf.BF16, accumulate=sf.FP32, rotation=None
    )
    assert sf.Policy.from_toml(policy.to_toml()) == policy
    model, x = sf.nn.MLP([16, 32, 5], rng=1), rng.standard_normal((16, 16))
    assert "hadamard(16)" in policy.explain(model)
    with sf.simulate(policy):
        hidden = model.hidden[0](sf.Tensor(x)).relu()
        model(sf.Tensor(x)).backward(np.ones((16, 5)))
    h = hidden.data
    want = sf.matmul(np.ones((5, 16)), h, inputs=sf.BF16, accumulate=sf.FP32, output=sf.BF16)
    assert_bits(model.head.weight.grad, want)


@pytest.mark.parametrize("call, message", [
    (lambda: sf.hadamard(8), "is 4, 16 or 64, got 8"),
    (lambda: sf.hadamard(True), "is 4, 16 or 64"),
    (lambda: sf.Policy(compute=sf.BF16, rotation=16), "rotation: A rotation is simfloat.hadamard.16., or None"),
    (
        lambda: sf.Policy(compute=sf.BF16).override(operation="relu", rotation=sf.hadamard()),
        "rotation has no effect",
    ),
])  # fmt: skip
def test_an_invalid_rotation_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
