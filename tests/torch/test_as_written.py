"""The policy that follows the dtypes of a program: results are rounded once, to the dtype in the program."""

import re
from copy import deepcopy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import simfloat as sf
from tests.bits import assert_bits
from tests.torch import compared

AS_WRITTEN = sf.policies["as-written"]
HOPPER = replace(AS_WRITTEN, accumulate=sf.tensor_core("hopper"))
FORMATS = {torch.float32: sf.FP32, torch.bfloat16: sf.BF16, torch.float16: sf.FP16, torch.float64: sf.FP64}
NARROW = torch.bfloat16, torch.float16
simulated = partial(compared.simulated, policy=AS_WRITTEN)
RANDOM = torch.Generator().manual_seed(5)


def normal(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=RANDOM).to(dtype)


def numbers(x):
    return x.detach().double().numpy()


def in_bf16(x):
    return sf.round(x, sf.BF16).astype(np.float64)


def test_an_operation_of_several_steps_takes_them_in_fp32_and_rounds_once():
    for dtype in NARROW:
        x, y, format = normal(40, dtype=dtype), normal(40, dtype=dtype), FORMATS[dtype]
        a, b = numbers(x), numbers(y)
        product = sf.multiply(sf.multiply(np.float32(0.3), b, sf.FP32), b, sf.FP32)
        found = simulated(lambda x, y: torch.addcmul(x, y, y, value=0.3), x, y)
        assert_bits(numbers(found), sf.add(a, product, format))
        silu = sf.round(sf.multiply(a, sf.sigmoid(a, sf.FP32), sf.FP32), format)
        assert_bits(numbers(simulated(F.silu, x)), silu)
        for function in (F.softplus, lambda x: x.softmax(0)):
            assert torch.equal(simulated(function, x), simulated(function, x.float()).to(dtype))


@pytest.mark.parametrize("policy", [AS_WRITTEN, HOPPER], ids=["sequential", "hopper"])
def test_products_in_narrow_types_are_summed_as_the_policy_says_scaled_in_fp32_and_rounded_once(policy):
    layer, x = nn.Linear(32, 8).bfloat16(), normal(4, 32, dtype=torch.bfloat16)
    y = simulated(layer, x, policy=policy, model=layer)
    unit, unit8 = sf.FP32, sf.FP32
    if policy is HOPPER:
        unit, unit8 = sf.tensor_core("hopper", sf.BF16), sf.tensor_core("hopper", (sf.E4M3, sf.E5M2))
    product = sf.matmul(numbers(x), numbers(layer.weight).T, accumulate=unit)
    assert_bits(numbers(y), in_bf16(sf.add(product, numbers(layer.bias), sf.FP32)))
    a, b = normal(16, 64).to(torch.float8_e4m3fn), normal(16, 64).to(torch.float8_e5m2).t()
    rows, columns, bias = torch.rand(16, 1), torch.rand(1, 16), normal(16, dtype=torch.bfloat16)
    found = simulated(lambda: torch._scaled_mm(a, b, rows, columns, bias=bias, out_dtype=torch.bfloat16), policy=policy)
    product = sf.matmul(numbers(a), numbers(b), accumulate=unit8)
    product = sf.multiply(sf.multiply(product, numbers(rows), sf.FP32), numbers(columns), sf.FP32)
    assert_bits(numbers(found), in_bf16(sf.add(product, numbers(bias), sf.FP32)))
    with pytest.raises(ValueError, match=r"scales of rows \(16, 1\) and columns \(1, 16\); got shape \(16, 2\)"):
        simulated(lambda: torch._scaled_mm(a, b, torch.rand(16, 2), columns, out_dtype=torch.bfloat16))


def test_a_norm_takes_parameters_of_its_type_or_of_float32_as_in_pytorch():
    norms = {
        "layer_norm": lambda x, w: F.layer_norm(x, (4,), w, w),
        "group_norm": lambda x, w: F.group_norm(x, 2, w, w),
        "batch_norm": lambda x, w: F.batch_norm(x, None, None, w, w, True),
    }
    for name, norm in norms.items():
        for dtype in (torch.float32, *NARROW):
            for other in (torch.float32, *NARROW):
                x, w = normal(6, 4, dtype=dtype), torch.ones(4, dtype=other)
                if other in (dtype, torch.float32):
                    assert simulated(norm, x, w).dtype == norm(x, w).dtype == dtype
                    continue
                with pytest.raises(RuntimeError, match="mixed dtype"):
                    norm(x, w)
                words = f"{name} takes parameters of .*{dtype}.* as in PyTorch, got {other}; convert one of them"
                with pytest.raises(ValueError, match=words):
                    simulated(norm, x, w)


