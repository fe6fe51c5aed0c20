"""The table of CONTRIBUTING is complete: an addition written as it says works in a copy of the sources."""

import json
import os
import re
import subprocess
import sys

import pytest

from simfloat.kernels.compile import cache
from tests.extensions.extension import ROOT, copied, written
from tests.extensions.kernels import KERNELS
from tests.extensions.tables import TABLES
from tests.extensions.trainings import TRAININGS

#: Rows of CONTRIBUTING's table that are tried nowhere: what is no code, and what differs every time.
APART = {"a notebook", "a role of a policy", "an accumulator of another kind", "an algorithm of linear algebra"}

#: What tests say of names, pages and tables when everything is written. The examples of pages do not change with it,
#: and would compile every kernel of the copy.
NAMED = (
    "--deselect=tests/test_docs.py::test_the_examples_of_a_page_run",
    "tests/test_docs.py",
    "tests/test_structure.py",
    "tests/autodiff/test_table.py::test_every_pointwise_operation_has_a_derivative_for_each_operand",
    "tests/arithmetic/test_catalog.py::test_every_function_has_the_names_that_its_row_says",
    "tests/arithmetic/test_catalog.py::test_every_function_of_pytorchs_has_the_rule_of_its_row",
    "tests/arithmetic/test_catalog.py::test_the_specification_names_every_function",
    "tests/arithmetic/test_catalog.py::test_type_checkers_know_every_function",
)

#: Write the files that are generated from the tables, in one process.
WRITERS = """
import runpy, sys
runpy.run_module("tests.typed_functions", run_name="__main__")
sys.argv = ["docs.tables", "--write"]
runpy.run_module("docs.tables", run_name="__main__")
"""


def python(folder, *arguments, **environment):
    """Return the output of Python in a copy of the sources."""
    # Compiled modules of the first process that imports a copy save the others two seconds each.
    variables = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "", **environment}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=500)


@pytest.fixture
def compiled_here(tmp_path_factory):
    """A directory of kernels for copies whose kernels are these: what is compiled already serves them, too."""
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "simfloat").symlink_to(cache.kernel_directories()[0], target_is_directory=True)
    return {"NUMBA_CACHE_DIR": str(folder)}


def broken(folder, name, extensions, **environment):
    """Return the errors in a copy of the sources with these extensions, by the addition."""
    copied(folder)
    for extension in extensions:
        written(extension, folder)
    done = python(folder, "-m", "tests.extensions.promises", name, **environment)
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)
    assert list(outcomes) == [extension.adds for extension in extensions]
    return {adds: outcome for adds, outcome in outcomes.items() if outcome}


def test_an_addition_that_follows_the_table_works(tmp_path, compiled_here):
    assert broken(tmp_path, "tables", (*TABLES, *TRAININGS), PYTHONWARNINGS="error", **compiled_here) == {}


def test_what_is_added_with_kernels_as_the_table_says_works_and_all_of_it_has_names_and_pages(tmp_path):
    assert broken(tmp_path, "kernels", KERNELS, NUMBA_DISABLE_JIT="1") == {}
    for extension in (*TABLES, *TRAININGS):
        written(extension, tmp_path)
    assert python(tmp_path, "-c", WRITERS).returncode == 0
    done = python(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--device", "cpu", *NAMED)
    assert done.returncode == 0, done.stdout


def test_every_row_of_the_table_is_tried():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = {row.split(" (")[0].strip() for row in re.findall(r"^\| (an? [^|]+?) \|", text, re.MULTILINE)}
    assert rows - APART == {extension.adds for extension in (*TABLES, *TRAININGS, *KERNELS)}
