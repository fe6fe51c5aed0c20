"""Write records of commands: their output, the date, the commit and the versions. Pages take their numbers from them.

    python -m docs.record selftest quick  runs these commands, and writes docs/records/NAME.txt
    python -m docs.record agreement       writes the rows of `python -m benchmarks agreement`, one a line
    python -m docs.record comparisons     counts the results that the tests compare bit for bit with an oracle
    python -m docs.record ten_rows        repeats ten rows of docs/claims.md without simfloat: ten minutes
    python -m docs.record mutants         plants mistakes, and counts those that the tests find: an hour

docs/numbers.toml says which number of a page is in which record.
"""

import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import numpy as np

from benchmarks.tensor_cores.recording import origin
from simfloat.studies import versions

ROOT = Path(__file__).parents[1]

#: The folder of records, and the table of numbers.
RECORDS, NUMBERS = ROOT / "docs/records", ROOT / "docs/numbers.toml"

#: The arguments of Python for each record.
COMMANDS = {
    "selftest": "-m simfloat selftest",
    "quick": "-m simfloat selftest --quick",
    "ten_rows": "-m experiments.independent.ten_rows",
    "mutants": "-m benchmarks.mutants formats sums autodiff updates linalg --count 10 --seed 8 --seconds 900",
}


def write_record(name, text):
    """Write a text with its origin to the record of that name."""
    facts = {**origin(), "versions": ", ".join(f"{package} {number}" for package, number in versions().items())}
    head = "".join(f"# {key}: {value}\n" for key, value in facts.items())
    RECORDS.mkdir(exist_ok=True)
    (RECORDS / f"{name}.txt").write_text(head + text.rstrip() + "\n", encoding="utf-8")


def counted_tests():
    """Return the tests whose comparisons docs/numbers.toml counts."""
    sources = tomllib.loads(NUMBERS.read_text(encoding="utf-8"))
    rows = [*sources["numbers"], *(row for table in sources["tables"] for row in table.get("rows", {}).values())]
    return sorted({test for row in rows for test in row.get("tests", ())})


class Counting:
    """A plugin of pytest: count the elements that `equal_bits` compares in each test, over all its parameters."""

    def __init__(self, bits):
        self.counts, self.test, compare = Counter(), "", bits.equal_bits

        def equal_bits(got, want):
            self.counts[self.test] += np.size(want)
            return compare(got, want)

        bits.equal_bits = equal_bits

    def pytest_runtest_setup(self, item):
        """Take the name of the next test."""
        self.test = item.nodeid.partition("[")[0]

    def pytest_runtest_logreport(self, report):
        """Refuse a test that did not run to its end."""
        if report.outcome != "passed":
            raise SystemExit(f"{report.nodeid}: {report.outcome}. Nothing is recorded.")


def counts():
    """Return a line for each test of docs/numbers.toml, with the number of results that it compares."""
    import pytest

    from tests import bits

    counting = Counting(bits)
    if code := pytest.main(["-n", "0", "--assert=plain", "-q", *counted_tests()], plugins=[counting]):
        raise SystemExit(f"The tests end with {code}. Nothing is recorded.")
    return "".join(f"{count} {test}\n" for test, count in sorted(counting.counts.items()))


def agreement():
    """Return the results of other emulators that are not the exact result rounded once, a line for each."""
    from benchmarks.agreement import rows

    return "".join(" | ".join(row) + "\n" for row in rows())


def printed(name):
    """Return what the command of this record prints."""
    command = [sys.executable, *COMMANDS[name].split()]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def main(names):
    """Write the records of these names."""
    for name in names:
        write_record(name, {"agreement": agreement, "comparisons": counts}.get(name, lambda name=name: printed(name))())
        print(name, "written")


if __name__ == "__main__":
    main(sys.argv[1:])
