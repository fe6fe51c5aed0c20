"""Blocks nest and repeat; generators, threads and tasks have their own."""

import asyncio
import contextlib
import contextvars
import gc
import signal
import sys
import threading

import numpy as np
import pytest

import simfloat as sf
from simfloat.simulation import context
from simfloat.simulation.context import current_context
from simfloat.simulation.simulation import current

NOT_IN_FORCE = "put it inside `with simfloat.simulate"


def is_recording():
    """True if operations are recorded for backward."""
    return current_context().recording


def policy_in_force():
    return current().policy.name


def test_a_simulation_may_be_entered_again_and_nested_in_itself():
    simulation = sf.simulate("fp32")
    for _ in range(2):
        with simulation:
            with sf.simulate("bf16-standard"):
                with simulation:
                    assert policy_in_force() == "fp32"
                assert policy_in_force() == "bf16-standard"
            with simulation as entered:
                assert entered is simulation
            assert policy_in_force() == "fp32"
        with pytest.raises(ValueError, match=NOT_IN_FORCE):
            current()


def test_no_grad_nests_in_itself_and_decorates():
    off = sf.no_grad()
    with off:
        with off:
            assert not is_recording()
        assert not is_recording()
    assert is_recording()

    @sf.no_grad()
    def twice(w):
        """Twice w."""
        return w * 2.0

    with sf.simulate("fp32"):
        w = sf.Tensor([1.0], requires_grad=True)
        assert not twice(w).requires_grad and (w * 2.0).requires_grad
    assert twice.__name__ == "twice" and twice.__doc__ == "Twice w."


def test_no_grad_refuses_to_decorate_what_would_run_outside_of_it():
    def generator():
        yield

    async def coroutine():
        pass

    for function in (generator, coroutine):
        with pytest.raises(ValueError, match=f"{function.__name__}.* runs after the call: put `with simfloat.no_grad"):
            sf.no_grad()(function)


def test_errors_end_blocks():
    with pytest.raises(KeyError), sf.simulate("fp32"), sf.no_grad():
        raise KeyError
    assert is_recording()
    with pytest.raises(ValueError, match=NOT_IN_FORCE):
        current()


def test_blocks_that_end_in_another_order_than_they_began_are_refused_and_gone():
    a, b = sf.simulate("fp32"), sf.simulate("fp64")
    a.__enter__()
    b.__enter__()
    with pytest.raises(
        ValueError, match=r"block of simulate\('fp32', seed=0\) ends while the block of simulate\('fp64'"
    ):
        a.__exit__(None, None, None)
    assert policy_in_force() == "fp64"
    b.__exit__(None, None, None)
    with pytest.raises(ValueError, match=r"simulate\('fp64', seed=0\) ends a block that was not opened here"):
        b.__exit__(None, None, None)
    with pytest.raises(ValueError, match=NOT_IN_FORCE):
        current()


def under(policy):
    with sf.simulate(policy):
        yield policy_in_force()
        yield policy_in_force()


def test_a_generator_keeps_its_block_to_itself():
    with sf.simulate("fp32"):
        seen = []
        for inside in under("bf16-standard"):
            seen += [inside, policy_in_force()]
        assert seen == ["bf16-standard", "fp32"] * 2
        assert policy_in_force() == "fp32"
    stopped = under("fp64")
    next(stopped)
    with pytest.raises(ValueError, match=NOT_IN_FORCE):
        current()
    stopped.close()


def test_generators_that_take_turns_keep_their_blocks_apart():
    a, b = under("fp64"), under("bf16-kahan")
    with sf.simulate("fp32"):
        assert [next(a), next(b), next(a), next(b)] == ["fp64", "bf16-kahan"] * 2
        with sf.simulate("fp16-master"):
            assert list(a) == []
            assert policy_in_force() == "fp16-master"
        assert list(b) == []
        assert policy_in_force() == "fp32"


def test_a_generator_may_outlive_the_block_it_began_in():
    with sf.simulate("fp32"):
        inside = under("fp64")
        next(inside)
    assert list(inside) == ["fp64"]
    with pytest.raises(ValueError, match=NOT_IN_FORCE):
        current()


def test_a_forgotten_generator_leaves_nothing_behind():
    with sf.simulate("fp32"):
        forgotten = under("fp64")
        next(forgotten)
        del forgotten
        gc.collect()
        assert policy_in_force() == "fp32"
    with pytest.raises(ValueError, match=NOT_IN_FORCE):
        current()


@contextlib.contextmanager
def managed(policy):
    with sf.simulate(policy), sf.no_grad():
        yield


def test_context_managers_made_of_generators_hold_for_their_with_statement():
    with managed("fp64"):
        assert policy_in_force() == "fp64" and not is_recording()
        with contextlib.ExitStack() as stack:
            stack.enter_context(managed("fp32"))
            stack.enter_context(sf.simulate("bf16-standard"))
            assert policy_in_force() == "bf16-standard"
        assert policy_in_force() == "fp64"
    assert is_recording()
    with pytest.raises(ValueError, match=NOT_IN_FORCE):
        current()


