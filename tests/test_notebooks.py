"""Notebooks are stored with small outputs of the code that they have, and run from beginning to end."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.notebooks import KEY, digest, merged, small

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

#: Carries out notebooks in IPython's shell, as a kernel would, one after the other, with no names left of those before:
#: a line asks for the cells of each, and is answered by how many show something and how many figures there are, or by
#: what went wrong.
RUN = """
import json, sys, traceback
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

class Shell(InteractiveShell):
    def enable_gui(self, gui=None):
        pass  # as kernels do, whose figures are drawn inline

def carried_out(cells):
    shell.reset()
    shown, figures = 0, 0
    for source in cells:
        with capture_output() as output:
            done = shell.run_cell(source)
        done.raise_error()
        shown += bool(output.stdout or output.outputs)
        figures += sum("image/png" in one.data for one in output.outputs)
    return shown, figures

sys.path.insert(0, "")
shell = Shell.instance()
for line in sys.stdin:
    try:
        answer = carried_out(json.loads(line))
    except Exception:
        answer = traceback.format_exc()
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture(scope="module")
def runner():
    """A process that carries out notebooks, which imports what they need once."""
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with subprocess.Popen([sys.executable, "-c", RUN], cwd=ROOT, env=environment, **pipes) as process:
        yield process
        process.stdin.close()


def code_cells(path):
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_with_small_outputs_of_the_code_that_it_has(path):
    notebook = json.loads(path.read_text())
    assert notebook["metadata"].get(KEY) == digest(notebook), f"python -m benchmarks.notebooks {path.stem}"
    assert path.stat().st_size < 200 * 1024
    for cell in code_cells(path):
        figures = ["image/png" in output.get("data", {}) for output in cell["outputs"]]
        assert sum(figures) == "".join(cell["source"]).count("plt.show()") and cell["execution_count"] is None
        assert all(output["output_type"] != "error" for output in cell["outputs"])


def test_of_outputs_what_is_printed_line_by_line_is_one_and_errors_are_none():
    lines = [{"output_type": "stream", "name": "stdout", "text": f"{number}\n"} for number in range(2)]
    assert merged([small(line) for line in lines]) == [
        {"name": "stdout", "output_type": "stream", "text": ["0\n", "1\n"]}
    ]
    table = {"output_type": "execute_result", "data": {"text/html": "<b>1</b>", "text/plain": "1"}}
    assert small(table)["data"] == {"text/plain": "1"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_its_figures_whatever_backend_is_set(path, runner):
    cells = ["".join(cell["source"]) for cell in code_cells(path)]
    print(json.dumps(cells), file=runner.stdin, flush=True)
    answer = json.loads(runner.stdout.readline())
    assert isinstance(answer, list), answer
    shown, figures = answer
    assert shown >= 1 and figures == sum(cell.count("plt.show()") for cell in cells)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_begins_with_its_title_and_says_how_it_is_run(path):
    first = "".join(json.loads(path.read_text())["cells"][0]["source"])
    assert re.match(r"# \w", first) and "pip install '.[notebooks]'" in first
