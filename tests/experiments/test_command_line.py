"""The command line: output, files, and errors in one message with the right exit code."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from experiments import command_line, display
from experiments.__main__ import IMPORTED
from experiments.catalog import EXPERIMENTS
from experiments.command_line import main
from experiments.options import FIRST_SEED, Options
from simfloat import studies
from simfloat.studies import Finding, one_by_one
from tests.experiments.toy import toy
from tests.figures import make_coarse
from tests.processes import without_notice

ROOT = Path(__file__).parents[2]


def invoke(*arguments, executor=one_by_one, **settings):
    return CliRunner(**settings).invoke(main, list(map(str, arguments)), obj=executor)


def test_packages_that_are_missing_are_one_line_that_says_how_to_get_them():
    code = (
        "import runpy, sys\n"
        "sys.modules['click'] = sys.modules['rich'] = None\n"
        "runpy.run_module('experiments', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=100)
    want = "The experiments need click, rich: pip install 'simfloat[experiments]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", want)


def test_the_error_names_the_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {re.match(r"[\w-]+", line)[0] for line in (*extras["experiments"], *extras["studies"])}
    assert named - {"simfloat"} == set(IMPORTED)
    assert {re.match(r"[\w-]+", line)[0] for line in extras["studies"]} == set(studies._NEEDED)


@pytest.fixture
def with_toy(monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "toy", toy())


def test_list_prints_one_line_an_experiment_its_name_first():
    result = invoke("list")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.output.splitlines()] == list(EXPERIMENTS)


def strict(text):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def fields(rows):
    """The fields that distinguish jobs, each once, in order of appearance."""
    return list(dict.fromkeys(tuple(row.get(key) for key in ("kind", "problem", "variant", "seed")) for row in rows))


#: Experiments of few jobs, which have the two seeds of a tiny run here; one seed is enough for the others.
SMALL = ("cheapest-policy", "harmonic-series", "replica-sums", "update-limits")


@pytest.fixture
def coarse(monkeypatch):
    make_coarse(monkeypatch.setattr)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_tiny_run_prints_findings_without_verdicts_and_writes_results(name, tmp_path, coarse):
    count = 2 if name in SMALL else 1
    done = invoke("run", name, "--tiny", *(() if name in SMALL else ("--seeds", count)), "--out", tmp_path)
    assert done.exit_code == 0, done.output
    for word in ("claim", "measured", "verdict", EXPERIMENTS[name].question):
        assert word in done.output
    summary = strict((tmp_path / "summary.json").read_text())
    assert summary["experiment"] == name and summary["config"] == {"tiny": True, "seeds": count, "policy": None}
    seeds = [*range(FIRST_SEED, FIRST_SEED + count)]
    assert summary["seed"] == seeds
    assert {"simfloat", "numpy", "numba", "python"} <= set(summary["versions"])
    for finding in summary["findings"]:
        assert set(Finding._fields) == set(finding) and finding["verdict"] is finding["p"] is None
    assert summary["discoveries"] == {"tested": 0, "decided": 0, "rate": None}
    rows = [strict(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert {row["seed"] for row in rows} == set(seeds)
    jobs = EXPERIMENTS[name].jobs(Options(tiny=True, seeds=count))
    assert fields(rows) == fields(jobs), "the rows are in the order of the jobs"
    figures = list(tmp_path.glob("*.png"))
    assert figures and all(path.read_bytes().startswith(b"\x89PNG") for path in figures)
    written = {"summary.json", "metrics.jsonl", "results.parquet", *(figure.name for figure in figures)}
    assert {path.name for path in tmp_path.iterdir()} == written


def test_a_run_in_processes_leaves_what_a_run_in_this_one_does(tmp_path, coarse):
    arguments = ("run", "update-limits", "--tiny", "--workers", "1", "--out")
    done = invoke(*arguments, tmp_path / "there", executor=None)
    assert done.exit_code == 0, done.stderr
    assert "measured" in done.stdout and "measured" not in done.stderr
    assert invoke(*arguments, tmp_path / "here").exit_code == 0
    for name in os.listdir(tmp_path / "here"):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()


@pytest.mark.parametrize("name", ["fp32", "[/red]x $a$ _ü"])
def test_a_policy_is_compared_with_fp32_whatever_its_name(name, tmp_path, coarse):
    policy = tmp_path / "narrow.toml"
    policy.write_text(f'name = "{name}"\ncompute = "e5m2"\nweights = "bf16"\n', encoding="utf-8-sig")
    out = tmp_path / "out"
    arguments = ("run", "update-cancellation", "--tiny", "--seeds", "1", "--policy", policy, "--out", out)
    assert invoke(*arguments).exit_code == 0
    label = "fp32 (given)" if name == "fp32" else name
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert f"digits: {label} comes close to fp32" in [finding["claim"] for finding in summary["findings"]]
    assert summary["config"]["policy"]["compute"] == "E5M2"
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = {row["variant"]: row["loss"] for row in rows if row["problem"] == "digits"}
    assert {row["label"] for row in rows} == {"fp32", label} and losses["fp32"] != losses["given"]


def test_a_run_has_as_many_processes_as_are_asked_for(monkeypatch, with_toy, tmp_path):
    asked = []

    def counted(function, jobs, workers):
        asked.append(workers)
        return one_by_one(function, jobs)

    monkeypatch.setattr(command_line, "in_processes", counted)
    for given in ((), ("--workers", 3)):
        assert invoke("run", "toy", *given, "--out", tmp_path, executor=None).exit_code == 0
    assert asked == [None, 3]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("run", "update_cancelation"), "Did you mean 'update-cancellation'?"),
        (("run", "update-cancellation", "--policy", "bf17"), "Unknown policy 'bf17'. Policies: fp64"),
        (("run", "update-cancellation", "--policy", "fp23"), "Did you mean 'fp32'? Pass your own policy as"),
        (("run", "update-cancellation", "--policy", "missing.toml"), "missing.toml. Give the path of a file that"),
        (("run", "update-cancellation", "--seeds", "0"), "0 is not in the range"),
        (("run", "update-cancellation", "--workers", "0"), "0 is not in the range"),
        (("run", "update-cancellation", "--seeds", 10**12), "is not in the range"),
        (("run", "update-cancellation", "--fast"), "No such option"),
        (("run", "update-cancellation", "--out", "/dev/null/x"), "Cannot write to the folder /dev/null/x"),
        (("run", "update-cancellation", "--out", "a\0b"), "null"),
        (("paper", "--out", "results"), "--out must end with .html, or browsers do not read the page; got results."),
        (("run",), "Missing argument 'NAME'"),
        (("draw",), "No such command 'draw'. Commands: list, claims, run, sweep, report, paper."),
        (("rum", "update-cancellation"), "Commands: list, claims, run, sweep, report, paper. Did you mean 'run'?"),
        (("update-cancellation",), "Did you mean 'run update-cancellation'?"),
        ((), "Usage"),
    ],
)
def test_mistakes_end_with_code_2_and_one_message(arguments, message):
    result = invoke(*arguments)
    assert result.exit_code == 2 and message in result.output
    assert isinstance(result.exception, SystemExit) and "Traceback" not in result.output


@pytest.mark.parametrize("text, message", [
    (b'compute = "bf16"\nupdte = "kahan"\n', "A policy has no key 'updte'"),
    (b'compute = "bf16"\noverrides = 5\n', "overrides"),
    (b'compute = "bf16"\nname = ["a"]\n', "name"),
    (b'compute = "bf16"\nname = "\xff"\n', "utf-8"),
    (b"compute = ", "compute = "),
    (b'compute = "bf16"\n[[overrides]]\npath = "head"\nweights = "fp32"\n', "does not fit the problem synthetic: "),
    (b'compute = "e5m2"\naccumulate = "tensor_core(\'hopper\', E4M3)"\n', "does not fit the problem digits: "),
])  # fmt: skip
def test_a_policy_that_cannot_be_used_is_refused_before_the_work(text, message, tmp_path):
    path = tmp_path / "wrong.toml"
    path.write_bytes(text)
    result = invoke("run", "update-cancellation", "--policy", path, "--out", tmp_path / "out")
    assert result.exit_code == 2 and isinstance(result.exception, SystemExit), result.output
    assert message in result.output or message == "compute = "
    assert not (tmp_path / "out").exists()


def test_a_users_files_survive_a_run(with_toy, tmp_path):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "thesis.json").write_text("{}")
    assert invoke("run", "toy", "--out", tmp_path).exit_code == 0
    assert (tmp_path / "jobs" / "thesis.json").read_text() == "{}"
    assert sorted(os.listdir(tmp_path)) == [
        "jobs", "metrics.jsonl", "results.parquet", "summary.json", "toy.pdf", "toy.png",
    ]  # fmt: skip


def test_a_second_run_into_the_folder_of_a_running_one_is_refused(with_toy, tmp_path):
    def meanwhile(function, jobs):
        second = invoke("run", "toy", "--out", tmp_path)
        assert second.exit_code == 2 and "Another run is writing to" in second.output
        yield from one_by_one(function, jobs)

    assert invoke("run", "toy", "--out", tmp_path, executor=meanwhile).exit_code == 0


def test_finished_jobs_are_stored_when_a_job_fails(with_toy, tmp_path):
    def second_fails(function, jobs):
        yield 0, function(jobs[0])
        yield from one_by_one(refuse, jobs[1:])

    def refuse(job):
        raise ValueError("4 came.")

    first = invoke("run", "toy", "--out", tmp_path, executor=second_fails)
    assert first.exit_code == 2 and f"The job of toy, seed {FIRST_SEED + 1}, failed: 4 came." in first.output
    assert "run the same command again to continue" in first.output
    asked = []

    def listening(function, jobs):
        asked.extend(jobs)
        yield from one_by_one(function, jobs)

    assert invoke("run", "toy", "--out", tmp_path, executor=listening).exit_code == 0
    assert [job["seed"] for job in asked] == [FIRST_SEED + 1, FIRST_SEED + 2]


def test_a_full_disk_loses_no_finished_job(with_toy, tmp_path, monkeypatch):
    def full(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(EXPERIMENTS, "toy", toy(metrics=full))
    result = invoke("run", "toy", "--out", tmp_path)
    assert result.exit_code == 1 and "The run stopped: [Errno 28] No space left on device" in result.output
    assert len(list((tmp_path / ".simfloat-run").glob("*.json"))) == 3


def test_values_that_are_not_finite_are_null(with_toy, tmp_path, monkeypatch):
    rows = [{"seed": 0, "nan": float("nan"), "values": [float("inf"), 1.5]}]
    monkeypatch.setitem(EXPERIMENTS, "toy", toy(metrics=lambda result: rows))
    assert invoke("run", "toy", "--seeds", "1", "--out", tmp_path).exit_code == 0
    assert strict((tmp_path / "metrics.jsonl").read_text()) == {"seed": 0, "nan": None, "values": [None, 1.5]}


@pytest.mark.parametrize("redirect, code", [(">&-", 0), ("> /dev/full", 1)])
def test_output_that_nobody_reads_costs_no_results(redirect, code, tmp_path):
    script = (
        "import tests.experiments.toy as t, experiments.catalog as c, simfloat.studies as e\n"
        "from experiments.command_line import main\n"
        "import os; c.EXPERIMENTS['toy'] = t.toy()\n"
        "main(['run', 'toy', '--out', os.environ['OUT']], obj=e.one_by_one)\n"
    )
    line = f'"{sys.executable}" -c "$SCRIPT" {redirect}'
    environment = {**os.environ, "SCRIPT": script, "OUT": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr
    assert (tmp_path / "summary.json").exists() and "Traceback" not in done.stderr and "Exception" not in done.stderr
    if redirect == "> /dev/full":
        assert without_notice(done.stderr) == "Cannot write to standard output: No space left on device.\n"


def test_an_ascii_terminal_gets_question_marks(with_toy, tmp_path):
    policy = tmp_path / "ü.toml"
    policy.write_text('compute = "bf16"')
    result = invoke("run", "toy", "--policy", policy, "--out", tmp_path / "ü", charset="ascii")
    assert result.exit_code == 0 and "measured (mean ? standard deviation" in " ".join(result.output.split())


def test_a_narrow_terminal_cuts_nothing_off(monkeypatch, capsys):
    for width in (20, 80, 109, 110, 200):
        monkeypatch.setattr(display, "FILE_WIDTH", width)
        finding = Finding("a long claim " * 9, "expect" * 5, "1.0 ± 0.1", "t, n = 5", "not reproduced")
        display.show_findings(toy(), [finding])
        output = capsys.readouterr().out
        assert max(map(len, output.splitlines())) <= width
        letters = "".join(letter for letter in output if letter.isalpha() or letter.isdigit())
        assert "…" not in output and output.count("claim") >= 9
        if width < 110:
            assert "notreproduced" in letters and letters.replace("expectation", "").count("expect") >= 4


def test_names_are_no_markup(with_toy, capsys):
    display.show_findings(toy(), [Finding("[/red]x [bold]y", "e", "m", "t", None)])
    assert "[/red]x [bold]y" in capsys.readouterr().out
