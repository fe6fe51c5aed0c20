"""Under amp-bf16 and amp-fp16 results have the formats that torch.autocast gives them on CUDA."""

import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_leaves

import simfloat as sf
from tests.torch.compared import assert_alike, three_ways

FORMATS = {"amp-bf16": torch.bfloat16, "amp-fp16": torch.float16}


def is_narrow(x, policy="amp-bf16"):
    return torch.equal(x, x.to(FORMATS[policy]).to(x.dtype))


LAYERS = {
    "LSTM": lambda: nn.LSTM(5, 4, 2, dropout=0.3, bidirectional=True),
    "LSTM projected": lambda: nn.LSTM(5, 4, proj_size=2),
    "GRU": lambda: nn.GRU(5, 4),
    "RNN": lambda: nn.RNN(5, 4, nonlinearity="relu"),
    "LSTMCell": lambda: nn.LSTMCell(5, 4),
    "GRUCell": lambda: nn.GRUCell(5, 4),
    "RNNCell": lambda: nn.RNNCell(5, 4),
}


def wide(states):
    """States like these, which neither narrow type has, and whose gradients are wanted."""
    if isinstance(states, tuple):
        return tuple(map(wide, states))
    return (states.detach() + 2**-20 / 3).requires_grad_()


@pytest.mark.parametrize("policy", FORMATS)
def test_recurrent_layers_are_narrow_whatever_states_they_begin_with(policy):
    for name, make in LAYERS.items():
        torch.manual_seed(0)
        layer, x = make(), torch.randn(3, 5) if "Cell" in name else torch.randn(3, 2, 5)
        with sf.torch.simulate(layer, policy):
            found = layer(x)
            begun = wide(found if "Cell" in name else found[1])
            leaves = tree_leaves((found, layer(x, begun)))
            sum(y.sum() for y in leaves).backward()
        assert all(is_narrow(y, policy) for y in leaves), name
        assert all(state.grad.abs().max() > 0 for state in tree_leaves(begun)), name


def test_states_enter_a_recurrent_layer_as_autocast_casts_them_and_unchanged_where_results_do_not_follow_operands():
    cell, x, h, c = nn.LSTMCell(3, 2), torch.zeros(1, 3), torch.zeros(1, 2), torch.tensor([[1 / 3, 0.7]])
    with torch.no_grad():
        for p in cell.parameters():
            p.zero_()
    for policy, entered in (
        ("amp-bf16", c.bfloat16().float()), (sf.Policy(compute=sf.BF16, activations=sf.FP32), c)
    ):  # fmt: skip
        with sf.torch.simulate(cell, policy):
            assert torch.equal(cell(x, (h, c))[1], entered / 2)


@pytest.mark.parametrize("is_in_place", [False, True])
def test_dropout_is_narrow_forward_and_backward(is_in_place):
    for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"):
        torch.manual_seed(0)
        axes = {"dropout2d": 2, "dropout3d": 3}.get(name, 1)
        layer, x = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[axes - 1](2, 3, 1), torch.randn(2, 2, *[3] * axes)
        with sf.torch.simulate(layer, "amp-bf16"):
            hidden = layer(x)
            hidden.retain_grad()
            found = getattr(F, name)(hidden * 1, 0.3, True, is_in_place)
            found.sum().backward()
        assert is_narrow(found) and is_narrow(hidden.grad), name


TARGETS, SIGNS, LABELS = torch.tensor([0, 2, 1, 1]), torch.ones(4, 6), torch.tensor([1, -1, 1, -1])

#: Functions that PyTorch composes of others, and movements, by their names in the lists of autocast.
CONVERTED = {
    "l1_loss": lambda x: F.l1_loss(x, SIGNS * 0.3, reduction="none"),
    "l1_loss by keywords": lambda x: F.l1_loss(input=x, target=x.flip(0), reduction="none"),
    "kl_div": lambda x: F.kl_div(x, x.abs(), reduction="none"),
    "margin_ranking_loss": lambda x: F.margin_ranking_loss(x, x.flip(0), SIGNS, 1.3, reduction="none"),
    "hinge_embedding_loss": lambda x: F.hinge_embedding_loss(x, -SIGNS, 1.3, reduction="none"),
    "poisson_nll_loss": lambda x: F.poisson_nll_loss(x, SIGNS, reduction="none"),
    "triplet_margin_loss": lambda x: F.triplet_margin_loss(x, x.flip(0), x.flip(1), reduction="none"),
    "cosine_embedding_loss": lambda x: F.cosine_embedding_loss(x, x.flip(0), LABELS, reduction="none"),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x.flip(0)),
    "cosine_similarity by keywords": lambda x: torch.cosine_similarity(x1=x, x2=x.flip(0)),
    "upsample_nearest1d": lambda x: F.interpolate(x.unsqueeze(0), scale_factor=2) * 1.3,
    "upsample_linear1d": lambda x: F.interpolate(x.unsqueeze(0), scale_factor=2, mode="linear") * 1.3,
}

