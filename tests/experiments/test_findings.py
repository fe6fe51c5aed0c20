"""Findings over all seeds and over the first seeds, and those of a given policy."""

import math

import pytest

from experiments.catalog import EXPERIMENTS
from simfloat.studies import Finding, claim, findings_of, verdict_text
from simfloat.studies.verdicts import BETTER, EQUAL, WITHIN, WORSE, Outcome
from tests.experiments.toy import toy


def experiment():
    """Says how many seeds it was shown, and decides from ten on."""
    made = toy()

    def findings(results):
        seeds = len({result["seed"] for result in results if "seed" in result})
        return [
            Finding("c", "e", f"{seeds} seeds, {len(results)} results", "t", "equal" if seeds >= 10 else "worse", 0.01)
        ]

    object.__setattr__(made, "findings", findings)
    return made


def results(seeds):
    return [{"kind": "exact"}, *({"seed": seed, "kind": kind} for kind in "ab" for seed in range(1000, 1000 + seeds))]


def test_verdicts_are_given_over_the_first_five_and_ten_seeds_too():
    (found,) = findings_of(experiment().findings, results(20))
    assert found.earlier == ((5, "worse"), (10, "equal")) and found.measured == "20 seeds, 41 results"
    assert verdict_text(found) == "equal (worse with 5, equal with 10 seeds)"


def test_they_are_not_repeated_where_there_are_no_more_seeds_or_nothing_changed():
    (found,) = findings_of(experiment().findings, results(5))
    assert found.earlier == () and verdict_text(found) == "worse"
    assert verdict_text(found._replace(earlier=((5, "worse"),))) == "worse"


def test_a_tiny_run_decides_nothing():
    (found,) = findings_of(experiment().findings, results(2), tiny=True)
    assert found.verdict is None and found.p is None and verdict_text(found) == "none"


def test_the_braces_of_a_claim_are_its_arguments_and_what_its_function_adds():
    @claim("{problem}: FP16 trains as {reference}, n = {n}", f"ratio within {1.05}")
    def trains(results, problem, reference="FP32"):
        return f"{len(results)} runs", Outcome("equal", "a test", 0.01), {"n": len(results)}

    found = trains([{}, {}], problem="digits")
    assert found == ("digits: FP16 trains as FP32, n = 2", "ratio within 1.05", "2 runs", "a test", "equal", 0.01, ())
    assert trains.__name__ == "trains"


@pytest.mark.parametrize("name, reference, problems, claim_text", [
    ("accumulator-width", "fp32", ("digits",), "digits: mine trains as with FP32 sums"),
    ("block-scaling", "bf16", ("gpt",), "GPT: mine: a loss as low as BF16's"),
    ("optimizer-state", "fp32", ("long-memory", "short-memory"), "mine: training as"),
    ("update-cancellation", "fp32", ("synthetic", "diabetes", "digits"), "synthetic: mine comes close to fp32"),
])  # fmt: skip
def test_a_given_policy_is_judged_against_the_reference_on_every_problem(name, reference, problems, claim_text):
    for ratio, verdict in ((1.0, EQUAL), (1.03, WITHIN), (1.5, WORSE), (0.5, BETTER), (math.nan, WORSE)):
        found = EXPERIMENTS[name].findings([
            {"kind": "training", "label": "mine", "iteration": [1, 2], "problem": problem, "variant": variant,
             "seed": seed, "loss": [9.0, loss * (1 + 0.001 * seed)]}
            for problem in problems for variant, loss in ((reference, 1.0), ("given", ratio)) for seed in range(5)
        ])  # fmt: skip
        assert [finding.verdict for finding in found] == [verdict] * len(problems)
        assert claim_text in found[0].claim
