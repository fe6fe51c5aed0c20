"""Attention under automatic mixed precision: one operation, as accurate as that of torch.autocast."""

from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as held_by_name
from torch.utils.checkpoint import checkpoint

import simfloat as sf
import simfloat.torch

NAME = "scaled_dot_product_attention"
PRESETS = {"amp-bf16": torch.bfloat16, "amp-fp16": torch.float16, "apex-o1": torch.float16}
FP8_KERNEL = sf.attention_kernels["flash-attention-3-fp8"]
MASKS = {
    "none": lambda: {},
    "causal": lambda: {"is_causal": True},
    "truth values": lambda: {"attn_mask": torch.randn(64, 64) > 0},
    "numbers": lambda: {"attn_mask": torch.randn(64, 64)},
    "scale": lambda: {"scale": 0.3},
}


def operands(seed=0, size=1.0, shape=(1, 2, 64, 64)):
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=random) * size for _ in range(3)]


def simulated(policy, function, **options):
    with sf.torch.simulate(torch.nn.Identity(), policy, **options):
        return function()


def trained(given, gradient, dtype=None, **options):
    """The result and the gradients of queries, keys and values; under autocast in a type."""
    leaves = [x.detach().clone().requires_grad_() for x in given]
    with torch.autocast("cpu", dtype) if dtype else nullcontext():
        result = F.scaled_dot_product_attention(*leaves, **options)
    result.backward(gradient.to(result.dtype))
    return [result.detach(), *(x.grad for x in leaves)]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("policy", PRESETS)
def test_its_error_forward_and_backward_is_at_most_twice_that_of_autocast(policy, mask):
    torch.manual_seed(3)
    for seed, size in ((0, 1.0), (1, 2.0), (2, 5.0)):
        given, options, gradient = operands(seed, size), MASKS[mask](), operands(seed + 10)[0]
        wide = {n: x.double() if torch.is_tensor(x) and x.is_floating_point() else x for n, x in options.items()}
        exact = trained([x.double() for x in given], gradient.double(), **wide)
        theirs = trained(given, gradient, PRESETS[policy], **options)
        ours = simulated(policy, lambda g=given, up=gradient, o=options: trained(g, up, **o))
        for mine, autocasts, right in zip(ours, theirs, exact, strict=True):
            for error in (lambda x, right=right: (x.double() - right).abs().max(),
                          lambda x, right=right: (x.double() - right).square().mean().sqrt()):  # fmt: skip
                assert error(mine) <= 2 * error(autocasts)
            if size == 1:  # narrow numbers come out
                assert torch.equal(mine, mine.to(PRESETS[policy]).float())


@pytest.mark.parametrize("policy", PRESETS)
def test_large_scores_stay_in_fp32(policy):
    q = torch.full((1, 1, 4, 4), 200.0)
    assert simulated(policy, lambda: F.scaled_dot_product_attention(q, q, q)).eq(200).all()


@pytest.mark.parametrize("mask", ["none", "causal", "truth values", "numbers"])
@pytest.mark.parametrize("policy", [*PRESETS, "bf16-standard", "fp8-hybrid"])
@pytest.mark.parametrize("fused", [None, True, False, sf.flash_attention(3), FP8_KERNEL], ids=str)
def test_our_own_tensors_have_the_same_bits(policy, mask, fused):
    torch.manual_seed(0)
    chosen = sf.policies[policy]
    chosen = chosen if fused is None else chosen.override(operation=NAME, fused=fused)
    given, gradient = operands(shape=(2, 3, 8, 16)), operands(5, shape=(2, 3, 8, 16))[0]
    options = {n: x[:8, :8] if torch.is_tensor(x) else x for n, x in MASKS[mask]().items()}
    found = simulated(chosen, lambda: trained(given, gradient, **options))
    with sf.simulate(chosen):
        ours = [sf.Tensor(x.numpy(), requires_grad=True) for x in given]
        arrays = {n: x.numpy() if torch.is_tensor(x) else x for n, x in options.items()}
        y = sf.nn.scaled_dot_product_attention(*ours, **arrays)
        y.backward(gradient.numpy())
    for mine, theirs in zip([y.data, *(x.grad for x in ours)], found, strict=True):
        np.testing.assert_array_equal(mine, theirs.numpy())


