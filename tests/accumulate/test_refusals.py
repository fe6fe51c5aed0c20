"""Accumulators and sums reject invalid arguments, and the message says what to do."""

import pickle

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits
from tests.checks import assert_refused

ONES = np.ones(4)


def test_invalid_arguments_are_refused_at_once():
    assert_refused(
        (lambda: sf.sequential(sf.FP16, rounding="to_zero"), "rounding must be a simfloat.Rounding"),
        (lambda: sf.pairwise(sf.FP16, rounding=None), "rounding must be a simfloat.Rounding"),
        (lambda: sf.kahan(sf.FP16, rounding=sf.FP16), "rounding must be a simfloat.Rounding"),
        (lambda: sf.fused(4, 20, zero_exponent=-1000), "from -800 to 800, got -1000"),
        (lambda: sf.fused(4, 20, zero_exponent=5000), "from -800 to 800, got 5000"),
        (lambda: sf.fused(4, 20, zero_exponent=True), "from -800 to 800, got True"),
        (lambda: sf.tensor_core("hopper", sf.FP64, sf.FP16), "hopper has no unit for FP64 x FP64 -> FP16"),
        (lambda: sf.tensor_core("hopper", sf.FP64, "nonsense"), "Unknown format 'nonsense'"),
        (lambda: sf.tensor_core(["hopper"], sf.FP16), r"tensor_core supports volta, .*; got \['hopper'\]"),
        (lambda: sf.matrix_core(["cdna1"], sf.FP16), r"matrix_core supports cdna1, .*; got \['cdna1'\]"),
        (lambda: sf.tensor_core("blackwell", sf.E4M3, scales=(32.0, sf.E8M0)), "scales must be a pair of the products"),
        (lambda: sf.tensor_core("ampere", sf.FP16, instruction="mma"), "only one, which has no name; got 'mma'"),
        (lambda: sf.tensor_core("hopper", sf.FP16, instruction="tcgen05"), "'wgmma' or 'mma'; got 'tcgen05'"),
        (lambda: sf.tensor_core("blackwell", sf.E2M1, instruction="mma"), "blackwell has no unit for E2M1"),
        (lambda: sf.sum(ONES, accumulate=sf.tensor_core("hopper")), "on the formats of the operands: pass inputs="),
        (lambda: sf.dot(ONES, ONES, inputs=(None, sf.BF16), accumulate=sf.FP16), "To leave an operand as it is, pass"),
    )
    for exponent in (-800, -300, 0, 800):  # a zero of so large a power hides what is 2^11 times smaller
        unit = sf.fused(2, 10, zero_exponent=exponent)
        assert sf.dot([1.0, 0.0], [1.0, 0.0], inputs=sf.FP32, accumulate=unit) == (0.0 if exponent > 10 else 1.0)


def test_the_refusal_of_a_mode_for_results_names_the_call_to_write():
    for accumulate in (sf.FP16, sf.kahan(sf.FP16), sf.pairwise(sf.FP16)):
        for options in ({}, {"output": sf.FP16}):
            with pytest.raises(ValueError, match=r"pass accumulate=\w+\(FP16, rounding=toward_positive\)"):
                sf.sum(ONES, accumulate=accumulate, rounding=sf.toward_positive, **options)
        assert sf.sum([0.1], accumulate=accumulate, output=sf.E4M3, rounding=sf.toward_positive) == 0.1015625
    for unit in (sf.tensor_core("hopper", sf.FP16), sf.blocked(2, sf.FP16, sf.FP32)):
        with pytest.raises(ValueError, match="pass output=, the format that they are to be rounded to"):
            sf.sum(ONES, accumulate=unit, rounding=sf.nearest_even)
    assert sf.sum([1.0], accumulate=sf.exact, output=sf.FP16, rounding=sf.toward_zero) == 1.0


def test_a_nan_inside_a_sum_of_a_format_without_nan_is_refused():
    for accumulate in (
        *(sf.sequential(sf.E2M1), sf.kahan(sf.E2M1), sf.pairwise(sf.E2M1), sf.blocked(2, sf.E2M1, sf.FP32)),
        *(sf.blocked(2, sf.FP32, sf.E2M1), sf.sequential(sf.FP32, products=sf.E2M1)),
    ):
        for x, y in (([1.0, np.nan, 1.0], [1.0, 1.0, 0.0]), ([np.inf, 1.0], [0.0, 1.0])):
            with pytest.raises(ValueError, match="E2M1.* has no NaN"):
                sf.dot(x, y, accumulate=accumulate, output=sf.FP32)
        assert sf.dot([1.0, 2.0], [1.0, 1.0], accumulate=accumulate, output=sf.FP32) == 3
        # Its largest number stands for an infinity.
        assert sf.dot([np.inf], [1.0], accumulate=accumulate, output=sf.FP32) == 6


