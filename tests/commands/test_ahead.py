"""A selftest without compiled kernels uses the other cores to compile in advance."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.kernels.compile import cache
from simfloat.tools.commands import selftest


class Context:
    """As multiprocessing's, but that its processes only say what was asked of them."""

    def __init__(self):
        self.shares, self.started, self.killed = [], 0, 0

    def Process(self, target, args, daemon):  # noqa: N802
        assert target is selftest.carry_out and daemon
        self.shares.append(args[0])
        return self

    def start(self):
        self.started += 1

    def kill(self):
        self.killed += 1


@pytest.fixture
def context(monkeypatch):
    context = Context()
    monkeypatch.setattr(selftest, "get_context", lambda method: context)
    monkeypatch.setattr(sf, "get_threads", lambda: 3)
    monkeypatch.setattr(cache, "kernel_directories", lambda: ["here"])
    return context


def test_the_other_cores_share_the_checks_from_the_end(context, monkeypatch):
    monkeypatch.setattr(cache, "count_kernels", lambda place: 0)
    with selftest.compile_ahead(list("edcba")):
        assert (context.started, context.killed) == (2, 0)
    assert context.shares == [["e", "c", "a"], ["d", "b"]]
    assert context.killed == 2, "nothing runs on when the checks are done"


def test_nothing_is_compiled_ahead_if_kernels_are_stored(context, monkeypatch):
    monkeypatch.setattr(cache, "count_kernels", lambda place: 1)
    with selftest.compile_ahead(list("abc")):
        pass
    assert context.started == 0


def test_a_share_is_carried_out(monkeypatch):
    monkeypatch.setattr(sf, "set_threads", lambda count: None)
    before = np.geterr()
    selftest.carry_out(["random generator", "codes round trip"])
    assert np.geterr() == before
