"""Checkpoints: a training that goes on from one has the same bits as if it had never stopped."""

import errno
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import simfloat as sf
from simfloat.train import file
from tests.train import toy
from tests.train.test_parts import assert_same

ROOT = Path(__file__).parents[2]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def newest(folder):
    return folder / names(folder)[-1]


@pytest.mark.parametrize("policy", ["bf16-stochastic", "bf16-kahan", "fp16-master", "fp64"])
def test_a_resumed_training_has_the_bits_of_one_that_never_stopped(policy, tmp_path):
    metrics = {"mean": lambda out, y: out.mean()}
    options = dict(metrics=metrics, evaluate=lambda model: {"sum": model.head.bias.data.sum()}, evaluate_every=3)
    whole, history = toy.fit(policy, 9, **options)
    for stop in (4, 7, 9):
        toy.fit(policy, stop, checkpoint=tmp_path, every=2, resume=tmp_path, **options)
    resumed, again = toy.fit(policy, 9, seed=5, resume=tmp_path, **options)
    assert_same(resumed, whole)
    assert dict(again) == dict(history) and again.evaluations == history.evaluations


def warm_up(optimizer):
    first = sf.optim.LinearLR(optimizer, start_factor=0.25, total_iters=3)
    return sf.optim.SequentialLR(optimizer, [first, sf.optim.CosineAnnealingLR(optimizer, T_max=6)], [3])


def test_schedules_casts_and_switches_of_the_policy_go_on_too(tmp_path):
    delayed = sf.cast(sf.E4M3, scale=sf.delayed(history=3))
    narrow = sf.Policy(compute=delayed, activations=sf.BF16, weights=sf.FP32)

    def evaluate(model):
        return {"loss": sf.nn.cross_entropy(model(np.ones((2, 3))), [0, 1])}

    def options():
        rule = sf.Switching(narrow, "bf16-standard", lambda: 1.0, above=0.5, hold=3)
        return dict(schedule=warm_up, switching=rule, evaluate=evaluate, evaluate_every=2)

    whole, history = toy.fit(narrow, 9, **options())
    np.testing.assert_allclose(history["lr"][:4], [0.0125, 0.025, 0.0375, 0.05])
    assert "casts" in whole[3] and "switches" in whole[3] and "rule" in whole[3]
    toy.fit(narrow, 5, checkpoint=tmp_path, **options())
    assert_same(toy.fit(narrow, 9, seed=5, resume=tmp_path, **options())[0], whole)


