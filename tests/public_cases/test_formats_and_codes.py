"""Reported bugs of other libraries at the ends of formats, in codes and in flags."""

import numpy as np
import pytest

import simfloat as sf


def test_e4m3_beyond_its_range_is_nan_or_its_largest_number_as_the_mode_says(ml_dtypes):
    """Some libraries return NaN from 465 on, others 448. https://github.com/jax-ml/ml_dtypes/issues/400"""
    x = np.float32([448, 455.5, 464, 464.0625, 470, 5e4, -464.5])
    theirs = x.astype(ml_dtypes.float8_e4m3fn).astype(float)
    assert np.array_equal(sf.round(x, sf.E4M3), theirs, equal_nan=True) and np.isnan(theirs).sum() == 4
    assert sf.round(x, sf.E4M3, sf.nearest_even.saturating()).tolist() == [448.0] * 6 + [-448.0]


@pytest.mark.parametrize(("mode", "due"), [
    (sf.nearest_even, [1, 8, 8, 1, 2, 8]),
    (sf.toward_positive, [2, 16, 8, 2, 2, 8]),
    (sf.toward_zero, [1, 8, 8, 1, 1, 4]),
], ids=["nearest", "up", "down"])  # fmt: skip
def test_a_scale_is_rounded_to_a_power_of_two_in_the_mode_that_is_asked_for(mode, due):
    """Libraries round E8M0 to nearest, up or down, and few let one choose. https://github.com/jax-ml/ml_dtypes/issues/298"""
    assert sf.round([1.0625, 9, 8, 1.25, 1.75, 7.9], sf.E8M0, mode).tolist() == due


@pytest.mark.parametrize(("format", "precision", "emin"), [(sf.FP16, 11, -14), (sf.FP32, 24, -126)], ids=str)
def test_underflow_is_flagged_where_the_unbounded_result_is_tiny(format, precision, emin):
    """The smallest normal number times 1 - u came without underflow. https://github.com/openhwgroup/cvfpu/issues/94

    With an exponent without bounds 2^emin (1 - u) is a number, below the smallest normal one: tiny, and inexact on the
    grid of subnormal numbers.
    """
    result, flags = sf.multiply(2.0**emin, 1 - 2.0**-precision, format, flags=True)
    assert (result, flags) == (2.0**emin, 2 | 1)
    result, flags = sf.multiply(2.0**emin, 1 + 2.0 ** (1 - precision), format, flags=True)
    assert (result, flags) == (2.0**emin * (1 + 2.0 ** (1 - precision)), 0)


def test_fixed_point_numbers_have_codes_in_twos_complement():
    """A library documented sign and magnitude for MXINT8. https://github.com/microsoft/microxcaling/issues/3"""
    x = np.array([-127, -65, -1, 0, 1, 64, 127])
    codes = x.astype(np.int8).view(np.uint8)
    assert codes[:3].tolist() == [0x81, 0xBF, 0xFF]
    assert np.array_equal(sf.encode(x, sf.fixed(8)), codes) and np.array_equal(sf.encode(x / 64, sf.fixed(8, 6)), codes)
    assert np.array_equal(sf.decode(codes, sf.fixed(8)), x) and np.array_equal(sf.decode(codes, sf.fixed(8, 6)), x / 64)


def test_the_code_0x80_is_a_number_only_of_the_asymmetric_format():
    """A decoder read 0x80 as zero, then as -128. https://github.com/tenstorrent/tt-metal/pull/48967"""
    assert sf.decode(0x80, sf.fixed(8, symmetric=False)) == -128
    with pytest.raises(ValueError, match="symmetric=False"):
        sf.decode(0x80, sf.fixed(8))


def test_codes_that_numpy_has_saved_as_void_are_read(ml_dtypes, tmp_path):
    """Saved bfloat16 arrays come back without their type. https://github.com/jax-ml/ml_dtypes/issues/41"""
    x = np.array([1.5, -2.0, 0.1, 3e38], ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", x)
    loaded = np.load(tmp_path / "x.npy")
    assert loaded.dtype.kind == "V"
    assert np.array_equal(sf.decode(loaded, sf.BF16), x.astype(float))


@pytest.mark.parametrize(
    ("name", "format"),
    [("F8_E4M3", sf.E4M3), ("F8_E5M2", sf.E5M2), ("F8_E8M0", sf.E8M0), ("fp8_e4m3", sf.E4M3), ("f8E4M3FN", sf.E4M3)],
)
def test_a_name_in_a_file_means_the_format_that_the_file_holds(name, format):
    """A tool took F8_E4M3 for another type. https://github.com/ljleb/sd-mecha/issues/83"""
    assert sf.as_format(name) == format


def test_joined_numbers_are_rounded_to_the_format_of_the_array():
    """A sum of two types became float32 without a word. https://github.com/jax-ml/jax/issues/7368"""
    a = sf.array([1.5, -448.0], sf.E4M3)
    for joined in (np.append(a, 0.1), np.hstack([a, 0.1]), np.append(0.1, a)[[1, 2, 0]]):
        assert isinstance(joined, sf.Array) and joined.format == sf.E4M3
        assert np.asarray(joined).tolist() == [1.5, -448.0, 0.1015625]
    with pytest.raises(ValueError):
        np.hstack([a, sf.array([1.0], sf.BF16)])
