"""The command line and the runner: what is printed, what is written, what is refused, what survives a kill."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import simfloat as sf
from experiments import EXPERIMENTS, datasets
from experiments.__main__ import main
from experiments.experiment import Options
from experiments.runner import job_path, write_file

ROOT = Path(__file__).parents[2]


def invoke(*arguments):
    return CliRunner().invoke(main, list(arguments))


def test_list_prints_one_line_an_experiment_its_name_first():
    result = invoke("list")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.output.splitlines()] == list(EXPERIMENTS)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_tiny_run_prints_findings_and_writes_results(name, tmp_path):
    command = [sys.executable, "-m", "experiments", "run", name, "--tiny", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for word in ("claim", "measured", "verdict", EXPERIMENTS[name].question):
        assert word in done.stdout
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["experiment"] == name and summary["config"]["seeds"] == 2 and summary["config"]["tiny"]
    assert {"simfloat", "numpy", "numba", "python"} <= set(summary["versions"])
    assert all({"claim", "expectation", "measured", "verdict"} <= set(finding) for finding in summary["findings"])
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert {row["seed"] for row in rows} == {0, 1}
    figures = list(tmp_path.glob("*.png"))
    assert figures and all(path.read_bytes().startswith(b"\x89PNG") for path in figures)
    assert {path.name for path in tmp_path.iterdir()} == {"summary.json", "metrics.jsonl", *(f.name for f in figures)}


def test_a_policy_file_can_be_run(tmp_path):
    policy = tmp_path / "narrow.toml"
    policy.write_text('compute = "e5m2"\nweights = "bf16"\n')
    command = [sys.executable, "-m", "experiments", "run", "update-cancellation", "--tiny", "--seeds", "1"]
    command += ["--policy", str(policy), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "narrow comes close to fp32" in done.stdout
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["config"]["policy"]["compute"] == "E5M2"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("run", "update-cancelation"), "Did you mean 'update-cancellation'?"),
        (("run", "update-cancellation", "--policy", "bf17"), "Unknown policy 'bf17'. Policies: fp64"),
        (("run", "update-cancellation", "--policy", "missing.toml"), "missing.toml: "),
        (("run", "update-cancellation", "--seeds", "0"), "0 is not in the range x>=1"),
        (("run", "update-cancellation", "--fast"), "No such option"),
        (("run",), "Missing argument 'NAME'"),
        (("draw",), "No such command 'draw'"),
    ],
)
def test_mistakes_end_with_code_2_and_no_traceback(arguments, message):
    result = invoke(*arguments)
    assert result.exit_code == 2 and message in result.output
    assert "Traceback" not in result.output


def test_a_policy_file_with_a_mistake_is_refused(tmp_path):
    path = tmp_path / "wrong.toml"
    path.write_text('compute = "bf16"\nupdte = "kahan"\n')
    result = invoke("run", "update-cancellation", "--policy", str(path))
    assert result.exit_code == 2 and "A policy has no key 'updte'" in result.output


def wait_for(condition, seconds=90):
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < seconds, "timed out"
        time.sleep(0.05)


def start_run(folder):
    command = [sys.executable, "-m", "experiments", "run", "update-cancellation", "--out", str(folder)]
    # Where the tests run in the background, their shell may have had interrupts ignored.
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        cwd=ROOT,
        text=True,
    )


def finished_jobs(folder):
    return [path for path in (folder / "jobs").glob("*.json") if not path.name.startswith(".")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_what_it_has_and_says_how_to_go_on(tmp_path, number):
    run = start_run(tmp_path)
    wait_for(lambda: len(finished_jobs(tmp_path)) >= 2)
    run.send_signal(number)
    _, errors = run.communicate(timeout=120)
    assert run.returncode == 130
    assert "Interrupted with" in errors and "run the same command again" in errors and "Traceback" not in errors
    assert len(finished_jobs(tmp_path)) >= 2
    assert not (tmp_path / "summary.json").exists()
    for path in (tmp_path / "jobs").iterdir():
        json.loads(path.read_text())


def test_a_killed_run_leaves_no_half_file_and_no_workers(tmp_path):
    run = start_run(tmp_path)
    wait_for(lambda: len(finished_jobs(tmp_path)) >= 1)
    workers = children(run.pid)
    assert workers
    run.kill()
    run.communicate()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), 120)
    for path in finished_jobs(tmp_path):
        json.loads(path.read_text())


def children(pid):
    """Process numbers of a process's children (Linux)."""
    lines = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in lines.read_text().split()]


def test_a_job_is_known_by_all_that_its_result_depends_on(tmp_path):
    jobs = EXPERIMENTS["update-cancellation"].jobs(Options(seeds=2))
    tiny = EXPERIMENTS["update-cancellation"].jobs(Options(seeds=2, tiny=True))
    paths = {job_path(job, tmp_path) for job in [*jobs, *tiny]}
    assert len(paths) == len(jobs) + len(tiny)


def test_a_file_is_written_completely_or_not_at_all(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fails(temporary):
        temporary.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(path, fails)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.txt"]


def test_data_sets_are_scikit_learns():
    from sklearn.datasets import load_diabetes, load_digits

    x, y = datasets.diabetes()
    want_x, want_y = load_diabetes(return_X_y=True)
    np.testing.assert_allclose(x / np.sqrt(len(x)), want_x, atol=1e-12)
    assert (y == want_y).all()
    images, labels = datasets.digits()
    want_images, want_labels = load_digits(return_X_y=True)
    assert (images * 16 == want_images).all() and (labels == want_labels).all()


def test_presets_of_the_experiment_are_policies_that_print():
    from experiments.update_cancellation.policies import POLICIES

    for name, policy in POLICIES.items():
        assert policy.name == name and sf.Policy.from_dict(policy.to_dict()) == policy
