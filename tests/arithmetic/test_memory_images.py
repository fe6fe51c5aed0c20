"""Packed codes, and files for $readmemh and $readmemb, as IEEE 1364-2005 section 17.2.9 describes them."""

import re

import numpy as np
import pytest

import simfloat as sf
from tests.bits import FORMATS, assert_bits


def written(tmp_path, text):
    path = tmp_path / "memory.hex"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_written_values_are_read_back(tmp_path):
    for format in FORMATS:
        if format.bits <= 8:
            sf.writememh(tmp_path / "all.hex", format.values(), format)
            assert_bits(sf.readmemh(tmp_path / "all.hex", format), format.values())


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


def test_white_space_comments_addresses_and_underscores(tmp_path):
    for text in (
        *("3c00 4000\n4200", "3c00_ 4_0__00 42_00__", "3C00\t4000\f\r\n42_00"),
        "// 3c00 zz\n3c00 /* 4000\n5000 */ 4000//end\n4200/**/",
        *("@0 3c00 4000 @2 4200", "@10\n4200\n@0E 3c00 4000", "@1_0 3c00 @11 4000 4200"),
        b"\xef\xbb\xbf3c00 // \xe4\xff\n4000 4200",
    ):
        assert sf.readmemh(written(tmp_path, text), sf.FP16).tolist() == [1.0, 2.0, 3.0]
    assert sf.readmemh(written(tmp_path, "// nothing\n@5"), sf.FP16).shape == (0,)


def test_an_invalid_image_of_numbers_is_refused_with_its_line(tmp_path):
    for text, message in (
        ("3c00\n3cxx", "line 2: '3cxx' has digits that are unknown (x) or not driven (z); a number has neither."),
        ("3c00 zzzz", "line 1: 'zzzz' has digits that are unknown"),
        ("radix=16;", "line 1: A code of FP16 is hexadecimal digits such as '0001' or '0x0001', got 'radix=16;'."),
        ("0x3c00", "line 1: '0x3c00' has a prefix, but Verilog has only digits: write '3c00'."),
        ("\n\n13c00", "line 3: Code '13c00' is not one of FP16, whose codes have 16 bits."),
        ("3c00_4000", "whose codes have 16 bits. If it has 2 codes, write per_word=2."),
        ("3c00,4000", "line 1: A code of FP16 is hexadecimal digits such as '0001' or '0x0001', got '3c00,4000'."),
        ("@ 10 3c00", "line 1: An address is @ and hexadecimal digits, without white space, as @1f; got '@'."),
        ("@xx 3c00", "line 1: An address is @ and hexadecimal digits"),
        ("3c00 4000\n@1 4200", "line 2: Address 1 has a word already."),
        ("3c00 @1f 4000 @30 4200", "Address 1 has no word, though 0 and 1f have."),
        ("3c00\n/* 4000\n4200", "line 2: The comment is never closed by */."),
        ("3c00 / 4000", "line 1: A code of FP16 is hexadecimal digits"),
    ):
        path = written(tmp_path, text)
        with pytest.raises(ValueError, match=re.escape(str(path)) + ".*" + re.escape(message)):
            sf.readmemh(path, sf.FP16)


