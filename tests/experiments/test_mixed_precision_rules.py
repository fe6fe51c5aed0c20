"""Rules of mixed precision: the orders of scaling to the bit, and claims on artificial results."""

import numpy as np

import simfloat as sf
from experiments.mixed_precision_rules.findings import findings
from experiments.mixed_precision_rules.jobs import SCALE, TRAINED, clipped, orders, unscaled
from experiments.mixed_precision_rules.problems import PROBLEMS
from simfloat.studies.verdicts import EQUAL, NOT_REPRODUCED, REPRODUCED

ORDERS = {"kind": "orders", "rows": [{"shrunk": SCALE, "other_bits": 0, "decay": 1 / SCALE}] * 20}


def test_a_scale_that_is_a_power_of_two_changes_no_bit_of_clipping_and_divides_a_decay_that_comes_too_early():
    found = orders(np.random.default_rng(3))
    assert found["other_bits"] == 0 and abs(found["shrunk"] / SCALE - 1) < 1e-5
    assert abs(found["decay"] * SCALE - 1) < 0.05


def test_clipping_leaves_a_short_gradient_as_it_is():
    x = np.asarray(sf.round(np.arange(4.0), sf.FP16), float)
    assert (clipped(x, 100.0) == x).all() and (unscaled(SCALE * x) == x).all()


def made_up(**losses):
    """Results in which every policy has FP32's loss times its own factor, and accuracies above FP32's."""
    trainings = [
        {
            "kind": "training", "problem": problem, "variant": variant.key, "label": variant.label, "seed": seed,
            "loss": [losses.get(variant.key, 1.0)],
            "accuracy": [1 - losses.get("errors", 0.2) * (1.0 if variant.key == "fp32" else 0.925 + 0.001 * seed)],
        }
        for problem, variants in TRAINED.items() for variant in variants for seed in range(5)
    ]  # fmt: skip
    return [*trainings, *({**ORDERS, "seed": seed} for seed in range(5))]


def test_claims_are_judged_by_losses_relative_to_their_reference():
    found = {each.claim: each.verdict for each in findings(made_up(**{"o2": 1.1, "o3": 2.0, "fp16-kahan": np.nan}))}
    assert found["convolutional: O1 trains as FP32"] == EQUAL
    assert found["transformer: O3 does not reach FP32's loss"] == REPRODUCED
    assert found["regression: FP16, Kahan updates do not rescue FP16, because its range is too small"] == REPRODUCED
    assert (
        found["regression: FP16, stochastic updates do not rescue FP16, because its range is too small"]
        == NOT_REPRODUCED
    )
    assert found["speech: FP16 storage is 5 to 10 % better than FP32"] == REPRODUCED
    assert found["language: without a scale FP16 training of LSTM cells does not match FP32"] == NOT_REPRODUCED
    assert [verdict for claim, verdict in found.items() if "clip" in claim or "decay" in claim] == [REPRODUCED] * 3


def test_a_language_model_reads_characters_and_holds_out_the_last_windows():
    problem = PROBLEMS["language"](3, True)
    with sf.simulate("fp32"), sf.no_grad():
        logits = problem.model()(problem.x[:2])
    assert logits.shape == (*problem.x[:2].shape, problem.model().head.bias.shape[0])
    assert len(problem.test[0]) <= 100 and problem.x.shape[1] == problem.test[0].shape[1]