class Centred(sf.nn.Module):
    """Subtracts a moving average, which is a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("average", np.zeros(5, np.float32))

    def forward(self, x):
        self.average[...] = 0.5 * self.average + 0.5 * x.data.mean(0)
        return x - self.average


@pytest.mark.parametrize("layer", [lambda: sf.nn.Dropout(0.3), Centred])
def test_buffers_of_the_model_and_draws_of_its_layers_go_on_too(layer, tmp_path):
    def model():
        return sf.nn.Sequential(sf.nn.Linear(3, 5), layer(), sf.nn.Linear(5, 2))

    whole, _ = toy.fit("bf16-stochastic", 6, model=model)
    toy.fit("bf16-stochastic", 4, model=model, checkpoint=tmp_path)
    assert_same(toy.fit("bf16-stochastic", 6, seed=5, model=model, resume=tmp_path)[0], whole)


def test_two_checkpoints_are_kept_and_one_is_written_at_the_end(tmp_path):
    folder = tmp_path / "new" / "folder"
    toy.fit("fp32", 7, checkpoint=os.fspath(folder), every=3)
    assert names(folder) == ["checkpoint-000002-step-6.states", "checkpoint-000003-step-7.states"]
    toy.fit("fp32", 7, checkpoint=folder, resume=folder, every=3)
    assert names(folder) == ["checkpoint-000002-step-6.states", "checkpoint-000003-step-7.states"]
    toy.fit("fp32", 2, checkpoint=folder, every=3)
    assert names(folder) == ["checkpoint-000003-step-7.states", "checkpoint-000004-step-2.states"]


@pytest.mark.parametrize("steps, made", [(3, 5), (5, 5), (7, 7)])
def test_no_step_is_made_where_a_checkpoint_holds_as_many_or_more(steps, made, tmp_path):
    def fit(**options):
        model, optimizer, _ = toy.parts()
        with sf.simulate("fp32"):
            return sf.train.fit(model, sf.nn.cross_entropy, toy.batches(9), optimizer, **options)

    fit(steps=5, checkpoint=tmp_path)
    assert fit(steps=steps, resume=tmp_path).steps == made


@pytest.mark.parametrize(
    "make", [lambda folder: None, os.mkdir, lambda folder: (folder.mkdir(), (folder / "a").touch())]
)
def test_a_missing_or_empty_folder_is_a_fresh_start(make, tmp_path):
    make(tmp_path / "folder")
    states, _ = toy.fit("fp32", 2, resume=tmp_path / "folder")
    assert_same(states, toy.fit("fp32", 2)[0])


@pytest.mark.parametrize("damage", [
    lambda content: content[:-1], lambda content: b"", lambda content: content[:100] + b"\0" + content[101:],
])  # fmt: skip
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(damage, tmp_path):
    toy.fit("bf16-stochastic", 5, checkpoint=tmp_path, every=2)
    path = newest(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.warns(
        UserWarning, match=f"{path.name} is .*checkpoint-000002-step-4.states, before it, is used"
    ) as seen:
        states, _ = toy.fit("bf16-stochastic", 6, resume=tmp_path, checkpoint=tmp_path, every=6)
    assert seen[0].filename == toy.__file__
    assert_same(states, toy.fit("bf16-stochastic", 6)[0])
    assert names(tmp_path) == ["checkpoint-000002-step-4.states", "checkpoint-000004-step-6.states"]


def test_where_all_are_damaged_training_does_not_start_anew_by_itself(tmp_path):
    toy.fit("fp32", 4, checkpoint=tmp_path, every=2)
    for path in tmp_path.iterdir():
        path.write_bytes(b"")
    with pytest.raises(ValueError, match="step-4.states is .*step-2.states is .*There is no checkpoint before"):
        toy.fit("fp32", 4, resume=tmp_path)


def test_a_checkpoint_of_another_training_is_refused_by_name(tmp_path):
    toy.fit("fp32", 3, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="step-3.states has the columns .* not .*'size'.; give the same metrics"):
        toy.fit("fp32", 3, resume=tmp_path, metrics={"size": lambda out, y: 1})
    with pytest.raises(ValueError, match="3 batches were taken before the checkpoint; the iterable gives 2"):
        toy.fit("fp32", 2, resume=tmp_path)
    model, optimizer, scaler = toy.parts()
    larger = sf.nn.MLP([3, 6, 2])
    with sf.simulate("fp32"):
        with pytest.raises(ValueError, match="step-3.states is of a training with a scaler, and fit was given none"):
            sf.train.fit(model, sf.nn.cross_entropy, toy.batches(3), optimizer, resume=tmp_path)
        with pytest.raises(ValueError, match="model in .*step-3.states does not fit: hidden.0.weight has"):
            sf.train.fit(
                larger, sf.nn.cross_entropy, toy.batches(3), sf.optim.Adam(larger.parameters()), scaler=scaler,
                resume=tmp_path,
            )  # fmt: skip


@pytest.mark.parametrize("option", ["checkpoint", "resume"])
def test_a_folder_that_is_none_is_refused(option, tmp_path):
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


def test_what_a_killed_process_left_unfinished_is_cleared_away(tmp_path):
    toy.fit("fp32", 1, checkpoint=tmp_path)
    (tmp_path / f".checkpoint-000002-step-2.states.0a1b{file.UNFINISHED}").write_bytes(b"half")
    (tmp_path / "mine.txt").touch()
    toy.fit("fp32", 2, checkpoint=tmp_path, resume=tmp_path)
    assert names(tmp_path) == ["checkpoint-000001-step-1.states", "checkpoint-000002-step-2.states", "mine.txt"]


def test_a_killed_training_loses_nothing_but_the_steps_since_its_last_checkpoint(tmp_path):
    steps, chance, kills = 150, random.Random(1), 0
    command = [sys.executable, "-m", "tests.train.toy", str(tmp_path), str(steps)]
    while True:
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            if kills < 4:
                time.sleep(chance.uniform(0, 0.12))
                process.kill()
                kills += 1
            code = process.wait(timeout=60)
            print(code, len(list(tmp_path.iterdir())), names(tmp_path))
        if code == 0:
            break
    states = file.read(newest(tmp_path))
    want, history = toy.fit("bf16-stochastic", steps)
    assert_same([states[name] for name in ("model", "optimizer", "scaler", "simulation")], want)
    assert states["history"]["steps"]["loss"].tolist() == history["loss"] and np.isfinite(history["loss"]).all()
