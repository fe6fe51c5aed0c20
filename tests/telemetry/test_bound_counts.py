"""Places add events directly to the counts of a recorder: no event is lost or counted twice."""

import copy
import pickle
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic import target
from simfloat.kernels.rounding.events import INFINITE, TOTAL, events_for
from simfloat.simulation.arithmetic import PendingEvents

X, Y = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32), np.arange(8) % 3


class Separately(sf.Recorder):
    """A recorder of another class, which receives the events of every call."""


def training(optimizer=sf.optim.AdamW):
    """Return a function that trains a small model for one step."""
    model = sf.nn.MLP([6, 5, 3], rng=0)
    chosen = optimizer(model.parameters(), lr=0.1)

    def step():
        chosen.zero_grad()
        sf.nn.cross_entropy(model(X), Y).backward()
        chosen.step()

    return step


def entries(recorder):
    return [(key, events.tolist()) for key, events in recorder.entries()]


@pytest.mark.parametrize("policy", ["bf16-standard", "bf16-kahan", "fp8-hybrid", "amp-bf16"])
@pytest.mark.parametrize("options", [{}, {"path": "*.weight"}, {"phase": "backward"}, {"more": True}], ids=str)
def test_counts_are_those_of_an_observer_that_receives_each_call(policy, options):
    recorders = sf.Recorder(**options), Separately(**options)
    for recorder in recorders:
        for optimizer in (sf.optim.SGD, sf.optim.AdamW):
            step = training(optimizer)
            with sf.simulate(policy, observer=recorder):
                step(), step()
    assert entries(recorders[0]) == entries(recorders[1])


def test_counts_are_complete_after_a_recorder_is_read_reset_loaded_or_copied():
    def run(recorder):
        step, results = training(), []
        with sf.simulate("bf16-standard", observer=recorder):
            for _ in range(2):
                step(), step()
                recorder.step(loss=1.0)
                copies = copy.deepcopy(recorder), pickle.loads(pickle.dumps(recorder))
                results += map(entries, (recorder, *copies))
                state = recorder.state_dict()
                step()
                results += [entries(recorder), recorder.series("*.weight")["total"].tolist()]
                recorder.load_state_dict(state)
                results.append(entries(recorder))
                step()
                results.append(entries(recorder))
                recorder.reset()
                assert not recorder.entries()
        step_alone = training()
        with sf.simulate("fp32", observer=recorder):
            step_alone()
        return [*results, entries(recorder)]

    assert run(sf.Recorder()) == run(Separately())


def test_a_switch_of_the_policy_and_an_error_in_the_middle_keep_the_counts():
    def run(recorder):
        step, x = training(), sf.Tensor(X.copy(), requires_grad=True)
        with sf.simulate("bf16-standard", observer=recorder) as simulation:
            step()
            simulation.policy = "fp32"
            step()
            simulation.policy = "bf16-standard"
            step()
            y = (x * x).sum()
            x.data[0, 0] = 7.0
            with pytest.raises(ValueError, match="written to"):
                y.backward()
            step()
        return entries(recorder)

    assert run(sf.Recorder()) == run(Separately())


def test_threads_share_a_recorder():
    recorder, alone = sf.Recorder(), sf.Recorder()

    def run(_):
        step = training()
        with sf.simulate("bf16-standard", observer=recorder):
            for _ in range(3):
                step()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, range(2)))
    step = training()
    with sf.simulate("bf16-standard", observer=alone):
        for _ in range(3):
            step()
    assert {key: [2 * n for n in events] for key, events in entries(alone)} == dict(entries(recorder))


def test_the_first_nan_is_the_same():
    recorders = sf.Recorder(), Separately()
    for recorder in recorders:
        parameter = sf.Parameter(np.float32([1.0, 2.0, -1.0]))
        with sf.simulate("bf16-standard", observer=recorder):
            (parameter.log() * np.float32(3.4e38) * np.float32(10.0)).sum().backward()
    assert recorders[0].first_nan == recorders[1].first_nan is not None
    assert entries(recorders[0]) == entries(recorders[1])


