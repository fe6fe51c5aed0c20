"""Compare random sums by the fastest loops with the same sums by float64 loops."""

import numpy as np
import pytest
from click.testing import CliRunner

import simfloat as sf
from benchmarks import compare
from simfloat.sums.operands import Problem, operand_bounds


def test_the_first_cases_are_the_same():
    done = CliRunner().invoke(compare.main, ["--results", "1"])
    assert done.exit_code == 0 and done.output.endswith(" results are the same; the next case is --seed 1\n")


@pytest.mark.parametrize("beside", compare.BESIDE)
def test_no_loop_in_float32_takes_what_stands_beside(beside):
    narrow, wide = operand_bounds(np.ones((1, 3))), operand_bounds(np.array([[1.0, 1.5, beside]]))
    assert sf.sequential(sf.BF16).engine(Problem(narrow, narrow, 3, sf.BF16)).carrier is np.float32
    assert sf.sequential(sf.BF16).engine(Problem(wide, narrow, 3, sf.BF16)).carrier is np.float64


def test_a_difference_ends_with_1_and_the_call_that_shows_it(monkeypatch):
    monkeypatch.setattr(compare, "compared", lambda case, seed: np.array([[False, seed == 7]]))
    done = CliRunner().invoke(compare.main, ["--seed", "6"])
    assert done.exit_code == 1 and "the first at [0, 1]" in done.output
    assert "benchmarks.compare.drawn(7)" in done.output and "--seed 7 --results 1" in done.output
