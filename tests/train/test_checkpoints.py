"""Checkpoints: a training that continues from one has the same bits as without interruption."""

import os

import numpy as np
import pytest

import simfloat as sf
from simfloat.train import states as state_file
from tests.train import toy
from tests.train.test_saving import assert_same
from tests.train.toy import names, newest


@pytest.mark.parametrize("policy", ["bf16-stochastic", "bf16-kahan", "fp16-master", "fp64"])
def test_a_resumed_training_has_the_bits_of_one_that_never_stopped(policy, tmp_path):
    metrics = {"mean": lambda out, y: out.mean()}
    options = dict(metrics=metrics, evaluate=lambda model: {"sum": model.head.bias.data.sum()}, evaluate_every=3)
    whole, history = toy.fit(policy, 9, **options)
    for stop in (4, 7, 9):
        toy.fit(policy, stop, checkpoint=tmp_path, every=2, resume=tmp_path, **options)
    resumed, again = toy.fit(policy, 9, start=5, resume=tmp_path, **options)
    assert_same(resumed, whole)
    # The norm of a step that was skipped may be NaN, as PyTorch's gradient of a softmax is where it overflows.
    assert_same([dict(again), again.evaluations], [dict(history), history.evaluations])


def warm_up(optimizer):
    first = sf.optim.LinearLR(optimizer, start_factor=0.25, total_iters=3)
    return sf.optim.SequentialLR(optimizer, [first, sf.optim.CosineAnnealingLR(optimizer, T_max=6)], [3])


def test_schedules_casts_and_switches_of_the_policy_continue_too(tmp_path):
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
    assert_same(toy.fit(narrow, 9, start=5, resume=tmp_path, **options())[0], whole)


