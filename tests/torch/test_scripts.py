"""Parts of users' scripts: gradients as data, custom functions and hooks, handwritten updates and averages."""

import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import simfloat as sf

POLICY = sf.Policy(compute=sf.E4M3, compute_gradients=sf.E5M2, activations=sf.BF16, weights=sf.FP32)
X, CLASSES = torch.randn(4, 6, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 2, 1, 1])


def model_of(*between):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), *between, nn.Linear(5, 3))


def gradients(model, x, policy=POLICY):
    with sf.torch.simulate(model, policy):
        model(x).sum().backward()
    return [p.grad for p in model.parameters()]


def test_a_gradient_that_becomes_data_is_rounded_as_data():
    model, copy = model_of(), model_of()
    with sf.torch.simulate(model, POLICY):
        x = X.clone().requires_grad_()
        F.cross_entropy(model(x), CLASSES).backward()
        model.zero_grad()
        with torch.no_grad():
            worse = x + 0.25 * x.grad.sign()
        model(worse).sum().backward()
    assert all(map(torch.equal, gradients(copy, worse.clone()), (p.grad for p in model.parameters())))


def test_a_gradient_that_was_given_may_be_used_again():
    model, ones = model_of(), torch.ones(4, 3)
    with sf.torch.simulate(model, POLICY):
        model(X).backward(ones)
        model.zero_grad()
        (model(X) * ones).sum().backward()
    assert all(map(torch.equal, gradients(model_of(), X), (p.grad for p in model.parameters())))


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w.t()

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w, g.t() @ x


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g * -0.3