def test_many_blocks_with_one_recorder_keep_few_events_waiting(monkeypatch):
    monkeypatch.setattr(target, "MOST_WAITING", 5)
    recorders = sf.Recorder(), Separately()
    for recorder in recorders:
        step = training()
        for _ in range(4):
            with sf.simulate("bf16-standard", observer=recorder):
                step()
        assert len(recorder._waiting) <= 5
    assert entries(recorders[0]) == entries(recorders[1])


def test_a_recorder_of_the_program_needs_no_constructor_of_its_base():
    class Calls(sf.Recorder):
        more, number = False, 0

        def __init__(self):
            pass

        def wants(self, path, phase):
            return True

        def observe(self, *call):
            self.number += 1

    recorder, step = Calls(), training()
    sf.round(X, sf.FP16, observer=recorder)
    with sf.simulate("bf16-standard", observer=recorder):
        step()
    assert recorder.number > 20


def test_an_observer_of_this_package_receives_each_call_with_infinite_results(monkeypatch):
    calls, observe = [], sf.Recorder.observe

    def noted(self, events, operation, path="", phase="forward"):
        calls.append((operation, path, phase, int(events[INFINITE])))
        observe(self, events, operation, path, phase)

    monkeypatch.setattr(sf.Recorder, "observe", noted)
    layer = sf.nn.Linear(6, 3, rng=0)
    with sf.simulate("fp16-standard", observer=sf.Recorder()):
        layer(X).backward(np.full((8, 3), 6e4, np.float32))
    infinite = {call[:3] for call in calls if call[3]}
    assert infinite == {("linear", "weight", "backward"), ("add", "bias", "backward")}


class Computing(sf.Recorder):
    """A recorder of another class: it computes while it receives the first gradient, or raises an error."""

    def __init__(self, work):
        super().__init__()
        self.work = work

    def observe(self, events, operation, path="", phase="forward"):
        super().observe(events, operation, path, phase)
        if phase == "backward" and self.work is not None:
            work, self.work = self.work, None
            work()


def test_events_reach_an_observer_once_if_it_computes_or_fails_while_it_receives_them():
    def gradient(x):
        model = sf.nn.Linear(2, 1, rng=0)
        model(np.full((1, 2), x)).sum().backward()

    class Stopped(Exception):
        pass

    def stop():
        raise Stopped

    plain = Computing(None)
    with sf.simulate("bf16-standard", observer=plain):
        gradient(1.0), gradient(2.0)
    computing = Computing(lambda: gradient(2.0))
    with sf.simulate("bf16-standard", observer=computing):
        gradient(1.0)
    assert dict(entries(computing)) == dict(entries(plain))
    stopping = Computing(stop)
    pending = PendingEvents(stopping, "layer")
    for operation in ("add", "multiply"):
        pending.observe(events_for(pending), operation)
    pending.pending[0][0][TOTAL] = 3
    with pytest.raises(Stopped):
        pending.release("weight")
    pending.release("weight")
    assert stopping.counts(operation="add")["total"] == 3, "no event is passed on twice"


def test_a_recorder_whose_option_was_changed_keeps_its_counts():
    recorder, step = sf.Recorder(), training()
    with sf.simulate("bf16-standard", observer=recorder):
        step()
        total = recorder.counts()["total"]
        recorder.more = True
        step()
    assert recorder.counts()["total"] == 2 * total


def test_an_interrupt_while_counts_are_read_loses_none_of_them():
    recorder, step = sf.Recorder(), training()
    with sf.simulate("bf16-standard", observer=recorder):
        step()
        expected = recorder.counts(phase="update")["total"]
        recorder.add_later(lambda: signal.raise_signal(signal.SIGINT))
        step()
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
        try:
            with pytest.raises(KeyboardInterrupt):
                recorder.entries()
        finally:
            signal.signal(signal.SIGINT, before)
        assert recorder.counts(phase="update")["total"] == 2 * expected
        step()
    assert recorder.counts(phase="update")["total"] == 3 * expected
