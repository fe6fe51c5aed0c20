"""The reference names every file that defines something public, once; files that pages name exist."""

import inspect
import re
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

import simfloat as sf

ROOT = Path(__file__).parents[1]

PAGES = "\n".join(page.read_text() for page in sorted((ROOT / "docs" / "reference").glob("*.rst")))

#: Names that stand in sentences of the reference: constants, other spellings, and rooms with names of their own.
MENTIONED = {word for found in re.findall(r"``([^`]+)``", PAGES) for word in found.split()}


def files():
    """How often the reference names each file, as room.file."""
    found = re.findall(r"^\.\. names:: (\S+)\n(?:   :inherited: \w+\n)?\n((?:   \S+\n)+)", PAGES + "\n", re.MULTILINE)
    return Counter(f"{room}.{file}" for room, listed in found for file in listed.split())


def test_no_file_is_named_twice():
    assert [file for file, count in files().items() if count > 1] == []


@pytest.mark.parametrize(
    "room", ["simfloat", "simfloat.linalg", "simfloat.nn", "simfloat.optim", "simfloat.train", "simfloat.torch"]
)
def test_the_reference_names_everything_that_is_public(room):
    described, module = files(), import_module(room)
    missing = [
        name
        for name in module.__all__
        if name not in MENTIONED and name not in sf.CATALOG and not inspect.ismodule(value := getattr(module, name))
        if not (inspect.isclass(value) or inspect.isfunction(value)) or value.__module__ not in described
    ]
    assert missing == []


def is_there(file):
    """Whether a file exists, as it is named from the root, or from the library's folder; other projects' files are."""
    tops = [top for top in (ROOT, ROOT / "simfloat") if (top / file.partition("/")[0]).is_dir()]
    return not tops or any((top / file).is_file() for top in tops)


def test_files_that_the_architecture_and_docstrings_name_exist():
    pages = [ROOT / "docs" / "architecture.md", *(ROOT / "simfloat").rglob("*.py")]
    texts = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in pages}
    named = {name: re.findall(r"(?<![\w./])\w[\w/]*/\w+\.(?:py|h)\b", text) for name, text in texts.items()}
    assert len(named["docs/architecture.md"]) > 50
    assert [(name, file) for name, files in named.items() for file in files if not is_there(file)] == []


REFERENCE = sorted((ROOT / "docs" / "reference").glob("*.rst"))


def titles(page):
    """The titles of a page with the characters that underline them, in their order."""
    return [(title, line) for title, line in re.findall(r"^(\S.*)\n([=-]{3,})$", page.read_text(), re.M)]


@pytest.mark.parametrize("page", REFERENCE, ids=lambda page: page.stem)
def test_a_page_of_the_reference_begins_with_its_title_and_has_no_title_twice(page):
    found = titles(page)
    assert page.read_text().startswith("{}\n{}\n".format(*found[0]))
    assert [set(line) for _, line in found] == [{"="}, *[{"-"}] * (len(found) - 1)]
    assert all(len(line) == len(title) for title, line in found)
    assert len({title for title, _ in found}) == len(found)


def test_no_two_pages_of_the_reference_have_one_title():
    assert len({titles(page)[0][0] for page in REFERENCE}) == len(REFERENCE) == 11
