"""The snippets of the README and of the pages run, and give the values in their comments."""

import ast
import re
import tomllib
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


def leaves(node):
    return (
        [leaf for element in node.elts for leaf in leaves(element)]
        if isinstance(node, ast.Tuple | ast.List)
        else [node]
    )


def flat(value):
    if isinstance(value, tuple | list):
        return [single for element in value for single in flat(element)]
    return np.ravel(value).tolist()


def stated(comment):
    """The values that a comment begins with, before a colon or a semicolon, as they are written; none in prose."""
    text = re.split(r"[:;](?: |$)", comment)[0].strip()
    if "..." in text:
        return None
    try:
        texts = [ast.get_source_segment(text, leaf) for leaf in leaves(ast.parse(text, mode="eval").body)]
        return [(eval(one, {"nan": np.nan, "inf": np.inf, "__builtins__": {}}), one) for one in texts]
    except (SyntaxError, NameError):
        return None


def agrees(found, value, text):
    """True if a computed value equals the stated one: as text, exactly, or to the written decimals."""
    if isinstance(value, str) or not np.isfinite(found):
        return str(found) == str(value)
    digits = re.fullmatch(r"-?\d+\.(\d*)(?:e(-?\d+))?", text)
    return found == value or (digits and abs(found - value) <= 0.51 * 10.0 ** (int(digits[2] or 0) - len(digits[1])))


def run(snippets, namespace):
    """Run snippets one after the other; check every value that the comment behind an expression states."""
    checked = namespace["checked"] = []
    for snippet in snippets:
        lines = snippet.split("\n")
        for statement in ast.parse(snippet).body:
            comment = lines[statement.end_lineno - 1].partition("  # ")[2]
            if not isinstance(statement, ast.Expr) or (said := stated(comment)) is None:
                exec(compile(ast.Module([statement], []), snippet, "exec"), namespace)
                continue
            found = flat(eval(compile(ast.Expression(statement.value), snippet, "eval"), namespace))
            if isinstance(said[0][0], str) and not isinstance(found[0], str):
                continue  # a name in quotes begins a sentence
            right = len(found) == len(said) and all(agrees(one, *value) for one, value in zip(found, said, strict=True))
            assert right, f"{lines[statement.end_lineno - 1]}: {found[:9]}"
            checked.append(comment)
    return namespace


def test_the_snippets_run():
    names = run(snippets("README.md"), {})
    assert names["recorder"].counts(phase="update")["unchanged"] > 0
    assert len(names["checked"]) >= 8


def test_a_comment_that_states_another_value_is_found():
    for line in (
        "2 + 2  # 5",
        "1 / 3  # 0.34",
        "1 / 3, 2  # 0.33",
        "1e-7 / 3  # 3.4e-8: small",
        "[1, 2, 2]  # [1, 2, 3]",
        "2**-9  # 2**-10",
        "'a'  # \"b\"",
    ):
        with pytest.raises(AssertionError):
            run([line], {})
    told = (
        "1 / 3, 2  # 0.33, 2: both\n1e-7 / 3  # 3.3e-8; small\n'a'  # \"a\"\n[0.5, 1 / 3]  # [0.5, 0.333]\n7  # seven"
    )
    assert len(run([told], {})["checked"]) == 4


def words_of(page):
    """The text of a page in one line."""
    return " ".join((ROOT / page).read_text().split())


def test_pages_count_what_there_is():
    readme, first = words_of("README.md"), words_of("docs/index.md")
    notebooks, programs = len(list((ROOT / "notebooks").glob("*.ipynb"))), len(recipes("docs/cookbook.md"))
    assert f"There are {len(sf.policies)} presets" in readme
    assert f"{len(sf.policies)} presets" in words_of("CHANGELOG.md")
    assert all(
        f"{notebooks} worked examples" in page and f"{programs} short programs" in page for page in (readme, first)
    )


def test_a_readme_fits_on_a_few_screens():
    assert len((ROOT / "README.md").read_text().split("\n")) <= 200
    assert len((ROOT / "CHANGELOG.md").read_text().split("\n")) <= 100


def test_the_self_test_makes_as_many_comparisons_as_its_table_has():
    page = (ROOT / "docs/verification.md").read_text()
    table = page.partition("| check | cases |")[2].partition("```sh")[0]
    cases = [int(row.replace(" ", "")) for row in re.findall(r"^\| [^|]+ \| ([\d ]+) \|", table, re.M)]
    assert f"compares {sum(cases):,} results".replace(",", " ") in page and len(cases) > 30
    assert all(
        f"{round(sum(cases) / 1e6)} million results" in words_of(page) for page in ("README.md", "docs/install.md")
    )


def test_the_speed_of_pytorch_models_is_that_of_the_table():
    rows = re.findall(r"^\|.* ms \| ([\d.]+) \|$", (ROOT / "docs/pytorch.md").read_text(), re.M)
    assert len(rows) > 30 and [round(f(map(float, rows))) for f in (min, max)] == [2, 9]
    assert all("two to nine" in words_of(page) for page in ("README.md", "docs/limits.md", "docs/faq.md"))


