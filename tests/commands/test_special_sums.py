"""The first cases of a dot: sums of special operands, in which a circuit that mistreats one of them fails."""

import math

import numpy as np
import pytest

import simfloat as sf
from simfloat.__main__ import main
from simfloat.sums.test_vectors import read_cases, vectors_of
from simfloat.tools.commands.special_sums import SPECIAL_SUMS, special_sums
from simfloat.tools.commands.unit import read_unit
from tests.bits import assert_bits
from tests.commands.test_check import write_unit

UNITS = {
    "sequential": 'format = "FP16"\naccumulate = "sequential(FP16)"\nterms = 5\n',
    "pairwise": 'format = "E5M2"\naccumulate = "pairwise(FP32)"\nterms = 5\n',
    "fused": 'format = "FP16"\naccumulate = "fused(4, 24)"\nterms = 11\n',
    "pair": 'format = ["E4M3", "E5M2"]\naccumulate = "tensor_core(\'hopper\', (E4M3, E5M2))"\nterms = 40\n',
    "scales": 'format = "E5M2"\naccumulate = "tensor_core(\'blackwell\', E5M2, scales=(32, E8M0))"\nterms = 40\n',
    "own scales": 'format = "BF16"\naccumulate = "blocked(4, FP32, FP32)"\nscales = "(4, E5M2)"\nterms = 8\n',
    "amd": 'format = "BF16"\naccumulate = "matrix_core(\'cdna2\', BF16)"\nterms = 4\n',
    "exact": 'format = "FP16"\naccumulate = "exact"\noutput = "FP32"\n',
}


def special_total(a, b, start=0.0):
    """The sum of products by IEEE 754-2019, 6.1, 6.2 and 7.2: NaN, an infinity, or None if it is finite."""
    terms = [start, *(x * y for x, y in zip(a, b, strict=True))]
    infinite = {x for x in terms if math.isinf(x)}
    if any(map(math.isnan, terms)) or len(infinite) == 2:
        return math.nan
    return infinite.pop() if infinite else None


def cases_of(folder, text):
    path = write_unit(folder, "unit", f'operation = "dot"\n{text}')
    unit = read_unit(str(folder / "unit.toml"))
    return path, unit.case, vectors_of(read_cases(path, "dot"), unit.case, path)


