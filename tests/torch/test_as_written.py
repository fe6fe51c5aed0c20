"""The policy that follows the dtypes of a program: results are rounded once, to the dtype in the program."""

import re
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import simfloat as sf
from tests.bits import assert_bits

AS_WRITTEN = sf.policies["as-written"]
HOPPER = replace(AS_WRITTEN, accumulate=sf.tensor_core("hopper"))
FORMATS = {torch.float32: sf.FP32, torch.bfloat16: sf.BF16, torch.float16: sf.FP16, torch.float64: sf.FP64}
RANDOM = torch.Generator().manual_seed(5)


def normal(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=RANDOM).to(dtype)


def numbers(x):
    return x.detach().double().numpy()


def simulated(function, *operands, policy=AS_WRITTEN, model=None):
    with sf.torch.simulate(nn.Identity() if model is None else model, policy):
        return function(*operands)


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_a_result_is_the_exact_one_rounded_once_to_its_type(dtype):
    x, y, format = normal(40, dtype=dtype), normal(40, dtype=dtype), FORMATS[dtype]
    for theirs, ours in (
        (torch.add, sf.add),
        (torch.mul, sf.multiply),
        (torch.div, sf.divide),
        (torch.atan2, sf.atan2),
    ):
        found = simulated(theirs, x, y)
        assert found.dtype == dtype
        assert_bits(numbers(found), ours(numbers(x), numbers(y), format))
    assert_bits(numbers(simulated(torch.exp, x)), sf.exp(numbers(x), format))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_an_operation_of_several_steps_takes_them_in_fp32_and_rounds_once(dtype):
    x, y, format = normal(40, dtype=dtype), normal(40, dtype=dtype), FORMATS[dtype]
    a, b = numbers(x), numbers(y)
    shared = sf.multiply(sf.multiply(np.float32(0.3), b, sf.FP32), b, sf.FP32)
    assert_bits(numbers(simulated(lambda x, y: torch.addcmul(x, y, y, value=0.3), x, y)), sf.add(a, shared, format))
    silu = sf.round(sf.multiply(a, sf.sigmoid(a, sf.FP32), sf.FP32), format)
    assert_bits(numbers(simulated(F.silu, x)), silu)
    assert torch.equal(simulated(F.softplus, x), simulated(F.softplus, x.float()).to(dtype))
    assert torch.equal(simulated(lambda x: x.softmax(0), x), simulated(lambda x: x.softmax(0), x.float()).to(dtype))


def test_python_numbers_are_float32_numbers_as_in_pytorchs_kernels():
    x = normal(50)
    assert torch.equal(simulated(lambda x: x * 0.1, x), x * 0.1)
    assert torch.equal(simulated(lambda x: x.double() * 0.1, x), x.double() * 0.1)


@pytest.mark.parametrize("policy", [AS_WRITTEN, HOPPER], ids=["sequential", "hopper"])
def test_a_linear_layer_in_bf16_sums_as_the_policy_says_and_rounds_with_its_bias(policy):
    layer, x = nn.Linear(32, 8).bfloat16(), normal(4, 32, dtype=torch.bfloat16)
    y = simulated(layer, x, policy=policy, model=layer)
    unit = sf.tensor_core("hopper", sf.BF16) if policy is HOPPER else sf.FP32
    product = sf.matmul(numbers(x), numbers(layer.weight).T, accumulate=unit)
    assert_bits(numbers(y), sf.round(sf.add(product, numbers(layer.bias), sf.FP32), sf.BF16).astype(np.float64))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_narrow_model_trains_in_its_own_type(dtype):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Linear(144, 3)).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, losses = normal(3, 1, 8, 8, dtype=dtype), []
    with sf.torch.simulate(model, "as-written"):
        for _ in range(6):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), torch.tensor([0, 1, 2]))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    for parameter in model.parameters():
        kept = optimizer.state[parameter]["momentum_buffer"]
        assert parameter.dtype == parameter.grad.dtype == kept.dtype == dtype


