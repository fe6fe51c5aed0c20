"""fit: the steps of a handwritten loop, and the actions between them."""

import math

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits
from tests.train import toy

X, Y = np.ones((2, 3)), np.zeros(2, int)


def by_hand(policy, steps):
    model, optimizer, scaler = toy.parts()
    with sf.simulate(policy, seed=3):
        for x, y in toy.batches(steps):
            optimizer.zero_grad()
            scaler.scale(sf.nn.cross_entropy(model(x), y)).backward()
            scaler.step(optimizer)
            scaler.update()
    return model.state_dict()


def assert_same_weights(a, b):
    assert list(a) == list(b)
    for name in a:
        assert_bits(a[name], b[name])


def fitted(loss_fn=sf.nn.cross_entropy, given=None, policy="fp32", **options):
    model, optimizer, _ = toy.parts()
    with sf.simulate(policy):
        batches = toy.batches(6) if given is None else given
        return model, sf.train.fit(model, loss_fn, batches, optimizer, **options)


@pytest.mark.parametrize("policy", ["bf16-stochastic", "fp16-master", "bf16-kahan", "fp8-delayed"])
def test_fit_has_the_bits_of_a_loop_by_hand_however_often_it_evaluates(policy):
    want = by_hand(policy, 7)

    def evaluate(model):
        assert not model.training
        return {"loss": sf.nn.cross_entropy(model(np.ones((4, 3))), np.zeros(4, int))}

    for options in ({}, dict(evaluate=evaluate, evaluate_every=2), dict(metrics={"size": lambda out, y: out.size})):
        states, history = toy.fit(policy, 7, **options)
        assert_same_weights(states[0], want)
        assert history.steps == 7
    assert history["size"] == [8.0] * 7


def test_the_history_has_every_step():
    gradients = []

    class Spying(sf.optim.StaticLossScale):
        def unscale_(self, optimizer):
            before = [p.grad.copy() for p in optimizer.params]
            super().unscale_(optimizer)
            gradients.append((before, [p.grad.copy() for p in optimizer.params]))

    model, optimizer, _ = toy.parts()
    with sf.simulate("fp32"):
        history = sf.train.fit(
            model, sf.nn.cross_entropy, toy.batches(3), optimizer, scaler=Spying(8.0), progress=False,
            metrics={"right": lambda out, y: (out.argmax(-1) == y).mean()},
        )  # fmt: skip
    assert list(history) == ["loss", "lr", "scale", "skipped", "scaled_norm", "norm", "right"]
    assert history["scale"] == [8.0] * 3 and history["lr"] == [0.05] * 3 and history["skipped"] == [False] * 3
    for step, (before, after) in enumerate(gradients):
        for column, arrays in (("scaled_norm", before), ("norm", after)):
            flat = np.concatenate([g.astype(np.float64).ravel() for g in arrays])
            assert history[column][step] == pytest.approx(np.linalg.norm(flat), rel=1e-12)
    with sf.simulate("fp32"):
        first = toy.parts()[0]
        (x, y), *_ = toy.batches(1)
        assert history["loss"][0] == sf.nn.cross_entropy(first(x), y).item()
        assert history["right"][0] == (first(x).data.argmax(-1) == y).mean()
    assert repr(history).startswith("History(3 steps, loss ")


def overflowing(output, y):
    """A loss whose gradient is infinite in FP16 where a target is 1."""
    return (output.sum() * (1e30 if y[0] else 1.0)).mean()


def test_a_step_whose_gradients_are_not_finite_is_skipped_by_a_scaler_and_shown_in_the_history():
    x = np.ones((1, 3))
    batches = [(x, [0]), (x, [1]), (x, [0])]
    _, history = fitted(overflowing, batches, "fp16-master", scaler=sf.optim.DynamicLossScale(4.0))
    assert history["skipped"] == [False, True, False] and history["scale"] == [4.0, 4.0, 2.0]
    assert history.success_rate == 2 / 3 and history.not_finite == [1]


def test_without_a_scaler_a_loss_that_is_not_finite_continues_and_is_shown_in_the_history():
    x = np.ones((1, 3))
    model, history = fitted(overflowing, [(x, [0]), (x, [1]), (x, [0])], "fp16-master")
    assert math.isinf(history["loss"][1]) and math.isnan(history["loss"][2]) and history.not_finite == [1, 2]
    assert history["skipped"] == [False] * 3 and np.isnan(model.head.weight.data).all()


@pytest.mark.parametrize("scaler", [None, sf.optim.StaticLossScale(64.0)])
def test_gradients_are_clipped_after_they_are_unscaled(scaler):
    model, optimizer, _ = toy.parts()
    with sf.simulate("fp32"):
        for x, y in toy.batches(3):
            optimizer.zero_grad()
            loss = sf.nn.cross_entropy(model(x), y)
            (scaler.scale(loss) if scaler else loss).backward()
            if scaler:
                scaler.unscale_(optimizer)
            sf.optim.clip_grad_norm_(model.parameters(), 0.125)
            optimizer.step()
            if scaler:
                scaler.update()
    got, history = fitted(given=toy.batches(3), scaler=scaler, clip=0.125)
    assert_same_weights(got.state_dict(), model.state_dict())
    assert min(history["norm"]) > 0.125


