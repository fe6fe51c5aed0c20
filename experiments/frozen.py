"""The claims with their margins, as they were frozen before the runs that decide them, and the changes since.

`python -m experiments.frozen` adds the claims of the stored results that `frozen.toml` does not have, with the date of
today. A claim whose expectation differs is an error: write the date and the reason into the file by hand.
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import NamedTuple

from experiments.readme import all_found

#: The file of frozen claims.
FROZEN = Path(__file__).with_name("frozen.toml")


class FrozenClaim(NamedTuple):
    """The date of a claim, its expectation with the margin, and the change after results were known, if any."""

    date: str
    expectation: str
    change: str = ""


@cache
def frozen_claims() -> Mapping[tuple[str, str], FrozenClaim]:
    """Return every frozen claim by its experiment and its text."""
    tables = tomllib.loads(FROZEN.read_text(encoding="utf-8"))
    return {(name, claim): FrozenClaim(*row) for name, rows in tables.items() for claim, row in rows.items()}


def new_claims() -> Iterator[tuple[str, str, str]]:
    """Yield experiment, claim and expectation of each new row; raise ValueError if the expectation of a row changed."""
    known = frozen_claims()
    for row in all_found():
        key = row.experiment, row.claim
        if key not in known:
            yield row.experiment, row.claim, row.expectation
        elif known[key].expectation != row.expectation:
            raise ValueError(
                f"{row.experiment}: {row.claim!r} expects {row.expectation!r}; frozen.toml has "
                f"{known[key].expectation!r}. Write the new one there, with a date and the reason of the change."
            )


def changes() -> str:
    """Return a table of the claims that changed after results were known."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for (name, _), row in frozen_claims().items():
        if row.change:
            counts.setdefault((row.date, row.change), Counter())[name] += 1
    rows = [
        f"| {day} | {change} | {', '.join(f'{name} ({number})' for name, number in each.items())} |"
        for (day, change), each in counts.items()
    ]
    return "\n".join(["| date | change and reason | experiments, with the number of claims |", "|---|---|---|", *rows])


def toml_string(text: str) -> str:
    """Return the text as a string of TOML."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def write(rows: Mapping[tuple[str, str], FrozenClaim]) -> None:
    """Write the file: a table for each experiment, a line for each claim."""
    lines = [
        "# Claims and margins: date on which they were frozen, expectation, and the change after results were known.",
        "# `python -m experiments.frozen` adds new claims before a run; changes are written by hand, with the reason.",
    ]
    for name in dict.fromkeys(experiment for experiment, _ in rows):
        lines += ["", f"[{name}]"]
        for (experiment, claim), row in rows.items():
            if experiment == name:
                lines.append(f"{toml_string(claim)} = [{', '.join(toml_string(part) for part in row if part)}]")
    FROZEN.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    """Add the new claims with the date of today."""
    today = date.today().isoformat()
    added = {(name, claim): FrozenClaim(today, expectation) for name, claim, expectation in new_claims()}
    known = dict(frozen_claims())
    experiments = dict.fromkeys(name for name, _ in (*known, *added))
    merged = {**known, **added}
    write({key: merged[key] for name in experiments for key in merged if key[0] == name})
    print(f"{len(added)} claims are new, {len(known)} were frozen before.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
