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
MASKS = {
    "none": lambda n: {},
    "causal": lambda n: {"is_causal": True},
    "truth values": lambda n: {"attn_mask": torch.randn(n, n) > 0},
    "numbers": lambda n: {"attn_mask": torch.randn(n, n)},
    "scale": lambda n: {"scale": 0.3},
}


def operands(seed=0, size=1.0, shape=(1, 2, 64, 64)):
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=random) * size for _ in range(3)]


def simulated(policy, function, **options):
    with sf.torch.simulate(torch.nn.Identity(), policy, **options):
        return function()


def by_kernel(policy, kernel):
    """A policy whose attention is one operation by a kernel."""
    return sf.policies[policy].override(operation=NAME, fused=kernel)


def trained(given, gradient, dtype=None, **options):
    """The result and the gradients of queries, keys and values; under autocast in a type."""
    leaves = [x.detach().clone().requires_grad_() for x in given]
    with torch.autocast("cpu", dtype) if dtype else nullcontext():
        result = F.scaled_dot_product_attention(*leaves, **options)
    result.backward(gradient.to(result.dtype))
    return [result.detach(), *(x.grad for x in leaves)]


KERNELS = {"auto": sf.attention_kernels["pytorch-cpu"], "blocks": sf.flash_attention(16, exponential="exp2")}


@pytest.mark.parametrize("mask", MASKS)
def test_its_error_forward_and_backward_is_at_most_twice_that_of_autocast_and_a_kernels_a_fifth_larger(mask):
    torch.manual_seed(3)
    for seed, size in ((0, 1.0), (2, 5.0)):
        given, options, gradient = operands(seed, size), MASKS[mask](64), operands(seed + 10)[0]
        wide = {n: x.double() if torch.is_tensor(x) and x.is_floating_point() else x for n, x in options.items()}
        exact = trained([x.double() for x in given], gradient.double(), **wide)
        for policy, dtype in PRESETS.items():
            theirs = trained(given, gradient, dtype, **options)
            chosen = {2.0: policy} if size == 1 or policy == "amp-bf16" else {}
            if size > 1 and policy != "apex-o1":
                chosen[1.2] = by_kernel(policy, KERNELS[("auto", "blocks")[list(MASKS).index(mask) % 2]])
            for factor, simulation in chosen.items():
                ours = simulated(simulation, lambda g=given, up=gradient, o=options: trained(g, up, **o))
                for mine, autocasts, right in zip(ours, theirs, exact, strict=True):
                    errors = [(x.double() - right).square().mean().sqrt() for x in (mine, autocasts)]
                    largest = [(x.double() - right).abs().max() for x in (mine, autocasts)]
                    assert errors[0] <= factor * errors[1] and (factor < 2 or largest[0] <= 2 * largest[1])
                    if size == 1:  # narrow numbers come out
                        assert torch.equal(mine, mine.to(dtype).float())


FP8_KERNEL = sf.attention_kernels["flash-attention-3-fp8"]


@pytest.mark.parametrize("fused", [None, True, False, sf.flash_attention(3), FP8_KERNEL], ids=str)
def test_our_own_tensors_have_the_same_bits(fused):
    torch.manual_seed(0)
    for policy, masks in {
        "amp-bf16": ("none", "numbers"), "amp-fp16": ("causal",), "apex-o1": ("truth values",),
        "bf16-standard": ("numbers", "causal"), "fp8-hybrid": ("none", "truth values"),
    }.items():  # fmt: skip
        chosen = sf.policies[policy] if fused is None else by_kernel(policy, fused)
        for mask in masks:
            given, gradient = operands(shape=(2, 3, 8, 16)), operands(5, shape=(2, 3, 8, 16))[0]
            options = MASKS[mask](8)
            found = simulated(chosen, lambda g=given, up=gradient, o=options: trained(g, up, **o))
            with sf.simulate(chosen):
                ours = [sf.Tensor(x.numpy(), requires_grad=True) for x in given]
                arrays = {n: x.numpy() if torch.is_tensor(x) else x for n, x in options.items()}
                y = sf.nn.scaled_dot_product_attention(*ours, **arrays)
                y.backward(gradient.numpy())
            for mine, theirs in zip([y.data, *(x.grad for x in ours)], found, strict=True):
                np.testing.assert_array_equal(mine, theirs.numpy())


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
    for policy in PRESETS:  # large scores stay in FP32
        q = torch.full((1, 1, 4, 4), 200.0)
        assert simulated(policy, lambda q=q: F.scaled_dot_product_attention(q, q, q)).eq(200).all()


