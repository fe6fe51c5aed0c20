"""python -m benchmarks.tensor_cores [FILE]: compare the GPU at hand with our models, and write what was found."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import click

from benchmarks.tensor_cores import comparing, libraries, recording
from benchmarks.tensor_cores.instructions import GPUS, units
from benchmarks.tensor_cores.worker import Failure, Worker
from simfloat.analysis.reveal import MOST_TERMS
from simfloat.arithmetic.machines import what_cuda_lacks

#: Where the tests look for files.
RECORDED = Path("tests", "cuda", "recorded")

#: The longest that one instruction, or one product of a library, may take.
SECONDS = 60.0


class Task(NamedTuple):
    """Something to be found: the section of the file for it, what it is called there, and the call that finds it.

    `then` is called with the first place that differs, if any does.
    """

    section: str
    names: dict[str, Any]
    call: tuple[Any, ...]
    then: tuple[Any, ...] = ()


def run(path: Path | None, seconds: float, worker: Any) -> int:
    """Find all that there is time for; 1 if an instruction gave other bits than our model, or none."""
    facts = worker.call(recording.facts, seconds=SECONDS)
    if facts["capability"] not in GPUS:
        raise Failure(f"there is no model of compute capability {facts['capability']}")
    where = path or RECORDED / f"{re.sub(r'[^a-z0-9]+', '_', facts['device'].lower())}.json"
    file, stop = recording.Recording(where, facts), time.monotonic() + seconds
    print(f"{facts['device']}, driver {facts['driver']}; writing {where}")
    for task in _tasks(facts["capability"], worker, file):
        start = time.monotonic()
        entry = _found(task, worker, stop)
        file.add(task.section, entry)
        print(f"{time.monotonic() - start:5.1f} s  {summary(entry)}", flush=True)
    return int(any(map(_is_bad, file.contents["instructions"])))


def _tasks(capability: int, worker: Any, file: recording.Recording) -> Iterator[Task]:
    """Instructions, then libraries; the file is told of a library that is not there."""
    for unit in units(capability):
        yield Task("instructions", {"instruction": unit.name}, (comparing.compared, unit, capability))
    for library in libraries.LIBRARIES:
        try:
            names = worker.call(libraries.names_on_gpu, library, seconds=SECONDS)
        except Failure as failure:
            print(f"         {library} is left out: {failure}")
            file.add("libraries", {"product": library, "error": str(failure)})
            continue
        for shape, name in product(libraries.SHAPES, names):
            call = (libraries.counted_on_gpu, library, name, shape, GPUS[capability].architecture)
            then = (libraries.revealed_on_gpu, library, name, shape) if shape[2] <= MOST_TERMS else ()
            yield Task("libraries", {"product": name, "shape": list(shape)}, call, then)


def _found(task: Task, worker: Any, stop: float) -> dict[str, Any]:
    """The entry of a task, which says why if there is none."""
    try:
        entry = worker.call(*task.call, seconds=_left(stop))
    except Failure as failure:
        return {**task.names, "error": str(failure)}
    if task.then and "first" in entry:
        try:
            entry |= worker.call(*task.then, entry["first"], seconds=_left(stop))
        except Failure as failure:
            entry["reason"] = str(failure)
    return entry


def _left(stop: float) -> float:
    """How many seconds something may take."""
    left = min(SECONDS, stop - time.monotonic())
    if left <= 0:
        raise Failure("no time was left")
    return left


def summary(entry: dict[str, Any]) -> str:
    """An entry in a line."""
    name = entry.get("instruction") or f"{entry['product']}, {' x '.join(map(str, entry['shape']))}"
    for what in ("error", "layout"):
        if what in entry:
            return f"{name}: {what}: {entry[what]}"
    cases = entry.get("cases", [entry])
    counts = [sum(case[key] for case in cases) for key in ("differing", "results")]
    text = f"{name}: {counts[0]:,} of {counts[1]:,} results differ from {entry['model']}"
    if "reason" in entry:
        found = f"{entry['differing from it']:,} from {entry['found']}" if "found" in entry else entry["reason"]
        text += f"; {found}"
    return text


def _is_bad(entry: dict[str, Any]) -> bool:
    return "cases" not in entry or any(case["differing"] for case in entry["cases"])


@click.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--minutes", default=5.0, show_default=True, help="What is not found in that time is left out.")
def main(file: Path | None, minutes: float) -> None:
    """Compare the GPU at hand with our models, and write FILE, by default among those that the tests replay.

    Exit code 1: an instruction gave other bits, or failed; 2: there is no GPU, or none that we have a model of.
    """
    try:
        if (missing := what_cuda_lacks()) is not None:
            raise Failure(missing)
        with Worker() as worker:
            code = run(file, 60 * minutes, worker)
    except Failure as failure:
        print(f"benchmarks.tensor_cores: {failure}", file=sys.stderr)
        code = 2
    sys.exit(code)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.tensor_cores")
