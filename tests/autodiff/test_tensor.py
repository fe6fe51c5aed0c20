"""Tensors: the policy in force, the record for backward, and invalid uses."""

import weakref

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits


def test_completion_lists_only_public_names():
    """Every name in dir() has a docstring, has no leading underscore, and is not for other parts of the library."""
    internal = {"numbers", "arithmetic", "node", "origin", "trace", "moved", "alternatives", "store", "operand_at"}
    values = {"grad", "requires_grad", "format", "name"}
    for x in (sf.array([1.0], sf.BF16), sf.Tensor([1.0]), sf.Parameter([1.0])):
        names = dir(x)
        assert {"exp", "fmod", "sum", "format", "shape", "T"} <= set(names) and names == sorted(names)
        assert not internal.intersection(names) and not any(name.startswith("_") for name in names)
        for name in set(names) - values:
            assert getattr(type(x), name).__doc__, name


def test_results_are_rounded_and_data_are_not():
    x = sf.Tensor([0.1, 0.2])
    with sf.simulate("bf16-standard"):
        y = x * 3.0
    assert x.data.tolist() == [0.1, 0.2]
    assert y.data.tolist() == sf.multiply([0.1, 0.2], 3.0, sf.BF16).tolist()
    assert y.data.dtype == np.float32


def test_backward_follows_the_policy_of_the_forward():
    w = sf.Tensor([1.0, 2.0, 3.0], requires_grad=True)
    with sf.simulate("fp16-standard"):
        with sf.simulate("bf16-standard"):
            loss = (w * [0.1, 0.2, 0.3]).sum()
        loss.backward()
    assert_bits(w.grad, sf.round([0.1, 0.2, 0.3], sf.BF16))


@pytest.mark.parametrize("new", [lambda w: w + w, lambda w: w * 2.0])
def test_a_new_gradient_is_complete_before_it_is_added_to_the_old_one(new):
    w = sf.Tensor([1.0], requires_grad=True)
    with sf.simulate("bf16-standard"):
        (w * 256.0).backward()
        # 256 + 1 is 256 in BF16, 256 + 2 is 258.
        new(w).backward()
        assert w.grad.tolist() == [258.0]
        (w * 2.0 + w * 4.0).sum().backward()
    assert w.grad.tolist() == [264.0]


def test_backward_on_a_leaf_adds_and_shares_no_memory():
    w, g = sf.Tensor([1.0, 2.0], requires_grad=True), np.array([1.0, 2.0])
    with sf.simulate("fp32"):
        w.backward(g)
        g[:] = 7
        assert w.grad.tolist() == [1.0, 2.0]
        w.backward(g)
    assert w.grad.tolist() == [8.0, 9.0]


