"""Executors run every job once, report every failure, and leave no process behind."""

import time
from contextlib import closing
from pathlib import Path

import pytest

from simfloat.studies import JobError, in_processes, one_by_one
from tests.experiments.toy import double

JOBS = [{"kind": "toy", "seed": seed} for seed in range(5)]


def test_every_job_is_carried_out_once_and_numbered():
    found = [(place, result["value"]) for place, result in one_by_one(double, JOBS)]
    assert found == [(i, 2 * i) for i in range(5)]


def test_jobs_are_carried_out_in_as_many_processes_as_asked_for_and_their_output_is_no_answer():
    jobs = [*JOBS, {"seed": 5, "print": True}, {"seed": float("inf")}]  # JSON lacks the last one
    results = sorted(in_processes(double, jobs, workers=1), key=lambda result: result[0])
    want = [*((i, 2 * i) for i in range(6)), (6, float("inf"))]
    assert [(place, result["value"]) for place, result in results] == want
    assert len({result["process"] for _, result in results}) == 1


@pytest.mark.parametrize("executor", [one_by_one, in_processes])
def test_no_jobs_are_no_work(executor):
    assert list(executor(double, [])) == []


@pytest.mark.parametrize("executor", [one_by_one, in_processes])
def test_a_refused_job_says_which_and_why(executor):
    jobs = [{"kind": "toy", "problem": "digits", "label": "bf16", "seed": 3, "refuse": True}]
    with pytest.raises(JobError, match="job of digits, bf16, seed 3, failed: 3 was expected, 4 came.") as caught:
        list(executor(double, jobs))
    assert caught.value.refused


@pytest.mark.parametrize("how, message", [
    ("fault", r"KeyError: 'missing' \(.*toy.py, line \d+\)"),
    ("die", "its process ended with exit code 7"),
    ("kill", "its process was ended by signal 9; if that is 9, memory may have run out"),
])  # fmt: skip
def test_a_job_that_breaks_its_process_is_no_refusal(how, message):
    with pytest.raises(JobError, match=message) as caught:
        list(in_processes(double, [{"kind": "toy", "seed": 0, how: True}]))
    assert not caught.value.refused


def test_giving_up_ends_the_processes_at_once():
    jobs = [{"seed": 1}, *({"seed": i, "sleep": 600} for i in range(8))]
    with closing(in_processes(double, jobs)) as results:
        _, result = next(results)
        start = time.monotonic()
    assert time.monotonic() - start < 30
    assert not Path(f"/proc/{result['process']}").exists()


def test_two_processes_begin_at_both_ends_so_that_they_do_not_compile_the_same_kernels():
    jobs = [{"seed": 0}, {"seed": 1, "sleep": 60}, {"seed": 2, "sleep": 60}, {"seed": 3}]
    with closing(in_processes(double, jobs, workers=2)) as results:
        assert {next(results)[0], next(results)[0]} == {0, 3}


def test_a_job_is_restarted_if_its_process_dies_and_none_runs_twice(tmp_path):
    jobs = [*JOBS, {"seed": 5, "once": str(tmp_path / "five")}]
    found = sorted((place, result["value"]) for place, result in in_processes(double, jobs, workers=2, attempts=2))
    assert found == [(i, 2 * i) for i in range(6)]


def test_a_job_that_kills_every_process_is_given_up_after_its_attempts():
    with pytest.raises(JobError, match="its process was ended by signal 9"):
        list(in_processes(double, [{"seed": 0, "kill": True}], attempts=2))
