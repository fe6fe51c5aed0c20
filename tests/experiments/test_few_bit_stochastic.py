"""Few random bits: the bias of each variant, stagnation, and updates."""

from dataclasses import replace

import numpy as np

import simfloat as sf
from experiments.few_bit_stochastic.bias import VARIANTS, chance_of_rounding_away, mean_bias, measure_bias
from experiments.few_bit_stochastic.sums import can_move, stagnation
from experiments.few_bit_stochastic.updates import train
from experiments.update_cancellation.problems import digits


def test_one_random_bit_cuts_a_fraction_down_or_rounds_it():
    found = [chance_of_rounding_away(np.array([0.125, 0.25, 0.75]), 1, variant).tolist() for variant in "ABC"]
    assert found == [[0, 0, 0.5], [0, 0.5, 1], [0, 0, 1]]


def test_the_bias_of_every_fraction_is_theorys():
    rows = measure_bias(tiny=True)
    assert {row["mode"] for row in rows} == set(VARIANTS) and len(rows) == 18
    assert all(row["exceptions"] == 0 and row["bias"] == row["theory"] for row in rows)
    assert mean_bias("A", bits=2, extra=4) == -(2**-3) + 2**-5 and mean_bias("B", 2, 4) == 2**-5


def test_equal_terms_stagnate_exactly_where_their_fraction_is_rounded_to_zero():
    rows = stagnation(seed=0, terms=4096)
    assert all(row["moves"] == row["can"] for row in rows)
    assert [can_move(variant, 5) for variant in VARIANTS] == [False, True, False]


def test_a_training_follows_from_its_seed_and_the_number_of_random_bits():
    problem = replace(digits(0, True), steps=3)
    losses = {bits: train(problem, sf.stochastic(bits), seed=1)["loss"] for bits in (1, 32)}
    assert losses[1] != losses[32] == train(problem, sf.stochastic(32), seed=1)["loss"]
