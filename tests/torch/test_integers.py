"""Operations on integers: floating-point results are rounded as usual, integers are PyTorch's."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

import simfloat as sf
from simfloat.torch.rules.pointwise import quotients
from tests.bits import assert_bits
from tests.torch.test_every_operation import fits

WHOLE = torch.tensor([[1, 2, 7], [3, 5, 11]])

FUNCTIONS = {
    "quotient": lambda x: x / 7, "root": torch.sqrt, "exponential": torch.exp, "log1p": torch.log1p, "sinc": torch.sinc,
    "entropy": torch.special.entr, "xlogy": lambda x: torch.xlogy(0.3, x),
    "mean": lambda x: x.mean(1, dtype=torch.float32), "logsumexp": lambda x: x.logsumexp(1), "power": lambda x: x**-0.3,
    "with numbers": lambda x: x * 0.1 + 1, "truth values": lambda x: (x > 2) / 3,
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_floating_results_are_rounded_to_the_policys_format(name):
    with sf.torch.simulate(nn.Identity(), "bf16-standard"):
        found = FUNCTIONS[name](WHOLE)
    plain = FUNCTIONS[name](WHOLE)
    assert fits(found) and found.dtype == plain.dtype == torch.float32
    torch.testing.assert_close(found, plain, rtol=0.03, atol=0.02)


def test_a_quotient_of_integers_is_the_exact_one_rounded_once():
    with sf.torch.simulate(nn.Identity(), "bf16-standard"):
        found = torch.arange(1, 8) / 7
    assert_bits(found.numpy(), sf.divide(np.arange(1.0, 8.0), 7.0, sf.BF16).astype(np.float32))


def test_where_results_follow_their_operands_those_of_integers_are_of_pytorchs_type():
    with sf.torch.simulate(nn.Identity(), "amp-bf16"):
        found = torch.arange(1, 8) / 7
    assert_bits(found.numpy(), (torch.arange(1, 8) / 7).numpy())


def test_the_table_says_what_pytorch_itself_computed():
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


def test_explain_lists_no_integers_as_refused():
    class Toggled(nn.Module):
        def forward(self, x):
            return x[torch.arange(2) ^ 1] * 2

    table = sf.torch.explain(Toggled(), torch.ones(2), "fp32")
    assert "refused" not in str(table) and "mul" in str(table)


def test_a_function_of_integers_without_a_rule_is_refused():
    with (
        sf.torch.simulate(nn.Identity(), "fp32"),
        pytest.raises(ValueError, match="special_bessel_j1.*cannot be simulated"),
    ):
        torch.special.bessel_j1(torch.arange(4))


def test_an_integer_that_float64_lacks_is_no_operand():
    with sf.torch.simulate(nn.Identity(), "fp32"):
        assert (torch.tensor([2**60]) / 2).tolist() == [2.0**59]
        with pytest.raises(ValueError, match="the integer 9007199254740993, which float64 cannot represent"):
            torch.tensor([2**53 + 1]) / 2


def exact(a, b, is_floor):
    quotient = Fraction(a) / Fraction(b)
    return math.floor(quotient) if is_floor else math.trunc(quotient)


@pytest.mark.parametrize("is_floor", [True, False])
def test_integer_parts_of_quotients_are_exact(is_floor):
    rng = np.random.default_rng(1)
    a, b = (np.ldexp(rng.uniform(-1, 1, 400), rng.integers(-60, 60, 400)) for _ in range(2))
    a[:100] = b[:100] * rng.integers(-9, 9, 100)
    high, low = quotients(a, b, is_floor=is_floor)
    found = [int(h) + int(rest) for h, rest in zip(high, low, strict=True)]
    assert found == [exact(x, y, is_floor) for x, y in zip(a, b, strict=True)]


SPECIALS = torch.tensor([0.0, -0.0, 1.0, -1.5, 7.0, torch.inf, -torch.inf, torch.nan])


@pytest.mark.parametrize("function", [
    torch.floor_divide, torch.fmod, torch.remainder,
    *(lambda a, b, mode=mode: torch.div(a, b, rounding_mode=mode) for mode in ("floor", "trunc")),
])  # fmt: skip
def test_quotients_and_remainders_of_zeros_and_infinities_are_pytorchs(function):
    a, b = SPECIALS.repeat_interleave(len(SPECIALS)), SPECIALS.repeat(len(SPECIALS))
    with sf.torch.simulate(nn.Identity(), "fp32"):
        found = function(a, b)
    assert_bits(found.numpy(), function(a, b).numpy())


def test_a_remainder_is_rounded_once():
    """1 - 2^-40 is 1 in float32, and the number below 1 in BF16 toward zero."""
    a, b = torch.tensor([-(2.0**-40), -(2.0**-9)]), torch.tensor([1.0, 1 + 2.0**-7])
    with sf.torch.simulate(nn.Identity(), sf.Policy(compute=sf.BF16, rounding=sf.toward_zero)):
        found = torch.remainder(a, b)
    assert_bits(found.numpy(), sf.add(a.numpy(), b.numpy(), sf.BF16, sf.toward_zero).astype(np.float32))


def test_square_roots_are_the_nearest_numbers():
    x = torch.rand(3200, generator=torch.Generator().manual_seed(0)) * 100
    with sf.torch.simulate(nn.Identity(), "fp32"):
        found = [x.sqrt(), x**0.5, torch._foreach_sqrt([x])[0]]
    for each in found:
        assert_bits(each.numpy(), np.sqrt(x.numpy()))


@pytest.mark.parametrize("function", [torch.sum, torch.cumsum, torch.prod, torch.cumprod])
def test_numbers_that_an_operation_first_makes_integers_are_pytorchs_own(function):
    x = torch.tensor([3.0, 2.7, 1024.0, 5.0])
    axis = {} if function in (torch.sum, torch.prod) else {"dim": 0}
    with sf.torch.simulate(nn.Identity(), "bf16-standard") as run:
        assert torch.equal(function(x, dtype=torch.int32, **axis), function(x.int(), dtype=torch.int32, **axis))
    assert [row[1] for row in run.table().rows if function.__name__ in row[0]] == ["PyTorch"]
