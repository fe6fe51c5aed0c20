"""The document of all claims: its parts, the resolution of tests, and a page that loads nothing."""

import math
import re

import pytest
from scipy import stats

from experiments import paper
from experiments.catalog import EXPERIMENTS


def test_the_resolution_is_the_effect_that_is_shown_with_a_power_of_80_percent():
    text = "shortfall: difference in [-0.2, 0.4]: paired t, 95 %, n = 5; ratio in [0.9, 1.1]: paired t, n = 9"
    points, ratio = paper.resolutions(text)
    quantile = stats.t.ppf([0.8, 0.975], 4)
    assert points.effect == pytest.approx(0.3 * quantile.sum() / quantile[1]) and str(points) == f"{points.effect:.2g}"
    half = math.log(1.1 / 0.9) / 2
    assert ratio.effect == pytest.approx(half * (1 + stats.t.ppf(0.8, 8) / stats.t.ppf(0.975, 8))) and "%" in str(ratio)
    assert not paper.resolutions("ratio in [inf, inf]: paired t of logarithms, 95 %, n = 5; none")


def test_the_document_has_every_part_and_loads_nothing(monkeypatch, tmp_path):
    chosen = {name: EXPERIMENTS[name] for name in ("replica-sums", "dynamic-scale")}
    monkeypatch.setattr(paper, "EXPERIMENTS", chosen)
    monkeypatch.setattr(paper.shutil, "which", lambda browser: None)
    (path,) = paper.write_paper(tmp_path / "folder" / "paper.html")
    page = path.read_text(encoding="utf-8")
    wanted = (
        '<h2 id="1">Verdicts</h2>',
        "smallest effect with a power of 80 %",
        "Revisiting BFloat16",
        "Errors in the source",
    )
    for part in wanted:
        assert part in page, part
    assert all(source.startswith("data:image/") for source in re.findall(r'src="([^"]*)', page))
    links = re.findall(r'href="([^"]*)', page)
    assert all(link.startswith(("http", "#")) for link in links)
    assert re.findall(r'<h2 id="(.*?)">', page) == [link[1:] for link in links if link.startswith("#")]
    assert '<a href="#1">Verdicts</a>' in page
    assert paper.LOCAL_LINK.sub(r"\1", "in [0, 1) ([how](../README.md))") == "in [0, 1) (how)"
    # Figures over the whole page are 7 inches wide.
    assert 'width="672" src="data:image/png' in page


def test_a_browser_prints_the_page_beside_it(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(paper.subprocess, "run", lambda command, **options: calls.append(command))
    assert paper.print_to_pdf(tmp_path / "paper.html", "browser") == tmp_path / "paper.pdf"
    assert calls[0][0] == "browser" and f"--print-to-pdf={tmp_path / 'paper.pdf'}" in calls[0]
