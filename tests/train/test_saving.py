"""States on disk: saved states are restored completely or not at all."""

import errno
import os
from hashlib import sha256

import numpy as np
import pytest

import simfloat as sf
from simfloat.train import states as state_file
from simfloat.train.states import decode, encode


def parts(seed=0, sizes=(3, 4, 2)):
    sf.nn.seed(seed)
    model = sf.nn.MLP(list(sizes))
    return {
        "model": model,
        "optimizer": sf.optim.SGD(model.parameters(), 0.1, momentum=0.9),
        "scaler": sf.optim.DynamicLossScale(growth_interval=2),
        "simulation": sf.simulate("bf16-stochastic", seed=seed),
    }


def train(parts, steps, start=0):
    model, optimizer, scaler = (parts[name] for name in ("model", "optimizer", "scaler"))
    for step in range(start, start + steps):
        x = np.random.default_rng(step).standard_normal((5, 3))
        with parts["simulation"]:
            optimizer.zero_grad()
            scaler.scale(sf.nn.mse_loss(model(x), np.ones((5, 2)))).backward()
            scaler.step(optimizer)
            scaler.update()


def states(parts):
    return {name: part.state if name == "simulation" else part.state_dict() for name, part in parts.items()}


def assert_same(a, b):
    """Trees are equal, arrays bit for bit, every number of the same type."""
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert set(a) == set(b)
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    elif isinstance(a, np.ndarray | np.generic):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    else:
        assert repr(a) == repr(b)


def test_what_was_saved_continues_with_the_same_bits(tmp_path):
    path = tmp_path / "run.states"
    whole = parts()
    train(whole, 5)
    first = parts()
    train(first, 2)
    sf.save(path, **first, epoch=3)
    second = parts(seed=7)
    assert sf.load(path, **second)["epoch"] == 3
    train(second, 3, start=2)
    assert_same(states(second), states(whole))
    assert [p.name for p in tmp_path.iterdir()] == ["run.states"]


def test_a_part_alone_can_be_restored_and_all_states_be_read(tmp_path):
    saved, other = parts(), parts(seed=1)
    sf.save(os.fspath(tmp_path / "run"), **saved)
    got = sf.load(os.fspath(tmp_path / "run"), model=other["model"])
    assert_same(got, states(saved))
    assert_same(other["model"].state_dict(), saved["model"].state_dict())


@pytest.mark.parametrize("value", [
    None, True, 3, -(2**70), 0.1, -0.0, float("inf"), float("nan"), "päth \ud800 \n", [1, [2.5, None]], (1, (2,), []),
    {"a": 1, 2: {"b": (3,)}, (1, 2): None}, {},
    np.float32(0.1), np.bool_(True), np.int8(-3),
    np.zeros(()), np.arange(6, dtype=np.int16).reshape(2, 3)[:, ::2].T, np.empty((0, 3), np.float32),
    np.array([np.nan, -np.nan, -0.0, np.inf], np.float32), np.array([1 + 2j]), {"x": [np.ones(2), (np.zeros(1),)]},
], ids=repr)  # fmt: skip
def test_every_tree_comes_back_as_it_was(value, tmp_path):
    sf.save(tmp_path / "x", value=value)
    assert_same(sf.load(tmp_path / "x"), {"value": value})
    arrays = []
    assert_same(decode(encode(value, arrays, "value"), arrays), value)


@pytest.mark.parametrize("value, message", [
    ({"a": [1, {2}]}, r"value\['a'\]\[1\] is a set; save dicts, lists"),
    (np.array([None]), "value is an array of object; save numbers"),
    (np.array(["a"]), "value is an array of <U1; save numbers"),
    (object(), "value is a object"),
    (sf.nn.Module, "value is a type"),
    (np.ma.array([1.0, 2.0], mask=[False, True]), "value is a masked array, and its mask would be lost"),
    (np.ones(2, ">f4"), "value is an array of >f4"),
])  # fmt: skip
def test_values_that_cannot_be_saved_are_refused_and_the_older_file_stays(value, message, tmp_path):
    sf.save(tmp_path / "x", value=1)
    with pytest.raises(ValueError, match=message):
        sf.save(tmp_path / "x", value=value)
    assert sf.load(tmp_path / "x") == {"value": 1}


