"""Modes that return infinity on every overflow: results and flags, compared with fractions in every computation."""

import math
from fractions import Fraction

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.definition import round_magnitude, round_value
from simfloat.formats.exceptions import flags_of
from simfloat.tools.selftest.definitions import exact
from simfloat.tools.selftest.orders import dot
from tests.bits import assert_bits
from tests.checks import assert_refused

MODES = (sf.nearest_even, sf.nearest_away, sf.toward_zero, sf.toward_positive, sf.toward_negative, sf.to_odd)

#: Formats whose largest numbers are far below those of float32 and of float64, just below them, and equal to them.
FORMATS = (sf.FP16, sf.BF16, sf.FP32, sf.Format(5, 4, subnormals=False), sf.Format(11, 30), sf.FP64)


def rounded_without_bounds(x, format, mode):
    """Return x rounded as if the exponent had no upper bound, and infinity beyond max; x is not tiny."""
    magnitude = round_magnitude(abs(Fraction(x)), x < 0, format, mode)
    size = math.inf if magnitude > Fraction(format.max) else float(magnitude)
    return -size if x < 0 else size


def largest_numbers(format):
    """Return the largest number of a format, its negative, numbers next to it, and numbers far below it."""
    numbers = [format.max, sf.nextafter(format.max, 0.0, format), format.max / 2, 2.0 ** (format.emax // 2), 1.0]
    return sf.round([*numbers, -format.max], format)


def test_a_value_beyond_the_largest_number_becomes_infinite_in_every_direction():
    for format in FORMATS[:-1]:
        gap = 2.0 ** (format.emax - format.mantissa_bits)
        parts = [0.0, 0.25, 0.5, 0.75, 1.0, 1.25] if format.emax < 1023 else [0.0, 0.25, 0.5, 0.75]
        x = np.array([sign * (format.max + part * gap) for sign in (1.0, -1.0) for part in parts])
        with np.errstate(over="ignore"):
            single = x.astype(np.float32)
        for mode in MODES:
            overflowing = mode.overflowing()
            want = [rounded_without_bounds(v, format, mode) for v in x.tolist()]
            assert_bits(sf.round(x, format, overflowing), want)
            assert_bits([round_value(v, format, overflowing) for v in x.tolist()], want)
            if format.emax < 127:
                assert_bits(sf.round(single, format, overflowing), want)
            assert_bits(sf.round([-np.inf, np.inf], format, overflowing), [-np.inf, np.inf])
    # Rounded toward zero, a value below the next number of an unbounded format is the largest number.
    assert sf.round(65535.0, sf.FP16, sf.toward_zero.overflowing()) == 65504
    assert sf.round(65536.0, sf.FP16, sf.toward_zero.overflowing()) == np.inf


def test_operations_overflow_with_the_flags_of_the_mode():
    for format in (sf.FP16, sf.FP32, sf.Format(11, 30), sf.FP64):
        a, b = (x.ravel() for x in np.meshgrid(*[largest_numbers(format)] * 2))
        for mode in (sf.nearest_even, sf.toward_zero, sf.toward_negative, sf.to_odd):
            overflowing = mode.overflowing()
            for operation in ("add", "multiply"):
                got, flags = getattr(sf, operation)(a, b, format, overflowing, flags=True)
                assert_bits(got, getattr(sf, operation)(a, b, format, overflowing))
                pairs = list(zip(a.tolist(), b.tolist(), strict=True))
                results = [exact(operation, x, y, negative_zero_sums=mode.zero_sum < 0) for x, y in pairs]
                assert_bits(got, [rounded_without_bounds(x, format, mode) if x else x for x in results])
                assert flags.tolist() == [
                    flags_of(x, pair, format, mode) for x, pair in zip(results, pairs, strict=True)
                ]


@pytest.mark.parametrize("format", (sf.FP16, sf.BF16, sf.FP32), ids=str)
def test_sums_of_every_order_overflow(format, rng):
    a, b = rng.integers(-15, 16, (2, 24, 13)) * 2.0 ** rng.integers(-6, 1, (2, 24, 13)) * 2.0 ** (format.emax // 2)
    for mode in (sf.toward_zero, sf.to_odd):
        fused, unfused = (sf.sequential(format, mode.overflowing(), products=products) for products in (None, format))
        others = sf.kahan(format, mode.overflowing()), sf.pairwise(format, mode.overflowing())
        for accumulate in (fused, unfused, *others, sf.blocked(5, fused, others[1]), sf.lanes(4, fused, fused)):
            got = sf.matmul(a.astype(np.float32), b.T.astype(np.float32), accumulate=accumulate)
            assert np.isinf(got).any()
            for i, j in ((0, 0), (3, 19), (23, 7)):
                assert_bits(got[i, j], dot(accumulate, a[i].tolist(), b[j].tolist()))
        for accumulate in (sf.fused(4, 12, format, rounding=mode.overflowing()), sf.exact):
            large, options = [2.0**format.emax, 2.0**format.emax], {"output": format, "rounding": mode.overflowing()}
            options = options if accumulate == sf.exact else {}
            assert sf.dot(large, [1.0, 1.0], accumulate=accumulate, **options) == np.inf


def test_a_format_without_infinities_is_refused():
    odd, message = sf.to_odd.overflowing(), r"to_odd.overflowing\(\) turns overflow into an infinity, and {} has none"
    assert_refused(
        (lambda: sf.round(1.0, sf.E4M3, odd), message.format("E4M3")),
        (lambda: sf.add("1/3", 2, sf.E4M3, odd), message.format("E4M3")),
        (lambda: sf.exp(1.0, sf.E2M1, odd), message.format("E2M1")),
        (lambda: sf.sequential(sf.E4M3, odd), message.format("E4M3")),
        (lambda: sf.fused(4, 9, sf.E4M3, rounding=odd), message.format("E4M3")),
        (lambda: sf.dot([1.0], [1.0], accumulate=sf.exact, output=sf.E4M3, rounding=odd), message.format("E4M3")),
        (lambda: sf.cast(sf.E5M2, odd, scale=sf.per_tensor()), "Scaled values that overflow are clamped"),
        (lambda: sf.block_quantize([1.0], sf.E5M2, rounding=odd, block=1), "Scaled values that overflow are clamped"),
        (lambda: sf.fused(4, 9, align=odd), "align must be toward_zero"),
        (lambda: sf.Rounding("to_odd", saturates=True, overflows=True), "saturates and overflows exclude each other"),
    )
    assert sf.to_odd.saturating().overflowing() == odd and odd.saturating() == sf.to_odd.saturating()