def test_a_negative_product_is_refused_in_a_format_without_sign_and_nan():
    unsigned = sf.Format(3, 4, special="finite", signed=False)
    for rounding in (sf.nearest_even, sf.toward_negative, sf.stochastic()):
        accumulate, stream = sf.sequential(sf.BF16, rounding, products=unsigned), sf.BitStream(0)
        assert sf.dot([-1.0, 2.0], [-1.0, 3.0], accumulate=accumulate, stream=stream) == 7
        with pytest.raises(ValueError, match="the format of products, has no NaN, but a product is negative"):
            sf.dot([-1.0, 2.0], [1.0, 3.0], accumulate=accumulate, stream=stream)
    # What rounds to zero is a zero.
    assert sf.dot([-(2.0**-40), 2.0], [1.0, 3.0], accumulate=sf.sequential(sf.BF16, products=unsigned)) == 6


def test_a_message_names_the_index_in_the_result():
    for accumulate, output in ((sf.E2M1, sf.FP32), (sf.FP32, sf.E2M1)):
        for a, place in (([np.nan], r"\(\)"), ([[1.0], [np.nan]], r"\(1,\)")):
            with pytest.raises(ValueError, match=f"no NaN, but the result at index {place} is NaN"):
                sf.matmul(a, [1.0], accumulate=accumulate, output=output)


def test_units_take_run_results_that_are_numbers_of_theirs():
    # FP8 numbers are FP16 numbers; formats without -0 have all sums of theirs, and one.
    half, core3 = sf.tensor_core("hopper", sf.FP16), sf.matrix_core("cdna3", sf.E4M3FNUZ)
    for inner, outer in (
        *((sf.E4M3, half), (sf.E5M2, half), (sf.E4M3FNUZ, core3), (sf.E4M3FNUZ, sf.matrix_core("cdna3", sf.FP16))),
        (sf.BF16, sf.tensor_core("hopper", sf.TF32)),
    ):
        assert sf.sum(ONES, accumulate=sf.blocked(1, inner, outer)) == 4
    eight = sf.tensor_core("hopper", sf.E4M3)
    assert_refused(
        (lambda: sf.sum(ONES * 2.0**-30, accumulate=sf.blocked(1, sf.BF16, half)),
         "takes FP16 operands, but these are sums in BF16"),
        (lambda: sf.sum(ONES, accumulate=sf.blocked(1, sf.E5M2, eight)),
         "takes E4M3 operands, but these are sums in E5M2"),
    )  # fmt: skip


def test_a_unit_without_formats_is_chosen_by_those_of_the_operands(rng):
    a, b = rng.standard_normal((3, 64)), rng.standard_normal((64, 4))
    for inputs, formats in (
        *((format, (format, format)) for format in (sf.FP16, sf.BF16, sf.FP64)),
        *(((sf.E4M3, sf.E5M2), (sf.E4M3, sf.E5M2)), (sf.cast(sf.E5M2), (sf.E5M2, sf.E5M2))),
    ):
        own, named = sf.tensor_core("hopper"), sf.tensor_core("hopper", formats)
        assert_bits(sf.matmul(a, b, inputs=inputs, accumulate=own), sf.matmul(a, b, inputs=inputs, accumulate=named))
        want = sf.matmul(a, b, inputs=inputs, accumulate=sf.blocked(32, named, sf.FP32))
        assert_bits(sf.matmul(a, b, inputs=inputs, accumulate=sf.blocked(32, own, sf.FP32)), want)
    half = sf.matmul(a, b, inputs=sf.E4M3, accumulate=sf.tensor_core("hopper", output=sf.FP16))
    assert_bits(half, sf.matmul(a, b, inputs=sf.E4M3, accumulate=sf.tensor_core("hopper", sf.E4M3, sf.FP16)))
    with pytest.raises(ValueError, match="hopper has no unit for E3M2"):
        sf.matmul(a, b, inputs=sf.E3M2, accumulate=sf.tensor_core("hopper"))


MADE = [
    sf.sequential(sf.FP16), sf.sequential(sf.FP16, sf.toward_zero, products=sf.E5M2), sf.pairwise(sf.BF16), sf.exact,
    sf.kahan(sf.FP32, rounding=sf.stochastic(8, "A")), sf.blocked(32, sf.FP16, sf.tensor_core("hopper", sf.FP16)),
    sf.fused(4, 20), sf.fused(8, 24, sf.FP16, zero_exponent=-20), sf.tensor_core("hopper"),
    sf.tensor_core("hopper", output=sf.FP16), sf.tensor_core("hopper", (sf.E4M3, sf.E5M2), instruction="mma"),
    sf.tensor_core("hopper", sf.FP16, instruction="wgmma"), sf.tensor_core("volta", sf.FP64),
    sf.tensor_core("blackwell", sf.E2M1, scales=(16, sf.E4M3)), sf.matrix_core("cdna2", sf.BF16, variant="1k"),
    sf.matrix_core("cdna3", (sf.E4M3FNUZ, sf.E5M2FNUZ)), sf.sequential("bf16", sf.stochastic(8), products=sf.E4M3),
    sf.numpy_sum(sf.FP32, products=sf.FP16),
    sf.tensor_core("ada", (sf.E4M3, sf.E5M2), sf.FP16),
    sf.blocked(128, sf.tensor_core("hopper", sf.E4M3), sf.FP32),
]  # fmt: skip


