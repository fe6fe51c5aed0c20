"""Compare formats with the tables of their specifications."""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import FORMATS

# IEEE 754-2019; OCP OFP8 1.0; OCP MX 1.0; ml_dtypes: name, bits, max, its code, smallest normal, smallest subnormal.
TABLE = [
    ("FP64", 64, 1.7976931348623157e308, 0x7FEF_FFFF_FFFF_FFFF, 2.0**-1022, 2.0**-1074),
    ("FP32", 32, (2 - 2.0**-23) * 2.0**127, 0x7F7FFFFF, 2.0**-126, 2.0**-149),
    ("TF32", 19, (2 - 2.0**-10) * 2.0**127, 0x3FBFF, 2.0**-126, 2.0**-136),
    ("BF16", 16, (2 - 2.0**-7) * 2.0**127, 0x7F7F, 2.0**-126, 2.0**-133),
    ("FP16", 16, 65504.0, 0x7BFF, 2.0**-14, 2.0**-24), ("E5M2", 8, 57344.0, 0x7B, 2.0**-14, 2.0**-16),
    ("E4M3", 8, 448.0, 0x7E, 2.0**-6, 2.0**-9), ("E3M4", 8, 15.5, 0x6F, 2.0**-2, 2.0**-6),
    ("E4M3_IEEE", 8, 240.0, 0x77, 2.0**-6, 2.0**-9), ("E5M2FNUZ", 8, 57344.0, 0x7F, 2.0**-15, 2.0**-17),
    ("E4M3FNUZ", 8, 240.0, 0x7F, 2.0**-7, 2.0**-10), ("E4M3B11FNUZ", 8, 30.0, 0x7F, 2.0**-10, 2.0**-13),
    ("E3M2", 6, 28.0, 0x1F, 2.0**-2, 2.0**-4), ("E2M3", 6, 7.5, 0x1F, 1.0, 0.125), ("E2M1", 4, 6.0, 0x7, 1.0, 0.5),
    ("E8M0", 8, 2.0**127, 0xFE, 2.0**-127, 2.0**-127),
]  # fmt: skip


#: Those that ml_dtypes does not have.
NUMPYS = {"FP64", "FP32", "TF32", "FP16"}


def test_catalog_matches_the_specifications():
    for name, bits, largest, code, normal, subnormal in TABLE:
        format = getattr(sf, name)
        assert (format.bits, format.max, format.max_code) == (bits, largest, code), name
        assert (format.smallest_normal, format.smallest_subnormal) == (normal, subnormal), name
        assert str(format) == name and 2.0**format.emin == normal
        assert format.emax == int(np.floor(np.log2(largest))) if name != "FP64" else 1023


def test_facts_agree_with_ml_dtypes(ml_dtypes):
    dtypes = "bfloat16 float8_e5m2 float8_e4m3fn float8_e3m4 float8_e4m3 float8_e5m2fnuz float8_e4m3fnuz"
    dtypes += " float8_e4m3b11fnuz float6_e3m2fn float6_e2m3fn float4_e2m1fn float8_e8m0fnu"
    for (name, *_), dtype in zip([row for row in TABLE if row[0] not in NUMPYS], dtypes.split(), strict=True):
        format, facts = getattr(sf, name), ml_dtypes.finfo(getattr(ml_dtypes, dtype))
        for key in ("bits", "max", "min", "eps", "smallest_normal", "smallest_subnormal"):
            assert float(getattr(format, key)) == float(getattr(facts, key)), (name, key)


# IEEE P3109 interim report 4.0, signed 8-bit formats: bias, max extended, max finite, smallest normal, subnormal.
P3109 = {
    1: (64, 2.0**62, 2.0**63, 2.0**-63, 2.0**-63), 2: (32, 2.0**31, 1.5 * 2.0**31, 2.0**-31, 2.0**-32),
    3: (16, 49152.0, 57344.0, 2.0**-15, 2.0**-17), 4: (8, 224.0, 240.0, 2.0**-7, 2.0**-10),
    5: (4, 15.0, 15.5, 2.0**-3, 2.0**-7), 6: (2, 3.875, 3.9375, 2.0**-1, 2.0**-6),
    7: (1, 1.96875, 1.984375, 1.0, 2.0**-6),
}  # fmt: skip


