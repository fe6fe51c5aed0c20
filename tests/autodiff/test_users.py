"""Operations that a user defines follow policies in the same way as built-in ones."""

import copy
import pickle
import sys
from types import FunctionType

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits

X = np.float32(np.random.default_rng(3).standard_normal((3, 4)))
W = np.float32(np.random.default_rng(4).standard_normal((5, 4)))


def swish_slope(u, g, y, x):
    s = u.sigmoid(x)
    return u.multiply(g, u.fma(y, u.subtract(1, s), s))


@sf.operation(swish_slope)
def own_swish(u, x):
    """x * sigmoid(x)."""
    return u.multiply(x, u.sigmoid(x))


@sf.operation(
    lambda u, g, y, x, low, *, scale: u.multiply(g, np.where(x > low, u.round(scale), np.float32(0))),
    lambda u, g, y, x, low, *, scale: u.multiply(g, np.where(x > low, np.float32(0), u.round(scale))),
)
def own_floor(u, x, low, *, scale=2.0):
    """scale * max(x, low)."""
    return u.multiply(np.maximum(x, low), scale)


@sf.operation(
    lambda u, g, y, x, weight: u.matmul(g, weight, "gradient", "weight"),
    lambda u, g, y, x, weight: u.matmul(g.T, x, "gradient", "x"),
    kind="contraction",
)
def own_linear(u, x, weight):
    """X times the transposed weight."""
    return u.matmul(x, weight.T, "x", "weight")


@sf.operation(
    lambda u, g, y, x: u.multiply(np.broadcast_to(g[:, np.newaxis], x.shape), u.multiply(2, x)), kind="reduction"
)
def own_energy(u, x):
    """The sum of squares of every row."""
    return u.sum(u.multiply(x, x), axis=-1)


@sf.operation(kind="composite")
def own_mish(x):
    """x * tanh(log(1 + exp(x)))."""
    return x * (1 + x.exp()).log().tanh()


@sf.operation(None)
def own_step(u, x):
    """1 above 0, otherwise 0."""
    return u.round(np.float32(x > 0))


def test_every_step_of_a_users_operation_is_rounded_to_the_roles_of_its_place():
    policy = sf.Policy(compute=sf.BF16, activations=sf.FP16, gradients=sf.E5M2)
    x = sf.Tensor(X, requires_grad=True)
    with sf.simulate(policy):
        y = own_swish(x)
        y.backward(np.ones_like(X))
    sigmoid = sf.sigmoid(X, sf.FP16)
    assert y.format == sf.FP16
    assert_bits(y.data, sf.multiply(X, sigmoid, sf.FP16))
    s = sf.sigmoid(X, sf.E5M2)
    slope = sf.fma(y.data, sf.subtract(1, s, sf.E5M2), s, sf.E5M2)
    assert_bits(x.grad, sf.multiply(1, slope, sf.E5M2))


def test_operands_broadcast_and_their_gradients_are_summed_through_reduce():
    low = sf.Tensor(np.float32([0.1, 0.2, -0.3, 0.0]), requires_grad=True)
    with sf.simulate("bf16-standard"):
        y = own_floor(X, low, scale=3.0)
        y.backward(np.ones_like(X))
    assert_bits(y.data, sf.multiply(np.maximum(X, low.data), 3.0, sf.BF16))
    assert_bits(low.grad, sf.sum(np.where(X > low.data, 0, 3.0), 0, accumulate=sf.FP32, output=sf.BF16))


def test_a_contraction_rounds_operands_and_gradients_as_linear_does():
    policy = sf.Policy(compute=sf.BF16, compute_gradients=sf.E5M2, weights=sf.FP32, activations=sf.FP32)
    policy = policy.override("weight", compute=sf.E4M3)
    recorders, results = [], []
    for function in (lambda m, x: m(x), lambda m, x: own_linear(x, m.weight)):
        model, recorder = sf.nn.Linear(4, 5, bias=False, rng=1), sf.Recorder()
        x = sf.Tensor(X, requires_grad=True)
        with sf.simulate(policy, observer=recorder):
            y = function(model, x)
            y.backward(np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5))
        results.append((y.data, x.grad, model.weight.grad))
        recorders.append([recorder.counts(operation=f"cast_{what}") for what in ("input", "weight", "gradient")])
    for ours, own in zip(*results, strict=True):
        assert_bits(own, ours)
    assert recorders[0] == recorders[1]


@pytest.mark.parametrize("function, inputs", [
    (own_swish, X), (own_floor, (X, np.array([0.1, 0.2, -0.3, 0.0]))), (own_linear, (X, W)), (own_energy, X),
    (own_mish, X),
], ids=lambda x: getattr(x, "__name__", ""))  # fmt: skip
def test_their_derivatives_are_checked_as_any(function, inputs):
    assert sf.gradcheck(function, inputs)


