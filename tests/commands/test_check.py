"""simfloat vectors --unit, and simfloat check: the first line that differs, with its operands decoded."""

from fractions import Fraction
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

import simfloat as sf
from simfloat.__main__ import main
from simfloat.formats.definition import floor_log2
from simfloat.sums.test_vectors import read_cases, vectors_of
from simfloat.tools.commands.unit import KEYS, VERSION, read_unit
from tests.bits import assert_bits

ADDER = 'operation = "add"\nformat = "FP16"\nrounding = "toward_zero"\ncases = 40\n'

WRAPPING = (
    'operation = "dot"\nformat = "fixed(8, symmetric=False)"\naccumulate = "exact"\n'
    'output = "fixed(16, symmetric=False)"\nwraps = true\n'
)

UNITS = {
    "adder": ADDER,
    "wrapping": WRAPPING,
    "random": 'operation = "add"\nformat = "BF16"\nrounding = "stochastic(bits=4, variant=\'A\')"\n',
    "steps": 'operation = "dot"\nformat = "BF16"\n'
    'accumulate = "sequential(BF16, rounding=stochastic(bits=10), products=BF16)"\n',
    "without_nan": 'operation = "round"\nformat = "E2M1"\nrounding = "stochastic(bits=5)"\n',
    "dot4": 'operation = "dot"\nformat = "E4M3"\naccumulate = "fused(4, 20)"\noutput = "FP32"\nseed = 3\n',
    "chain": 'operation = "dot"\nformat = "FP16"\naccumulate = "pairwise(FP16, rounding=toward_zero)"\nterms = 5\n',
    "converter": 'operation = "f32_to_i32_rx_minMag"\n',
    "sse": 'operation = "f32_to_i32_rx_minMag"\ninvalid = "x86"\n',
    "narrowing": 'operation = "f32_to_e5m2"\n',
    "integers": 'operation = "i64_to_f16"\nrounding = "to_odd"\n',
    "unsigned": 'operation = "ui64_to_f32"\n',
    "filter": 'operation = "dot"\nformat = "fixed(8, 7, symmetric=False)"\naccumulate = "sequential(fixed(20, 14))"\n',
    "rounding": 'operation = "round"\nformat = "BF16"\n',
    "fixed": 'operation = "multiply"\nformat = "fixed(8, 4)"\noutput = "fixed(8, 4, symmetric=False)"\n',
    "modulo": 'operation = "remainder"\nformat = "Format(4, 5)"\n',
    "bytes": 'operation = "to_ui8_rx_minMag"\nformat = "Format(4, 5)"\n',
    "equality": 'operation = "bf16_eq"\n',
}


def write_unit(folder, name, text):
    path = folder / f"{name}.toml"
    path.write_text(text)
    assert main(["vectors", str(folder / "out"), "--unit", str(path)]) == 0
    return folder / "out" / f"{name}.txt"


@pytest.mark.parametrize("name", UNITS)
def test_vectors_of_a_unit_agree_with_their_description(name, tmp_path, capsys):
    path = write_unit(tmp_path, name, UNITS[name])
    lines = path.read_text().splitlines()
    assert main(["check", str(path)]) == 0  # the description is beside it, with the versions
    assert f"{len(lines)} cases of" in capsys.readouterr().out
    assert path.with_suffix(".toml").read_text() == f'{UNITS[name]}version = {VERSION}\nsimfloat = "{sf.__version__}"\n'
    assert len(set(lines)) > len(lines) / 3
    assert main(["check", str(path), "--unit", str(tmp_path / f"{name}.toml")]) == 0


def test_the_vectors_of_a_description_are_the_same_everywhere(tmp_path):
    digest = sha256(b"".join(write_unit(tmp_path, name, text).read_bytes() for name, text in UNITS.items()))
    assert (VERSION, digest.hexdigest()[:16]) == (7, "41a0c3683bddaaaa"), "files that change need another version"


def test_operands_of_a_rounding_may_be_codes_of_fp32(tmp_path, capsys):
    (tmp_path / "unit.toml").write_text('operation = "round"\nformat = "E5M2"\n')
    (tmp_path / "results.txt").write_text("3E00BF6C 30 01\n3F800001 3C 01\n")
    assert main(["check", str(tmp_path / "results.txt"), "--unit", str(tmp_path / "unit.toml")]) == 0
    assert "2 cases of round in FP32 to E5M2, nearest_even agree" in capsys.readouterr().out