def test_a_cycle_is_refused_and_deep_nesting_is_restored(tmp_path):
    endless, around = [1.0], {}
    endless.append(endless)
    around["inner"] = (around,)
    for value in (endless, around):
        with pytest.raises(ValueError, match="state contains itself, or is nested more than 100 deep"):
            sf.save(tmp_path / "x", state=value)
    assert not list(tmp_path.iterdir())
    deep = 1.0
    for _ in range(100):
        deep = [deep]
    sf.save(tmp_path / "x", deep=deep)
    assert sf.load(tmp_path / "x") == {"deep": deep}


def test_a_file_that_lost_or_changed_any_byte_is_refused_by_name(tmp_path):
    path = tmp_path / "x"
    sf.save(path, value=np.arange(4.0), name="y")
    content = path.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        for damaged in (bytes(changed), content[:place], content + b"\0"):
            path.write_bytes(damaged)
            with pytest.raises(
                state_file.DamagedFile, match="x is (damaged: its checksum|not a file of simfloat.save)"
            ):
                sf.load(path)


@pytest.mark.parametrize("header", [
    "{}", "[]", "x", '{"arrays": 1, "states": {}}', '{"arrays": 0, "states": 3}',
    '{"arrays": 0, "states": {"a": {"array": 3}}}', '{"arrays": 0, "states": {"a": {}}}',
])  # fmt: skip
def test_a_file_of_something_else_is_refused_by_name_though_its_checksum_is_right(header, tmp_path):
    content = state_file.MAGIC + header.encode() + b"\n"
    (tmp_path / "x").write_bytes(content + sha256(content).digest())
    with pytest.raises(state_file.DamagedFile, match="x is complete, but its states were not written by"):
        sf.load(tmp_path / "x")


def test_a_state_that_does_not_fit_is_refused_and_nothing_is_restored(tmp_path):
    path = tmp_path / "x"
    other = parts(sizes=(3, 5, 2))
    train(other, 1)
    sf.save(path, **{name: other[name] for name in ("simulation", "scaler", "model")})
    mine = parts(seed=1)
    train(mine, 1)
    before = states(mine)
    with pytest.raises(ValueError, match=r"model in .*x does not fit: hidden.0.weight has"):
        sf.load(path, **{name: mine[name] for name in ("simulation", "scaler", "model")})
    assert_same(states(mine), before)
    with pytest.raises(ValueError, match="x contains no 'optimizer'; it contains simulation, scaler, model."):
        sf.load(path, model=other["model"], optimizer=other["optimizer"])
    with pytest.raises(ValueError, match="model must be a model, an optimizer or another part, got a int"):
        sf.load(path, model=3)
    with pytest.raises(ValueError, match="model must be a model, an optimizer or another part, got a type"):
        sf.load(path, model=sf.nn.MLP)
    swapped = {"model": mine["scaler"]}
    with pytest.raises(ValueError, match="model in .*x does not fit: The state is not DynamicLossScale's"):
        sf.load(path, **swapped)
    assert_same(states(mine), before)


@pytest.mark.parametrize("call, message", [
    (lambda path: sf.save(path), "save takes parts by name"),
    (lambda path: sf.save(3, x=1), "A path is text or a pathlib.Path, got 3"),
    (lambda path: sf.load(""), "A path is text or a pathlib.Path, got ''"),
])  # fmt: skip
def test_wrong_arguments_are_refused(call, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        call(tmp_path / "x")


def test_a_place_that_cannot_be_read_or_written_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="x'"):
        sf.load(tmp_path / "x")
    with pytest.raises(FileNotFoundError, match="folder/x'"):
        sf.save(tmp_path / "folder" / "x", value=1)