def test_an_override_chooses_whether_its_steps_are_rounded():
    given, amp = operands(shape=(1, 4, 8)), sf.policies["amp-bf16"]
    attend = lambda: F.scaled_dot_product_attention(*given)  # noqa: E731
    wanted = simulated(amp, attend)
    for same in (by_kernel("bf16-standard", True), by_kernel("amp-bf16", sf.flash_attention())):
        assert torch.equal(simulated(same, attend), wanted)
    # The roles of its operands are overridden by its name, too.
    for other in (by_kernel("amp-bf16", False), amp.override(operation=NAME, compute=sf.E4M3)):
        assert not torch.equal(simulated(other, attend), wanted)
    assert sf.Policy.from_toml(amp.to_toml()) == amp


def test_whatever_name_calls_it_and_in_whatever_mode_it_is_one_operation():
    given = operands(shape=(1, 4, 8))
    wanted = simulated("amp-bf16", lambda: F.scaled_dot_product_attention(*given))
    for call in (held_by_name, torch.ops.aten.scaled_dot_product_attention, torch._C._nn.scaled_dot_product_attention):
        assert torch.equal(simulated("amp-bf16", lambda call=call: call(*given)), wanted)
    for mode in (torch.inference_mode, torch.no_grad):
        with mode():
            assert torch.equal(simulated("amp-bf16", lambda: held_by_name(*given)), wanted)
    plain = F.scaled_dot_product_attention(*given)
    assert not torch.equal(plain, wanted), "outside of the block it is PyTorch's own"
    assert simulated("amp-bf16", lambda: torch.vmap(held_by_name)(*given)).shape == plain.shape


def test_shapes_that_pytorch_takes_are_taken_and_weights_are_dropped_by_its_generator():
    q, k, v = operands(shape=(2, 4, 6, 8))
    for given, options in (
        ((q, k[:, :2], v[:, :2]), {"enable_gqa": True}),
        ((q, k[:1], v[:1]), {}),
        ((q[0, 0], k[0, 0], v[0, 0]), {}),
        ((q, k[:, :, :0], v[:, :, :0]), {}),
        ((q[:, :, :0], k, v), {}),
        ((q, k, v), {"attn_mask": torch.zeros(6, 6, dtype=torch.bool)}),
        ((q, k, v), {"attn_mask": torch.randn(2, 1, 6, 6)}),
        ((q, k, v), {"dropout_p": 0.5}),
    ):
        attend = partial(F.scaled_dot_product_attention, *given, **options)
        torch.manual_seed(0)
        wanted = attend()
        torch.manual_seed(0)
        torch.testing.assert_close(simulated("amp-bf16", attend), wanted, rtol=0.05, atol=0.05)


def test_dropout_takes_a_probability():
    q = torch.ones(1, 1, 2, 2)
    for policy, p in (("amp-bf16", -0.5), ("bf16-standard", 1.5), ("as-written", -1)):
        with sf.torch.simulate(torch.nn.Identity(), policy):
            with pytest.raises(ValueError, match=f"dropout_p is a probability, a number from 0 to 1, got {p}"):
                F.scaled_dot_product_attention(q, q, q, dropout_p=p)