def test_a_list_of_two_formats_is_the_pair_of_operand_and_result_of_a_rounding(tmp_path, capsys):
    for pair, digits in (
        (("FP16", "fixed(8, symmetric=False)"), (4, 2)),
        (("FP32", "E4M3FNUZ"), (8, 2)),
        (("fixed(8)", "E3M4"), (2, 2)),
    ):
        path = write_unit(tmp_path, "unit", f'operation = "round"\nformat = {list(pair)}\nrounding = "toward_zero"\n')
        lines = [line.split() for line in path.read_text().splitlines()]
        assert {tuple(map(len, line)) for line in lines} == {(*digits, 2)} and len({x for x, *_ in lines}) >= 200
        capsys.readouterr()
        assert main(["check", str(path)]) == 0
        assert (
            f"200 cases of round in {sf.as_format(pair[0]) if '(' not in pair[0] else 'fixed(8)'} to "
            in capsys.readouterr().out
        )


def test_a_unit_without_subnormal_numbers_reads_their_codes_as_zero(tmp_path):
    path = write_unit(tmp_path, "unit", 'operation = "add"\nformat = "Format(8, 7, subnormals=False)"\n')
    codes = [int(line.split()[0], 16) & 0x7FFF for line in path.read_text().splitlines()]
    assert sum(0 < code < 0x80 for code in codes) >= 20
    assert main(["check", str(path)]) == 0


def test_a_list_of_two_formats_is_the_pair_of_a_and_b(tmp_path):
    files = []
    for name, pair in (("list", '["E4M3", "E5M2"]'), ("text", '"(E4M3, E5M2)"')):
        text = f'operation = "dot"\nformat = {pair}\naccumulate = "fused(4, 20)"\nterms = 3\ncases = 20\n'
        files.append(write_unit(tmp_path, name, text))
    assert files[0].read_bytes() == files[1].read_bytes()
    assert main(["check", str(files[0])]) == main(["check", str(files[1])]) == 0


def test_the_first_difference_is_printed_with_its_operands(tmp_path, capsys):
    path = write_unit(tmp_path, "adder", ADDER)
    lines = path.read_text().splitlines()
    a, b, _, flags = lines[6].split()
    lines[6], lines[9] = f"{a} {b} 3C01 {flags}", "3C00 3C00 3C00 00"
    path.write_text("\n".join(lines))
    capsys.readouterr()
    assert main(["check", str(path)]) == 1
    report = capsys.readouterr().out
    assert f"{path}, line 7: the result differs. add in FP16, toward_zero:" in report
    result = sf.add(sf.decode(a, sf.FP16), sf.decode(b, sf.FP16), sf.FP16, "toward_zero")
    for value in (sf.decode(a, sf.FP16), sf.decode(b, sf.FP16), result, 1 + 2.0**-10):
        assert f"{float(value)!r} ({sf.to_hex(value, sf.FP16)})" in report
    assert "2 of 40 lines differ." in report


def test_missing_cases_are_an_error_and_nan_of_any_payload_agree(tmp_path, capsys):
    path = write_unit(tmp_path, "adder", ADDER)
    lines = path.read_text().splitlines()
    quiet = [line.replace(" 7E00 ", " 7FFF ") for line in lines]
    assert quiet != lines
    path.write_text("\n".join(quiet[:-3]))
    capsys.readouterr()
    assert main(["check", str(path)]) == 1
    report = capsys.readouterr().out
    assert f"{path} has 37 of the 40 cases of its unit: 3 are missing." in report
    assert report.endswith("\nFailed: 37 cases of add in FP16, toward_zero agree, but cases of the unit are missing.\n")
    assert "payloads are not compared" in report
    path.write_text("\n".join([*quiet, quiet[0]]))  # more cases than the description states are accepted
    assert main(["check", str(path)]) == 0


