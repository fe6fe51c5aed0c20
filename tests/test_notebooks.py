"""Notebooks are stored without outputs, and run from beginning to end in a kernel of their own."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

#: In a process of its own: what Jupyter warns of is not our business.
RUN = """
import sys, nbformat
from nbclient import NotebookClient
book = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(book, timeout=300, resources={"metadata": {"path": sys.argv[2]}}).execute()
outputs = [cell.outputs for cell in book.cells if cell.cell_type == "code"]
print(sum(map(bool, outputs)), sum("image/png" in output.get("data", {}) for cell in outputs for output in cell))
"""


def code_cells(path):
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(path):
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code_cells(path))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_its_figures_whatever_backend_is_set(path):
    done = subprocess.run(
        [sys.executable, "-c", RUN, path, ROOT],
        capture_output=True, text=True, timeout=400, cwd=ROOT, env={**os.environ, "MPLBACKEND": "Agg"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    shown, figures = map(int, done.stdout.split()[-2:])
    cells = ["".join(cell["source"]) for cell in code_cells(path)]
    assert shown >= 1 and figures == sum(cell.count("plt.show()") for cell in cells)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_begins_with_its_title_and_says_how_it_is_run(path):
    first = "".join(json.loads(path.read_text())["cells"][0]["source"])
    assert re.match(r"# \w", first) and "pip install '.[notebooks]'" in first