def test_overrides_reach_them_by_name_and_by_kind_and_composites_with_all_inside():
    policy = sf.policies["bf16-standard"].override(operation="own_swish", activations=sf.FP32)
    with sf.simulate(policy):
        assert own_swish(X).format == sf.FP32 and sf.Tensor(X).exp().format == sf.BF16
    with sf.simulate(sf.policies["bf16-standard"].override(operation="reduction", activations=sf.FP16)):
        assert own_energy(X).format == sf.FP16 and own_swish(X).format == sf.BF16
    with sf.simulate(sf.policies["bf16-standard"].override(operation="own_mish", activations=sf.FP16)):
        assert own_mish(sf.Tensor(X)).format == sf.FP16 and sf.Tensor(X).exp().format == sf.BF16
    table = policy.explain(sf.nn.Linear(2, 2))
    assert any(line.split()[:2] == ["everywhere", "own_swish"] for line in table.splitlines())
    with (
        pytest.raises(ValueError, match="override for the operation 'own_swish' matches no operation that ran"),
        sf.simulate(policy),
    ):
        sf.Tensor(X).exp()
    with pytest.raises(ValueError, match="compute_gradients has no effect on the operation 'own_swish'"):
        sf.policies["fp32"].override(operation="own_swish", compute_gradients=sf.FP16)
    assert sf.Policy.from_toml(policy.to_toml()) == policy


def test_an_observer_receives_the_result_by_their_name_and_steps_by_theirs():
    class Model(sf.nn.Module):
        def forward(self, x):
            return own_swish(x)

    recorder = sf.Recorder()
    with sf.simulate("bf16-standard", observer=recorder):
        sf.nn.Sequential(Model())(X)
    assert recorder.counts("0", "forward", operation="own_swish")["total"] == X.size
    assert recorder.counts("0", "forward", operation="sigmoid")["total"] == X.size
    with pytest.raises(ValueError, match="operation 'multiply' matches nothing"):
        recorder.counts(operation="multiply")


def test_a_stochastic_policy_draws_from_streams_of_their_name():
    policy = sf.Policy(compute=sf.BF16, rounding=sf.stochastic())
    with sf.simulate(policy, seed=7) as simulation:
        own_swish(X)
    assert [(s["operation"], s["phase"], s["calls"]) for s in simulation.state["streams"]] == [
        ("own_swish", "forward", 2)
    ]


def test_they_are_pickled_and_copied_by_reference():
    assert pickle.loads(pickle.dumps(own_swish)) is own_swish and copy.deepcopy(own_swish) is own_swish
    assert own_swish.__doc__ == "x * sigmoid(x)." and repr(own_floor) == "<operation own_floor(x, low, *, scale=2.0)>"
    assert pickle.loads(pickle.dumps(own_mish)) is own_mish


def test_an_operand_without_a_derivative_is_refused_only_where_a_gradient_would_reach_it():
    with sf.simulate("fp32"):
        assert own_step(sf.Tensor(X)).data.tolist() == (X > 0).tolist()
        with pytest.raises(ValueError, match="own_step has no derivative with respect to x"):
            own_step(sf.Tensor(X, requires_grad=True)).sum().backward()


def test_defined_again_an_operation_takes_the_place_of_the_old_one_but_keeps_its_kind():
    again = sf.operation(swish_slope)(own_swish.__wrapped__)
    with sf.simulate("fp32"):
        assert_bits(again(X).data, own_swish(X).data)
    with pytest.raises(ValueError, match="'own_swish' was a pointwise before, and cannot become a reduction"):
        sf.operation(swish_slope, kind="reduction")(own_swish.__wrapped__)


@pytest.mark.parametrize("name, message", [
    ("exp", "'exp' is an operation of simfloat: e to the power x"), ("update", "'update' is an operation of simfloat"),
    ("pointwise", "'pointwise' is a kind of operations"), ("a b", "is an identifier, such as 'swish'; got 'a b'"),
    ("", "is an identifier"), (3, "is an identifier"), ("<lambda>", "is an identifier"),
])  # fmt: skip
def test_used_and_invalid_names_are_refused(name, message):
    with pytest.raises(ValueError, match=message):
        sf.operation(swish_slope, name=name)(own_swish.__wrapped__)


def test_two_modules_do_not_share_a_name():
    other = FunctionType(own_swish.__wrapped__.__code__, globals(), "own_swish")
    other.__module__ = "somewhere.else"
    with pytest.raises(ValueError, match=f"'own_swish' is an operation of the module {__name__} already"):
        sf.operation(swish_slope)(other)


