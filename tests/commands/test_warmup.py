"""simfloat warmup: afterwards no kernel is left to compile."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import pytest

from simfloat.tools.commands import warmup
from simfloat.tools.selftest import CHECKS
from tests.processes import without_notice

ROOT = Path(__file__).parents[2]
NOTHING_ASKED = argparse.Namespace(into=None, level=[{}], first_session=False)

# Runs the tasks of a first session and the programs of README and of the quick start, then all checks of the self-test,
# with few cases, and all other tasks. It prints the kernels that only the programs called, and those that were not
# compiled at the end.
EVERYTHING = """
import contextlib, importlib, importlib.util, io, pkgutil, re
from pathlib import Path
import simfloat.kernels
from simfloat.__main__ import main
from simfloat.kernels.compile import jit, processor
from simfloat.tools.commands import workload
from simfloat.tools.selftest import CHECKS

def versions():
    return {(kernel.__name__, str(types)) for kernel in jit.KERNELS for types in kernel.overloads}

for task in workload.FIRST_SESSION.values():
    task()
called = versions()
for page in ("README.md", "docs/quickstart.md"):
    names = {}
    for program in re.findall(r"```python\\n(.*?)```", Path(page).read_text(encoding="utf-8"), re.S):
        if "torch" not in program or importlib.util.find_spec("torch"):
            with contextlib.redirect_stdout(io.StringIO()):
                exec(program, names)
print(sorted(versions() - called))

assert {*CHECKS} < {*workload.TASKS} and main(["selftest", "--quick"]) == 0
for name in workload.TASKS.keys() - CHECKS.keys():
    workload.TASKS[name]()
for module in pkgutil.walk_packages(simfloat.kernels.__path__, "simfloat.kernels."):
    importlib.import_module(module.name)
left = [kernel.__name__ for kernel in jit.KERNELS if not kernel.overloads]
if not processor.COMPUTES_FP16:
    left = [name for name in left if "halves" not in name and not name.startswith("conversion_loop(")]
if not processor.ROUNDS_LANES:
    made_of_lanes = ("rounded_tile_loop(", "order_loop(")
    left = [name for name in left if not name.startswith(made_of_lanes) and name != "add_anchored_products"]
if not processor.CONVERTS_FP16:
    left = [name for name in left if "convert" not in name and name not in ("round_half", "look_up_float16")]
print(left)
"""

# Two warmups of two tasks, each in two processes.
TWO_TASKS = """
import argparse
from simfloat.tools.commands import warmup, workload

for name in set(workload.TASKS) - {"units", "lookups and codes"}:
    del workload.TASKS[name]
asked = argparse.Namespace(into=None, level=[{}], first_session=False)
assert [warmup.run(asked) for _ in range(2)] == [0, 0]
"""


def python(*arguments):
    command = [sys.executable, "-W", "error", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert (done.returncode, without_notice(done.stderr)) == (0, ""), done.stderr
    return done.stdout.splitlines()


def test_a_first_session_and_the_tasks_call_every_kernel_and_every_check_of_the_selftest_passes():
    # One process does everything. In three, the imports and the first calls of kernels took half a minute of
    # processor time.
    only_programs, version, *lines, last, left = python("-c", EVERYTHING)
    assert (only_programs, left) == ("[]", "[]")
    assert version.startswith("simfloat ")
    assert [re.split("  +", line)[0] for line in lines] == list(CHECKS)
    assert all(re.search(r" [\d,]+ cases  ok$", line) for line in lines)
    assert last.startswith(f"All {len(CHECKS)} checks passed: ")


def test_a_second_warmup_finds_nothing_to_do():
    first, second = [line for line in python("-c", TWO_TASKS) if line.startswith(("Compiled ", "Nothing to be done"))]
    assert second.startswith("Nothing to be done, all kernels were compiled already: ")


def test_a_process_that_is_ended_from_outside_is_no_hang(monkeypatch, capsys):
    start = warmup.start_workers

    def ended(count):
        workers = start(count)
        for process in workers.values():
            process.kill()
            process.join()
        return workers

    monkeypatch.setattr(warmup, "start_workers", ended)
    assert warmup.run(NOTHING_ASKED) == 1
    assert "A process was ended from outside" in capsys.readouterr().err


def test_an_interrupt_ends_the_processes(monkeypatch):
    workers = []

    def started(count):
        workers.append(start(count))
        return workers[0]

    start = warmup.start_workers
    monkeypatch.setattr(warmup, "start_workers", started)
    monkeypatch.setattr(warmup, "wait", lambda connections: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        warmup.run(NOTHING_ASKED)
    for process in workers[0].values():
        process.join(timeout=60)
        assert process.exitcode is not None


def test_a_directory_that_takes_nothing_is_named_before_anything_is_compiled(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert warmup.run(argparse.Namespace(into=tmp_path / "file", level=[{}], first_session=False)) == 1
    assert capsys.readouterr() == (
        "", f"Kernels cannot be kept in {tmp_path}/file/simfloat; name a directory that can be written by --into.\n"
    )  # fmt: skip
    assert warmup.is_writable(tmp_path / "new") and not [*(tmp_path / "new").iterdir()]


def test_each_task_that_is_done_is_reported_where_lines_are_kept(capsys):
    for done in range(4):
        warmup.show_progress(done, 3)
    assert [line.partition("] ")[2] for line in capsys.readouterr().out.split("\n")] == [f"{n} of 3" for n in range(4)]
