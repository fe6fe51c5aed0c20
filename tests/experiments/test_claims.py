"""The page of claims is up to date, and every claim has a verdict with its dependence, or a reason."""

import pytest

from experiments import claims
from experiments.claims import Claim, Found
from simfloat.studies.verdicts import RANKS

SOURCES, CLAIMS = claims.read_claims()


def test_the_page_is_what_the_table_and_the_findings_make():
    assert claims.PAGE.read_text(encoding="utf-8") == claims.page(), "python -m experiments claims --page"


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.says[:40])
def test_a_claim_has_one_thing_that_decides_it_and_its_choices_or_a_reason(claim):
    assert claim.source in SOURCES and claim.place and claim.says
    assert [bool(claim.findings), bool(claim.check), bool(claim.reason)].count(True) == 1
    assert bool(claim.choices) == bool(claim.findings)
    words = {word.rpartition(" (")[0] or word for word in claims.verdicts(claim).split(", ")}
    assert words <= {*RANKS, claims.NOT_TESTED}


def test_verdicts_are_counted_and_turned_where_findings_say_the_opposite(monkeypatch):
    tests = ("difference in [0, 1]: paired t, 95 %, n = 5", "in all 409600 cases tried", "none: fitted")
    rows = [Found("toy", f"claim {number}", test, "reproduced") for number, test in enumerate(tests)]
    monkeypatch.setattr(claims, "all_found", lambda: (*rows, Found("toy", "other", tests[0], "equal (worse with 5)")))
    both = Claim("mixed", "1", "says", ("toy: claim*", "toy: other"))
    assert claims.verdicts(both) == "reproduced (3), equal (1)"
    assert claims.samples(both) == "[toy](../experiments/toy/README.md) 1 to 409,600"
    assert claims.verdicts(Claim("mixed", "1", "says", ("toy: claim 0",), contrary=True)) == "not reproduced"
    assert claims.verdicts(Claim("mixed", "1", "says", check="sf.FP16.max == 1")) == "not reproduced"
    with pytest.raises(ValueError, match="No finding of any README matches 'toy: nothing'"):
        claims.verdicts(Claim("mixed", "1", "says", ("toy: nothing",)))
