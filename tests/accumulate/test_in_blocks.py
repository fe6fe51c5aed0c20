"""Sums that are read in blocks have the bits of sums of all numbers at once."""

from fractions import Fraction

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.definition import round_value
from simfloat.formats.exceptions import flags_of
from simfloat.sums import in_blocks
from tests.bits import assert_bits
from tests.checks import assert_refused

CORE = sf.tensor_core("hopper")
ORDERS = [
    sf.sequential(sf.FP16), sf.sequential(sf.BF16, sf.toward_negative), sf.sequential(sf.FP32, products=sf.BF16),
    sf.pairwise(sf.BF16), sf.pairwise(sf.FP16, sf.toward_zero), sf.kahan(sf.BF16), sf.numpy_sum(sf.FP16),
    sf.numpy_sum(sf.FP32, products=sf.FP16), sf.blocked(7, sf.BF16, sf.FP32),
    sf.blocked(5, sf.FP16, sf.pairwise(sf.FP16)), sf.blocked(5, sf.FP16, sf.kahan(sf.BF16)),
    sf.blocked(3, sf.pairwise(sf.BF16), sf.FP32),
    sf.lanes(8, sf.FP16, sf.pairwise(sf.FP16)), sf.lanes(3, sf.pairwise(sf.BF16), sf.FP32), sf.fused(4, 12),
    sf.tensor_core("hopper", sf.FP16), sf.library_sum("torch-sum"), sf.systolic(16, 16, sf.BF16),
]  # fmt: skip