@pytest.mark.parametrize("fused", [True, sf.flash_attention(4)], ids=str)
def test_gradients_of_gradients_and_checkpoints_go_through_it(fused):
    given, policy = operands(shape=(1, 2, 6, 8)), by_kernel("amp-bf16", fused)

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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_sequences_in_16_bits_have_the_bits_of_pytorchs_cpu_kernel_except_one_in_forty(dtype):
    given, gradient = [x.to(dtype) for x in operands(shape=(1, 2, 6, 8))], operands(7, shape=(1, 2, 6, 8))[0]
    for options in ({}, {"is_causal": True}):
        policy = by_kernel("as-written", sf.attention_kernels["pytorch-cpu"])
        ours = simulated(policy, lambda options=options: trained(given, gradient, **options))
        for mine, theirs in zip(ours, trained(given, gradient, **options), strict=True):
            # Its products and exponentials are not rounded in the same way on every processor.
            assert mine.dtype == dtype and (mine != theirs).float().mean() <= 1 / 40


def gradient_of_values(length, dtype, shared=False):
    """The gradient of the values, which sums over all queries; equal scores make every sum inside a block exact.

    If they are `shared`, the sum is also over two heads.
    """
    zeros = torch.zeros(1, 4 if shared else 1, length, 8, dtype=dtype)
    values = torch.zeros(1, 2 if shared else 1, 8, 8, dtype=dtype, requires_grad=True)
    gradient = torch.randint(1, 8, zeros.shape, generator=torch.Generator().manual_seed(length)).to(dtype) / 4
    keys = torch.zeros_like(values)
    F.scaled_dot_product_attention(zeros, keys, values, enable_gqa=shared).backward(gradient)
    return values.grad


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_blocks_of_queries_of_pytorchs_cpu_kernel_depend_on_their_number(dtype):
    """32, 64 from 192 on, 256 from 768 on: aten/src/ATen/native/cpu/FlashAttentionKernel.cpp."""
    policy = sf.policies["as-written"].override(operation=NAME, fused=sf.attention_kernels["pytorch-cpu"])
    for length in (31, 191, 193, 767, 769, 1100):
        for shared in (False, True):
            theirs = gradient_of_values(length, dtype, shared)
            ours = simulated(policy, lambda n=length, s=shared: gradient_of_values(n, dtype, s))
            assert torch.equal(ours, theirs)


def test_a_backward_pass_after_the_block_is_pytorchs_own():
    leaves, others = ([x.requires_grad_() for x in operands(shape=(1, 2, 6, 8))] for _ in range(2))
    policy = by_kernel("amp-bf16", sf.flash_attention(4))
    simulated(policy, lambda: F.scaled_dot_product_attention(*leaves, is_causal=True)).sum().backward()
    F.scaled_dot_product_attention(*others, is_causal=True).sum().backward()
    for x, y in zip(leaves, others, strict=True):
        torch.testing.assert_close(x.grad, y.grad)


def test_a_mask_of_numbers_has_a_gradient():
    q, k, v = operands(shape=(1, 2, 6, 8))
    mask = torch.randn(6, 6, requires_grad=True)

    def gradient():
        result = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return torch.autograd.grad(result.square().sum(), mask)[0]

    torch.testing.assert_close(simulated(by_kernel("fp32", sf.flash_attention(4)), gradient), gradient())


def test_an_observer_receives_operands_steps_the_result_and_gradients_once_and_explain_names_them():
    recorder = sf.Recorder()
    q, k, v = operands(shape=(2, 3, 4))
    queries = torch.nn.ParameterList([torch.nn.Parameter(q)])
    with sf.torch.simulate(queries, "amp-bf16", observer=recorder):
        F.scaled_dot_product_attention(queries[0], k, v).sum().backward()
    counts = {
        "cast_input": 3 * 24,
        "probabilities": 18,
        "scores": 18 + 18,  # the product, and its multiplication by the scale
        "output": 24 + 24,  # the product, and its division by the denominator
        NAME: 24,
    }
    assert {name: recorder.counts(phase="forward", operation=name)["total"] for name in counts} == counts
    assert recorder.counts(path="0", phase="backward")["total"] == 24, "each element of its gradient once"

    class Attend(torch.nn.Module):
        def forward(self, x):
            return F.scaled_dot_product_attention(x, x, x)

    table = str(sf.torch.explain(Attend(), torch.randn(1, 3, 4), "amp-bf16"))
    assert "aten.scaled_dot_product_attention.default" in table and f"{NAME} softmax" in table


