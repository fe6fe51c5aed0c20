"""Parts of training loops: checkpointing, clipping, loss scaling, autocast, threads, and observers."""

import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import simfloat as sf


def model_of():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


X = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_recomputation_has_the_same_bits(use_reentrant):
    found = []
    for again in (False, True):
        model, x = model_of(), X.clone().requires_grad_()
        with sf.torch.simulate(model, "fp8-hybrid"):
            z = checkpoint(model, x, use_reentrant=use_reentrant) if again else model(x)
            (z * z).mean().backward()
        found.append([x.grad, *(p.grad for p in model.parameters())])
    assert all(map(torch.equal, *found))


def test_a_gradient_that_is_given_is_rounded_as_a_gradient():
    model, recorder = model_of(), sf.Recorder()
    with sf.torch.simulate(model, "fp8-hybrid", observer=recorder):
        model(X).backward(torch.ones(4, 3))
    assert recorder.counts("2", "backward", operation="cast_gradient")["total"] == 2 * 12


def test_gradients_of_several_backward_passes_add_up_in_the_weights_own_format():
    model = model_of()
    policy = sf.Policy(compute=sf.FP16, weight_gradients=sf.BF16)
    with sf.torch.simulate(model, policy):
        for scale in (1.0, 1.0 / 3.0):
            (model(X) * scale).square().mean().backward()
    assert all(torch.equal(p.grad, p.grad.bfloat16().float()) for p in model.parameters())


def test_a_parameters_gradient_and_update_are_counted_once_at_its_path():
    model, recorder = model_of(), sf.Recorder()
    optimizer = torch.optim.Adam(model.parameters())
    with sf.torch.simulate(model, "bf16-standard", observer=recorder):
        model(X).square().mean().backward()
        optimizer.step()
    for path, parameter in model.named_parameters():
        assert recorder.counts(path, "backward")["total"] == parameter.numel()
        assert recorder.counts(path, "update")["total"] == parameter.numel()
    assert recorder.counts("0.weight.exp_avg", "update", operation="moment")["total"] == 30


def test_threads_do_not_disturb_each_other():
    def train(number, found):
        model = models[number]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        with sf.torch.simulate(model, "bf16-stochastic", number):
            for _ in range(3):
                optimizer.zero_grad()
                model(X).square().mean().backward()
                optimizer.step()
        found[number] = [p.detach().clone() for p in model.parameters()]

    results = []
    for is_parallel in (False, True):
        models, found = [model_of(), model_of()], {}
        threads = [threading.Thread(target=train, args=(number, found)) for number in range(2)]
        for thread in threads:
            thread.start()
            if not is_parallel:
                thread.join()
        for thread in threads:
            thread.join()
        results.append(found)
    assert all(torch.equal(a, b) for n in range(2) for a, b in zip(results[0][n], results[1][n], strict=True))
    assert not torch.equal(results[0][0][0], results[0][1][0])


def test_dropout_scales_what_it_keeps_and_loaders_work():
    torch.manual_seed(0)  # with other numbers a sum may be zero by chance
    model = nn.Sequential(nn.Linear(6, 50), nn.Dropout(0.5))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X), batch_size=2, shuffle=True)
    with sf.torch.simulate(model, "bf16-standard"):
        for (batch,) in loader:
            z = model(batch)
            z.sum().backward()
        model.eval()
        with torch.no_grad():
            assert (model(X) != 0).all()
    assert 0.2 < float((z == 0).float().mean()) < 0.8


def test_a_cast_to_a_narrow_type_is_a_part_of_the_program():
    model = model_of()
    with sf.torch.simulate(model, "fp32"), torch.autocast("cpu", dtype=torch.bfloat16):
        z = model(X)
        F.mse_loss(z.float(), torch.zeros(4, 3)).backward()
    assert z.dtype == torch.bfloat16
    assert torch.equal(model[2].weight.grad, model[2].weight.grad.bfloat16().float())
    with (
        sf.torch.simulate(model, "fp16-master"),
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(ValueError, match="neither contains the other"),
    ):
        model(X)


def test_clipped_gradients_are_rounded_to_weights_and_have_the_norm():
    model = model_of()
    with sf.torch.simulate(model, "bf16-standard"):
        model(X).square().sum().backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.3)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    assert all(torch.equal(p.grad, p.grad.bfloat16().float()) for p in model.parameters())
    assert float(norm) > 0.1
    assert abs(float(torch.cat([p.grad.flatten() for p in model.parameters()]).norm()) - 0.1) < 0.002


def test_linear_layers_and_convolutions_are_matmul_and_conv2d_of_the_same_operands():
    policy = sf.Policy(compute=sf.E4M3, compute_gradients=sf.E5M2, activations=sf.BF16, accumulate=sf.FP16)
    casts = {"accumulate": sf.FP16, "output": sf.BF16}
    linear, conv, image = nn.Linear(6, 5, bias=False), nn.Conv2d(2, 3, 2, bias=False), torch.randn(2, 2, 4, 4)
    g = torch.randn(4, 5)
    with sf.torch.simulate(nn.ModuleList([linear, conv]), policy):
        x = X.clone().requires_grad_()
        y, pixels = linear(x), conv(image)
        y.backward(g)
    w, k = linear.weight.detach().numpy(), conv.weight.detach().numpy()
    same = [
        (y, sf.matmul(X.numpy(), w.T, inputs=sf.E4M3, **casts)),
        (x.grad, sf.matmul(g.numpy(), w, inputs=(sf.E5M2, sf.E4M3), **casts)),
        (linear.weight.grad, sf.matmul(g.numpy().T, X.numpy(), inputs=(sf.E5M2, sf.E4M3), **casts)),
        (pixels, sf.conv2d(image.numpy(), k, inputs=sf.E4M3, **casts)),
    ]
    for theirs, ours in same:
        assert (theirs.detach().numpy() == ours).all()


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
