"""Splits follow the seed of the run."""

import numpy as np
import pytest

from experiments.problem import split, split_quarter, turned
from experiments.update_cancellation.problems import PROBLEMS


@pytest.mark.parametrize("count, held_out", [(10, 1), (10, 10), (1797, 450)])
def test_every_sample_is_trained_on_or_held_out(count, held_out):
    train, test = split(count, held_out, seed=3)
    assert len(test) == held_out and sorted([*train, *test]) == list(range(count))


def test_a_split_belongs_to_its_seed():
    tests = {tuple(split(100, 10, seed)[1]) for seed in range(50)}
    assert len(tests) == 50 and tuple(split(100, 10, 0)[1]) in tests
    often = np.bincount(np.concatenate([split(100, 50, seed)[1] for seed in range(1000)]))
    assert abs(often - 500).max() < 5 * np.sqrt(250), "each sample is held out as often as any"


@pytest.mark.parametrize("count", [4, 5, 6, 7, 1797])
def test_a_quarter_is_held_out_rounded_up(count):
    for seed in (0, None):
        train, test = split_quarter(count, seed)
        assert len(test) == -(-count // 4) and sorted([*train, *test]) == list(range(count))
    assert (split_quarter(count, None)[1] == split_quarter(count, None)[1]).all()


def test_a_text_is_turned_to_a_place_of_the_seed():
    text = np.arange(1000)
    places = {int(turned(text, seed)[0]) for seed in range(20)}
    assert len(places) > 15 and (np.diff(turned(text, 3)) % 1000 == 1).all()


def test_runs_of_two_seeds_hold_out_others():
    one, other = (PROBLEMS["digits"](seed, True).test[0] for seed in (1000, 1001))
    assert one.shape == other.shape and (one != other).any()
