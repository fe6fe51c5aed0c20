"""Running an experiment's jobs in processes, so that whatever happens no half-written file is left behind."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import platform
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path
from typing import Any

import simfloat as sf
from experiments.experiment import Experiment, Finding, Job, Options, Result


def run_jobs(experiment: Experiment, jobs: list[Job], folder: Path) -> Iterator[Result]:
    """The results of the jobs as they are finished; those that an earlier run left in the folder come first."""
    (folder / "jobs").mkdir(parents=True, exist_ok=True)
    missing = []
    for job in jobs:
        path = job_path(job, folder)
        if path.exists():
            yield json.loads(path.read_text())
        else:
            missing.append(job)
    if not missing:
        return
    workers = min(len(missing), sf.get_threads())
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker) as pool:
        try:
            futures = {pool.submit(experiment.run, job): job for job in missing}
            for future in as_completed(futures):
                result = future.result()
                write_atomically(job_path(futures[future], folder), json.dumps(result))
                yield result
        except BaseException:
            # Do not wait for jobs that nobody will read.
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list((pool._processes or {}).values()):
                process.terminate()
            raise


def _start_worker() -> None:
    """Leave an interrupt to the parent and the other cores to the other workers; end when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sf.set_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def job_path(job: Job, folder: Path) -> Path:
    """Where a job's result is kept; the name depends on all that the result depends on."""
    key = json.dumps({**job, "simfloat": sf.__version__}, sort_keys=True)
    return folder / "jobs" / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that it is there completely or not at all."""
    write_file(path, lambda temporary: temporary.write_text(text))


def write_file(path: Path, write: Callable[[Path], Any]) -> None:
    """Let `write` make a file under a temporary name beside `path`, then give it its own."""
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_results(
    experiment: Experiment, options: Options, results: list[Result], findings: list[Finding], folder: Path
) -> list[Path]:
    """Write metrics.jsonl, summary.json and the figures; returns their paths."""
    rows = [json.dumps(row) for result in results for row in experiment.metrics(result)]
    summary = {
        "experiment": experiment.name,
        "config": {"tiny": options.tiny, "seeds": options.seeds, "policy": options.policy and options.policy.to_dict()},
        "versions": versions(),
        "findings": [{**finding._asdict(), "verdict": finding.verdict} for finding in findings],
    }
    write_atomically(folder / "metrics.jsonl", "\n".join(rows) + "\n")
    figures = experiment.figures(results, folder)
    write_atomically(folder / "summary.json", json.dumps(summary, indent=1) + "\n")
    # All that the jobs found is in the metrics now; the next run computes anew.
    shutil.rmtree(folder / "jobs", ignore_errors=True)
    return [folder / "metrics.jsonl", folder / "summary.json", *figures]


def versions() -> dict[str, str]:
    """Of all that a result might depend on."""
    packages = {name: version(name) for name in ("numpy", "numba", "scikit-learn")}
    return {"simfloat": sf.__version__, "python": platform.python_version(), "machine": platform.machine(), **packages}
