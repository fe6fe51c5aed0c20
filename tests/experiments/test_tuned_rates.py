"""Tuned rates: no sample is shared by the seeds that choose and decide; the best rates are those of the stored runs."""

from collections import defaultdict

import numpy as np
import pytest

from experiments.catalog import EXPERIMENTS
from experiments.options import FIRST_SEED
from experiments.readme import folder_of
from experiments.tuned_rates import jobs, problems
from experiments.tuned_rates.best import BEST
from experiments.tuned_rates.problems import TUNED, rate_of
from simfloat.studies import read_stored


def test_seeds_that_choose_and_seeds_that_decide_share_no_sample():
    x = y = np.arange(1000)
    for number, count in ((5, 200), (2, 500)):
        seen = {seed: problems.parts(x, y, 100, seed, number) for seed in (0, 1, FIRST_SEED, FIRST_SEED + 1)}
        pairs = ((0, 1), (FIRST_SEED, FIRST_SEED + 1))
        chosen, decided = (set().union(*(np.concatenate(seen[seed][::2]) for seed in pair)) for pair in pairs)
        assert len(chosen) == count and len(decided) == 1000 - count and not chosen & decided
        assert not set(seen[0][0]) & set(seen[0][2]), "held-out samples are not trained on"


def test_the_best_rates_are_those_of_the_stored_runs():
    losses = defaultdict(list)
    for run in read_stored(folder_of(EXPERIMENTS["tuned-rates"]) / "results.parquet"):
        if "chooser" in run:
            losses[run["problem"], run["schedule"], run["arm"], run["rate"]].append(run["loss"])
    for (problem, schedule), best in BEST.items():
        for arm, exponent in best.items():
            means = {e: np.mean(losses[problem, schedule, arm, rate_of(e)]) for e in TUNED[problem].exponents}
            assert min(means, key=means.get) == exponent
            assert exponent not in (TUNED[problem].exponents[0], TUNED[problem].exponents[-1]), "not at an end"


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_a_run_returns_its_end_and_the_unchanged_weights(schedule):
    job = jobs.choosing_jobs(tiny=True)[0] | {"schedule": schedule, "arm": "bf16-standard"}
    result = jobs.run(job)
    assert result == jobs.run(job) and np.isfinite(result["loss"]) and 0 <= result["early"] <= 1 and result["late"] > 0