def test_a_narrow_model_trains_in_its_own_type():
    for dtype in NARROW:
        model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Linear(16, 3)).to(
            dtype
        )
        optimizer, x = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), normal(3, 1, 4, 4, dtype=dtype)
        with sf.torch.simulate(model, "as-written"):
            F.cross_entropy(model(x), torch.tensor([0, 1, 2])).backward()
            optimizer.step()
        for parameter in model.parameters():
            moment = optimizer.state[parameter]["momentum_buffer"]
            assert parameter.dtype == parameter.grad.dtype == moment.dtype == dtype


def test_autocast_casts_and_parameters_stay_in_fp32():
    model, x = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 2)), normal(3, 8)
    with sf.torch.simulate(model, "as-written"):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y, first = model(x), model[0](x)
            loss = (y.float() ** 2).mean()
        loss.backward()
    assert y.dtype == torch.bfloat16
    product = sf.matmul(*(sf.round(numbers(a), sf.BF16) for a in (x, model[0].weight.T)), accumulate=sf.FP32)
    assert_bits(numbers(first), in_bf16(sf.add(product, sf.round(numbers(model[0].bias), sf.BF16), sf.FP32)))
    assert model[0].weight.grad.dtype == torch.float32
    assert torch.equal(model[0].weight.grad, model[0].weight.grad.bfloat16().float())


def test_autocast_casts_an_lstm_as_a_whole():
    layer, x = nn.LSTM(5, 4, 2, bidirectional=True), normal(3, 2, 5)
    # PyTorch's own results have this type, too, on processors for which oneDNN has an LSTM in BF16.
    with sf.torch.simulate(layer, "as-written"):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y, (_, c) = layer(x)
        y.sum().backward()
    assert y.dtype == c.dtype == torch.bfloat16 and layer.weight_hh_l0.grad.dtype == torch.float32
    narrow = deepcopy(layer).bfloat16()
    assert torch.equal(y, simulated(narrow, x.bfloat16(), model=narrow)[0])


def test_a_norm_in_fp32_returns_the_type_of_its_input():
    for layer in (nn.LayerNorm(6), nn.GroupNorm(2, 4), nn.BatchNorm1d(4), nn.BatchNorm1d(4).eval()):
        x, g, found = normal(3, 4, 6, dtype=torch.bfloat16), normal(3, 4, 6, dtype=torch.bfloat16), []
        for norm in (layer, lambda x, layer=layer: layer(x.float()).bfloat16()):
            x = x.detach().requires_grad_()
            layer.zero_grad()
            with sf.torch.simulate(layer, "as-written"):
                y = norm(x)
                y.backward(g)
            assert y.dtype == torch.bfloat16
            found.append((y.detach(), x.grad, layer.weight.grad, layer.bias.grad))
        assert all(map(torch.equal, *found)), layer


class RMSNorm(nn.Module):
    """The norm of Llama, with the upcast of its program or without."""

    def __init__(self, is_wide=False, size=8):
        super().__init__()
        self.weight, self.is_wide = nn.Parameter(torch.ones(size)), is_wide

    def forward(self, x):
        wide = x.float() if self.is_wide else x
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight


def test_upcasts_and_master_copies_in_the_program_count():
    norm, x = RMSNorm(True, 16).bfloat16(), normal(4, 16, dtype=torch.bfloat16)
    with sf.torch.simulate(norm, "as-written"):
        y = norm(x)
        y.sum().backward()
        master = norm.weight.detach().float()
        master.add_(norm.weight.grad.float(), alpha=-(2.0**-10))
        norm.weight.data.copy_(master)
    a = numbers(x).astype(np.float32)
    mean = sf.divide(sf.sum(sf.multiply(a, a, sf.FP32), 1, accumulate=sf.FP32), 16.0, sf.FP32)
    factor = sf.rsqrt(sf.add(mean, np.float32(1e-6), sf.FP32), sf.FP32)[:, None]
    assert_bits(numbers(y), in_bf16(sf.multiply(a, factor, sf.FP32)))
    assert torch.equal(norm.weight, master.bfloat16()) and not torch.equal(master, master.bfloat16().float())


