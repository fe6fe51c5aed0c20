"""One training at a time writes to a folder."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from simfloat.train import checkpoints
from tests.train import toy
from tests.train.test_saving import assert_same
from tests.train.toy import names

ROOT = Path(__file__).parents[2]

#: A process of its own, and the folder that it is called with.
LOCKED = """
import os, sys
from pathlib import Path
from simfloat.train.checkpoints import lock_folder
folder = Path(sys.argv[1])
"""

#: Holds a folder until its standard input is closed.
HOLD = """
with lock_folder(folder):
    print("held", flush=True)
    sys.stdin.read()
"""

#: Takes a folder as often as it can, and fails if another process has it, too.
RACE = """
taken = 0
print("ready", flush=True)
sys.stdin.readline()
for _ in range(400):
    try:
        with lock_folder(folder):
            os.close(os.open(folder / "mine", os.O_CREAT | os.O_EXCL))
            os.unlink(folder / "mine")
            taken += 1
    except ValueError as error:
        assert "Another training writes its checkpoints to" in str(error)
print(taken)
"""


def started(program, folder):
    command = [sys.executable, "-c", LOCKED + program, str(folder)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline()
    return process


def test_a_second_process_is_refused_at_once_with_folder_and_process_until_the_first_ends_or_is_killed(tmp_path):
    toy.fit("fp32", 2, checkpoint=tmp_path)
    with started(HOLD, tmp_path) as other:
        message = f"Another training writes its checkpoints to {tmp_path}: process {other.pid} on .*; resume= may be"
        with pytest.raises(ValueError, match=message):
            toy.fit("fp32", 4, checkpoint=tmp_path, resume=tmp_path)
        states, _ = toy.fit("fp32", 4, resume=tmp_path, checkpoint=tmp_path / "own")
        assert_same(states, toy.fit("fp32", 4)[0])
        other.kill()
        other.wait(timeout=60)
        assert names(tmp_path) == [checkpoints.LOCK_FILE, "checkpoint-000001-step-2.states", "own"]
        toy.fit("fp32", 4, checkpoint=tmp_path, resume=tmp_path)
    assert names(tmp_path) == ["checkpoint-000001-step-2.states", "checkpoint-000002-step-4.states", "own"]


def test_no_two_processes_have_a_folder_at_once(tmp_path):
    racers = [started(RACE, tmp_path) for _ in range(2)]
    for racer in racers:
        racer.stdin.write("\n")
        racer.stdin.flush()
    taken = [int(racer.communicate(timeout=60)[0]) for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0] and min(taken) > 0


def test_a_training_inside_another_one_is_refused_too(tmp_path):
    def evaluate(model):
        toy.fit("fp32", 1, checkpoint=tmp_path / "." / "x" / "..")

    (tmp_path / "x").mkdir()
    message = f"Another training writes its checkpoints to {tmp_path}/x/..: process {os.getpid()}, this one"
    with pytest.raises(ValueError, match=message):
        toy.fit("fp32", 4, checkpoint=tmp_path, evaluate=evaluate, evaluate_every=2)
    toy.fit("fp32", 4, checkpoint=tmp_path, resume=tmp_path)


def test_where_the_file_system_has_no_locks_training_continues_with_a_warning(tmp_path, monkeypatch):
    def without(descriptor):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(checkpoints, "_lock_file", without)
    with pytest.warns(UserWarning, match=f"{tmp_path} cannot be locked \\(No locks available\\)"):
        toy.fit("fp32", 1, checkpoint=tmp_path)
    assert names(tmp_path) == ["checkpoint-000001-step-1.states"]
