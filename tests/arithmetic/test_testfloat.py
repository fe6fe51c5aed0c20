"""Test vectors in Berkeley TestFloat's text."""

import itertools

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic.catalog import FUNCTIONS
from tests.bits import assert_bits

#: Lines as `testfloat_gen f16_add`, `f32_mulAdd` and `bf16_mul` write them: flags as IEEE 754 tells.
LINES = {
    ("f16_add", "add", sf.FP16): ["3C00 1000 3C00 01", "7BFF 7BFF 7C00 05", "7C00 FC00 FE00 10", "7D01 0000 7F01 10"],
    ("f32_mulAdd", "fma", sf.FP32): [
        "00800000 3F000000 00000000 00400000 00",
        "00000001 3F000000 00000000 00000000 03",
        "7F800000 00000000 7FC00000 FFC00000 10",
    ],
    ("bf16_mul", "multiply", sf.BF16): ["3F81 3F81 3F82 01", "FF80 8000 FFC0 10", "7F7F 4000 7F80 05"],
    ("f16_div", "divide", sf.FP16): ["3C00 0000 7C00 08", "3C00 8000 FC00 08", "3C00 4200 3555 01"],
    ("f32_to_f16", "round", sf.FP16): ["3F8CCCCD 3C66 01", "7F7FFFFF 7C00 05", "B3000000 8000 03"],
    ("f64_to_f16", "round", sf.FP16): ["3FF199999999999A 3C66 01", "8000000000000000 8000 00"],
}


@pytest.mark.parametrize(("name", "operation", "format"), LINES, ids=lambda value: str(value))
def test_lines_of_testfloat_gen_are_read_and_agree(name, operation, format, tmp_path):
    path = tmp_path / f"{name}.txt"
    path.write_text("".join(f"{line}\n" for line in LINES[name, operation, format]))
    cases = sf.read_vectors(path, operation, format)
    result, flags = getattr(sf, operation)(*cases.operands, format, flags=True)
    assert_bits(result, cases.result, *cases.operands)
    assert cases.signalling.tolist() == [line.startswith("7D01") for line in LINES[name, operation, format]]
    assert (flags == cases.flags)[~cases.signalling].all() and cases.flags.dtype == np.uint8


@pytest.mark.parametrize("name", ["round", "add", "fma", "sqrt", "power"])
def test_what_is_written_is_read(name, rng, tmp_path):
    for format, rounding in itertools.product((sf.E4M3, sf.FP16, sf.TF32, sf.FP32), (sf.nearest_even, sf.toward_zero)):
        count = len(FUNCTIONS[name].operands) if name in FUNCTIONS else 1
        x = rng.standard_normal((count, 5, 7)) * 2.0 ** rng.integers(-20, 20, (count, 5, 7))
        operands = x if name == "round" else sf.round(x, format)
        sf.write_vectors(tmp_path / "cases", name, *operands, format, rounding)
        cases = sf.read_vectors(tmp_path / "cases", name, format)
        result, flags = getattr(sf, name)(*operands, format, rounding, flags=True)
        for got, want in zip((*cases.operands, cases.result), (*operands, result), strict=True):
            assert_bits(got, want.ravel())
        assert cases.flags.tolist() == flags.ravel().tolist() and not cases.signalling.any()


def test_operands_broadcast_and_draws_come_from_a_stream(tmp_path):
    draws = sf.GivenBits([0, 7])
    sf.write_vectors(tmp_path / "cases", "add", [1.0, 1.0], 2.0**-9, sf.BF16, sf.stochastic(3), stream=draws)
    assert (tmp_path / "cases").read_bytes() == b"3F80 3B00 3F80 01\n3F80 3B00 3F81 01\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("3C00 1000 3C00", "A case of add has 4 fields: operands \\(2\\), result and flags; got 3"),
        ("3C00 1000 3C00 01 01", "got 5"),
        ("3C00 1000 03C00 01", "A code of FP16 has 4 hexadecimal digits, got '03C00'"),
        ("3C00 3_00 3C00 01", "A code of FP16 has 4 hexadecimal digits, got '3_00'"),
        ("0x00 1000 3C00 01", "A code of FP16 has 4 hexadecimal digits, got '0x00'"),
        ("3C00 10G0 3C00 01", "A code of FP16 has 4 hexadecimal digits, got '10G0'"),
        ("3C00 1000 3C00 1", "Flags are two hexadecimal digits from 00 to 1f, got '1'"),
        ("3C00 1000 3C00 20", "got '20'"),
        ("", "got 0"),
    ],
)
def test_wrong_files_are_refused_with_the_line(line, message, tmp_path):
    path = tmp_path / "cases"
    path.write_text(f"3C00 1000 3C00 01\n{line}\n")
    with pytest.raises(ValueError, match=f"cases, line 2: .*{message}"):
        sf.read_vectors(path, "add", sf.FP16)


def test_wrong_calls_are_refused_before_a_file_is_touched(tmp_path):
    path = tmp_path / "cases"
    calls = [
        (lambda: sf.write_vectors(path, "plus", 1.0, 1.0, sf.FP16), "operation is 'round' or one of add, subtract"),
        (lambda: sf.write_vectors(path, "add", 1.0, sf.FP16), "takes a path, 'add', its 2 operands, a format"),
        (
            lambda: sf.write_vectors(path, "add", 1.0, 0.1, sf.FP16),
            "0.1.* is not a number of FP16",
        ),
        (lambda: sf.read_vectors(path, "f16_mulAdd", sf.FP16), "got 'f16_mulAdd'. Did you mean 'fma'"),
        (lambda: sf.read_vectors(path, "f16_add", sf.FP16), "got 'f16_add'. Did you mean 'add'"),
        (lambda: sf.read_vectors(path, ["add"], sf.FP16), "operation is 'round' or one of"),
        (lambda: sf.write_vectors("", "add", 1.0, 1.0, sf.FP16), "A path is text"),
    ]
    for call, message in calls:
        with pytest.raises(ValueError, match=message):
            call()
    assert not path.exists()