#: Formats of operands and results, and accumulators that take them.
OPTIONS = [
    *({"accumulate": order, "inputs": sf.FP16 if order.is_matrix_unit else None} for order in ORDERS),
    {"accumulate": sf.exact, "output": sf.BF16},
    {"accumulate": sf.FP32, "inputs": sf.BF16, "output": sf.E4M3, "rounding": sf.toward_positive},
    *({"accumulate": unit, "inputs": sf.FP16} for unit in (CORE, sf.blocked(16, CORE, sf.FP32))),
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_sums_in_blocks_are_the_sums_of_all_numbers(options, rng, tmp_path, monkeypatch):
    monkeypatch.setattr(in_blocks, "SUBTREE", 16)
    for n in (0, 1, 15, 300, 1027):
        x = sf.round(rng.standard_normal(n), sf.FP16).astype(np.float32)
        due = np.asarray(sf.sum(x, **options), np.float64)
        x.tofile(tmp_path / "x")
        mapped = np.memmap(tmp_path / "x", np.float32) if n else x
        for block in (1, 37, 128, 10_000):
            assert_bits(sf.sum_blocks(mapped, block=block, **options), due)
        pieces = np.split(x, np.sort(rng.integers(0, n + 1, 4)))
        assert_bits(sf.sum_blocks(iter(pieces), block=50, **options), due)


def test_exact_sums_of_blocks_have_all_bits():
    x = [2.0**1000, 2.0**-1074, -(2.0**1000), 1.0]
    assert sf.sum_blocks(x, accumulate=sf.exact, output=sf.FP64, block=1) == 1.0
    assert sf.sum_blocks(x[:3], accumulate=sf.exact, output=sf.FP64, block=1) == 2.0**-1074
    assert np.isnan(sf.sum_blocks([np.inf, 1.0, -np.inf], accumulate=sf.exact, output=sf.FP64, block=1))
    assert sf.sum_blocks([np.inf, 1.0], accumulate=sf.exact, output=sf.FP64) == np.inf


def test_each_stochastic_block_is_a_call_of_the_stream():
    order, stream = sf.sequential(sf.BF16, sf.stochastic()), sf.BitStream(3)
    got = sf.sum_blocks(np.full(600, 0.3), accumulate=order, stream=stream, block=200)
    by_hand, partial = sf.BitStream(3), None
    for _ in range(3):
        partial = sf.sum(np.full(200, 0.3), accumulate=order, stream=by_hand, initial=partial)
    assert_bits(got, partial)
    total = sf.sum_blocks([got], accumulate=sf.FP32, output=sf.E4M3, rounding=sf.stochastic(), stream=stream)
    assert total == sf.round(got, sf.E4M3, sf.stochastic(), stream=by_hand)
    assert stream.state == by_hand.state


def test_flags_are_those_of_the_sum_of_all_numbers(rng, monkeypatch):
    monkeypatch.setattr(in_blocks, "SUBTREE", 16)
    place = np.arange(19)
    x = sf.round(rng.standard_normal(19) * 2.0 ** rng.integers(-5, 3, 19), sf.FP16)
    tiny, large = x * 2.0**-14, np.where(place < 16, x, 60000.0)
    endless = np.where(place % 7 == 4, np.inf * (-1.0) ** place, x)
    others = [sf.sequential(sf.FP16, sf.to_odd.saturating()), sf.blocked(3, sf.pairwise(sf.FP16), sf.pairwise(sf.FP16))]
    library = sf.library_sum("torch-sum")
    assert_refused((lambda: sf.sum_blocks([], accumulate=library, flags=True), "not all of its steps are rounded"))
    for order in {*ORDERS, *others, sf.exact} - {library}:
        options = {"accumulate": order} | ({"output": sf.E4M3} if order == sf.exact else {})
        options |= {"inputs": sf.FP16} if order.is_matrix_unit else {}
        for numbers in (place / 8, tiny, large, endless):
            total, flags = sf.sum_blocks(numbers, **options, block=7, flags=True)
            assert_bits(total, sf.sum_blocks(numbers, **options, block=7))
            assert flags == sf.sum(numbers, **options, flags=True)[1] and flags.shape == () and flags.dtype == np.uint8


def test_flags_of_blocks_are_those_of_the_roundings_of_fractions(rng):
    x = sf.round(rng.standard_normal(900) * 2.0 ** rng.integers(-16, 3, 900), sf.FP16)
    for numbers in (x, x * 2.0**-8, np.abs(x) * 2.0**13, np.arange(900.0)):
        total, raised = Fraction(0), 0
        for number in numbers.tolist():
            total += Fraction(number)
            raised |= flags_of(total, (), sf.FP16, sf.toward_zero.saturating())
            total = Fraction(round_value(total, sf.FP16, sf.toward_zero.saturating()))
        order = sf.sequential(sf.FP16, sf.toward_zero.saturating())
        assert sf.sum_blocks(iter(np.split(numbers, 3)), accumulate=order, flags=True) == (total, raised)
        options = {"output": sf.E5M2, "rounding": sf.toward_positive}
        total = sum(map(Fraction, numbers.tolist()))
        assert sf.sum_blocks(numbers, accumulate=sf.exact, block=100, **options, flags=True) == (
            round_value(total, sf.E5M2, sf.toward_positive), flags_of(total, (), sf.E5M2, sf.toward_positive),
        )  # fmt: skip


def test_flags_of_blocks_include_the_rounding_of_the_result_and_the_draws_of_the_user():
    assert sf.sum_blocks([1.0, 2.0**-20], accumulate=sf.FP32, output=sf.FP16, flags=True)[1] == 1
    adder = sf.sequential(sf.FP16, sf.stochastic(4))
    for draws in ([0, 15, 0], [0, 0, 15]):
        want = sf.sum([1.0, 0.0001, 0.5], accumulate=adder, stream=sf.GivenBits(draws), flags=True)
        got = sf.sum_blocks([1.0, 0.0001, 0.5], accumulate=adder, stream=sf.GivenBits(draws), flags=True, block=1)
        assert got == want


def test_arguments_of_sums_in_blocks_are_checked():
    assert_refused(
        (lambda: sf.sum_blocks(np.ones((2, 2)), accumulate=sf.FP16), r"reads vectors, got an array of shape \(2, 2\)"),
        (lambda: sf.sum_blocks([1.0], accumulate=sf.FP16, block=0), "block must be an integer of at least 1"),
        (lambda: sf.sum_blocks([1.0], accumulate=sf.exact), "An exact sum has no format of its own"),
        (lambda: sf.sum_blocks([1.0], accumulate=sf.FP16, rounding=sf.to_odd), "are not rounded again to this format"),
        (lambda: sf.sum_blocks([1.0], accumulate=sf.FP16, flags="yes"), "flags must be True or False, got 'yes'"),
        (lambda: sf.sum_blocks([1.0], accumulate=sf.sequential(sf.FP16, "stochastic"), stream=sf.BitStream(0),
                               flags=True), "GivenBits"),
    )  # fmt: skip