WIDE = CONVERTED | {
    "log1p": torch.log1p, "expm1": torch.expm1, "cosh": torch.cosh, "tan": torch.tan, "reciprocal": torch.reciprocal,
    "softplus": F.softplus,
    "group_norm": lambda x: F.group_norm(x, 2),
    "layer_norm": lambda x: F.layer_norm(x, (6,)),
    "rms_norm": lambda x: F.rms_norm(x, (6,)),
    "prod": lambda x: x.prod(1),
    "cumprod": lambda x: x.cumprod(1),
    "cumsum": lambda x: x.cumsum(1),
    "logsumexp": lambda x: x.logsumexp(1),
    "sum": lambda x: x.sum(1),
    "norm": lambda x: x.norm(dim=1),
    "cdist": lambda x: torch.cdist(x, x + 1),
    "pow": lambda x: x**3,
    "softmax": lambda x: x.softmax(1),
    "huber_loss": lambda x: F.huber_loss(x, SIGNS, reduction="none"),
    "soft_margin_loss": lambda x: F.soft_margin_loss(x, SIGNS, reduction="none"),
    "multi_margin_loss": lambda x: F.multi_margin_loss(x, TARGETS, reduction="none"),
}  # fmt: skip
NARROW = {
    "elu": F.elu, "selu": F.selu, "celu": F.celu, "mish": F.mish, "logsigmoid": F.logsigmoid, "gelu": F.gelu,
    "silu": F.silu, "glu": F.glu, "hardswish": F.hardswish, "leaky_relu": F.leaky_relu, "sigmoid": torch.sigmoid,
    "tanh": torch.tanh, "sin": torch.sin, "exp2": torch.exp2, "erf": torch.erf,
    "prelu": lambda x: F.prelu(x, torch.tensor([0.3])),
    "logit": lambda x: x.sigmoid().logit(),
    "logaddexp": lambda x: torch.logaddexp(x, x.flip(0)),
    "mean": lambda x: x.mean(1),
    "var": lambda x: x.var(1),
    "std_mean": lambda x: torch.std_mean(x, 1)[0],
    "nansum": lambda x: x.nansum(1),
    "nanmean": lambda x: x.nanmean(1),
    "trace": torch.trace,
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "bilinear": lambda x: F.bilinear(x, x, x.unsqueeze(2).expand(4, 6, 6)),
    "fractional_max_pool2d": lambda x: F.fractional_max_pool2d(x.unsqueeze(0), 2, output_size=2),
}  # fmt: skip


def test_the_tables_of_this_test_are_the_lists_of_autocast_on_cuda():
    header = (Path(torch.__file__).parent / "include/ATen/autocast_mode.h").read_text()
    lists = [set(re.findall(r"_\((\w+)", part)) for part in header.split("#define AT_FORALL_") if part[:4] == "FP32"]
    listed = set.union(*lists) | {"norm"}  # which has another macro
    assert {name.split()[0] for name in WIDE} <= listed and listed.isdisjoint(NARROW)


def test_functions_of_narrow_numbers_follow_the_lists_and_views_in_place_keep_their_format():
    with_dtype = {"mean with a dtype": lambda x: x.mean(1, dtype=torch.float32)}
    for name, function in (WIDE | NARROW | with_dtype).items():
        torch.manual_seed(0)
        layer = nn.Linear(5, 6)
        with sf.torch.simulate(layer, "amp-bf16"):
            hidden = layer(torch.randn(4, 5))
            hidden.retain_grad()
            found = function(hidden)
            found.sum().backward()
        assert is_narrow(found) == (name in NARROW), name
        assert is_narrow(hidden.grad) or name in WIDE.keys() - CONVERTED, name
    with sf.torch.simulate(layer, "amp-bf16"):
        assert is_narrow(layer(torch.randn(6, 5)).detach().unsqueeze_(0).transpose_(0, 1).tril_() * 1.5)


