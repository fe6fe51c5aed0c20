"""torch.func and torch.compile: the operations that are simulated, and those that raise an error."""

import sys

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, vjp, vmap
from torch.jit._builtins import _get_builtin_table

import simfloat as sf
from simfloat.formats import Format
from simfloat.policy import Policy
from tests.torch.compared import is_bf16, perceptron

ROLES = Policy(
    compute=Format(8, 5), compute_weights=Format(8, 3), weights=Format(8, 6), weight_gradients=Format(8, 2),
    activation_gradients=Format(8, 4), activations=Format(8, 9),
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # of PyTorch's own
@pytest.mark.parametrize("function", [vmap, lambda model: lambda x: jvp(model, (x,), (x.sin(),))[1], jacfwd])
def test_a_vectorized_call_and_a_forward_derivative_are_operations_of_the_forward_pass(function):
    model, x = perceptron(nn.Tanh()).double(), torch.linspace(-1, 1, 15, dtype=torch.float64).reshape(5, 3)
    plain = function(model)(x)
    with sf.torch.simulate(model, "fp64"):
        torch.testing.assert_close(function(model)(x), plain, rtol=1e-13, atol=1e-13)
    model, x = model.float(), x.float()
    with sf.torch.simulate(model, "bf16-standard"):
        found = function(model)(x).detach()
    assert torch.equal(found, found.bfloat16().float())


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # of PyTorch's own
def test_the_formulas_of_forward_derivatives_can_be_imported_inside_a_block(monkeypatch):
    """torch.jit compiles them at the first derivative, and does not know simfloat's wrappers of PyTorch's functions."""
    monkeypatch.delitem(sys.modules, "torch._decomp.decompositions_for_jvp", raising=False)
    monkeypatch.delattr(torch._decomp, "decompositions_for_jvp", raising=False)
    model, x = perceptron(nn.Tanh()), torch.ones(5, 3)
    names = len(_get_builtin_table())
    with sf.torch.simulate(model, "bf16-standard"):
        inside = jvp(model, (x,), (x,))[1]
        assert len(_get_builtin_table()) == names and "torch._decomp.decompositions_for_jvp" in sys.modules
        assert torch.equal(jvp(model, (x,), (x,))[1], inside)


def test_gradients_through_a_vectorized_call_have_the_roles_of_those_without():
    model, x = perceptron(nn.Tanh()), torch.linspace(-1, 1, 15).reshape(5, 3)
    with sf.torch.simulate(model, ROLES):
        vmap(model)(x).square().sum().backward()
    for p in model.parameters():
        assert torch.equal(torch.from_numpy(sf.round(p.grad.numpy(), ROLES.weight_gradients)), p.grad)


def test_gradients_of_wrapped_tensors_are_refused_with_what_to_write():
    model, x = perceptron(nn.Tanh()), torch.ones(5, 3)
    for derivative in (
        lambda: grad(lambda a: model(a).sum())(x),
        lambda: vjp(model, x)[1](torch.ones(5, 2)),
        lambda: jacrev(model)(x),
        lambda: grad(lambda weights: functional_call(model, weights, (x,)).sum())(dict(model.named_parameters())),
        lambda: torch.autograd.grad(model(x)[:, 0], list(model.parameters())[:1], torch.eye(5), is_grads_batched=True),
    ):
        with sf.torch.simulate(model, "fp32"), pytest.raises(ValueError, match=r"torch\.func.*torch\.autograd\.grad"):
            derivative()


def test_tensors_in_the_place_of_parameters_are_weights():
    x = torch.linspace(-1, 1, 15).reshape(5, 3)
    own, others = perceptron(nn.Tanh()), perceptron(nn.Tanh(), seed=1)
    with sf.torch.simulate(others, ROLES):
        expected = others(x)
        expected.square().sum().backward()
    given = {path: p.detach().clone().requires_grad_() for path, p in others.named_parameters()}
    with sf.torch.simulate(own, ROLES) as run:
        found = functional_call(own, given, (x,))
        found.square().sum().backward()
    assert torch.equal(found, expected)
    for path, p in others.named_parameters():
        assert torch.equal(given[path].grad, p.grad)
    assert all(p.grad is None for p in own.parameters())
    assert not [row for row in run.table().rows if row[1] == "PyTorch"]


def test_a_step_of_an_inner_training_is_that_of_a_loop():
    """MAML: the model is called with weights after a step, through which gradients flow."""
    model, x = perceptron(nn.Tanh()), torch.linspace(-1, 1, 15).reshape(5, 3)
    with sf.torch.simulate(model, "bf16-standard"):
        weights = dict(model.named_parameters())
        inner = torch.autograd.grad(model(x).square().mean(), list(weights.values()), create_graph=True)
        fast = {path: w - 0.5 * g for (path, w), g in zip(weights.items(), inner, strict=True)}
        functional_call(model, fast, (x,)).square().mean().backward()
    for p in model.parameters():
        assert is_bf16(p.grad) and bool(p.grad.any())


def test_a_module_that_is_not_the_models_and_several_weights_at_once_are_refused():
    model, x = perceptron(nn.Tanh()), torch.ones(5, 3)
    several = {path: torch.stack([p.detach(), p.detach()]) for path, p in model.named_parameters()}
    with sf.torch.simulate(model, "fp32"):
        with pytest.raises(ValueError, match="ModuleList"):
            functional_call(perceptron(nn.Tanh()), several, (x,))
        with pytest.raises(ValueError, match="loop"):
            vmap(lambda weights: functional_call(model, weights, (x,)))(several)


def test_a_compiled_model_runs_as_it_was_written():
    torch._dynamo.reset()  # what was first called in a block is never compiled
    calls = []

    def backend(graph, _):
        return lambda *args: calls.append(0) or graph(*args)

    model, x = perceptron(nn.Tanh()), torch.ones(5, 3)
    compiled = torch.compile(model, backend=backend)
    compiled(x)
    before = len(calls)
    with sf.torch.simulate(model, "bf16-standard"):
        assert torch.equal(compiled(x), model(x))
    assert len(calls) == before > 0