def test_a_float32_model_has_the_bits_of_fp32():
    weights = []
    for policy in ("fp32", "as-written"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        with sf.torch.simulate(model, policy):
            model(torch.ones(3, 4)).square().sum().backward()
            optimizer.step()
        weights.append([p.detach() for p in model.parameters()])
    assert all(map(torch.equal, *weights))


def test_autocast_casts_and_parameters_stay_in_fp32():
    model, x = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 2)), normal(3, 8)
    with sf.torch.simulate(model, "as-written"):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = model(x)
            loss = (y.float() ** 2).mean()
        loss.backward()
    assert y.dtype == torch.bfloat16
    first = sf.matmul(*(sf.round(numbers(a), sf.BF16) for a in (x, model[0].weight.T)), accumulate=sf.FP32)
    first = sf.round(sf.add(first, sf.round(numbers(model[0].bias), sf.BF16), sf.FP32), sf.BF16)
    with sf.torch.simulate(model, "as-written"), torch.autocast("cpu", dtype=torch.bfloat16):
        assert_bits(numbers(model[0](x)), first.astype(np.float64))
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


@pytest.mark.parametrize(
    "layer", [nn.LayerNorm(6), nn.GroupNorm(2, 4), nn.BatchNorm1d(4), nn.BatchNorm1d(4).eval()], ids=str
)
def test_a_norm_in_fp32_returns_the_type_of_its_input(layer):
    x, g, found = normal(3, 4, 6, dtype=torch.bfloat16), normal(3, 4, 6, dtype=torch.bfloat16), []
    for norm in (layer, lambda x: layer(x.float()).bfloat16()):
        x = x.detach().requires_grad_()
        layer.zero_grad()
        with sf.torch.simulate(layer, "as-written"):
            y = norm(x)
            y.backward(g)
        assert y.dtype == torch.bfloat16
        found.append((y.detach(), x.grad, layer.weight.grad, layer.bias.grad))
    assert all(map(torch.equal, *found))


def test_upcasts_and_master_copies_in_the_program_count():
    weight, x = nn.Parameter(torch.ones(16, dtype=torch.bfloat16)), normal(4, 16, dtype=torch.bfloat16)
    model = nn.ParameterList([weight])

    def norm(x):
        wide = x.float()
        return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    with sf.torch.simulate(model, "as-written"):
        y = norm(x)
        y.sum().backward()
        master = weight.detach().float()
        master.add_(weight.grad.float(), alpha=-(2.0**-10))
        weight.data.copy_(master)
    a = numbers(x).astype(np.float32)
    mean = sf.divide(sf.sum(sf.multiply(a, a, sf.FP32), 1, accumulate=sf.FP32), 16.0, sf.FP32)
    factor = sf.rsqrt(sf.add(mean, np.float32(1e-6), sf.FP32), sf.FP32)[:, None]
    assert_bits(numbers(y), sf.round(sf.multiply(a, factor, sf.FP32), sf.BF16).astype(np.float64))
    assert torch.equal(weight, master.bfloat16()) and not torch.equal(master, master.bfloat16().float())


@pytest.mark.parametrize("policy, unit", [
    (AS_WRITTEN, sf.FP32), (HOPPER, sf.tensor_core("hopper", (sf.E4M3, sf.E5M2)))
], ids=["sequential", "hopper"])  # fmt: skip
def test_a_scaled_product_of_float8_numbers_is_scaled_in_fp32_and_rounded_once(policy, unit):
    a = normal(16, 64).to(torch.float8_e4m3fn)
    b = normal(16, 64).to(torch.float8_e5m2).t()
    rows, columns, bias = torch.rand(16, 1), torch.rand(1, 16), normal(16, dtype=torch.bfloat16)
    found = simulated(lambda: torch._scaled_mm(a, b, rows, columns, bias=bias, out_dtype=torch.bfloat16), policy=policy)
    product = sf.matmul(numbers(a), numbers(b), accumulate=unit)
    product = sf.multiply(sf.multiply(product, numbers(rows), sf.FP32), numbers(columns), sf.FP32)
    assert_bits(numbers(found), sf.round(sf.add(product, numbers(bias), sf.FP32), sf.BF16).astype(np.float64))
    with pytest.raises(ValueError, match=r"scales of rows \(16, 1\) and columns \(1, 16\); got shape \(16, 2\)"):
        simulated(lambda: torch._scaled_mm(a, b, torch.rand(16, 2), columns, out_dtype=torch.bfloat16))


