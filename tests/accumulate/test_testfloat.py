"""Test vectors in the text format of Berkeley TestFloat."""

import itertools

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic.testfloat import MODES, compute_testfloat, signature_of
from simfloat.formats.definition import round_value
from simfloat.formats.exact_numbers import exact_number
from tests.bits import DETERMINISTIC, assert_bits
from tests.checks import assert_refused

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


def test_lines_of_testfloat_gen_are_read_and_agree(tmp_path):
    for (_, operation, format), lines in LINES.items():
        cases = read(tmp_path, "".join(f"{line}\n" for line in lines), operation, format)
        result, flags = getattr(sf, operation)(*cases.operands, format, flags=True)
        assert_bits(result, cases.result, *cases.operands)
        assert cases.signalling.tolist() == [line.startswith("7D01") for line in lines]
        assert (flags == cases.flags)[~cases.signalling].all() and cases.flags.dtype == np.uint8


def test_written_values_are_read_back(rng, tmp_path):
    path, formats = tmp_path / "cases", (sf.E4M3, sf.FP16, sf.TF32, sf.FP32)
    for name, count in (("round", 1), ("add", 2), ("fma", 3), ("sqrt", 1), ("power", 2)):
        for format, rounding in itertools.product(formats, (sf.nearest_even, sf.toward_zero)):
            x = rng.standard_normal((count, 5, 7)) * 2.0 ** rng.integers(-20, 20, (count, 5, 7))
            operands = x if name == "round" else sf.round(x, format)
            sf.write_vectors(path, name, *operands, format, rounding)
            cases = sf.read_vectors(path, name, format)
            result, flags = getattr(sf, name)(*operands, format, rounding, flags=True)
            for got, want in zip((*cases.operands, cases.result), (*operands, result), strict=True):
                assert_bits(got, want.ravel())
            assert cases.flags.tolist() == flags.ravel().tolist() and not cases.signalling.any()
    # Operands broadcast, and draws come from a stream.
    draws = sf.GivenBits([0, 7])
    sf.write_vectors(path, "add", [1.0, 1.0], 2.0**-9, sf.BF16, sf.stochastic(3), stream=draws)
    assert path.read_bytes() == b"3F80 3B00 3F80 01\n3F80 3B00 3F81 01\n"
    # Flags may be left out, and results have another format than operands.
    sf.write_vectors(path, "add", [1.0], [2.0], sf.FP16, flags=False)
    assert path.read_text() == "3C00 4000 4200\n"
    assert sf.read_vectors(path, "add", sf.FP16, flags=False).flags.tolist() == [0]
    sf.write_vectors(path, "multiply", [1.125, 240.0], [1.125, 240.0], sf.E4M3, sf.toward_zero, output=sf.FP16)
    assert path.read_text() == "39 39 3D10 00\n77 77 7B08 00\n"
    assert sf.read_vectors(path, "multiply", sf.E4M3, output=sf.FP16).result.tolist() == [1.265625, 57600.0]
    with pytest.raises(ValueError, match="A code of E4M3 has 2 hexadecimal digits"):
        sf.read_vectors(path, "multiply", sf.E4M3)
    # Sums without a partial sum, and exact sums, start from zero.
    sf.write_vectors(path, "dot", [[1.0, 2.0]], [[3.0, 4.0]], 0.0, sf.FP16, accumulate=sf.pairwise(sf.FP16))
    assert path.read_text() == "3C00 4000 4200 4400 0000 4980 00\n"
    sf.write_vectors(path, "dot", [[1.0]], [[3.0]], [0.5], sf.FP16, accumulate=sf.exact, output=sf.FP32)
    assert sf.read_vectors(path, "dot", sf.FP16, accumulate=sf.exact, output=sf.FP32).result == 3.5


