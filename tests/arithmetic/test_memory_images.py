"""Files for $readmemh, as IEEE 1364-2005 section 17.2.9 describes them."""

import re

import numpy as np
import pytest

import simfloat as sf
from tests.bits import FORMATS, assert_bits


def written(tmp_path, text):
    path = tmp_path / "memory.hex"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("format", [f for f in FORMATS if f.bits <= 8], ids=str)
def test_written_values_are_read_back(tmp_path, format):
    values = format.values()
    sf.writememh(tmp_path / "all.hex", values, format)
    assert_bits(sf.readmemh(tmp_path / "all.hex", format), values)


def test_a_file_is_a_comment_and_a_word_a_line(tmp_path, rng):
    path = tmp_path / "weights.hex"
    sf.writememh(path, [[1.0, -2.0], [np.nan, 0.0]], sf.FP16)
    assert path.read_text() == "// FP16: words of 16 bits, in C order of shape (2, 2)\n3c00\nc000\n7e00\n0000\n"
    sf.writememh(str(path), np.zeros((0, 3)), "fp16")
    assert sf.readmemh(str(path), "fp16").shape == (0,)
    numbers = sf.round(rng.standard_normal(1000), sf.TF32)
    sf.writememh(path, numbers, sf.TF32)
    assert_bits(sf.readmemh(path, sf.TF32), numbers.astype(np.float32))
    named = sf.Format(4, 3, name="ü\n")
    sf.writememh(path, [1.0, 2.0], named)
    assert sf.readmemh(path, named).tolist() == [1.0, 2.0]


def test_values_outside_of_the_format_are_not_written(tmp_path):
    path = written(tmp_path, "3c00")
    with pytest.raises(ValueError, match="0.1 at index 1 is not a number of FP16"):
        sf.writememh(path, [1.0, 0.1], sf.FP16)
    assert path.read_text() == "3c00"


@pytest.mark.parametrize(
    "text",
    [
        "3c00 4000\n4200",
        "3C00\t4000\f\r\n42_00",
        "// 3c00 zz\n3c00 /* 4000\n5000 */ 4000//end\n4200/**/",
        "@0 3c00 4000 @2 4200",
        "@10\n4200\n@0E 3c00 4000",
        "@1_0 3c00 @11 4000 4200",
        b"\xef\xbb\xbf3c00 // \xe4\xff\n4000 4200",
    ],
)
def test_white_space_comments_addresses_and_underscores(tmp_path, text):
    assert sf.readmemh(written(tmp_path, text), sf.FP16).tolist() == [1.0, 2.0, 3.0]


def test_an_image_without_words_is_an_empty_vector(tmp_path):
    assert sf.readmemh(written(tmp_path, "// nothing\n@5"), sf.FP16).shape == (0,)


@pytest.mark.parametrize(
    "text, message",
    [
        ("3c00\n3cxx", "line 2: '3cxx' has digits that are unknown (x) or not driven (z); a number has neither."),
        ("3c00 zzzz", "line 1: 'zzzz' has digits that are unknown"),
        ("0x3c00", "line 1: '0x3c00' has a prefix, but Verilog has only digits: write '3c00'."),
        ("\n\n13c00", "line 3: Code '13c00' is not one of FP16, whose codes have 16 bits."),
        ("3c00,4000", "line 1: A code of FP16 is hexadecimal digits such as '0001' or '0x0001', got '3c00,4000'."),
        ("@ 10 3c00", "line 1: An address is @ and hexadecimal digits, without white space, as @1f; got '@'."),
        ("@xx 3c00", "line 1: An address is @ and hexadecimal digits"),
        ("3c00 4000\n@1 4200", "line 2: Address 1 has a word already."),
        ("3c00 @1f 4000 @30 4200", "Address 1 has no word, though 0 and 1f have."),
        ("3c00\n/* 4000\n4200", "line 2: The comment is never closed by */."),
        ("3c00 / 4000", "line 1: A code of FP16 is hexadecimal digits"),
    ],
)
def test_an_invalid_image_of_numbers_is_refused_with_its_line(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match=re.escape(str(path)) + ".*" + re.escape(message)):
        sf.readmemh(path, sf.FP16)


@pytest.mark.parametrize("path", [None, "", 5, b"weights.hex", ["weights.hex"]])
def test_an_invalid_path_is_refused(path):
    for call in (lambda: sf.writememh(path, [1.0], sf.BF16), lambda: sf.readmemh(path, sf.BF16)):
        with pytest.raises(ValueError, match="A path is text or a pathlib.Path, got"):
            call()
