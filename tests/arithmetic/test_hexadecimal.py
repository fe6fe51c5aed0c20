"""Codes as hexadecimal text: every code of every small format is written and read back."""

import numpy as np

import simfloat as sf
from tests.bits import FORMATS, assert_bits
from tests.checks import assert_refused


def test_texts_round_trip():
    for format in [f for f in FORMATS if f.bits <= 16]:
        values = sf.decode(np.arange(2**format.bits), format)
        if not format.subnormals and format.has_zero:
            values = values[(values == 0) | ~(np.abs(values) < format.smallest_normal)]
        texts = sf.to_hex(values, format)
        assert {len(text) for text in texts.tolist()} == {-(-format.bits // 4)}
        assert [int(text, 16) for text in texts] == sf.encode(values, format).tolist()
        assert_bits(sf.decode(texts, format), sf.decode(sf.encode(values, format), format))


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