def test_a_function_whose_operands_autocast_converts_has_the_bits_of_fp32():
    layer, data = nn.Linear(5, 6), torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    for name, function in CONVERTED.items():
        with sf.torch.simulate(layer, "amp-bf16"):
            hidden = layer(data)
            found = function(hidden)
        with sf.torch.simulate(layer, "fp32"):
            assert torch.equal(found, function(torch.tensor(hidden.tolist()))), name


def test_data_without_axes_are_in_fp32_beside_the_constants_of_a_formula():
    x = torch.tensor(0.3)
    for function in (F.hardsigmoid, F.hardswish, F.selu, F.softshrink):
        results = []
        for policy in ("amp-bf16", "fp32"):
            with sf.torch.simulate(nn.Identity(), policy):
                results.append(function(x))
        assert torch.equal(*results), function


def test_an_override_that_names_a_function_that_pytorch_composes_applies_to_its_steps():
    x, y = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0))
    wide = sf.policies["bf16-standard"].override(operation="l1_loss", activations=sf.FP32)
    results = []
    for policy in ("fp32", wide, "apex-o2"):
        with sf.torch.simulate(nn.Identity(), policy):
            results.append(F.l1_loss(x, y))
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])
    with (
        pytest.raises(ValueError, match="'kl_div' matches no operation that ran"),
        sf.torch.simulate(nn.Identity(), sf.policies["fp32"].override(operation="kl_div", activations=sf.BF16)),
    ):
        F.l1_loss(x, y)


def mean_square(output):
    """The mean of squares in either package, whose gradients are numbers of FP32."""
    return ((output - 0.3) ** 2).mean()


def test_a_gradient_that_enters_a_layer_is_rounded_once_a_pass_and_counted_once():
    torch.manual_seed(0)
    model, x = nn.Linear(4, 3), torch.randn(5, 4)
    recorder = sf.Recorder(more=True)
    with sf.torch.simulate(model, "amp-fp16", observer=recorder):
        (mean_square(model(x)) * 2.0**30).backward()
    brought = recorder.counts("", "backward", operation="add")
    assert brought["total"] == brought["overflow"] == 15
    recorder = sf.Recorder()
    with sf.torch.simulate(model, "amp-fp16", observer=recorder):
        model.zero_grad()
        y = model(torch.ones(5, 4))
        (g,) = torch.autograd.grad(y.pow(2).sum(), y, retain_graph=True)
        for _ in range(2):
            y.backward(g, retain_graph=True)
    # The share of the bias in the second pass, which is added to that of the first, is one of the layer's results.
    assert recorder.counts("", "backward", operation="add")["total"] == 2 * 15 + 3


def test_the_gradient_of_a_bias_has_the_events_of_the_narrow_sum_that_it_is():
    model, recorder = nn.Linear(4, 3), sf.Recorder(more=True)
    with sf.torch.simulate(model, "amp-fp16", observer=recorder):
        model(torch.randn(5, 4)).backward(torch.full((5, 3), 20000.0))
    found = recorder.counts("bias", "backward", more=True)
    assert found["total"] == found["overflow"] == found["inexact"] == 3 and torch.isinf(model.bias.grad).all()


class Norm(nn.Module):
    """A norm of a result in 16 bits, which computes in float32."""

    def __init__(self, way):
        super().__init__()
        self.weight, self.way = nn.Parameter(torch.tensor([1.0, 0.75, -2.0, 1.5])), way

    def forward(self, x):
        return self.way(x * 1.0, self.weight)


