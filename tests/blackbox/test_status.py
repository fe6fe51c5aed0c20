"""The line about a search that takes long: on terminals only, and gone in the end."""

import io
import sys
import time

import pytest

from simfloat.terminal import ERASED, status


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_line_is_renewed_and_erased(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with status(lambda: "at work", seconds=0.01):
        for _ in range(1000):
            if "work" in sys.stderr.getvalue():
                break
            time.sleep(0.01)
    shown = sys.stderr.getvalue()
    assert shown.startswith(ERASED + "at work") and shown.endswith(ERASED)


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_what_is_no_terminal_shows_nothing(monkeypatch, stream):
    monkeypatch.setattr(sys, "stderr", stream)
    with status(lambda: "at work", seconds=0.001):
        time.sleep(0.05)
    assert stream is None or stream.getvalue() == ""


def test_what_is_soon_done_shows_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with pytest.raises(KeyError), status(lambda: "at work"):
        raise KeyError
    assert sys.stderr.getvalue() == ""
