"""The steps of functions and factorizations, one rounding at a time, and edge cases of operations."""

import math
from contextlib import nullcontext
from fractions import Fraction

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.ao.quantization import (
    FakeQuantize,
    FusedMovingAvgObsFakeQuantize,
    MovingAverageMinMaxObserver,
    default_fused_per_channel_wt_fake_quant,
)

import simfloat as sf
from simfloat.torch.rules.pointwise import quotients
from tests.bits import assert_bits
from tests.torch.compared import Function, simulated
from tests.torch.test_every_operation import fits
from tests.torch.test_layers import MATRICES, RANDOM, definite

f = sf.BF16


def computed(function, *arrays, policy="bf16-standard"):
    with sf.torch.simulate(torch.nn.Identity(), policy):
        results = function(*map(torch.from_numpy, arrays))
    return results.numpy() if isinstance(results, torch.Tensor) else [x.numpy() for x in results]


SMALL = np.array([2.0**-9, 0.01, 0.3, 1.5, -0.25], np.float32)
NUMBERS = sf.round(np.float32([0.1, 2.7, -1.3, 0.6, 3.9, -0.2]), f)
LOGITS = "binary_cross_entropy_with_logits"


def test_a_formula_is_rounded_at_every_operation():
    x = np.abs(sf.round(SMALL, f))
    found = computed(lambda x: (torch.special.xlog1py(x, x), torch.special.entr(x)), x)
    assert_bits(found[0], sf.multiply(x, sf.log1p(x, f), f))
    assert_bits(found[1], sf.multiply(-x, sf.log(x, f), f))


def test_a_tiny_value_is_not_zero():
    x, f = np.float32([-18.0]), sf.FP32
    least = sf.log1p(sf.exp(-18.0, f), f)
    for function, expected in (
        (F.softplus, least),
        (F.logsigmoid, sf.subtract(-18.0, least, f)),
        (F.mish, sf.multiply(-18.0, sf.tanh(least, f), f)),
        (lambda x: F.binary_cross_entropy_with_logits(-x, torch.ones(1)), least),
        (lambda x: torch.logaddexp(x, torch.zeros(1)), least),
    ):
        assert_bits(computed(function, x, policy="fp32").reshape(()), np.float32(expected))


def test_the_root_of_two_squares_neither_overflows_nor_vanishes_on_the_way():
    a = np.float32([3 * 2.0**125, 3 * 2.0**-140, 3, np.inf, -np.inf, 0])
    b = np.float32([4 * 2.0**125, 4 * 2.0**-140, -4, np.nan, 1, -0.0])
    found = computed(lambda x: torch.hypot(x, torch.from_numpy(b)), a, policy="fp32")
    assert_bits(found, np.hypot(a.astype(np.float64), b).astype(np.float32))


def test_distances_are_norms_of_rounded_differences():
    x, y = np.float32([[1.0, 0.1]]), np.float32([[0.3, 2.7]])
    d = sf.subtract(x, y, f)
    total = sf.sum(sf.multiply(d, d, f), 1, accumulate=sf.FP32, output=f)
    assert_bits(computed(torch.cdist, x, y)[0], sf.sqrt(total, f))


def test_a_pixel_next_to_a_point_counts_by_its_rounded_nearness():
    image, grid = np.float32([[[[1.0, 3.0], [0.5, 7.0]]]]), np.float32([[[[0.1, -0.3]]]])
    at = sf.add(sf.multiply(grid[0, 0, 0], 1.0, f), 0.5, f)
    x, y = at - np.floor(at)
    left, above = sf.subtract(1.0, x, f), sf.subtract(1.0, y, f)
    weights = sf.multiply([left, x, left, x], [above, above, y, y], f)
    total, *others = sf.multiply(image.reshape(-1), weights, f)
    for term in others:
        total = sf.add(total, term, f)
    found = computed(lambda *given: F.grid_sample(*given, align_corners=False), image, grid)
    assert_bits(found.reshape(()), total.astype(np.float32))


