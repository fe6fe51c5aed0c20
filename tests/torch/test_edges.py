"""Edge cases of operations: empty axes, results in place and by `out`, values without rules, integers, lazy modules."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import simfloat as sf
from simfloat.torch.rules.pointwise import quotients
from tests.bits import assert_bits
from tests.torch.test_every_operation import fits


def simulated(function, *operands, policy="bf16-standard"):
    with sf.torch.simulate(nn.Identity(), policy):
        return function(*operands)


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
