"""Codes: every code of every small format, as integers and as hexadecimal text, and values without a code."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic.codes import _decode, are_surely_numbers
from tests.bits import FORMATS, assert_bits
from tests.checks import assert_refused

#: Formats whose codes have at most 16 bits.
SHORT = [f for f in FORMATS if f.bits <= 16]

#: Formats whose numbers are decoded by arithmetic: their codes have more than 16 bits.
LONG = [sf.FP32, sf.TF32, sf.FP64, sf.Format(8, 15), sf.Format(5, 14), sf.Format(11, 40), sf.Format(6, 9, bias=-900)]
LONG += [sf.Format(6, 14, subnormals=False), sf.Format(5, 14, signed=False), sf.Format(11, 20, bias=1040)]
LONG += [sf.Format(4, 20, special=special) for special in ("fn", "fnuz", "finite", "p3109")]


def test_codes_round_trip():
    for format in SHORT:
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


def test_long_codes_are_decoded_as_by_whole_arrays_and_encoded_from_either_type(rng):
    for format in LONG:
        codes = rng.integers(0, (1 << format.bits) - 1, 3000, np.uint64, endpoint=True)
        places = [0, 1, 1 << format.mantissa_bits, format.max_code, 1 << (format.bits - 1), (1 << format.bits) - 1]
        ends = [place + step for place in places for step in (-1, 0, 1) if 0 <= place + step < 1 << format.bits]
        codes = np.concatenate([codes, codes[:1000] >> 3, np.array(ends, np.uint64)])
        numbers = sf.decode(codes, format)
        assert_bits(numbers, _decode(codes, format))
        known = numbers[~np.isnan(numbers)] if not format.has_nan else numbers
        assert (sf.encode(known, format) == sf.encode(known.astype(np.float64), format)).all()
        if format.bits < 63:
            assert_bits(sf.decode(codes.astype(np.int64), format), numbers)


def answer(x, format):
    """The codes, or the sentence that says why there are none."""
    try:
        return sf.encode(x, format).tolist()
    except ValueError as error:
        return str(error)


def test_float32_is_refused_as_float64_is(rng):
    for format in (sf.BF16, sf.E4M3, sf.E2M1, sf.Format(5, 14), sf.Format(5, 2, signed=False)):
        words = rng.integers(0, 2**32, 80, dtype=np.uint32).view(np.float32)
        for x in [*words, np.inf, -np.inf, np.nan, -0.0, -1.0, format.smallest_subnormal / 2]:
            assert answer(np.float32(x), format) == answer(np.float64(x), format)


def test_decode_agrees_with_ml_dtypes_and_numpy(ml_dtypes):
    formats = {
        **{"bfloat16": sf.BF16, "float8_e5m2": sf.E5M2, "float8_e4m3fn": sf.E4M3, "float8_e3m4": sf.E3M4},
        **{"float8_e4m3": sf.E4M3_IEEE, "float8_e5m2fnuz": sf.E5M2FNUZ, "float8_e4m3fnuz": sf.E4M3FNUZ},
        **{"float8_e4m3b11fnuz": sf.E4M3B11FNUZ, "float8_e8m0fnu": sf.E8M0, "float6_e3m2fn": sf.E3M2},
        **{"float6_e2m3fn": sf.E2M3, "float4_e2m1fn": sf.E2M1, "float16": sf.FP16},
    }
    for name, format in formats.items():
        codes = np.arange(2**format.bits, dtype=np.uint16 if format.bits == 16 else np.uint8)
        theirs = codes.view(np.dtype(getattr(ml_dtypes, name, None) or name)).astype(np.float32)
        assert_bits(sf.decode(codes, format), theirs, of=name)


def test_wide_formats_are_the_carriers_own_bits(rng):
    for format, view in ((sf.FP32, np.uint32), (sf.FP64, np.uint64)):
        codes = rng.integers(0, 2**format.bits, 5000, dtype=view)
        values = codes.view(f"f{format.bits // 8}")
        assert_bits(sf.decode(codes, format), values)
        assert (sf.encode(values, format)[~np.isnan(values)] == codes[~np.isnan(values)]).all()


def test_particular_codes():
    for x, format, code in (
        *((1.0, sf.FP16, 0x3C00), (1.0, sf.BF16, 0x3F80), (1.0, sf.FP32, 0x3F800000), (1.0, sf.E4M3, 0x38)),
        *((1.0, sf.E5M2, 0x3C), (1.0, sf.E4M3FNUZ, 0x40), (1.0, sf.E5M2FNUZ, 0x40), (1.0, sf.TF32, 0x1FC00)),
        *((-0.0, sf.FP16, 0x8000), (-0.0, sf.E4M3FNUZ, 0), (-np.nan, sf.FP16, 0x7E00), (np.nan, sf.E5M2, 0x7E)),
        *((-np.inf, sf.p3109(8, 3), 0xFF), (1.0, sf.FP64, 0x3FF0000000000000)),
    ):
        assert int(sf.encode(x, format)) == code, format
        if x == 1.0:  # one code gives one number in an array of its shape
            for codes, shape in ((code, ()), (np.uint64(code), ()), ([[code]], (1, 1))):
                assert sf.decode(codes, format).shape == shape and sf.decode(codes, format) == 1.0
    payloads = sf.decode([0x7E00, 0x7C01, 0x7FFF, 0xFE00, 0xFC01], sf.FP16)
    assert np.isnan(payloads).all() and set(sf.encode(payloads, sf.FP16).tolist()) == {0x7E00}
    assert sf.encode(1.0, sf.TF32).dtype == np.uint32 and sf.encode([[1.0, 2.0]], "bf16").shape == (1, 2)
    for codes in ([1], []):  # NumPy reads [] as float64
        assert (sf.decode(codes, sf.BF16).dtype, sf.decode(codes, sf.FP64).dtype) == (np.float32, np.float64)
        assert sf.decode([codes], sf.E4M3).shape == (1, len(codes))


def test_bad_input_is_refused():
    assert_refused(
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
        (lambda: sf.decode(np.ones(2, np.float16), sf.FP16), r"float16.* codes are .*\.view\(numpy\.uint16\)\."),
        (lambda: sf.decode(np.array([1, "3c"], object), sf.E4M3), "Codes are integers, got dtype object; hexadecimal"),
        (lambda: sf.decode(np.ma.masked_array([1, 2], [0, 1]), sf.E4M3), "codes is a masked array"),
    )


def test_flushed_codes_decode_to_the_only_zero_of_a_format():
    codes = np.array([0x00, 0x01, 0x03, 0x21, 0x23])
    for special in ("fnuz", "p3109", "p3109_finite"):
        assert_bits(sf.decode(codes, sf.Format(3, 2, special=special, subnormals=False)), np.zeros(5, np.float32))


def test_the_loop_gives_the_codes_of_the_array_operations(monkeypatch):
    specials = ([0.0], [-0.0], [np.nan], [-np.nan], [np.inf], [-np.inf], [1.0, 0.1], [2.0**-1074], [2.0**1023], [])
    for format in SHORT:
        numbers = sf.decode(np.arange(2**format.bits), format)
        cases = [numbers, numbers.astype(np.float64), -np.abs(numbers), numbers * 0.75, numbers[::-3], *specials]
        at_once = [answer(x, format) for x in cases]
        with monkeypatch.context() as patch:
            patch.setattr("simfloat.arithmetic.codes._codes_by_loop", lambda x, format: None)
            assert at_once == [answer(x, format) for x in cases]


@pytest.mark.parametrize(
    ("name", "format"),
    [("bfloat16", sf.BF16), ("float8_e4m3fn", sf.E4M3), ("float8_e8m0fnu", sf.E8M0), ("float4_e2m1fn", sf.E2M1)],
)
def test_a_narrow_array_and_the_bytes_that_numpy_loads_of_it_are_its_codes(name, format, ml_dtypes, tmp_path):
    x = np.array([[1.0, 0.5, 2.0], [4.0, 1.0, 2.0]], getattr(ml_dtypes, name))
    np.save(tmp_path / "x.npy", x)
    loaded = np.load(tmp_path / "x.npy")
    assert loaded.dtype.kind == "V"
    for codes in (x, loaded, x.T.T[::-1][::-1], loaded[::-1][::-1]):
        assert_bits(sf.decode(codes, format), x.astype(np.float32))
    assert sf.decode(loaded[1, 0], format) == 4.0 and sf.decode(loaded[:0], format).shape == (0, 3)
    calls = (
        lambda: sf.round(loaded, format), lambda: sf.encode(loaded, format), lambda: sf.add(loaded, 1.0, sf.FP32),
        lambda: sf.matmul(loaded, loaded.T, accumulate=sf.FP32), lambda: sf.array(loaded, format),
    )  # fmt: skip
    for call in calls:
        with pytest.raises(ValueError, match=r"pass simfloat\.decode\(\w+, format\): numpy.load returns bfloat16 as"):
            call()
    with pytest.raises(ValueError, match="Codes of FP32 have 4 bytes, got dtype .* Name the format of the array"):
        sf.decode(loaded, sf.FP32)
    with pytest.raises(ValueError, match=f"has codes of {format}, not of E5M2: write .*decode.*, simfloat.{format}"):
        sf.decode(x, sf.E5M2)


def test_narrow_tensors_of_pytorch_are_codes_for_decode_and_numbers_elsewhere():
    torch = pytest.importorskip("torch", reason="needs PyTorch for its dtypes")
    numbers = torch.tensor([[1.0, -2.0, 0.5], [448.0, 0.0, -0.015625]])
    for dtype, format in ((torch.float8_e4m3fn, sf.E4M3), (torch.bfloat16, sf.BF16)):
        assert_bits(sf.decode(numbers.to(dtype), format), numbers.numpy())
        assert_bits(sf.round(numbers.to(dtype), format), numbers.numpy().astype(np.float64))
    with pytest.raises(ValueError, match="has codes of E4M3, not of E5M2"):
        sf.decode(numbers.to(torch.float8_e4m3fn), sf.E5M2)
    assert sf.decode(torch.tensor([0x38], dtype=torch.uint8), sf.E4M3).tolist() == [1.0]
    pairs = torch.tensor([[0x21, 0x7F], [0x98, 0x00]], dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    want = np.float32([[0.5, 1.0, -6.0, 6.0], [-0.0, -0.5, 0.0, 0.0]])
    assert_bits(sf.decode(pairs, sf.E2M1), want)
    assert_bits(sf.round(pairs, sf.E2M1), want)
    assert_bits(sf.multiply(pairs, 2.0, sf.FP16), want.astype(np.float64) * 2)


@pytest.mark.parametrize("carrier", [np.float32, np.float64])
def test_one_pass_finds_if_all_values_are_numbers_of_a_format(carrier):
    uncertain = [sf.E8M0, sf.fixed(8, 4), sf.Format(4, 3, subnormals=False)]
    formats = [sf.E4M3, sf.E5M2, sf.E4M3FNUZ, sf.E2M1, sf.FP16, sf.BF16, sf.TF32, sf.p3109(8, 4), sf.FP32]
    formats += [sf.Format(3, 2, bias=9), *uncertain]
    for format in formats:
        ends = [format.smallest_subnormal, format.smallest_normal, format.max, 1.0]
        near = np.array([x * (1 + k / 4) for x in ends for k in range(-3, 5)], np.float64)
        values = np.concatenate([near, near * 2.0**-8, near * 257 / 256, [0.0, np.nan, np.inf, 1e30, 2.0**-140]])
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            values = np.concatenate([values, -values]).astype(carrier)
            values = np.concatenate([values, np.nextafter(values, carrier(0)), sf.round(near, format).astype(carrier)])
            rounded = sf.round(np.where(np.isnan(values), 0, values), format).astype(carrier)
        is_number = (rounded == values) | (np.isnan(values) & format.has_nan)
        sure = np.array([are_surely_numbers(np.array([x]), format) for x in values])
        assert not (sure & ~is_number).any(), (format, values[sure & ~is_number])
        is_simple = format not in uncertain
        is_simple &= carrier is np.float64 or format != sf.FP32
        finite = np.isfinite(values)
        assert (sure | ~is_number | ~finite).all() if is_simple else not sure.any()
        if is_simple:
            many = np.tile(values[is_number & finite], 300)
            assert are_surely_numbers(many, format)
            many[-7] = format.smallest_subnormal / 2
            assert not are_surely_numbers(many, format)


def test_texts_round_trip():
    for format in [f for f in FORMATS if f.bits <= 16]:
        values = sf.decode(np.arange(2**format.bits), format)
        if not format.subnormals and format.has_zero:
            values = values[(values == 0) | ~(np.abs(values) < format.smallest_normal)]
        texts = sf.to_hex(values, format)
        assert {len(text) for text in texts.tolist()} == {-(-format.bits // 4)}
        assert [int(text, 16) for text in texts] == sf.encode(values, format).tolist()
        for read in (texts, texts.astype(object)):  # a column of pandas holds objects
            assert_bits(sf.decode(read, format), sf.decode(sf.encode(values, format), format))


def test_one_number_is_a_str_and_an_array_an_array_of_them():
    assert sf.to_hex(1.0, sf.FP16) == "3c00" and type(sf.to_hex(np.float32(1), "fp16")) is str
    assert [sf.to_hex(1.0, f) for f in (sf.BF16, sf.TF32, sf.FP32, sf.E2M1)] == ["3f80", "1fc00", "3f800000", "2"]
    assert sf.to_hex([[1.0, -0.0], [np.nan, np.inf]], sf.FP16).tolist() == [["3c00", "8000"], ["7e00", "7c00"]]
    assert sf.to_hex(np.zeros((0, 2)), sf.FP16).shape == (0, 2)
    assert sf.to_hex(-np.pi, sf.FP64) == "c00921fb54442d18"


def test_hexadecimal_text_is_decoded_with_or_without_a_prefix_in_any_case():
    for text in ("3c00", "3C00", "0x3c00", "0X3C00", "3c_00", "0x_3C00", "0003c00"):
        assert sf.decode(text, sf.FP16) == 1.0 and sf.decode(text, sf.FP16).shape == ()
    assert sf.decode([["0x38", "7E"], ["0", "80"]], sf.E4M3).tolist() == [[1.0, 448.0], [0.0, -0.0]]
    assert sf.decode("c00921fb54442d18", sf.FP64) == -np.pi
    assert sf.decode(np.array(["38"], np.dtypes.StringDType()), sf.E4M3) == 1.0


def test_an_invalid_hexadecimal_text_is_refused():
    texts = ["", "3cx0", "-1", "0x", "3c00 ", "3c__00", "_3c", "1.5", "16'h3c00", "３c00"]
    words = "A code of FP16 is hexadecimal digits such as '0001' or '0x0001', got "
    assert_refused(
        *((lambda text=text: sf.decode(text, sf.FP16), words) for text in texts),
        (lambda: sf.decode(["3c00", "13c00"], sf.FP16),
         "Code '13c00' is not one of FP16, whose codes have 16 bits"),
        (lambda: sf.decode("10", sf.E2M1), "Code '10' is not one of E2M1"),
        (lambda: sf.decode(["3c", 16], sf.E5M2), "hexadecimal digits such as '01' or '0x01', got 16"),
        (lambda: sf.to_hex([1.0, 0.1], sf.FP16), "0.1 at index 1 is not a number of FP16; round"),
    )  # fmt: skip