@pytest.mark.parametrize("wrong, message", [
    (lambda: sf.operation(own_swish.__wrapped__)(X), "above a function; got array"),
    (lambda: sf.operation(kind="movement"), "one of pointwise, reduction, contraction, composite; got 'movement'"),
    (lambda: sf.operation()(lambda u, x: x), "takes a derivative for each of its operands, x: expected 1, got 0"),
    (lambda: sf.operation()(lambda u: u), "needs an operand: a function of the arithmetic and of arrays"),
    (lambda: sf.operation(kind="composite")(lambda: 1), "needs an operand: a function of tensors"),
    (lambda: sf.operation(3)(lambda u, x: x), "is a function, or None where there is none; got 3"),
    (lambda: sf.operation(swish_slope, kind="composite")(lambda x: x), "takes no derivatives: expected 0, got 1"),
    (lambda: sf.operation(swish_slope)(lambda u, *x: x), "must have names"),
])  # fmt: skip
def test_declarations_that_fit_no_operation_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


def returning(result, kind="pointwise", slope=lambda u, g, y, x: g):
    """An operation whose function returns this."""

    @sf.operation(slope, kind=kind, name=f"own_{kind}_returning")
    def function(u, x):
        return result(u, x)

    return function


@pytest.mark.parametrize("result, message", [
    (lambda u, x: x / 3, r"of own_pointwise_returning contains .* at index \(0, 0\), which is not a number of BF16"),
    (lambda u, x: u.round(x)[0], r"must have the shape \(3, 4\), got \(4,\)"),
    (lambda u, x: None, "must be an array of floats, made by its arithmetic; got None"),
    (lambda u, x: u.round(x) > 0, "must be an array of floats"),
    (lambda u, x: u.matmul(x, x.T, "x", "x"), 'declare it with kind="contraction"'),
])  # fmt: skip
def test_operations_that_the_policy_does_not_round_are_refused(result, message):
    with sf.simulate("bf16-standard"), pytest.raises(ValueError, match=message):
        returning(result)(X)


def test_gradients_that_are_not_rounded_by_the_policy_are_refused():
    with sf.simulate("bf16-standard"):
        for slope, message in [
            (lambda u, g, y, x: g / 3, "The gradient with respect to x of own_pointwise_returning contains"),
            (lambda u, g, y, x: u.round(g)[:1], r"must have the shape \(3, 4\), got \(1, 4\)"),
        ]:
            y = returning(lambda u, x: u.round(x), slope=slope)(sf.Tensor(X, requires_grad=True))
            with pytest.raises(ValueError, match=message):
                y.backward(np.ones_like(X))


def test_a_result_that_has_infinities_and_nan_is_one_of_the_format():
    x = np.float32([np.inf, -np.inf, np.nan, 0.0, -0.0])
    with sf.simulate("bf16-standard"):
        assert_bits(returning(lambda u, x: x)(x).data, x)
    with sf.simulate(sf.Policy(compute=sf.E4M3)), pytest.raises(ValueError, match="not a number of E4M3"):
        returning(lambda u, x: x)(x)


def test_the_arithmetic_lists_its_operations():
    with sf.simulate("fp32"):
        with pytest.raises(AttributeError, match="has no function 'softsign'. It has round, sum, matmul, add, "):
            returning(lambda u, x: u.softsign(x))(X)
        with pytest.raises(TypeError, match="fma takes the operands a, b, c, got 2"):
            returning(lambda u, x: u.fma(x, x))(X)
        with pytest.raises(ValueError, match="axis 5 does not name"):
            returning(lambda u, x: u.sum(x, 5))(X)
        with pytest.raises(ValueError, match="one of x, gradient; got 'y'"):
            returning(lambda u, x: u.matmul(x, x.T, "x", "y"), "contraction")(X)
        with pytest.raises(ValueError, match=r"needs a \(..., m, k\) and b \(..., k, n\), got shapes"):
            returning(lambda u, x: u.matmul(x, x, "x", "x"), "contraction")(X)
        offered = []
        returning(lambda u, x: offered.extend(dir(u)) or u.round(x))(X)
        assert {"fma", "round", "matmul", "format"} <= set(offered)


def test_calls_follow_the_signature():
    with sf.simulate("fp32"):
        with pytest.raises(TypeError, match="missing a required argument: 'low'"):
            own_floor(X)
        with pytest.raises(TypeError, match="unexpected keyword argument 'sale'"):
            own_floor(X, 0.0, sale=1)
        assert_bits(own_floor(low=0.0, x=X).data, own_floor(X, 0.0, scale=2.0).data)
    assert sys.modules[own_swish.__module__].own_swish is own_swish
