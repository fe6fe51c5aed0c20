"""The calls, sources and prose stay within benchmarks/budget.toml; and the measurements themselves.

The measurement takes ten seconds of processor time. Six of them are in a separate process, in which no other test has
filled caches or replaced a function.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

from benchmarks import budget, operations, prose, roads, shape

ROADS = "import json; from benchmarks import roads; print(json.dumps(roads.measure()))"


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="some roads are PyTorch's")
def test_every_number_keeps_to_its_line():
    done = subprocess.run(
        [sys.executable, "-c", ROADS],
        capture_output=True,
        text=True,
        cwd=budget.FILE.parents[1],
        env=os.environ | {"NUMBA_DISABLE_JIT": "0"},  # the call of a kernel counts as one, also beside a debugger
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout) | shape.measure() | prose.measure()
    broken = list(budget.complaints(measured, budget.read()))
    assert not broken, "\n".join(broken)


def test_what_is_written_keeps_to_its_own_lines(tmp_path, monkeypatch):
    measured = {table: {".": 1, "two": 2, "of 3, %": 8.34, "Four": 101, "five": 1001.0} for table in budget.TITLES}
    monkeypatch.setattr(budget, "FILE", tmp_path / "budget.toml")
    budget.FILE.write_text(budget.text(measured), encoding="utf-8")
    assert budget.read().keys() == measured.keys()
    assert list(budget.complaints(measured, budget.read())) == []


@pytest.mark.parametrize("table, number, line, says", [
    ("calls", 31, 30, "[calls] 'x' is 31, 1 above its line of 30: make it shorter, or raise the line in "),
    ("calls", 27, 30, None),
    ("calls", 26, 30, "[calls] 'x' is 26, 4 better than its line of 30: run python -m benchmarks.budget --write."),
    ("code", 4500, 5000, None),
    ("code", 4499, 5000, "[code] 'x' is 4499, 501 better than its line of 5000: run "),
    ("comments", 1.8, 1.9, "[comments] 'x' is 1.8, 0.1 below its line of 1.9: explain more, or lower the line in "),
    ("comments", 2.4, 1.9, None),
    ("comments", 2.5, 1.9, "[comments] 'x' is 2.5, 0.6 better than its line of 1.9: run "),
])  # fmt: skip
def test_a_number_is_complained_of_above_its_line_and_far_below(table, number, line, says):
    broken = list(budget.complaints({table: {"x": number}}, {table: {"x": line}}))
    assert [sentence[: len(says)] for sentence in broken] == ([says] if says else [])


def test_a_number_without_line_and_a_line_without_number_are_reported():
    broken = list(budget.complaints({"code": {"new": 10}}, {"code": {"old": 10}}))
    assert [sentence.partition(";")[0] for sentence in broken] == [
        "[code] 'new' stands in the sources only",
        "[code] 'old' stands in the budget only",
    ]


@pytest.mark.parametrize("table, number, line", [
    ("calls", 47, 47), ("calls", 282, 290), ("calls", 38.33, 38.4), ("code", 4912, 4950), ("shape", 571, 571),
    ("comments", 2.55, 2.5),
])  # fmt: skip
def test_lines_leave_a_little_room(table, number, line):
    assert budget.line(table, number) == line


CALLS = """
def numbers():
    yield inner(1)
    yield inner(2)

def inner(x):
    return x

def outer():
    return [inner(x) for x in numbers()], sum(x for x in (1, 2)), sorted((2, 1))