def test_gradients_that_are_not_finite_are_not_clipped_but_skipped():
    x = np.ones((1, 3))
    _, history = fitted(overflowing, [(x, [1])], "fp16-master", scaler=sf.optim.DynamicLossScale(4.0), clip=1.0)
    assert history["skipped"] == [True] and not math.isfinite(history["norm"][0])


def test_gradients_of_several_batches_are_added_and_each_loss_is_divided_by_their_number():
    model, optimizer, _ = toy.parts()
    with sf.simulate("fp32"):
        all_batches = list(toy.batches(5))
        for group in (all_batches[:2], all_batches[2:4], all_batches[4:]):
            optimizer.zero_grad()
            for x, y in group:
                (sf.nn.cross_entropy(model(x), y) / len(group)).backward()
            optimizer.step()
    got, history = fitted(given=toy.batches(5), accumulation=2)
    assert_same_weights(got.state_dict(), model.state_dict())
    assert history.steps == 3


class Hidden(sf.nn.Module):
    """Its layers, or parameters, stand where no module is looked for."""

    def __init__(self, layers):
        super().__init__()
        self.head, self.layers = sf.nn.Linear(5, 2), lambda: layers

    def forward(self, x):
        for layer in self.layers():
            x = layer(x) if isinstance(layer, sf.nn.Module) else x * layer
        return self.head(x)


@pytest.mark.parametrize("make, message", [
    (lambda: Hidden([sf.nn.Linear(3, 5)]), r"The loss depends on bias of shape \(5,\), which does not belong"),
    (lambda: Hidden([sf.Parameter(np.ones(5))]), r"on a parameter of shape \(5,\), .* use a simfloat.nn.ModuleList"),
])  # fmt: skip
def test_parameters_that_are_not_the_models_are_refused_before_anything_is_learned(make, message):
    model = make()
    before = model.state_dict()
    x = np.ones((4, 5 if isinstance(model.layers()[0], sf.Parameter) else 3))
    with sf.simulate("fp64"), pytest.raises(ValueError, match=message):
        sf.train.fit(model, sf.nn.mse_loss, [(x, np.ones((4, 2)))], sf.optim.SGD(model.parameters(), lr=0.1))
    assert_same_weights(model.state_dict(), before)


def test_a_loss_with_parameters_of_its_own_is_refused_and_a_teacher_without_gradients_is_not():
    teacher = toy.parts(seed=5)[0]

    def distilled(output, y):
        with sf.no_grad():
            wanted = teacher(X)
        return sf.nn.mse_loss(output, wanted)

    def learned(output, y):
        return sf.nn.mse_loss(output, teacher(X))

    _, history = fitted(distilled, [(X, Y)] * 3)
    assert history["loss"][0] > history["loss"][-1]
    with pytest.raises(ValueError, match="The loss depends on head.bias of shape .* which does not belong"):
        fitted(learned, [(X, Y)])


def test_a_model_may_use_a_parameter_twice_and_leave_others_out():
    model = toy.parts()[0]
    with sf.simulate("fp32"):
        optimizer = sf.optim.SGD(model.head.parameters(), lr=0.1)
        history = sf.train.fit(
            model, lambda out, y: sf.nn.mse_loss(out, y) + model.head(np.ones((1, 5))).sum(), [(X, X[:, :2])], optimizer
        )
    assert history.steps == 1


@pytest.mark.parametrize("options, message", [
    (dict(given=[(X, Y), (X, Y, Y)]), r"Batch 1 must be a pair \(x, y\), got a tuple of 3"),
    (dict(given=[X]), "Batch 0 must be a pair .* got a ndarray"),
    (dict(given=3), r"batches must be an iterable of pairs \(x, y\), got a int"),
    (dict(given=[]), "fit was given no batches"),
    (dict(every=0), "every must be an integer of at least 1, got 0"),
    (dict(every=2.5), "every must be an integer of at least 1, got 2.5"),
    (dict(steps=-1), "steps must be an integer of at least 1, got -1"),
    (dict(accumulation=True), "accumulation must be an integer of at least 1, got True"),
    (dict(scaler=2.0**16), "scaler must be a loss scale of simfloat.optim, got a float"),
    (dict(loss_fn=None), "loss_fn is called as .* got a NoneType"),
    (dict(loss_fn=lambda out, y: out), r"must give a Tensor of one element, got one of shape \(4, 2\)"),
    (dict(loss_fn=lambda out, y: 1.0), "must give a Tensor of one element, got a float"),
    (dict(clip=-1.0), "clip must not be negative, got -1.0"),
    (dict(switching="fp32"), "switching must be a function, got a str"),
    (dict(schedule=1), "schedule needs a method step; int has none"),
    (dict(metrics={"loss": len}), "A metric cannot be called 'loss'"),
    (dict(metrics=[len]), "metrics must be functions by name"),
    (dict(metrics={"a": lambda out, y: out}), "a must be a number, got array"),
    (dict(evaluate=1), "evaluate must be a function, got a int"),
    (dict(evaluate=lambda model: 1.0, evaluate_every=1), "evaluate must return numbers by name"),
    (dict(evaluate=lambda model: {"step": 1}, evaluate_every=1), "evaluate cannot use the name 'step'"),
    (dict(evaluate=lambda model: {"a": "b"}, evaluate_every=1), "evaluate's a must be a number, got 'b'"),
    (dict(policy=sf.policies["fp32"].override("haed", compute=sf.BF16)), "Override 'haed' matches no layer"),
    (dict(progress="yes"), "progress must be True, False or None, got 'yes'"),
    (dict(progress=1), "progress must be True, False or None, got 1"),
])  # fmt: skip
def test_wrong_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fitted(**options)


