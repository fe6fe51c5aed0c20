"""Parts of users' scripts: clipping, loss scaling, gradients as data, custom functions, hooks, averages, threads."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import simfloat as sf
from tests.torch.compared import is_bf16, perceptron

POLICY = sf.Policy(compute=sf.E4M3, compute_gradients=sf.E5M2, activations=sf.BF16, weights=sf.FP32)
X, CLASSES = torch.randn(4, 6, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 2, 1, 1])


def model_of(*between):
    return perceptron(nn.ReLU(), *between, sizes=(6, 5, 3))


def gradients(model, x, policy=POLICY):
    with sf.torch.simulate(model, policy):
        model(x).sum().backward()
    return [p.grad for p in model.parameters()]


def test_a_gradient_that_is_given_is_rounded_as_a_gradient_and_may_be_used_again():
    model, recorder, ones = model_of(), sf.Recorder(), torch.ones(4, 3)
    with sf.torch.simulate(model, POLICY, observer=recorder):
        model(X).backward(ones)
        assert recorder.counts("2", "backward", operation="cast_gradient")["total"] == 2 * 12
        model.zero_grad()
        (model(X) * ones).sum().backward()
    assert all(map(torch.equal, gradients(model_of(), X), (p.grad for p in model.parameters())))


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


def test_a_cast_to_a_narrow_type_is_a_part_of_the_program():
    model = model_of()
    with sf.torch.simulate(model, "fp32"), torch.autocast("cpu", dtype=torch.bfloat16):
        z = model(X)
        F.mse_loss(z.float(), torch.zeros(4, 3)).backward()
    assert z.dtype == torch.bfloat16 and is_bf16(model[2].weight.grad)
    with sf.torch.simulate(model, "fp16-master"), torch.autocast("cpu", dtype=torch.bfloat16):
        with pytest.raises(ValueError, match="neither contains the other"):
            model(X)


def test_clipped_gradients_are_rounded_to_weights_and_have_the_norm():
    model = model_of()
    with sf.torch.simulate(model, "bf16-standard"):
        model(X).square().sum().backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.3)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    assert all(is_bf16(p.grad) for p in model.parameters())
    assert float(norm) > 0.1
    assert abs(float(torch.cat([p.grad.flatten() for p in model.parameters()]).norm()) - 0.1) < 0.002


def test_a_scaled_loss_and_its_gradient_are_exact_and_unscaled_gradients_are_weights():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**17)
    with sf.torch.simulate(model, "fp16-master"):
        loss = model(X).square().mean()
        scaled = scaler.scale(loss * 2.0**-6)
        assert scaled.item() == loss.item() * 2.0**11
        scaled.backward()
        assert all(torch.equal(p.grad, p.grad.half().float()) for p in model.parameters())
        before = [p.grad.clone() for p in model.parameters()]
        scaler.unscale_(optimizer)
        assert all(torch.equal(p.grad, g * 2.0**-17) for p, g in zip(model.parameters(), before, strict=True))
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == 2.0**17
        optimizer.zero_grad()
        scaler.scale(model(X).square().sum() * 100).backward()
        weights = [p.detach().clone() for p in model.parameters()]
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == 2.0**16
        assert all(map(torch.equal, weights, model.parameters()))


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


class Half(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        return x * w

    @staticmethod
    def backward(ctx, g):
        return g, None


class Applied(nn.Module):
    """A function, behind a layer if there is one."""

    def __init__(self, function, layer=None):
        super().__init__()
        self.function, self.layer = function, layer

    def forward(self, x):
        return self.function(x if self.layer is None else self.layer(x))


def test_a_product_of_ones_own_has_the_bits_of_a_linear_layer():
    linear = nn.Linear(6, 5, bias=False)
    own = Applied(lambda x: Product.apply(x, own.weight))
    own.weight = nn.Parameter(linear.weight.detach().clone())
    assert torch.equal(gradients(own, X)[0], gradients(linear, X)[0])


@pytest.mark.parametrize("policy", ["bf16-standard", "amp-bf16"])
def test_a_function_whose_forward_pass_computes_nothing_has_its_backward_pass_at_its_modules_path(policy):
    model = model_of(Applied(Reversed.apply))
    with sf.torch.simulate(model, policy, observer=(recorder := sf.Recorder())) as run:
        model(X).sum().backward()
    assert recorder.counts("2", "backward", operation="multiply")["total"] == 20
    assert torch.equal(model[3].bias.grad, torch.full((3,), 4.0)) and "2" in run.table()
    recorder, layer = sf.Recorder(), Applied(Reversed.apply)
    with sf.torch.simulate(nn.Sequential(layer), policy, observer=recorder):
        layer(X.clone().requires_grad_()).sum().backward()
    assert recorder.counts("0", "backward")["total"] == X.numel()
    plain = model_of(Applied(Reversed.apply))
    plain(X).sum().backward()
    torch.testing.assert_close(model[0].weight.grad, plain[0].weight.grad, rtol=0.05, atol=0.02)
    model = nn.Sequential(Applied(Reversed.apply, nn.Linear(4, 2)))
    with sf.torch.simulate(model, policy) as run:
        model(X[:, :4]).sum().backward()
    assert {path for (func, _, path) in run.met if func is torch.ops.aten.mul.Tensor} == {"0"}


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


def test_averages_and_copies_of_weights_are_no_weights():
    model, other, recorder = model_of(), nn.Linear(2, 2, bias=False), sf.Recorder()
    with sf.torch.simulate(model, "bf16-stochastic", observer=recorder), torch.no_grad():
        copy, average = (model[0].weight.detach().clone() for _ in range(2))
        average.mul_(0.9).add_(model[0].weight, alpha=0.1)
    with sf.torch.simulate(other, "bf16-standard", observer=recorder), torch.no_grad():
        copy.mul_(0.3)  # in the block of another model
    assert recorder.counts(phase="update")["total"] == 0
    assert is_bf16(average) and torch.equal(copy, (model[0].weight.bfloat16().float() * 0.3).bfloat16().float())


def trained(order, in_threads=False):
    """The parameters of two models whose steps run in an order, or in threads at the same time."""
    models = [model_of(), model_of()]
    runs = [sf.torch.simulate(model, "bf16-stochastic", seed) for seed, model in enumerate(models)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for model in models]

    def step(number):
        with runs[number]:
            optimizers[number].zero_grad()
            models[number](X).square().mean().backward()
            optimizers[number].step()

    if in_threads:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda number: [step(number) for _ in range(2)], range(2)))
    else:
        for number in order:
            step(number)
    return [p for model in models for p in model.parameters()]


def test_blocks_of_two_models_may_take_turns_or_be_open_in_two_threads():
    expected = trained((0, 0, 1, 1))
    assert all(map(torch.equal, expected, trained((0, 1, 0, 1))))
    assert all(map(torch.equal, expected, trained((), in_threads=True)))
    assert not torch.equal(expected[0], expected[4])


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


def test_a_forward_pass_in_another_thread_is_refused():
    model = model_of()
    with ThreadPoolExecutor(1) as pool, sf.torch.simulate(model, "bf16-standard") as run:
        with pytest.raises(ValueError, match="Sequential is simulated in another thread's block"):
            pool.submit(model, X).result()
        with pytest.raises(ValueError, match="open in another thread"):
            pool.submit(run.__enter__).result()
        rounded = model(X)
    assert is_bf16(rounded)
    with ThreadPoolExecutor(1) as pool:
        assert torch.equal(pool.submit(model, X).result(), model(X)), "after the block it is PyTorch's again"


def test_a_plain_block_around_a_pytorch_model_warns_and_blocks_that_may_do_without_one_do_not():
    with pytest.warns(UserWarning, match=r"no operation of simfloat ran.*simfloat\.torch\.simulate"):
        with sf.simulate("bf16-standard"):
            model_of()(X)
    with sf.simulate("bf16-standard") as sim:
        sf.Tensor(model_of()(X).detach().numpy()) + 1.0
    with sim, pytest.raises(KeyError):
        raise KeyError
    with sf.simulate("bf16-standard"):
        with sf.torch.simulate(model := model_of(), "bf16-standard"):
            model(X)
    with sf.torch.simulate(nn.Tanh(), "bf16-standard"):
        pass