@pytest.mark.parametrize("policy", ["amp-bf16", "amp-fp16"])
def test_a_layer_of_heads_without_weights_is_one_operation_in_both_front_ends(policy):
    torch.manual_seed(0)
    theirs = torch.nn.MultiheadAttention(16, 2, batch_first=True)
    ours = sf.nn.MultiHeadAttention(16, 2, batch_first=True)
    ours.load_state_dict({name: x.numpy() for name, x in theirs.state_dict().items()})
    x = torch.randn(2, 6, 16) * 3
    with sf.torch.simulate(theirs, policy) as run:
        wanted, _ = theirs(x, x, x, need_weights=False)
        assert any(NAME in str(func) for func, _, _ in run.met)
    with sf.simulate(policy):
        found, _ = ours(x.numpy(), x.numpy(), x.numpy(), need_weights=False)
    np.testing.assert_array_equal(found.data, wanted.detach().numpy())


def test_the_operation_is_rounded_where_it_begins_and_ends_and_its_probabilities_as_operands():
    q, k, v = operands(4, shape=(1, 3, 8))
    found = simulated("amp-bf16", lambda: F.scaled_dot_product_attention(q, k, v))
    a, b, c = (sf.round(x.numpy(), sf.BF16) for x in (q, k, v))
    f = sf.FP32
    scores = sf.multiply(sf.matmul(a, b.swapaxes(-1, -2), accumulate=f), sf.round(1 / 8**0.5, f), f)
    powers = sf.exp(sf.subtract(scores, scores.max(-1, keepdims=True), f), f)
    share = sf.divide(1.0, sf.sum(powers, -1, accumulate=f)[..., None], f)
    wanted = sf.multiply(sf.matmul(sf.round(powers, sf.BF16), c, accumulate=f), share, f)
    np.testing.assert_array_equal(found.numpy(), sf.round(wanted, sf.BF16))


def test_an_override_chooses_whether_its_steps_are_rounded():
    given = operands(shape=(1, 4, 8))
    steps = sf.policies["amp-bf16"].override(operation=NAME, fused=False)
    one = sf.policies["bf16-standard"].override(operation=NAME, fused=True)
    attend = lambda: F.scaled_dot_product_attention(*given)  # noqa: E731
    found = {
        name: simulated(policy, attend) for name, policy in {"amp": "amp-bf16", "steps": steps, "one": one}.items()
    }
    assert torch.equal(found["amp"], found["one"])
    kernel = sf.policies["amp-bf16"].override(operation=NAME, fused=sf.flash_attention())
    assert torch.equal(simulated(kernel, attend), found["amp"])
    assert not torch.equal(found["amp"], found["steps"])
    assert sf.Policy.from_toml(sf.policies["amp-bf16"].to_toml()) == sf.policies["amp-bf16"]
    narrow = sf.policies["amp-bf16"].override(operation=NAME, compute=sf.E4M3)
    assert not torch.equal(simulated(narrow, attend), found["amp"]), "its operands' roles are overridden by its name"


def test_whatever_name_calls_it_and_in_whatever_mode_it_is_one_operation():
    given = operands(shape=(1, 4, 8))
    wanted = simulated("amp-bf16", lambda: F.scaled_dot_product_attention(*given))
    for call in (held_by_name, torch.ops.aten.scaled_dot_product_attention, torch._C._nn.scaled_dot_product_attention):
        assert torch.equal(simulated("amp-bf16", lambda call=call: call(*given)), wanted)
    with torch.inference_mode():
        assert torch.equal(simulated("amp-bf16", lambda: held_by_name(*given)), wanted)
    with torch.no_grad():
        assert torch.equal(simulated("amp-bf16", lambda: held_by_name(*given)), wanted)
    plain = F.scaled_dot_product_attention(*given)
    assert not torch.equal(plain, wanted), "outside of the block it is PyTorch's own"
    assert simulated("amp-bf16", lambda: torch.vmap(held_by_name)(*given)).shape == plain.shape


