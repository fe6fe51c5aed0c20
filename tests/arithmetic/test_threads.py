"""Threads: their number, and threads after a fork."""

import multiprocessing
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic import threads
from tests.bits import assert_bits
from tests.checks import with_threads

X = np.linspace(-3, 3, 1_000_000)


def test_the_number_of_threads_can_be_set():
    before = sf.get_threads()
    assert [sf.get_threads() for _ in with_threads(3, 1)] == [3, 1] and sf.get_threads() == before
    for nonsense in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="integer of at least 1"):
            sf.set_threads(nonsense)


def test_events_are_the_same_for_any_number_of_threads(rng, monkeypatch):
    monkeypatch.setattr(threads, "LEAST_WORK", 1000)
    a, b = rng.standard_normal((2, 150_001)) * 2.0 ** rng.integers(-20, 12, (2, 150_001))
    tables, results = [], []
    for _ in with_threads(1, 2, 5):
        recorder = sf.Recorder()
        results.append(sf.add(a, b, sf.FP16, sf.stochastic(), stream=sf.BitStream(2), observer=recorder))
        tables.append(recorder.entries()[0][1].tolist())
    assert tables[1:] == tables[:-1]
    assert_bits(results[1], results[0])
    assert_bits(results[2], results[0])


@pytest.mark.parametrize("place", [0, 2])  # on the pool, and here
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_when_one_piece_fails_no_other_is_at_work_any_more(place, error, monkeypatch):
    """Pieces write to memory that is kept for the next call; a late one would write into that call's sums."""
    monkeypatch.setattr(threads, "_count", 2)
    under_way, release = set(), threading.Event()

    def work(piece):
        if piece == place:
            time.sleep(0.02)  # until the other thread is at work
            threading.Timer(0.1, release.set).start()
            raise error
        under_way.add(piece)
        release.wait()
        under_way.remove(piece)

    with pytest.raises(error):
        threads.run_all(work, range(3))
    assert not under_way


def _in_child(queue):
    queue.put(sf.round(X, sf.BF16))


def test_a_forked_child_makes_its_own_threads(pytestconfig):
    if pytestconfig.getoption("--device") == "cuda":
        pytest.skip("a forked child cannot use the GPU of its parent, where calls are repeated")
    want = sf.round(X, sf.BF16)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with warnings.catch_warnings():
        # Python 3.12 warns of every fork while threads exist; that it works is what is tested.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = context.Process(target=_in_child, args=(queue,))
        child.start()
    assert_bits(queue.get(timeout=60), want)
    child.join()


def test_systems_that_cannot_fork_can_import_it():
    code = (
        "import os, random; del os.register_at_fork; import simfloat as sf; assert sf.round(0.1, 'e4m3') == 0.1015625"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


#: Has two threads work under an interrupt at one instruction after the other of what this thread does in Python.
INTERRUPTED = """
import sys
import time
from threading import get_ident

from simfloat.arithmetic import threads

threads.set_threads(2)
left, here, elsewhere = 0, get_ident(), set()


def work(piece):
    if get_ident() != here:
        elsewhere.add(piece)
    time.sleep(0.002 * (piece != 2))
    elsewhere.discard(piece)
    return piece


def at_instructions(frame, event, argument):
    global left
    frame.f_trace_opcodes = True
    left -= 1
    if left == 0:
        raise KeyboardInterrupt
    return at_instructions


count, interrupts = 0, 0
while not left:
    count += 1
    left = count
    sys.settrace(at_instructions)
    try:
        threads.run_all(work, (0, 1, 2))
    except KeyboardInterrupt:
        sys.settrace(None)
        interrupts += 1
        assert not elsewhere, (count, elsewhere)
    sys.settrace(None)
    left = max(left, 0)
    assert threads.run_all(work, (0, 1, 2)) == [0, 1, 2]
print(interrupts)
"""


def test_an_interrupt_at_any_instruction_leaves_the_threads_in_order():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100  # Python 3.12 tells of lines only