def test_wrong_files_and_names_are_refused_with_the_line(tmp_path):
    for line, message in (
        ("3C00 1000 3C00", "A case of add has 4 fields: operands \\(2\\), result and flags; got 3"),
        ("3C00 1000 3C00 01 01", "got 5"),
        ("3C00 1000 03C00 01", "A code of FP16 has 4 hexadecimal digits, got '03C00'"),
        ("3C00_300_3C00_01", "A code of FP16 has 4 hexadecimal digits, got '300'"),
        ("0x00 1000 3C00 01", "A code of FP16 has 4 hexadecimal digits, got '0x00'"),
        ("3C00 10G0 3C00 01", "A code of FP16 has 4 hexadecimal digits, got '10G0'"),
        ("3C00 1000 3C00 1", "Flags are two hexadecimal digits from 00 to 1f, got '1'"),
        ("3C00 1000 3C00 20", "got '20'"),
        ("01", "got 1"),
        ("+0F.000 +0F.000 => +10.001 ....x  expected +10.400 .....", "A code of FP16 has 4 .*, got '\\+10.400'"),
        ("+0F.000 => +10.001 ....x  expected +10.000 .....", "A case of add has 4 fields"),
    ):
        with pytest.raises(ValueError, match=f"cases.tv, line 2: .*{message}"):
            read(tmp_path, f"3C00 1000 3C00 01\n{line}\n", "add", sf.FP16)
    for name in ("f16_to_f16", "i32_to_i64", "i32_add", "f128_add", "extF80_to_f16", "f16_tan"):
        with pytest.raises(ValueError, match="operation is 'round' or one of|is no conversion of TestFloat"):
            read(tmp_path, "", name, sf.FP16)
    with pytest.raises(ValueError, match="read_vectors needs the format of 'add'"):
        read(tmp_path, "", "add")


def test_wrong_calls_are_refused_before_a_file_is_touched(tmp_path):
    path = tmp_path / "cases"

    def write(*arguments, **options):
        return lambda: sf.write_vectors(path, *arguments, **options)

    assert_refused(
        (write("plus", 1.0, 1.0, sf.FP16), "operation is 'round' or one of add, subtract"),
        (write("add", 1.0, sf.FP16), "takes a path, 'add', its 2 operands, a format"),
        (write("add", 1.0, 0.1, sf.FP16), "b: 0.1.* is not a number of FP16"),
        (write("dot", [[1.0]], [[1.0]], sf.FP16, sf.to_odd, accumulate=sf.FP16), "its 3 operands a, b and c, a format"),
        (write("dot", [[1.0]], None, 0.0, sf.FP16, accumulate=sf.FP16), "b must hold real numbers"),
        (write("f80_mulAdd", 1.0, 1.0, 1.0, sf.FP16), "got 'f80_mulAdd'. Did you mean 'fma'"),
        (write("f16_add", 1.0, 1.0, sf.FP32), "on FP16, got the format FP32"),
        (write("f16_add", 1.0), "its 2 operands, and a rounding"),
        (write("f16_sqrt_r_min", 1.0, sf.to_odd), "names its rounding, toward_negative"),
        (write("i32_to_f16", [2**31]), "integers of int32, from -2147483648"),
        (write("i32_to_f16", [0.5]), "integers of int32"),
        (write("dot", [1.0], [1.0], 0.0, sf.FP16, accumulate=sf.FP16), "a row for each sum"),
        (write("dot", [[1.0]], [[1.0]], 0.0, sf.FP16), "accumulate= is the accumulator of 'dot'"),
        (write("add", 1.0, 1.0, sf.FP16, accumulate=sf.FP16), "other operations have none"),
        (write("dot", [[1.0]], [[1.0]], 1.0, sf.FP16, accumulate=sf.pairwise(sf.FP16)),
         "no partial sum that could start from c"),
        (write("f32_to_i4", 1.0), r"f32_to_i4' is no conversion .* 32 or 64 bits. For others write 'round'.*fixed\(4"),
        (write("add", 1.0, 1.0, (sf.FP16, sf.FP32)), "Only 'round' has a pair of formats, of operands and results"),
        (write("fma", 1.0, 1.0, 1.0, (sf.E4M3, sf.FP16)), r"got \(E4M3, FP16\). For an fma of other .* 'dot' with one"),
        (write("mulAdd", 1.0, 1.0, 1.0, sf.BF16), "TestFloat's 'mulAdd' is 'fma' here"),
        (write("round", 0.1, (sf.FP16, sf.E2M1)), "0.1.* is not a number of FP16"),
        (write("f128_to_f16", 1.0), r"f128_to_f16'. More than 53 .* f128 has 113: use f64, or"),
        (lambda: sf.read_vectors(path, "extF80_add"), "extF80_add'. More than 53 significand bits are not supported"),
        (lambda: sf.read_vectors(path, ["add"], sf.FP16), "operation is 'round' or one of"),
        (lambda: sf.write_vectors("", "add", 1.0, 1.0, sf.FP16), "A path is text"),
    )  # fmt: skip
    assert not path.exists()