def test_a_float32_model_has_the_bits_of_fp32_and_so_have_tensors_of_our_own_and_float64_is_computed_in_float64():
    weights, x = [], normal(40, dtype=torch.float64)
    for policy in ("fp32", "as-written"):
        model = compared.perceptron(nn.Tanh(), nn.LayerNorm(4))
        with sf.torch.simulate(model, policy):
            compared.step(model, torch.optim.SGD(model.parameters(), lr=0.5), torch.ones(3, 3))
        weights.append(compared.bits_of(model))
    assert all(map(torch.equal, *weights))
    with sf.simulate("as-written"):
        assert (sf.Tensor(0.1) * 3.0).format == sf.FP32
    assert torch.equal(simulated(lambda: x * 0.1), x * 0.1)


def test_roles_may_be_overridden_and_others_follow_the_program():
    layer, x = nn.Linear(8, 4).bfloat16(), normal(3, 8, dtype=torch.bfloat16)
    policy = AS_WRITTEN.override(operation="linear", compute=sf.E4M3, activations=sf.FP32)
    y = simulated(layer, x, policy=policy, model=layer)
    product = sf.matmul(*(sf.round(numbers(a), sf.E4M3) for a in (x, layer.weight.T)), accumulate=sf.FP32)
    assert_bits(numbers(y), in_bf16(sf.add(product, numbers(layer.bias), sf.FP32)))


def perceptron(*inner):
    return compared.perceptron(*inner, sizes=(4, 8, 1))


class WithAutocast(nn.Module):
    """A model whose program runs under autocast."""

    def __init__(self, net, dtype=torch.bfloat16):
        super().__init__()
        self.net, self.dtype = net, dtype

    def forward(self, x):
        with torch.autocast("cpu", dtype=self.dtype):
            return self.net(x)


def test_the_cost_of_a_program_has_its_narrow_products_and_its_parameters():
    batch = normal(16, 4), normal(16, 1)
    narrow = tuple(part.bfloat16() for part in batch)
    inner = nn.LayerNorm(8), nn.GELU()
    own = sf.cost(perceptron(*inner).bfloat16(), F.mse_loss, narrow, "as-written")
    named = sf.cost(perceptron(*inner).float(), F.mse_loss, batch, "bf16-standard")
    assert own.multiply_adds == named.multiply_adds and own.bits_moved == named.bits_moved
    assert own.bytes_per_parameter == named.bytes_per_parameter == 8
    own = sf.cost(WithAutocast(perceptron()), lambda p, y: (p.float() - y).square().mean(), batch, "as-written")
    assert {(each.a, each.b) for each in own.products} == {(sf.BF16, sf.BF16)} and own.bytes_per_parameter == 16
    assert {each.value for each in own.numbers if each.layer == ""} == {sf.FP32}


def test_compare_and_attribute_measure_a_program_in_its_own_dtypes_with_its_upcasts():
    batch, errors = (normal(16, 4).bfloat16(), normal(16, 1).bfloat16()), []
    for is_wide in (False, True):
        model = perceptron(RMSNorm(is_wide)).bfloat16()
        found = sf.attribute(model, F.mse_loss, batch, "as-written", by=["layer", "operation"])
        comparison = sf.compare(model, F.mse_loss, batch, ["as-written", "fp32"])
        assert found.total == comparison["as-written"].gradient_error > 1e-4 > comparison["fp32"].gradient_error > 0
        errors.append({(cost.layer, cost.operation): cost.error for cost in found.costs})
    with sf.torch.simulate(model, AS_WRITTEN):
        loss = F.mse_loss(model(batch[0]), batch[1])
    assert comparison["as-written"].loss == loss.item() and loss.dtype == torch.bfloat16
    for operation in ("power", "mean", "rsqrt"):
        assert errors[0]["1", operation] > 1e-4 > 1e-6 > errors[1]["1", operation]
    assert min(errors[1]["0", "linear"], errors[1]["1", "multiply"]) > 1e-4, "in BF16 still"


def test_the_reference_of_a_program_under_autocast_is_the_program_without_narrow_types():
    batch = normal(16, 4), normal(16, 1)

    def loss(p, y):
        return F.mse_loss(p.float(), y)

    found = sf.compare(WithAutocast(perceptron()), loss, batch, ["as-written", "fp32"])
    plain = sf.compare(perceptron(), loss, batch, ["fp32"])
    assert found.loss == plain.loss and found["as-written"].gradient_error > 1e-4 > found["fp32"].gradient_error
    costs = sf.attribute(WithAutocast(perceptron()), loss, batch, "as-written", by=["layer", "operation"]).costs
    assert {cost.layer for cost in costs if cost.error > 1e-5} == {"net.0", "net.1"}, "the loss is in FP32"