class Applied(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def test_a_product_of_ones_own_has_the_bits_of_a_linear_layer():
    linear = nn.Linear(6, 5, bias=False)
    own = Applied(lambda x: Product.apply(x, linear.weight))
    own.weight = nn.Parameter(linear.weight.detach().clone())
    own.function = lambda x: Product.apply(x, own.weight)
    assert torch.equal(gradients(own, X)[0], gradients(linear, X)[0])


@pytest.mark.parametrize("policy", ["bf16-standard", "amp-bf16"])
def test_a_function_whose_forward_pass_computes_nothing_has_its_backward_pass_at_its_modules_path(policy):
    model = model_of(Applied(Reversed.apply))
    with sf.torch.simulate(model, policy, observer=(recorder := sf.Recorder())) as run:
        model(X).sum().backward()
    assert recorder.counts("2", "backward", operation="multiply")["total"] == 20
    assert torch.equal(model[3].bias.grad, torch.full((3,), 4.0)) and "2" in run.table()
    plain = model_of(Applied(Reversed.apply))
    plain(X).sum().backward()
    torch.testing.assert_close(model[0].weight.grad, plain[0].weight.grad, rtol=0.05, atol=0.02)


def test_a_function_behind_a_layer_of_its_module_has_its_backward_pass_at_the_modules_path():
    model = nn.Sequential(Applied(Reversed.apply))
    model[0].inner = nn.Linear(4, 2)
    model[0].function = lambda x: Reversed.apply(model[0].inner(x))
    with sf.torch.simulate(model, "bf16-standard") as run:
        model(X[:, :4]).sum().backward()
    assert {path for (func, _, path) in run.met if func is torch.ops.aten.mul.Tensor} == {"0"}


class Half(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        return x * w

    @staticmethod
    def backward(ctx, g):
        return g, None


def test_a_backward_pass_may_leave_a_parameter_without_a_gradient():
    model = nn.Linear(3, 1)
    with sf.torch.simulate(model, "bf16-standard"):
        Half.apply(model(X[:, :3]), model.weight[0, 0]).sum().backward()
        assert model.weight.grad is not None
        model.weight.grad = None
        Half.apply(torch.ones(3), model.weight).sum().backward()
    assert model.weight.grad is None


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_hooks_see_gradients_and_may_change_them():
    model, seen = model_of(), []
    model[2].register_full_backward_hook(lambda module, into, out: seen.append(float(out[0].norm())))
    model[2].bias.register_hook(lambda g: g / 3)
    with sf.torch.simulate(model, "bf16-standard"):
        model(X).sum().backward()
    assert seen == [sf.round(12**0.5, sf.BF16)]
    assert torch.equal(model[2].bias.grad, torch.full((3,), float(sf.round(4 / 3, sf.BF16))))


@pytest.mark.parametrize("way", ["no_grad", "data"])
def test_an_update_by_hand_is_the_policys_last_addition(way):
    model, recorder = nn.Linear(50, 20, bias=False), sf.Recorder()
    nn.init.ones_(model.weight)
    with sf.torch.simulate(model, "bf16-stochastic", 1, recorder):
        if way == "data":
            model.weight.data.add_(torch.full((20, 50), 2.0**-10))
        else:
            with torch.no_grad():
                model.weight += torch.full((20, 50), 2.0**-10)
    assert recorder.counts("weight", "update")["total"] == 1000
    assert 0.05 < float((model.weight > 1).float().mean()) < 0.25


def test_an_average_of_weights_that_is_made_inside_is_no_weight():
    model, recorder = model_of(), sf.Recorder()
    with sf.torch.simulate(model, "bf16-stochastic", observer=recorder), torch.no_grad():
        averages = [p.clone() for p in model.parameters()]
        for average, p in zip(averages, model.parameters(), strict=True):
            average.mul_(0.9).add_(p, alpha=0.1)
    assert recorder.counts(phase="update")["total"] == 0
    assert torch.equal(averages[0], averages[0].bfloat16().float())


def test_a_copy_of_weights_may_be_written_to_in_the_block_of_another_model():
    model, other = model_of(), nn.Linear(2, 2, bias=False)
    with sf.torch.simulate(model, "bf16-standard"):
        copy = model[0].weight.detach().clone()
    with sf.torch.simulate(other, "bf16-standard", observer=(recorder := sf.Recorder())), torch.no_grad():
        copy.mul_(0.3)
    assert recorder.counts(phase="update")["total"] == 0
    assert torch.equal(copy, (model[0].weight.bfloat16().float() * 0.3).bfloat16().float())


def test_blocks_of_two_models_may_take_turns():
    def trained(takes_turns):
        models = [model_of(), model_of()]
        runs = [sf.torch.simulate(model, "bf16-stochastic", seed) for seed, model in enumerate(models)]
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
        for number in (0, 1, 0, 1) if takes_turns else (0, 0, 1, 1):
            with runs[number]:
                optimizers[number].zero_grad()
                models[number](X).square().mean().backward()
                optimizers[number].step()
        return [p for model in models for p in model.parameters()]

    assert all(map(torch.equal, trained(True), trained(False)))


def test_gradients_by_torch_func_are_refused():
    model = model_of()
    with sf.torch.simulate(model, "fp32"), pytest.raises(ValueError, match=r"torch\.autograd\.grad"):
        torch.func.grad(lambda x: model(x).sum())(X)


def test_a_block_that_is_entered_in_another_thread_knows_that_threads_operations():
    model = model_of()
    run, found = sf.torch.simulate(model, POLICY), []

    def step(others):
        with run:
            model.zero_grad()
            for _ in range(others):  # than an earlier thread began with, whose number this one may have
                (X.clone().requires_grad_() * 2).tanh()
            model(X).sum().backward()
        found.append([p.grad.clone() for p in model.parameters()])

    with run:
        (X.clone().requires_grad_() * 2).tanh()
    for others in range(3):
        thread = threading.Thread(target=step, args=(others,))
        thread.start()
        thread.join()
    assert len(found) == 3 and all(map(torch.equal, found[0], found[1])) and all(map(torch.equal, *found[1:]))


def test_a_compiled_model_is_simulated_all_the_same():
    model = model_of()
    compiled = torch.compile(model, backend="eager")
    with sf.torch.simulate(model, POLICY):
        compiled(X).sum().backward()
    assert all(map(torch.equal, gradients(model_of(), X), (p.grad for p in model.parameters())))
