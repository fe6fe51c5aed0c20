"""Gradients: equal to torch's in double precision, over all operations and a whole training run."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.tools.selftest.operations import UNARY_FUNCTIONS
from tests.bits import assert_bits

torch = pytest.importorskip("torch", reason="needs torch as an oracle")

RNG = np.random.default_rng(7)
A, B = RNG.standard_normal((4, 5)), RNG.standard_normal((4, 5))
ROW, COLUMN = RNG.standard_normal(5), RNG.standard_normal((4, 1))
CUBE, MATRIX = RNG.standard_normal((3, 4, 5)), RNG.standard_normal((5, 6))
POSITIVE = np.abs(A) + 0.5


#: Functions that are missing in torch.
COMPOSED = {
    "exp10": lambda a: 10.0**a,
    "cbrt": lambda a: a.sign() * a.abs() ** (1 / 3),
    "sinpi": lambda a: torch.sin(torch.pi * a),
    "cospi": lambda a: torch.cos(torch.pi * a),
}


def of_one(name):
    """A function of one operand, as a method of ours and as torch has it."""
    rooms = (torch, torch.special, torch.nn.functional)
    theirs = COMPOSED.get(name) or next(getattr(room, name) for room in rooms if hasattr(room, name))
    return lambda a: theirs(a) if isinstance(a, torch.Tensor) else getattr(a, name)()


CASES = {
    **{name: (of_one(name), (POSITIVE if oracle.positive else A,)) for name, oracle in UNARY_FUNCTIONS.items()},
    "digamma": (lambda a: of_one("digamma")(a * 100.0), (POSITIVE,)),  # below PyTorch's derivative has nine digits
    "ndtri": (lambda a: of_one("ndtri")(of_one("sigmoid")(a)), (A,)),
    "scalars": (lambda a: 2.5 * (1.0 - a) / 3.0 + 1.0 / (a * a + 1), (A,)),
    "power with a scalar": (lambda a: a**3 + a**0, (A,)),
    "power of a scalar": (lambda a: 2.5**a, (A,)),
    "power at zero": (lambda a, b: a**b, (np.array([0.0, 0.0, 2.0, 0.0]), np.array([0.0, 2.0, 0.0, 1.0]))),
    "same operand twice": (lambda a: a * a + a, (A,)),
    "sum of axes": (lambda a: a.sum((0, 2)), (CUBE,)),
    "matmul": (lambda a, b: a @ b, (A, MATRIX)),
    "matmul batched": (lambda a, b: a @ b, (CUBE, MATRIX)),
    "matmul of batches": (lambda a, b: a @ b, (CUBE, RNG.standard_normal((3, 5, 2)))),
    "matmul broadcast": (lambda a, b: a @ b, (A, RNG.standard_normal((3, 5, 2)))),
    "matmul with a vector": (lambda a, b: a @ b, (A, ROW)),
    "matmul of a vector": (lambda a, b: a @ b, (ROW, MATRIX)),
    "dot": (lambda a, b: a @ b, (ROW, ROW + 1)),
    "reshape": (lambda a: (a.reshape(2, 10) * a.reshape(2, 10)).reshape(20), (A,)),
    "flatten": (lambda a, b: a.flatten(1) @ b, (CUBE, RNG.standard_normal((20, 2)))),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_equal_torch_in_double_precision(name):
    function, arrays = CASES[name]
    weights = None
    theirs = [torch.tensor(x, requires_grad=True) for x in arrays]
    result = function(*theirs)
    weights = np.random.default_rng(1).standard_normal(tuple(result.shape))
    (result * torch.tensor(weights)).sum().backward()
    with sf.simulate("fp64"):
        ours = [sf.Tensor(x, requires_grad=True) for x in arrays]
        mine = function(*ours)
        (mine * weights).sum().backward()
    np.testing.assert_allclose(mine.data, result.detach().numpy(), rtol=1e-14, atol=1e-15)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.grad, b.grad.numpy(), rtol=1e-13, atol=1e-14)


def test_of_equal_largest_elements_the_first_one_has_the_gradient():
    with sf.simulate("fp64"):
        y = sf.Tensor([[1.0, 2.0, 2.0]], requires_grad=True)
        y.max((0, 1)).backward()
        assert y.max(1, keepdims=True).shape == (1, 1)
    assert y.grad.tolist() == [[0.0, 1.0, 0.0]]


@pytest.mark.parametrize("axes", [(-1, 0, 1), (2, 0, 1), (0, -1, -2), ((1, 0, 2),), ([-2, -1, 0],), ()], ids=str)
def test_transposing_back_undoes_any_order_of_axes(axes):
    with sf.simulate("fp64"):
        t = sf.Tensor(CUBE, requires_grad=True)
        moved = t.transpose(*axes)
        assert_bits(moved.data, CUBE.transpose(*axes))
        moved.backward(CUBE.transpose(*axes))
    assert_bits(t.grad, CUBE)


@pytest.mark.parametrize("axes", [(0, 0, 1), (0, 1), (0, 1, 3), (0, 1, -4), (0.0, 1, 2), ("a",)], ids=str)
def test_orders_that_do_not_name_every_axis_once_are_refused(axes):
    swapping = "transpose needs each of the 3 axes once, got 0, 1. To exchange two axes, call swapaxes"
    with pytest.raises(ValueError, match=swapping), sf.simulate("fp64"):
        sf.Tensor(np.ones((2, 3, 4))).transpose(0, 1)
    with pytest.raises(ValueError, match="transpose needs each of the 3 axes once, got"), sf.simulate("fp64"):
        sf.Tensor(CUBE).transpose(*axes)


@pytest.mark.parametrize("format", [sf.BF16, sf.FP32, sf.E4M3, sf.E5M2])
def test_slopes_of_quotients_powers_and_roots_are_pytorchs_formulas_with_every_step_rounded(format):
    policy = sf.Policy(compute=sf.FP32, activation_gradients=format)
    x, c, g = (np.abs(each).astype(np.float32) + np.float32(0.1) for each in (A, B, MATRIX[:4, :5]))
    g = sf.round(g, format)

    def gradient(function):
        with sf.simulate(policy):
            t = sf.Tensor(x, requires_grad=True)
            y = function(t)
            y.backward(g)
        return t.grad, y.data

    def multiply(a, b):
        return sf.multiply(a, b, format)

    def divide(a, b):
        return sf.divide(a, b, format)

    assert_bits(gradient(lambda t: c / t)[0], multiply(-g, divide(divide(c, x), x)))
    assert_bits(gradient(lambda t: t.square())[0], multiply(g, multiply(2.0, sf.round(x, format))))
    found, y = gradient(lambda t: t.sqrt())
    assert_bits(found, divide(g, multiply(2.0, y)))
    found, y = gradient(lambda t: t.rsqrt())
    assert_bits(found, multiply(multiply(-0.5, g), sf.power(y, 3.0, format)))
    # Of a plain number b - 1 is not rounded: in these formats it would become another one.
    assert_bits(gradient(lambda t: t**0.7)[0], multiply(g, multiply(0.7, sf.power(x, 0.7 - 1.0, format))))


def test_the_gradient_of_a_power_0_is_0_even_of_an_infinite_gradient():
    with sf.simulate("fp32"):
        t = sf.Tensor([0.0, -2.0, 3.0], requires_grad=True)
        (t**0.0).backward([1.0, -1.0, np.inf])
    assert_bits(t.grad, [0.0, 0.0, 0.0])


def test_a_nan_passes_relu_and_so_does_its_gradient():
    with sf.simulate("fp32"):
        t = sf.Tensor([np.nan, -1.0, 0.0, 2.0], requires_grad=True)
        y = t.relu()
        y.backward([3.0, 3.0, 3.0, 3.0])
    assert_bits(y.data, [np.nan, 0.0, 0.0, 2.0])
    assert t.grad.tolist() == [3.0, 0.0, 0.0, 3.0]


def test_infinite_gradients_of_abs_are_torchs():
    with sf.simulate("fp32"):
        t = sf.Tensor([0.0, 1.0], requires_grad=True)
        t.abs().backward([np.inf, np.inf])
    assert_bits(t.grad, [np.nan, np.inf])
