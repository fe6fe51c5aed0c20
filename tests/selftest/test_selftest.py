"""The self-test finds planted bugs, and its command line reports mistakes without a traceback.

tests/commands/test_warmup.py tests that every check passes, and `make release-check` that it passes in full.
"""

import re
import subprocess
import sys

import numpy as np
import pytest

import simfloat as sf
from simfloat.__main__ import main
from simfloat.tools.selftest import CHECKS, Batch, run
from simfloat.tools.selftest.checks import examine


@pytest.mark.parametrize("name", CHECKS)
def test_every_check_has_a_first_line_that_says_what_it_checks(name):
    assert CHECKS[name].__doc__.splitlines()[0].endswith(".")


def off_by_one_bit(function, place):
    """The function with the last bit of one element of its results turned."""

    def broken(*arguments, **options):
        out = np.array(function(*arguments, **options))
        flat = out.reshape(-1)
        if flat.size > place and flat.dtype.kind == "f":
            flat[place] = np.nextafter(flat[place], 0.3)
        return out

    return broken


@pytest.mark.parametrize(
    "broken, names",
    [
        ("round", ["numbers are fixed points", "ties and edges", "stochastic variants"]),
        ("add", ["all pairs, 8 bits", "operations, whole range"]),
        ("divide", ["all pairs, 8 bits", "operations, whole range"]),
        ("fma", ["all a * b + c, 4 to 8 bits", "a * b + c, sampled", "operations, whole range"]),
        ("sqrt", ["square roots", "elementary functions"]),
        ("tanh", ["elementary functions"]),
        ("matmul", ["sequential sums", "exact sums", "sums from an addend", "FP8 sums in two steps"]),
        ("decode", ["codes round trip"]),
    ],
)
def test_one_wrong_bit_is_found(broken, names, monkeypatch):
    monkeypatch.setattr(sf, broken, off_by_one_bit(getattr(sf, broken), 3))
    for name in names:
        assert broken in examine(CHECKS[name](True)).failure


def test_a_broken_library_fails_with_the_first_wrong_case(monkeypatch, capsys):
    monkeypatch.setattr(sf, "sqrt", off_by_one_bit(sf.sqrt, 0))
    assert not run({"square roots": CHECKS["square roots"], "random generator": CHECKS["random generator"]}, quick=True)
    first, second, last = capsys.readouterr().out.splitlines()
    assert re.search(r"sqrt\(0x1\.\w+p[+-]\d+, FP16, nearest_even\) is 0x1\.\w+p\S+, expected 0x1\.\w+p", first)
    assert second.endswith("12 cases  ok")
    assert last.startswith("1 of 2 checks failed")


def test_a_failed_selftest_exits_with_1(monkeypatch, capsys):
    monkeypatch.setattr(sf, "sqrt", off_by_one_bit(sf.sqrt, 0))
    some = ["random generator", "square roots", "elementary functions", "functions at specials", "codes round trip"]
    monkeypatch.setattr("simfloat.tools.selftest.CHECKS", {name: CHECKS[name] for name in some})
    assert main(["selftest", "--quick"]) == 1
    lines = capsys.readouterr().out.splitlines()
    failed = [line for line in lines[1:-1] if not line.endswith("ok")]
    assert [re.split("  +", line)[0] for line in failed] == [
        "square roots",
        "elementary functions",
        "functions at specials",
    ]
    assert lines[-1].startswith("3 of 5 checks failed")


def test_a_check_that_cannot_run_is_a_failed_check():
    def check():
        yield Batch("add", (), (), np.ones(3), np.ones(3))
        raise RuntimeError("no such kernel")

    assert examine(check()) == (3, "RuntimeError: no such kernel")


def test_wrong_shapes_and_codes_are_differences():
    assert "has shape (2,), expected (3,)" in Batch("add", (), (), np.ones(2), np.ones(3)).first_difference()
    assert (
        Batch("encode", (), ("FP16",), np.array(3), np.array(4)).first_difference() == "encode(FP16) is 3, expected 4"
    )
    assert (
        Batch("add", (), (), np.array([-0.0]), np.array([0.0])).first_difference()
        == "add() is -0x0.0p+0, expected 0x0.0p+0"
    )


def test_version(capsys):
    assert main(["--version"]) == 0 and capsys.readouterr().out == f"simfloat {sf.__version__}\n"


@pytest.mark.parametrize("arguments", [(), ("selftset",), ("selftest", "--slow"), ("selftest", "FP16")])
def test_mistakes_exit_with_2_and_say_what_to_write(arguments, capsys):
    assert main(arguments) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("simfloat: ") and errors.count("\n") == 1


def test_importing_simfloat_does_not_import_the_selftest():
    code = "import sys, simfloat; print(any(name.startswith('simfloat.tools.selftest') for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
