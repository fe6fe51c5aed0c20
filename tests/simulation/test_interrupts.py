"""Ctrl-C at the end of a block waits until the block is closed."""

import signal
import sys

import pytest

import simfloat as sf
from simfloat.simulation import context


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