def test_a_point_outside_of_a_large_image_stays_outside_and_its_border_is_its_last_pixel_however_coarse_the_format():
    image, grid = np.ones((1, 1, 1, 1001), np.float32), np.float32([[[[1.01, 0.0], [0.5, 0.0], [-1.01, 0.0]]]])
    found = computed(lambda *given: F.grid_sample(*given, mode="nearest", align_corners=True), image, grid)
    assert found.ravel().tolist() == [0, 1, 0]
    image = np.arange(1004.0, dtype=np.float32).reshape(1, 1, 1, 1004) % 8  # BF16 lacks 1003
    for mode in ("bilinear", "nearest"):
        at_border = computed(
            lambda *given, mode=mode: F.grid_sample(*given, mode, "border", align_corners=True), image, grid[..., :1, :]
        )
        assert at_border.ravel().tolist() == [1003 % 8]


def together(x, w, ends):
    """Products of groups, one after the other."""
    starts = [0, *ends[:-1]]
    return torch.cat([x[start:end] @ matrix for start, end, matrix in zip(starts, ends, w, strict=True)])


@pytest.mark.parametrize("ends", [[2, 2, 5], [0, 4, 6]], ids=str)
def test_products_of_groups_are_products_of_each_group(ends):
    x, w, results = torch.randn(ends[-1], 16, generator=RANDOM), torch.randn(3, 16, 8, generator=RANDOM), []
    offsets = torch.tensor(ends, dtype=torch.int32)
    for product in (lambda x, w: F.grouped_mm(x, w, offs=offsets), lambda x, w: together(x, w, ends)):
        experts, given = Function(product), [each.clone().requires_grad_() for each in (x, w)]
        with sf.torch.simulate(experts, "fp8-hybrid"):
            result = experts(*given)
            (result * torch.arange(8.0)).sum().backward()
        results.append([result.detach(), *(each.grad for each in given)])
    for one, other in zip(*results, strict=True):
        assert_bits(one.numpy(), other.numpy())


def test_factors_reflections_singular_values_and_eigenvalues_have_the_bits_of_our_own():
    a, options = MATRICES.float(), dict(format=f, accumulate=sf.FP32)
    positive = definite(a)
    with sf.torch.simulate(torch.nn.Identity(), "bf16-standard"):
        lower = torch.linalg.cholesky(positive)
        packed_lu, pivots = torch.linalg.lu_factor(a)
        by_theirs = [*torch.linalg.qr(a), *torch.linalg.svd(a), *torch.linalg.eigh(a)]
        packed, tau = torch.geqrf(a)
        q, other = torch.linalg.householder_product(packed, tau), torch.ormqr(packed, tau, torch.eye(4).expand(a.shape))
    for i in range(2):
        rounded = sf.round(positive[i].numpy(), f)
        assert_bits(lower[i].numpy(), sf.linalg.cholesky(rounded, **options).numbers.astype(np.float32))
        m = sf.round(a[i].numpy(), f)
        order, left, right = sf.linalg.lu(m, **options)
        assert_bits(packed_lu[i].tril(-1).numpy(), np.tril(left.numbers, -1).astype(np.float32))
        assert_bits(packed_lu[i].triu().numpy(), right.numbers.astype(np.float32))
        rows = list(range(4))
        for k, at in enumerate(pivots[i].tolist()):
            rows[k], rows[at - 1] = rows[at - 1], rows[k]
        assert rows == order.tolist()
        factors = sf.linalg.qr(m, **options)
        decompositions = sf.linalg.svd(m, full_matrices=True, **options), sf.linalg.eigh(m, **options)
        ours = [factors.q, factors.r, *decompositions[0], *decompositions[1]]
        for got, expected in zip(by_theirs, ours, strict=True):
            assert_bits(got[i].numpy(), expected.numbers.astype(np.float32))
        assert_bits(packed[i].triu().numpy(), factors.r.numbers.astype(np.float32))
        assert_bits(q[i].numpy(), factors.q.numbers.astype(np.float32))
        assert_bits(other[i].numpy(), q[i].numpy())


def test_a_mean_of_a_segment_is_a_sum_and_a_quotient():
    found = computed(lambda x: torch.segment_reduce(x, "mean", lengths=torch.tensor([4, 2])), NUMBERS)
    totals = [sf.sum(part, accumulate=sf.FP32, output=f) for part in (NUMBERS[:4], NUMBERS[4:])]
    assert_bits(found, np.float32([sf.divide(t, n, f) for t, n in zip(totals, (4, 2), strict=True)]))


def test_a_slice_is_shortened_by_a_rounded_quotient():
    norm = sf.sqrt(sf.sum(sf.multiply(NUMBERS, NUMBERS, f), accumulate=sf.FP32, output=f), f)
    factor = sf.divide(1.5, sf.add(norm, 1e-7, f), f)
    found = computed(lambda x: torch.renorm(x.reshape(1, -1), 2, 0, 1.5), NUMBERS)
    assert_bits(found[0], sf.multiply(NUMBERS, factor, f))