def test_p3109_matches_the_report():
    for precision, (bias, extended, finite, normal, subnormal) in P3109.items():
        format, closed = sf.p3109(8, precision), sf.p3109(8, precision, extended=False)
        assert (format.bias, format.max, closed.max) == (bias, extended, finite), precision
        assert (format.smallest_normal, format.smallest_subnormal) == (normal, subnormal), precision
        assert (format.max_code, format.infinity_code, format.nan_code) == (0x7E, 0x7F, 0x80)
        assert (closed.max_code, closed.infinity_code, closed.nan_code) == (0x7F, None, 0x80)
        assert sf.encode(1.0, format) == 0x40


def test_unsigned_p3109_puts_nan_and_infinity_on_top():
    format = sf.p3109(8, 3, signed=False)
    assert (format.bias, format.max_code, format.infinity_code, format.nan_code) == (32, 0xFD, 0xFE, 0xFF)
    closed = sf.p3109(8, 1, signed=False, extended=False)
    assert (closed.bits, closed.max_code, closed.nan_code) == (8, 0xFE, 0xFF)


def test_name_is_for_display_only():
    renamed = sf.Format(5, 10, name="half")
    assert renamed == sf.FP16 and hash(renamed) == hash(sf.FP16)
    assert str(renamed) == "half" and str(sf.Format(5, 10)) == "e5m10"
    assert str(sf.Format(5, 10, bias=3)) == "Format(5, 10, bias=3)"


@pytest.mark.parametrize("value", [sf.E4M3, sf.toward_zero, sf.kahan(sf.FP16), sf.exact, sf.cast(sf.E4M3)], ids=str)
def test_values_stand_in_columns_by_their_text(value):
    assert f"{value:>20}" == str(value).rjust(20) and f"{value}" == str(value)


def test_formats_are_immutable():
    with pytest.raises(AttributeError):
        sf.FP16.bias = 3


