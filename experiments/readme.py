"""Write the tables of findings in the experiments' READMEs from the stored raw results.

`python -m experiments.readme NAME ...` judges the stored results of these experiments, by default of all that have
some, and replaces the table. The text around it is written by hand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.catalog import EXPERIMENTS
from experiments.experiment import Experiment
from simfloat.studies import Finding, discoveries, findings_of, read_stored, verdict_text
from simfloat.studies.stored import RESULTS_FILE

#: A table of findings, with the line about all of them that may follow it.
TABLE = re.compile(r"\| claim \|.*\n(?:\|.*\n)+(?:\n.*tested.*\n)?")


def folder_of(experiment: Experiment) -> Path:
    """Return the folder of the experiment's sources, README and stored results."""
    return Path(__file__).parent / experiment.name.replace("-", "_")


def stored_table(experiment: Experiment) -> str | None:
    """Return the table of the stored results, or None if there are none."""
    path = folder_of(experiment) / RESULTS_FILE
    if not path.exists():
        return None
    results = read_stored(path)
    seeds = len({result["seed"] for result in results if "seed" in result})
    return finding_table(findings_of(experiment.findings, results), seeds)


def finding_table(findings: Sequence[Finding], seeds: int) -> str:
    """Return a Markdown table with a row for each finding, and a line that says how many of them may be false."""
    measured = f"measured (mean ± standard deviation over {seeds} seeds)"
    rows = [("claim", "expectation", measured, "test", "verdict"), ("---",) * 5]
    rows += [
        (finding.claim, finding.expectation, finding.measured, finding.test, verdict_text(finding))
        for finding in findings
    ]
    lines = ["| " + " | ".join(map(escaped, row)) + " |\n" for row in rows]
    return "".join(lines) + f"\n{discoveries(finding.p for finding in findings)}\n"


def escaped(text: str) -> str:
    """Escape a text for a cell of a Markdown table."""
    return re.sub(r"([|*`])", r"\\\1", text)


def main(names: Sequence[str]) -> None:
    """Write the tables of these experiments' READMEs."""
    for name in names or EXPERIMENTS:
        table = stored_table(EXPERIMENTS[name])
        if table is not None:
            readme = folder_of(EXPERIMENTS[name]) / "README.md"
            text = readme.read_text(encoding="utf-8")
            before, after = TABLE.split(text, maxsplit=1)
            readme.write_text(before + table + after, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
