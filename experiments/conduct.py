"""Conducting an experiment: its jobs, what was kept of them before, findings and files."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from experiments.executors import Executor
from experiments.experiment import Experiment, Job, Options, Result
from experiments.judging import findings_of
from experiments.results import write_results
from experiments.verdicts import Finding
from experiments.workspace import Workspace


def conduct(
    experiment: Experiment,
    options: Options,
    workspace: Workspace,
    executor: Executor,
    progress: Callable[[int, int], None],
) -> tuple[list[Finding], list[Path]]:
    """Carry out the jobs, tell `progress` how many of how many are done, and write what was found.

    Returns the findings and the paths of the files. Finished jobs are kept in the workspace until all files are
    written; then the next run computes anew. A tiny run finds no verdicts.
    """
    results = run_jobs(experiment.run, experiment.jobs(options), workspace, executor, progress)
    findings = findings_of(experiment, results, options.tiny)
    written = write_results(experiment, options, results, findings, workspace)
    workspace.finish()
    return findings, written


def run_jobs(
    function: Callable[[Job], Result],
    jobs: list[Job],
    workspace: Workspace,
    executor: Executor,
    progress: Callable[[int, int], None],
) -> list[Result]:
    """The results of the jobs, in their order; those that an earlier run has left are not computed again."""
    results = [workspace.find(job) for job in jobs]
    missing = [place for place, result in enumerate(results) if result is None]
    done = len(jobs) - len(missing)
    progress(done, len(jobs))
    with closing(executor(function, [jobs[place] for place in missing])) as finished:
        for number, result in finished:
            results[missing[number]] = result
            workspace.keep(jobs[missing[number]], result)
            done += 1
            progress(done, len(jobs))
    return [result for result in results if result is not None]
