"""Parts of NVFP4's recipe: together they equal the preset; claims on artificial results."""

import pytest

import simfloat as sf
from experiments.recipe_parts.findings import findings
from experiments.recipe_parts.policies import PARTS, VARIANTS, others, recipe, wide_head
from simfloat.studies.verdicts import EQUAL, INCONCLUSIVE, NOT_REPRODUCED, REPRODUCED


def test_all_parts_together_are_the_preset_with_its_last_layer_in_bf16():
    assert recipe(*PARTS) == wide_head(sf.policies["nvfp4"])
    assert len({variant.policy for variant in VARIANTS}) == len(VARIANTS)


@pytest.mark.parametrize("part", PARTS)
def test_a_recipe_without_a_part_is_the_whole_one_once_it_is_added(part):
    assert recipe(*others(part)) != recipe(*PARTS) == PARTS[part](recipe(*others(part)))


def made_up(**losses):
    return [
        {"variant": variant.key, "problem": "gpt", "label": variant.label, "seed": seed, "iteration": [1, 2],
         "loss": [9.0, losses.get(variant.key, 1.0) * (1 + 0.001 * (seed * (1 + place) % 3))]}
        for place, variant in enumerate(VARIANTS)
        for seed in range(5)
    ]  # fmt: skip


def test_a_part_is_needed_where_the_loss_without_it_is_higher_and_makes_up_for_the_others_where_it_is_as_low():
    found = {
        finding.claim: finding.verdict
        for finding in findings(made_up(**{"without rotation": 1.1, "bare": 1.2, "only rotation": 1.3}))
    }
    assert found["NVFP4 needs its rotation"] == found["NVFP4 needs one of these parts at least"] == REPRODUCED
    assert found["NVFP4 needs its last layer in BF16"] in (INCONCLUSIVE, NOT_REPRODUCED)
    assert found["rotation: makes up for most of the other parts"] == NOT_REPRODUCED
    assert found["stochastic gradients: makes up for most of the other parts"] == REPRODUCED
    assert found["NVFP4's whole recipe trains as BF16 does"] == found["MXFP8 trains as BF16 does"] == EQUAL
