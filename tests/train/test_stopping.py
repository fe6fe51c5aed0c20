"""The end of a training: by steps, a function or an early stop; warnings and evaluations before it."""

import math

import numpy as np
import pytest

import simfloat as sf
from tests.train import toy
from tests.train.test_fit import fitted, overflowing


def test_windows_in_which_every_step_was_skipped_are_reported_with_the_scale():
    x = np.ones((1, 3))
    with pytest.warns(UserWarning, match="was skipped") as told:
        batches = [(x, [0])] + [(x, [1])] * 59
        fitted(overflowing, batches, "fp16-master", scaler=sf.optim.StaticLossScale(16.0))
    assert len(told) == 2 and told[0].filename == fitted.__code__.co_filename
    steps = "Each of the steps 21 to 40 was skipped, since a gradient was not finite. The loss scale is now 16. If"
    assert str(told[0].message).startswith(steps) and "steps 41 to 60" in str(told[1].message)


def test_a_step_of_a_window_that_was_not_skipped_is_enough():
    x = np.ones((1, 3))
    batches = ([(x, [1])] * 19 + [(x, [0])]) * 2
    _, history = fitted(overflowing, batches, "fp16-master", scaler=sf.optim.StaticLossScale(16.0))
    assert sum(history["skipped"]) == 38


def test_a_warning_that_is_an_error_loses_no_step(tmp_path):
    batches = [(np.ones((1, 3)), [1])] * 25
    options = dict(scaler=sf.optim.StaticLossScale(16.0), checkpoint=tmp_path, every=7)
    with pytest.raises(UserWarning, match="Each of the steps 1 to 20"):
        fitted(overflowing, batches, "fp16-master", **options)
    assert sf.train.manifest(tmp_path)["steps"] == 20


@pytest.mark.parametrize("answer, steps", [
    (True, 0), (np.True_, 0), (False, 6), (np.False_, 6), (None, 6), (0, 6), ([], 6),
])  # fmt: skip
def test_training_stops_at_true_and_continues_at_false_values(answer, steps):
    _, history = fitted(stop=lambda history: answer if history.steps else False)
    assert history.steps == (steps or 1)


@pytest.mark.parametrize("answer", ["yes", "no", 1, 0.5, [1], np.ones(2)], ids=str)
def test_other_results_of_stop_are_refused(answer):
    with pytest.raises(ValueError, match="the result of stop must be True or False, got "):
        fitted(stop=lambda history: answer)


def test_steps_counts_steps_and_a_schedule_is_stepped_after_each():
    class Halving:
        def __init__(self, optimizer):
            self.optimizer = optimizer

        def step(self):
            self.optimizer.param_groups[0]["lr"] /= 2

        def state_dict(self):
            return {}

        load_state_dict = state_dict

    model, optimizer, _ = toy.parts()
    with sf.simulate("fp32"):
        history = sf.train.fit(
            model, sf.nn.cross_entropy, toy.batches(9), optimizer, steps=3, schedule=Halving(optimizer)
        )
    assert history["lr"] == [0.05, 0.025, 0.0125]


def test_evaluations_are_in_the_history_and_modes_are_restored():
    model, optimizer, _ = toy.parts()
    model.head.eval()
    with sf.simulate("fp32"):
        history = sf.train.fit(
            model, sf.nn.cross_entropy, toy.batches(5), optimizer,
            evaluate=lambda model: {"mean": np.mean(model.head.weight.data), "one": np.float32(1)}, evaluate_every=2,
        )  # fmt: skip
    assert history.evaluations["step"] == [2, 4] and history.evaluations["one"] == [1.0, 1.0]
    assert model.training and not model.head.training


@pytest.mark.parametrize("values, options, steps", [
    ([5, 4, 3, 3, 3, 2], dict(patience=2), 5),
    ([5, 4, 3, 3, 3, 2], dict(patience=3), 6),
    ([5.0, 4.9, 4.8, 4.7], dict(patience=2, min_delta=0.5), 3),
    ([1, 2, 3, 2, 1, 1], dict(patience=2, mode="max"), 5),
    ([math.nan, math.nan, 1, 2], dict(patience=2), 2),
])  # fmt: skip
def test_training_stops_once_nothing_improves(values, options, steps):
    given = iter(values)
    stop = sf.train.EarlyStop("value", **options)
    _, history = fitted(evaluate=lambda model: {"value": next(given)}, evaluate_every=1, stop=stop)
    assert history.steps == steps


def test_one_early_stop_serves_several_trainings():
    stop = sf.train.EarlyStop("value", patience=2)
    for _ in range(2):
        _, history = fitted(evaluate=lambda model: {"value": 1.0}, evaluate_every=1, stop=stop)
        assert history.steps == 3
    assert repr(stop) == "EarlyStop('value', 2, min_delta=0.0, mode='min')"


def test_a_step_of_the_history_is_monitored_too_and_an_unknown_name_is_refused():
    _, history = fitted(metrics={"one": lambda out, y: 1.0}, stop=sf.train.EarlyStop("one", patience=2))
    assert history.steps == 3
    with pytest.raises(ValueError, match="EarlyStop monitors 'los', but the values are value, loss, lr"):
        fitted(evaluate=lambda model: {"value": 1.0}, evaluate_every=1, stop=sf.train.EarlyStop("los"))
    with pytest.raises(ValueError, match="patience must be an integer of at least 1, got 0"):
        sf.train.EarlyStop(patience=0)
    with pytest.raises(ValueError, match="mode must be 'min' or 'max', got 'least'"):
        sf.train.EarlyStop(mode="least")
    with pytest.raises(ValueError, match="min_delta must be a real number, got 'a'"):
        sf.train.EarlyStop(min_delta="a")
    with pytest.raises(ValueError, match="monitor must be the name of a value, got 3"):
        sf.train.EarlyStop(3)


def test_an_unknown_name_is_refused_at_once_where_nothing_will_be_evaluated():
    with pytest.raises(
        ValueError, match="EarlyStop monitors 'value'; without evaluate, it can monitor loss, lr, .* norm"
    ):
        fitted(stop=sf.train.EarlyStop("value"))


def test_a_loss_that_is_evaluated_is_watched_and_not_that_of_the_training_before():
    losses = iter([5.0, 4.0, 3.0, 2.0, 1.0])
    stop = sf.train.EarlyStop("loss", patience=1)
    options = dict(evaluate=lambda model: {"loss": next(losses)}, evaluate_every=2)
    _, history = fitted(given=toy.batches(9), stop=stop, **options)
    assert history.steps == 9 and history.evaluations["loss"] == [5.0, 4.0, 3.0, 2.0]


def test_a_column_that_is_not_evaluated_is_watched_from_the_first_evaluation_on():
    stop = sf.train.EarlyStop("one", patience=2)
    options = dict(evaluate=lambda model: {"value": 1.0}, evaluate_every=4, metrics={"one": lambda out, y: 1.0})
    _, history = fitted(given=toy.batches(9), stop=stop, **options)
    assert history.steps == 4