def test_roles_may_be_overridden_and_others_follow_the_program():
    layer, x = nn.Linear(8, 4).bfloat16(), normal(3, 8, dtype=torch.bfloat16)
    policy = AS_WRITTEN.override(operation="linear", compute=sf.E4M3, activations=sf.FP32)
    y = simulated(layer, x, policy=policy, model=layer)
    product = sf.matmul(*(sf.round(numbers(a), sf.E4M3) for a in (x, layer.weight.T)), accumulate=sf.FP32)
    assert_bits(numbers(y), sf.round(sf.add(product, numbers(layer.bias), sf.FP32), sf.BF16).astype(np.float64))


def test_narrow_parameters_are_refused_by_other_policies_with_what_to_take():
    model = nn.Linear(2, 2).half()
    with pytest.raises(ValueError, match="torch.float16.*or the policy 'as-written'"), sf.torch.simulate(model, "fp32"):
        pass


def test_compare_runs_a_narrow_model_in_its_own_types():
    model, x, y = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 1)).bfloat16(), normal(8, 4), normal(8, 1)
    batch = x.bfloat16(), y.bfloat16()
    found = sf.compare(model, F.mse_loss, batch, ["as-written", "fp32"])
    with sf.torch.simulate(model, AS_WRITTEN):
        loss = F.mse_loss(model(batch[0]), batch[1])
    assert found["as-written"].loss == loss.item() and loss.dtype == torch.bfloat16
    assert found["as-written"].gradient_error > 1e-4 > found["fp32"].gradient_error > 0


def perceptron(*inner):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), *inner, nn.Linear(8, 1))