def read(tmp_path, text, *arguments):
    path = tmp_path / "cases.tv"
    path.write_text(text)
    return sf.read_vectors(path, *arguments)


def test_test_vectors_may_have_underscores_comments_and_blank_lines(tmp_path):
    text = "// rounding to nearest even\n\n3C00_1000_3C00_01\n  # one more\n7bff_7bff_7c00_05 // overflow\n\n"
    with_prefixes = "0x3c00 0X1000 3C00 0x01\n0x7bff_0x7bff_0x7c00_05\n"
    for operation in (("add", sf.FP16), ("f16_add",), ("f16_add", sf.FP16)):
        for cases in (read(tmp_path, text, *operation), read(tmp_path, with_prefixes, *operation)):
            assert [x.tolist() for x in cases.operands] == [[1.0, 65504.0], [2.0**-11, 65504.0]]
            assert cases.result.tolist() == [1.0, np.inf] and cases.flags.tolist() == [1, 5]
    for operand in ("0x3F800001", "0x3FF0000020000000"):  # the digits without 0x show the format
        assert read(tmp_path, f"{operand} 3C00 01", "round", sf.FP16).operands[0] == 1 + 2.0**-23


def test_a_difference_that_testfloat_reports_is_read_with_the_expected_result(tmp_path):
    text = (
        "Testing f32_mulAdd, rounding min.\n6133248 tests total.\nErrors found in f32_mulAdd, rounding min:\n"
        "+00.7FFFFF  +67.000001  -01.000000\n\t=> -01.000000 ...ux  expected -01.000000 ....x\n"
        "-00.7FFFFF  -67.000001  -01.000000\n        => -01.000000 ...ux  expected -01.000000 ....x\n"
        "In 6133248 tests, 2 errors found in f32_mulAdd, rounding min.\n"
    )
    cases = read(tmp_path, text, "f32_mulAdd")
    result, flags = sf.fma(*cases.operands, sf.FP32, sf.toward_negative, flags=True)
    assert_bits(cases.result, result)
    assert flags.tolist() == cases.flags.tolist() == [1, 1]
    assert_bits(read(tmp_path, text, "fma", sf.FP32).operands[1], sf.decode(["33800001", "b3800001"], sf.FP32))
    with pytest.raises(ValueError, match="line 1: the report is on f32_mulAdd, not on f32_add"):
        read(tmp_path, text, "f32_add")
    text = "Errors found in f64_eq:\n-47E.10000000000FF  +7FF.4F3D114AF58E4  => 0 .....  expected 0 v....\n"
    cases = read(tmp_path, text, "f64_eq")
    assert cases.result.tolist() == [False] and cases.flags.tolist() == [16] and cases.signalling.tolist() == [True]