def test_what_the_program_accumulates_in_grad_is_counted_as_lost_where_it_is():
    recorder, layer, passes = sf.Recorder(), nn.Linear(1, 1, bias=False).bfloat16(), 260
    x = torch.full((1, 1), 2.0**-9, dtype=torch.bfloat16)
    plain = deepcopy(layer)
    for _ in range(passes):
        plain(x).sum().backward()
    with sf.torch.simulate(layer, "as-written", observer=recorder):
        for _ in range(passes):
            layer(x).sum().backward()
    assert torch.equal(layer.weight.grad, plain.weight.grad) and layer.weight.grad.item() == 256 * 2.0**-9
    counts = recorder.counts("weight", "backward", operation="add")
    assert counts["total"] == passes - 1 and counts["unchanged"] == passes - 256


def test_an_observer_receives_each_rounding_to_the_programs_type_once():
    recorder, layer = sf.Recorder(), nn.Linear(4, 4).half()
    nn.init.constant_(layer.weight, 0.5)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-6)
    with sf.torch.simulate(layer, "as-written", observer=recorder):
        layer(normal(2, 4, dtype=torch.float16)).sum().backward()
        optimizer.step()
    assert recorder.counts("weight", "update")["unchanged"] == recorder.counts("weight", "backward")["total"] == 16


def advised(policy, optimizer, factor=1.0, dtype=torch.bfloat16, loss_fn=F.mse_loss):
    """Advice on four steps of a narrow perceptron, and what its parameters became."""
    model = perceptron(nn.ReLU()).to(dtype)
    x, y, recorder = torch.randn(16, 4).to(dtype), torch.randn(16, 1).to(dtype), sf.Recorder()
    model[2].weight.data *= factor
    steps = optimizer(model.parameters())
    with sf.torch.simulate(model, policy, observer=recorder):
        for _ in range(4):
            steps.zero_grad()
            loss_fn(model(x), y).backward()
            steps.step()
    return recorder.advise(), [p.detach().double() for p in model.parameters()]


def test_an_observer_counts_conversions_of_the_program_to_narrower_types():
    x = torch.tensor([1.0, 2.0**-30, 1e6, 300.0], requires_grad=True)
    for dtype, overflow, underflow in (
        (torch.float16, 1, 1), (torch.bfloat16, 0, 0), (torch.float8_e4m3fn, 1, 1), (torch.float8_e5m2, 1, 1),
    ):  # fmt: skip
        recorder = sf.Recorder()
        with sf.torch.simulate(nn.Identity(), "as-written", observer=recorder):
            z = x.to(dtype).float()
            z.backward(torch.full((4,), 2.0**-30))
        for phase, lost in (("forward", underflow), ("backward", 4 * underflow)):
            counts = recorder.counts(operation="cast", phase=phase)
            assert (counts["total"], counts["underflow"]) == (4, lost)
        assert recorder.counts(operation="cast", phase="forward")["overflow"] == overflow


def test_advice_on_a_program_with_its_own_types_names_what_has_an_effect():
    slow = lambda p: torch.optim.SGD(p, lr=1e-4)  # noqa: E731
    found, stuck = advised(AS_WRITTEN, slow)
    overrides = [each.override for each in found if each.operation == "update"]
    names = "0.weight", "0.bias", "2.weight", "2.bias"
    assert set(overrides) == {f"policy.override({name!r}, update='kahan')" for name in names}
    policy = AS_WRITTEN
    for override in overrides:
        policy = eval(override, {"policy": policy, "sf": sf})
    found, moved = advised(policy, slow)
    assert not [each for each in found if each.operation == "update"], "what is lost is kept for the next step"
    assert not all(map(torch.equal, stuck, moved))


def test_advice_on_a_program_with_its_own_types_says_what_the_program_can_do():
    found, _ = advised(AS_WRITTEN, lambda p: torch.optim.SGD(p, lr=0.0), 1e5, torch.float16)
    assert found[0].need == "a wider format"
    assert "multiply (forward) overflowed; in the program: compute it in float32, by .float()" in found[0].why
    assert "in the program: compute it in float32, by .float()" in found[1].why
    assert not any("sf.FP32" in each.override for each in found)
    for lr, loss_fn, words in (
        (1e-3, lambda x, y: (x * 0).sum(), r"at 0\.weight\.update \(update\) underflowed.*a larger eps"),
        (1e-2, F.mse_loss, r"exp_avg_sq \(update\) underflowed; in the program: a larger eps, or keep"),
    ):
        found, _ = advised(AS_WRITTEN, lambda p, lr=lr: torch.optim.AdamW(p, lr=lr), 1.0, torch.float16, loss_fn)
        assert re.search(words, found[0].why) and found[0].override == ""
    assert found[0].need == "a wider format"