def test_slopes_that_pytorch_draws_are_exact_factors():
    torch.manual_seed(3)
    noise = torch.empty(6)
    torch.ops.aten.rrelu_with_noise(torch.from_numpy(NUMBERS), noise, 1 / 8, 1 / 3, True)
    torch.manual_seed(3)
    assert_bits(computed(lambda x: F.rrelu(x, training=True), NUMBERS), sf.multiply(NUMBERS, noise.numpy(), f))
    mean = np.where(NUMBERS > 0, 1, (1 / 8 + 1 / 3) / 2)
    assert_bits(computed(F.rrelu, NUMBERS), sf.multiply(NUMBERS, mean, f))


SCALES, ZEROS = torch.tensor([0.1, 0.07, 0.3, 0.02, 0.5, 0.25]), torch.tensor([0, 1, 2, -3, 5, 0])


def twice(layer, x):
    """The second result of a layer that observes."""
    layer(x.flip(0) * 0.3)
    return layer(x)


@pytest.mark.parametrize("call", [
    lambda x: torch.fake_quantize_per_tensor_affine(x, 0.125, 3, -20, 20),
    lambda x: torch.fake_quantize_per_tensor_affine(x, SCALES[0], ZEROS[2].int(), -20, 20),
    lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, ZEROS.int(), 1, -20, 20),
    lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, ZEROS.float(), 1, -20, 20),
    lambda x: twice(FakeQuantize(MovingAverageMinMaxObserver, averaging_constant=0.25), x),
    lambda x: twice(FusedMovingAvgObsFakeQuantize(averaging_constant=0.25), x),
    lambda x: twice(default_fused_per_channel_wt_fake_quant(averaging_constant=0.25), x),
])  # fmt: skip
def test_numbers_that_integers_stand_for_and_what_passes_their_bounds_are_pytorchs_under_fp32(call):
    data, results = torch.randn(4, 6, generator=torch.Generator().manual_seed(5), dtype=torch.float64).float(), []
    for policy in (None, "fp32", "as-written"):
        x = (data * 2).requires_grad_()
        with nullcontext() if policy is None else sf.torch.simulate(torch.nn.Identity(), policy):
            y = call(x)
            y.backward(data)
        results.append((y.detach(), x.grad))
    assert all(torch.equal(a, b) for one in results[1:] for a, b in zip(one, results[0], strict=True))


def test_a_dequantized_integer_is_a_rounded_product():
    found = computed(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.3, 1, -3, 4), NUMBERS)
    q = np.rint(sf.multiply(NUMBERS, sf.divide(1.0, 0.3, f), f)) + 1
    assert_bits(found, sf.multiply(q.clip(-3, 4) - 1, 0.3, f))


def test_the_next_number_is_that_of_the_policys_format():
    assert_bits(computed(torch.nextafter, NUMBERS, -NUMBERS), sf.nextafter(NUMBERS, -NUMBERS, f))


def test_weights_of_a_histogram_are_added_and_counts_are_exact():
    weights = np.float32([1.0, 2**-9, 2**-9, 3.0, 1.0, 0.5])

    def counted(x, w):
        edges = torch.tensor([-2.0, 0.0, 1.0, 4.0])
        return *torch.histogram(x, edges, weight=w), torch.histogram(torch.zeros(1001), 2, range=(0, 1))[0]

    found, edges, many = computed(counted, NUMBERS, weights)
    groups = [weights[[2, 5]], weights[[0, 3]], weights[[1, 4]]]
    assert_bits(found, np.float32([sf.sum(group, accumulate=sf.FP32, output=f) for group in groups]))
    assert edges.tolist() == [-2.0, 0.0, 1.0, 4.0] and many.tolist() == [1001, 0]
    with sf.torch.simulate(torch.nn.Identity(), sf.Policy(compute=sf.E4M3)):
        assert torch.histc(torch.zeros(1001), 2, 0, 1).tolist() == [1001, 0]


