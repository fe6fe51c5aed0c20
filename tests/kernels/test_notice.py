"""A first call that takes long prints one line with the reason; compiled functions print nothing."""

import io
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import simfloat
from simfloat.terminal import ERASE_LINE, LINE, Notice, reserve_line

# Compiles two kernels and, since patience is short, long enough to say so.
CODE = """
import numpy as np
from simfloat import terminal
terminal.PATIENCE = 0.01
from simfloat.kernels import fused_loops, rounding_loops
x, out = np.array([[1.5, -3.0]]), np.empty((1, 2))
fused_loops.fill_powers(x, 0.0, out)
rounding_loops.copy(x[0], np.zeros(1, np.uint32), out[0], x[0])
assert out.tolist() == [[1.5, -3.0]], out
"""


def errors_of(tmp_path):
    paths = {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path(simfloat.__file__).parents[1])}
    environment, command = {**os.environ, **paths}, [sys.executable, "-W", "error", "-c", CODE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return done.stderr


def test_compiling_is_said_once_and_loading_never(tmp_path):
    assert errors_of(tmp_path) == f"{LINE}\n"
    assert errors_of(tmp_path) == ""


@pytest.fixture
def notice(monkeypatch):
    monkeypatch.setattr("simfloat.terminal.PATIENCE", 0.2)
    return Notice()


def test_short_compilations_add_up(notice, capsys):
    for _ in range(3):
        notice.begin()
        time.sleep(0.05)
        notice.end()
        assert notice.due
    time.sleep(0.3)
    assert notice.due, "what is computed in between does not count"
    notice.begin()
    time.sleep(0.5)
    notice.begin()
    notice.end()
    assert capsys.readouterr().err == f"{LINE}\n"


def test_on_a_terminal_a_line_names_each_later_kernel_and_is_erased(notice, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    notice.say()
    notice.begin("round halves")
    notice.end()
    with reserve_line():
        notice.begin("sum rows")
        notice.end()
    progress = "simfloat: compiling kernel 1 of this process, round halves (0 s so far)"
    assert terminal.getvalue() == f"{LINE}\n{ERASE_LINE}{progress}{ERASE_LINE}", "another call has the line then"
    notice.silence()
    notice.begin("round halves")
    notice.end()
    assert terminal.getvalue().count("round halves") == 1


def test_nothing_is_printed_without_standard_error(notice, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", None)
    notice.say()
    closed = Notice()
    with open(os.devnull, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
    closed.say()
    assert capsys.readouterr().out == "" and not notice.due and not closed.due
