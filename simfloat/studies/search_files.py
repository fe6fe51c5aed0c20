"""The files that a search leaves in its folder."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from simfloat.plots import front, save_figure
from simfloat.studies.references import function_name, home_module
from simfloat.studies.report_page import SEARCH, SEARCH_POINTS
from simfloat.studies.search_result import Search
from simfloat.studies.stored import as_json, write_csv
from simfloat.studies.workspace import Workspace, code_digest, versions

POLICY, FRONT = "policy.toml", ("front.png", "front.pdf")

SEARCH_FILES = (SEARCH_POINTS, POLICY, *FRONT, SEARCH)


def write_search(search: Search, train: Any, workspace: Workspace) -> None:
    """Write the points, the answer as a policy file, the front where matplotlib is installed, and the summary."""
    rows = [{key: value for key, value in point._asdict().items() if key != "policy"} for point in search.points]
    workspace.write(SEARCH_POINTS, partial(write_csv, rows))
    workspace.write(POLICY, lambda path: path.write_text(search.policy.to_toml(), encoding="utf-8"))
    if find_spec("matplotlib") is not None:
        for name in FRONT:
            workspace.write(name, partial(_draw_front, search))
    text = as_json(summary(search, train), indent=1) + "\n"
    workspace.write(SEARCH, lambda path: path.write_text(text, encoding="utf-8"))


def summary(search: Search, train: Any) -> dict[str, Any]:
    """Summarize the question, the configuration and the answer of a search."""
    share = f"{100 * search.within:g} % of {search.reference}'s"
    return {
        "experiment": function_name(train),
        "question": f"Which policy is the cheapest whose loss is within {share}?",
        "config": {
            "within": search.within,
            "reference": search.reference,
            "answer": search.label,
            "cost": search.cost,
            "confirmed": search.answer,
            "policy": search.policy.to_dict(),
        },
        "versions": versions(),
        "code": code_digest(home_module(train)),
    }


def _draw_front(search: Search, path: Path) -> None:
    save_figure(front(search), path)
