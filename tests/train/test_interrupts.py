"""Ctrl-C: a training with checkpoints ends after its step, and loses none."""

import signal
from threading import Thread

import pytest

import simfloat as sf
from simfloat.train import checkpoints
from tests.train import toy
from tests.train.test_saving import assert_same


@pytest.fixture(autouse=True)
def _ctrl_c_raises():
    """As in a process of a terminal; one that a shell started in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupting(at, presses=1):
    """A loss during whose computation Ctrl-C is pressed, in the step of this number."""
    calls = []

    def cross_entropy(output, y):
        calls.append(0)
        for _ in range(presses * (len(calls) == at)):
            signal.raise_signal(signal.SIGINT)
        return sf.nn.cross_entropy(output, y)

    return cross_entropy


def fit(steps, loss_fn=sf.nn.cross_entropy, **options):
    model, optimizer, _ = toy.parts()
    with sf.simulate("bf16-stochastic"):
        history = sf.train.fit(model, loss_fn, toy.batches(steps), optimizer, **options)
    return model.state_dict(), history


def test_a_step_that_is_interrupted_is_completed_and_written(tmp_path, capsys):
    with pytest.raises(KeyboardInterrupt):
        fit(6, interrupting(3), checkpoint=tmp_path)
    assert "Ending after this step, with a checkpoint" in capsys.readouterr().err
    assert sf.train.manifest(tmp_path)["steps"] == 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert_same(fit(6, resume=tmp_path)[0], fit(6)[0])


def test_the_last_step_that_is_interrupted_is_written_too(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fit(3, interrupting(3), checkpoint=tmp_path)
    assert sf.train.manifest(tmp_path)["steps"] == 3


def test_a_second_interrupt_ends_at_once(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fit(6, interrupting(3, presses=2), checkpoint=tmp_path, every=2)
    assert sf.train.manifest(tmp_path)["steps"] == 2


@pytest.mark.parametrize("name", ["evaluate", "stop"])
def test_functions_between_steps_are_interrupted_at_once_and_steps_written(name, tmp_path):
    def interrupted(_):
        signal.raise_signal(signal.SIGINT)
        pytest.fail("is not reached")

    functions = {"evaluate": interrupted, "stop": lambda history: history.steps == 3 and interrupted(history)}
    with pytest.raises(KeyboardInterrupt):
        fit(6, checkpoint=tmp_path, evaluate_every=3, **{name: functions[name]})
    assert sf.train.manifest(tmp_path)["steps"] == 3


def test_without_checkpoints_or_with_a_handler_of_the_programs_own_nothing_is_held_back(tmp_path):
    calls = []
    with pytest.raises(KeyboardInterrupt):
        fit(6, lambda output, y: calls.append(0) or interrupting(1)(output, y))
    assert len(calls) == 1
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(0))
    try:
        assert fit(4, interrupting(2), checkpoint=tmp_path)[1].steps == 4 and heard == [0]
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_thread_trains_too(tmp_path):
    thread = Thread(target=fit, args=(2,), kwargs={"checkpoint": tmp_path})
    thread.start()
    thread.join(timeout=60)
    assert sf.train.manifest(tmp_path)["steps"] == 2


@pytest.mark.parametrize("name", ["_open_locked_file", "_release"])
def test_while_a_folder_is_locked_or_released_it_waits_and_the_folder_is_free_again(name, tmp_path, monkeypatch):
    def interrupted(*args):
        signal.raise_signal(signal.SIGINT)
        return function(*args)

    function = getattr(checkpoints, name)
    monkeypatch.setattr(checkpoints, name, interrupted)
    with pytest.raises(KeyboardInterrupt), checkpoints.lock_folder(tmp_path):
        pass
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    with checkpoints.lock_folder(tmp_path):
        pass