def scaled_rows(x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


NORMS = {
    "Llama's": lambda x, w: w * scaled_rows(x.to(torch.float32)).to(x.dtype),
    "type_as": lambda x, w: scaled_rows(x.float()).type_as(x) * w,
    "layer_norm": lambda x, w: nn.functional.layer_norm(x.float(), (4,)).to(x.dtype) * w,
    "softmax": lambda x, w: nn.functional.softmax(input=x, dim=-1, dtype=torch.float32).to(x.dtype) * w,
    "torch.softmax": lambda x, w: torch.softmax(x, -1, dtype=torch.float32).type_as(x) * w,
    "method": lambda x, w: x.log_softmax(-1, dtype=torch.float32).type_as(x) * w,
    "sum": lambda x, w: (x / x.exp().sum(-1, keepdim=True, dtype=torch.float32)).to(x.dtype) * w,
    "torch.mean": lambda x, w: (30 * torch.mean(input=x, dim=0, dtype=torch.float32)).sin().type_as(x) * x * w,
    "prod": lambda x, w: x.prod(-1, True, dtype=torch.float32).sin().type_as(x) * w,
    "norm": lambda x, w: (x / torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)).to(x.dtype) * w,
    "weights": lambda x, w: ((w.float() * x + w.float().sin()) * w.float()[None]).type_as(x),
    "weights of a layer": lambda x, w: nn.functional.layer_norm(x.float(), (4,), w.float().exp()).type_as(x),
    "in place": lambda x, w: x.clone().mul_(x.float().exp()) * w,
    "norm of weights": lambda x, w: (torch.norm(w, dim=0, keepdim=True, dtype=torch.float32) * x).type_as(x),
    # An addition passes its gradient on unchanged, and a cast of autograd rounds it beside the upcast.
    "raw weights beside upcast ones": lambda x, w: (w.sin() + w.float() + x).type_as(x),
    "weights beside upcast data": lambda x, w: (x.sin() - x.float() + w.cos()).exp().type_as(x) * x,
    "joined": lambda x, w: torch.cat([x.sin() * w, x.float().exp()], -1).cos().type_as(x)[..., 2:6],
    "selected": lambda x, w: torch.where(x > 0, x.sin() * w, x.float().exp()).cos().type_as(x),
    "weights there and back": lambda x, w: (
        (w.float().sin() + w.float().type_as(x) * x.float()).type_as(x) * w.float().to(x)
    ),
    "weights upcast twice": lambda x, w: ((w.float().sin().type_as(x) * x).float() + w.float().to(x).float()).type_as(
        x
    ),
    "shares before a cast": lambda x, w: (lambda y: (y + y.type_as(x) * 0.75).type_as(x))(w.float().exp() + x),
    "no axes": lambda x, w: x * x.float().exp().sum() * w,
}


@pytest.mark.parametrize("way", NORMS)
def test_a_policy_of_mixed_precision_keeps_an_upcast_as_the_program_in_16_bits_does(way):
    x, g = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0)).bfloat16()

    def bits(model, policy, dtype):
        operand = x.to(dtype, copy=True).detach().requires_grad_()
        with sf.torch.simulate(model, policy):
            y = model(operand)
            y.backward(g.to(dtype))
        return [t.detach().float() for t in (y, operand.grad, model.weight.grad)]

    expected = bits(Norm(NORMS[way]).bfloat16(), "as-written", torch.bfloat16)
    for policy in ("bf16-fp32-weights", "fp8-hybrid", "mxfp8", "nvfp4"):
        assert all(map(torch.equal, bits(Norm(NORMS[way]), policy, torch.float32), expected)), policy
    plain = bits(Norm(NORMS[way]), "bf16-standard", torch.float32)
    assert not all(map(torch.equal, plain, expected))
    otherwise = sf.policies["bf16-fp32-weights"].override("*", activations=sf.BF16)
    assert all(map(torch.equal, bits(Norm(NORMS[way]), otherwise, torch.float32), plain))


UPCAST_OPERANDS = {
    "a parameter in a product": lambda x, w: nn.functional.linear(x[0], w[None].float()).sin(),
    "a weight of a norm": lambda x, w: nn.functional.rms_norm(x, (4,), x[0, 0].float()) * w,
    "a mask": lambda x, w: nn.functional.scaled_dot_product_attention(x, x, x, (x @ x.mT).detach().float().sin()) * w,
}


@pytest.mark.parametrize("policy", ["fp8-hybrid", "mxfp8", "bf16-fp32-weights"])
def test_upcast_operands_do_not_enter_a_call_that_computes_in_16_bits_and_an_upcast_parameter_is_the_parameter(policy):
    x = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(0))

    def run(observer, program):
        model = Norm(program)
        with sf.torch.simulate(model, policy, observer=observer):
            result = model(x)
            result.sum().backward()
        return [result, model.weight.grad]

    for program in UPCAST_OPERANDS.values():
        assert_alike(*three_ways(lambda observer, program=program: run(observer, program)))
    plain = run(None, lambda x, w: nn.functional.linear(x[0], w[None]).sin())
    assert_alike(run(None, UPCAST_OPERANDS["a parameter in a product"]), plain)