@pytest.mark.parametrize("policy", ["amp-bf16", "bf16-standard"])
def test_the_choice_of_a_kernel_around_or_in_a_block_changes_nothing_and_is_restored(policy):
    given = operands(shape=(1, 2, 4, 8))
    attend = lambda: F.scaled_dot_product_attention(*given)  # noqa: E731
    names = ("flash", "mem_efficient", "math")
    flags = lambda: [getattr(torch._C, f"_get_{name}_sdp_enabled")() for name in names]  # noqa: E731
    before, wanted = flags(), simulated(policy, attend)
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH):
        with sdpa_kernel(backend):
            chosen = flags()
            assert torch.equal(simulated(policy, attend), wanted) and flags() == chosen
        with sf.torch.simulate(torch.nn.Identity(), policy) as run:
            with sdpa_kernel(backend):
                assert torch.equal(attend(), wanted) and flags() == chosen
                with run.paused():
                    assert flags() == chosen
            assert flags() == before
        overlapping = sdpa_kernel(backend), sf.torch.simulate(torch.nn.Identity(), policy)
        for block in overlapping:
            block.__enter__()
        for block in overlapping:
            block.__exit__(None, None, None)
        assert flags() == before


#: Each of c, a, b, alpha and beta.
SCALED = {
    "addmm": ((2, 3), (2, 64), (64, 3)), "baddbmm": ((1, 2, 3), (1, 2, 64), (1, 64, 3)),
    "addmv": ((2,), (2, 64), (64,)), "addbmm": ((2, 3), (1, 2, 64), (1, 64, 3)), "addr": ((2, 3), (2,), (3,)),
}  # fmt: skip


@pytest.mark.parametrize("name", SCALED)
def test_factors_of_a_product_are_applied_before_its_one_rounding(name):
    random, f = torch.Generator().manual_seed(0), sf.FP32
    c, a, b = (torch.randn(shape, generator=random) * 50 for shape in SCALED[name])
    for policy, narrow in (("amp-fp16", sf.FP16), ("amp-bf16", sf.BF16), ("fp16-standard", sf.FP16), ("fp32", f)):
        for alpha, beta in ((0.125, 1.0), (1 / 3, 0.7), (1.0, 0.5), (-1.0, 1.0), (0.3, 0.0)):
            found = simulated(policy, lambda al=alpha, be=beta: getattr(torch, name)(c, a, b, alpha=al, beta=be))
            x, y = a.numpy(), b.numpy()
            x, y = {"addmv": (x, y[:, None]), "addr": (x[:, None], y[None])}.get(name, (x, y))
            x, y = (sf.round(each, narrow) for each in (x, y))
            scaled = sf.multiply(sf.matmul(x, y, accumulate=f), alpha, f).reshape(c.shape)
            wanted = sf.add(scaled, sf.multiply(c.numpy(), beta, f), narrow) if beta else sf.round(scaled, narrow)
            np.testing.assert_array_equal(found.numpy(), wanted)
    large = torch.full((1, 2, 64), 50.0), torch.full((1, 64, 2), 50.0)
    for policy in ("amp-fp16", "apex-o1"):  # a factor keeps a large product in range
        assert simulated(policy, lambda: torch.baddbmm(torch.zeros(1, 2, 2), *large, alpha=0.125)).eq(20000).all()
