"""What CONTRIBUTING's table says of each thing to add is enough: written into a copy of the sources, it works."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.extensions.extension import ROOT, copied, written
from tests.extensions.kernels import KERNELS
from tests.extensions.tables import TABLES
from tests.extensions.trainings import TRAININGS

#: Rows of CONTRIBUTING's table that are tried nowhere: what is no code, and what differs every time.
APART = {"a notebook", "a role of a policy", "an accumulator of another kind", "an algorithm of linear algebra"}

HAVE_DERIVATIVES = "test_every_pointwise_operation_has_a_derivative_for_each_operand"


def python(folder, *arguments, **environment):
    """What Python says that runs in a copy."""
    variables = {**os.environ, "PYTHONPATH": str(folder), **environment}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=500)


def promises(folder, name, extensions, **environment):
    """A copy of the sources with these extensions, and for each of them what went wrong."""
    copied(folder)
    for extension in extensions:
        written(extension, folder)
    done = python(folder, "-m", "tests.extensions.promises", name, **environment)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return promises(tmp_path_factory.mktemp("tables"), "tables", (*TABLES, *TRAININGS), PYTHONWARNINGS="error")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    return promises(tmp_path_factory.mktemp("kernels"), "kernels", KERNELS, NUMBA_DISABLE_JIT="1")


@pytest.mark.parametrize("extension", (*TABLES, *TRAININGS), ids=lambda extension: extension.adds)
def test_what_is_added_as_the_table_says_works(tables, extension):
    assert tables[1][extension.adds] == ""


@pytest.mark.parametrize("extension", KERNELS, ids=lambda extension: extension.adds)
def test_what_is_added_with_kernels_as_the_table_says_works(kernels, extension):
    assert kernels[1][extension.adds] == ""


@pytest.mark.parametrize("copy", ["tables", "kernels"])
def test_tests_of_names_and_pages_hold_with_the_extensions(request, copy):
    folder, _ = request.getfixturevalue(copy)
    chosen = ["tests/test_docs.py", "tests/test_structure.py", "tests/autodiff/test_table.py::" + HAVE_DERIVATIVES]
    done = python(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--device", "cpu", *chosen)
    assert done.returncode == 0, done.stdout


def test_every_row_of_the_table_is_tried():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = {row.split(" (")[0].strip() for row in re.findall(r"^\| (an? [^|]+?) \|", text, re.MULTILINE)}
    assert rows - APART == {extension.adds for extension in (*TABLES, *TRAININGS, *KERNELS)}