#: Casts of a result x of a layer.
UPCASTS = {
    "float": lambda x: x.float(),
    "to": lambda x: x.to(torch.float32),
    "to(dtype=)": lambda x: x.to(dtype=torch.float32),
    "to(copy=)": lambda x: x.to(torch.float32, copy=True),
    "to(data)": lambda x: x.to(torch.ones(2)),
    "to(itself)": lambda x: x.to(x),
    "type": lambda x: x.type(torch.float32),
    "type_as(data)": lambda x: x.type_as(torch.ones(2)),
    "type_as(itself)": lambda x: x.type_as(x),
    "back and forth": lambda x: x.type(torch.float64).float(),
    "there and back": lambda x: x.float().type_as(x),
    "there and back by the dtype": lambda x: x.to(torch.float32).sin().to(x.dtype),
    "twice": lambda x: x.float().float(),
    "device": lambda x: x.to("cpu"),
    "none": lambda x: x,
}

#: Programs of a model, a value z in FP32 or 16 bits, and data x: of each the results and gradients have exact sums.
SHARES = {
    "residual": lambda m, z, x: z + m.b(z),
    "residual last": lambda m, z, x: m.b(z) + z,
    "post-norm": lambda m, z, x: (lambda y: (y + m.d(F.relu(m.c(y)))) * m.w)((z + m.b(z)) * m.w),
    "pre-norm": lambda m, z, x: (lambda y: y + m.d(F.relu(m.c(y * m.w))))(z + m.b(z * m.w)),
    "queries and keys": lambda m, z, x: m.b(z) * m.c(z),
    "queries, keys and values": lambda m, z, x: z + m.b(z) * m.c(z) + m.d(z),
    "function first": lambda m, z, x: m.b(z) * z.relu(),
    "three uses": lambda m, z, x: (z * m.b(z)).relu() + z,
    "matmul": lambda m, z, x: (z @ z.mT) @ z + z,
    "view": lambda m, z, x: (lambda r: m.b(r) + m.c(r) + r)(z.view(5, 4)),
    "joined": lambda m, z, x: m.c(torch.cat([z, m.b(z)])),
    "selected": lambda m, z, x: torch.where(z > 0, z, m.b(z)),
    "function in FP32": lambda m, z, x: F.mse_loss(z, x, reduction="none") * m.w + m.b(z),
    "function in FP32 last": lambda m, z, x: m.b(z) * F.mse_loss(z, x, reduction="none"),
    "view and function in FP32": lambda m, z, x: (lambda r: m.b(r) * F.mse_loss(r, x, reduction="none"))(z[:]) + z,
    "tied": lambda m, z, x: F.linear(F.linear(z, m.b.weight), m.b.weight) * z,
    "tied with FP32": lambda m, z, x: F.linear(z, m.b.weight) * m.b.weight[0],
    "leaf": lambda m, z, x: m.b(x) * m.c(x) + z,
    "leaf and residual": lambda m, z, x: x + m.b(x) * z,
    "scale": lambda m, z, x: m.b(z) * m.scale,
    "scaled logits": lambda m, z, x: (m.b(z) @ m.c(z).mT) * m.scale,
    "quotient": lambda m, z, x: m.b(z) / m.scale + m.c(z) * m.scale,
    "scale of FP32": lambda m, z, x: z * m.scale,
    **{f"upcast by {name}": lambda m, z, x, way=way: way(z) * 0.75 * z + z for name, way in UPCASTS.items()},
    "add": lambda m, z, x: (z + m.v) * (m.v * 1.5) + z * z,
    "add upcast": lambda m, z, x: (z + z.float()) * m.v + z * z,
    "subtract": lambda m, z, x: (m.v * m.v - z) * m.v + z * z * z,
    "cat": lambda m, z, x: torch.cat([z, z.float() * m.v])[1:6] * m.v + z * z,
    "where": lambda m, z, x: torch.where(z > 0, z, m.v * 1.5) * m.v + z * z,
    "maximum": lambda m, z, x: torch.maximum(z, m.v * m.v) * m.v + z * z,
    "addcmul": lambda m, z, x: torch.addcmul(z, m.v.new_ones(4), torch.ones_like(z)) * m.v + z * z,
    "parameter": lambda m, z, x: z * m.v.type_as(z) * 1.5 + z,
    "upcast parameter": lambda m, z, x: z * m.v.float().to(z) + z * m.v,
    "data": lambda m, z, x: (z + torch.full((4,), 1 / 3).type_as(z)) * 1.5,
    "integers": lambda m, z, x: z * torch.arange(4).to(z),
}


