"""Compare fixed-point numbers with Python's integers: codes, roundings, flags, events and limits."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import simfloat as sf
from tests.accumulate.definition import MODES, check
from tests.bits import DETERMINISTIC, assert_bits
from tests.checks import assert_refused

KINDS = ({}, {"symmetric": False}, {"signed": False})
FORMATS = [
    sf.fixed(bits, fraction_bits, **kind)
    for bits, fraction_bits, kind in itertools.product((1, 2, 3, 5, 8), (0, 6, -3), KINDS)
    if bits > 1 or kind == {"signed": False}
]


def integers_of(format):
    """The lowest and the highest multiple of the spacing, by the definition of two's complement."""
    if not format.signed:
        return 0, 2**format.bits - 1
    highest = 2 ** (format.bits - 1) - 1
    return -highest - ("symmetric=False" in str(format)), highest


def rounded(units, mode):
    """A Fraction rounded to an integer."""
    below = math.floor(units)
    rest = units - below
    up = {
        "nearest_even": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and below % 2 == 1),
        "nearest_away": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and units > 0),
        "nearest_toward_zero": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and units < 0),
        "nearest_up": rest >= Fraction(1, 2),
        "nearest_down": rest > Fraction(1, 2),
        "toward_zero": rest > 0 and units < 0,
        "toward_positive": rest > 0,
        "toward_negative": False,
        "to_odd": rest > 0 and below % 2 == 0,
    }
    return below + up[mode.mode]


def hard(format):
    """Every number, quarters between them, values beyond both ends, and zeros."""
    lowest, highest = integers_of(format)
    quarters = np.arange(4 * lowest - 12, 4 * highest + 13) / 4 * 2.0**-format.fraction_bits
    return np.concatenate([quarters, [-0.0, 5e-324, -5e-324, 1e300, -1e300, np.inf, -np.inf]])


def test_codes_are_twos_complement_and_every_number_has_one():
    for format in FORMATS:
        lowest, highest = integers_of(format)
        units = np.arange(lowest, highest + 1)
        numbers, codes = units * 2.0**-format.fraction_bits, units % 2**format.bits
        assert format.values().tolist() == numbers.tolist() and (format.min, format.max) == (numbers[0], numbers[-1])
        for carrier in (np.float32, np.float64):
            assert (sf.encode(numbers.astype(carrier), format) == codes).all()
        assert_bits(sf.decode(codes, format), numbers.astype(np.float32))
        texts = [f"{code:0{-(-format.bits // 4)}x}" for code in codes.tolist()]
        assert sf.to_hex(numbers, format).tolist() == texts and sf.encode(-0.0, format) == 0
        assert_bits(sf.decode(texts, format), numbers.astype(np.float32))
        for outside in (numbers[0] - format.eps, numbers[-1] + format.eps, format.eps / 2, np.nan, np.inf):
            with pytest.raises(ValueError, match="is not a number of"):
                sf.encode(outside, format)


def test_the_spacing_is_the_same_everywhere():
    for format in FORMATS:
        unit, facts = 2.0**-format.fraction_bits, sf.finfo(format)
        assert format.eps == format.smallest_normal == format.smallest_subnormal == facts.eps == facts.tiny == unit
        assert format.unit_roundoff == unit / 2 and facts.machep == facts.negep == -format.fraction_bits
        assert sf.ulp([0.0, unit, format.max, -1e9, 0.3 * unit], format).tolist() == [unit] * 5
        values = format.values().astype(np.float64)
        assert (sf.nextafter(values, np.inf, format) == [*values[1:], values[-1]]).all()
        assert (sf.nextafter(values, -np.inf, format) == [values[0], *values[:-1]]).all()


def test_a_fixed_point_format_prints_the_call_that_creates_it():
    for format in FORMATS:
        assert eval(str(format), {"fixed": sf.fixed}) == eval(repr(format), {"Format": sf.Format}) == format
        assert sf.as_format(str(format)) == sf.as_format(repr(format)) == format
        renamed = eval(repr(format).replace(f"name={format.name!r}", "name='mine'"), {"Format": sf.Format})
        assert renamed.name == "mine" and sf.as_format(str(renamed)) == format and hash(renamed) == hash(format)
        unnamed = eval(repr(format).replace(f", name={format.name!r}", ""), {"Format": sf.Format})
        assert str(unnamed) == str(format)
        policy = sf.Policy(compute=format, accumulate=sf.FP32)
        assert sf.Policy.from_toml(policy.to_toml()) == policy


def test_long_codes_are_twos_complement(rng):
    for format in (sf.fixed(20, 3), sf.fixed(32, symmetric=False), sf.fixed(40, signed=False)):
        lowest, highest = integers_of(format)
        ends = [lowest, lowest + 1, 0, -1 % (highest + 1), highest]
        units = np.concatenate([rng.integers(lowest, highest, 1000), ends])
        numbers = units * 2.0**-format.fraction_bits
        assert (sf.encode(numbers, format) == units % 2**format.bits).all()
        assert (sf.decode(units % 2**format.bits, format) == numbers).all()
        single = numbers[numbers == numbers.astype(np.float32)]
        assert (sf.encode(single.astype(np.float32), format) == sf.encode(single, format)).all()