def test_a_line_that_replaces_a_case_is_named(tmp_path, capsys):
    path = write_unit(tmp_path, "adder", ADDER)
    of_file, by_hand = path.with_suffix(".toml"), tmp_path / "adder.toml"
    lines = path.read_text().splitlines()
    assert len({tuple(line.split()[:2]) for line in lines[:12]}) == 12
    foreign = "4248 4248 4648 00"
    assert foreign not in lines
    swapped, same = [*lines[:10], lines[9], *lines[11:]], [lines[0]] * 40
    for text, unit, code, words in (
        (lines[::-1], of_file, 0, "40 cases of add"),
        ([*lines, foreign], of_file, 0, "41 cases of add"),
        (swapped, of_file, 1, "has 39 of the 40 cases of its unit: 1 is missing.\n{path}: line 11 repeats line 10.\n"),
        (swapped, by_hand, 1, "line 11 repeats line 10.\nFailed: 40 cases of add in FP16, toward_zero agree, but"),
        (
            same,
            by_hand,
            1,
            "has 1 of the 40 cases of its unit: 39 are missing.\n{path}: line 2 repeats line 1, line 3 ",
        ),
        (same, by_hand, 1, "line 4 repeats line 1, and so on in 36 more lines.\n"),
        ([foreign, *lines[1:]], of_file, 1, "1 is missing.\n{path}: line 1 has operands of no case.\n"),
        # Without a version, these may be the cases of another one: only their number is checked.
        ([foreign, *lines[1:]], by_hand, 0, "Line 1 is not a case that this version of simfloat writes for the unit"),
        ([foreign, *lines[2:]], by_hand, 1, "has 39 of the 40 cases of its unit: 1 is missing.\nFailed: 39 cases"),
    ):
        path.write_text("\n".join(text))
        assert main(["check", str(path), "--unit", str(unit)]) == code
        assert words.format(path=path) in capsys.readouterr().out, words
    path.write_text("\n".join(swapped))
    of_file.write_text(of_file.read_text().replace(f"version = {VERSION}", f"version = {VERSION - 1}"))
    assert main(["check", str(path)]) == 0  # the cases of another version are not known


def test_help_and_the_cookbook_have_all_keys_of_a_description(capsys):
    assert main(["vectors", "--help"]) == 0
    text, page = capsys.readouterr().out, (Path(__file__).parents[2] / "docs" / "cookbook.md").read_text("utf-8")
    for key in KEYS:
        assert f"\n  {key} " in text and f"\n| `{key}` | " in page, key


def test_flags_signs_of_zeros_and_signalling_nan_are_compared(tmp_path, capsys):
    path = tmp_path / "add_FP16_nearest_even.txt"
    for line, code, words in (
        ("3C00 1000 3C00 00", 1, "flags 01: inexact"),
        ("3C00 1000 3C00 00", 1, "line 1: the flags differ. add in FP16"),
        ("0000 8000 8000 00", 1, "-0.0 (8000), flags 00: none"),
        ("7D01 0000 7F01 10", 0, "1 cases of add in FP16, nearest_even agree."),
        (
            "7D01 0000 7F01 00",
            1,
            "  a        nan (7d01)\n  b        0.0 (0000)\n  expected nan (7e00), flags 10: invalid",
        ),
        (
            "FFFF 0000 FE00 10",
            1,
            "nan (ffff)\n  b        0.0 (0000)\n  expected nan (7e00), flags 00: none\n  found    nan (fe00)",
        ),
    ):
        path.write_text(f"{line}\n")
        assert main(["check", str(path)]) == code
        assert words in capsys.readouterr().out


def test_sums_that_wrap_are_those_of_integers(tmp_path):
    lines, wrapped = write_unit(tmp_path, "unit", WRAPPING).read_text().splitlines(), 0
    for line in lines:
        *codes, c, result = (int(code, 16) for code in line.split())
        a, b = (np.array(x, np.uint8).view(np.int8).astype(int) for x in (codes[:4], codes[4:]))
        total = (c ^ 0x8000) - 0x8000 + int(a @ b)
        assert result == total % 2**16, line
        wrapped += not -(2**15) <= total < 2**15
    assert len(lines) / 8 <= wrapped <= len(lines) / 2


