"""The checker of derivatives finds wrong derivatives, and names them."""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits

X = np.random.default_rng(0).standard_normal((2, 3))


def test_derivatives_that_are_right_pass():
    assert sf.gradcheck(lambda a, b: (a @ b.T).tanh(), (X, X + 1)) is True
    assert sf.gradcheck(lambda a: (a.exp(), a.sum()), [sf.Tensor(X, requires_grad=True)])
    assert sf.gradcheck(lambda a: a * a, 3.0)
    assert sf.gradcheck(sf.nn.MLP([3, 4, 2], rng=0), np.float32(X))
    assert sf.gradcheck(lambda a, labels: sf.nn.cross_entropy(a, labels), (X, np.array([0, 2])))
    assert sf.gradcheck(lambda a: a.sum(0), np.zeros((0, 3)))


def test_the_worst_derivative_is_named():
    wrong = lambda a, b: a * b.detach() + b  # noqa: E731
    with pytest.raises(
        ValueError,
        match=r"6 derivatives are wrong; the worst is that of result 0\[1, 0\] with respect to input 1\[1, 0\]: "
        r"1 by backward and -?\d.* by differences",
    ):
        sf.gradcheck(wrong, (np.array([[1.0, 1, 1], [-9, 1, 1]]), X))
    assert sf.gradcheck(wrong, (X, X), raise_exception=False) is False
    assert sf.gradcheck(wrong, (np.full((2, 3), 1e-7), X), atol=1e-6) is True
    with pytest.raises(ValueError, match="with respect to input 0: 0 by backward and 2 by differences"):
        sf.gradcheck(lambda a: 2 * a.detach(), 1.0)


def test_an_argument_that_cannot_be_called_is_refused():
    with pytest.raises(ValueError, match="gradcheck needs a function of the inputs or a module, .* got 3 first"):
        sf.gradcheck(3, X)


def test_a_nan_is_no_derivative():
    with pytest.raises(ValueError, match="nan"):
        sf.gradcheck(lambda a: (a - a.data.max()).log(), X[0])


def test_parameters_of_a_module_are_named_by_their_paths_and_left_as_they_were():
    class Wrong(sf.nn.Linear):
        def forward(self, x):
            return super().forward(x) + self.weight.detach().sum()

    model = Wrong(3, 2, rng=0)
    model.weight.grad = np.ones((2, 3))
    before, numbers = model.state_dict(), model.weight.data
    with pytest.raises(ValueError, match=r"with respect to weight\[\d, \d\]"):
        sf.gradcheck(model, X)
    assert model.weight.data is numbers and model.weight.grad.tolist() == [[1.0] * 3] * 2
    for path, array in model.state_dict().items():
        assert_bits(array, before[path])
    x = sf.Tensor(np.float32(X), requires_grad=True)
    assert sf.gradcheck(lambda a: a.square(), x) and x.grad is None and x.data.dtype == np.float32


def test_results_may_be_nested_tuples():
    assert sf.gradcheck(sf.nn.LSTM(2, 2, rng=0), np.linspace(-1, 1, 6).reshape(3, 1, 2))
    attention = sf.nn.MultiHeadAttention(2, 1, rng=0)
    x = np.linspace(-1, 1, 6).reshape(3, 2)
    assert sf.gradcheck(lambda x: attention(x, x, x, need_weights=False), x)


def test_running_statistics_are_left_as_they_were():
    layer = sf.nn.Sequential(sf.nn.BatchNorm1d(2))
    with sf.simulate("bf16-standard"):
        layer([[1.0, 2.0], [3.0, 5.0]])
    before = layer.state_dict()
    assert sf.gradcheck(layer, np.array([[1.0, 2.0], [3.0, 5.0], [0.0, 1.0]]))
    for path, numbers in layer.state_dict().items():
        assert_bits(numbers, before[path])


def test_the_policy_in_force_has_no_part_in_it():
    with sf.simulate(sf.Policy(compute=sf.E4M3)):
        assert sf.gradcheck(lambda a: a.exp(), X)


@pytest.mark.parametrize("call, message", [
    (lambda: sf.gradcheck(lambda a: a.data, X), "returns a tensor or several, got array"),
    (lambda: sf.gradcheck(lambda a: a, np.arange(3)), "needs an array of floats, a tensor that requires a gradient"),
    (lambda: sf.gradcheck(lambda a: a, sf.Tensor(X)), "needs an array of floats, a tensor that requires"),
    (lambda: sf.gradcheck(lambda a: a * np.random.default_rng().random(), X), "returns different values when it"),
    (lambda: sf.gradcheck(lambda a: a, X, eps=0), "eps must be a finite number, above 0; got 0"),
    (lambda: sf.gradcheck(lambda a: a, X, rtol=-1.0), "rtol must be a finite number, at least 0; got -1.0"),
    (lambda: sf.gradcheck(lambda a: a, X, atol="1"), "atol must be a finite number, at least 0; got '1'"),
])  # fmt: skip
def test_an_argument_that_cannot_be_checked_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