def test_values_are_all_finite_values_ascending_with_one_zero():
    assert sf.E2M1.values().tolist() == [-6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert not np.signbit(sf.E2M1.values()[7])
    assert sf.FP16.values().size == 2 * 0x7C00 - 1
    assert sf.E8M0.values().size == 255 and sf.E8M0.values()[0] == 2.0**-127
    flushed = sf.Format(4, 3, subnormals=False).values()
    assert flushed[flushed > 0][0] == 2.0**-6
    for format in FORMATS:
        if format.bits <= 16:
            assert (np.diff(format.values()) > 0).all(), format


def test_values_refuses_wide_formats():
    with pytest.raises(ValueError, match="at most 16 bits; FP32 has 32"):
        sf.FP32.values()


def test_as_format_reads_names():
    assert sf.as_format("bf16") is sf.BF16
    assert sf.as_format("E4M3") is sf.E4M3, "a catalog name wins over exponent and mantissa widths"
    assert sf.as_format("e5m10") == sf.FP16
    assert sf.as_format(sf.TF32) is sf.TF32
    with pytest.raises(ValueError, match="Unknown format 'bf17'. Nearest names: BF16"):
        sf.as_format("bf17")
    with pytest.raises(ValueError, match="got 16 of type int"):
        sf.as_format(16)


def test_nonsense_is_refused_naming_the_value():
    for arguments, message in [
        (dict(exponent_bits=-1, mantissa_bits=3), "exponent_bits must be an integer of at least 1, got -1"),
        (dict(exponent_bits=4, mantissa_bits=-3), "mantissa_bits must be an integer of at least 0, got -3"),
        (dict(exponent_bits=4.0, mantissa_bits=3), "exponent_bits must be an integer of at least 1, got 4.0"),
        (dict(exponent_bits=4, mantissa_bits=3, special="ocp"), "special must be one of ieee, .*; got 'ocp'"),
        (dict(exponent_bits=4, mantissa_bits=3, bias=1.5), "bias must be an integer, got 1.5"),
        (dict(exponent_bits=4, mantissa_bits=3, signed=1), "signed must be True or False, got 1"),
        (dict(exponent_bits=4, mantissa_bits=3, special="fnuz", signed=False), "unsigned fnuz"),
        (dict(exponent_bits=4, mantissa_bits=3, special="scale"), "mantissa_bits=0 and signed=False"),
        (dict(exponent_bits=4, mantissa_bits=0), "mantissa_bits=0 has no code for NaN"),
        (dict(exponent_bits=1, mantissa_bits=3), "no normal number"),
        (dict(exponent_bits=11, mantissa_bits=53), "Numbers are stored as float64"),
        (dict(exponent_bits=12, mantissa_bits=10), "exponents -2056 to 2047"),
        (dict(exponent_bits=5, mantissa_bits=10, bias=2000), "exponents -2009 to -1970"),
        (dict(exponent_bits=10**9, mantissa_bits=2), "exponent_bits must be at most 11, got 1000000000"),
        (dict(exponent_bits=2, mantissa_bits=20000), "mantissa_bits must be at most 52, got 20000"),
        (dict(exponent_bits=2, mantissa_bits=1, bias=-972), "leave float64's range above 2\\^970"),
        (dict(exponent_bits=5, mantissa_bits=10, name=5), "name must be text or None, got 5"),
        (dict(exponent_bits=5, mantissa_bits=10, special=["ieee"]), "special must be one of"),
    ]:
        with pytest.raises(ValueError, match=message):
            sf.Format(arguments.pop("exponent_bits"), arguments.pop("mantissa_bits"), **arguments)


def test_options_are_named():
    with pytest.raises(ValueError, match="options by name, such as bias=9; got 1, 6, 9"):
        sf.Format(1, 6, 9)
    with pytest.raises(TypeError, match="no option emax. .* mantissa_bits=p - 1, .* bias=1 - emin"):
        sf.Format(6, 8, bias=21, emax=15)


def test_p3109_refuses_precisions_that_leave_no_exponent():
    with pytest.raises(ValueError, match="8 bits has a precision from 1 to 7, got 8"):
        sf.p3109(8, 8)
    with pytest.raises(ValueError, match="bits must be an integer, got '8'"):
        sf.p3109("8", 3)
    with pytest.raises(ValueError, match="extended must be True or False, got 'no'"):
        sf.p3109(8, 3, extended="no")


def test_a_format_fits_float32_if_all_its_numbers_do():
    assert sf.FP32.fits_float32 and sf.Format(8, 22).fits_float32 and sf.E8M0.fits_float32
    assert not sf.Format(7, 24, special="fn").fits_float32, "25 bits"
    assert not sf.Format(8, 10, bias=141, subnormals=False).fits_float32, "2^-140 is one, its neighbour is none"
    assert sf.Format(8, 10, bias=139).fits_float32 and not sf.Format(8, 10, bias=141).fits_float32
    assert not sf.Format(8, 10, bias=126).fits_float32


def test_numbers_of_numpys_types_are_numbers():
    five, ten, yes = np.int64(5), np.uint8(10), np.bool(True)
    for made, same in (
        (sf.Format(five, ten, bias=np.int32(3), signed=yes), sf.Format(5, 10, bias=3)),
        (sf.p3109(np.int64(8), np.int64(3), yes, yes), sf.p3109(8, 3)),
        (sf.fixed(np.int64(8), np.int64(6)), sf.fixed(8, 6)),
        (sf.stochastic(np.int64(8)), sf.stochastic(8)),
    ):
        assert made == same and hash(made) == hash(same) and repr(made) == repr(same)
    for wrong in (np.float64(5), np.bool(True), "5"):
        with pytest.raises(ValueError, match="must be an integer|random bits"):
            sf.Format(wrong, 10)
        with pytest.raises(ValueError, match="random bits"):
            sf.stochastic(wrong)
