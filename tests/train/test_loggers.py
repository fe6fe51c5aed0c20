"""The page of loggers: its programs run with modules that replace the loggers and record the values they receive."""

import sys
from types import SimpleNamespace

import pytest

from tests.test_readme import run, snippets

START, TENSORBOARD, WANDB, MLFLOW, TRAINER = snippets("docs/loggers.md")


class Run:
    """A run of a logger: a block that notes the numbers of each step."""

    def __init__(self, **_):
        self.steps = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def log(self, numbers, *, step):
        assert all(isinstance(value, float | int) for value in numbers.values())
        self.steps.setdefault(step, {}).update(numbers)


def with_module(monkeypatch, name, snippet, **members):
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(**members))
    return run([START, snippet], {})


def check(steps):
    assert [*steps] == [*range(1, 9)]
    assert all({"loss", "lr", "norm", "lost updates"} <= set(numbers) for numbers in steps.values())


def test_tensorboard_receives_every_step():
    pytest.importorskip("tensorboardX")
    names = run([START, TENSORBOARD], {})
    assert names["recorder"].counts(phase="update")["total"] > 0


def test_wandb_receives_every_step(monkeypatch):
    noted = Run()
    with_module(monkeypatch, "wandb", WANDB, init=lambda project, config: noted)
    check(noted.steps)


def test_mlflow_receives_every_step(monkeypatch):
    noted, parameters = Run(), {}
    members = {
        "start_run": lambda: noted,
        "log_params": parameters.update,
        "log_metrics": noted.log,
        "log_metric": lambda name, value, step: noted.log({name: value}, step=step),
    }
    with_module(monkeypatch, "mlflow", MLFLOW, **members)
    check(noted.steps)
    assert parameters["compute"] == "BF16"


def test_the_callback_of_trainer_adds_the_counts_to_its_history(monkeypatch):
    names = with_module(monkeypatch, "transformers", TRAINER, TrainerCallback=object)
    recorder, state = names["recorder"], SimpleNamespace(log_history=[{"loss": 1.0}])
    callback = names["Roundings"](recorder)
    names["train"](lambda step, record: None)
    callback.on_step_end(None, state, None)
    callback.on_log(None, state, None, logs={})
    assert state.log_history == [{"loss": 1.0, "lost_updates": recorder.lost_updates(), **recorder.counts()}]
    assert len(recorder.series()["total"]) == 8 + 1
