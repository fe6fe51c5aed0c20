"""Every case gives the CPU's bits on a simulated GPU: the same bodies and seam, and arrays that behave as CuPy's do."""

import os
import pickle
import subprocess
import sys

import pytest

from tests.bits import assert_bits
from tests.cuda.cases import CASES, given, results

pytest.importorskip("numba_cuda", reason="needs numba-cuda for its simulator")


def run(module, *arguments):
    """A program in a process of its own, without compilation."""
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-W", "ignore", "-m", module, *arguments]
    return subprocess.run(command, env=environment, check=True, timeout=240, stdout=subprocess.PIPE, text=True).stdout


def found_by(way, path, *names):
    """What the cases give in a process of their own."""
    run("tests.cuda.cases", way, str(path), *names)
    return pickle.loads(path.read_bytes())


@pytest.fixture(scope="module")
def in_a_row(tmp_path_factory):
    return found_by("in_a_row", tmp_path_factory.mktemp("cuda") / "found", *CASES)


@pytest.mark.parametrize("name", CASES)
def test_threads_in_any_order_give_the_bits_of_the_cpu(name, in_a_row):
    compare(in_a_row[name], results(name, given))


@pytest.mark.parametrize("name", ["given_bits", "shapes"])
def test_the_simulator_gives_them_too(name, tmp_path):
    compare(found_by("simulated", tmp_path / "found", name)[name], results(name, given))


def test_the_self_test_compares_a_gpu_with_the_cpu_and_counts():
    lines = run("tests.cuda.selftest_run").splitlines()
    assert [line.split()[0] for line in lines[:-1]] == ["rounding", "operations", "sums", "events"]
    assert all(line.endswith(" ok") for line in lines[:-1])
    assert lines[-1].startswith("All 4 checks passed: ")


def compare(got, want):
    assert len(got) == len(want)
    for one, other in zip(got, want, strict=True):
        assert one.dtype == other.dtype
        assert_bits(one, other)
