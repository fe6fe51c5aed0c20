"""The snippets of the README and of the documentation's pages run, as a reader would type them."""

import re
from pathlib import Path

import numpy as np
import pytest

import simfloat as sf

ROOT = Path(__file__).parents[1]


def snippets(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)


def recipes(page):
    """The snippets of a page of recipes, each under the heading above it."""
    return re.findall(r"### ([^\n]+)\n\n```python\n(.*?)```", (ROOT / page).read_text(), re.S)


def run(snippets, namespace):
    for snippet in snippets:
        exec(snippet, namespace)
    return namespace


def test_the_snippets_run():
    assert run(snippets("README.md"), {})["recorder"].counts(phase="update")["unchanged"] > 0


def test_the_first_page_runs():
    pytest.importorskip("torch")
    assert run(snippets("docs/index.md"), {})["recorder"].counts(phase="update")["total"] > 0


def test_the_page_of_questions_names_what_there_is():
    page = (ROOT / "docs/questions.md").read_text()
    names = set(re.findall(r"sf((?:\.\w+)+)", page)) | {f".linalg.{name}" for name in ("cholesky", "qr", "lstsq", "cg")}
    assert len(names) > 50
    for path in names:
        value = sf
        for name in path.split(".")[1:]:
            value = getattr(value, name)


def test_the_tutorial_runs_and_shows_what_it_says():
    names = run(snippets("docs/tutorial.md"), {})
    assert names["narrow"]["loss"][-1] > names["wide"]["loss"][-1]
    stated = float(re.search(r"(\d+) % of the updates", (ROOT / "docs/tutorial.md").read_text())[1])
    assert stated == round(100 * names["recorder"].lost_updates())


@pytest.mark.parametrize("snippet", [pytest.param(code, id=title) for title, code in recipes("docs/cookbook.md")])
def test_a_recipe_runs_by_itself(snippet, tmp_path):
    run([snippet], {"np": np, "sf": sf, "folder": tmp_path})


def test_every_snippet_of_the_cookbook_is_a_recipe():
    assert len(recipes("docs/cookbook.md")) == len(snippets("docs/cookbook.md"))


ARRIVALS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "arrivals").glob("*.md"))

#: Packages that pages for those who arrive from elsewhere import.
NEEDED = {"docs/arrivals/qpytorch.md": "torch", "docs/arrivals/ml_dtypes.md": "ml_dtypes"}


@pytest.mark.parametrize("page", ARRIVALS)
def test_the_programs_of_an_arrival_run(page):
    if page in NEEDED:
        pytest.importorskip(NEEDED[page])
    run(snippets(page), {})


def calls_of(page):
    """The rows of a page's table of differences: a call, what it gives elsewhere, and what it gives here."""
    table = (ROOT / page).read_text().partition("## What differs in bits")[2]
    return re.findall(r"^\| `([^`]+)`[^|]*\| ([^|]+) \| `([^`]+)`[^|]*\|$", table, re.MULTILINE)


@pytest.mark.parametrize(
    ("call", "elsewhere", "here"),
    [pytest.param(*row, id=f"{page}: {row[0]}") for page in ARRIVALS for row in calls_of(page)],
)
def test_the_differences_of_an_arrival_are_as_told(call, elsewhere, here):
    found, told = (float(eval(text, {"sf": sf, "np": np})) for text in (call, here))
    assert np.array_equal(found, told, equal_nan=True)
    theirs = re.match("`([^`]+)`", elsewhere)
    if theirs and "np.nan" not in theirs[1]:
        assert float(eval(theirs[1], {"np": np})) != found


def test_every_arrival_tells_differences():
    assert all(len(calls_of(page)) >= 4 for page in ARRIVALS)