def test_shapes_that_pytorch_takes_are_taken():
    q, k, v = operands(shape=(2, 4, 6, 8))
    for given, options in (
        ((q, k[:, :2], v[:, :2]), {"enable_gqa": True}),
        ((q, k[:1], v[:1]), {}),
        ((q[0, 0], k[0, 0], v[0, 0]), {}),
        ((q, k[:, :, :0], v[:, :, :0]), {}),
        ((q[:, :, :0], k, v), {}),
        ((q, k, v), {"attn_mask": torch.zeros(6, 6, dtype=torch.bool)}),
        ((q, k, v), {"attn_mask": torch.randn(2, 1, 6, 6)}),
    ):
        wanted = F.scaled_dot_product_attention(*given, **options)
        found = simulated("amp-bf16", lambda g=given, o=options: F.scaled_dot_product_attention(*g, **o))
        assert found.shape == wanted.shape
        torch.testing.assert_close(found, wanted, rtol=0.05, atol=0.05)


def test_weights_are_dropped_by_pytorchs_generator():
    given = operands(shape=(1, 2, 8, 8))
    torch.manual_seed(0)
    theirs = F.scaled_dot_product_attention(*given, dropout_p=0.5)
    torch.manual_seed(0)
    ours = simulated("amp-bf16", lambda: F.scaled_dot_product_attention(*given, dropout_p=0.5))
    torch.testing.assert_close(ours, theirs, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("fused", [True, sf.flash_attention(4)], ids=str)
def test_gradients_of_gradients_and_checkpoints_go_through_it(fused):
    given, policy = operands(shape=(1, 2, 6, 8)), sf.policies["amp-bf16"].override(operation=NAME, fused=fused)

    def twice():
        x = given[0].clone().requires_grad_()
        result = F.scaled_dot_product_attention(x, *given[1:])
        gradient = torch.autograd.grad(result.square().sum(), x, create_graph=True)[0]
        return torch.autograd.grad(gradient.square().sum(), x)[0]

    with sdpa_kernel(SDPBackend.MATH):  # of the others PyTorch has no second derivatives
        torch.testing.assert_close(simulated(policy, twice), twice(), rtol=0.1, atol=0.1)

    def part(again):
        leaves = [x.clone().requires_grad_() for x in given]
        torch.manual_seed(0)
        attend = partial(F.scaled_dot_product_attention, dropout_p=0.3)
        result = checkpoint(attend, *leaves, use_reentrant=False) if again else attend(*leaves)
        result.sum().backward()
        return torch.stack([x.grad for x in leaves])

    assert torch.equal(*(simulated(policy, lambda again=again: part(again)) for again in (True, False)))


KERNELS = {"auto": sf.attention_kernels["pytorch-cpu"], "blocks": sf.flash_attention(16, exponential="exp2")}


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("policy", ["amp-bf16", "amp-fp16"])
def test_the_error_of_a_kernel_is_at_most_a_fifth_larger_than_that_of_autocast(policy, mask, kernel):
    torch.manual_seed(3)
    given, options, gradient = operands(1, 2.0), MASKS[mask](), operands(11)[0]
    wide = {n: x.double() if torch.is_tensor(x) and x.is_floating_point() else x for n, x in options.items()}
    exact = trained([x.double() for x in given], gradient.double(), **wide)
    theirs = trained(given, gradient, PRESETS[policy], **options)
    chosen = sf.policies[policy].override(operation=NAME, fused=kernel)
    ours = simulated(chosen, lambda: trained(given, gradient, **options))
    for mine, autocasts, right in zip(ours, theirs, exact, strict=True):
        error = lambda x, right=right: (x.double() - right).square().mean().sqrt()  # noqa: E731
        assert error(mine) <= 1.2 * error(autocasts)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}], ids=["none", "causal"])
