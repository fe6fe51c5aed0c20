"""Write the tables of findings in the experiments' READMEs from the stored raw results, and read their rows.

`python -m experiments.readme NAME ...` judges the stored results of these experiments, by default of all that have
some, and replaces the table. The text around it is written by hand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from experiments.catalog import EXPERIMENTS
from experiments.experiment import Experiment
from simfloat.studies import Finding, discoveries, findings_of, read_stored, verdict_text
from simfloat.studies.stored import RESULTS_FILE

#: A table of findings, with the line about all of them that may follow it.
TABLE = re.compile(r"\| claim \|.*\n(?:\|.*\n)+(?:\n.*tested.*\n)?")


#: A cell ends at a vertical bar that is not escaped.
CELL = re.compile(r"(?<!\\)\|")

#: The number of cases in the description of a test.
CASES = re.compile(r"n = (\d+)|(\d+) cases")


class Found(NamedTuple):
    """A row of a README: the experiment, the claim that was tested, the test, and the verdict."""

    experiment: str
    claim: str
    test: str
    verdict: str
    expectation: str = ""

    @property
    def cases(self) -> int:
        """The number of cases that decided: seeds in most tests; 1 if the test needs only one."""
        return max((int(one or other) for one, other in CASES.findall(self.test)), default=1)


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


@cache
def all_found() -> tuple[Found, ...]:
    """Return every row of findings in the READMEs of all experiments."""
    return tuple(found for name in EXPERIMENTS for found in _found_in(name))


def _found_in(name: str) -> Iterable[Found]:
    readme = folder_of(EXPERIMENTS[name]) / "README.md"
    for table in TABLE.finditer(readme.read_text(encoding="utf-8") if readme.exists() else ""):
        for line in table.group().splitlines()[2:]:
            if line.startswith("|"):
                cells = [re.sub(r"\\(.)", r"\1", cell.strip()) for cell in CELL.split(line)]
                _, claim, expectation, _, test, verdict, _ = cells
                yield Found(name, claim, test, verdict, expectation)


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
