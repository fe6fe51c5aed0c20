"""Findings repeated without simfloat have the verdicts of the READMEs (all: python -m experiments.independent)."""

import ast
import random
from pathlib import Path

import numpy as np
import pytest
import torch

import experiments.independent
import simfloat as sf
from experiments.independent import __main__ as command
from experiments.independent import casts, narrow, rules, sums, ten_rows

CHEAP = [sums.harmonic_series, sums.counting, sums.below_the_least, sums.block_scales, rules.squares_overflow]
FOLDER = Path(experiments.independent.__file__).parent


def test_nothing_of_simfloat_is_imported():
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_from = isinstance(node, ast.ImportFrom)
            names = [node.module] if is_from else [each.name for each in getattr(node, "names", ())]
            assert not any(name.startswith("simfloat") for name in names)
            if is_from and node.module.startswith("experiments"):
                assert node.module.startswith("experiments.independent")


@pytest.mark.parametrize("make", CHEAP)
def test_a_finding_that_is_made_again_has_the_verdict_of_the_readme(make):
    remade = make()
    assert remade.verdict == command.stored_verdict(remade)


def test_the_ten_rows_are_those_that_the_seed_draws():
    drawn = sorted(random.Random(20261130).sample(range(129), 10))
    assert list(ten_rows.ROWS) == [place + 1 for place in drawn]
    assert ten_rows.powers_of_two() == "NumPy's float32, every power: 277"
    scale = ten_rows.Backoff()
    for logarithm in [None, *[0.0] * 100]:
        scale.update(logarithm)
    assert scale.scale == 2.0**24, "an overflow halves it, and 100 other steps double it"


def test_a_claim_that_no_readme_has_is_an_error():
    with pytest.raises(ValueError, match="has no claim that begins 'nothing'"):
        command.stored_verdict(narrow.Remade("harmonic-series", "nothing", "", ""))


def test_an_independent_rounding_equals_ours():
    x = np.random.default_rng(3).standard_normal(1000)
    assert (narrow.to_nearest(x, 8) == sf.round(x, sf.BF16)).all()
    draws = narrow.stochastically(np.full(4000, 1 + 2.0**-9), 8, np.random.default_rng(0))
    assert set(draws) == {1.0, 1 + 2.0**-7} and abs(np.mean(draws > 1) - 0.25) < 0.03
    assert [narrow.lies_between(x, 0, 2) == "reproduced" for x in ([1.0, 1.1, 1.2], [3, 3.1, 3])] == [True, False]
    assert [narrow.matches(x, [1, 1, 1]) for x in ([1.0, 1.001, 0.999], [2, 2.1, 2])] == ["equal", "worse"]


def test_verdicts_contradict_each_other_if_both_are_decided_and_not_both_within_the_margin():
    assert command.contradict("reproduced", "not reproduced") and command.contradict("equal", "worse")
    pairs = (("equal", "equal"), ("equal", "inconclusive"), ("worse within the margin", "equal"))
    assert not any(command.contradict(*pair) for pair in pairs)


def test_roundings_of_tensors_equal_ours():
    x = torch.from_numpy((np.random.default_rng(4).standard_normal(1000) * 300).astype(np.float32))
    for rounding, format in ((casts.e4m3, sf.E4M3), (casts.e5m2, sf.E5M2)):
        ours = sf.round(x.numpy(), format)
        assert (rounding(x).numpy()[np.isfinite(ours)] == ours[np.isfinite(ours)]).all()
