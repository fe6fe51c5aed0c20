"""The claims on tensor cores, on the operands of the paper and on artificial results."""

import numpy as np

from experiments.operands import draw_operands
from experiments.options import Options
from experiments.tensor_core_generations.findings import EXAMPLE, findings
from experiments.tensor_core_generations.jobs import errors, example, jobs, run
from simfloat import FP16
from simfloat.studies.verdicts import NOT_REPRODUCED, REPRODUCED


def test_every_generation_makes_of_the_papers_operands_what_the_paper_says():
    assert example() == EXAMPLE


def test_an_error_away_from_zero_is_outward_whatever_the_sign_of_the_sum():
    operands = draw_operands("normal", seed=0, length=8, size=4, format=FP16)
    found = errors(operands, operands.exact + np.sign(operands.exact) * operands.magnitude / 8)
    assert found["error"] == found["outward"] == 0.125


def test_claims_follow_the_measurements():
    results = [run(job) for job in jobs(Options(tiny=True))]
    verdicts = {finding.claim: finding.verdict for finding in findings(results)}
    promotion = next(claim for claim in verdicts if "promotion every 128" in claim)
    assert verdicts[promotion] != REPRODUCED, "two promotions in 256 products are no order of magnitude"
    for result in results:
        for row in result["rows"]:
            if row.get("unit") == "promoted":
                row["greatest"] *= 1e-3
            if row.get("first") == "turing" and row["second"] == "ada":
                row["differing"] = 0.5
    changed = {finding.claim: finding.verdict for finding in findings(results)}
    assert changed[promotion] == REPRODUCED
    assert [changed[claim] for claim in changed if "are equal" in claim] == [NOT_REPRODUCED]
