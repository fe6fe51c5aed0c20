"""simfloat vectors --unit, and simfloat check: the first line that differs, with its operands decoded."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

import simfloat as sf
from simfloat.__main__ import main
from simfloat.sums.test_vectors import read_cases, vectors_of
from simfloat.tools.commands.operands import Operands
from simfloat.tools.commands.unit import KEYS, VERSION, read_unit
from tests.bits import assert_bits

ADDER = 'operation = "add"\nformat = "FP16"\nrounding = "toward_zero"\ncases = 40\n'

UNITS = {
    "adder": ADDER,
    "dot4": 'operation = "dot"\nformat = "E4M3"\naccumulate = "fused(4, 20)"\noutput = "FP32"\nseed = 3\n',
    "chain": 'operation = "dot"\nformat = "FP16"\naccumulate = "pairwise(FP16, rounding=toward_zero)"\nterms = 5\n',
    "converter": 'operation = "f32_to_i32_rx_minMag"\n',
    "narrowing": 'operation = "f32_to_e5m2"\n',
    "integers": 'operation = "i64_to_f16"\nrounding = "to_odd"\n',
    "unsigned": 'operation = "ui64_to_f32"\n',
    "filter": 'operation = "dot"\nformat = "fixed(8, 7, symmetric=False)"\naccumulate = "sequential(fixed(20, 14))"\n',
    "rounding": 'operation = "round"\nformat = "BF16"\n',
    "fixed": 'operation = "multiply"\nformat = "fixed(8, 4)"\noutput = "fixed(8, 4, symmetric=False)"\n',
    "modulo": 'operation = "remainder"\nformat = "Format(4, 5)"\n',
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
    assert (VERSION, digest.hexdigest()[:16]) == (4, "3b516ffb006fa1b6"), "files that change need another version"


def test_operands_of_roundings_find_wrong_roundings(tmp_path):
    def flush(x, format):
        results = sf.round(x, format)
        return np.where(np.abs(results) < format.smallest_normal, 0 * results, results)

    def cut(x, format):
        """Round after the first bit beyond the format: there is no sticky bit."""
        gap = sf.ulp(np.clip(np.abs(x), 0, format.max), format) / 2
        return sf.round(np.where(np.isfinite(x), np.trunc(x / gap) * gap, x), format)

    wrong = {
        "ties away": (5, lambda x, format: sf.round(x, format, sf.nearest_away)),
        "truncated": (20, lambda x, format: sf.round(x, format, sf.toward_zero)),
        "rounded twice": (
            3,
            lambda x, format: sf.round(sf.round(x, sf.FP32 if format == sf.FP16 else sf.FP16), format),
        ),
        "flushed": (5, flush),
        "saturating": (10, lambda x, format: sf.round(x, format, sf.nearest_even.saturating())),
        "no sticky bit": (5, cut),
    }
    for format in (sf.E4M3, sf.E5M2, sf.FP16, sf.E2M1):
        path = write_unit(tmp_path, "unit", f'operation = "round"\nformat = "{format}"\n')
        case = read_unit(str(tmp_path / "unit.toml")).case
        vectors = vectors_of(read_cases(path, "round"), case, path)
        x, due = vectors.operands[0], vectors.result
        inside = (np.abs(x) >= format.smallest_subnormal / 4) & (np.abs(x) <= format.max)
        assert inside.sum() >= len(x) / 2
        with np.errstate(invalid="ignore", over="ignore"):
            for name, (least, quantize) in wrong.items():
                got = quantize(x, format)
                count = np.sum(~((got == due) | (np.isnan(got) & np.isnan(due))))
                assert count >= least or (name == "saturating" and not format.has_nan), (name, format)


def test_operands_of_conversions_to_integers_lie_in_their_range(tmp_path):
    for name, most in (("f32_to_i32", 2.0**31), ("f64_to_ui32", 2.0**32), ("f64_to_i64", 2.0**63)):
        path = write_unit(tmp_path, "unit", f'operation = "{name}"\n')
        x = vectors_of(read_cases(path, name), read_unit(str(tmp_path / "unit.toml")).case, path).operands[0]
        assert np.sum((np.abs(x) >= 0.25) & (np.abs(x) < most)) >= len(x) / 2


def test_operands_without_a_result_in_the_format_are_replaced(tmp_path):
    texts = (
        'operation = "round"\nformat = "E2M1"\n',
        'operation = "divide"\nformat = "E3M2"\n',
        'operation = "sqrt"\nformat = "fixed(16, 11, symmetric=False)"\n',
        'operation = "f16_to_e2m1"\n',
        'operation = "e2m3_sqrt"\n',
        'operation = "add"\nformat = "BF16"\noutput = "E2M1"\n',
        'operation = "round"\nformat = "Format(3, 2, special=\'finite\', signed=False)"\n',
        'operation = "fma"\nformat = "E8M0"\n',
        'operation = "dot"\nformat = "FP16"\naccumulate = "exact"\noutput = "E8M0"\n',
        'operation = "dot"\nformat = "FP16"\naccumulate = "FP32"\noutput = "E2M1"\n',
        'operation = "dot"\nformat = "FP16"\naccumulate = "sequential(E2M1)"\nseed = 5\n',
    )
    for text in texts:
        path = write_unit(tmp_path, "unit", f"{text}cases = 400\n")
        assert main(["check", str(path)]) == 0
        unit = read_unit(str(tmp_path / "unit.toml"))
        vectors = vectors_of(read_cases(path, unit.case.operation), unit.case, path)
        if unit.case.kinds[-1].has_nan:
            continue
        drawn = Operands(unit.case, unit.terms, unit.cases, unit.seed).draw(0)
        is_replaced = unit._rows_without_result(drawn)
        assert is_replaced.any() and not is_replaced.all() and not np.isnan(vectors.result).any(), text
        for x, y in zip(vectors.operands, drawn, strict=True):
            if len(drawn) > 1:  # single operands are also replaced if they repeat
                assert_bits(x[~is_replaced], y[~is_replaced])


def distinct_lines(path):
    return {line.split()[0] for line in path.read_text().splitlines()}


def test_a_single_operand_is_not_repeated_while_there_are_others(tmp_path):
    for name, cases, distinct in (
        ('sqrt"\nformat = "FP16', 500, 500),
        ("ui64_to_bf16", 1000, 1000),
        ("i32_to_f16", 300, 300),
        ('round"\nformat = "BF16', 300, 300),
        ('exp"\nformat = "FP32', 300, 300),
        ("f32_to_e2m1", 300, 300),  # NaN has no result
        ('sqrt"\nformat = "E4M3', 256, 255),  # one of both NaN
        ("e3m2_sqrt", 100, 33),  # numbers from +0, and -0: others have no root
        ('sqrt"\nformat = "fixed(5, 2, symmetric=False)', 70, 16),
    ):
        path = write_unit(tmp_path, "unit", f'operation = "{name}"\ncases = {cases}\n')
        assert len(distinct_lines(path)) == distinct, name


#: IEEE 754-2019, 7.2 and 6.1 to 6.3: operands, and the result or flags of invalid operations ("v").
SPECIAL_CASES = {
    "fma": "7C00 0000 7E00 v, 0000 7C00 7E00 v, 7C00 0000 3C00 v, 0000 7C00 3C00 v, 7C00 3C00 FC00 v, "
    "3C00 FC00 7C00 v, 7C00 3C00 7C00 7C00, "
    "7BFF 7BFF FC00 FC00, 3C00 3C00 BC00 0000, 0000 0000 8000 0000, 8000 3C00 8000 8000, "
    "8000 0000 0000 0000, 7E00 3C00 3C00 7E00, 3C00 7E00 3C00 7E00, 3C00 3C00 7E00 7E00",
    "add": "7C00 7C00 7C00, 7C00 FC00 v, FC00 7C00 v, 0000 8000 0000, 8000 8000 8000, 3C00 BC00 0000, 7E00 7C00 7E00",
    "divide": "7C00 7C00 v, 0000 0000 v, 0000 8000 v, 3C00 0000 7C00, 3C00 8000 FC00, 3C00 FC00 8000, 0000 3C00 0000",
    "multiply": "7C00 0000 v, 0000 FC00 v, 8000 8000 0000, 0000 8000 8000, 7E00 0000 7E00",
    "f16_lt": "7E00 7E00 0, 0000 8000 0, 7C00 7C00 0, 3C00 7E00 0",
    "sqrt": "8000 8000, 7C00 7C00, FC00 v, BC00 v, 7E00 7E00",
}


def test_the_default_cases_contain_special_operands(tmp_path):
    for operation, rows in SPECIAL_CASES.items():
        format = "" if "_" in operation else 'format = "FP16"\n'
        for seed in (0, 7):
            path = write_unit(tmp_path, "unit", f'operation = "{operation}"\n{format}seed = {seed}\n')
            lines = {tuple(line.split()[:-2]): line.split()[-2:] for line in path.read_text().splitlines()}
            for *operands, result in map(str.split, rows.split(",")):
                have, flags = lines[tuple(operands)]
                assert (have, flags) == ("7E00", "10") if result == "v" else have == result, (operation, operands)


def test_sums_without_an_addend_start_from_zero(tmp_path, capsys):
    text = 'operation = "dot"\nformat = "E4M3"\naccumulate = "fused(4, 20)"\n'
    path = write_unit(tmp_path, "unit", f"{text}addend = false\n")
    assert {line.split()[-2] for line in path.read_text().splitlines()} == {"00000000"}
    assert main(["check", str(path)]) == 0
    cases = sf.read_vectors(path, "dot", "E4M3", accumulate=sf.fused(4, 20))
    for a, b, _, result in zip(*cases.operands, cases.result, strict=True):
        assert_bits(sf.dot(a, b, inputs=sf.E4M3, accumulate=sf.fused(4, 20)), result)


#: Units of dots, with accumulators that a wrong circuit could have.
WRONG_ACCUMULATORS = {
    ('["E4M3", "E5M2"]', 8, "fused(8, 25)"): (
        "fused(8, 24)",
        "fused(8, 26)",
        "fused(8, 25, align=nearest_even)",
        "fused(8, 25, rounding=nearest_even)",
        "fused(4, 25)",
        "sequential(FP32)",
    ),
    ('"E5M2"', 8, "fused(4, 30)"): ("fused(4, 29)", "fused(4, 31)", "fused(4, 30, align=to_odd)", "fused(8, 30)"),
    ('"FP16"', 16, "fused(8, 24, FP16)"): ("fused(8, 23, FP16)", "fused(8, 25, FP16)", "fused(16, 24, FP16)"),
    ('"E4M3"', 4, "sequential(FP32)"): ("sequential(FP32, rounding=toward_zero)", "blocked(2, FP32, FP32)", "exact"),
    ('"FP32"', 4, "sequential(FP32)"): ("sequential(FP32, products=FP32)", "sequential(FP32, rounding=toward_zero)"),
    ('"E4M3"', 64, "tensor_core('hopper', E4M3)"): ("fused(32, 13)", "tensor_core('blackwell', E4M3)"),
}


def test_the_cases_of_a_dot_find_wrong_accumulators(tmp_path, capsys):
    for (format, terms, accumulate), wrong in WRONG_ACCUMULATORS.items():
        text = f'operation = "dot"\nformat = {format}\nterms = {terms}\noutput = "FP32"\naccumulate = '
        path = write_unit(tmp_path, "right", f'{text}"{accumulate}"\n')
        for accumulator in wrong:
            (tmp_path / "wrong.toml").write_text(f'{text}"{accumulator}"\n')
            capsys.readouterr()
            assert main(["check", str(path), "--unit", str(tmp_path / "wrong.toml")]) == 1, accumulator
            differences = int(capsys.readouterr().out.splitlines()[-1].split()[0])
            assert differences >= 5, f"{accumulator} in place of {accumulate}: {differences} of 200 cases differ"


#: Wrong modes that the cases of an operation show; quotients, roots and products of few bits have few ties or none.
WRONG_MODES = {
    "add": ("nearest_away", "toward_zero", "to_odd"),
    "subtract": ("nearest_away", "toward_positive"),
    "multiply": ("nearest_away", "toward_negative"),
    "divide": ("toward_zero", "to_odd"),
    "fma": ("nearest_away", "toward_zero"),
    "sqrt": ("toward_zero", "toward_positive"),
    "round": ("nearest_away", "toward_zero"),
}


def read_unit_of(folder, text):
    (folder / "unit.toml").write_text(text)
    unit = read_unit(str(folder / "unit.toml"))
    return unit.case, unit.operands()


def count_differences(case, operands, **wrong):
    """How many results, and how many flags, differ if the unit is another one."""
    (x, of_x), (y, of_y) = case.compute(operands), case._replace(**wrong).compute(operands)
    return np.count_nonzero((x != y) & ~(np.isnan(x) & np.isnan(y))), np.count_nonzero(of_x != of_y)


@pytest.mark.parametrize("operation", WRONG_MODES)
def test_the_cases_of_an_operation_find_wrong_roundings(operation, tmp_path):
    for format in (sf.E4M3, sf.E5M2, sf.FP16, sf.BF16, sf.FP32):
        case, operands = read_unit_of(tmp_path, f'operation = "{operation}"\nformat = "{format}"\n')
        for mode in WRONG_MODES[operation]:
            assert count_differences(case, operands, rounding=sf.Rounding(mode))[0] >= 3, (format, mode)
        result = case.compute(operands)[0]
        twice = sf.round(
            case._replace(kinds=(*case.kinds[:-1], sf.Format(10, format.mantissa_bits + 2))).compute(operands)[0],
            format,
        )
        same = (twice == result) | np.isnan(result)
        # Products in E5M2 have at most six bits, so a rounding to five bits is exact or a tie.
        assert np.count_nonzero(~same) >= 5 or (operation, format) == ("multiply", sf.E5M2)
        if operation == "fma":
            unfused = sf.add(sf.multiply(*operands[:2], format), operands[2], format)
            assert np.count_nonzero((unfused != result) & ~np.isnan(result)) >= 20
        # Other operations have no inexact result just below the smallest normal number.
        if operation in ("multiply", "fma", "round"):
            eager = replace(format, tininess="before_rounding", name=None)
            assert count_differences(case, operands, kinds=(*case.kinds[:-1], eager))[1] >= 1, format
        if operation != "sqrt":
            flushing = replace(format, subnormals=False, name=None)
            assert count_differences(case, operands, kinds=(*case.kinds[:-1], flushing))[0] >= 2, format


@pytest.mark.parametrize(
    "operation", ["f32_to_f16", "i32_to_f16", "ui64_to_f32", "i64_to_f64", "f32_to_i32_x", "f16_roundToInt_x"]
)
def test_the_cases_of_a_conversion_find_a_wrong_treatment_of_ties(operation, tmp_path):
    case, operands = read_unit_of(tmp_path, f'operation = "{operation}"\n')
    assert count_differences(case, operands, rounding=sf.nearest_away)[0] >= 3


def test_operands_of_a_rounding_may_be_codes_of_fp32(tmp_path, capsys):
    (tmp_path / "unit.toml").write_text('operation = "round"\nformat = "E5M2"\n')
    (tmp_path / "results.txt").write_text("3E00BF6C 30 01\n3F800001 3C 01\n")
    assert main(["check", str(tmp_path / "results.txt"), "--unit", str(tmp_path / "unit.toml")]) == 0
    assert "2 cases of round in FP32 to E5M2, nearest_even agree" in capsys.readouterr().out


def test_a_unit_without_subnormal_numbers_reads_their_codes_as_zero(tmp_path):
    path = write_unit(tmp_path, "unit", 'operation = "add"\nformat = "Format(8, 7, subnormals=False)"\n')
    codes = [int(line.split()[0], 16) & 0x7FFF for line in path.read_text().splitlines()]
    assert sum(0 < code < 0x80 for code in codes) >= 20
    assert main(["check", str(path)]) == 0


def test_some_sums_carry_as_far_as_they_can(tmp_path):
    text = 'operation = "dot"\nformat = "E4M3"\naccumulate = "fused(8, 20)"\nterms = 8\n'
    _, (a, b, _) = read_unit_of(tmp_path, text)
    totals, largest = np.abs((a * b).sum(1)), np.abs(a * b).max(1)
    assert np.count_nonzero(totals == 8 * largest) >= 10


def test_the_sums_of_some_cases_are_subnormal(tmp_path):
    for format, accumulate in (("E4M3", "fused(4, 20)"), ("FP16", "sequential(FP16)"), ("FP16", "pairwise(FP16)")):
        text = f'operation = "dot"\nformat = "{format}"\naccumulate = "{accumulate}"\n'
        path = write_unit(tmp_path, "unit", text)
        case = read_unit(str(tmp_path / "unit.toml")).case
        results = sf.read_vectors(path, "dot", format, accumulate=case.accumulator).result
        assert np.count_nonzero((results != 0) & (np.abs(results) < case.kinds[-1].smallest_normal)) >= 3


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
    assert "37 cases of add in FP16, toward_zero agree." in report and "payloads are not compared" in report
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
        (swapped, by_hand, 1, "line 11 repeats line 10.\n40 cases of add in FP16, toward_zero agree."),
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
        ([foreign, *lines[2:]], by_hand, 1, "has 39 of the 40 cases of its unit: 1 is missing.\n39 cases"),
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


def test_flags_and_signs_of_zeros_are_compared_and_signalling_nan_are_not(tmp_path, capsys):
    path = tmp_path / "add_FP16_nearest_even.txt"
    for line, code, words in (
        ("3C00 1000 3C00 00", 1, "flags 01: inexact"),
        ("3C00 1000 3C00 00", 1, "line 1: the flags differ. add in FP16"),
        ("0000 8000 8000 00", 1, "-0.0 (8000), flags 00: none"),
        ("7D01 0000 7F01 10", 0, "1 cases of add in FP16, nearest_even agree."),
    ):
        path.write_text(f"{line}\n")
        assert main(["check", str(path)]) == code
        assert words in capsys.readouterr().out


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
        ('operation = "add"\nformat = "FP16"\nround = "to_odd"\n', "'round' is not a key of a unit: operation, format"),
        ('operation = "add"\n', "needs the format of 'add'"),
        ('operation = "dot"\nformat = "FP16"\n', "accumulate= is the accumulator of 'dot'"),
        ('operation = "add"\nformat = "FP16"\nrounding = "stochastic"\n', "in a deterministic mode"),
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
        assert ("scales b" in capsys.readouterr().out) == (name in ("nvfp4", "mx"))


def test_flags_of_a_sum_that_has_none_are_an_error(tmp_path, capsys):
    path = tmp_path / "library.toml"
    path.write_text('operation = "dot"\nformat = "FP32"\naccumulate = "library_sum(\'mkl-avx2\')"\nflags = true\n')
    assert main(["vectors", str(tmp_path / "out"), "--unit", str(path)]) == 2
    assert "library.toml: library_sum('mkl-avx2') has no flags" in capsys.readouterr().err