def test_parts_that_do_not_belong_together_are_refused():
    model, optimizer, _ = toy.parts()
    other = toy.parts()[0]
    with sf.simulate("fp32"):
        with pytest.raises(
            ValueError, match=r"The optimizer updates hidden.0.weight of shape \(5, 3\), which does not belong"
        ):
            sf.train.fit(other, sf.nn.cross_entropy, toy.batches(1), optimizer)
        with pytest.raises(ValueError, match="fit trains a simfloat.nn.Module or a torch.nn.Module, got a function"):
            sf.train.fit(lambda x: x, sf.nn.cross_entropy, toy.batches(1), optimizer)
        with pytest.raises(ValueError, match="fit takes an optimizer of simfloat.optim, got a float"):
            sf.train.fit(model, sf.nn.cross_entropy, toy.batches(1), 0.1)
        foreign = sf.optim.StepLR(toy.parts()[1], 1)
        with pytest.raises(ValueError, match="schedule belongs to another optimizer"):
            sf.train.fit(model, sf.nn.cross_entropy, toy.batches(1), optimizer, schedule=foreign)
        plateau = sf.optim.ReduceLROnPlateau(optimizer)
        with pytest.raises(ValueError, match="fit passes no measure to its schedule, but ReduceLROnPlateau needs one"):
            sf.train.fit(model, sf.nn.cross_entropy, toy.batches(1), optimizer, schedule=plateau)
    with pytest.raises(ValueError, match="needs a policy in force"):
        sf.train.fit(model, sf.nn.cross_entropy, toy.batches(1), optimizer)


def test_a_bar_shows_loss_and_scale(capsys):
    pytest.importorskip("rich", reason="draws the bar")
    fitted(progress=True)
    shown = capsys.readouterr().err
    assert "6/6" in shown or "6/?" in shown
    assert "loss" in shown and "scale 1" in shown
    fitted()
    assert capsys.readouterr().err == ""


def test_text_printed_during_a_bar_goes_to_standard_output(capsys, monkeypatch):
    pytest.importorskip("rich", reason="draws the bar")
    monkeypatch.setenv("FORCE_COLOR", "1")  # standard error is a terminal
    fitted(progress=True, evaluate=lambda model: print("in between") or {"one": 1.0}, evaluate_every=1)
    assert "in between" in capsys.readouterr().out


def test_an_observer_receives_every_step_with_its_row_of_the_history():
    recorder = sf.Recorder()
    _, history = toy.fit("fp16-master", 6, observer=recorder, metrics={"rows": lambda output, y: len(y)})
    scalars = recorder.scalars()
    assert list(scalars) == list(history)
    for name, column in scalars.items():
        assert np.array_equal(column, np.array(history[name], np.float64), equal_nan=True)
    assert recorder.success_rate == history.success_rate
    updates = recorder.series("head.weight", "update", operation="update")["total"]
    assert updates.tolist() == [0 if skipped else 10 for skipped in history["skipped"]]


def test_an_observer_without_steps_is_left_alone():
    class Deaf:
        def observe(self, events, operation, path="", phase="forward"):
            pass

    toy.fit("fp16-master", 2, observer=Deaf())


def test_callbacks_are_called_after_each_step_with_its_columns_of_the_history():
    told = []
    _, history = fitted(metrics={"one": lambda out, y: 1.0}, callbacks=[lambda *given: told.append(given)])
    assert [step for step, _ in told] == list(range(1, history.steps + 1))
    assert all(record == {name: history[name][step - 1] for name in history} for step, record in told)
    _, plain = fitted(metrics={"one": lambda out, y: 1.0}, callbacks=iter([lambda step, record: record.clear()]))
    assert dict(plain) == dict(history), "what a callback does with its record changes nothing"


def test_an_error_in_a_callback_loses_no_step(tmp_path):
    def fails(step, record):
        if step == 3:
            raise RuntimeError("the logger is gone")

    with pytest.raises(RuntimeError, match="the logger is gone"):
        fitted(callbacks=[fails], checkpoint=tmp_path)
    assert sf.train.manifest(tmp_path)["steps"] == 3


@pytest.mark.parametrize("given, message", [
    (print, r"callbacks must be a list of functions; use callbacks=\[print\]"), (3, r"use callbacks=\[3\]"),
    ([3], "callbacks must be functions .step, record., got a int"),
])  # fmt: skip
def test_an_invalid_callback_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        fitted(callbacks=given)