def test_accumulators_print_as_the_call_that_makes_them_and_are_read_back():
    for own in (sf.sequential(sf.Format(5, 9), sf.toward_zero), sf.fused(4, 13, sf.Format(8, 13))):
        assert eval(repr(own), vars(sf)) == own
    for accumulator in MADE:
        assert eval(repr(accumulator), vars(sf)) == eval(str(accumulator), vars(sf)) == accumulator
        policy = sf.Policy(compute=sf.E4M3, accumulate=accumulator)
        assert sf.Policy.from_toml(policy.to_toml()) == sf.Policy.from_dict(policy.to_dict()) == policy
        hash(accumulator)
        copy = pickle.loads(pickle.dumps(accumulator))
        assert copy == accumulator and hash(copy) == hash(accumulator) and repr(copy) == repr(accumulator)
        assert "_hash" not in accumulator.__getstate__(), "strings have other hashes in another process"


def test_accumulators_are_values():
    assert len(set(MADE)) == len(MADE)
    assert sf.tensor_core("hopper", "fp16") == sf.tensor_core("hopper", sf.FP16, instruction="wgmma")
    assert sf.sequential(sf.FP16, sf.to_odd) == sf.sequential("fp16", rounding=sf.to_odd)
    for accumulator, text in (
        (sf.tensor_core("hopper", sf.E4M3, instruction="mma"), "tensor_core(\"hopper\", E4M3, instruction='mma')"),
        (sf.kahan(sf.FP16, rounding=sf.toward_zero), "kahan(FP16, rounding=toward_zero)"),
        (sf.sequential(sf.FP16, products=sf.BF16), "sequential(FP16, products=BF16)"),
    ):
        assert str(accumulator) == text


def test_matrix_units_and_accumulators_that_need_narrow_operands_are_known_as_such():
    own, core, plain = sf.fused(4, 20), sf.tensor_core("hopper"), sf.sequential(sf.FP32)
    for accumulator, is_unit, needs_narrow in (
        *((core, True, True), (sf.matrix_core("cdna1", sf.FP16), True, True), (own, False, True)),
        *((sf.blocked(32, core, sf.FP32), True, True), (sf.blocked(32, own, sf.FP32), False, True)),
        *((sf.lanes(4, own, sf.pairwise(sf.FP32)), False, True), (sf.blocked(4, sf.FP16, own), False, False)),
        *((plain, False, False), (sf.exact, False, False), (sf.kahan(sf.FP16), False, False)),
    ):
        assert (accumulator.is_matrix_unit, accumulator.needs_narrow_operands) == (is_unit, needs_narrow), accumulator


def test_a_sum_in_a_format_that_is_too_wide_is_refused_with_the_limit_and_with_what_to_write():
    wide = sf.Format(11, 51)
    words = r"accumulate: .* at most 50 bits .* precision 52, .*=simfloat\.exact, output=simfloat\.Format\(11, 51\)"
    assert_refused(
        *((lambda format=format: sf.dot([1.0], [1.0], accumulate=format), words) for format in (wide, "e11m51")),
        (lambda: sf.add(1.0, 1.0, wide), "Use at most 49 mantissa bits, or simfloat.FP64 with simfloat.nearest_even"),
        *((lambda options=options: sf.sequential(sf.fixed(53, 16, **options)), rf"fixed-point .* at most {bits} bits")
          for bits, options in ((51, {}), (50, {"symmetric": False}), (50, {"signed": False}))),
        (lambda: sf.exp(1.0, sf.FP64, sf.toward_positive),
         r"simfloat.Format\(11, 49\) is the widest format with the range of FP64"),
        *((lambda maker=maker: maker(8, sf.FP16), rf"{maker.__name__}\(8, FP16, FP32\), or {maker.__name__}\(8, FP16,")
          for maker in (sf.blocked, sf.lanes)),
        (lambda: sf.sequential(sf.FP32, products=wide), "precision 52"),
    )  # fmt: skip
    for format in (sf.fixed(51, 16), sf.fixed(50, symmetric=False), sf.fixed(50, signed=False)):
        assert sf.sequential(format).format == format
    assert sf.dot([1.0], [2.0**-51], accumulate=sf.exact, output=wide) == 2.0**-51
    nested = sf.kahan(sf.FP16, rounding=sf.stochastic())
    with pytest.raises(ValueError, match="at most 250 stages"):
        for _ in range(60):  # each has stages of random bits, and leaves some for results and casts
            nested = sf.blocked(2, nested, sf.kahan(sf.FP16, rounding=sf.stochastic()))
