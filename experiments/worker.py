"""A process that carries out jobs: python -m experiments.worker MODULE FUNCTION.

Each line of standard input is a job, each line of standard output its answer: {"result": ...}, or {"error": ...} with
"refused" true for a ValueError. The process ends when its input does, even in the middle of a job.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO


def main(module: str, name: str) -> None:
    """Answer jobs until standard input ends."""
    # What a job prints must not get among the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    jobs = queue.SimpleQueue[bytes]()
    threading.Thread(target=read, args=(sys.stdin.buffer, jobs), daemon=True).start()
    import simfloat as sf
    from simfloat.kernels import notice

    notice.silence()
    sf.set_threads(1)  # the other cores belong to the other processes
    function = getattr(importlib.import_module(module), name)
    while True:
        answers.write(json.dumps(answer(function, json.loads(jobs.get()))).encode() + b"\n")
        answers.flush()


def read(lines: BinaryIO, jobs: queue.SimpleQueue[bytes]) -> None:
    """Hand on the lines; when there are no more, nobody waits for an answer."""
    for line in lines:
        jobs.put(line)
    os._exit(0)


def answer(function: Callable[[Any], Any], job: Any) -> dict[str, Any]:
    """The result of a job, or why there is none."""
    try:
        return {"result": function(job)}
    except ValueError as error:
        return {"error": str(error), "refused": True}
    except Exception as error:  # a fault of the experiment: the parent says so, with the place
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return {"error": f"{type(error).__name__}: {error} ({frame.filename}, line {frame.lineno})"}


if __name__ == "__main__":
    main(*sys.argv[1:])
