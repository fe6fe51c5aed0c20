"""Notebooks are stored with small outputs of their present code, and run from beginning to end."""

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

#: The cells of notebooks in IPython's shell, as a kernel carries them out: how many show something, and the number of
#: figures, which have few dots and no layout here. Each notebook begins without names. In a process of its own it
#: would load the kernels again.
RUN = """
import json, sys
from matplotlib import pyplot
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from tests.figures import make_coarse

class Shell(InteractiveShell):
    def enable_gui(self, gui=None):
        pass  # as kernels do, whose figures are drawn inline

make_coarse()
shell = Shell.instance()
for name, cells in json.load(sys.stdin).items():
    shell.reset()
    pyplot.rcdefaults()
    shown = figures = 0
    for source in cells:
        with capture_output() as output:
            done = shell.run_cell(source)
        done.raise_error()
        shown += bool(output.stdout or output.outputs)
        figures += sum("image/png" in one.data for one in output.outputs)
    print(json.dumps([name, shown, figures]), flush=True)
"""

#: Texts in cells, and the code that replaces them: the code needs shorter trainings than the figures.
SMALLER = {
    "few_bit_stochastic_rounding": [("terms, addend = 1000", "terms, addend = 100"), ("(64, 4096)", "(4, 4096)")],
    "fp16_run_is_nan": [("epochs=4", "epochs=1")],
    "fp8_and_block_scaling": [("epochs=6", "epochs=1")],
    "narrow_solvers": [("copies=2048", "copies=128"), ("np.arange(2, 12)", "np.arange(2, 8)")],
    "policies_on_your_model": [("epochs=8", "epochs=1")],
    "pytorch_models": [("steps=100", "steps=2")],
    "replicas_of_a_gradient": [("range(5)", "range(1)"), ("epochs=4", "epochs=1"), ("(1024, 8)", "(256, 8)")],
    "the_cheapest_policy": [
        ("range(32)", "range(4)"),
        ("range(5)", "range(2)"),
        ("range(100, 110)", "range(100, 102)"),
    ],
    "rounding_and_its_theory": [("1_000_000", "10_000"), ("np.arange(3, 15)", "np.arange(3, 10)")],
    "sums_and_tensor_cores": [("np.arange(4, 15)", "np.arange(4, 10)"), ("np.arange(7, 14)", "np.arange(7, 10)")],
    "underflow_and_loss_scaling": [("steps=100", "steps=5"), ("steps=300", "steps=20")],
    "update_cancellation": [("n, u = 2000", "n, u = 200"), ("epochs=3", "epochs=1"), ("(1024, 1", "(256, 1")],
}


def code_cells(path):
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def smaller(name, cells):
    """Return the cells of a notebook with shorter trainings."""
    for text, instead in SMALLER.get(name, ()):
        assert any(text in cell for cell in cells), f"{name} has no {text}"
        cells = [cell.replace(text, instead) for cell in cells]
    return cells


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_its_title_and_how_it_is_run_and_small_outputs_of_its_code(path):
    notebook = json.loads(path.read_text())
    first = "".join(notebook["cells"][0]["source"])
    assert re.match(r"# \w", first) and "pip install '.[notebooks]'" in first
    assert notebook["metadata"].get(KEY) == digest(notebook), f"python -m benchmarks.notebooks {path.stem}"
    assert path.stat().st_size < 200 * 1024
    for cell in code_cells(path):
        figures = ["image/png" in output.get("data", {}) for output in cell["outputs"]]
        assert sum(figures) == "".join(cell["source"]).count("plt.show()") and cell["execution_count"] is None
        assert all(output["output_type"] != "error" for output in cell["outputs"])


def test_printed_lines_are_one_output_and_errors_are_omitted():
    lines = [{"output_type": "stream", "name": "stdout", "text": f"{number}\n"} for number in range(2)]
    printed = {"name": "stdout", "output_type": "stream", "text": ["0\n", "1\n"]}
    assert merged([small(line) for line in lines]) == [printed]
    table = {"output_type": "execute_result", "data": {"text/html": "<b>1</b>", "text/plain": "1"}}
    assert small(table)["data"] == {"text/plain": "1"}


def test_notebooks_run_and_show_their_figures_whatever_backend_is_set():
    cells = {
        path.stem: smaller(path.stem, ["".join(cell["source"]) for cell in code_cells(path)]) for path in NOTEBOOKS
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN], input=json.dumps(cells),
        capture_output=True, text=True, timeout=800, cwd=ROOT, env={**os.environ, "MPLBACKEND": "Agg"},
    )  # fmt: skip
    outcomes = {name: (shown, figures) for name, shown, figures in map(json.loads, done.stdout.splitlines())}
    assert list(outcomes) == list(cells) != [], done.stderr[-3000:]
    assert all(shown >= 1 for shown, _ in outcomes.values())
    want = {name: sum(cell.count("plt.show()") for cell in of_one) for name, of_one in cells.items()}
    assert {name: figures for name, (_, figures) in outcomes.items()} == want