def test_short_sequences_in_16_bits_have_the_bits_of_pytorchs_cpu_kernel_except_one_in_forty(dtype, options):
    given = [x.to(dtype) for x in operands(shape=(1, 2, 6, 8))]
    gradient = operands(7, shape=(1, 2, 6, 8))[0]
    policy = sf.policies["as-written"].override(operation=NAME, fused=sf.attention_kernels["pytorch-cpu"])
    ours = simulated(policy, lambda: trained(given, gradient, **options))
    for mine, theirs in zip(ours, trained(given, gradient, **options), strict=True):
        # Its products and exponentials are not rounded in the same way on every processor.
        assert mine.dtype == dtype and (mine != theirs).float().mean() <= 1 / 40


def gradient_of_values(length, dtype):
    """The gradient of the values, which sums over all queries; equal scores make every sum inside a block exact."""
    zeros = torch.zeros(1, 1, length, 8, dtype=dtype)
    values = torch.zeros(1, 1, 8, 8, dtype=dtype, requires_grad=True)
    gradient = torch.randint(1, 8, zeros.shape, generator=torch.Generator().manual_seed(length)).to(dtype) / 4
    F.scaled_dot_product_attention(zeros, zeros[..., :8, :], values).backward(gradient)
    return values.grad


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_blocks_of_queries_of_pytorchs_cpu_kernel_depend_on_their_number(dtype):
    """32, 64 from 192 on, 256 from 768 on: aten/src/ATen/native/cpu/FlashAttentionKernel.cpp."""
    policy = sf.policies["as-written"].override(operation=NAME, fused=sf.attention_kernels["pytorch-cpu"])
    for length in (31, 191, 193, 767, 769, 1100):
        theirs = gradient_of_values(length, dtype)
        assert torch.equal(simulated(policy, lambda n=length: gradient_of_values(n, dtype)), theirs)


def test_a_backward_pass_after_the_block_is_pytorchs_own():
    given = operands(shape=(1, 2, 6, 8))
    leaves, others = ([x.clone().requires_grad_() for x in given] for _ in range(2))
    policy = sf.policies["amp-bf16"].override(operation=NAME, fused=sf.flash_attention(4))
    result = simulated(policy, lambda: F.scaled_dot_product_attention(*leaves, is_causal=True))
    result.sum().backward()
    F.scaled_dot_product_attention(*others, is_causal=True).sum().backward()
    for x, y in zip(leaves, others, strict=True):
        torch.testing.assert_close(x.grad, y.grad)


def test_a_mask_of_numbers_has_a_gradient():
    q, k, v = operands(shape=(1, 2, 6, 8))
    mask = torch.randn(6, 6, requires_grad=True)
    policy = sf.policies["fp32"].override(operation=NAME, fused=sf.flash_attention(4))

    def gradient():
        result = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return torch.autograd.grad(result.square().sum(), mask)[0]

    torch.testing.assert_close(simulated(policy, gradient), gradient())


def test_an_observer_receives_operands_steps_the_result_and_gradients_once():
    recorder = sf.Recorder()
    queries = torch.nn.ParameterList([torch.nn.Parameter(operands(shape=(2, 3, 4))[0])])
    _, k, v = operands(shape=(2, 3, 4))
    with sf.torch.simulate(queries, "amp-bf16", observer=recorder):
        F.scaled_dot_product_attention(queries[0], k, v).sum().backward()
    count = lambda **where: recorder.counts(**where)["total"]  # noqa: E731
    assert count(phase="forward", operation="cast_input") == 3 * 24
    assert count(phase="forward", operation="probabilities") == 18
    assert count(phase="forward", operation="scores") == 18 + 18, "the product, and its multiplication by the scale"
    assert count(phase="forward", operation="output") == 24 + 24, "the product, and its division by the denominator"
    assert count(phase="forward", operation=NAME) == 24
    assert count(path="0", phase="backward") == 24, "each element of the parameter's gradient once"


def test_explain_and_the_table_name_it():
    class Attend(torch.nn.Module):
        def forward(self, x):
            return F.scaled_dot_product_attention(x, x, x)

    table = str(sf.torch.explain(Attend(), torch.randn(1, 3, 4), "amp-bf16"))
    assert "aten.scaled_dot_product_attention.default" in table
    assert f"{NAME} softmax" in table