class Centred(sf.nn.Module):
    """Subtracts a moving average, which is a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("average", np.zeros(5, np.float32))

    def forward(self, x):
        self.average[...] = 0.5 * self.average + 0.5 * x.data.mean(0)
        return x - self.average


@pytest.mark.parametrize("layer", [lambda: sf.nn.Dropout(0.3), Centred])
def test_buffers_of_the_model_and_draws_of_its_layers_continue_too(layer, tmp_path):
    def model():
        return sf.nn.Sequential(sf.nn.Linear(3, 5), layer(), sf.nn.Linear(5, 2))

    whole, _ = toy.fit("bf16-stochastic", 6, model=model)
    toy.fit("bf16-stochastic", 4, model=model, checkpoint=tmp_path)
    assert_same(toy.fit("bf16-stochastic", 6, start=5, model=model, resume=tmp_path)[0], whole)


def test_two_checkpoints_are_kept_and_one_is_written_at_the_end(tmp_path):
    folder = tmp_path / "new" / "folder"
    toy.fit("fp32", 7, checkpoint=os.fspath(folder), every=3)
    assert names(folder) == ["checkpoint-000002-step-6.states", "checkpoint-000003-step-7.states"]
    toy.fit("fp32", 7, checkpoint=folder, resume=folder, every=3)
    assert names(folder) == ["checkpoint-000002-step-6.states", "checkpoint-000003-step-7.states"]


def test_a_training_that_begins_anew_leaves_the_checkpoints_of_another_one(tmp_path):
    toy.fit("fp32", 2, checkpoint=tmp_path, every=1)
    toy.fit("fp32", 3, checkpoint=tmp_path, every=1)
    first, second = (
        ["checkpoint-000001-step-1.states", "checkpoint-000002-step-2.states"],
        "checkpoint-00000{}-step-{}.states",
    )
    assert names(tmp_path) == [*first, second.format(4, 2), second.format(5, 3)]
    toy.fit("fp32", 5, checkpoint=tmp_path, resume=tmp_path, every=1)
    assert names(tmp_path) == [*first, second.format(6, 4), second.format(7, 5)]


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


def test_training_does_not_restart_by_itself_if_all_checkpoints_are_damaged(tmp_path):
    toy.fit("fp32", 4, checkpoint=tmp_path, every=2)
    for path in tmp_path.iterdir():
        path.write_bytes(b"")
    with pytest.raises(ValueError, match="step-4.states is .*step-2.states is .*There is no earlier checkpoint"):
        toy.fit("fp32", 4, resume=tmp_path)


def test_a_checkpoint_that_does_not_fit_is_refused_by_name(tmp_path):
    toy.fit("fp32", 3, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="step-3.states has the columns .* not .*'size'.; give the same metrics"):
        toy.fit("fp32", 3, resume=tmp_path, metrics={"size": lambda out, y: 1})
    with pytest.raises(ValueError, match="3 batches were taken before the checkpoint; the iterable gives 2"):
        toy.fit("fp32", 2, resume=tmp_path)
    with pytest.raises(ValueError, match="model in .*step-3.states does not fit: hidden.0.weight has"):
        toy.fit("fp32", 3, resume=tmp_path, allow="model", model=lambda: sf.nn.MLP([3, 6, 2]))


def save_a_model(path):
    sf.save(path, model=sf.nn.Linear(2, 1), note=3)


def link_to_nothing(path):
    path.symlink_to("nowhere")


@pytest.mark.parametrize("make, message", [
    (save_a_model, "is not a checkpoint of fit: it contains model, note, but no optimizer."),
    (os.mkdir, "is a folder, not a checkpoint."),
    (link_to_nothing, "is a link to a missing file, not a checkpoint."),
])  # fmt: skip
def test_other_files_with_the_name_of_a_checkpoint_are_named_and_not_changed(make, message, tmp_path):
    toy.fit("fp32", 3, checkpoint=tmp_path)
    make(tmp_path / "checkpoint-000007-step-9.states")
    with pytest.warns(UserWarning, match=f"000007-step-9.states {message} .*step-3.states, before it, is used"):
        states, _ = toy.fit("fp32", 6, resume=tmp_path, checkpoint=tmp_path, every=1)
    assert_same(states, toy.fit("fp32", 6)[0])
    written = ["checkpoint-000009-step-5.states", "checkpoint-000010-step-6.states"]
    assert names(tmp_path) == ["checkpoint-000007-step-9.states", *written]
    assert sf.train.manifest(tmp_path)["steps"] == 6
    for name in written:
        (tmp_path / name).unlink()
    with pytest.raises(ValueError, match=f"{message} There is no earlier checkpoint"):
        toy.fit("fp32", 6, resume=tmp_path)


def test_a_checkpoint_that_vanishes_during_reading_is_searched_again(tmp_path, monkeypatch):
    toy.fit("fp32", 2, checkpoint=tmp_path, every=1)
    gone, read = newest(tmp_path), state_file.read

    def read_late(path):
        if path == gone:
            path.unlink(missing_ok=True)  # as the training that writes there does
        return read(path)

    monkeypatch.setattr(state_file, "read", read_late)
    states, _ = toy.fit("fp32", 5, resume=tmp_path)
    assert_same(states, toy.fit("fp32", 5)[0])


def tables(policy, steps, **options):
    """All values that a recorder returns about a training."""
    recorder = sf.Recorder()
    toy.fit(policy, steps, observer=recorder, **options)
    scalars = {name: column.tobytes() for name, column in recorder.scalars().items()}
    series = {kind: column.tolist() for kind, column in recorder.series("*.weight", "update").items()}
    return recorder.table(), recorder.histogram(), scalars, series, recorder.success_rate


def test_a_recorder_continues_with_the_counts_of_a_training_that_never_stopped(tmp_path):
    options = dict(evaluate=lambda model: {"one": 1}, evaluate_every=2)
    for stop in (4, 7, 9):
        resumed = tables("fp16-master", stop, checkpoint=tmp_path, every=2, resume=tmp_path, **options)
    assert resumed == tables("fp16-master", 9, **options)


class Counting:
    """An observer of the user's, whose state is a number."""

    def __init__(self):
        self.state = 0

    def observe(self, events, operation, path="", phase="forward"):
        self.state += 1

    def load_state(self, state):
        self.state = state