def test_a_pixel_of_a_smaller_image_is_a_sum_of_products_with_exact_weights():
    image = NUMBERS[:4].reshape(1, 1, 1, 4)
    found = computed(lambda x: F.interpolate(x, (1, 2), mode="bilinear", antialias=True), image)
    # Four pixels to two: a triangle of width 4 around the places 1 and 3, whose weights end at the border.
    for result, weights in zip(found.ravel(), ([3, 3, 1, 0], [0, 1, 3, 3]), strict=True):
        terms = [sf.multiply(p, w / 7, f) for p, w in zip(NUMBERS[:4], weights, strict=True) if w]
        assert_bits(np.float32(result), np.float32(sf.add(sf.add(terms[0], terms[1], f), terms[2], f)))


def test_batch_normalization_has_the_same_bits_by_all_its_names():
    x, aten = torch.randn(8, 3, generator=RANDOM), torch.ops.aten

    def normalized(x):
        means, variances = torch.zeros(3), torch.ones(3)
        return [
            aten.native_batch_norm(x, None, None, means.clone(), variances.clone(), True, 0.1, 1e-5)[0],
            aten._native_batch_norm_legit(x, None, None, means, variances, True, 0.1, 1e-5)[0],
            aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-5)[0],
            aten._batch_norm_with_update(x, None, None, means.clone(), variances.clone(), 0.1, 1e-5)[0],
            means,
        ]

    first, *others, means = computed(normalized, x.numpy())
    for other in others:
        assert_bits(other, first)
    assert means.any()


def test_an_axis_without_elements_has_pytorchs_results():
    for function in (torch.softmax, torch.log_softmax, torch.logsumexp):
        for shape, dim in (((3, 0), 1), ((0, 3), 1), ((3, 0), 0)):
            expected = function(torch.ones(shape).double(), dim).float()
            assert torch.equal(simulated(function, torch.ones(shape), dim, policy="fp32"), expected)


def test_random_numbers_of_distributions_are_those_of_pytorch_rounded():
    ones = torch.ones(3)
    for function in (torch._standard_gamma, torch._sample_dirichlet, torch.poisson, lambda x: torch.binomial(x, x / 2)):
        torch.manual_seed(0)
        expected = function(ones).bfloat16().float()
        torch.manual_seed(0)
        assert torch.equal(simulated(function, ones), expected)
    with pytest.raises(ValueError, match="aten._standard_gamma_grad.default outside of any layer cannot be simulated"):
        simulated(lambda x: torch._standard_gamma(x).sum().backward(), ones.requires_grad_())


#: Functions of rows, of which two are zeros, with formulas that divide by zero and then replace the result.
MASKED = {
    "cdist": lambda x: torch.cdist(x, x), "cdist, p = 3": lambda x: torch.cdist(x, x, 3.0), "pdist": F.pdist,
    "kl_div": lambda x: F.kl_div(x, x.detach().abs(), reduction="sum"),
    "entr": lambda x: torch.special.entr(x.abs()).detach(),  # its gradient is infinite at 0
    "sinc": lambda x: torch.sinc(x).detach(),  # PyTorch's own gradient replaces NaN
    "xlog1py": lambda x: torch.special.xlog1py(x, -torch.ones_like(x)).detach(),
}  # fmt: skip


def test_a_recorder_counts_no_nan_that_a_formula_of_ours_replaces():
    for name, function in MASKED.items():
        x, recorder = torch.tensor([[0.0, 0.0], [1.0, 0.5], [0.0, 0.0]], requires_grad=True), sf.Recorder()
        with sf.torch.simulate(nn.Identity(), "amp-bf16", observer=recorder):
            y = function(x)
            if y.requires_grad:
                y.sum().backward()
        assert recorder.first_nan is None and not y.isnan().any(), name
        assert x.grad is None or x.grad.isfinite().all(), name


@pytest.mark.parametrize("norm", [
    lambda x, bias: F.layer_norm(x, (6,), None, bias), lambda x, bias: F.group_norm(x, 2, None, bias),
    lambda x, bias: F.batch_norm(x, None, None, None, bias, True),
])  # fmt: skip
def test_the_gradient_of_a_bias_without_a_weight_is_a_parameters(norm):
    model = nn.ParameterList([torch.zeros(6)])
    with sf.torch.simulate(model, sf.Policy(compute=sf.BF16, weight_gradients=sf.FP32)):
        (norm(torch.ones(3, 6), model[0]) * torch.tensor([1.0, 2.0, 3.0]).mul(1 / 3).unsqueeze(1)).sum().backward()
    rounded = sf.sum(sf.round([1 / 3, 2 / 3, 1.0], sf.BF16), accumulate=sf.FP32)
    assert model[0].grad.tolist() == [rounded] * 6