@pytest.mark.parametrize("backend", [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])
@pytest.mark.parametrize("policy", ["amp-bf16", "bf16-standard"])
def test_the_choice_of_a_kernel_around_or_in_a_block_changes_nothing_and_is_restored(policy, backend):
    given = operands(shape=(1, 2, 4, 8))
    attend = lambda: F.scaled_dot_product_attention(*given)  # noqa: E731
    names = ("flash", "mem_efficient", "math")
    flags = lambda: [getattr(torch._C, f"_get_{name}_sdp_enabled")() for name in names]  # noqa: E731
    before, wanted = flags(), simulated(policy, attend)
    with sdpa_kernel(backend):
        chosen = flags()
        assert torch.equal(simulated(policy, attend), wanted)
        assert flags() == chosen
    with sf.torch.simulate(torch.nn.Identity(), policy) as run:
        with sdpa_kernel(backend):
            assert torch.equal(attend(), wanted)
            assert flags() == chosen
            with run.paused():
                assert flags() == chosen
        assert flags() == before
    assert flags() == before
    # Blocks that overlap.
    kernel, block = sdpa_kernel(backend), sf.torch.simulate(torch.nn.Identity(), policy)
    kernel.__enter__()
    block.__enter__()
    kernel.__exit__(None, None, None)
    block.__exit__(None, None, None)
    assert flags() == before


#: Each of c, a, b, alpha and beta.
SCALED = {
    "addmm": ((2, 3), (2, 64), (64, 3)), "baddbmm": ((1, 2, 3), (1, 2, 64), (1, 64, 3)),
    "addmv": ((2,), (2, 64), (64,)), "addbmm": ((2, 3), (1, 2, 64), (1, 64, 3)), "addr": ((2, 3), (2,), (3,)),
}  # fmt: skip


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("policy", ["amp-fp16", "amp-bf16", "fp16-standard", "fp32"])
@pytest.mark.parametrize("alpha, beta", [(0.125, 1.0), (1 / 3, 0.7), (1.0, 0.5), (-1.0, 1.0), (0.3, 0.0)])
def test_factors_of_a_product_are_applied_before_its_one_rounding(name, policy, alpha, beta):
    random = torch.Generator().manual_seed(0)
    c, a, b = (torch.randn(shape, generator=random) * 50 for shape in SCALED[name])
    narrow = {"amp-fp16": sf.FP16, "amp-bf16": sf.BF16, "fp16-standard": sf.FP16}.get(policy, sf.FP32)
    found = simulated(policy, lambda: getattr(torch, name)(c, a, b, alpha=alpha, beta=beta))
    x, y, f = a.numpy(), b.numpy(), sf.FP32
    x, y = {"addmv": (x, y[:, None]), "addr": (x[:, None], y[None])}.get(name, (x, y))
    x, y = (sf.round(each, narrow) for each in (x, y))
    scaled = sf.multiply(sf.matmul(x, y, accumulate=f), alpha, f).reshape(c.shape)
    wanted = sf.add(scaled, sf.multiply(c.numpy(), beta, f), narrow) if beta else sf.round(scaled, narrow)
    np.testing.assert_array_equal(found.numpy(), wanted)


def test_a_factor_keeps_a_large_product_in_range():
    a, b = torch.full((1, 2, 64), 50.0), torch.full((1, 64, 2), 50.0)
    for policy in ("amp-fp16", "apex-o1"):
        assert simulated(policy, lambda: torch.baddbmm(torch.zeros(1, 2, 2), a, b, alpha=0.125)).eq(20000).all()


def test_a_linear_layer_is_still_two_rounded_operations():
    layer, x = torch.nn.Linear(3, 2), torch.randn(4, 3)
    with sf.torch.simulate(layer, "bf16-standard"):
        found = layer(x).detach().numpy()
    weight, bias = (sf.round(p.detach().numpy(), sf.BF16) for p in (layer.weight, layer.bias))
    f = sf.BF16
    product = sf.matmul(x.numpy(), weight.T, inputs=f, accumulate=sf.FP32, output=f)
    np.testing.assert_array_equal(found, sf.add(product, bias, f))
