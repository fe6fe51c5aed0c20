"""Runs with stochastic rounding: each has its own stream, whichever process computes it."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.studies import repeating
from tests.bits import assert_bits


def sums(stream):
    """Two sums under stochastic rounding."""
    order = sf.sequential(sf.BF16, sf.stochastic())
    return sf.sum(np.full((2, 60), 0.3), 1, inputs=sf.FP32, accumulate=order, stream=stream)


def test_runs_in_processes_are_those_of_their_seeds(monkeypatch):
    monkeypatch.setattr(repeating, "RUNS_AT_ONCE", 7)
    one = sf.studies.repeat(sums, 24, seed=5, workers=1)
    assert_bits(one.results, np.stack([sums(sf.BitStream(5 + run)) for run in range(24)]).astype(float))
    assert_bits(sf.studies.repeat(lambda stream: sums(stream), 24, seed=5, workers=2).results, one.results)


def test_the_statistics_are_those_of_theory():
    runs = sf.studies.repeat(lambda stream: sums(stream)[0], 2000, workers=1)
    exact, u = 60 * float(np.float32(0.3)), sf.theory.roundoff(sf.BF16, sf.stochastic())
    assert abs(runs.mean - exact) < 5 * runs.standard_error
    assert runs.variance <= exact**2 * sf.theory.stochastic_variance(59, u)
    beyond = np.abs(runs.results - exact) > exact * sf.theory.azuma_bound(59, u, 0.05)
    assert beyond.mean() <= 0.05
    low, high, cases = runs.interval(0.999999)
    assert low < exact < high and cases == 2000
    assert runs.quantile(0.5) == np.median(runs) and runs.variance == np.var(runs, ddof=1)


def test_repetitions_print_their_mean_its_standard_error_and_the_number_of_runs():
    runs = sf.studies.Repetitions(np.array([1.0, 2.0, 4.0, 5.0]))
    assert repr(runs) == str(runs) == "<Repetitions: mean 3, standard error 0.912871, 4 runs>"
    assert repr(sf.studies.Repetitions(np.ones(1))) == "<Repetitions: mean 1, standard error nan, 1 runs>"
    pairs = sf.studies.Repetitions(np.array([[1.0, 0.25], [3.0, 0.25]]))
    assert repr(pairs) == "<Repetitions: mean [2. 0.25], standard error [1. 0.], 2 runs>"
    many = repr(sf.studies.Repetitions(np.random.default_rng(0).standard_normal((400, 30, 50))))
    assert "\n" not in many and len(many) < 250 and "..." in many and many.endswith("400 runs>")


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: sf.studies.repeat(sums, 0), "runs must be an integer of at least 1"),
        (lambda: sf.studies.repeat(sums, 2, workers=0), "workers must be an integer of at least 1"),
        (lambda: sf.studies.repeat(sums, 2, seed=-1), "seed must be an integer from 0"),
        (lambda: sf.studies.repeat(sums, 2, workers=1).interval(), r"interval needs one number for each run.*\(2, 2\)"),
    ],
)
def test_arguments_of_repetitions_are_checked(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("answer", [None, "1.0", [1.0, None], {"a": 1}])
def test_results_that_are_no_numbers_are_refused(answer):
    with pytest.raises(sf.studies.JobError, match=r"must return a number .*BitStream\(3\) it returned"):
        sf.studies.repeat(lambda stream: answer, 2, seed=3, workers=1)


def test_results_of_ml_dtypes_are_numbers():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    runs = sf.studies.repeat(lambda stream: np.full(2, 0.5, ml_dtypes.bfloat16), 2, workers=1)
    assert runs.results.tolist() == [[0.5, 0.5]] * 2
