"""The table of pointwise operations has a row for each row of the catalog, and a method for each row."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic.catalog import OPERATIONS, REPRESENTABLE
from simfloat.autodiff.pointwise import DIFFERENTIABLE
from tests.bits import assert_bits

POINTWISE = [row for row in OPERATIONS.values() if row.kind == "pointwise" and row.name != "update"]
X = np.random.default_rng(5).uniform(0.25, 2, (3, 2, 4))


def test_every_pointwise_operation_has_a_derivative_for_each_operand():
    assert {row.name: len(row.operands) for row in POINTWISE} == {
        name: len(row.slopes) for name, row in DIFFERENTIABLE.items() if row.operation == name
    }


@pytest.mark.parametrize("row", POINTWISE, ids=lambda row: row.name)
def test_every_pointwise_operation_is_a_documented_method(row):
    tensors = [sf.Tensor(x) for x in X[: len(row.operands)]]
    with sf.simulate("bf16-standard"):
        method = getattr(tensors[0], row.name)
        got = method(*tensors[1:])
    assert method.__doc__ == row.meaning and method.__name__ == row.name
    assert isinstance(got, sf.Tensor) and got.format == sf.BF16
    if row.is_function:
        assert_bits(got.data, getattr(sf, row.name)(*X[: len(row.operands)], sf.BF16))


@pytest.mark.parametrize("call", [lambda t: t.exp(1.0), lambda t: t.add(), lambda t: t.fma(1.0), lambda t: t.add(1, 2)])
def test_methods_count_their_operands(call):
    with pytest.raises(
        TypeError, match=r"Pointwise.(exp|add|fma) takes [0-2] operands? in addition to the tensor, got [0-2]"
    ):
        call(sf.Tensor([1.0]))


def test_fma_has_one_rounding_and_the_gradients_of_its_parts():
    a, b, c = (sf.Tensor(x, requires_grad=True) for x in (X[0], X[1], X[2, :1]))
    g = np.float32(np.random.default_rng(6).standard_normal((2, 4)))
    with sf.simulate("bf16-standard"):
        a.fma(b, c).backward(g)
    assert_bits(a.grad, sf.multiply(g, b.data, sf.BF16))
    assert_bits(b.grad, sf.multiply(g, a.data, sf.BF16))
    assert_bits(c.grad, sf.sum(g, 0, accumulate=sf.FP32, output=sf.BF16)[np.newaxis])
    d = sf.Tensor(X[2], requires_grad=True)
    with sf.simulate("bf16-standard"):
        a.fma(b, d).backward(g)
    assert_bits(d.grad, sf.round(g, sf.BF16))


def test_functions_that_float64_represents_are_methods_with_pytorchs_gradients():
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    x = np.array([-3.5, -2.0, -0.25, 0.0, -0.0, 0.75, 2.5, 7.0])
    y = np.array([[2.0], [-0.375], [3.0]])
    g = np.random.default_rng(8).standard_normal((3, 8))
    for name, row in REPRESENTABLE.items():
        operands = [sf.Tensor(each, requires_grad=True) for each in (x, y)[: len(row.operands)]]
        with sf.simulate("fp64"):
            got = getattr(operands[0], name)(*operands[1:])
            got.backward(g if len(operands) == 2 else g[0])
            assert getattr(sf.Tensor(x), name).__doc__ == row.meaning
        assert_bits(got.data, getattr(sf, name)(*(each.data for each in operands), sf.FP64))
        theirs = [torch.tensor(each.data, requires_grad=True) for each in operands]
        if name == "remainder":  # torch.remainder is the modulo
            result = theirs[0] - theirs[1] * torch.round(theirs[0] / theirs[1]).detach()
        else:
            result = getattr(torch, "round" if name == "rint" else name)(*theirs)
        result.backward(torch.tensor(g if len(operands) == 2 else g[0]))
        for mine, other in zip(operands, theirs, strict=True):
            np.testing.assert_allclose(mine.grad, np.zeros_like(mine.data) if other.grad is None else other.grad)
    a, b = (sf.Tensor(each, requires_grad=True) for each in ([2.0**30 - 1, 8.0], [2.0, np.inf]))
    recorder = sf.Recorder()
    with sf.simulate("bf16-standard", observer=recorder):
        assert np.array_equal(np.floor(a.divide(3.0)).data, np.floor(sf.divide(a.data, 3.0, sf.BF16)))
        a.fmod(b).backward([1.0, 1.0])
    assert b.grad.tolist() == [-(2.0**29), 0.0] and recorder.counts(operation="clip", phase="forward")["total"] == 4
    for call in (lambda: np.remainder(a, b), lambda: a % b):
        with pytest.raises(ValueError, match=r"x\.fmod\(y\), which has the sign of x|does not support %"):
            call()


def test_errors_inside_a_model_name_the_layer_and_the_operation():
    policy = sf.Policy(compute=sf.BF16, accumulate=sf.tensor_core("hopper", sf.FP16))
    model = sf.nn.MLP([3, 4, 2])
    with pytest.raises(ValueError, match=r"linear in layer 'hidden.0': "), sf.simulate(policy):
        model(np.full((1, 3), 1e30))

    class Adds(sf.nn.Module):
        def forward(self, x):
            return x + np.ones(3)

    with pytest.raises(ValueError, match=r"add in layer '0': Shapes \(2,\) and \(3,\)"), sf.simulate("fp32"):
        sf.nn.Sequential(Adds())(sf.Tensor([1.0, 2.0]))
