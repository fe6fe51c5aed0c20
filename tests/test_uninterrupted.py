"""Ctrl-C waits until a critical action is complete."""

import signal
import subprocess
import sys
import threading

import pytest

from simfloat.uninterrupted import uninterrupted


@pytest.fixture(autouse=True)
def _handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_it_comes_at_the_end():
    done = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append("inner")
        done.append("outer")
    assert done == ["inner", "outer"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_it_comes_to_the_programs_own_handler():
    came = []
    signal.signal(signal.SIGINT, lambda *signaled: came.append(signaled[0]))
    with uninterrupted():
        signal.raise_signal(signal.SIGINT)
        assert came == []
    assert came == [signal.SIGINT]


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_objects_that_are_no_functions_are_unchanged(handler):
    signal.signal(signal.SIGINT, handler)
    with uninterrupted():
        assert signal.getsignal(signal.SIGINT) is handler


def test_in_other_threads_nothing_is_held_back():
    def work():
        with uninterrupted():
            found.append(signal.getsignal(signal.SIGINT))

    found = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


#: Has Ctrl-C come in the middle of the first import of Numba.
IMPORTED = """
import signal
import sys

import simfloat as sf


class Interrupt:
    def find_spec(name, *_):
        if name == "numba.core.dispatcher":
            sys.meta_path.remove(Interrupt)
            signal.raise_signal(signal.SIGINT)


signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupt)
try:
    sf.sum([0.1] * 64, accumulate=sf.BF16)
except KeyboardInterrupt:
    sf.sum([0.1] * 64, accumulate=sf.BF16)
    print(hasattr(sys.modules["numba"], "core"))
"""


def test_what_a_first_call_imports_is_there_as_a_whole():
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, timeout=120)
    assert done.stdout == "True\n", done.stderr
