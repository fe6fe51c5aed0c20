"""Codes: every code of every small format, and what has none."""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import FORMATS, assert_bits


@pytest.mark.parametrize("format", [f for f in FORMATS if f.bits <= 16], ids=str)
def test_codes_round_trip(format):
    codes = np.arange(2**format.bits)
    values = sf.decode(codes, format)
    back = sf.encode(values, format)
    plain = ~np.isnan(values) & ~(values == 0)
    if not format.subnormals and format.has_zero:
        plain &= np.abs(values) >= format.smallest_normal
    assert (back[plain] == codes[plain]).all()
    assert (back[np.isnan(values)] == (format.nan_code or 0)).all()
    assert np.unique(values[np.isfinite(values)]).size == format.values().size
    assert back.dtype == (np.uint8 if format.bits <= 8 else np.uint16)


@pytest.mark.parametrize(
    "name", "bfloat16 float8_e5m2 float8_e4m3fn float8_e3m4 float8_e4m3 float8_e5m2fnuz float8_e4m3fnuz"
    " float8_e4m3b11fnuz float8_e8m0fnu float6_e3m2fn float6_e2m3fn float4_e2m1fn float16".split()
)  # fmt: skip
def test_decode_agrees_with_ml_dtypes_and_numpy(name, ml_dtypes):
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    formats = {
        **{"bfloat16": sf.BF16, "float8_e5m2": sf.E5M2, "float8_e4m3fn": sf.E4M3, "float8_e3m4": sf.E3M4},
        **{"float8_e4m3": sf.E4M3_IEEE, "float8_e5m2fnuz": sf.E5M2FNUZ, "float8_e4m3fnuz": sf.E4M3FNUZ},
        **{"float8_e4m3b11fnuz": sf.E4M3B11FNUZ, "float8_e8m0fnu": sf.E8M0, "float6_e3m2fn": sf.E3M2},
        **{"float6_e2m3fn": sf.E2M3, "float4_e2m1fn": sf.E2M1, "float16": sf.FP16},
    }
    format = formats[name]
    codes = np.arange(2**format.bits, dtype=np.uint16 if format.bits == 16 else np.uint8)
    assert_bits(sf.decode(codes, format), codes.view(dtype).astype(np.float32))


@pytest.mark.parametrize("format, view", [(sf.FP32, np.uint32), (sf.FP64, np.uint64)])
def test_wide_formats_are_the_carriers_own_bits(format, view, rng):
    codes = rng.integers(0, 2**format.bits, 5000, dtype=view)
    values = codes.view(f"f{format.bits // 8}")
    decoded = sf.decode(codes, format)
    assert_bits(decoded, values)
    assert (sf.encode(values, format)[~np.isnan(values)] == codes[~np.isnan(values)]).all()


def test_particular_codes():
    assert [hex(int(sf.encode(1.0, f))) for f in (sf.FP16, sf.BF16, sf.FP32, sf.E4M3, sf.E5M2)] == [
        "0x3c00", "0x3f80", "0x3f800000", "0x38", "0x3c",
    ]  # fmt: skip
    assert (int(sf.encode(1.0, sf.E4M3FNUZ)), int(sf.encode(1.0, sf.E5M2FNUZ))) == (0x40, 0x40)
    assert sf.encode(-0.0, sf.FP16) == 0x8000 and sf.encode(-0.0, sf.E4M3FNUZ) == 0
    assert sf.encode(-np.nan, sf.FP16) == 0x7E00 and sf.encode(np.nan, sf.E5M2) == 0x7E
    assert sf.encode(-np.inf, sf.p3109(8, 3)) == 0xFF
    assert sf.encode(1.0, sf.TF32) == 0x1FC00 and sf.encode(1.0, sf.TF32).dtype == np.uint32
    assert sf.encode([[1.0, 2.0]], "bf16").shape == (1, 2)


@pytest.mark.parametrize("format", [sf.E4M3, sf.FP16, sf.TF32, sf.FP32, sf.FP64], ids=str)
def test_one_code_gives_one_number_in_an_array_of_its_shape(format):
    code = int(sf.encode(1.0, format))
    for codes, shape in ((code, ()), (np.uint64(code), ()), ([[code]], (1, 1))):
        assert sf.decode(codes, format).shape == shape and sf.decode(codes, format) == 1.0


def test_dtypes_of_decode():
    assert sf.decode([1], sf.BF16).dtype == np.float32
    assert sf.decode([1], sf.FP64).dtype == np.float64
    assert sf.decode(np.uint8(0x38), sf.E4M3) == 1.0


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: sf.encode([1.0, 0.1], sf.FP16), "0.1 at index 1 is not a number of FP16"),
        (lambda: sf.encode([[1.0, 2.0], [3.0, 1e9]], sf.FP16), r"1000000000.0 at index \(1, 1\)"),
        (lambda: sf.encode([np.nan], sf.E2M1), "nan at index 0 is not a number of E2M1"),
        (lambda: sf.encode([np.inf], sf.E4M3), "inf at index 0 is not a number of E4M3"),
        (lambda: sf.encode([480.0], sf.E4M3), "480.0 at index 0"),
        (lambda: sf.encode([0.0], sf.E8M0), "0.0 at index 0 is not a number of E8M0"),
        (lambda: sf.encode([-1.0], sf.Format(5, 2, signed=False)), "-1.0 at index 0"),
        (lambda: sf.encode([2.0**-9], sf.Format(4, 3, special="fn", subnormals=False)), "at index 0 is not a number"),
        (lambda: sf.decode([256], sf.E4M3), "Code 256 is not one of E4M3, whose codes have 8 bits"),
        (lambda: sf.decode([-1], sf.E4M3), "Code -1 is not one of E4M3"),
        (lambda: sf.decode([1.0], sf.E4M3), "Codes are integers, got dtype float64"),
        (lambda: sf.decode(np.ma.masked_array([1, 2], [0, 1]), sf.E4M3), "codes is a masked array"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("special", ["fnuz", "p3109", "p3109_finite"])
def test_flushed_codes_stand_for_the_only_zero_that_a_format_has(special):
    format = sf.Format(3, 2, special=special, subnormals=False)
    codes = np.array([0x00, 0x01, 0x03, 0x21, 0x23])
    assert_bits(sf.decode(codes, format), np.zeros(5, np.float32))
