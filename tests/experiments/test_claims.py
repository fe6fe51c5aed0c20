"""The page of claims is up to date; every claim has a verdict with its dependence, or a reason; margins are frozen."""

import numpy as np
import pytest

from experiments import claims, frozen
from experiments.claims import Claim, Found
from simfloat.studies.verdicts import RANKS

SOURCES, CLAIMS = claims.read_claims()


def test_the_page_is_what_the_table_and_the_findings_make():
    assert claims.PAGE.read_text(encoding="utf-8") == claims.page(), "python -m experiments claims --page"


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.says[:40])
def test_a_claim_has_one_thing_that_decides_it_and_its_choices_or_a_reason(claim):
    assert claim.source in SOURCES and claim.place and claim.says
    decides = [claim.findings, claim.check, claim.proven, claim.refuted, claim.reason]
    assert list(map(bool, decides)).count(True) == 1
    assert bool(claim.choices) if claim.findings else not claim.elsewhere and not (claim.choices and not claim.check)
    words = claims.verdicts(claim).removeprefix(f"{claims.NOT_TESTED}; here ").split(", ")
    assert {word.rpartition(" (")[0] or word for word in words} <= {*RANKS, claims.NOT_TESTED}


def test_verdicts_are_counted_and_turned_where_findings_say_the_opposite(monkeypatch):
    tests = ("difference in [0, 1]: paired t, 95 %, n = 5", "in all 409600 cases tried", "none: fitted")
    rows = [Found("toy", f"claim {number}", test, "reproduced") for number, test in enumerate(tests)]
    monkeypatch.setattr(claims, "all_found", lambda: (*rows, Found("toy", "other", tests[0], "equal (worse with 5)")))
    both = Claim("mixed", "1", "says", ("toy: claim*", "toy: other"))
    assert claims.verdicts(both) == "reproduced (3), equal (1)"
    assert claims.samples(both) == "[toy](../experiments/toy/README.md) 1 to 409,600"
    assert claims.verdicts(Claim("mixed", "1", "says", ("toy: claim 0",), contrary=True)) == "not reproduced"
    assert claims.verdicts(Claim("mixed", "1", "says", check="sf.FP16.max == 1")) == "not reproduced"
    assert claims.verdicts(Claim("mixed", "1", "says", proven="so")) == "reproduced"
    assert claims.verdicts(Claim("mixed", "1", "says", refuted="so")) == "not reproduced"
    other = Claim("mixed", "1", "says", ("toy: claim 0",), elsewhere="another model")
    assert claims.verdicts(other) == "not tested; here reproduced (1)"
    with pytest.raises(ValueError, match="No finding of any README matches 'toy: nothing'"):
        claims.verdicts(Claim("mixed", "1", "says", ("toy: nothing",)))


def test_a_refuted_claim_and_one_that_samples_contradict_are_told_apart(monkeypatch):
    tests = ("counterexamples: 3 of 5 cases, not a random sample", "difference in [0, 1]: paired t, 95 %, n = 5")
    rows = [Found("toy", f"claim {number}", test, "not reproduced") for number, test in enumerate(tests)]
    monkeypatch.setattr(claims, "all_found", lambda: (*rows, Found("toy", "other", tests[0], "inconclusive")))
    cases = {"toy: claim 0": (True, True), "toy: claim*": (True, False), "toy: *": (False, False)}
    for pattern, expected in cases.items():
        claim = Claim("mixed", "1", "says", (pattern,))
        assert (claims.is_contradicted(claim), claims.is_refuted(claim)) == expected, pattern
    assert claims.is_refuted(Claim("mixed", "1", "says", refuted="so"))
    assert not claims.is_contradicted(Claim("mixed", "1", "says", reason="so"))


def test_every_experiment_that_trains_says_how_its_rates_were_chosen_or_tunes_them():
    trained = {row.experiment for row in claims.all_found() if claims.TRAINED.search(row.expectation)}
    assert trained == {*claims.rates(), "tuned-rates", "fp4-factorial"}
    (row,) = (claim for claim in CLAIMS if claim.says.startswith("The standard 16-bit algorithm ends with a worse"))
    remark = "Not tested at tuned rates: bfloat16-models, update-cancellation, fashion-mnist, real-size."
    assert claims.remark_on_rates(row) == remark and remark in claims.page()


def test_no_update_of_a_denormalized_weight_is_lost_in_fp16():
    (row,) = (claim for claim in CLAIMS if "de-normalized weights" in claim.says)
    weights = np.arange(1, 1024, dtype=np.uint16).view(np.float16)
    updates = np.arange(1, 0x7C00, 61, dtype=np.uint16).view(np.float16)
    for sign in (np.float16(1), np.float16(-1)):
        assert row.refuted and not (weights + sign * updates[:, np.newaxis] == weights).any()


def test_the_memory_that_a_reason_states_is_counted():
    (row,) = (claim for claim in CLAIMS if claim.says == "The memory of a whole training is about halved")
    share = 1 - claims.memory("mixed").total / claims.memory("fp32").total
    assert f"{100 * share:.0f} % less" in row.reason


def test_every_finding_is_frozen_with_its_margin_and_every_frozen_claim_is_a_finding():
    assert not list(frozen.new_claims()), "python -m experiments.frozen"
    assert set(frozen.frozen_claims()) == {(row.experiment, row.claim) for row in claims.all_found()}


def test_a_changed_margin_is_an_error_until_the_file_says_why(monkeypatch, tmp_path):
    row = Found("toy", 'a "quoted" claim', "n = 5", "equal", "within 1.05")
    monkeypatch.setattr(frozen, "all_found", lambda: (row,))
    known = {("toy", row.claim): frozen.FrozenClaim("2026-11-29", "within 1.1", "was: more")}
    monkeypatch.setattr(frozen, "FROZEN", tmp_path / "frozen.toml")
    frozen.write(known)
    monkeypatch.setattr(frozen, "frozen_claims", frozen.frozen_claims.__wrapped__)
    assert frozen.frozen_claims() == known and "| 2026-11-29 | was: more | toy (1) |" in frozen.changes()
    with pytest.raises(ValueError, match="expects 'within 1.05'; frozen.toml has 'within 1.1'"):
        list(frozen.new_claims())
