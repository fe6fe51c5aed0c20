"""The folder of a run: our files, other files, and files that survive."""

import json
import os

import pytest

from simfloat.studies import one_by_one, run_jobs
from simfloat.studies import workspace as workspaces
from simfloat.studies.workspace import HIDDEN_FOLDER, LOCK, MARKER, Workspace, write_file

JOB = {"kind": "toy", "seed": 1}


def test_kept_jobs_are_found_again_and_cleared_with_all_that_is_ours(tmp_path):
    with Workspace(tmp_path / "new" / "folder", "experiments") as workspace:
        assert workspace.find(JOB) is None
        workspace.keep(JOB, {"value": 2.5})
    with Workspace(tmp_path / "new" / "folder", "experiments") as workspace:
        assert workspace.find(JOB) == {"value": 2.5} and workspace.find({**JOB, "seed": 2}) is None
        workspace.finish()
    assert os.listdir(tmp_path / "new" / "folder") == []


def test_files_of_the_user_stay_in_the_folder(tmp_path):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "thesis.json").write_text("{}")
    with Workspace(tmp_path, "experiments") as workspace:
        workspace.keep(JOB, {"value": 1})
        (workspace.hidden / "notes.txt").write_text("mine")
        workspace.finish()
    assert (tmp_path / "jobs" / "thesis.json").read_text() == "{}"
    assert (tmp_path / HIDDEN_FOLDER / "notes.txt").read_text() == "mine"


def test_a_hidden_folder_of_somebody_else_is_refused_and_left_alone(tmp_path):
    (tmp_path / HIDDEN_FOLDER).mkdir()
    (tmp_path / HIDDEN_FOLDER / "theirs").write_text("x")
    with pytest.raises(ValueError, match="was not created by simfloat, 'theirs' is in it"):
        Workspace(tmp_path, "experiments").__enter__()
    assert (tmp_path / HIDDEN_FOLDER / "theirs").read_text() == "x"


def test_two_runs_never_share_a_folder(tmp_path):
    with Workspace(tmp_path, "experiments") as first:
        first.keep(JOB, {"value": 1})
        with pytest.raises(ValueError, match="Another run is writing to .* Wait until it has ended"):
            Workspace(tmp_path, "experiments").__enter__()
        assert first.find(JOB) == {"value": 1}
    with Workspace(tmp_path, "experiments") as second:
        assert second.find(JOB) == {"value": 1}, "the lock ends with its run"


def test_obstacles_are_found_before_the_work(tmp_path):
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(ValueError, match="metrics.jsonl is a folder"):
        Workspace(tmp_path, "experiments", ("metrics.jsonl",)).__enter__()
    (tmp_path / "file").write_text("")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / HIDDEN_FOLDER).write_text("")
    for name in ("file", "other"):
        with pytest.raises(ValueError, match="Cannot write to the folder"):
            Workspace(tmp_path / name, "experiments").__enter__()


@pytest.mark.parametrize("text", ["", "{", "null", "[1]", '{"job": 1}', '{"result": {}}', "\0", '{"a":' * 100_000])
def test_a_damaged_job_is_computed_again(tmp_path, text):
    with Workspace(tmp_path, "experiments") as workspace:
        workspace.job_path(JOB).write_text(text)
        results = run_jobs(lambda job: {"value": job["seed"]}, [JOB], workspace, one_by_one, lambda done, jobs: None)
        assert results == [{"value": 1}] == [workspace.find(JOB)]


def test_a_job_of_another_state_of_the_code_is_computed_again(tmp_path, monkeypatch):
    with Workspace(tmp_path, "experiments") as workspace:
        workspace.keep(JOB, {"value": 1})
        monkeypatch.setattr("simfloat.studies.workspace.code_digest", lambda module: "other sources")
        assert workspace.find(JOB) is None


def test_the_digest_is_of_all_sources_and_versions(tmp_path, monkeypatch):
    digest = workspaces.code_digest("experiments.conduct")
    fresh = workspaces.code_digest.__wrapped__
    assert digest == fresh("experiments"), "it depends on nothing else"
    monkeypatch.setattr(workspaces, "versions", lambda: {"numpy": "0"})
    assert fresh("experiments") != digest
    monkeypatch.undo()
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "a_study.py").write_text("x = 1")
    first = fresh("a_study")
    (tmp_path / "a_study.py").write_text("x = 2")
    assert len({digest, first, fresh("a_study")}) == 3


def test_results_come_in_the_order_of_the_jobs_whatever_is_finished_first(tmp_path):
    jobs = [{"seed": seed} for seed in range(6)]

    def backwards(function, jobs):
        for place in reversed(range(len(jobs))):
            yield place, function(jobs[place])

    told = []
    with Workspace(tmp_path, "experiments") as workspace:
        workspace.keep(jobs[3], {"value": 3})
        results = run_jobs(lambda job: {"value": job["seed"]}, jobs, workspace, backwards, lambda *n: told.append(n))
    assert [result["value"] for result in results] == list(range(6))
    assert told == [(done, 6) for done in range(1, 7)]


def test_a_file_is_written_completely_or_not_at_all(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fails(temporary):
        temporary.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(path, fails, tmp_path)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.txt"]


def test_a_run_that_finished_nothing_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), Workspace(tmp_path, "experiments") as workspace:
        assert workspace.count_finished_jobs() == 0
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


def test_a_kept_job_names_itself(tmp_path):
    with Workspace(tmp_path, "experiments") as workspace:
        workspace.keep(JOB, {"value": 1})
        assert json.loads(workspace.job_path(JOB).read_text()) == {"job": JOB, "result": {"value": 1}}
        assert {MARKER, LOCK, workspace.job_path(JOB).name} == set(os.listdir(workspace.hidden))
