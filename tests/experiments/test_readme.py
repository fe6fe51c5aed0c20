"""The tables of the READMEs equal those of the stored results, to the letter."""

import pytest

from experiments.catalog import EXPERIMENTS
from experiments.readme import TABLE, escaped, finding_table, folder_of, stored_table
from simfloat.studies import Finding
from simfloat.studies.stored import RESULTS_FILE

KEPT = [name for name, experiment in EXPERIMENTS.items() if (folder_of(experiment) / RESULTS_FILE).exists()]


@pytest.mark.parametrize("name", KEPT)
def test_the_table_is_that_of_the_stored_results(name):
    readme = (folder_of(EXPERIMENTS[name]) / "README.md").read_text(encoding="utf-8")
    table = stored_table(EXPERIMENTS[name])
    assert [found.group() for found in TABLE.finditer(readme)] == [table], f"python -m experiments.readme {name}"


@pytest.mark.parametrize("name", KEPT)
def test_stored_results_are_small(name):
    assert (folder_of(EXPERIMENTS[name]) / RESULTS_FILE).stat().st_size < 2**20


def test_every_finding_has_a_row_in_which_nothing_is_markup():
    findings = [
        Finding("|a b| < c", "e*", "m", "t", "worse", 0.04, ((5, "equal"),)),
        Finding("d", "e", "m", "t", "inconclusive", 1.0),
    ]
    table = finding_table(findings, 20)
    assert "over 20 seeds" in table and "| \\|a b\\| < c | e\\* | m | t | worse (equal with 5 seeds) |\n" in table
    assert table.endswith(
        "\n\n1 of 2 tested claims are decided, at a false discovery rate of 8 % (Benjamini-Hochberg).\n"
    )
    assert TABLE.fullmatch(table) and escaped("a_b") == "a_b"
