"""The spacing of a format's numbers, and their neighbours."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic.spacing import clamp
from tests.bits import FORMATS, assert_bits

SMALL = [format for format in FORMATS if format.bits <= 8]


def every_number(format):
    """All numbers in ascending order, infinities included, with +0."""
    finite = format.values().astype(float)
    above = [np.inf] if format.has_infinity else []
    return np.array([*(-v for v in above if format.signed), *finite, *above])


def test_the_next_number_is_the_next_one_of_all_and_the_spacing_its_distance():
    for format in SMALL:
        numbers = every_number(format)
        up, down = np.append(numbers[1:], numbers[-1]), np.append(numbers[0], numbers[:-1])
        up = np.where((up == 0) & (numbers < 0) & format.has_negative_zero, -0.0, up)
        assert_bits(sf.nextafter(numbers, np.inf, format), up, numbers)
        assert_bits(sf.nextafter(numbers, -np.inf, format), down, numbers)
        if format.has_negative_zero:
            assert_bits(sf.nextafter(-0.0, [1.0, -1.0], format), sf.nextafter(0.0, [1.0, -1.0], format))
        numbers = numbers[(numbers >= 0) & np.isfinite(numbers)]
        got = sf.ulp(numbers[:-1], format)
        if format.precision > 1:
            assert_bits(got, np.diff(numbers))
        between = (numbers[:-1] + numbers[1:]) / 2
        assert_bits(sf.ulp(-between, format), np.where(numbers[:-1] == 0, format.smallest_subnormal, got))


def test_neighbours_and_spacings_are_numpys(rng):
    for format, dtype in ((sf.FP16, np.float16), (sf.FP32, np.float32), (sf.FP64, np.float64)):
        codes = rng.integers(0, 2**format.bits, (2, 3000), dtype=np.uint64)
        x, y = (sf.decode(one, format).astype(dtype) for one in codes)
        y[:200], x[200:300], y[200:300] = x[:200], 0.0, -0.0
        with np.errstate(all="ignore"):
            want = np.nextafter(x, y).astype(np.float64)
            # It is y, as C has it; NumPy's float16 alone gives x.
            assert_bits(sf.nextafter(x, y, format), np.where(x == y, y, want))
            spacing = np.abs(np.spacing(np.abs(x))).astype(np.float64)
        # At float16's largest number NumPy gives the distance to infinity.
        inside = np.abs(x) != format.max
        assert_bits(sf.ulp(x, format)[inside], spacing[inside], x[inside])


def test_the_spacing_of_any_number():
    assert_bits(sf.ulp([0.0, -0.0, 1.0, 1.99, 2.0, -3.0], sf.FP16), 2.0 ** np.array([-24, -24, -10, -10, -9, -9]))
    assert_bits(sf.ulp([np.inf, -np.inf, np.nan], sf.FP16), [np.nan] * 3)
    assert sf.ulp(1000.0, sf.E4M3) == 64.0, "as if the exponent had no bound"
    assert sf.ulp(0.0, sf.E8M0) == 2.0**-127
    flushing = sf.Format(5, 10, subnormals=False)
    assert_bits(sf.ulp([0.0, 2.0**-15, 2.0**-14], flushing), [2.0**-14, 2.0**-14, 2.0**-24])
    assert sf.ulp(np.float32([[1, 2]]), "bf16").dtype == np.float32
    assert sf.ulp(np.float32([[1, 2]]), "bf16").shape == (1, 2)


def test_ends_of_formats():
    assert sf.nextafter(448.0, np.inf, sf.E4M3) == 448.0
    assert sf.nextafter(65504.0, np.inf, sf.FP16) == np.inf
    assert sf.nextafter(np.inf, 0.0, sf.FP16) == 65504.0
    assert_bits(sf.nextafter([0.0, 0.5], [-1.0, -1.0], sf.Format(5, 2, signed=False)), [0.0, 0.4375])
    assert_bits(sf.nextafter(2.0**-127, 0.0, sf.E8M0), 2.0**-127)
    assert_bits(sf.nextafter(-(2.0**-10), 1.0, sf.E4M3FNUZ), 0.0)
    assert_bits(sf.nextafter([np.nan, 1.0], [1.0, np.nan], sf.FP16), [np.nan, np.nan])
    assert sf.nextafter(np.float32([1.0]), [[2.0], [0.1]], sf.BF16).tolist() == [[1.0078125], [0.99609375]]


def test_a_number_outside_of_the_format_has_no_neighbour_and_a_nan_beside_it_hides_it_not():
    outside = "{} is not a number of FP16; round to the format first"
    for x, y, format, message in (
        ([1.0, 0.1], 2.0, sf.FP16, outside.format("0.1 at index 1")),
        ([1.0, 2.0], [1.0, 2.0, 3.0], sf.FP16, r"Shapes \(2,\) and \(3,\) do not broadcast"),
        *(([np.nan, 0.3], y, sf.FP16, outside.format("0.3 at index 1")) for y in (1.0, np.nan)),
        *(([1.0, np.nan], y, sf.E2M1, "nan at index 1 is not a number of E2M1; it has no NaN") for y in (1.0, np.nan)),
        *((0.3, y, sf.FP16, "^" + outside.format("0.3")) for y in (1.0, np.nan)),
    ):
        with pytest.raises(ValueError, match=message):
            sf.nextafter(x, y, format)


def test_a_zero_of_the_other_sign_is_within_a_bound():
    zeros = np.array([0.0, -0.0])
    for bound in map(np.array, zeros):
        assert_bits(clamp(zeros, bound, np.array(1.0)), zeros)
        assert_bits(clamp(zeros, np.array(-1.0), bound), zeros)