def test_statistics_that_were_kept_leave_none_for_the_backward_pass():
    given = torch.ones(2, 3), None, None, torch.zeros(3), torch.ones(3), False, 0.1, 1e-5
    shapes = [[x.shape for x in run(torch.native_batch_norm, *given)] for run in (simulated, lambda f, *x: f(*x))]
    assert shapes[0] == shapes[1]


def test_a_lazy_module_that_was_called_once_is_simulated():
    model = nn.Sequential(nn.LazyLinear(3))
    model(torch.ones(2, 4))
    with sf.torch.simulate(model, "fp32"):
        assert model(torch.ones(2, 4)).shape == (2, 3)


def test_operations_in_place_and_to_out_are_recognised_by_their_arguments_and_rounded():
    x, exponent, out = torch.tensor([0.3, 1.7]), torch.tensor([2.0, 3.0]), torch.zeros(2)
    expected = sf.power(x.numpy(), exponent.numpy(), sf.BF16).tolist()
    with sf.torch.simulate(nn.Identity(), "bf16-standard"):
        assert x.clone().pow_(exponent).tolist() == expected
        assert torch.div(x, 0.3, rounding_mode="floor", out=torch.empty(2)).tolist() == [1, 5]
        assert torch.xlogy(x, exponent, out=torch.empty(2)).tolist() == torch.xlogy(x, exponent).tolist()
        assert torch.div(torch.tensor([1.0, 3.0]), 3.0, out=out) is out
    assert out.tolist() == [sf.round(1 / 3, sf.BF16), 1.0]


def test_movements_and_tests_round_nothing():
    x = torch.tensor([[0.1, torch.inf, -3.3], [0.0, -0.0, 0.7]])
    for function in (
        torch.isposinf, torch.unique_consecutive,
        lambda x: torch.heaviside(x, x.flip(0)),
        lambda x: torch.logical_xor(x, x.flip(0)),
        lambda x: x.index_copy(0, torch.tensor([1, 0]), x),
        lambda x: x.diagonal_scatter(x[0, :2]),
        lambda x: torch.unfold_copy(x, 1, 2, 1),
        lambda x: torch.nonzero_static(x, size=4),
    ):  # fmt: skip
        assert torch.equal(simulated(function, x), function(x))


@pytest.mark.parametrize("policy", ["bf16-standard", "bf16-stochastic"])
def test_an_operand_that_is_rounded_with_the_result_has_the_gradient_of_one_that_was_rounded_before(policy):
    for choose in (
        torch.max, torch.min, torch.median, torch.nanmedian,
        lambda x: x.amax(0), lambda x: x.amin(0), lambda x: sum(torch.aminmax(x)),
        lambda x: torch.zeros(1).scatter_reduce(0, torch.zeros(5, dtype=torch.long), x, "amax").sum(),
    ):  # fmt: skip
        x = torch.tensor([0.1, 0.7001, 0.3, 0.7002, 0.5])  # in bfloat16 the second equals the fourth
        rounded = x.bfloat16().float().requires_grad_()
        choose(rounded).backward()
        simulated(lambda x, choose=choose: choose(x).backward(), x.requires_grad_(), policy=policy)
        assert torch.equal(x.grad, rounded.grad)


def test_elementwise_results_lie_in_memory_as_their_operands_do():
    x = torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    for function in (torch.exp, torch.neg, F.relu, F.relu6, F.hardswish, F.hardtanh, F.gelu):
        assert simulated(function, x).stride() == x.stride(), function


WHOLE = torch.tensor([[1, 2, 7], [3, 5, 11]])


def test_floating_results_of_integers_are_rounded_to_the_policys_format():
    for function in (
        torch.sqrt, torch.exp, torch.log1p, torch.sinc, torch.special.entr,
        lambda x: x / 7, lambda x: torch.xlogy(0.3, x), lambda x: x.mean(1, dtype=torch.float32),
        lambda x: x.logsumexp(1), lambda x: x**-0.3, lambda x: x * 0.1 + 1, lambda x: (x > 2) / 3,
    ):  # fmt: skip
        found, plain = simulated(function, WHOLE), function(WHOLE)
        assert fits(found) and found.dtype == plain.dtype == torch.float32
        torch.testing.assert_close(found, plain, rtol=0.03, atol=0.02)
    found = simulated(lambda: torch.arange(1, 8) / 7)
    assert_bits(found.numpy(), sf.divide(np.arange(1.0, 8.0), 7.0, sf.BF16).astype(np.float32))
    assert simulated(lambda: torch.tensor([2**60]) / 2, policy="fp32").tolist() == [2.0**59]
    # Where results follow their operands, those of integers are of PyTorch's type.
    assert torch.equal(simulated(lambda: torch.arange(1, 8) / 7, policy="amp-bf16"), torch.arange(1, 8) / 7)


