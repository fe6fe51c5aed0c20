"""The command line: exit codes 0, 1, 2 and 130, one message, no traceback, for every reader of the output."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simfloat as sf
from simfloat.__main__ import main
from simfloat.terminal import run_command
from simfloat.tools.commands import selftest
from tests.processes import without_notice

ROOT = Path(__file__).parents[1]
WORDS = "selftest --quick --version -h show round info --rounding toward_zero E4M3 e2m1 0.1 -1/3 -inf nan 1e-9".split()
SIMFLOAT = f'"{sys.executable}" -m simfloat'


def shell(line, **environment):
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(["bash", "-c", line], cwd=ROOT, env=variables, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("line, code, errors", [
    (f"{SIMFLOAT} selftest --quick | head -n 1; exit ${{PIPESTATUS[0]}}", 1, ""),
    (f"{SIMFLOAT} selftest --quick > /dev/full", 1, "Cannot write to standard output: No space left on device.\n"),
])  # fmt: skip
def test_output_that_nobody_reads_is_no_traceback(line, code, errors):
    done = shell(line)
    assert (done.returncode, without_notice(done.stderr)) == (code, errors)


def test_an_interrupted_selftest_ends_with_130_and_one_line():
    run = subprocess.Popen(
        [sys.executable, "-m", "simfloat", "selftest"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        cwd=ROOT,
        text=True,
    )
    assert run.stdout.readline().startswith("simfloat")
    time.sleep(0.2)
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=100)
    assert (run.returncode, without_notice(errors)) == (130, "Interrupted.\n")


def test_an_interrupt_inside_a_function_that_c_called_comes_once_more(capfd):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    @ctypes.CFUNCTYPE(None)
    def called_by_c():
        signal.raise_signal(signal.SIGINT)

    def command():
        called_by_c()
        time.sleep(10)
        return 0

    try:
        assert (run_command(command), capfd.readouterr().err) == (130, "Interrupted.\n")
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_partial_result_of_an_interrupt_is_not_used():
    lines = (
        "from simfloat.terminal import run_command, end_program",
        "class HalfBuilt:",
        "    def __init__(self): raise KeyboardInterrupt",
        "    def __del__(self): raise AttributeError('what __init__ never set')",
        "end_program(run_command(HalfBuilt))",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stderr) == (130, "Interrupted.\n")


def test_a_file_that_cannot_be_used_is_one_line(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["vectors", str(tmp_path / "file")]) == 1
    assert capsys.readouterr() == ("", f"Cannot use {tmp_path}/file: File exists.\n")


def test_the_version_and_the_help_exit_with_0(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"simfloat {sf.__version__}\n"
    assert main(["--help"]) == 0


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=6), max_size=4))
def test_no_command_line_ends_in_a_traceback(arguments):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selftest, "run", lambda options: 0)
        assert main(arguments) in (0, 2)


def test_an_interrupt_that_passes_through_an_exec_ends_with_130(tmp_path):
    body = """exec("raise KeyboardInterrupt")"""
    lines = ("from simfloat.terminal import run_command", f"raise SystemExit(run_command(lambda: exec({body!r})))")
    (tmp_path / "interrupted.py").write_text("\n".join(lines))
    variables = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    run = [sys.executable, "-m", "interrupted"]
    done = subprocess.run(run, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (130, "Interrupted.\n")


def test_a_shell_gets_commands_and_options_by_argcomplete(tmp_path):
    pytest.importorskip("argcomplete")
    for words, completed in (("simfloat war", "warmup"), ("simfloat warmup --fi", "--first-session")):
        asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "words")}
        line = {"COMP_LINE": words, "COMP_POINT": str(len(words)), "_ARGCOMPLETE_IFS": "\n"}
        subprocess.run([sys.executable, "-m", "simfloat"], env=os.environ | asked | line, timeout=60)
        assert (tmp_path / "words").read_text().split() == [completed]
