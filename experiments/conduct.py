"""Run an experiment: its jobs, its findings, and its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.experiment import Experiment
from experiments.options import Options
from simfloat.studies import (
    Executor,
    Finding,
    Result,
    Workspace,
    as_json,
    code_digest,
    discoveries,
    findings_of,
    run_jobs,
    versions,
    write_stored,
)
from simfloat.studies.report import METRICS, README, SUMMARY, notes_in
from simfloat.studies.stored import RESULTS_FILE


def conduct(
    experiment: Experiment,
    options: Options,
    workspace: Workspace,
    executor: Executor,
    progress: Callable[[int, int], None],
) -> tuple[list[Finding], list[Path]]:
    """Run the jobs, report to `progress` how many are done, and write the results.

    Returns the findings and the paths of the files. Finished jobs are kept in the workspace until all files are
    written; the next run then starts from the beginning. A tiny run has no verdicts.
    """
    results = run_jobs(experiment.run, experiment.jobs(options), workspace, executor, progress)
    findings = findings_of(experiment.findings, results, options.tiny)
    written = write_results(experiment, options, results, findings, workspace)
    workspace.finish()
    return findings, written


def file_names(experiment: Experiment) -> tuple[str, ...]:
    """Return the names of all files that may be written."""
    names = (each for figure in experiment.figures for each in drawn_names(figure.name))
    return (METRICS, RESULTS_FILE, *names, SUMMARY)


def drawn_names(name: str, tiny: bool = False) -> list[str]:
    """Return the files of a figure: a picture for screens and, except in a tiny run, a PDF for papers."""
    return [name] if tiny else [name, str(Path(name).with_suffix(".pdf"))]


def write_results(
    experiment: Experiment, options: Options, results: list[Result], findings: list[Finding], workspace: Workspace
) -> list[Path]:
    """Write the results, the summary last, and return their paths."""
    rows = "".join(as_json(row) + "\n" for result in results for row in experiment.metrics(result))
    written = [workspace.write(METRICS, lambda path: path.write_text(rows, encoding="utf-8"))]
    written.append(workspace.write(RESULTS_FILE, lambda path: write_stored(results, path)))
    for name, draw in experiment.drawings(results).items():
        written += [workspace.write(each, draw) for each in drawn_names(name, options.tiny)]
    text = as_json(summary(experiment, options, findings), indent=1) + "\n"
    return [*written, workspace.write(SUMMARY, lambda path: path.write_text(text, encoding="utf-8"))]


def summary(experiment: Experiment, options: Options, findings: list[Finding]) -> dict[str, Any]:
    """Return the settings, versions and findings of a run."""
    readme = Path(__file__).parent / experiment.name.replace("-", "_") / README
    return {
        **(notes_in(readme.read_text(encoding="utf-8")) if readme.is_file() else {}),
        "experiment": experiment.name,
        "question": experiment.question,
        "config": {"tiny": options.tiny, "seeds": options.seeds, "policy": options.policy and options.policy.to_dict()},
        "seed": list(options.seed_numbers),
        "versions": versions(),
        "code": code_digest("experiments"),
        "findings": [finding._asdict() for finding in findings],
        "discoveries": discoveries(finding.p for finding in findings)._asdict(),
    }
