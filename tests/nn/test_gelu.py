"""GELU step by step, and the logarithm of sums of exponentials."""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits

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