def test_draws_are_operands_of_a_unit_that_rounds_at_random(tmp_path, capsys):
    path, inexact = write_unit(tmp_path, "random", UNITS["random"]), 0
    for line in path.read_text().splitlines():
        *codes, draw, result, flags = line.split()
        numbers = sf.decode([*codes, result], sf.BF16).tolist()
        if np.isfinite(numbers).all() and numbers[0] + numbers[1] != 0:
            exact = abs(Fraction(numbers[0]) + Fraction(numbers[1]))
            spacing = Fraction(2) ** (max(floor_log2(exact), -126) - 7)
            whole, part = divmod(exact / spacing, 1)  # variant A adds the draw and truncates
            assert abs(Fraction(numbers[2])) == spacing * (whole + (part * 16 // 1 + int(draw, 16) >= 16)), line
            assert (int(flags, 16) & 1 == 1) == (part != 0)
            inexact += part != 0
    assert inexact >= 50
    sf.write_vectors(path, "add", [1.0], [2.0], sf.BF16, sf.stochastic(4, "A"), stream=sf.BitStream(0))
    assert main(["check", str(path)]) == 2  # write_vectors does not write draws
    message = "A case of add has 5 fields: operands (3, the last of which are draws), result and flags; got 4."
    assert message in capsys.readouterr().err
    # The draws of the steps of a sum: a product, then the sum.
    path = write_unit(tmp_path, "steps", UNITS["steps"])
    case = read_unit(str(path.with_suffix(".toml"))).case
    a, b, c, draws = vectors_of(read_cases(path, "dot"), case, path).operands
    assert draws.shape == (len(a), 8) and {0, 2**9, 2**10 - 1} < set(draws.ravel().tolist())
    sums = [
        sf.dot(x, y, initial=z, accumulate=case.accumulator, stream=sf.GivenBits(of_row))
        for x, y, z, of_row in zip(a, b, c, draws.astype(int), strict=True)
    ]
    assert_bits(vectors_of(read_cases(path, "dot"), case, path).result, sums)
    lines = path.read_text().splitlines()
    fields = lines[20].split()
    path.write_text("\n".join([*lines[:20], " ".join([*fields[:-2], "7F80", fields[-1]]), *lines[21:]]))
    assert main(["check", str(path)]) == 1 and "\n  draws    " in capsys.readouterr().out


def test_comparisons_with_signalling_nan_raise_invalid(tmp_path, capsys):
    for name, kinds in (("f16_eq", 2), ("e5m2_lt_quiet", 2), ("bf16_le", 1), ("e4m3_eq", 0)):
        path = write_unit(tmp_path, "unit", f'operation = "{name}"\n')
        unit = read_unit(str(tmp_path / "unit.toml"))
        cases = vectors_of(read_cases(path, name), unit.case, path)
        are_nan = np.isnan(cases.operands).any(axis=0)
        of_nan = cases.flags[are_nan]
        # `le` raises invalid for quiet NaN as well, and E4M3 has no signalling NaN.
        assert len(set(of_nan.tolist())) == max(kinds, 1) and not cases.flags[~are_nan].any()
        assert (cases.flags[cases.signalling] == 16).all() and (cases.signalling.sum() >= 4) == (kinds > 0)
        assert main(["check", str(path)]) == 0
        if kinds == 2:
            path.write_text(path.read_text().replace(" 10\n", " 00\n"))
            assert main(["check", str(path)]) == 1 and "expected False, flags 10: invalid" in capsys.readouterr().out


def test_unknown_and_undriven_digits_differ_from_every_result(tmp_path, capsys):
    path = tmp_path / "add_FP16_nearest_even.txt"
    lines = ["3C00 1000 3C00 01", "3C00 3C00 xxXX 00", "3C00 3C00 4000 0z", "3C00 3C00 4zz0 xx", "3C00 3C00 4000 00"]
    for first, words in (
        (0, "line 2: the result differs. add in FP16"),
        (1, "'xxXX' has digits that are unknown (x) or not driven (z); a number has neither.\n3 of 4 lines differ."),
        (2, "line 1: the flags differ. add in FP16"),
        (2, "2.0 (4000), flags '0z' has digits that are unknown"),
        (3, "'4zz0' has digits"),
        (4, "1 cases of add in FP16, nearest_even agree."),
    ):
        path.write_text("\n".join(lines[first:]))
        assert main(["check", str(path)]) == (first < 4)
        assert words in capsys.readouterr().out
    for line in ("3Cx0 3C00 4000 00", "3C00 3C00 xxxxx 00"):  # an operand, and a result with too many digits
        path.write_text(line)
        assert main(["check", str(path)]) == 2
        assert "has 4 hexadecimal digits, got" in (error := capsys.readouterr().err) and "not driven (z)" in error
    boolean = tmp_path / "le.txt"
    boolean.write_text("3C00 3C00 x 00\n3C00 3C00 1 00")
    boolean.with_suffix(".toml").write_text('operation = "f16_le"\n')
    assert main(["check", str(boolean)]) == 1
    assert "'x' has digits that are unknown (x)" in capsys.readouterr().out


def test_the_mode_of_a_dot_is_that_of_the_rounding_to_its_output(tmp_path, capsys):
    text = 'operation = "dot"\nformat = "BF16"\noutput = "BF16"\naccumulate = "FP32"\ncases = 40\n'
    path = write_unit(tmp_path, "cut", f'{text}rounding = "toward_zero"\n')
    assert main(["check", str(path)]) == 0
    assert "dot in BF16, FP32, rounded toward_zero agree" in capsys.readouterr().out.replace("sequential(FP32)", "FP32")
    (tmp_path / "nearest.toml").write_text(text)
    assert main(["check", str(path), "--unit", str(tmp_path / "nearest.toml")]) == 1


def test_codes_may_begin_with_0x(tmp_path, capsys):
    path = tmp_path / "add_FP16_nearest_even.txt"
    path.write_text("0x3C00 0x1000 0x3c00 0x01\n0x3C00 0x3C00 0x40xx 00\n0x3C00 0x8000 0x3C 00\n")
    assert main(["check", str(path)]) == 1  # in the last line, the second digit of four is unknown
    report = capsys.readouterr().out
    assert "line 2: the result differs" in report and "2 of 3 lines differ" in report
    path = tmp_path / "round_FP16_nearest_even.txt"
    path.write_text("0x3F800001 0x3C00 0x01\n")
    assert main(["check", str(path)]) == 0
    assert "round in FP32" in capsys.readouterr().out


def test_a_file_without_flags_names_the_key_of_its_description(tmp_path, capsys):
    path = tmp_path / "unit.txt"
    path.write_text("3C00 3C00 4000\n")
    for flags, code, words in (
        ("", 2, "got 3. For a file without flags, write flags = false"),
        ("flags = false", 0, ""),
    ):
        path.with_suffix(".toml").write_text(f'operation = "add"\nformat = "FP16"\n{flags}\n')
        assert main(["check", str(path)]) == code
        assert words in capsys.readouterr().err


def test_the_variant_that_raises_inexact_is_named_if_only_inexact_differs(tmp_path, capsys):
    path = tmp_path / "integers.txt"
    for name, line, variant in (
        ("f16_roundToInt", "3E00 4000 01", "f16_roundToInt_x"),
        ("f16_roundToInt_r_minMag", "3E00 3C00 01", "f16_roundToInt_rx_minMag"),
        ("f16_to_i32", "3E00 00000002 01", "f16_to_i32_x"),
        ("f16_roundToInt", "3E00 3C00 01", None),  # another result
        ("f16_roundToInt", "3E00 4000 11", None),  # another flag
        ("f16_roundToInt_x", "3E00 4000 00", None),
        ("f32_to_f16", "3F800000 3C00 01", None),
    ):
        path.write_text(line)
        path.with_suffix(".toml").write_text(f'operation = "{name}"\n')
        assert main(["check", str(path)]) == 1
        output = capsys.readouterr().out
        assert ("raises inexact" in output) == (variant is not None), name
        if variant is not None:
            assert f"{name} never raises inexact; TestFloat's {variant} does." in output
            path.with_suffix(".toml").write_text(f'operation = "{variant}"\n')
            assert main(["check", str(path)]) == 0
            capsys.readouterr()


def test_the_files_of_simfloat_vectors_are_checked_by_their_names(tmp_path):
    assert main(["vectors", str(tmp_path)]) == 0
    for name in ("fma_E4M3_nearest_even", "round_BF16_nearest_even", "sqrt_FP16_toward_positive"):
        assert main(["check", str(tmp_path / f"{name}.txt")]) == 0


def test_files_that_are_missing_or_damaged_are_named(tmp_path, capsys):
    unit, results = tmp_path / "unit.toml", tmp_path / "results.txt"
    good = tmp_path / "good.toml"
    good.write_text(ADDER)
    for command, words in (
        (["vectors", tmp_path / "out", "--unit", unit], f"{unit}: No such file or directory."),
        (["check", results, "--unit", good], f"simfloat: {results}: No such file or directory."),
    ):
        assert main(list(map(str, command))) == 2
        assert words in capsys.readouterr().err
    for path in (unit, results):
        path.write_bytes(b"\xff\xfe\x00")
    assert main(["vectors", str(tmp_path / "out"), "--unit", str(unit)]) == 2
    assert f"{unit} is not a text in UTF-8" in capsys.readouterr().err
    assert main(["check", str(results), "--unit", str(good)]) == 2
    assert f"{results}, line 1: A case of add has 4 fields" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text, words",
    [
        ('format = "FP16"\n', 'The description of a unit must contain an operation, such as operation = "add".'),
        (
            'operation = "round"\nformat = "FP32"\noutput = "E5M2"\n',
            "output is not a key of 'round': format is the format",
        ),
        (
            'operation = "round"\nformat = ["FP16", "E5M2"]\noutput = "E5M2"\n',
            "output is not a key of 'round': the second format of the pair is that of results. Leave it out.",
        ),
        ('operation = "add"\nformat = "FP16"\nround = "to_odd"\n', "'round' is not a key of a unit: operation, format"),
        ('operation = "add"\n', "needs the format of 'add'"),
        ('operation = "dot"\nformat = "FP16"\n', "accumulate= is the accumulator of 'dot'"),
        (
            'operation = "dot"\nformat = "FP16"\naccumulate = "sequential(BF16, rounding=stochastic)"\n'
            'output = "E4M3"\nrounding = "stochastic"\n',
            "only the steps of a sum or only its rounding to output is stochastic",
        ),
        (
            'operation = "dot"\nformat = "fixed(8)"\naccumulate = "FP32"\nwraps = true\n',
            'with accumulate = "exact" and',
        ),
        (f"{WRAPPING}flags = true\n", "A sum that wraps has no flags"),
        (WRAPPING.replace("16,", "16, 1,").replace("(8,", "(8, 1,"), "have 2 bits after the point, and fixed(16, 1"),
        (f"{WRAPPING.replace('true', '1')}", "wraps must be true or false, got 1"),
        ('operation = "f16_to_i8"\ninvalid = 0\n', "invalid must be 'riscv', 'arm', 'x86', got 0"),
        ('operation = "dot"\nformat = ["E4M3"]\n', 'a pair for a and b, such as ["E4M3", "E5M2"]; got'),
        ('operation = "fma"\nformat = "FP16"\naddend = false\n', "addend = false is only for 'dot', whose sums"),
        (
            'operation = "dot"\nformat = "FP16"\naccumulate = "FP32"\naddend = 0\n',
            "addend must be true or false, got 0",
        ),
        (
            'operation = "dot"\nformat = "FP16"\naccumulate = "exact"\noutput = "E8M0"\naddend = false\n',
            "start from c = +0, but E8M0, the format of c, has no zero",
        ),
        ('operation = "add"\nformat = "FP16"\ncases = 0\n', "cases must be an integer from 1"),
        ('operation = "dot"\nformat = "FP16"\naccumulate = "print(1)"\n', "Cannot read 'print(1)'"),
        ("operation = add\n", 'Invalid value (at line 1, column 13). Texts are in quotes: write operation = "add"'),
        (
            'operation = "dot"\nformat = "E4M3"\naccumulate = tensor_core(hopper, E4M3)  # FP8\n',
            "Texts are in quotes: write accumulate = \"tensor_core('hopper', E4M3)\"",
        ),
        (
            'operation = "dot"\nformat = "E4M3"\naccumulate = "tensor_core("hopper", E4M3)"\n',
            "Texts are in quotes: write accumulate = \"tensor_core('hopper', E4M3)\"",
        ),
        (
            'operation = "dot"\nformat = "E4M3"\naccumulate = "tensor_core(hopper, E4M3)"\n',
            "A name that is no format is in quotes: tensor_core('hopper', ...).",
        ),
        ('operation = "dot"\nformat = [E4M3, E5M2]\n', 'write format = ["E4M3", "E5M2"]'),
        (
            'operation = "dot"\nformat = "FP16"\naccumulate = "FP32"\nrounding = "to_odd"\n',
            "not rounded again to this format; for the mode of the steps pass accumulate=sequential(FP32, rounding=",
        ),
        ('operation = "dot"\nformat = "FP16"\naccumulate = "exact"\n', "An exact sum has no format of its own: pass"),
        ('operation = "add"\nformat = "FP16"\nflags = True\n', "Booleans are in lower case: write flags = true"),
    ],
)
def test_an_invalid_description_is_an_error_that_names_its_file(text, words, tmp_path, capsys):
    path = tmp_path / "unit.toml"
    path.write_text(text)
    assert main(["vectors", str(tmp_path / "out"), "--unit", str(path)]) == 2
    error = capsys.readouterr().err
    assert str(path) in error and words in error
    assert not (tmp_path / "out").exists()


def test_a_file_without_a_description_or_vectors_is_refused(tmp_path, capsys):
    path = tmp_path / "results.txt"
    path.write_text("3C00 3C00 4000 00\n")
    assert main(["check", str(path)]) == 2
    assert "pass --unit unit.toml, or write results.toml beside it" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "missing.txt"), "--unit", str(path)]) == 2
    for operation, accumulate in (("add", ""), ("dot", 'accumulate = "FP32"\n')):
        empty = tmp_path / f"{operation}.txt"
        empty.write_text("\n")
        empty.with_suffix(".toml").write_text(f'operation = "{operation}"\nformat = "FP16"\n{accumulate}')
        assert main(["check", str(empty)]) == 2
        assert f"{empty} has no test vectors" in capsys.readouterr().err