class WithAutocast(nn.Module):
    """A model whose program runs under autocast."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.net(x)


def test_the_cost_of_a_bf16_program_is_that_of_the_policy_with_its_formats():
    batch = normal(16, 4), normal(16, 1)
    narrow = tuple(part.bfloat16() for part in batch)
    inner = nn.LayerNorm(8), nn.GELU()
    own = sf.cost(perceptron(*inner).bfloat16(), F.mse_loss, narrow, "as-written")
    named = sf.cost(perceptron(*inner).float(), F.mse_loss, batch, "bf16-standard")
    assert own.multiply_adds == named.multiply_adds and own.bits_moved == named.bits_moved
    assert own.bytes_per_parameter == named.bytes_per_parameter == 8


def test_the_cost_of_a_program_under_autocast_has_its_narrow_products_and_wide_parameters():
    own = sf.cost(
        WithAutocast(perceptron()), lambda p, y: (p.float() - y).square().mean(), (normal(2, 4), 0), "as-written"
    )
    assert {(each.a, each.b) for each in own.products} == {(sf.BF16, sf.BF16)} and own.bytes_per_parameter == 16
    assert {each.value for each in own.numbers if each.layer == ""} == {sf.FP32}


class RMSNorm(nn.Module):
    """The norm of Llama, with the upcast of its program or without."""

    def __init__(self, is_wide):
        super().__init__()
        self.weight, self.is_wide = nn.Parameter(torch.ones(8)), is_wide

    def forward(self, x):
        wide = x.float() if self.is_wide else x
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight


def test_attribute_measures_a_program_in_its_own_dtypes_with_its_upcasts():
    batch, errors = (normal(16, 4).bfloat16(), normal(16, 1).bfloat16()), []
    for is_wide in (False, True):
        model = perceptron(RMSNorm(is_wide)).bfloat16()
        found = sf.attribute(model, F.mse_loss, batch, "as-written", by=["layer", "operation"])
        comparison = sf.compare(model, F.mse_loss, batch, ["as-written"])
        assert found.total == comparison["as-written"].gradient_error
        errors.append({(cost.layer, cost.operation): cost.error for cost in found.costs})
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


def test_diagnose_says_how_to_diagnose_a_narrow_model():
    model, batch = nn.Linear(2, 1).half(), (normal(3, 2, dtype=torch.float16), normal(3, 1, dtype=torch.float16))
    with pytest.raises(ValueError, match=r"torch.float16, which only 'as-written' follows: pass .* or model.float\(\)"):
        sf.diagnose(model, F.mse_loss, [batch], "fp16-standard")


def test_tensors_of_our_own_are_fp32():
    with sf.simulate("as-written"):
        assert (sf.Tensor(0.1) * 3.0).format == sf.FP32


@pytest.mark.parametrize("dtype, kept", [(torch.bfloat16, 256), (torch.float16, 512)])
def test_what_the_program_accumulates_in_grad_is_counted_as_lost_where_it_is(dtype, kept):
    recorder, layer = sf.Recorder(), nn.Linear(1, 1, bias=False).to(dtype)
    x = torch.full((1, 1), 2.0**-9, dtype=dtype)
    plain = deepcopy(layer)
    for _ in range(512):
        plain(x).sum().backward()
    with sf.torch.simulate(layer, "as-written", observer=recorder):
        for _ in range(512):
            layer(x).sum().backward()
    assert torch.equal(layer.weight.grad, plain.weight.grad) and layer.weight.grad.item() == kept * 2.0**-9
    counts = recorder.counts("weight", "backward", operation="add")
    assert counts["total"] == 511 and counts["unchanged"] == 512 - kept


def test_an_observer_receives_each_rounding_to_the_programs_type_once():
    recorder, layer = sf.Recorder(), nn.Linear(4, 4).half()
    nn.init.constant_(layer.weight, 0.5)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-6)
    with sf.torch.simulate(layer, "as-written", observer=recorder):
        layer(normal(2, 4, dtype=torch.float16)).sum().backward()
        optimizer.step()
    assert recorder.counts("weight", "update")["unchanged"] == recorder.counts("weight", "backward")["total"] == 16


def narrow_mlp(factor=1.0, dtype=torch.bfloat16):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).to(dtype)
    model[2].weight.data *= factor
    return model, torch.randn(16, 4).to(dtype), torch.randn(16, 1).to(dtype)


def advised(policy, optimizer, factor=1.0, dtype=torch.bfloat16, loss_fn=F.mse_loss):
    (model, x, y), recorder = narrow_mlp(factor, dtype), sf.Recorder()
    steps = optimizer(model.parameters())
    with sf.torch.simulate(model, policy, observer=recorder):
        for _ in range(4):
            steps.zero_grad()
            loss_fn(model(x), y).backward()
            steps.step()
    return recorder.advise(), [p.detach().double() for p in model.parameters()]


def test_advice_on_a_program_with_its_own_types_names_what_has_an_effect():
    found, stuck = advised(AS_WRITTEN, lambda p: torch.optim.SGD(p, lr=1e-4))
    overrides = [each.override for each in found if each.operation == "update"]
    assert set(overrides) == {
        f"policy.override({p!r}, update='kahan')" for p in ("0.weight", "0.bias", "2.weight", "2.bias")
    }
    policy = AS_WRITTEN
    for override in overrides:
        policy = eval(override, {"policy": policy, "sf": sf})
    found, moved = advised(policy, lambda p: torch.optim.SGD(p, lr=1e-4))
    assert not [each for each in found if each.operation == "update"], "what is lost is kept for the next step"
    assert not all(map(torch.equal, stuck, moved))


def test_advice_on_a_program_with_its_own_types_says_what_the_program_can_do():
    found, _ = advised(AS_WRITTEN, lambda p: torch.optim.SGD(p, lr=0.0), 1e5, torch.float16)
    assert found[0].need == "a wider format"
    assert "multiply (forward) overflowed; in the program: compute it in float32, by .float()" in found[0].why
    assert "in the program: compute it in float32, by .float()" in found[1].why
    assert not any("sf.FP32" in each.override for each in found)
    found, _ = advised(
        AS_WRITTEN, lambda p: torch.optim.AdamW(p, lr=1e-3), 1.0, torch.float16, lambda x, y: (x * 0).sum()
    )
    assert "at 0.weight.update (update) underflowed" in found[0].why
    assert "a larger eps" in found[0].why and found[0].override == ""
    found, _ = advised(AS_WRITTEN, lambda p: torch.optim.AdamW(p, lr=1e-2), 1.0, torch.float16)
    assert found[0].need == "a wider format" and found[0].override == ""
    assert re.search(r"exp_avg_sq \(update\) underflowed; in the program: a larger eps, or keep", found[0].why)
