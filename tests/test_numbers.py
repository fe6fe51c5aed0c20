"""Each number of README, of the page on verification and of the experiments' README equals what its source says."""

import json
import re
import tomllib
from functools import cache
from importlib import import_module

import pytest

from docs.record import NUMBERS, RECORDS, ROOT

#: A number: digits in groups of three, or with decimals; no part of a name, a path, a version or an exponent.
NUMBER = re.compile(r"(?<![\w./^-])(?:\d{1,3}(?:[ ,]\d{3})+(?!\d)|\d+(?:\.\d+)?)(?!\w|[./^-]\w)")

#: What has no numbers to follow: programs and names in code, targets of links, comments, and marks of lists.
OUTSIDE = re.compile(r"```.*?```|`[^`]*`|(?<=\])\([^)]*\)|<!--.*?-->|^\d+\. ", re.DOTALL | re.MULTILINE)

TABLE = tomllib.loads(NUMBERS.read_text(encoding="utf-8"))
PAGES = ("README.md", "docs/verification.md", "experiments/README.md")


def one_line(text):
    return " ".join(text.split())


def plain(text):
    """Return the text without what has no numbers to follow, in one line."""
    return one_line(OUTSIDE.sub(" ", text))


@cache
def page(name):
    return (ROOT / name).read_text(encoding="utf-8")


def rows_below(name, header):
    """Return the cells of each row of the table that begins with this header."""
    lines = page(name).partition(header)[2].split("\n")[2:]
    last = next(place for place, line in enumerate(lines) if not line.startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:last]]


def values(text):
    """Return the numbers of a text, without separators of groups."""
    return {re.sub("[ ,]", "", number) for number in NUMBER.findall(text)}


@cache
def record(name):
    """Return the lines of a record, without separators of groups of digits."""
    lines = (RECORDS / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == ["# date", "# commit", "# command"], name
    return [re.sub(r"(?<=\d),(?=\d{3})", "", one_line(line)) for line in lines]


@cache
def counts():
    return {test: int(count) for count, test in (line.split() for line in record("comparisons") if line[0] != "#")}


def is_in(cell, line):
    """True if a line of a record has a number, or the words of a cell."""
    return values(cell) <= values(line) if NUMBER.fullmatch(cell) else cell in line


def counted(tests):
    """Return how many results these tests, or all tests of these files, compare."""
    return sum(count for test, count in counts().items() if test in tests or test.partition("::")[0] in tests)


def source_says(source, text):
    """True if a source has all numbers of the text; False if a number differs."""
    numbers = values(text)
    if "record" in source:
        return numbers <= {number for line in record(source["record"]) for number in values(line)}
    if "tests" in source:
        return numbers == {str(counted(source["tests"]))}
    if "file" in source:
        said = (ROOT / source["file"]).read_text(encoding="utf-8")
        return all(part in said for part in source.get("has", []))
    if "check" in source:
        names = {each.__name__: each for each in (recorded, kept, instructions, counted, value, is_repeated)}
        return float(eval(source["check"], names)) in {float(number) for number in numbers}
    return len(source["because"]) > 10


def value(name):
    """Return a constant of a module, or what its function without arguments returns."""
    module, _, attribute = name.rpartition(".")
    source = getattr(import_module(module), attribute)
    return source() if callable(source) else source


def is_repeated(experiment):
    """Return True if a file of experiments/independent names the experiment."""
    return any(f'"{experiment}"' in path.read_text("utf-8") for path in ROOT.glob("experiments/independent/*.py"))


@cache
def instructions(device):
    return json.loads((ROOT / f"tests/cuda/recorded/{device}.json").read_text())["instructions"]


def recorded(device):
    """Return the number of results of a recording of tensor cores, all of which are equal."""
    cases = [case for entry in instructions(device) for case in entry["cases"]]
    assert not any(case["differing"] for case in cases)
    return sum(case["results"] for case in cases)


def kept(device):
    """Return the number of results that a recording of tensor cores has: 4 rows and 8 columns of each product."""
    return 4 * 8 * sum(len(entry["products"]) for entry in instructions(device))


def sources(name):
    """Yield each source with the text of the page that it covers."""
    for source in TABLE["numbers"]:
        if source["page"] == name:
            for text in [source["text"]] if isinstance(source["text"], str) else source["text"]:
                yield source, text


def without_source(name, text):
    """Return the numbers of a page's text that no text of docs/numbers.toml, and no table that it names, covers."""
    rest = plain(text)
    for _, covered in sources(name):
        rest = rest.replace(plain(covered), " ")
    for table in TABLE["tables"]:
        for cells in rows_below(name, table["header"]) if table["page"] == name else ():
            rest = rest.replace(plain("|".join(f" {cell} " for cell in cells)), " ")
    return NUMBER.findall(rest)


@pytest.mark.parametrize("name", PAGES)
def test_each_number_has_a_source_that_says_it(name):
    for source, text in sources(name):
        assert text in one_line(page(name)), f"docs/numbers.toml: {name} no longer says {text!r}"
        assert source_says(source, OUTSIDE.sub(" ", text)), f"{name}: the source of {text!r} says something else"
    assert without_source(name, page(name)) == [], "these numbers need a source in docs/numbers.toml, or leave the page"


def test_a_number_without_a_source_and_one_that_its_record_contradicts_are_found():
    added = "It is 1.5 times as fast, for 1 234 567 results on 2 machines with FP16, `x[3]` and 2.11.0."
    assert without_source("README.md", page("README.md") + added) == ["1.5", "1 234 567", "2"]
    assert source_says({"record": "quick"}, "198 numbers") and not source_says({"record": "quick"}, "199 numbers")
    assert source_says({"check": "3 * 4"}, "12 cases") and not source_says({"check": "3 * 4"}, "13 cases")


@pytest.mark.parametrize("table", TABLE["tables"], ids=lambda table: table["header"])
def test_each_row_of_a_table_is_what_its_source_says(table):
    rows = rows_below(table["page"], table["header"])
    assert rows, table["header"]
    for cells in rows:
        row = " | ".join(cells)
        if "record" in table:
            words = [cells[place].replace("`", "") for place in table["columns"]]
            assert any(all(is_in(word, line) for word in words) for line in record(table["record"])), row
        if "rows" in table:
            matching = [source for key, source in table["rows"].items() if key in row]
            assert len(matching) == 1, f"{len(matching)} sources of the row {row}"
            assert source_says(matching[0], cells[table["column"]]), f"the source of the row says something else: {row}"
        assert "record" in table or "rows" in table or len(table["because"]) > 10


def test_tests_and_files_of_sources_exist():
    named = {
        test for table in TABLE["tables"] for row in table.get("rows", {}).values() for test in row.get("tests", ())
    }
    for test in sorted(named | {test for source in TABLE["numbers"] for test in source.get("tests", ())}):
        file, _, function = test.partition("::")
        assert f"def {function}(" in (ROOT / file).read_text() if function else (ROOT / file).exists(), test