def test_invalid_words_codes_and_paths_raise_value_error(tmp_path):
    def read(text, read=sf.readmemb, **options):
        return read(written(tmp_path, text), sf.E2M1, **options)

    for call, words in (
        (lambda: read("0012"), "digits such as '0001', got '0012'"),
        (lambda: read("0b01"), "'0b01' has a prefix, but Verilog has only digits: write '01'."),
        (lambda: read("0b"), "digits such as '0001', got '0b'"),
        (lambda: read("0x10010"), "'0x10010' has digits that are unknown"),
        (lambda: read("0x10010", unknown=1.0), "The word '0x10010' has more than 4 bits"),
        (lambda: read("x12", sf.readmemh, per_word=2, unknown=1.0), "The word 'x12' has more than 8 bits"),
        (lambda: read("00x1"), "unknown"),
        (lambda: read("10000"), "more than 4 bits"),
        (lambda: read("123", sf.readmemh, per_word=2), "more than 8 bits, of 2 x E2M1"),
        (lambda: read("12", sf.readmemh, per_word=0), "per_word, the number of codes in a word"),
        (lambda: sf.writememh(tmp_path / "x", [1.0] * 3, sf.E2M1, per_word=2), "append 1 more, such as zeros"),
        (lambda: sf.writememh(tmp_path / "x", [1.0] * 3, sf.E8M0, per_word=2), "append 1 more, such as ones"),
        (lambda: sf.pack([1, 16], 4), "Code 16 at index 1 does not fit into 4 bits"),
        (lambda: sf.pack([-1], 4), "Code -1"),
        (lambda: sf.pack([0.5], 4), "codes must be integers, got dtype float64"),
        (lambda: sf.pack([1], 0), "from 1 to 64; got 0"),
        (
            lambda: sf.pack([1.0], sf.E2M1),
            "got Format(2, 1, special='finite', name='E2M1'). Numbers of E2M1 have codes of 4 bits: encode",
        ),
        (lambda: sf.pack([1], 4, order="middle"), "'little' (first code in the lowest bits) or 'big'"),
        (lambda: sf.unpack([1], 4, 3), "from 0 to 2"),
        (lambda: sf.unpack(np.array([-1]), 4), "an unsigned dtype such as np.uint32; got int64"),
        (lambda: sf.unpack([300], 4), "words must be bytes"),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            call()
    for path in (None, "", 5, b"weights.hex", ["weights.hex"]):
        for call in (lambda path: sf.writememh(path, [1.0], sf.BF16), lambda path: sf.readmemh(path, sf.BF16)):
            with pytest.raises(ValueError, match="A path is text or a pathlib.Path, got"):
                call(path)


def test_codes_with_unknown_digits_are_read_as_the_value_of_unknown(tmp_path):
    for text, format, per_word, unknown, want in (
        ("3c00 xxxx 3cZ0 4000", sf.FP16, 1, np.nan, [1.0, np.nan, np.nan, 2.0]),
        ("4000_3c00 xxxx_4000 3xx4000", sf.FP16, 2, 0.0, [1.0, 2.0, 2.0, 0.0, 2.0, 0.0]),
        ("x 0x0 0z1", sf.E2M1, 3, -1.0, [-1.0, -1.0, -1.0, 0.0, -1.0, 0.0, 0.5, -1.0, 0.0]),
        ("x0 01", sf.fixed(5), 1, np.nan, [np.nan, 1.0]),  # code 10 is not a number
        ("x0000 00000", sf.TF32, 1, 7.0, [7.0, 0.0]),
        ("0x 0X_", sf.FP16, 1, 7.0, [7.0, 7.0]),  # no prefix: no digits follow
    ):
        assert_bits(sf.readmemh(written(tmp_path, text), format, per_word=per_word, unknown=unknown), np.float32(want))
    assert_bits(sf.readmemb(written(tmp_path, "z1 00x0_0010"), sf.E2M1, per_word=2, unknown=6.0),
                np.float32([6.0, 6.0, 1.0, 6.0]))  # fmt: skip
    for text, unknown, words in (
        ("3c00 xxxx", None, "a number has neither. Write unknown=numpy.nan to read"),
        ("3c00", 0.1, "0.1 is not a number of FP16"),
        ("3c00", [1.0, 2.0], "unknown must be NaN or a number of FP16, got"),
        ("x3f80", 1.0, "line 1: Code 'x3f80' is not one of FP16"),
        ("0x", None, "'0x' has digits that are unknown"),
        ("0xzz 0xx", 1.0, "line 1: '0xx' has a prefix"),
        ("0xzz", None, "'0xzz' has digits that are unknown"),
        ("xxxx xg", 1.0, "line 1: A code of FP16 is hexadecimal digits"),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            sf.readmemh(written(tmp_path, text), sf.FP16, unknown=unknown)
    with pytest.raises(ValueError, match=re.escape("A word of $readmemb is binary digits")):
        sf.readmemb(written(tmp_path, "ax"), sf.E2M1, unknown=1.0)


def test_words_of_several_numbers_are_read_back(tmp_path, rng):
    path = tmp_path / "memory"
    for format, per_word in ((sf.E2M1, 2), (sf.E2M3, 5), (sf.FP16, 4), (sf.TF32, 1), (sf.FP64, 3)):
        values = sf.round(rng.standard_normal((6, 10)), format)
        codes = sf.encode(values, format)
        rows = codes.reshape(-1, per_word).tolist()
        numbers = [sum(code << i * format.bits for i, code in enumerate(row)) for row in rows]
        for read, write, radix, digits in ((sf.readmemh, sf.writememh, 16, 4), (sf.readmemb, sf.writememb, 2, 1)):
            write(path, values, format, per_word=per_word)
            assert_bits(read(path, format, per_word=per_word), sf.decode(codes.reshape(-1), format))
            words = [line.replace("_", "") for line in path.read_text().splitlines()[1:]]
            assert {len(word) for word in words} == {-(-format.bits * per_word // digits)}
            assert [int(word, radix) for word in words] == numbers


def test_binary_words_are_as_verilog_reads_them(tmp_path):
    assert sf.readmemb(written(tmp_path, "@1 1_1_00 // -2\n@0 0010"), sf.E2M1).tolist() == [1.0, -2.0]
    assert sf.readmemh(written(tmp_path, "0b12"), sf.FP16) == sf.decode("0b12", sf.FP16)


@pytest.mark.parametrize("order", ["little", "big"])
def test_codes_are_packed_without_gaps_and_unpacked(rng, order):
    for bits in (1, 3, 4, 6, 8, 12, 16, 19, 33, 64):
        codes = rng.integers(0, 2**bits, (3, 11), np.uint64)
        packed = sf.pack(codes, bits, order=order)
        assert packed.dtype == np.uint8 and packed.shape == (3, -(-11 * bits // 8))
        for row, one in zip(packed, codes.tolist(), strict=True):
            whole = int.from_bytes(row.tobytes(), order)
            places = range(0, 11 * bits, bits) if order == "little" else range(8 * row.size - bits, -1, -bits)
            assert [whole >> place & 2**bits - 1 for place in list(places)[:11]] == one
        unpacked = sf.unpack(packed, bits, 11, order=order)
        assert np.array_equal(unpacked, codes)
        assert unpacked.itemsize == min(n for n in (1, 2, 4, 8) if 8 * n >= bits)
        words = "<u1" if bits % 4 else "<u4" if order == "little" else ">u4"
        words = sf.pack(codes[:, :8], bits, order=order).view(words)
        assert np.array_equal(sf.unpack(words, bits, 8, order=order), codes[:, :8])


def test_packed_codes_are_those_of_pytorch():
    torch = pytest.importorskip("torch")
    codes = sf.encode(sf.E2M1.values()[:14], sf.E2M1)
    packed = torch.from_numpy(sf.pack(codes, 4)).view(torch.float4_e2m1fn_x2)
    assert np.array_equal(sf.decode(packed, sf.E2M1), sf.E2M1.values()[:14])
    assert sf.unpack([0x21, 0x03], 4).tolist() == [1, 2, 3, 0] and sf.pack([], 4).shape == (0,)