def with_scales(case, a, b, scales):
    """Return the factors times their scales, which float64 represents."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    for x, of_blocks in zip((a, b), scales, strict=False):
        x *= np.repeat(of_blocks, case.block, axis=1)[:, : x.shape[1]]
    return a, b


@pytest.mark.parametrize("name", UNITS)
def test_results_of_special_sums_are_those_of_ieee_754(name, tmp_path):
    path, case, vectors = cases_of(tmp_path, UNITS[name])
    a, b, *scales, c = vectors.operands
    a, b = with_scales(case, a, b, scales)
    wanted = [special_total(*row) for row in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)]
    rows = [n for n, want in enumerate(wanted[: len(SPECIAL_SUMS) - 4]) if want is not None]
    assert_bits(vectors.result[rows], [wanted[n] for n in rows])
    assert len(rows) >= 10
    assert main(["check", str(path)]) == 0


def test_special_sums_come_first_whatever_the_seed(tmp_path):
    lines = [cases_of(tmp_path, f"{UNITS['fused']}seed = {seed}\n")[0].read_text().splitlines() for seed in (0, 9)]
    count = len(special_sums((sf.FP16, sf.FP16, sf.FP32), 11, 4)[0])
    assert 16 <= count <= len(SPECIAL_SUMS)
    assert lines[0][:count] == lines[1][:count] and lines[0][count + 1] != lines[1][count + 1]
    # The products at the first place, at the last one, and at the end of the first chunk of four.
    a, b, c = special_sums((sf.FP16, sf.FP16, sf.FP32), 11, 4)
    with np.errstate(invalid="ignore"):
        products = a * b
    factors = {(x, y, place) for place in (0, 10) for x, y in np.stack([a, b], axis=2)[:, place].tolist()}
    for place, x, y in ((0, np.inf, 0), (10, 0, np.inf), (0, 0, -np.inf), (10, -np.inf, 0)):
        assert (x, y, place) in factors
    within = (products[:, 0] == np.inf) & (products[:, 3] == -np.inf)
    across = (products[:, 0] == -np.inf) & (products[:, 10] == np.inf)
    against_c = (products[:, 10] == np.inf) & (c == -np.inf)
    for sums in (within, across, against_c, np.isnan(c), c == np.inf, c == -np.inf):
        assert sums.sum() >= 1
    largest = np.all(np.abs(products) == sf.FP16.max**2, axis=1)
    zeros = np.all(products == 0, axis=1) & np.signbit(products).any(axis=1) & ~np.signbit(products).all(axis=1)
    assert largest.sum() == 2 and zeros.sum() == 1


def test_special_sums_have_only_numbers_of_their_formats(tmp_path):
    for kinds, special in (
        ((sf.E4M3, sf.E4M3, sf.FP32), {"nan in a", "nan in b", "nan in c", "inf in c"}),
        ((sf.E2M1, sf.E2M1, sf.FP32), {"nan in c", "inf in c"}),
        ((sf.E2M1, sf.E5M2, sf.E4M3), {"nan in b", "inf in b", "nan in c"}),
        ((sf.fixed(8), sf.fixed(8), sf.fixed(20)), set()),
        ((sf.E8M0, sf.E8M0, sf.FP32), {"nan in a", "nan in b", "nan in c", "inf in c"}),
    ):
        operands = special_sums(kinds, 4, 4)
        have = {f"nan in {name}" for name, x in zip("abc", operands, strict=True) if np.isnan(x).any()}
        have |= {f"inf in {name}" for name, x in zip("abc", operands, strict=True) if np.isinf(x).any()}
        assert have == special
        for x, kind in zip(operands, kinds, strict=True):
            assert_bits(sf.decode(sf.encode(x, kind), kind), x)
    # Sums that start from zero; and results without NaN, with an infinity that saturates.
    _, _, vectors = cases_of(tmp_path, f"{UNITS['fused']}addend = false\n")
    assert not vectors.operands[2].any() and np.isnan(vectors.result).sum() >= 8
    _, _, vectors = cases_of(tmp_path, 'format = "FP16"\naccumulate = "FP32"\noutput = "E2M1"\n')
    assert np.isinf(vectors.operands[0][0]).any() and abs(vectors.result[0]) == sf.E2M1.max
    _, _, vectors = cases_of(tmp_path, f"{UNITS['fused']}cases = 7\n")
    assert [np.isfinite(x).reshape(7, -1).all(axis=1).sum() for x in vectors.operands[:2]] == [5, 5]
    assert np.isfinite(vectors.operands[0][4:]).all()


def replaced(x, where, value):
    return np.where(where, value, x)


#: Faults that change operands: functions of the arrays a, b, the sums' starts c, and the scales.
FAULTS_OF_OPERANDS = {
    "inf * 0 is 0": lambda a, b, c: (
        replaced(a, np.isinf(a) & (b == 0), 1.0),
        replaced(b, np.isinf(b) & (a == 0), 1.0),
        c,
    ),
    "nan in a is dropped": lambda a, b, c: (replaced(a, np.isnan(a), 0.0), b, c),
    "nan in b is dropped": lambda a, b, c: (a, replaced(b, np.isnan(b), 0.0), c),
    "nan in c is dropped": lambda a, b, c: (a, b, replaced(c, np.isnan(c), 0.0)),
    "nan in c is an infinity": lambda a, b, c: (a, b, replaced(c, np.isnan(c), np.inf)),
    "zeros are skipped": lambda a, b, c: (
        replaced(a, (b == 0) & ~np.isfinite(a), 0.0),
        replaced(b, (a == 0) & ~np.isfinite(b), 0.0),
        c,
    ),
    "inf in c is the largest number": lambda a, b, c: (a, b, np.clip(c, -(2.0**15), 2.0**15)),
}  # fmt: skip


def faults_of_terms(a, b, c, result):
    """Yield results of circuits that mistreat infinities among the products and the start of a sum."""
    with np.errstate(invalid="ignore"):
        terms = np.concatenate([c[:, np.newaxis], a * b], axis=1)
    has_nan = np.isnan(terms).any(axis=1)
    positive, negative = (terms == np.inf).any(axis=1), (terms == -np.inf).any(axis=1)
    meet = positive & negative & ~has_nan
    yield "inf - inf is inf", replaced(result, meet, np.inf)
    yield "inf - inf is -inf", replaced(result, meet, -np.inf)
    yield "infinities cancel", replaced(result, meet, 0.0)
    of_products = np.isinf(terms[:, 1:]).any(axis=1)
    yield "inf - inf with c", replaced(result, meet & np.isinf(c) & of_products, 0.0)
    yield "inf - inf of products", replaced(result, meet & ~np.isinf(c), np.inf)
    yield "no sign of inf", replaced(result, np.isinf(result), np.inf)
    yield "inf is finite", replaced(result, np.isinf(result), 1.0)
    yield "nan is inf", replaced(result, np.isnan(result), np.inf)


@pytest.mark.parametrize("name", UNITS)
def test_planted_faults_of_special_operands_are_found(name, tmp_path, capsys):
    path, case, vectors = cases_of(tmp_path, UNITS[name])
    lines = [line.split() for line in path.read_text().splitlines()]
    a, b, *scales, c = vectors.operands
    results = dict(faults_of_terms(*with_scales(case, a, b, scales), c, vectors.result))
    for fault, change in FAULTS_OF_OPERANDS.items():
        x, y, start = change(a, b, c)
        results[fault] = case.compute([x, y, *scales, start])[0]
    if scales:
        finite = [replaced(x, np.isnan(x), 1.0) for x in scales]
        results |= {f"nan in scales {n}": case.compute([a, b, *of, c])[0] for n, of in enumerate(
            ((finite[0], scales[1]), (scales[0], finite[1]))
        )}  # fmt: skip
    if not case.accumulator.takes_initial:  # all sums start from zero
        results = {fault: result for fault, result in results.items() if "c" not in fault.split()}
    column = -1 - (len(lines[0]) % 2)  # lines with flags have an odd number of fields
    for fault, result in {"none": vectors.result, **results}.items():
        texts = sf.to_hex(result, case.kinds[-1]).tolist()
        rows = [[*line] for line in lines]
        for row, text in zip(rows, texts, strict=True):
            row[column] = text
        path.write_text("\n".join(map(" ".join, rows)))
        capsys.readouterr()
        assert main(["check", str(path)]) == (fault != "none"), fault
