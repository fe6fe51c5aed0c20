"""simfloat vectors: the files are read back and compared with the definitions."""

from hashlib import sha256

import numpy as np
import pytest

import simfloat as sf
from simfloat.__main__ import main
from simfloat.formats.definition import round_value
from simfloat.formats.exceptions import flags_of
from simfloat.tools.commands.vectors import ACCUMULATORS, FORMATS, OPERATIONS, VERSION
from simfloat.tools.selftest import orders
from simfloat.tools.selftest.definitions import exact
from tests.bits import assert_bits
from tests.commands.test_special_sums import special_total


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors") / "new"
    assert main(["vectors", str(folder)]) == 0
    return folder


def test_the_files_of_a_version_are_the_same_everywhere(folder):
    digest = sha256()
    for path in sorted(folder.glob("*.txt")):
        if path.name != "README.txt":
            digest.update(path.name.encode() + path.read_bytes())
    assert (VERSION, digest.hexdigest()) == (5, "4b81e27ed5e494c50fe53762bdecb2edf6cf3d6dbd797bae58064977695eabce"), (
        "files that change need another version"
    )
    assert (folder / "README.txt").read_text().startswith(f"version {VERSION}\n")
    assert sum(path.stat().st_size for path in folder.iterdir()) < 1_000_000


@pytest.mark.parametrize("operation", OPERATIONS)
def test_results_and_flags_are_those_of_the_definition(operation, folder):
    for format in FORMATS:
        cases = sf.read_vectors(folder / f"{operation}_{format}_nearest_even.txt", operation, format)
        operands = [x.astype(np.float64) for x in cases.operands]
        assert (cases.flags[cases.signalling] == 16).all() and np.isnan(cases.result[cases.signalling]).all()
        # The definitions have one NaN, which is quiet.
        of_signalling = 16 * cases.signalling
        if operation == "sqrt":
            result, flags = sf.sqrt(*operands, format, flags=True)
            assert_bits(result, cases.result)
            assert (flags | of_signalling).tolist() == cases.flags.tolist()
            continue
        rows = zip(*operands, strict=True)
        for numbers, result, flags, signals in zip(rows, cases.result, cases.flags, of_signalling, strict=True):
            numbers = tuple(map(float, numbers))
            x = numbers[0] if operation == "round" else exact(operation, *numbers)
            assert_bits(result, round_value(x, format, sf.nearest_even), *numbers)
            of = () if operation == "round" else numbers
            assert flags == signals | flags_of(x, of, format, sf.nearest_even, is_fma=operation == "fma"), numbers


@pytest.mark.parametrize("name", ACCUMULATORS)
def test_sums_are_those_of_the_definition(name, folder):
    accumulator, output = ACCUMULATORS[name]
    for line in (folder / f"sums_{name}.txt").read_text().splitlines():
        count, *codes, total = line.split()
        a, b = sf.decode(codes, sf.FP16).astype(np.float64).reshape(int(count), 2).T.tolist()
        if name == "exact":
            want = sf.dot(a, b, accumulate=sf.exact, output=output)
        elif name.startswith("fused") and special_total(a, b) is not None:
            want = special_total(a, b)
        else:
            want = orders.dot(accumulator, a, b, (sf.FP16.emin, sf.FP16.emin))
        assert_bits(sf.decode(total, output), want)


def test_draws_decide_as_the_definition_has_it(folder):
    for path in folder.glob("stochastic_*.txt"):
        _, variant, bits = path.stem.split("_")
        for line in path.read_text().splitlines():
            x, draw, result = line.split()
            want = round_value(float(sf.decode(x, sf.FP64)), sf.FP16, sf.stochastic(int(bits), variant), int(draw, 16))
            assert float(sf.decode(result, sf.FP16)) == want


def test_words_are_philox(folder):
    lines = (folder / "draws.txt").read_text().splitlines()
    assert len(lines) == 32
    assert lines[0] == "0 0 0 0 0 6627e8d5 e169c58d bc57ac4c 9b00dbd8"  # Random123's known answer for zeros