"""


def test_calls_of_functions_count_and_neither_comprehensions_nor_resumed_generators(tmp_path):
    names = {}
    exec(compile(CALLS, tmp_path / "calls.py", "exec"), names)
    calls = roads.trace(names["outer"], tmp_path)
    assert [(call.function, call.depth) for call in calls] == [
        ("outer", 0),
        ("numbers", 1),
        *[("inner", 2), ("inner", 1)] * 2,
    ]
    assert {call.file for call in calls} == {"calls.py"}


def test_every_call_of_a_road_can_be_shown():
    printed = CliRunner().invoke(roads.main, ["--show", "round"]).output.splitlines()
    assert len(printed) == len(roads.calls_of("round"))
    assert all(re.fullmatch(r" *[\w/]+\.py:\d+ \S+", line) for line in printed)


SOURCE = '''
"""The same file."""
import os
from json import (
    dumps,
)

# nearest_even in a comment
#: another

given = """
# no comment
"""

def kept(given):
    """Text about toward_zero."""
    found = found_first = 1  # a comment beside code
    found = "cut_toward_zero plain"
    return lambda held: "rounds to_odd."

class _Fixed:
    def _joined(self):
        "The same as kept."
    def scaled(self): ...
    def join_needed(self): ...
    def __reversed__(self): ...
'''


def test_lines_and_words_are_counted():
    source = shape.read(SOURCE.lstrip())
    assert (source.lines, source.imports, source.comments, source.code) == (25, 4, 2, 16)
    words = {kind: [text for _, text in places] for kind, places in source.places.items()}
    assert words == {
        "modes": ["cut_toward_zero plain"],
        "participles": ["kept", "_joined"],
        "docstrings": ["The same", "The same"],
        "locals": ["given", "found", "held"],
    }


def test_formats_and_self_tests_may_name_modes(tmp_path):
    named = (
        "formats/rounding.py", "tools/selftest/definitions.py", "sums/tools/selftest/orders.py", "sums/selftest.py",
        "top.py",
    )  # fmt: skip
    for name in named:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("MODE = 'to_odd'\n", encoding="utf-8")
    files = shape.sources(tmp_path)
    assert shape.files_naming_modes(files).keys() == {"sums/selftest.py", "top.py"}
    assert shape.measure(files)["shape"]["folders"] == 3


PAGE = """# What a title says

What a rule of one's own holds stands here. Of a block of zeros the scale is one; it is used
where it has to be.

    What code says.

| What | a table says |

* The value is rounded once, i.e. exactly.
"""


def test_sentences_of_a_page_are_read_without_titles_code_and_tables(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE + "```\nWhat a block of code says.\n```\n", encoding="utf-8")
    first, second, third = prose.page_sentences(page)
    assert (first.line, first.text) == (3, "What a rule of one's own holds stands here.")
    assert [*first.habits()] == ["what as a noun", "of its own", "stands, lies", "holds"]
    assert (second.line, [*second.habits()]) == (3, ["fronted complement", "where for if"])
    assert (third.text, [*third.habits()]) == ("The value is rounded once, i.e. exactly.", [])


PROSE_SOURCE = '''"""What a module does."""

def double(x):
    """Whether a number lacks its double.

    Parameters:
        x: a number whose double
            stands elsewhere.

    Examples:
        What an example says.

    >>> double("what is no number")
    """
    # A comment of two lines, which
    # are one text.
    return 2 * x  # kept as it is
'''


def test_docstrings_and_comments_of_a_file_are_read_without_examples(tmp_path):
    file = tmp_path / "source.py"
    file.write_text(PROSE_SOURCE, encoding="utf-8")
    module, function = prose.docstrings(file)
    assert (module.is_module, function.is_module) == (True, False)
    assert not prose.QUESTION.match(function.text.replace("Whether", "True if")) and prose.QUESTION.match(function.text)
    texts = [sentence.text for sentence in function.sentences()]
    assert texts == ["Whether a number lacks its double.", "x: a number whose double stands elsewhere."]
    assert [comment.text for comment in prose.comments(file)] == [
        "A comment of two lines, which are one text.",
        "kept as it is",
    ]


def test_a_public_docstring_says_what_it_takes_gives_and_raises():
    def half(x, digits: int) -> float:
        """Return half of x. Raises ValueError for text.

        Parameters:
            x: a number.
        """

    described = prose._described("half", half)
    assert described == ("half", ["Returns", "Raises"], ["digits"])
    assert prose._described("nothing", lambda: None).missing_sections == ["Returns"]
    assert CliRunner().invoke(prose.main, ["--file", __file__]).exit_code == 0


def test_each_function_has_a_target_of_its_rate():
    assert {row.accuracy for row in operations.FUNCTIONS.values()} == operations.TARGETS.keys()
