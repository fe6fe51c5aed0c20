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


def leaky_relu(a, slope):
    if isinstance(a, sf.Tensor):
        return a.leaky_relu(slope)
    if isinstance(slope, float):
        return torch.nn.functional.leaky_relu(a, slope)
    return torch.nn.functional.prelu(a, slope)


def padded(a, widths, value=0.0):
    return a.pad(widths, value) if isinstance(a, sf.Tensor) else torch.nn.functional.pad(a, widths, value=value)


CASES = {
    **{name: (of_one(name), (POSITIVE if oracle.positive else A,)) for name, oracle in UNARY_FUNCTIONS.items()},
    "digamma": (lambda a: of_one("digamma")(a * 100.0), (POSITIVE,)),  # below PyTorch's derivative has nine digits
    "ndtri": (lambda a: of_one("ndtri")(of_one("sigmoid")(a)), (A,)),
    "add": (lambda a, b: a + b, (A, B)),
    "add broadcast row": (lambda a, b: a + b, (A, ROW)),
    "subtract broadcast column": (lambda a, b: a - b, (COLUMN, A)),
    "multiply": (lambda a, b: a * b, (A, B)),
    "multiply broadcast": (lambda a, b: a * b, (CUBE, ROW)),
    "multiply outer": (lambda a, b: a * b, (COLUMN, ROW)),
    "divide": (lambda a, b: a / b, (A, POSITIVE)),
    "hypot": (lambda a, b: a.hypot(b), (A, B)),
    "divide broadcast": (lambda a, b: a / b, (COLUMN, POSITIVE)),
    "scalars": (lambda a: 2.5 * (1.0 - a) / 3.0 + 1.0 / (a * a + 1), (A,)),
    "negative": (lambda a: -a, (A,)),
    "power": (lambda a, b: a**b, (POSITIVE, B)),
    "power broadcast": (lambda a, b: a**b, (POSITIVE, ROW)),
    "power with a scalar": (lambda a: a**3 + a**0, (A,)),
    "power of a scalar": (lambda a: 2.5**a, (A,)),
    "power at zero": (lambda a, b: a**b, (np.array([0.0, 0.0, 2.0, 0.0]), np.array([0.0, 2.0, 0.0, 1.0]))),
    "relu": (lambda a: a.relu(), (A,)),
    "leaky_relu": (lambda a: leaky_relu(a, 0.1), (A,)),
    "leaky_relu of a learned slope": (lambda a, b: leaky_relu(a, b), (CUBE[:, :, 0], np.array([0.25]))),
    "abs": (lambda a: a.abs(), (A,)),
    "square": (lambda a: a.square(), (A,)),
    "same operand twice": (lambda a: a * a + a, (A,)),
    "sum": (lambda a: a.sum(), (A,)),
    "sum of an axis": (lambda a: a.sum(1), (CUBE,)),
    "sum of axes": (lambda a: a.sum((0, 2)), (CUBE,)),
    "mean": (lambda a: a.mean(), (CUBE,)),
    "mean of an axis": (lambda a: a.mean(-1), (CUBE,)),
    "matmul": (lambda a, b: a @ b, (A, MATRIX)),
    "matmul batched": (lambda a, b: a @ b, (CUBE, MATRIX)),
    "matmul of batches": (lambda a, b: a @ b, (CUBE, RNG.standard_normal((3, 5, 2)))),
    "matmul broadcast": (lambda a, b: a @ b, (A, RNG.standard_normal((3, 5, 2)))),
    "matmul with a vector": (lambda a, b: a @ b, (A, ROW)),
    "matmul of a vector": (lambda a, b: a @ b, (ROW, MATRIX)),
    "dot": (lambda a, b: a @ b, (ROW, ROW + 1)),
    "reshape": (lambda a: (a.reshape(2, 10) * a.reshape(2, 10)).reshape(20), (A,)),
    "transpose": (lambda a, b: a.T @ b, (A, B)),
    "flatten": (lambda a, b: a.flatten(1) @ b, (CUBE, RNG.standard_normal((20, 2)))),
    "flatten everything": (lambda a, b: a.flatten() * b.flatten(0, 1), (A, B)),
    "pad": (lambda a: padded(padded(a, (1, 0, 0, 2)), (2, 1), 3.0).square(), (A,)),
    "index": (lambda a: a[1:, ::2] * a[0, 1], (A,)),
    "softmax": (lambda a: a.softmax(-1) * 3.0, (A,)),
    "softmax of axis 0": (lambda a: a.softmax(0).square(), (A,)),
    "log_softmax": (lambda a: a.log_softmax(-1), (CUBE,)),
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


def test_max_equals_torch_where_there_is_no_tie():
    with sf.simulate("fp64"):
        x = sf.Tensor(CUBE, requires_grad=True)
        (x.max(1) * 2.0).sum().backward()
    theirs = torch.tensor(CUBE, requires_grad=True)
    (theirs.amax(1) * 2.0).sum().backward()
    assert_bits(x.grad, theirs.grad.numpy())
    with sf.simulate("fp64"):
        y = sf.Tensor([[1.0, 2.0, 2.0]], requires_grad=True)
        y.max((0, 1)).backward()
        assert y.max(1, keepdims=True).shape == (1, 1)
    assert y.grad.tolist() == [[0.0, 1.0, 0.0]], "of equal elements the first one has it"


@pytest.mark.parametrize("momentum, nesterov, decay", [(0, False, 0), (0.9, False, 0.01), (0.9, True, 0.0)])
def test_training_an_mlp_follows_torch_in_double_precision(momentum, nesterov, decay):
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((16, 7)), rng.integers(0, 4, 16)
    mine = sf.nn.MLP([7, 6, 5, 4], rng=2)
    layers = []
    for inputs, outputs in ((7, 6), (6, 5)):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    theirs = torch.nn.Sequential(*layers, torch.nn.Linear(5, 4)).double()
    state = [torch.tensor(value) for value in mine.state_dict().values()]
    theirs.load_state_dict(dict(zip(theirs.state_dict(), state, strict=True)))
    options = dict(momentum=momentum, nesterov=nesterov, weight_decay=decay)
    optimizer, other = (
        sf.optim.SGD(mine.parameters(), 0.1, **options),
        torch.optim.SGD(theirs.parameters(), 0.1, **options),
    )
    with sf.simulate("fp64"):
        for _ in range(5):
            optimizer.zero_grad(), other.zero_grad()
            loss = sf.nn.cross_entropy(mine(x), y)
            loss.backward()
            want = torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(y))
            want.backward()
            assert abs(loss.item() - want.item()) < 1e-13
            optimizer.step(), other.step()
    for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(a.data, b.detach().numpy(), rtol=1e-12, atol=1e-14)


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
