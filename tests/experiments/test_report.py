"""The report is one page with all results that needs no other file, and names unreadable files."""

import base64
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from importlib import import_module

import pytest

from experiments.catalog import EXPERIMENTS
from simfloat.studies import Finding
from tests.experiments.test_command_line import invoke
from tests.experiments.toy import toy

reports = import_module("simfloat.studies.report")  # `simfloat.studies.report` is the function

#: Elements that HTML does not end.
VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.words = [], [], []
        self.feed(text)
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data.split() if self.open and self.open[-1] != "style" else []

    @property
    def text(self):
        return " ".join(self.words)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(autouse=True)
def with_toy(monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "toy", toy())


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with a run, a tiny run and a sweep."""
    place = tmp_path_factory.mktemp("written")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EXPERIMENTS, "toy", toy())
        for arguments in (("run", "toy"), ("sweep", "toy", "seed=1,2"), ("run", "toy", "--tiny")):
            folder = place / ("tiny" if "--tiny" in arguments else "full")
            assert invoke(*arguments, "--out", folder).exit_code == 0
    return place


@pytest.fixture
def results(written, tmp_path):
    """A copy of these results, which a test may change."""
    return shutil.copytree(written, tmp_path, dirs_exist_ok=True)


def report(folder):
    result = invoke("report", "--out", folder)
    assert result.exit_code == 0, result.output
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def test_every_claim_verdict_configuration_and_version_is_there(results):
    text = report(results).text
    assert "3 results below this folder. Claims: 1 reproduced , 1 no verdict ." in text
    assert text.count("values double value / seed = 2 3 values no statistics reproduced") == 1
    assert text.count("values double value / seed = 2 2 values none: a tiny run decides nothing no verdict") == 1
    for kind in ("summary", "sweep"):
        summary = json.loads((results / "full" / f"{kind}.json").read_text())
        assert summary["code"] in text
        for package, version in summary["versions"].items():
            assert f"{package} {version}" in text
    assert "axes size: 1; seed: 1, 2" in text and "policy none" in text and "tiny yes" in text


def test_the_false_discovery_rate_over_all_claims_is_named_and_verdicts_over_fewer_seeds_are_shown(results):
    assert "No claim was tested by statistics." in report(results).text
    path = results / "full" / "summary.json"
    summary = json.loads(path.read_text())
    (finding,) = summary["findings"]
    open_ = {**finding, "verdict": "inconclusive", "p": 1.0}
    summary["findings"] = [{**finding, "verdict": "equal", "p": 0.01, "earlier": [[5, "worse"], [10, None]]}, open_]
    path.write_text(json.dumps(summary))
    text = report(results).text
    assert "1 of 2 tested claims are decided, at a false discovery rate of 2 % (Benjamini-Hochberg)." in text
    assert "equal worse with 5 seeds, no verdict with 10 seeds" in text and "1 equal , 1 inconclusive" in text


def test_every_figure_is_inside_the_page(results):
    (results / "full" / "second.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    pictures = [image["src"].partition(",") for image in report(results).all("img")]
    want = [
        path.read_bytes() for path in (results / "full/second.svg", results / "full/toy.png", results / "tiny/toy.png")
    ]
    assert [base64.b64decode(data) for _, _, data in pictures] == want
    assert [head for head, _, _ in pictures] == [
        "data:image/svg+xml;base64", "data:image/png;base64", "data:image/png;base64"
    ]  # fmt: skip


def test_the_page_asks_for_nothing_outside_of_itself(results):
    page = report(results)
    addresses = [
        attributes[key] for _, attributes in page.elements for key in ("src", "href", "action") if key in attributes
    ]
    assert addresses and all(address.startswith(("data:image/", "#")) for address in addresses)
    assert not {"script", "link", "iframe", "object", "base"} & {tag for tag, _ in page.elements}
    style = (results / "report.html").read_text().split("<style>")[1].split("</style>")[0]
    assert "url(" not in style and "@import" not in style
    policy = next(meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy


def test_links_lead_to_sections_and_tables_of_sweeps_and_last_records_of_runs_are_there(results):
    page = report(results)
    assert [link["href"] for link in page.all("a")] == [f"#{section['id']}" for section in page.all("section")]
    text = page.text
    assert "Points: 2 rows, from sweep.csv size seed value 1 1 2 1 2 4" in text
    assert "Last record of each run: 3 rows, from metrics.jsonl kind seed tiny value" in text


def test_a_long_table_says_where_the_rest_is(results, monkeypatch):
    monkeypatch.setattr(reports, "MOST_ROWS", 2)
    assert "3 rows, from metrics.jsonl, the first 2 here" in report(results).text


def test_the_last_record_of_a_run_stands_for_it(tmp_path):
    rows = [{"policy": policy, "seed": 1, "step": step, "loss": 1 / 3 * step} for policy in "ab" for step in (1, 2)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = reports.last_records(tmp_path / "metrics.jsonl")
    assert found.rows == [["a", "1", "2", "0.666667"], ["b", "1", "2", "0.666667"]] and found.total == 2


@pytest.mark.parametrize(
    "value, text",
    [(None, ""), (0.1 + 0.2, "0.3"), ("0.30000000000000004", "0.3"), ("1e-3.5", "1e-3.5"), ("0.1.0", "0.1.0"),
     ("1000", "1000"), (True, "True"), ("nan", "nan"), ("v1.5", "v1.5"), (-0.0, "-0")],
)  # fmt: skip
def test_fractions_are_shortened_for_reading_and_nothing_else(value, text):
    assert reports.cell_text(value) == text


def test_names_and_claims_are_no_markup(tmp_path, monkeypatch):
    claim = Finding("<script>alert(1)</script>", "a < b & c", '"q"', "t", "not reproduced")
    experiment = toy()
    object.__setattr__(experiment, "findings", lambda results: [claim])
    monkeypatch.setitem(EXPERIMENTS, "toy", experiment)
    assert invoke("run", "toy", "--out", tmp_path / "<b>").exit_code == 0
    page = report(tmp_path)
    assert '<script>alert(1)</script> a < b & c "q" t not reproduced' in page.text and "<b>" in page.text
    assert not page.all("script") and not page.all("b")


def test_a_report_leaves_out_what_no_experiment_has_written(results):
    (results / "mine").mkdir()
    (results / "mine" / "summary.json").write_text('{"experiment": "mine"}')
    (results / ".hidden").mkdir()
    shutil.copy(results / "tiny" / "summary.json", results / ".hidden")
    assert len(report(results).all("section")) == 3


@pytest.mark.parametrize("name, text", [
    ("summary.json", "{"), ("summary.json", "\xff"), ("summary.json", "[" * 100_000), ("metrics.jsonl", "{\n"),
    ("metrics.jsonl", "5\n"), ("metrics.jsonl", None),
])  # fmt: skip
def test_a_damaged_file_is_named_and_the_rest_is_shown(name, text, results):
    path = results / "tiny" / name
    path.unlink() if text is None else path.write_bytes(text.encode("latin-1"))
    result = invoke("report", "--out", results)
    assert result.exit_code == 0 and "tiny/summary.json cannot be read: " in result.output
    page = Page((results / "report.html").read_text())
    assert "Not readable tiny/summary.json: " in page.text and len(page.all("section")) == 2


def test_a_second_report_is_the_same_and_is_not_part_of_itself(results):
    report(results)
    first = (results / "report.html").read_bytes()
    report(results)
    assert (results / "report.html").read_bytes() == first
    assert {path.name for path in results.iterdir()} == {"full", "tiny", "report.html"}


def test_without_results_the_message_says_how_to_create_some(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        result = invoke("report", "--out", folder)
        assert result.exit_code == 2 and f"There are no results below {folder}." in result.output
        assert "python -m experiments run NAME" in result.output
    assert not list(tmp_path.iterdir())


def test_a_page_that_cannot_be_written_is_one_message(results):
    (results / "report.html").mkdir()
    result = invoke("report", "--out", results)
    assert result.exit_code == 1 and "The report cannot be written: " in result.output
    assert {path.name for path in results.iterdir()} == {"full", "tiny", "report.html"}


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PROBE = """<script>
document.title = [document.documentElement.scrollWidth <= innerWidth, [...document.images].every(i => i.naturalWidth)]
</script></body>"""


def test_the_page_fits_every_screen(results):
    """What a page of today has to say about narrow screens; and, where there is a Chromium, how wide it comes out."""
    (results / "full" / "wide.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="3000" height="10"/>')
    for path in results.rglob("toy.png"):
        path.unlink()  # it is none
    report(results)
    text = (results / "report.html").read_text()
    assert 'content="width=device-width, initial-scale=1"' in text and "@media (max-width: 45rem)" in text
    if CHROMIUM:
        assert [probed(text, width, results) for width in (500, 1400)] == ["true,true"] * 2


def probed(text, width, folder):
    """Ask the browser if nothing is wider than the screen, and if every picture was drawn."""
    page = folder / "probe.html"
    page.write_text(re.sub("<meta http-equiv.*>", "", text).replace("</body>", PROBE))
    options = ("--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900", "--dump-dom")
    command = [CHROMIUM, *options, f"--user-data-dir={folder / 'profile'}", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return re.search("<title>(.*)</title>", done.stdout)[1]