@pytest.mark.parametrize("mode", DETERMINISTIC, ids=str)
def test_roundings_flags_and_events_are_those_of_integers(mode):
    for format in FORMATS:
        lowest, highest = integers_of(format)
        all_numbers, unit = hard(format), 2 ** Fraction(format.fraction_bits)
        integers = {x: rounded(Fraction(x) * unit, mode) for x in all_numbers[np.isfinite(all_numbers)].tolist()}
        for x in (all_numbers, all_numbers[:-4].astype(np.float32)):
            finite = x[np.isfinite(x)]
            units = [integers[one] for one in finite.tolist()]
            numbers = np.clip(np.array(units, np.float64), lowest, highest) * 2.0**-format.fraction_bits
            want = np.where(np.isnan(x) | (x < 0), format.min, format.max)
            want[np.isfinite(x)] = numbers
            recorder = sf.Recorder()
            result, flags = sf.round(x, format, mode, flags=True)
            assert_bits(result, want.astype(result.dtype), x)
            assert_bits(sf.round(x, format, mode, observer=recorder), result, x)
            beyond = np.array([not lowest <= unit <= highest for unit in units])
            assert (flags[np.isfinite(x)] == (numbers != finite) * 1 + beyond * 4).all()
            assert (flags[np.isinf(x)] == 5).all()
            counts = recorder.counts()
            assert counts["overflow"] == beyond.sum() and counts["underflow"] == counts["subnormal"] == 0


def test_a_draw_decides_between_neighbours_and_saturates():
    for format in (sf.fixed(8), sf.fixed(8, symmetric=False), sf.fixed(8, signed=False)):
        x = np.repeat([3.25, -3.25, -128.25, 255.25, -0.25, 1000.0], 256)
        draws = sf.GivenBits(np.tile(np.arange(256), 6))
        result, flags = sf.round(x, format, sf.stochastic(8), stream=draws, flags=True)
        away = (np.abs(x) % 1 == 0.25) & (np.tile(np.arange(256), 6) >= 192)
        exact = np.sign(x) * (np.floor(np.abs(x)) + away)
        assert_bits(result, np.clip(exact, format.min, format.max) + 0.0)
        assert ((flags & 4 > 0) == ((exact > format.max) | (exact < format.min))).all() and not (flags & 2).any()


def test_the_lowest_code_of_a_symmetric_range_is_refused_by_name():
    for codes, where in (
        (0x80, ""), (np.uint8([[1, 0x80]]), r" at index \(0, 1\)"), ("80", ""), ([0x7F, 0x80], " at index 1"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=rf"Code 0x80{where} is not one of fixed\(8, 6\).*symmetric=False"):
            sf.decode(codes, sf.fixed(8, 6))
    assert sf.decode(0x80, sf.fixed(8, 6, symmetric=False)) == -2.0


def test_elements_of_mxint8_have_the_codes_of_the_specification():
    """OCP MX 1.0, 5.3.4: an INT8 is in two's complement, with 6 fraction bits."""
    for code in set(range(256)) - {0x80}:
        number = np.int8(np.uint8(code)) / 64.0
        assert sf.decode(code, sf.fixed(8, 6)) == number and sf.encode(number, sf.fixed(8, 6)) == code
    for kind in ({}, {"symmetric": False}):
        blocks = sf.block_quantize(np.linspace(-3.0, 3.9, 64), sf.fixed(8, 6, **kind), block=32)
        assert np.asarray(blocks.scales).tolist() == [2.0, 2.0]


def test_fixed_is_refused_where_float64_or_the_arguments_do_not_allow_it():
    assert sf.fixed(8, signed=False) == sf.fixed(8, signed=False, symmetric=False)
    assert sf.fixed(53, symmetric=False).min == -(2.0**52) and sf.fixed(53, signed=False).max == 2.0**53 - 1
    by_fixed, texts = r"are created by simfloat.fixed\(bits", "Fixed-point numbers are"
    calls = "fixed()", "fixed(8, 1, 2)", "fixed(8, bits=1)", "fixed(8, signed=1)", "fixed(8.0)", "fixed(x)"
    assert_refused(
        (lambda: sf.fixed(54, signed=False), "bits"),
        (lambda: sf.fixed(54, symmetric=False), "bits"),
        (lambda: sf.fixed(0, signed=False), "bits"),
        (lambda: sf.fixed(8, symmetric=1), "symmetric must be True or False"),
        (lambda: sf.Format(2, 5, special="fixed_symmetric"), by_fixed),
        (lambda: sf.Format(1, 6, special="fixed"), by_fixed),
        (lambda: sf.Format(1, 6, special="fixed_symmetric", signed=False), by_fixed),
        (lambda: sf.Format(1, 6, special="fixed_symmetric", subnormals=False), by_fixed),
        *((lambda text=text: sf.as_format(text), texts) for text in calls),
    )


def test_sums_in_fixed_point_follow_the_definition(rng):
    inputs = sf.fixed(8, 3, symmetric=False)
    a, b = (sf.round(rng.uniform(-20, 20, shape), inputs) for shape in ((2, 9), (9, 2)))
    formats = sf.fixed(8), sf.fixed(8, 3, symmetric=False), sf.fixed(9, signed=False)
    for format, mode in itertools.product(formats, DETERMINISTIC):
        orders = [sf.sequential(format, rounding=mode), sf.fused(4, 20, format, rounding=mode)]
        orders += [sf.pairwise(format, rounding=mode)] * (mode in MODES[sf.pairwise])
        for order in [*orders, sf.sequential(sf.FP32, rounding=mode, products=format)]:
            check(order, a, b, inputs=inputs)
