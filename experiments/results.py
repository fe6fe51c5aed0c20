"""What a finished run leaves: metrics.jsonl, results.parquet, figures and summary.json."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from experiments.discoveries import discoveries
from experiments.experiment import Experiment, Options, Result
from experiments.provenance import code_digest, versions
from experiments.stored import STORED, write_stored
from experiments.verdicts import Finding
from experiments.workspace import Workspace

METRICS, SUMMARY = "metrics.jsonl", "summary.json"


def file_names(experiment: Experiment, options: Options) -> tuple[str, ...]:
    """The names of all that will be written."""
    return (METRICS, STORED, *experiment.figure_names(options), SUMMARY)


def write_results(
    experiment: Experiment, options: Options, results: list[Result], findings: list[Finding], workspace: Workspace
) -> list[Path]:
    """Write them, the summary last; returns their paths."""
    rows = "".join(as_json(row) + "\n" for result in results for row in experiment.metrics(result))
    written = [workspace.write(METRICS, lambda path: path.write_text(rows, encoding="utf-8"))]
    written.append(workspace.write(STORED, lambda path: write_stored(results, path)))
    for name, draw in experiment.figures(results).items():
        written.append(workspace.write(name, draw))
    text = as_json(summary(experiment, options, findings), indent=1) + "\n"
    return [*written, workspace.write(SUMMARY, lambda path: path.write_text(text, encoding="utf-8"))]


def summary(experiment: Experiment, options: Options, findings: list[Finding]) -> dict[str, Any]:
    """What was asked, what it was computed with, and what was found."""
    return {
        "experiment": experiment.name,
        "question": experiment.question,
        "config": {"tiny": options.tiny, "seeds": options.seeds, "policy": options.policy and options.policy.to_dict()},
        "seed": list(options.seed_numbers),
        "versions": versions(),
        "code": code_digest(),
        "findings": [finding._asdict() for finding in findings],
        "discoveries": discoveries(finding.p for finding in findings)._asdict(),
    }


def as_json(value: Any, indent: int | None = None) -> str:
    """Strict JSON, in which a number that is NaN or infinite is null."""
    return json.dumps(finite(value), indent=indent, allow_nan=False)


def finite(value: Any) -> Any:
    """The value with None for every number that JSON lacks."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