def pages():
    """Every page that a reader installs by: the README, those below docs, and those of the experiments."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("docs/**/*.rst")]
    return [*found, *ROOT.glob("experiments/**/*.md")]


def test_the_commands_on_the_install_page_work_without_a_release():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = [
        (page.name, name)
        for page in pages()
        for name in re.findall(r"pip install '?(simfloat\b[^'` ]*)", page.read_text())
    ]
    assert {name for _, name in asked} <= {"simfloat-0.1.0-py3-none-any.whl"}, "from a checkout: '.[extra]'"
    named = {
        extra
        for page in pages()
        for found in re.findall(r"[\"']\.\[([\w,]+)\]", page.read_text())
        for extra in found.split(",")
    }
    assert {"torch", "plots"} <= named <= set(extras)


def test_the_first_page_runs():
    assert len(run(snippets("docs/index.md"), {})["checked"]) == 3


#: The programs of the quick start, and what each prints.
PROGRAMS = re.findall(
    r"^## ([^\n]+)\n.*?```python\n(.*?)```\n\n```text\n(.*?)```", (ROOT / "docs/quickstart.md").read_text(), re.S | re.M
)


@pytest.mark.parametrize(("program", "output"), [pytest.param(*row, id=title) for title, *row in PROGRAMS])
def test_a_program_of_the_quick_start_prints_what_the_page_shows(program, output, capsys):
    if "import torch" in program:
        pytest.importorskip("torch")
    exec(compile(program, "docs/quickstart.md", "exec"), {})
    assert capsys.readouterr().out == output


def test_every_reader_has_a_program():
    linked = set(re.findall(r"quickstart\.md#([\w-]+)", (ROOT / "README.md").read_text()))
    assert linked == {title.lower().replace(" ", "-") for title, *_ in PROGRAMS} and len(linked) == 4


def test_the_page_on_installing_shows_what_the_command_prints(capsys):
    from simfloat.__main__ import main

    shown = re.search(
        r"```sh\nsimfloat (round [^\n]+)\n```\n\n```text\n(.*?)```", (ROOT / "docs/install.md").read_text(), re.S
    )
    main(shown[1].split())
    assert capsys.readouterr().out.strip() == shown[2].strip()


def test_the_glossary_is_in_alphabetical_order():
    terms = re.findall(r"^## (.+)$", (ROOT / "docs/glossary.md").read_text(), re.M)
    assert terms == sorted(terms, key=str.lower) and len(terms) > 25


def anchors(page):
    """The anchors of a page's headings, as GitHub and the site name them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.S), re.M)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


LINKING = (
    "README.md", "CONTRIBUTING.md", "CHANGELOG.md", *(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")),
)  # fmt: skip


@pytest.mark.parametrize("name", LINKING)
def test_the_links_of_a_page_lead_to_files_and_headings(name):
    page = ROOT / name
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        assert linked.exists(), target
        assert not anchor or linked.suffix != ".md" or anchor in anchors(linked), target


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
    assert len(names["checked"]) >= 11


def test_the_programs_of_the_page_of_symptoms_find_the_causes_that_it_names():
    pytest.importorskip("torch")
    assert len(run(snippets("docs/symptoms.md"), {})["checked"]) >= 15


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


def test_the_program_for_another_largest_exponent_rounds_as_formats_that_have_it():
    program = next(text for text in snippets("docs/arrivals/chop.md") if "bias=emax" in text)
    for t, emax in ((5, 15), (4, 7), (11, 15)):
        text = program.replace("t, emax = 5, 9", f"t, emax = {t}, {emax}").replace("\nnp.where", "\ny = np.where")
        xmax, half = 2.0**emax * (2 - 2.0 ** (1 - t)), 2.0 ** (emax - t)
        x = np.concatenate([np.linspace(-3 * xmax, 3 * xmax, 999), np.ldexp(1.0, np.arange(-45, 18)), [xmax + half]])
        space = {"np": np, "sf": sf, "numbers": x}
        exec(re.sub(r"\nx = .*", r"\nx = numbers", text), space)
        want = sf.round(x, sf.Format(int(np.log2(emax + 1)) + 1, t - 1))
        assert np.array_equal(space["y"], want) and np.isinf(want).any() and np.isfinite(want).any()


def calls_of(page):
    """The rows of a page's table of differences: a call, what it gives elsewhere, and what it gives here."""
    table = (ROOT / page).read_text().partition("## What differs in bits")[2]
    return re.findall(r"^\| `([^`]+)`[^|]*\| ([^|]+) \| `([^`]+)`[^|]*\|$", table, re.MULTILINE)


@pytest.mark.parametrize(
    ("call", "elsewhere", "here"),
    [pytest.param(*row, id=f"{page}: {row[0]}") for page in ARRIVALS for row in calls_of(page)],
)
def test_the_differences_on_an_arrival_page_are_right(call, elsewhere, here):
    found, told = (float(eval(text, {"sf": sf, "np": np})) for text in (call, here))
    assert np.array_equal(found, told, equal_nan=True)
    theirs = re.match("`([^`]+)`", elsewhere)
    if theirs and "np.nan" not in theirs[1]:
        assert float(eval(theirs[1], {"np": np})) != found


def test_every_arrival_page_lists_differences():
    assert all(len(calls_of(page)) >= 4 for page in ARRIVALS)