def test_the_table_says_what_pytorch_itself_computed_and_explain_lists_no_integers_as_refused():
    with sf.torch.simulate(nn.Identity(), "fp32") as run:
        whole = torch.arange(7)
        assert (whole // 2 + whole).tolist() == [0, 1, 3, 4, 6, 7, 9]
        whole.bitwise_xor_(torch.tensor(1))
        whole / 3
    assert whole.tolist() == [1, 0, 3, 2, 5, 4, 7]
    ways = {row[0]: row[1] for row in run.table().rows[1:]}
    assert ways["aten.div.Tensor"] == "rule"
    for name in ("arange.default", "floor_divide.default", "add.Tensor", "bitwise_xor_.Tensor"):
        assert ways[f"aten.{name}"] == "PyTorch"

    class Toggled(nn.Module):
        def forward(self, x):
            return x[torch.arange(2) ^ 1] * 2

    table = str(sf.torch.explain(Toggled(), torch.ones(2), "fp32"))
    assert "refused" not in table and "mul" in table


@pytest.mark.parametrize("is_floor", [True, False])
def test_integer_parts_of_quotients_are_exact(is_floor):
    rng, part = np.random.default_rng(1), math.floor if is_floor else math.trunc
    a, b = (np.ldexp(rng.uniform(-1, 1, 400), rng.integers(-60, 60, 400)) for _ in range(2))
    a[:100] = b[:100] * rng.integers(-9, 9, 100)
    high, low = quotients(a, b, is_floor=is_floor)
    found = [int(h) + int(rest) for h, rest in zip(high, low, strict=True)]
    assert found == [part(Fraction(x) / Fraction(y)) for x, y in zip(a, b, strict=True)]


def test_quotients_and_remainders_of_zeros_and_infinities_are_pytorchs_and_rounded_once():
    specials = torch.tensor([0.0, -0.0, 1.0, -1.5, 7.0, torch.inf, -torch.inf, torch.nan])
    a, b = specials.repeat_interleave(len(specials)), specials.repeat(len(specials))
    for function in (
        torch.floor_divide, torch.fmod, torch.remainder,
        *(lambda a, b, mode=mode: torch.div(a, b, rounding_mode=mode) for mode in ("floor", "trunc")),
    ):  # fmt: skip
        assert_bits(simulated(function, a, b, policy="fp32").numpy(), function(a, b).numpy())
    # 1 - 2^-40 is 1 in float32, and the number below 1 in BF16 toward zero.
    a, b = torch.tensor([-(2.0**-40), -(2.0**-9)]), torch.tensor([1.0, 1 + 2.0**-7])
    found = simulated(torch.remainder, a, b, policy=sf.Policy(compute=sf.BF16, rounding=sf.toward_zero))
    assert_bits(found.numpy(), sf.add(a.numpy(), b.numpy(), sf.BF16, sf.toward_zero).astype(np.float32))


def test_square_roots_are_the_nearest_numbers():
    x = torch.rand(3200, generator=torch.Generator().manual_seed(0)) * 100
    for each in simulated(lambda: [x.sqrt(), x**0.5, torch._foreach_sqrt([x])[0]], policy="fp32"):
        assert_bits(each.numpy(), np.sqrt(x.numpy()))


def test_numbers_that_an_operation_first_makes_integers_are_pytorchs_own():
    x = torch.tensor([3.0, 2.7, 1024.0, 5.0])
    for function in (torch.sum, torch.cumsum, torch.prod, torch.cumprod):
        axis = {} if function in (torch.sum, torch.prod) else {"dim": 0}
        with sf.torch.simulate(nn.Identity(), "bf16-standard") as run:
            assert torch.equal(function(x, dtype=torch.int32, **axis), function(x.int(), dtype=torch.int32, **axis))
        assert [row[1] for row in run.table().rows if function.__name__ in row[0]] == ["PyTorch"]