@pytest.fixture
def simulated():
    with sf.simulate("bf16-kahan") as simulation:
        yield simulation


def test_a_fixture_that_yields_holds_for_its_test(simulated):
    assert current() is simulated


def test_a_thread_begins_with_nothing_in_force_unless_it_copies_the_context():
    results = []

    def look():
        try:
            results.append(policy_in_force())
        except ValueError as error:
            results.append(str(error))

    with sf.simulate("fp32"):
        context = contextvars.copy_context()
        for target, arguments in ((look, ()), (context.run, (look,))):
            thread = threading.Thread(target=target, args=arguments)
            thread.start()
            thread.join()
    assert NOT_IN_FORCE in results[0] and results[1] == "fp32"


class Meeting(sf.nn.Module):
    """Two layers, run by threads that wait for each other inside of them."""

    def __init__(self, barrier):
        super().__init__()
        self.a, self.b = Waiting(barrier), Waiting(barrier)


class Waiting(sf.nn.Module):
    def __init__(self, barrier):
        super().__init__()
        self.barrier = barrier

    def forward(self, x):
        self.barrier.wait()
        y = x + 0.1
        self.barrier.wait()
        return y.softmax()


def test_layers_that_run_in_threads_of_one_simulation_stay_apart():
    recorder, model = sf.Recorder(), Meeting(threading.Barrier(2))
    policy = sf.policies["fp32"].override("b", activations=sf.BF16)
    x = sf.Tensor([1.0, 2.0])

    async def run():
        with sf.simulate(policy, observer=recorder):
            return await asyncio.gather(*(asyncio.to_thread(layer, x) for layer in (model.a, model.b)))

    a, b = asyncio.run(run())
    assert (a.format, b.format) == (sf.FP32, sf.BF16)
    assert recorder.counts("a") == recorder.counts("b")
    assert recorder.counts("a")["total"] == 9


def test_an_override_that_matched_no_path_is_refused_when_the_outermost_block_ends():
    model = sf.nn.MLP([2, 2, 2])
    simulation = sf.simulate(sf.policies["fp32"].override("head.weigth", compute=sf.BF16))
    with pytest.raises(ValueError, match="Override 'head.weigth' matches .* Did you mean 'head.weight'"):
        with simulation:
            with simulation:
                model(np.ones((1, 2)))
            assert current() is simulation


def test_an_asynchronous_generator_keeps_its_block_to_itself():
    async def inside():
        with sf.simulate("fp64"):
            yield policy_in_force()
            await asyncio.sleep(0)
            yield policy_in_force()

    @contextlib.asynccontextmanager
    async def managed():
        with sf.simulate("bf16-kahan"):
            yield

    async def run():
        with sf.simulate("fp32"):
            seen = [(policy, policy_in_force()) async for policy in inside()]
            async with managed():
                return [*seen, policy_in_force()]

    assert asyncio.run(run()) == [("fp64", "fp32"), ("fp64", "fp32"), "bf16-kahan"]


def test_a_simulation_prints_as_its_call_whatever_its_recorder_counted():
    simulation = sf.simulate("bf16-standard", seed=3, observer=sf.Recorder())
    with simulation:
        sf.Tensor([1.0]) + 1.0
    assert repr(simulation) == "simulate('bf16-standard', seed=3, observer=Recorder())"


@pytest.fixture
def _ctrl_c_at_ends(monkeypatch):
    """Send Ctrl-C, as a terminal does, at every point at the end of a block."""

    def interrupted():
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # it is held back
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(context, "_holder", interrupted)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_ctrl_c_at_ends")
@pytest.mark.parametrize(
    "block", [sf.simulate("fp32"), sf.no_grad(), sf.simulate("fp32").aside()], ids=["simulate", "no_grad", "aside"]
)
def test_a_block_that_has_ended_is_not_in_force(block):
    before = context.current_context()
    with pytest.raises(KeyboardInterrupt), block:
        assert context.current_context() != before
    assert context.current_context() == before
    assert not getattr(sys.modules.get("torch.nn.modules.module"), "_global_forward_pre_hooks", None)


def test_evaluating_aside_may_be_interrupted_anywhere(monkeypatch):
    """Streams and observer are as they were, also where the block had hardly begun."""
    sim = sf.simulate("bf16-stochastic", seed=1, observer=sf.Recorder())
    with sim:
        sf.Tensor(1.0) + 2.0**-10
        state, observer = sim.state, sim.observer

        def interrupted(*_):
            raise KeyboardInterrupt

        for name in ("_activate", "stream_positions"):
            monkeypatch.setattr(sim, name, interrupted)
            with pytest.raises(KeyboardInterrupt), sim.trial_run():
                pass
            monkeypatch.undo()
            assert sim.state == state and sim.observer is observer
