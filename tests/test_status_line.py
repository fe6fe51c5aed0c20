"""The line about a long call appears only on terminals, once at a time, and is removed at the end."""

import io
import os
import re
import subprocess
import sys
import time
from multiprocessing import process

import pytest

import simfloat as sf
from simfloat import terminal as status_line
from simfloat.terminal import ERASE_LINE, reserve_line, status
from simfloat.train.history import ProgressBar


class Terminal(io.StringIO):
    def isatty(self):
        return True


def on_terminal(monkeypatch):
    """Standard error that is a terminal: not a fixture, for pytest captures it anew after those."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    return sys.stderr


def wait_for(text, stream):
    """Wait until a stream has the text, ten seconds at most."""
    for _ in range(1000):
        if text in stream.getvalue():
            return
        time.sleep(0.01)
    raise AssertionError(f"{text!r} is not in {stream.getvalue()!r}")


def shows_nothing(stream):
    with status(lambda: "at work", patience=0.001):
        time.sleep(0.05)
    return stream.getvalue() == ""


def test_a_line_is_renewed_and_erased(monkeypatch):
    terminal = on_terminal(monkeypatch)
    looks = iter(range(10**6))
    with status(lambda: f"look {next(looks)};", patience=0.01, every=0.01):
        wait_for("look 1;", terminal)
    assert terminal.getvalue().startswith(ERASE_LINE + "look 0;" + ERASE_LINE + "look 1;")
    assert terminal.getvalue().endswith(ERASE_LINE)


def test_a_line_is_no_longer_than_the_terminal(monkeypatch):
    terminal = on_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "20")
    with status(lambda: "at work " * 10 + "!", patience=0.001):
        wait_for("work", terminal)
    assert terminal.getvalue() == ERASE_LINE + "at work at work at " + ERASE_LINE


def test_nothing_is_shown_without_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert shows_nothing(sys.stderr)
    monkeypatch.setattr(sys, "stderr", None)
    with status(lambda: "at work", patience=0.001):
        time.sleep(0.01)


def test_a_short_call_shows_nothing(monkeypatch):
    terminal = on_terminal(monkeypatch)
    with pytest.raises(KeyError), status(lambda: "at work"):
        raise KeyError
    assert terminal.getvalue() == ""


def test_a_call_within_a_call_that_has_the_line_shows_nothing(monkeypatch):
    terminal = on_terminal(monkeypatch)
    with status(lambda: "outer"):
        assert shows_nothing(terminal)
    with reserve_line() as is_own:
        assert is_own
        assert shows_nothing(terminal)


def test_the_line_is_free_again_after_an_interrupt(monkeypatch):
    terminal = on_terminal(monkeypatch)
    with pytest.raises(KeyboardInterrupt), status(lambda: "at work", patience=0.001):
        wait_for("work", terminal)
        raise KeyboardInterrupt
    assert terminal.getvalue().endswith(ERASE_LINE)
    with reserve_line() as is_own:
        assert is_own


def test_the_bar_of_a_training_has_the_line(monkeypatch):
    terminal = on_terminal(monkeypatch)
    pytest.importorskip("rich")
    with ProgressBar(None, 1):
        before = len(terminal.getvalue())
        with status(lambda: "at work", patience=0.001):
            time.sleep(0.02)
        assert "at work" not in terminal.getvalue()[before:]
    with reserve_line() as is_own:
        assert is_own


def test_progress_false_turns_lines_and_bars_off(monkeypatch):
    terminal = on_terminal(monkeypatch)
    monkeypatch.setattr(status_line, "_is_wanted", True)
    sf.progress(False)
    assert shows_nothing(terminal)
    with ProgressBar(None, 1) as bar:
        bar.advance(1, {"loss": 1.0, "scale": 1.0})
    assert terminal.getvalue() == ""
    sf.progress(True)
    with status(lambda: "at work", patience=0.001):
        wait_for("work", terminal)


def test_processes_that_another_one_started_show_nothing(monkeypatch):
    terminal = on_terminal(monkeypatch)
    monkeypatch.setattr(process, "_parent_process", object())
    assert shows_nothing(terminal)


@pytest.mark.parametrize("shown", ["no", 1, None])
def test_progress_is_true_or_false(shown):
    with pytest.raises(ValueError, match="shown must be True or False"):
        sf.progress(shown)


#: Multiplies until the line has shown a product that is partly done.
LONG = """
import time
import numpy as np, simfloat as sf
from functools import partial
from simfloat.sums import contraction

shares, progress_bar = [], contraction.progress_bar

def note_share(share, seconds):
    shares.append(share)
    return progress_bar(share, seconds)

contraction.progress_bar = note_share
contraction.LEAST_WATCHED_WORK, contraction.PIECE_WORK, contraction.REFRESH_SECONDS = 0.0, 2e4, 0.0005
contraction.status = partial(contraction.status, patience=0.0005)
a = np.ones((400, 400), np.float32)
end = time.monotonic() + 60
while not any(shares) and time.monotonic() < end:
    sf.matmul(a, a, accumulate=sf.FP16)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are of POSIX")
def test_a_product_shows_a_bar_on_a_pseudo_terminal():
    import pty

    ours, theirs = pty.openpty()
    child = subprocess.Popen([sys.executable, "-c", LONG], stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 1 << 16):
            shown += chunk
    except OSError:  # Linux: the other side is closed
        pass
    os.close(ours)
    assert child.wait() == 0
    assert re.search(rb"simfloat \[[#-]{20}\] \d+%, \d+ s, \d+ s left: 160,000 sums of", shown)
    assert shown.decode().replace("\n", "").rstrip("\r").endswith(ERASE_LINE)