def test_operations_are_read_by_testfloats_own_names(tmp_path):
    for operation, line, operands, result in (
        ("f16_to_f32", "3C01 3F802000 00", [1 + 2.0**-10], np.float32(1 + 2.0**-10)),
        ("f32_to_bf16", "3F808001 3F81 01", [np.float32(1 + 2.0**-8 + 2.0**-23)], 1 + 2.0**-7),
        ("f16_to_i32", "C500 FFFFFFFB 00", [-5.0], np.int32(-5)),
        ("f16_to_ui64_rx_minMag", "4500 0000000000000005 00", [5.0], np.uint64(5)),
        ("i32_to_f16", "FFFFFFFB C500 00", [np.int32(-5)], -5.0),
        ("ui64_to_f32", "8000000000000000 5F000000 00", [np.uint64(2**63)], 2.0**63),
        ("f16_rem", "4500 4200 BC00 00", [5.0, 3.0], -1.0),
        ("f16_roundToInt", "3E00 4000 00", [1.5], 2.0),
        ("f16_le", "3C00 3C00 1 00", [1.0, 1.0], np.True_),
        ("f64_lt_quiet", "7FF8000000000000 3FF0000000000000 0 00", [np.nan, 1.0], np.False_),
        ("bf16_mulAdd", "3F80 4000 4040 40A0 00", [1.0, 2.0, 3.0], 5.0),
    ):
        cases = read(tmp_path, line, operation)
        assert len(cases.operands) == len(operands)
        for got, want in zip((*cases.operands, cases.result), (*operands, result), strict=True):
            assert got.size == 1 and np.array_equal(got[0], want, equal_nan=isinstance(want, float))
        if isinstance(result, np.generic):
            assert cases.result.dtype == result.dtype
        with pytest.raises(ValueError, match=f"{operation} is an operation of TestFloat on .*; leave it out"):
            read(tmp_path, line, operation, sf.E5M2)


def test_integers_are_not_read_as_numbers_of_fp32(tmp_path):
    text = "00000005 4500 00\n0000000B 4980 00\n00000000 0000 00\n00010001 7C00 05\n"
    assert read(tmp_path, text, "i32_to_f16").operands[0].tolist() == [5, 11, 0, 65537]
    with pytest.raises(ValueError, match="3 of 4 results are not roundings of .* FP32.* such as 'i32_to_f16'"):
        read(tmp_path, text, "round", sf.FP16)
    with pytest.raises(ValueError, match="'i64_to_f16' or 'ui64_to_f16'"):
        read(tmp_path, "0000000000000005 4500 00\n", "round", sf.FP16)


def integers_by_fractions(x, dtype, rounding):
    """Integers of the RISC-V architecture, and whether they are valid, by the definition of a rounding."""
    limits = np.iinfo(dtype)
    if np.isnan(x) or np.isinf(x):
        return (limits.min if x < 0 else limits.max), False
    whole = int(round_value(exact_number(float(x)), sf.fixed(54), rounding)) if abs(x) < 2.0**52 else int(x)
    return min(max(whole, limits.min), limits.max), limits.min <= whole <= limits.max


