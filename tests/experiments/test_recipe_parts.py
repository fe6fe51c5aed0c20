"""Parts of NVFP4's recipe: together they equal the preset."""

import pytest

import simfloat as sf
from experiments.recipe_parts.policies import PARTS, VARIANTS, others, recipe, wide_head


def test_all_parts_together_are_the_preset_with_its_last_layer_in_bf16():
    assert recipe(*PARTS) == wide_head(sf.policies["nvfp4"])
    assert len({variant.policy for variant in VARIANTS}) == len(VARIANTS)


@pytest.mark.parametrize("part", PARTS)
def test_a_recipe_without_a_part_is_the_whole_one_once_it_is_added(part):
    assert recipe(*others(part)) != recipe(*PARTS) == PARTS[part](recipe(*others(part)))