class Forgetful:
    def observe(self, events, operation, path="", phase="forward"):
        pass


def test_an_observer_with_its_own_state_also_continues(tmp_path):
    whole, first, second = Counting(), Counting(), Counting()
    toy.fit("fp32", 5, observer=whole)
    toy.fit("fp32", 3, observer=first, checkpoint=tmp_path)
    toy.fit("fp32", 5, observer=second, resume=tmp_path)
    assert second.state == whole.state > first.state


@pytest.mark.parametrize("other", [lambda: None, Counting, Forgetful])
def test_counts_of_a_recorder_are_not_lost_without_leave(other, tmp_path):
    toy.fit("fp32", 3, observer=sf.Recorder(), checkpoint=tmp_path)
    now = "Counting" if other is Counting else "None"
    with pytest.raises(ValueError, match=f"observer: Recorder, now {now}\n.*allow=\\['observer'\\]"):
        toy.fit("fp32", 5, observer=other(), resume=tmp_path)
    states, _ = toy.fit("fp32", 5, observer=other(), resume=tmp_path, allow="observer")
    assert_same(states, toy.fit("fp32", 5)[0])
    with pytest.raises(ValueError, match=r"observer in .* does not fit: The state belongs to Recorder\(\)"):
        toy.fit("fp32", 5, observer=sf.Recorder(phase="update"), resume=tmp_path)


@pytest.mark.parametrize("observer", [sf.Recorder, Forgetful])
def test_an_observer_that_begins_later_is_reported(observer, tmp_path):
    toy.fit("fp32", 3, checkpoint=tmp_path)
    message = f"has no state of the observer {observer.__name__}, which begins after step 3"
    with pytest.warns(UserWarning, match=message):
        toy.fit("fp32", 5, observer=observer(), resume=tmp_path)
    toy.fit("fp32", 5, observer=observer(), resume=tmp_path, allow="observer")


@pytest.mark.parametrize("other", [None, 3, "a", [1], {}, np.ones((2, 2))], ids=str)
def test_a_checkpoint_of_another_kind_is_refused_by_name_and_stays(tmp_path, other):
    def train(**folders):
        model, optimizer, _ = toy.parts()
        options = {"scaler": sf.optim.DynamicLossScale(8.0), "schedule": sf.optim.StepLR(optimizer, 2)}
        with sf.simulate("fp32", observer=sf.Recorder()):
            sf.train.fit(model, sf.nn.cross_entropy, toy.batches(4), optimizer, **options, **folders)

    train(checkpoint=tmp_path / "whole")
    (path,) = (tmp_path / "whole").glob("*.states")
    names = [(name,) for name in state_file.read(path)]
    inside = [("history", "steps"), ("history", "evaluations"), ("history", "steps", "loss"), ("manifest", "data"),
              ("manifest", "changes"), ("optimizer", "state"), ("optimizer", "param_groups")]  # fmt: skip
    is_nothing = isinstance(other, dict) and not other
    for keys in [*names, *inside]:
        if (keys in (("concluded",), ("batches",)) and isinstance(other, int)) or (is_nothing and keys in NONE):
            continue  # of the same kind
        if keys == ("manifest",) and not isinstance(other, dict):
            continue  # as none, see test_manifest
        states = state_file.read(path)
        part = states
        for key in keys[:-1]:
            part = part[key]
        part[keys[-1]] = other
        folder = tmp_path / "-".join(keys)
        folder.mkdir()
        state_file.write(folder / path.name, states)
        content = (folder / path.name).read_bytes()
        with pytest.raises(
            ValueError, match=rf"{path.name} (is not a checkpoint of|belongs to another|has the col|does not fit)"
        ):
            train(checkpoint=folder, resume=folder)
        assert (folder / path.name).read_bytes() == content


#: Where a checkpoint may hold nothing.
NONE = [("manifest",), ("history", "evaluations"), ("optimizer", "state")]
