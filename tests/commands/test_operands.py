"""The operands of `simfloat vectors`: they find planted faults, contain special operands, and do not repeat."""

from dataclasses import replace

import numpy as np
import pytest

import simfloat as sf
from simfloat.__main__ import main
from simfloat.arithmetic.testfloat import nan_codes
from simfloat.sums.test_vectors import read_cases, vectors_of
from simfloat.tools.commands.operands import Operands
from simfloat.tools.commands.special_sums import SPECIAL_SUMS
from simfloat.tools.commands.unit import read_unit
from tests.bits import assert_bits
from tests.commands.test_check import write_unit


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


def test_operands_near_the_largest_number_of_float64_are_drawn_without_a_warning(tmp_path):
    for text in ('operation = "round"\nformat = "FP64"\n', 'operation = "f32_to_f64"\n'):
        write_unit(tmp_path, "unit", text)


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
        is_replaced[: len(SPECIAL_SUMS) if unit.case.accumulator else 0] = True
        for x, y in zip(vectors.operands, drawn, strict=True):
            if len(drawn) > 1:  # single operands are also replaced if they repeat
                assert_bits(x[~is_replaced], y[~is_replaced])


def distinct_lines(path):
    return {line.split()[0] for line in path.read_text().splitlines()}


def test_a_single_operand_is_not_repeated_while_there_are_others(tmp_path):
    for name, cases, distinct in (
        ('sqrt"\nformat = "FP16', 500, 500),
        ("ui64_to_bf16", 1000, 1000),
        ("e5m2_to_f32", 256, 256),  # all NaN as well
        ("i32_to_f16", 300, 300),
        ('round"\nformat = "BF16', 300, 300),
        ('exp"\nformat = "FP32', 300, 300),
        ("f32_to_e2m1", 300, 300),  # NaN has no result
        ('sqrt"\nformat = "E4M3', 256, 256),
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
            lines = {}
            for *codes, result, flags in map(str.split, path.read_text().splitlines()):
                lines[*np.char.upper(sf.to_hex(sf.decode(codes, sf.FP16), sf.FP16)).tolist()] = result, flags
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


def test_the_cases_of_a_unit_with_power_of_two_scales_find_a_sum_of_exponents_that_wraps(tmp_path):
    for terms, format in ((4, "E2M1"), (64, "E4M3")):
        unit = f"tensor_core('blackwell', {format}, scales=(32, E8M0))"
        text = f'operation = "dot"\nformat = "{format}"\naccumulate = "{unit}"\nterms = {terms}\n'
        case, (a, b, of_a, of_b, c) = read_unit_of(tmp_path, text)
        codes = [sf.encode(x, sf.E8M0).astype(int) for x in (of_a, of_b)]
        assert {0, 254} <= set(codes[0].flat) & set(codes[1].flat)
        wrapped = np.where((codes[0] == 255) | (codes[1] == 255), 255, (codes[0] + codes[1] - 127) % 256)
        (x, _), (y, _) = (case.compute([a, b, *of_blocks, c]) for of_blocks in (
            (of_a, of_b), (sf.decode(wrapped, sf.E8M0), np.ones_like(of_b))
        ))  # fmt: skip
        assert np.count_nonzero((x != y) & ~(np.isnan(x) & np.isnan(y))) >= 5
        assert np.count_nonzero(np.isinf(x)) >= 2 and np.count_nonzero(np.isfinite(x)) >= 160


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


#: The NaN that a wrong circuit recognises, by sign, fraction and number of fraction bits.
SOME_NAN = {
    "four upper bits": lambda sign, fraction, bits: fraction >> bits - 4 > 0,
    "quiet bit": lambda sign, fraction, bits: fraction >> bits - 1 > 0,
    "positive": lambda sign, fraction, bits: sign == 0,
    "all": lambda sign, fraction, bits: fraction > 0,
}


def test_the_cases_find_units_that_take_some_nan_for_infinities(tmp_path):
    of_unit = tmp_path / "unit.toml"
    dot = 'dot"\nformat = ["FP16", "BF16"]\naccumulate = "fused(4, 24)'
    for operation in ("f32_to_bf16", "f16_add", dot):
        path = write_unit(tmp_path, "unit", f'operation = "{operation}"\nflags = false\n')
        case = read_unit(str(of_unit)).case
        lines = [line.split() for line in path.read_text().splitlines()]
        operands = list(vectors_of(read_cases(path, case.operation), case, path).operands)
        ends = np.cumsum(case.columns(len(lines[0]))[1])
        for place, (x, kind) in enumerate(zip(operands, case.kinds, strict=False)):
            columns = slice(ends[place] - (x.shape[1] if x.ndim == 2 else 1), ends[place])
            codes = np.array([[int(code, 16) for code in line[columns]] for line in lines]).reshape(x.shape)
            bits, shift = kind.mantissa_bits, kind.bits - case.kinds[-1].bits
            sign, fraction = codes >> kind.bits - 1, codes & (1 << kind.mantissa_bits) - 1
            assert set(codes[np.isnan(x)].tolist()) >= set(nan_codes(kind)[:5])
            results = {}
            for name, recognises in SOME_NAN.items():
                lost = np.isnan(x) & ~recognises(sign, fraction, bits)
                wrong = np.where(lost, np.where(sign == 1, -np.inf, np.inf), x)
                result = case.compute([*operands[:place], wrong, *operands[place + 1 :]])[0]
                results[name] = sf.to_hex(result, case.kinds[-1])
            if x.ndim == 1 and shift >= 0:  # the result has the upper bits of the operand
                short = sf.to_hex(sf.decode(codes >> bits - 4 << bits - 4 >> shift, case.kinds[-1]), case.kinds[-1])
                results["truncated"] = np.where(np.isnan(x), short, results["all"])
            for name, result in results.items():
                rows = zip(lines, result, strict=True)
                path.write_text("\n".join(" ".join([*fields[:-1], code]) for fields, code in rows))
                assert main(["check", str(path), "--unit", str(of_unit)]) == (name != "all"), (operation, place, name)


def test_signalling_nan_raise_invalid_except_in_copysign(tmp_path, capsys):
    for operation, formats in (("add", ("FP16", "E5M2")), ("sqrt", ("FP32",)), ("power", ("BF16",)), ("f32_to_i8", ())):
        for format in formats or ("",):
            text = f'operation = "{operation}"\n' + (f'format = "{format}"\n' if format else "")
            path = write_unit(tmp_path, "unit", text)
            case = read_unit(str(tmp_path / "unit.toml")).case
            vectors = vectors_of(read_cases(path, operation), case, path)
            assert vectors.signalling.sum() >= 4 and (vectors.flags[vectors.signalling] == 16).all()
            assert not formats or np.isnan(vectors.result[vectors.signalling]).all()
            lines = [
                f"{line[:-2]}00" if is_signalling else line
                for line, is_signalling in zip(path.read_text().splitlines(), vectors.signalling, strict=True)
            ]
            path.write_text("\n".join(lines))
            capsys.readouterr()
            assert main(["check", str(path)]) == 1
            assert f"{vectors.signalling.sum()} of 200 lines differ" in capsys.readouterr().out
    path = write_unit(tmp_path, "unit", 'operation = "copysign"\nformat = "FP16"\n')
    assert {line.split()[-1] for line in path.read_text().splitlines()} == {"00"}
    # Formats with one code of NaN, or with one for each sign, have only these.
    for kind, codes in ((sf.E4M3, [0x7F, 0xFF]), (sf.E4M3FNUZ, [0x80]), (sf.E8M0, [0xFF]), (sf.E2M1, [])):
        assert sorted(nan_codes(kind)) == codes


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
