"""Numbers on a command line are read exactly."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simfloat.tools.commands.round_number import read_number, short_hex


@pytest.mark.parametrize(
    "text, number",
    [
        ("0.1", Fraction(1, 10)), ("-1e-5", Fraction(-1, 100000)), ("1/3", Fraction(1, 3)), (".5", Fraction(1, 2)),
        ("0x1.8p-3", Fraction(3, 16)), ("-0X.8P1", -1), ("0x10", 16),
        ("0x1.00000000000000001p0", 1 + Fraction(1, 16**17)),
        ("1e400", 10**400), ("0x1p1024", 2**1024), ("+7", 7),
    ],
)  # fmt: skip
def test_written_numbers_are_read_exactly(text, number):
    assert read_number(text) == number and isinstance(read_number(text), Fraction)


def test_texts_that_are_no_fractions():
    assert math.isnan(read_number("NaN")) and read_number("-inf") == -math.inf
    assert all(math.copysign(1.0, read_number(zero)) == -1 for zero in ("-0", "-0.0", "-0x0p0", "-0/5"))


@pytest.mark.parametrize(
    "text", ["", "x", "1/0", "1e10001", "0x1p-10001", "0x", "0x.p1", "1.5.2", "0xg", "1e", "9" * 9999]
)
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match=r"is (not a number|out of range).*write 0.1, 1e-5, 1/3, 0x1.8p-3, inf or nan"):
        read_number(text)


def test_a_text_too_small_to_read_has_a_replacement():
    for text in ("1e-20000", "-0x1p-10001"):
        with pytest.raises(ValueError, match=r"For this one write 0 \(in directed modes: a number below the smallest"):
            read_number(text)
    with pytest.raises(ValueError, match=r"inf or nan\.$"):
        read_number("1e20000")


@given(st.floats(allow_nan=False))
def test_hexadecimal_floats_go_out_and_come_back(number):
    assert float.fromhex(short_hex(number)) == number
    if math.isfinite(number):
        assert read_number(short_hex(number)) == read_number(number.hex()) == number
