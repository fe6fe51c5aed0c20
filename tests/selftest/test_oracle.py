"""The second definition in C, and `simfloat selftest --oracle`."""

import shutil

import numpy as np
import pytest

import simfloat as sf
from simfloat.__main__ import main
from simfloat.formats.exceptions import flags_of
from simfloat.tools.selftest import oracle
from simfloat.tools.selftest.checks import adversarial, equal_bits, examine
from simfloat.tools.selftest.definitions import draws, exact, operate


@pytest.fixture(autouse=True)
def compiler():
    if not any(map(shutil.which, oracle.COMPILERS)):
        pytest.skip("needs a C compiler")


@pytest.mark.parametrize(
    "name", ["rounding, in C", "fma, in C", "orders of sums, in C", "fused sums, in C", "tensor cores, in C"]
)
def test_small_blocks_of_every_kind_agree(name, monkeypatch):
    monkeypatch.setattr(oracle, "BLOCK", 256)
    monkeypatch.setattr(oracle, "FORMATS", (sf.E4M3, sf.FP16))
    outcome = examine(oracle.CHECKS[name](True))
    assert outcome.failure is None and outcome.cases >= 160


def test_the_second_definition_is_the_first(rng):
    for format in (sf.E4M3, sf.p3109(8, 3), sf.FP32):
        numbers = sf.round(adversarial(format, rng, 3), format)
        a, b, c = (rng.choice(numbers, 150) for _ in range(3))
        for rounding in (sf.nearest_even, sf.toward_negative, sf.to_odd, sf.stochastic(8)):
            random = draws(a.size, rounding) if rounding.is_stochastic else [0] * a.size
            for operation in ("add", "multiply", "divide", "fma"):
                operands = (a, b, c)[: 3 if operation == "fma" else 2]
                got, flags = oracle.operate(operation, format, rounding, operands, np.array(random, np.uint32))
                cases = list(zip(*(x.tolist() for x in operands), strict=True))
                want = [operate(operation, format, rounding, *x, random=r) for x, r in zip(cases, random, strict=True)]
                assert equal_bits(got, want).all()
                down = rounding.mode == "toward_negative"
                results = [exact(operation, *case, negative_zero_sums=down) for case in cases]
                flagged = zip(results, cases, random, strict=True)
                assert flags.tolist() == [flags_of(x, of, format, rounding, r, len(of) == 3) for x, of, r in flagged]


def test_a_wrong_bit_is_found(monkeypatch):
    monkeypatch.setattr(oracle, "BLOCK", 256)
    right = sf.fma
    monkeypatch.setattr(
        sf, "fma", lambda *xs, **options: (right(*xs, **options)[0], np.zeros(256, np.uint8)), raising=False
    )
    assert "flags of fma(" in examine(oracle.CHECKS["fma, in C"](True)).failure


def test_without_a_compiler_the_command_says_so(monkeypatch, capsys):
    oracle.library.cache_clear()
    monkeypatch.setattr(oracle, "COMPILERS", ("no-such-compiler",))
    assert main(["selftest", "--oracle"]) == 2
    assert "there is no compiler: install one of no-such-compiler" in capsys.readouterr().err


def test_a_compiler_that_fails_is_quoted(monkeypatch, capsys, tmp_path):
    oracle.library.cache_clear()
    failing = tmp_path / "cc"
    failing.write_text("#!/bin/sh\necho cannot >&2\nexit 1\n")
    failing.chmod(0o755)
    monkeypatch.setattr(oracle, "COMPILERS", (str(failing),))
    assert main(["selftest", "--oracle"]) == 2
    assert "oracle_sums.c: cannot" in capsys.readouterr().err
    oracle.library.cache_clear()


def test_the_command_runs_the_checks(monkeypatch, capsys):
    monkeypatch.setattr(oracle, "CHECKS", {"none": lambda quick: iter(())})
    assert main(["selftest", "--oracle", "--quick"]) == 0
    assert "All 1 checks passed" in capsys.readouterr().out
    assert main(["selftest", "--oracle", "--device", "cuda"]) == 2
