"""Ctrl-C at any moment: one line, exit code 130, stored jobs, and no process left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def wait_for(condition, seconds=200):
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < seconds, "timed out"
        time.sleep(0.02)


def start_run(folder, workers=1):
    command = [sys.executable, "-m", "experiments", "run", "update-cancellation", "--workers", str(workers)]
    return subprocess.Popen(
        [*command, "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Where the tests run in the background, their shell may have had interrupts ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        start_new_session=True,
        cwd=ROOT,
        text=True,
    )


def is_listening(run):
    """True if the program handles signals: Python itself has no handler for termination (Linux)."""
    caught = next(
        line for line in Path(f"/proc/{run.pid}/status").read_text().splitlines() if line.startswith("SigCgt")
    )
    return int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1


def children(pid):
    """Process numbers of a process's children (Linux)."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def is_running(pid):
    """True if such a process exists and has not ended (Linux)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def finished_jobs(folder):
    return list((folder / ".simfloat-run").glob("*.json"))


def end(run):
    """Return the output of the program when it is stopped, and the seconds until it ends."""
    start = time.monotonic()
    output, errors = run.communicate(timeout=100)
    return output, errors, time.monotonic() - start


def test_a_run_that_is_ended_keeps_what_it_has_and_says_how_to_continue(tmp_path):
    run = start_run(tmp_path, workers=2)
    wait_for(lambda: len(finished_jobs(tmp_path)) >= 2)
    workers = children(run.pid)
    os.killpg(run.pid, signal.SIGTERM)  # as a terminal does: every process of the foreground
    output, errors, seconds = end(run)
    assert (run.returncode, output) == (130, "")
    assert errors.startswith("Interrupted. Finished jobs (") and errors.count("\n") == 1
    assert "run the same command again" in errors
    assert seconds < 20, "jobs that nobody will read are not waited for"
    assert workers and not any(map(is_running, workers))
    assert len(finished_jobs(tmp_path)) >= 2 and not (tmp_path / "summary.json").exists()
    for path in finished_jobs(tmp_path):
        json.loads(path.read_text())


@pytest.mark.parametrize("delay", [0, 0.8])
def test_a_run_can_be_interrupted_while_it_starts(tmp_path, delay):
    run = start_run(tmp_path)
    wait_for(lambda: is_listening(run))
    time.sleep(delay)
    os.killpg(run.pid, signal.SIGINT)
    output, errors, seconds = end(run)
    assert (run.returncode, output) == (130, "")
    assert errors.startswith("Interrupted.") and errors.count("\n") == 1
    assert seconds < 20


def test_a_second_interrupt_ends_what_the_first_has_not(tmp_path):
    run = start_run(tmp_path)
    wait_for(lambda: len(finished_jobs(tmp_path)) >= 1)
    workers = children(run.pid)
    for _ in range(5):
        os.killpg(run.pid, signal.SIGINT)
        time.sleep(0.005)
    output, errors, seconds = end(run)
    assert (run.returncode, output) == (130, "") and seconds < 20
    assert set(line.split(".")[0] for line in errors.splitlines()) == {"Interrupted"}
    wait_for(lambda: not any(map(is_running, workers)))


def test_a_killed_run_leaves_no_half_file_and_no_workers(tmp_path):
    run = start_run(tmp_path)
    wait_for(lambda: len(finished_jobs(tmp_path)) >= 1)
    workers = children(run.pid)
    assert workers
    run.kill()
    run.communicate()
    wait_for(lambda: not any(map(is_running, workers)))
    for path in finished_jobs(tmp_path):
        json.loads(path.read_text())


def test_a_killed_worker_is_reported_and_costs_no_finished_job(tmp_path):
    run = start_run(tmp_path)
    wait_for(lambda: len(finished_jobs(tmp_path)) >= 1)
    os.kill(children(run.pid)[0], signal.SIGKILL)
    _, errors, _ = end(run)
    assert run.returncode == 1 and "its process was ended by signal 9" in errors and "are kept in" in errors
    assert "Traceback" not in errors and finished_jobs(tmp_path)


def test_slow_imports_come_after_the_signals():
    code = "import sys, experiments.interrupts; print(*{'numpy', 'simfloat', 'click', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