EXACT = [0.9375, -1.1875, 0.5625, 1.8125]


@pytest.mark.parametrize("is_wide", [True, False])
def test_results_and_shares_of_gradients_have_the_bits_that_autocast_gives_them_and_operands_without_axes_widen_nothing(
    is_wide,
):
    def run(program, block):
        torch.manual_seed(3)
        model, arrived = nn.Module(), []
        for name in "abcd":
            setattr(model, name, nn.Linear(4, 4, bias=False))
        model.w, model.scale, model.v = (nn.Parameter(torch.tensor(x)) for x in ([1.0] * 4, 1 + 2**-10, EXACT))
        with torch.no_grad():
            for parameter in list(model.parameters())[3:]:
                parameter.copy_(torch.randint(-15, 16, parameter.shape) / 8 + 1 / 16)
        x = (torch.randint(-15, 16, (5, 4)) / 8).requires_grad_()
        with block(model):
            h = model.a(x.detach())
            h.register_hook(lambda g: arrived.append(g.float()))
            y = program(model, h * model.w if is_wide else h, x)
            (y.float() * (torch.randint(-127, 128, y.shape) / 32)).sum().backward()
        return [y.detach().float(), *(leaf.grad for leaf in (x, *model.parameters())), *arrived]

    watched = {"amp-bf16": [sf.Recorder()]} if is_wide else {"amp-bf16": [None, sf.Recorder()], "amp-fp16": [None]}
    for name, program in SHARES.items():
        for policy, observers in watched.items():
            if (name, policy) == ("quotient", "amp-fp16"):
                continue  # a sum that is not exact
            expected = run(program, lambda model, dtype=FORMATS[policy]: torch.autocast("cpu", dtype))
            for observer in observers:
                found = run(program, lambda model, p=policy, o=observer: sf.torch.simulate(model, p, observer=o))
                for a, b in zip(found, expected, strict=True):
                    assert (a is b is None) or torch.equal(a, b), (name, policy, observer)
    assert not {"float", "to", "type", "type_as"} & set(vars(torch.Tensor)), "the methods are restored"


def test_data_converted_to_the_dtype_of_16_bit_values_leave_results_in_16_bits():
    data, results = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)), []
    for other in (lambda x: data.to(x.dtype), lambda x: data):
        model = Norm(lambda x, w, other=other: ((x * w) * other(x) - other(x)).exp())
        with sf.torch.simulate(model, "fp8-hybrid"):
            results.append(model(data))
    assert torch.equal(*results)


def test_analyses_under_a_policy_of_mixed_precision_include_the_upcasts_of_a_program():
    def model(norm):
        torch.manual_seed(0)
        return nn.Sequential(nn.Embedding(5, 4), Norm(norm), nn.Linear(4, 2))

    tokens, policy = torch.tensor([0, 3, 1]), "fp8-hybrid"
    loss = lambda z, y: z.square().mean()  # noqa: E731
    for norm, is_wide in ((NORMS["Llama's"], True), (lambda x, w: w * scaled_rows(x), False)):
        rows = [line.split() for line in str(sf.torch.explain(model(norm), tokens, policy)).splitlines()]
        assert ("FP32 FP32 FP32" in " ".join(next(line for line in rows if line[-1] == "rsqrt"))) == is_wide
        costs = sf.attribute(model(norm), loss, (tokens, tokens), policy, by=["operation"]).costs
        assert (next(cost.error for cost in costs if cost.operation == "rsqrt") < 1e-5) == is_wide
        assert ("activations           FP32" in str(sf.cost(model(norm), loss, (tokens, tokens), policy))) == is_wide
