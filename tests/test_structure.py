"""The structure of the sources: no file imports, directly or indirectly, a file that imports it; modes are rows."""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from benchmarks import shape

ROOT = Path(__file__).parents[1]


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for package in ("simfloat", "experiments") for path in (ROOT / package).rglob("*.py")}


def for_types_only(node):
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


#: Files whose imports for type checkers alone are left out: the list of all rooms, and helpers that name the type of
#: what calls them.
TYPES_LEFT_OUT = {"simfloat", "simfloat.formats.text", "simfloat.optim.optimizer"}


def imported(node, skipping=False):
    """The names that imports below a node ask for, those inside functions, and for type checkers alone, too."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports name their module in full"
        # What is asked for may be a module of the package, or a name in its __init__.
        for alias in node.names:
            name = f"{node.module}.{alias.name}"
            yield name if name in FILES else node.module
    for child in node.orelse if skipping and for_types_only(node) else shape.statements(node):
        yield from imported(child, skipping)


@cache
def graph():
    return {
        name: {other for other in imported(tree, name in TYPES_LEFT_OUT) if other in FILES}
        for name, tree in ((name, ast.parse(path.read_text(encoding="utf-8"))) for name, path in FILES.items())
    }


def test_no_imports_run_in_a_circle():
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        raise AssertionError(f"These files need one another: {' <- '.join(error.args[1])}.") from None


def test_imports_are_found_at_any_place():
    needs = graph()
    assert "simfloat.tools.selftest" in needs["simfloat.tools.commands.selftest"], "inside a function"
    assert {"simfloat.formats.format", "simfloat.formats.rounding"} <= needs["simfloat.formats.definition"]
    assert "simfloat.nn.arguments" in needs["simfloat.nn.linear"], "for type checkers alone"
    assert "simfloat.nn" not in needs["simfloat"], "a list of all rooms, for type checkers alone"


@pytest.mark.parametrize("source, named", [
    ("LOOPS['toward_zero']", ["toward_zero"]),
    ("f'{fused}_to_odd', 'lifted_nearest_even plain'", ["lifted_nearest_even plain", "_to_odd"]),
    ("def f():\n    'to_odd'\n    return 'into_odd_places', 'rounds to_odd.'", []),
], ids=["alone", "among words", "elsewhere"])  # fmt: skip
def test_names_of_modes_are_seen_in_strings(source, named):
    assert {text for _, text in shape.read(source).places["modes"]} == set(named)


def test_rounding_modes_are_named_where_they_are_defined_and_where_that_is_checked():
    files = shape.sources()
    assert files["formats/rounding.py"].places["modes"] and files["tools/selftest/definitions.py"].places["modes"]
    assert shape.files_naming_modes(files) == {}, "read the facts of a mode's row (`Rounding`) instead"
