"""Trainings that end early, by an error, a full disk or a kill, leave valid checkpoints."""

import errno
import os
import random
import time
from functools import wraps
from itertools import count
from multiprocessing import get_context

import numpy as np
import pytest

import simfloat as sf
from simfloat.train import states as state_file
from tests.train import toy
from tests.train.test_checkpoints import Counting
from tests.train.test_saving import assert_same
from tests.train.toy import names, newest


class Broken(Exception):
    """A mistake of the user's."""


class Watching(sf.Recorder):
    def step(self, /, **values):
        self.before()
        super().step(**values)

    def before(self):
        pass


def broken_at(number, function):
    """The function, which fails when it is called for the time of this number."""
    calls = count(1)

    @wraps(function)
    def broken(*arguments):
        if next(calls) == number:
            raise Broken
        return function(*arguments)

    return broken


def trained(folder, breaking=None, call=0):
    """The states and the history of a training of 8 steps, one function of which fails at a call."""
    functions = {
        "loss_fn": sf.nn.cross_entropy,
        "metric": lambda output, y: 1.0,
        "evaluate": lambda model: {"mean": model.head.weight.data.mean()},
        "stop": lambda history: False,
        "switching": lambda step, observer: "fp8-hybrid" if step < 5 else "bf16-standard",
        "batch": lambda batch: batch,
        "observer": lambda: None,
    }
    used = {name: broken_at(call, f) if name == breaking else f for name, f in functions.items()}
    observer = Watching()
    observer.before = used["observer"]
    model, optimizer, scaler = toy.parts()
    with sf.simulate("fp8-hybrid", seed=3, observer=observer) as simulation:
        history = sf.train.fit(
            model, used["loss_fn"], map(used["batch"], toy.batches(8)), optimizer, scaler=scaler, every=2,
            checkpoint=folder, resume=folder, schedule=sf.optim.StepLR(optimizer, 3), metrics={"one": used["metric"]},
            evaluate=used["evaluate"], evaluate_every=1, switching=used["switching"], stop=used["stop"],
        )  # fmt: skip
    states = [model.state_dict(), optimizer.state_dict(), scaler.state_dict(), simulation.state]
    return states, history, observer.table()


@pytest.mark.parametrize("name, call, kept", [
    ("evaluate", 5, 5), ("stop", 6, 5), ("batch", 6, 5),  # they leave the training as it is
    ("loss_fn", 5, 4), ("metric", 5, 4), ("switching", 5, 4), ("observer", 5, 4),
])  # fmt: skip
def test_an_error_of_the_users_leaves_checkpoints_whole_and_between_steps_loses_none(name, call, kept, tmp_path):
    with pytest.raises(Broken):
        trained(tmp_path / "parts", name, call)
    assert sf.train.manifest(tmp_path / "parts")["steps"] == kept
    states, history, table = trained(tmp_path / "parts")
    want, whole, counted = trained(tmp_path / "whole")
    assert_same(states, want)
    assert dict(history) == dict(whole) and history.evaluations == whole.evaluations and table == counted


def test_a_full_disk_does_not_hide_an_error_of_the_users(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    def evaluate(model):
        monkeypatch.setattr(os, "fsync", full)
        raise Broken

    with pytest.raises(Broken) as broken:
        toy.fit("fp32", 5, checkpoint=tmp_path, evaluate=evaluate, evaluate_every=3)
    assert "since the last checkpoint could not be written: " in broken.value.__notes__[0]


def test_states_that_cannot_be_saved_are_refused_before_the_first_step(tmp_path):
    observer = Counting()
    observer.state = {1, 2}
    with pytest.raises(ValueError, match="observer is a set; save dicts"):
        toy.fit("fp32", 5, checkpoint=tmp_path, observer=observer, evaluate=pytest.fail, evaluate_every=1)


@pytest.mark.parametrize("option", ["checkpoint", "resume"])
def test_an_invalid_folder_is_refused(option, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="Checkpoints are kept in a folder; .*file is a file"):
        toy.fit("fp32", 1, **{option: tmp_path / "file"})
    with pytest.raises(ValueError, match="A path is text or a pathlib.Path, got 3"):
        toy.fit("fp32", 1, **{option: 3})


def test_a_folder_that_cannot_be_written_is_an_error_before_the_first_step(tmp_path):
    (tmp_path / "file").touch()
    model, optimizer, _ = toy.parts()
    before = model.state_dict()
    with sf.simulate("fp32"), pytest.raises(OSError, match="file"):
        sf.train.fit(model, sf.nn.cross_entropy, toy.batches(1), optimizer, checkpoint=tmp_path / "file" / "folder")
    assert_same(model.state_dict(), before)


def test_a_full_disk_ends_training_with_the_older_checkpoints_whole(tmp_path, monkeypatch):
    written = []

    def full(descriptor):
        written.append(descriptor)
        if len(written) > 4:  # each checkpoint is one file and its folder
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device: '.*checkpoint-000003-step-3.states'"):
        toy.fit("fp32", 5, checkpoint=tmp_path, every=1)
    monkeypatch.undo()
    assert names(tmp_path) == ["checkpoint-000001-step-1.states", "checkpoint-000002-step-2.states"]
    states, _ = toy.fit("fp32", 5, resume=tmp_path)
    assert_same(states, toy.fit("fp32", 5)[0])


def test_unfinished_files_of_a_killed_process_are_removed(tmp_path):
    toy.fit("fp32", 1, checkpoint=tmp_path)
    (tmp_path / f".checkpoint-000002-step-2.states.0a1b{state_file.UNFINISHED}").write_bytes(b"half")
    (tmp_path / "mine.txt").touch()
    toy.fit("fp32", 2, checkpoint=tmp_path, resume=tmp_path)
    assert names(tmp_path) == ["checkpoint-000001-step-1.states", "checkpoint-000002-step-2.states", "mine.txt"]


def test_a_killed_training_loses_nothing_but_the_steps_since_its_last_checkpoint(tmp_path):
    steps, chance, kills = 60, random.Random(1), 0
    processes = get_context("forkserver")  # which imports once for all of them
    processes.set_forkserver_preload(["tests.train.toy"])
    while True:
        here, there = processes.Pipe(duplex=False)
        process = processes.Process(target=toy.train_and_tell, args=(there, tmp_path, steps))
        process.start()
        there.close()
        assert here.recv() == "begun"
        if kills < 3:
            time.sleep(chance.uniform(0, 0.05))
            process.kill()
            kills += 1
        process.join(timeout=60)
        print(process.exitcode, len(list(tmp_path.iterdir())), names(tmp_path))
        if process.exitcode == 0:
            break
        assert process.exitcode is not None, "it hangs"
    states = state_file.read(newest(tmp_path))
    recorder, restored = sf.Recorder(), sf.Recorder()
    want, history = toy.fit("bf16-stochastic", steps, observer=recorder)
    restored.load_state_dict(states["observer"])
    assert restored.table() == recorder.table()
    assert_same([states[name] for name in ("model", "optimizer", "scaler", "simulation")], want)
    assert states["history"]["steps"]["loss"].tolist() == history["loss"] and np.isfinite(history["loss"]).all()
