"""Activations step by step, logarithms of sums of exponentials, and layer norms."""

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


X = np.random.default_rng(2).standard_normal((3, 5)) * 2


def test_the_approximation_is_rounded_step_by_step():
    x = sf.round(X, sf.BF16)
    with sf.simulate("bf16-standard"):
        y = sf.nn.GELU("tanh")(x)

    def of(name, *operands):
        return getattr(sf, name)(*operands, sf.BF16)

    cube = of("multiply", of("multiply", of("multiply", x, x), x), 0.044715)
    inner = of("multiply", of("add", x, cube), np.sqrt(2 / np.pi))
    assert_bits(y.data, of("multiply", of("multiply", x, 0.5), of("add", of("tanh", inner), 1.0)))


@pytest.mark.parametrize("axis", [0, (0, 1), None])
def test_logsumexp_equals_torchs_and_is_minus_infinity_of_nothing_else(axis):
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    x = X.copy()
    x[:, 1] = -np.inf
    theirs = torch.tensor(x, requires_grad=True)
    want = theirs.logsumexp((0, 1) if axis is None else axis)
    finite = torch.where(torch.isfinite(want), want, torch.zeros(()))
    finite.sum().backward()
    with sf.simulate("fp64"):
        mine = sf.Tensor(x, requires_grad=True)
        got = mine.logsumexp(axis)
        got.backward(np.isfinite(got.data).astype(float))
    np.testing.assert_allclose(got.data, want.detach().numpy(), rtol=1e-13)
    np.testing.assert_allclose(mine.grad, theirs.grad.nan_to_num().numpy(), rtol=1e-12)


def test_logsumexp_of_an_infinity_is_infinity():
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    x = np.array([[np.inf, 1.0], [np.inf, -np.inf], [np.inf, np.inf], [np.nan, np.inf], [-np.inf, -np.inf]])
    for policy in ("fp64", "bf16-standard"):
        with sf.simulate(policy):
            np.testing.assert_array_equal(sf.Tensor(x).logsumexp(1).data, torch.tensor(x).logsumexp(1).numpy())


def test_another_approximation_is_refused():
    with pytest.raises(ValueError, match="approximate must be 'none' or 'tanh', got 'sigmoid'"):
        sf.nn.GELU("sigmoid")
    assert repr(sf.nn.Sequential(sf.nn.GELU("tanh"), sf.nn.Softmax(0))) == (
        "Sequential(\n  (0): GELU(approximate='tanh')\n  (1): Softmax(dim=0)\n)"
    )


RNG = np.random.default_rng(8)


def scalar_norm(row, weight, bias, eps, format):
    """The steps on a row of numbers, each rounded to the format, sums in FP32."""

    def mean(numbers):
        return float(sf.divide(sf.sum(numbers, accumulate=sf.FP32, output=format), len(numbers), format))

    average = mean(row)
    below = [float(sf.subtract(x, average, format)) for x in row]
    variance = mean([float(sf.multiply(d, d, format)) for d in below])
    scale = float(sf.rsqrt(sf.add(variance, eps, format), format))
    scaled = [float(sf.multiply(d, scale, format)) for d in below]
    return [float(sf.add(sf.multiply(s, w, format), b, format)) for s, w, b in zip(scaled, weight, bias, strict=True)]


def test_every_step_is_rounded_and_a_fused_one_once():
    layer = sf.nn.LayerNorm(6)
    layer.weight.data[:], layer.bias.data[:] = sf.round(RNG.standard_normal((2, 6)), sf.BF16)
    x = sf.round(RNG.standard_normal((7, 6)) * 3 + 1, sf.BF16)
    policy = sf.policies["bf16-standard"]
    with sf.simulate(policy):
        stepwise = layer(x)
    with sf.simulate(policy.override(operation="layer_norm", fused=True)):
        fused = layer(x)
    w, b = layer.weight.data, layer.bias.data
    assert stepwise.format == fused.format == sf.BF16
    for row, step, once in zip(x, stepwise.data, fused.data, strict=True):
        assert_bits(step, scalar_norm(row, w, b, 1e-5, sf.BF16))
        assert_bits(once, sf.round(scalar_norm(row, w, b, 1e-5, sf.FP32), sf.BF16))


def test_it_prints_as_the_call_that_makes_it():
    assert repr(sf.nn.LayerNorm(4, bias=False)).startswith("LayerNorm((4,), eps=1e-05, bias=False)")