@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
def test_a_full_disk_leaves_the_older_file_and_no_other(call, tmp_path, monkeypatch):
    path = tmp_path / "x"
    sf.save(path, value=1)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    if call == "open":
        monkeypatch.setattr(state_file, "_write_checked", full)
    else:
        monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left on device: '.*x'"):
        sf.save(path, value=2)
    monkeypatch.undo()
    assert sf.load(path) == {"value": 1} and [p.name for p in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("other", [None, 3, "a", [1], {}, {"a": 1}, np.ones(3)], ids=str)
def test_a_state_of_another_kind_is_refused_by_name_and_nothing_is_restored(tmp_path, other):
    def parts():
        model = sf.nn.MLP([3, 4, 2], rng=0)
        optimizer = sf.optim.Adam(model.parameters())
        return {
            "model": model, "optimizer": optimizer, "schedule": sf.optim.StepLR(optimizer, 2),
            "scaler": sf.optim.DynamicLossScale(8.0), "sim": sf.simulate("fp8-delayed"), "recorder": sf.Recorder(),
        }  # fmt: skip

    path, made = tmp_path / "run.states", parts()
    sf.save(path, **made)
    states = sf.load(path)
    for name in made:
        state_file.write(path, {**states, name: other})
        given = parts()
        given["model"].head.weight.data[:] = 5.0
        with pytest.raises(ValueError, match=f"{name} in .*run.states does not fit"):
            sf.load(path, **given)
        assert (given["model"].head.weight.data == 5.0).all()


def test_a_part_of_pytorchs_that_takes_half_of_a_state_is_as_it_was(tmp_path):
    torch = pytest.importorskip("torch")
    model, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    sf.save(tmp_path / "run.states", model={**other.state_dict(), "bias": torch.ones(3)})
    before = {name: x.clone() for name, x in model.state_dict().items()}
    with pytest.raises(ValueError, match="model in .*run.states does not fit"):
        sf.load(tmp_path / "run.states", model=model)
    assert all(torch.equal(before[name], x) for name, x in model.state_dict().items())


def test_a_missing_folder_of_a_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no folder .*/missing, make it first: '.*/missing/"):
        sf.save(tmp_path / "missing" / "run.states", epoch=1)
    for write in (sf.Recorder().to_csv, sf.Recorder().to_jsonl):
        with pytest.raises(FileNotFoundError, match=r"There is no folder .*/missing, make it first: '.*/missing/"):
            write(tmp_path / "missing" / "counts")


def test_a_state_of_pytorchs_optimizer_without_a_moment_is_refused_and_nothing_is_taken(tmp_path):
    torch = pytest.importorskip("torch")
    kinds = [("Adam", {"amsgrad": True}), ("AdamW", {}), ("SGD", {"momentum": 0.9}), ("RMSprop", {"centered": True}),
             ("Adagrad", {}), ("Adadelta", {}), ("Adamax", {}), ("NAdam", {}), ("RAdam", {}), ("Adafactor", {}),
             ("Muon", {})]  # fmt: skip
    for name, options in kinds:
        made, other = (
            getattr(torch.optim, name)([torch.nn.Parameter(torch.ones(3, 2))], lr=0.1, **options) for _ in range(2)
        )
        made.param_groups[0]["params"][0].grad = torch.ones(3, 2)
        made.step()
        state = made.state_dict()
        for moment in state["state"][0]:
            lacking = {key: value for key, value in state["state"][0].items() if key != moment}
            sf.save(tmp_path / "lacking", optimizer={**state, "state": {0: lacking}})
            wrong = {**state, "state": {0: {**lacking, moment: torch.ones(5)}}}
            sf.save(tmp_path / "wrong", optimizer=wrong)
            before = repr(other.state_dict())
            if lacking:
                with pytest.raises(ValueError, match=f"parameter 0 has no {moment}; {name} continues from"):
                    sf.load(tmp_path / "lacking", optimizer=other)
            with pytest.raises(ValueError, match=f"{moment} of parameter 0 must have the shape"):
                sf.load(tmp_path / "wrong", optimizer=other)
            assert repr(other.state_dict()) == before
        sf.save(tmp_path / "whole", optimizer=made)
        sf.load(tmp_path / "whole", optimizer=other)
        assert set(other.state_dict()["state"][0]) == set(state["state"][0])