#: Units with block scales, with two formats, and with or without flags: their text, and the fields of a line.
OTHER_UNITS = {
    "nvfp4": ('format = "E2M1"\naccumulate = "tensor_core(\'blackwell\', E2M1, scales=(16, E4M3))"\nterms = 24\n', 54),
    "mx": ('format = "E5M2"\naccumulate = "tensor_core(\'blackwell\', E5M2, scales=(32, E8M0))"\nterms = 33\n', 72),
    "own": (
        'format = "E2M1"\naccumulate = "blocked(32, FP32, FP32)"\nscales = "(32, E8M0)"\nterms = 40\nflags = false\n',
        86,
    ),
    "pair": ('format = "(E4M3, E5M2)"\naccumulate = "tensor_core(\'ada\')"\nflags = true\n', 11),
    "without": ('format = "FP16"\naccumulate = "FP32"\nflags = false\n', 10),
    "amd": ('format = "FP16"\naccumulate = "matrix_core(\'cdna2\', FP16)"\nflags = true\n', 11),
    "conversion": ("flags = false\n", 2),
}


@pytest.mark.parametrize("name", OTHER_UNITS)
def test_lines_have_scales_before_c_and_flags_if_the_unit_has_them(name, tmp_path, capsys):
    text, fields = OTHER_UNITS[name]
    operation = "f16_to_i32" if name == "conversion" else "dot"
    path = write_unit(tmp_path, name, f'operation = "{operation}"\ncases = 20\n{text}')
    lines = path.read_text().splitlines()
    assert {len(line.split()) for line in lines} == {fields}
    assert main(["check", str(path)]) == 0
    if fields % 2 == 1 and operation == "dot":
        path.write_text("\n".join(line.rpartition(" ")[0] for line in lines))
        assert main(["check", str(path)]) == 2
        assert "line 1: the unit has flags = true, but the line has no flags" in capsys.readouterr().err
    if fields % 2 == 0 and operation == "dot":  # another scale, in the field before c
        *others, scale, c, _ = lines[5].split()
        path.write_text("\n".join([*lines[:5], " ".join([*others, scale, c, "0" * len(c)]), *lines[6:]]))
        capsys.readouterr()
        assert main(["check", str(path)]) == 1
        assert ("scales b" in capsys.readouterr().out) == (name in ("nvfp4", "mx", "own"))


def test_flags_of_a_sum_that_has_none_are_an_error(tmp_path, capsys):
    path = tmp_path / "library.toml"
    path.write_text('operation = "dot"\nformat = "FP32"\naccumulate = "library_sum(\'mkl-avx2\')"\nflags = true\n')
    assert main(["vectors", str(tmp_path / "out"), "--unit", str(path)]) == 2
    assert "library.toml: library_sum('mkl-avx2') has no flags" in capsys.readouterr().err
