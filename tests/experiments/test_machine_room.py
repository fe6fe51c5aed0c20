"""A Dask scheduler: the same results as locally, and one clear message if it is missing."""

import json
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

import simfloat as sf
from simfloat import terminal
from simfloat.studies import JobError, code_digest, one_by_one, workspace
from simfloat.studies.workspace import SchedulerError, answer, on_scheduler, worker_answer
from tests.experiments.test_command_line import ROOT, invoke
from tests.experiments.toy import double, run
from tests.studies.functions import error
from tests.studies.known_answers import additive


@contextmanager
def started(*arguments, cwd):
    """A program of Dask, ended with the block."""
    process = subprocess.Popen([sys.executable, "-m", "dask", *map(str, arguments)], cwd=cwd, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    """The address of a scheduler, which knows nothing of the experiments."""
    folder = tmp_path_factory.mktemp("scheduler")
    place = folder / "address.json"
    arguments = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", place)
    with started("scheduler", *arguments, cwd=folder):
        until = time.monotonic() + 60
        while not place.exists() and time.monotonic() < until:
            time.sleep(0.05)
        yield json.loads(place.read_text())["address"]


@pytest.fixture(scope="module")
def room(scheduler, tmp_path_factory):
    """The same with a worker of two threads."""
    folder = tmp_path_factory.mktemp("worker")
    arguments = ("--nthreads", "2", "--no-dashboard", "--local-directory", folder)
    with started("worker", scheduler, *arguments, cwd=folder):
        yield scheduler


def test_a_scheduler_without_workers_is_one_message(scheduler):
    with pytest.raises(
        SchedulerError, match=f"the scheduler at {scheduler} had no worker for 0.2 s. Start some: `dask"
    ):
        list(on_scheduler(scheduler, patience=0.2)(run, [{"seed": 1}]))


def test_a_scheduler_that_does_not_answer_is_one_message():
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(SchedulerError, match=f"no scheduler answers at {address} .* Is `dask scheduler` running?"):
            list(on_scheduler(address, patience=0.5)(run, [{"seed": 1}]))


def test_results_are_those_of_this_machine(room):
    jobs = [{"kind": "toy", "seed": seed / 10} for seed in range(5)] + [{"seed": float("inf")}]
    here, there = (sorted(carry_out(run, jobs)) for carry_out in (one_by_one, on_scheduler(room, patience=60)))
    assert there == here


def test_a_job_that_is_refused_or_fails_says_which_and_why(room):
    jobs = [{"kind": "toy", "problem": "digits", "label": "bf16", "seed": 3, "refuse": True}]
    with pytest.raises(JobError, match="job of digits, bf16, seed 3, failed: 3 was expected, 4 came.") as caught:
        list(on_scheduler(room, patience=60)(double, jobs))
    assert caught.value.refused
    with pytest.raises(JobError, match=r"KeyError: 'missing' \(.*toy.py, line \d+\)"):
        list(on_scheduler(room, patience=60)(double, [{"seed": 0, "fault": True}]))


def test_a_job_is_restarted_if_its_worker_dies(room, tmp_path):
    jobs = [{"seed": 1}, {"seed": 5, "once": str(tmp_path / "five")}]
    found = sorted((place, result["value"]) for place, result in on_scheduler(room, patience=60)(double, jobs))
    assert found == [(0, 2), (1, 10)]


def test_a_sweep_leaves_the_same_bytes_from_a_machine_room_and_from_here(room, tmp_path):
    arguments = ("sweep", "update-cancellation", "problem=synthetic", "policy=fp32,bf16-stochastic", "--tiny", "--out")
    for folder, extra, executor in (("there", ("--scheduler", room), None), ("here", (), one_by_one)):
        done = invoke(*arguments, tmp_path / folder, *extra, executor=executor)
        assert done.exit_code == 0, done.output
    for name in ("sweep.csv", "sweep.parquet", "sweep.json"):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()


def test_a_function_of_ones_own_is_swept_and_searched_by_a_machine_room(room):
    scale = 0.5
    axes = {"format": [sf.BF16, sf.E4M3], "seed": range(2)}
    here, there = (
        sf.studies.sweep(lambda format, seed: scale * error(format, seed), axes, scheduler=address)
        for address in (None, room)
    )
    assert here == there and here["value"] == [value / 2 for value in sf.studies.sweep(error, axes)["value"]]
    found = (sf.search(additive, parts=["compute"], seeds=range(2), scheduler=address) for address in (None, room))
    assert next(found) == next(found)


def test_a_job_that_a_scheduler_takes_to_its_grave_is_named():
    with pytest.raises(JobError, match=r"seed 3, failed: the scheduler lost the job, or ended \(cancelled\)"):
        worker_answer(SimpleNamespace(status="cancelled"), {"kind": "toy", "seed": 3})


def test_without_jobs_no_worker_is_contacted():
    assert list(on_scheduler("tcp://nobody:1")(run, [])) == []


def test_a_worker_with_other_sources_refuses(monkeypatch):
    monkeypatch.setattr(sf, "set_threads", lambda count: None)  # this process is no worker
    monkeypatch.setattr(terminal, "silence", lambda: None)
    arguments = (str(ROOT), run.__module__, run.__name__, '{"seed": 1}')
    assert json.loads(answer(*arguments, code_digest(run.__module__))) == {"result": {"seed": 1, "value": 2.0}}
    assert "other sources or versions of packages" in json.loads(answer(*arguments, "0"))["error"]


def test_dask_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(workspace, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"not installed: pip install 'simfloat\[sweep\]'"):
        on_scheduler("tcp://node:8786")