@pytest.mark.parametrize("source", ["f16", "f32", "f64"])
def test_conversions_to_integers_are_invalid_out_of_range(source, rng, tmp_path):
    edges = np.array([0.0, -0.0, 0.5, -0.5, 1.5, -1.5, np.inf, -np.inf, np.nan, -1.0, 0.75, 2.0**31, 2.0**32, 2.0**63])
    x = np.concatenate([rng.standard_normal(60) * 2.0 ** rng.integers(-3, 66, 60), edges, -edges, 2.0**31 - edges[:6]])
    x = sf.round(x, source)
    targets = "i32", "ui32", "i64", "ui64"
    for place, (target, rounding) in enumerate(itertools.product(targets, DETERMINISTIC)):
        is_exact = (place + place // 6) % 2 == 1
        name, dtype = (
            f"{source}_to_{target}{'_x' * is_exact}",
            np.dtype({"i": "int", "u": "uint"}[target[0]] + target[-2:]),
        )
        sf.write_vectors(tmp_path / "cases", name, x, rounding)
        cases = sf.read_vectors(tmp_path / "cases", name)
        assert cases.result.dtype == dtype
        for value, got, flags in zip(x.tolist(), cases.result.tolist(), cases.flags.tolist(), strict=True):
            want, is_valid = integers_by_fractions(value, dtype, rounding)
            assert got == want and flags == (16 if not is_valid else is_exact and want != value), (value, rounding)


@pytest.mark.parametrize(("variant", "target", "low", "high", "nan"), [
    ("riscv", "i32", -(2**31), 2**31 - 1, 2**31 - 1), ("riscv", "ui16", 0, 2**16 - 1, 2**16 - 1),
    ("arm", "i32", -(2**31), 2**31 - 1, 0), ("arm", "ui16", 0, 2**16 - 1, 0),
    ("x86", "i32", -(2**31), -(2**31), -(2**31)), ("x86", "ui16", 2**16 - 1, 2**16 - 1, 2**16 - 1),
    ("x86", "i64", -(2**63), -(2**63), -(2**63)), ("x86", "ui64", 2**64 - 1, 2**64 - 1, 2**64 - 1),
])  # fmt: skip
def test_results_of_invalid_conversions_are_those_of_a_processor(variant, target, low, high, nan, tmp_path):
    x, want = [-np.inf, -1e30, np.inf, 1e30, np.nan, -np.nan, 2.0], [low, low, high, high, nan, nan, 2]
    sf.write_vectors(tmp_path / "cases", f"f64_to_{target}", x, invalid=variant)
    cases = sf.read_vectors(tmp_path / "cases", f"f64_to_{target}")
    assert cases.result.tolist() == want and cases.flags.tolist() == [16] * 6 + [0]


def test_results_are_rounded_to_nearest_even_by_default(rng, tmp_path):
    x, path = sf.round(rng.standard_normal(100), sf.FP16), tmp_path / "cases"
    sf.write_vectors(path, "round", x, (sf.FP16, sf.E4M3))
    assert_bits(sf.read_vectors(path, "round", (sf.FP16, sf.E4M3)).result, sf.round(x, sf.E4M3))
    a, options = x.reshape(50, 2), dict(accumulate=sf.sequential(sf.FP16), output=sf.E4M3)
    sf.write_vectors(path, "dot", a, a, np.zeros(50), sf.FP16, **options)
    want = [sf.dot(row, row, inputs=sf.FP16, **options) for row in a]
    assert_bits(sf.read_vectors(path, "dot", sf.FP16, **options).result, np.array(want))


def test_only_conversions_to_integers_have_results_of_a_processor(tmp_path):
    assert_refused(
        (
            lambda: sf.write_vectors(tmp_path / "x", "f16_to_i8", [1.0], invalid="mips"),
            "'riscv', 'arm', 'x86', got 'mips'",
        ),
        (
            lambda: sf.write_vectors(tmp_path / "x", "f16_to_f32", [1.0], invalid="arm"),
            "integers, such as 'f16_to_i32'; got 'f16_to_f32'",
        ),
        (lambda: sf.write_vectors(tmp_path / "x", "add", [1.0], [1.0], sf.FP16, invalid="arm"), "got 'add'"),
    )
    assert not (tmp_path / "x").exists()


def test_all_numbers_of_narrow_formats_are_converted_to_narrow_integers(tmp_path):
    sources = ("e4m3_to", sf.E4M3), ("e5m2_to", sf.E5M2), ("to", sf.Format(4, 3, signed=False))
    for place, ((prefix, format), target) in enumerate(itertools.product(sources, ("i8", "ui8", "i16", "ui16"))):
        rounding, is_exact = DETERMINISTIC[place % 6], place % 2 == 1
        name = f"{prefix}_{target}{'_x' * is_exact}"
        x, of_name = sf.decode(np.arange(2**format.bits), format), [format] if prefix == "to" else []
        sf.write_vectors(tmp_path / "cases", name, x, *of_name, rounding)
        cases = sf.read_vectors(tmp_path / "cases", name, *of_name)
        assert cases.result.dtype == f"{'uint' if target[0] == 'u' else 'int'}{target.strip('ui')}"
        for value, got, flags in zip(x.tolist(), cases.result.tolist(), cases.flags.tolist(), strict=True):
            want, is_valid = integers_by_fractions(value, cases.result.dtype, rounding)
            assert got == want and flags == (16 if not is_valid else is_exact and want != value), (
                value,
                name,
                rounding,
            )
    assert_refused(
        (lambda: sf.read_vectors(tmp_path / "cases", "to_i8"), "'to_i8' needs the format of its operands"),
        (
            lambda: sf.read_vectors(tmp_path / "cases", "f16_to_i4"),
            r"\(FP16, fixed\(4, symmetric=False\)\) for 'f16_to_i4'",
        ),
        (lambda: sf.read_vectors(tmp_path / "cases", "to_f16", sf.FP16), "is no conversion|operation is 'round' or"),
    )
    sf.write_vectors(tmp_path / "cases", "i8_to_e4m3", [-128, 127, 19])
    assert (tmp_path / "cases").read_text() == "80 F0 00\n7F 70 01\n13 5A 01\n"


def test_integers_of_any_size_are_rounded_once(rng, tmp_path):
    for name, dtype in (
        *(("i32_to_f16", np.int32), ("ui64_to_f32", np.uint64), ("i64_to_f64", np.int64)), ("ui32_to_bf16", np.uint32),
    ):  # fmt: skip
        format, limits = name.split("_")[2], np.iinfo(dtype)
        x = np.array([*rng.integers(limits.min, limits.max, 50, dtype, endpoint=True).tolist(), limits.max, 1], dtype)
        sf.write_vectors(tmp_path / "cases", name, x, sf.toward_negative)
        cases = sf.read_vectors(tmp_path / "cases", name)
        assert np.array_equal(cases.operands[0], x) and cases.operands[0].dtype == dtype
        want, flags = sf.round([int(one) for one in x], format, sf.toward_negative, flags=True)
        assert_bits(cases.result.astype(float), want)
        assert np.array_equal(cases.flags, flags)


@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "f64"])
def test_every_operation_of_testfloat_is_written_and_read_back(source, rng, tmp_path):
    format = sf.as_format(source)
    edges = np.array([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, format.max, format.smallest_subnormal, 2.5, 7.0])
    a, b, c = rng.choice(edges, (3, 300))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        unordered = np.isnan(a) | np.isnan(b)
        wanted = {
            **{"eq": (a == b, False), "le": (a <= b, True), "lt": (a < b, True)},
            **{"eq_signaling": (a == b, True), "le_quiet": (a <= b, False), "lt_quiet": (a < b, False)},
        }
    for name, (result, signals) in wanted.items():
        sf.write_vectors(tmp_path / "cases", f"{source}_{name}", a, b)
        cases = sf.read_vectors(tmp_path / "cases", f"{source}_{name}")
        assert np.array_equal(cases.result, result) and np.array_equal(cases.flags, 16 * (unordered & signals))
    ours = {"add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "rem": "remainder", "mulAdd": "fma"}
    for name, function in ours.items():
        operands = (a, b, c) if name == "mulAdd" else (a, b)
        sf.write_vectors(tmp_path / "cases", f"{source}_{name}", *operands)
        cases = sf.read_vectors(tmp_path / "cases", function, format)
        result, flags = getattr(sf, function)(*operands, format, flags=True)
        assert_bits(cases.result.astype(float), result)
        assert np.array_equal(cases.flags, flags)
    for suffix, function in (("", sf.rint), ("_rx_minMag", sf.trunc), ("_r_min", sf.floor), ("_r_max", sf.ceil)):
        sf.write_vectors(tmp_path / "cases", f"{source}_roundToInt{suffix}", a)
        cases = sf.read_vectors(tmp_path / "cases", f"{source}_roundToInt{suffix}")
        assert_bits(cases.result.astype(float), function(a, format))
        assert np.array_equal(cases.flags, (cases.result != a) & ~np.isnan(a) & ("x" in suffix.split("_m")[0]))


def test_operands_of_a_rounding_may_have_a_format_of_their_own(tmp_path):
    path, integers = tmp_path / "cases.tv", sf.fixed(8, symmetric=False)
    sf.write_vectors(path, "round", [1.5, -1e3, 2.0**-24], (sf.FP16, integers), sf.toward_positive)
    assert path.read_text() == "3E00 02 01\nE3D0 80 05\n0001 01 01\n"
    cases = sf.read_vectors(path, "round", (sf.FP16, integers))
    assert_bits(cases.operands[0], np.float32([1.5, -1e3, 2.0**-24]))
    assert cases.result.tolist() == [2.0, -128.0, 1.0]
    assert sf.read_vectors(path, "round", ("e5m10", integers)).flags.tolist() == [1, 5, 1]


def test_vectors_of_sums_are_written_and_read_back(rng, tmp_path):
    path, c = tmp_path / "cases", sf.round(rng.standard_normal(20), sf.FP16)
    a, b = sf.round(rng.standard_normal((2, 20, 7)), sf.E4M3)
    flagged, plain = (sf.FP16, sf.kahan(sf.FP32)), (sf.fused(4, 20), sf.tensor_core("hopper"))
    for accumulate, has_flags in (*((one, True) for one in flagged), *((one, False) for one in plain)):
        sf.write_vectors(path, "dot", a, b, c, sf.E4M3, accumulate=accumulate)
        cases = sf.read_vectors(path, "dot", sf.E4M3, accumulate=accumulate)
        rows = zip(a, b, c, strict=True)
        sums = [sf.dot(*row[:2], inputs=sf.E4M3, accumulate=accumulate, initial=row[2]) for row in rows]
        for got, want in zip((*cases.operands, cases.result), (a, b, c, np.array(sums)), strict=True):
            assert_bits(got.astype(float), want)
        assert {len(line.split()) for line in path.read_text().splitlines()} == {16 + has_flags}


def test_vectors_of_units_with_block_scales_have_the_scales_of_every_row(rng, tmp_path):
    path, unit = tmp_path / "cases", sf.tensor_core("blackwell", sf.E2M1, scales=(16, sf.E4M3))
    q, w = (sf.block_quantize(x, sf.E2M1, block=16, scale=sf.E4M3) for x in rng.standard_normal((2, 6, 40)))
    options = dict(accumulate=unit, flags=True)
    operands = q.elements, w.elements, np.zeros(6), sf.E2M1
    sf.write_vectors(path, "dot", *operands, scales=(q.scales, w.scales), **options)
    cases = sf.read_vectors(path, "dot", sf.E2M1, accumulate=unit)
    for have, want in zip(cases.operands, (q.elements, w.elements, q.scales, w.scales, np.zeros(6)), strict=True):
        assert_bits(have.astype(float), np.asarray(want, float))
    sums, flags = sf.matmul(q.elements, w.elements.T, scales=(q.scales, w.scales.T), **options)
    assert_bits(cases.result.astype(float), np.diag(sums).astype(float))
    assert np.array_equal(cases.flags, np.diag(flags))
    assert_refused(
        (lambda: sf.write_vectors(path, "dot", *operands, accumulate=unit), "reads scales of blocks"),
        (lambda: sf.write_vectors(path, "dot", *operands, scales=(q.scales, w.scales[:, :2]), **options), r"\(6, 2\)"),
        (lambda: sf.write_vectors(path, "dot", *operands, scales=[q.scales] * 3, **options), "a pair .* got 3"),
        (lambda: sf.write_vectors(path, "dot", *operands, scales=q.scales, **options), "a pair .* got ndarray"),
        (lambda: sf.write_vectors(path, "add", 1.0, 1.0, sf.FP16, scales=(1, 1)), "'add' has none; 'dot' reads them"),
        (
            lambda: sf.write_vectors(path, "dot", *operands, accumulate=sf.FP32, scales=(1, 1)),
            "'dot' reads them with blocks=\\(32",
        ),
        (lambda: sf.write_vectors(path, "dot", *operands, accumulate=sf.FP32, blocks=[32]), "as \\(32, E8M0\\); got"),
        (lambda: sf.write_vectors(path, "dot", *operands, blocks=(16, sf.E4M3), **options), "has scales of its own"),
        (lambda: sf.read_vectors(path, "add", sf.FP16, blocks=(16, sf.E4M3)), "Only 'dot' has scales of blocks"),
    )


def test_vectors_of_an_own_unit_have_scales_of_its_blocks(rng, tmp_path):
    path, unit = tmp_path / "cases", sf.blocked(4, sf.FP32, sf.FP32)
    a, b = sf.round(3 * rng.standard_normal((2, 50, 4)), sf.E2M1, sf.nearest_even.saturating())
    scales, c = 2.0 ** rng.integers(-9, 9, (2, 50, 1)), sf.round(rng.standard_normal(50), sf.FP32)
    options = dict(accumulate=unit, blocks=(4, sf.E8M0))
    sf.write_vectors(path, "dot", a, b, c, sf.E2M1, scales=tuple(scales), **options)
    cases = sf.read_vectors(path, "dot", sf.E2M1, **options)
    for have, want in zip(cases.operands, (a, b, *scales, c), strict=True):
        assert_bits(have.astype(float), want)
    assert_bits(cases.result, sf.round((a * b).sum(1) * (scales[0] * scales[1])[:, 0] + c, sf.FP32))


def test_the_mode_of_a_sum_is_that_of_the_rounding_to_its_output(rng, tmp_path):
    path, (a, b) = tmp_path / "cases", sf.round(rng.standard_normal((2, 30, 5)), sf.BF16)
    for accumulate in (sf.FP32, sf.exact, sf.fused(4, 20)):
        options = dict(accumulate=accumulate, output=sf.BF16)
        for mode in (sf.toward_zero, sf.toward_positive):
            sf.write_vectors(path, "dot", a, b, 0.0, sf.BF16, mode, **options)
            results = sf.read_vectors(path, "dot", sf.BF16, **options).result
            sums = [np.diag(sf.matmul(a, b.T, rounding=how, **options)) for how in (mode, None)]
            assert_bits(results.astype(float), sums[0])
            assert (results != sums[1]).any()
    assert_refused((lambda: sf.read_vectors(path, "dot", sf.BF16, accumulate=sf.exact), "pass output="))
    path.unlink()
    refused = (
        (dict(accumulate=sf.FP32), sf.to_odd, r"not rounded again .* accumulate=sequential\(FP32, rounding=to_odd"),
        (dict(accumulate=sf.FP32, output=sf.FP32), sf.nearest_even, "not rounded again to this format"),
        (dict(accumulate=sf.tensor_core("hopper")), sf.to_odd, "in FP32 are not rounded again .* pass output="),
        (dict(accumulate=sf.exact), sf.to_odd, "An exact sum has no format of its own: pass output="),
        (dict(accumulate=sf.exact), None, "An exact sum has no format of its own: pass output="),
    )
    for options, mode, message in refused:
        with pytest.raises(ValueError, match=message):  # as sf.dot
            sf.dot(a[0], b[0], inputs=sf.BF16, rounding=mode, **options)
        mode = [] if mode is None else [mode]
        assert_refused((lambda m=mode, o=options: sf.write_vectors(path, "dot", a, b, 0.0, sf.BF16, *m, **o), message))
    assert not path.exists()


def test_flags_of_roundings_to_fixed_point_are_those_of_conversions_except_for_overflow():
    """IEEE 754-2019, 7.2: a conversion to an integer that is out of range raises invalid, and nothing else."""
    limits = [2.0**31 + quarters / 4 for quarters in range(-5, 6)]
    x = np.array([*limits, *(-limit for limit in limits), 2.5, 0.3, -0.3, -0.0, 7.0, 1e30, np.inf, -np.inf])
    signature = signature_of("f64_to_i32_x")
    for mode in MODES.values():
        result, flags = sf.round(x, sf.fixed(32, symmetric=False), mode, flags=True)
        expected, raised = compute_testfloat(signature, [x], mode)
        assert (result == expected).all() and (np.where(flags & 4, 16, flags) == raised).all()


def test_docstrings_of_roundings_to_integers_name_the_operation_of_ieee():
    for name, direction in (("rint", "TiesToEven"), ("floor", "TowardNegative"), ("trunc", "TowardZero")):
        assert f"This is roundToIntegral{direction} of IEEE 754-2019" in getattr(sf, name).__doc__
    x = np.array([2.5, 2.0, -0.0, np.inf, np.nan])
    result, flags = sf.rint(x, sf.FP16, flags=True)
    expected, raised = compute_testfloat(signature_of("f16_roundToInt_rx_near_even"), [x], sf.nearest_even)
    assert_bits(result, expected)
    assert (flags | ((result != x) & ~np.isnan(x)) == raised).all()
