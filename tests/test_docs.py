"""Every public name has an entry in the reference, pages follow the code, and files that pages name exist."""

import re
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

import simfloat as sf
from docs.entries import OTHERS, defined, listed, text_of
from docs.tables import generated
from simfloat.policy.roles import ROLES
from tests.test_readme import run, snippets

ROOT = Path(__file__).parents[1]

PAGES = "\n".join(page.read_text() for page in sorted((ROOT / "docs" / "reference").glob("*.rst")))

PACKAGES = (
    "",
    "analysis.theory",
    "linalg",
    "nn",
    "nn.init",
    "optim",
    "plots",
    "studies",
    "telemetry",
    "torch",
    "train",
)


def entries():
    """Return how often the reference has an entry for each name, as module.name; a package has one by its page."""
    directives = re.findall(
        r"^\.\. (names|others):: (\S+)\n(?:   :inherited: \w+\n)?((?:\n|   .*\n)*)", PAGES + "\n", re.M
    )
    found = Counter(re.findall(r"^\.\. module:: (\S+)$", PAGES, re.M))
    for directive, module, body in directives:
        words = body.split()
        files = words or [""]
        names = (
            [name for file in files for name in defined(module, file)]
            if directive == "names"
            else listed(module, words)
        )
        found.update(f"{module}.{name}" for name in names)
    return found


def test_no_name_has_two_entries():
    assert [name for name, count in entries().items() if count > 1] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_has_an_entry(package):
    if package == "torch":
        pytest.importorskip("torch")
    module = f"simfloat.{package}".rstrip(".")
    found = entries()
    assert [name for name in import_module(module).__all__ if f"{module}.{name}" not in found] == []


def test_texts_of_names_without_a_docstring_are_those_of_names_that_have_an_entry():
    assert set(OTHERS) <= set(entries())
    assert text_of("simfloat", "BF16").startswith("The format with 1 sign bit, 8 exponent bits, 7 fraction bits")


def test_tables_and_drawings_follow_from_the_code():
    stale = [path.name for path, text in generated().items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "python -m docs.tables --write"


@pytest.mark.parametrize(
    "page", ["policies", "formats", "units", "presets", "array_or_tensor", "error_analysis", "linalg"]
)
def test_the_examples_of_a_page_run(page):
    if page == "array_or_tensor":
        pytest.importorskip("torch")
    run(snippets(f"docs/{page}.md"), {})


@pytest.mark.parametrize(("page", "words"), [
    ("policies", f"It has {len(ROLES)} settings"),
    ("presets", f"simfloat has {len(sf.policies)} named policies"),
    ("formats", f"simfloat has {len(sf.CATALOG)} named formats"),
])  # fmt: skip
def test_pages_count_what_there_is(page, words):
    assert words in (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")


def is_there(file):
    """Return True if a file exists below the root or the library's folder, and for files of other projects."""
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
    """Return the titles of a page, each with the line below it, in order."""
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
