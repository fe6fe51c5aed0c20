"""A first call that takes long prints one line with the reason; test_cache.py looks at what processes print."""

import io
import os
import sys
import time

import pytest

from simfloat.terminal import ERASE_LINE, LINE, Notice, reserve_line


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