def test_the_gradient_of_a_leaf_is_a_writeable_array_of_its_own():
    w, v = (sf.Tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    with sf.simulate("fp32"):
        w.sum().backward()
        w.grad[0] = 5.0  # the gradient of a sum is one number at every place
        (w + v).backward(np.ones(2))
    w.grad[1] = 7.0
    assert w.grad.tolist() == [6.0, 7.0] and v.grad.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("policy, call", [
    (sf.Policy(compute=sf.FP64, rounding=sf.toward_zero, accumulate=sf.FP64), lambda t: t + 2.0**-60),
    (sf.Policy(compute=sf.FP32, activations=sf.Format(8, 51)), lambda t: t * t),
    (sf.Policy(compute=sf.FP32, activations=sf.Format(8, 51)), lambda t: t.softmax()),
])  # fmt: skip
def test_operations_that_would_be_rounded_twice_are_refused_with_their_place(policy, call):
    class Model(sf.nn.Module):
        def forward(self, x):
            return call(x)

    class Outer(sf.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Model()

        def forward(self, x):
            return self.inner(x)

    with pytest.raises(ValueError, match="The role activations of .* in layer 'inner' .* at most 50 bits"):
        with sf.simulate(policy):
            Outer()(sf.Tensor([1.0]))


@pytest.mark.parametrize("role, step", [("activation_gradients", 0), ("weights", 1)])
def test_backward_and_updates_that_would_be_rounded_twice_are_refused(role, step):
    w = sf.Parameter([1.0])
    w.name = "w"
    with sf.simulate(sf.Policy(**{"compute": sf.FP32, "optimizer_state": sf.FP32, role: sf.Format(8, 51)})):
        with pytest.raises(ValueError, match=f"The role {role} of (exp|update in layer 'w') cannot be emulated"):
            (sf.Tensor([1.0], requires_grad=True) * 1.0).exp().sum().backward()
            (w * 1.0).sum().backward()
            sf.optim.SGD([w], 0.1, weight_decay=0.1).step()


def test_no_grad_and_detach_forget():
    w = sf.Tensor([1.0], requires_grad=True)
    with sf.simulate("fp32"):
        with sf.no_grad():
            assert not (w * 2.0).requires_grad
        kept = w * 2.0
        assert kept.requires_grad and not kept.detach().requires_grad and not kept.is_leaf
        assert not (kept.detach() * 2.0).requires_grad


@pytest.mark.parametrize("call, message", [
    (lambda t: t + 1.0, "put it inside `with simfloat.simulate"),
    (lambda t: sf.nn.Linear(1, 1)(t), "put it inside `with simfloat.simulate"),
    (lambda t: sf.simulate("bf16"), "Unknown policy 'bf16'. Policies: fp64, fp32"),
    (lambda t: sf.simulate(sf.BF16), "simulate takes a simfloat.Policy or its name"),
    (lambda t: sf.Simulation(sf.BF16), "Simulation takes a simfloat.Policy or its name"),
    (lambda t: sf.Simulation("bf16"), "Unknown policy 'bf16'"),
    (lambda t: sf.simulate(sf.nn.Linear(1, 1)), "the model or function Linear: write `with simfloat.simulate"),
    (lambda t: sf.simulate("fp32", seed=-1), "A seed is an integer"),
    (lambda t: t.backward(), "needs one element, got a tensor of shape"),
    (lambda t: t.backward(np.ones(3)), r"The gradient has shape \(3,\), the tensor \(2,\)"),
    (lambda t: t.backward(np.ones(2)), "on a tensor with requires_grad=True"),
    (lambda t: sf.Tensor("text"), "data must hold real numbers"),
    (lambda t: sf.Tensor([1.0], requires_grad="no"), "requires_grad must be True or False, got 'no'"),
])  # fmt: skip
def test_bad_use_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(sf.Tensor([1.0, 2.0]))


@pytest.mark.parametrize("call, message", [
    (lambda t: t @ np.ones(3), r"got shapes \(2,\) and \(3,\)"),
    (lambda t: t + np.ones(3), r"Shapes \(2,\) and \(3,\) do not broadcast"),
    (lambda t: t.sum(2), "axis 2 does not name distinct axes of a tensor that has 1"),
    (lambda t: t.sum((0, 0)), "distinct axes"),
    (lambda t: t.mean("x"), "axis 'x' does not name distinct axes"),
    (lambda t: t.max(0.5), "axis 0.5 does not name distinct axes"),
    (lambda t: t[:0].max(), r"max needs at least one element along axis None of a tensor of shape \(0,\)"),
    (lambda t: t.reshape(3), r"integers whose product is 2, the size of shape \(2,\), .* got 3"),
    (lambda t: t.reshape(-1, -1), "one of them may be -1; got -1, -1"),
    (lambda t: t.reshape(("a", 2)), "got 'a', 2"),
    (lambda t: t[True], "indexed by integers, slices, None"),
    (lambda t: t[np.array([0.0, 1.0])], "indexed by integers, slices"),
    (lambda t: sf.nn.Linear(3, 1)(t), r"of 3 inputs takes \(..., 3\), got \(2,\)"),
])  # fmt: skip
def test_bad_operands_are_refused(call, message):
    with pytest.raises(ValueError, match=message), sf.simulate("fp32"):
        call(sf.Tensor([1.0, 2.0]))


def test_an_override_that_matched_no_module_is_refused_at_the_end():
    model = sf.nn.MLP([2, 2, 2])
    policy = sf.policies["fp32"].override("haed", compute=sf.BF16)
    with pytest.raises(ValueError, match="Override 'haed' matches no layer and no parameter. Paths: hidden"):
        with sf.simulate(policy):
            model(np.ones((1, 2)))
    with pytest.raises(KeyError), sf.simulate(policy):
        raise KeyError("an error inside the block is not hidden")


def test_arrays_that_no_derivative_reads_are_freed_during_the_record():
    x = sf.Tensor(np.ones((100, 100), np.float32), requires_grad=True)
    with sf.simulate("fp32"):
        assert ((x * 2.0 + 1.0) * 0.5 - 3.0).sum().requires_grad  # a call that is new here may be repeated on a GPU
        sums = x * 2.0 + 1.0
        arrays = [weakref.ref(sums.numbers)]
        halves = sums * 0.5
        arrays.append(weakref.ref(halves.numbers))
        total = (halves - 3.0).sum()
        del sums, halves
        assert arrays[0]() is not None, "a product's derivatives read its operands"
        assert arrays[1]() is None, "a difference's and a sum's read nothing"
        total.backward()
    assert (x.grad == 1.0).all()


def test_a_missing_pytorch_name_is_reported_with_our_name():
    from simfloat.autodiff.tensor import NAMES

    x = sf.Tensor([1.0])
    assert not any(hasattr(x, name) for name in NAMES)
    assert all(hasattr(sf.Tensor, here) for here in NAMES.values() if here.isidentifier())
    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'view'; in simfloat it is reshape"):
        x.view(-1)
    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'half'; in simfloat it is the policy"):
        x.half()
    with pytest.raises(AttributeError, match="'Parameter' object has no attribute 'weight'$"):
        sf.Parameter([1.0]).weight  # noqa: B018
