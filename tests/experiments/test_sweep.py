"""Sweeps: one table of every point, none computed twice, mistakes in one message."""

import csv
import os

import pytest
from pyarrow.parquet import read_table

from experiments.catalog import EXPERIMENTS
from experiments.options import FIRST_SEED, Options
from simfloat.studies import SWEEP_HIDDEN as HIDDEN
from simfloat.studies import JobError, code_digest, one_by_one, versions
from tests.experiments.test_command_line import invoke, strict
from tests.experiments.toy import toy


@pytest.fixture(autouse=True)
def with_toy(monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "toy", toy())


def rows(folder):
    with (folder / "sweep.csv").open(newline="") as file:
        return list(csv.DictReader(file))


class Listening:
    """Carries out jobs here, and remembers which."""

    def __init__(self, most=None):
        self.jobs, self.most = [], most

    def __call__(self, function, jobs):
        for place, result in one_by_one(function, jobs):
            if len(self.jobs) == self.most:
                raise KeyboardInterrupt
            self.jobs.append(jobs[place])
            yield place, result


def test_the_table_has_a_row_for_each_point_as_csv_and_as_parquet(tmp_path):
    result = invoke("sweep", "toy", "seed=3,1", "kin=a,b", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    want = [(1, 3, "a", 6.0), (1, 3, "b", 6.0), (1, 1, "a", 2.0), (1, 1, "b", 2.0)]
    names = ("size", "seed", "kin", "value")
    assert rows(tmp_path) == [dict(zip(names, map(str, row), strict=True)) for row in want]
    assert read_table(tmp_path / "sweep.parquet").to_pylist() == [dict(zip(names, row, strict=True)) for row in want]
    assert result.output.startswith("4 points of toy\n") and str(tmp_path / "sweep.parquet") in result.output


def test_the_request_and_the_versions_are_stored_next_to_the_table(tmp_path):
    assert invoke("sweep", "toy", "seed=3,1", "--tiny", "--out", tmp_path).exit_code == 0
    found = strict((tmp_path / "sweep.json").read_text())
    assert found["experiment"] == "toy" and found["points"] == 2
    assert found["config"] == {"tiny": True, "axes": {"size": [1], "seed": [3, 1]}, "policies": {}}
    assert found["versions"] == versions() and found["code"] == code_digest("experiments")


def test_numbers_are_read_back_from_both_files_unchanged(tmp_path, monkeypatch):
    values = {1: 0.1 + 0.2, 2: float("nan"), 3: float("-inf"), 4: None, 5: -0.0, 6: 5e-324}
    monkeypatch.setitem(EXPERIMENTS, "toy", toy(run=lambda job: {**job, "value": values[job["seed"]]}))
    assert invoke("sweep", "toy", "seed=1,2,3,4,5,6", "--out", tmp_path).exit_code == 0
    assert [row["value"] for row in rows(tmp_path)] == [repr(0.1 + 0.2), "nan", "-inf", "", "-0.0", "5e-324"]
    read = read_table(tmp_path / "sweep.parquet")["value"].to_pylist()
    assert list(map(repr, read)) == list(map(repr, values.values()))


def test_a_sweep_with_more_values_computes_only_the_new_points(tmp_path):
    first, second, third = Listening(), Listening(), Listening()
    assert invoke("sweep", "toy", "seed=1,2", "--out", tmp_path, executor=first).exit_code == 0
    assert invoke("sweep", "toy", "seed=2,3,1", "--out", tmp_path, executor=second).exit_code == 0
    assert invoke("sweep", "toy", "seed=2,3,1", "--out", tmp_path, executor=third).exit_code == 0
    assert [[job["seed"] for job in asked.jobs] for asked in (first, second, third)] == [[1, 2], [3], []]
    assert [row["seed"] for row in rows(tmp_path)] == ["2", "3", "1"]


def test_an_interrupted_sweep_keeps_its_points_and_continues_from_there(tmp_path):
    result = invoke("sweep", "toy", "seed=1,2,3", "--out", tmp_path, executor=Listening(most=2))
    assert result.exit_code == 130 and result.output.startswith("Interrupted. Finished jobs (2) are kept in ")
    assert not (tmp_path / "sweep.csv").exists()
    rest = Listening()
    assert invoke("sweep", "toy", "seed=1,2,3", "--out", tmp_path, executor=rest).exit_code == 0
    assert [job["seed"] for job in rest.jobs] == [3] and len(rows(tmp_path)) == 3


def test_a_run_and_a_sweep_share_a_folder_and_leave_each_others_files_alone(tmp_path):
    for arguments in (("sweep", "toy", "seed=1"), ("run", "toy"), ("sweep", "toy", "seed=1,2")):
        assert invoke(*arguments, "--out", tmp_path).exit_code == 0
    want = {HIDDEN, "sweep.csv", "sweep.parquet", "sweep.json"}
    want |= {"summary.json", "metrics.jsonl", "results.parquet", "toy.png", "toy.pdf"}
    assert set(os.listdir(tmp_path)) == want and len(list((tmp_path / HIDDEN).glob("*.json"))) == 2


def test_a_point_that_fails_costs_no_other(tmp_path):
    def third_fails(function, jobs):
        yield from one_by_one(function, jobs[:2])
        raise JobError(jobs[2], "its process was ended by signal 9")

    result = invoke("sweep", "toy", "seed=1,2,3", "--out", tmp_path, executor=third_fails)
    assert result.exit_code == 1 and "The job of toy, seed 3, failed: its process was ended" in result.output
    assert "Finished jobs (2) are kept" in result.output and "Traceback" not in result.output


@pytest.mark.parametrize("arguments, message", [
    (("toy", "sed=1"), "Unknown axis 'sed'. Did you mean 'seed'? Axes:\n  size: a whole number"),
    (("toy", "seed=1,1"), "The axis seed has the value '1' twice"),
    (("toy", "seed="), "empty value"),
    (("toy", "seed=13"), "13 is no seed for a toy."),
    (("toys", "seed=1"), "Did you mean 'toy'?"),
    (("toy",), "Missing argument 'AXIS=a,b,c ...'"),
    (("toy", "seed=1", "--workers", "0"), "0 is not in the range"),
    (("toy", "seed=1", "--out", "/dev/null/x"), "Cannot write to the folder /dev/null/x"),
])  # fmt: skip
def test_mistakes_end_with_code_2_and_one_message(arguments, message):
    result = invoke("sweep", *arguments)
    assert result.exit_code == 2 and message in result.output and "Traceback" not in result.output


def test_an_experiment_without_axes_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr("tests.experiments.toy.GRID", None)
    monkeypatch.setitem(EXPERIMENTS, "toy", toy())
    result = invoke("sweep", "toy", "seed=1", "--out", tmp_path / "out")
    assert result.exit_code == 2 and "The experiment toy has no axes" in result.output
    assert not (tmp_path / "out").exists()


def test_an_invalid_address_and_one_beside_workers_are_refused():
    for address in ("foo", "tcp://", "tcp://:8786", "http://node:8786", "tcp://node:99999", "tcp://node"):
        result = invoke("sweep", "toy", "seed=1", "--scheduler", address, executor=None)
        assert result.exit_code == 2 and "must be like tcp://HOST:8786" in result.output
    result = invoke("sweep", "toy", "seed=1", "--scheduler", "tcp://node:1", "--workers", "2", executor=None)
    assert result.exit_code == 2 and "Pass only one of them." in " ".join(result.output.split())


def test_the_table_of_a_real_experiment_has_what_a_run_of_it_has(tmp_path):
    asked = ("sweep", "update-cancellation", "problem=diabetes", "policy=fp32,bf16-kahan", "--tiny", "--out", tmp_path)
    assert invoke(*asked).exit_code == 0
    experiment = EXPERIMENTS["update-cancellation"]
    same = {"problem": "diabetes", "variant": "bf16-kahan", "seed": FIRST_SEED}
    kahan = experiment.run(next(job for job in experiment.jobs(Options(tiny=True)) if same.items() <= job.items()))
    assert [row["policy"] for row in rows(tmp_path)] == ["fp32", "bf16-kahan"]
    assert rows(tmp_path)[1]["loss"] == repr(kahan["loss"][-1])
