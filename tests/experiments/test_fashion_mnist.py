"""Fashion-MNIST: the images that a seed may use, and claims on artificial results."""

import numpy as np

from experiments.fashion_mnist import problems
from experiments.fashion_mnist.findings import findings
from experiments.fashion_mnist.jobs import VARIANTS, VARIED
from experiments.options import FIRST_SEED
from simfloat.studies.verdicts import EQUAL, REPRODUCED, WORSE


def made_up_images():
    """Images whose numbers can be read off them."""
    x = np.zeros((70_000, 1, 1, 3), np.uint8)
    x[:, 0, 0, :3] = np.arange(70_000)[:, np.newaxis] // [1, 256, 65536] % 256
    return x, np.arange(70_000) % 10


def numbers(x):
    return set(np.rint(255 * x[:, 0, 0, :3].astype(float)).astype(int) @ [1, 256, 65536])


def test_no_image_is_seen_by_seeds_that_choose_and_seeds_that_decide(monkeypatch):
    monkeypatch.setattr(problems, "images", made_up_images)
    seen = {}
    for seed in (0, FIRST_SEED):
        problem = problems.clothes(seed, tiny=False)
        trained, held_out = numbers(problem.x), numbers(problem.test[0])
        assert not trained & held_out and len(held_out) == problems.HELD_OUT
        seen[seed] = trained | held_out
    assert not seen[0] & seen[FIRST_SEED] and len(seen[FIRST_SEED]) == problems.HELD_OUT + problems.TRAINED_ON


def test_a_tiny_run_needs_no_images(monkeypatch):
    monkeypatch.setattr(problems, "images", None)
    assert problems.clothes(0, tiny=True).x.shape[1:] == (1, 8, 8)


def made_up(accuracies):
    rng = np.random.default_rng(0)
    chosen = [("clothes", variant) for variant in VARIANTS] + [("small steps", variant) for variant in VARIED]
    return [
        {
            "kind": "training", "problem": problem, "variant": variant.key, "label": variant.label, "seed": seed,
            "accuracy": [accuracies.get(variant.key, 0.9) + 1e-4 * rng.random()] * 5,
            "loss": [1 / accuracies.get(variant.key, 0.9)] * 5, "unchanged": [0.1, 0.2, 0.3, 0.4, 0.5 + 0.01 * seed],
        }
        for problem, variant in chosen for seed in range(5)
    ]  # fmt: skip


def test_claims_are_judged_by_accuracies_relative_to_fp32():
    found = {each.claim: each.verdict for each in findings(made_up({"bf16-standard": 0.85, "fp16-weights": 0.7}))}
    assert len(found) == 18
    assert found.pop("clothes: FP16, FP16 weights: matches the accuracy of FP32") == WORSE
    matching = {claim: verdict for claim, verdict in found.items() if "matches" in claim}
    assert len(matching) == 7 and set(matching.values()) == {EQUAL}
    assert {verdict for claim, verdict in found.items() if claim not in matching} == {REPRODUCED}
