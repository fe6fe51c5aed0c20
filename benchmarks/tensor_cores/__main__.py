"""python -m benchmarks.tensor_cores [FILE]: compare the installed GPU with our models, and write the results."""

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

#: The longest time for one instruction, or for one product of a library.
SECONDS = 60.0


class Task(NamedTuple):
    """One comparison: its section of the file, its name there, and the call that does it.

    If a result differs, `then` is called with the position of the first one.
    """

    section: str
    names: dict[str, Any]
    call: tuple[Any, ...]
    then: tuple[Any, ...] = ()


def run(path: Path | None, seconds: float, worker: Any) -> int:
    """Run all comparisons for which there is time; return 1 if an instruction gave other bits, or failed."""
    facts = worker.call(recording.facts, seconds=SECONDS)
    if facts["capability"] not in GPUS:
        raise Failure(f"there is no model of compute capability {facts['capability']}")
    where = path or recording.RECORDED / f"{re.sub(r'[^a-z0-9]+', '_', facts['device'].lower())}.json"
    file, stop = recording.Recording(where, {**recording.origin(), **facts}), time.monotonic() + seconds
    print(f"{facts['device']}, driver {facts['driver']}; writing {where}")
    for task in _tasks(facts["capability"], worker, file):
        start = time.monotonic()
        entry = _found(task, worker, stop)
        file.add(task.section, entry)
        print(f"{time.monotonic() - start:5.1f} s  {summary(entry)}", flush=True)
    return int(any(map(_is_bad, file.contents["instructions"])))


def _tasks(capability: int, worker: Any, file: recording.Recording) -> Iterator[Task]:
    """Yield instructions, then libraries; a missing library is recorded in the file."""
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
    """Return the entry of a task, or the reason why there is none."""
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
    """Return the number of seconds that a call may take."""
    left = min(SECONDS, stop - time.monotonic())
    if left <= 0:
        raise Failure("no time was left")
    return left


def summary(entry: dict[str, Any]) -> str:
    """Return an entry as one line."""
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
@click.option("--minutes", default=5.0, show_default=True, help="Results that are not found in that time are left out.")
def main(file: Path | None, minutes: float) -> None:
    """Compare the installed GPU with our models, and write FILE, by default in the folder that the tests replay.

    Exit code 1: an instruction gave other bits, or failed; 2: there is no GPU, or we have no model of it.
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
