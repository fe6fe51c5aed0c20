"""Tuned rates: no sample is shared by the seeds that choose and decide; the best rates are those of the stored runs."""

from collections import defaultdict

import numpy as np
import pytest

from experiments.catalog import EXPERIMENTS
from experiments.options import FIRST_SEED, Options
from experiments.readme import folder_of
from experiments.tuned_rates import jobs, problems
from experiments.tuned_rates.best import BEST
from experiments.tuned_rates.findings import findings
from experiments.tuned_rates.problems import TUNED, rate_of
from simfloat.studies import read_stored
from simfloat.studies.verdicts import NOT_REPRODUCED, REPRODUCED


def test_seeds_that_choose_and_seeds_that_decide_share_no_sample():
    x = y = np.arange(1000)
    seen = {seed: problems.parts(x, y, 100, seed) for seed in (0, 1, FIRST_SEED, FIRST_SEED + 1)}
    chosen, decided = (set().union(*(np.concatenate(seen[s][::2]) for s in pair)) for pair in ((0, 1), (1000, 1001)))
    assert len(chosen) == 200 and len(decided) == 800 and not chosen & decided
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


def artificial_results(earlier, best):
    """Results in which nearest updates have these losses relative to FP32, and the remedies almost the loss of FP32."""
    results = []
    for job in jobs.deciding_jobs(Options(seeds=10)):
        slow = job["rate"] == TUNED[job["problem"]].earlier
        factor = {"fp32": 1, "bf16-standard": earlier if slow else best}.get(job["arm"], 1.001)
        scatter = 1 + 1e-3 * ((job["seed"] * 7 + len(job["arm"])) % 10)
        late = 0.5 + 0.1 * (job["schedule"] == "cosine") + 1e-3 * (job["seed"] % 7)
        loss = factor * scatter * (2 if slow else 1)
        results.append({**job, "loss": loss, "measure": 1 / loss, "early": 0.1, "late": late})
    return results


def test_a_gap_that_tuning_closes_is_distinguished_from_one_that_stays():
    closed, open_ = (
        {found.claim: found.verdict for found in findings(artificial_results(1.1, best))} for best in (0.99, 1.1)
    )
    assert len(closed) == 2 * 4 + 1 + 3 + 1 + 2
    for problem in TUNED:
        worse = f"{problem}: BF16 with nearest updates at its best constant rate ends worse than FP32 at its best"
        assert closed[worse] == NOT_REPRODUCED and open_[worse] == REPRODUCED
        tuning = f"{problem}: tuning the rate of each policy closes most of the gap of nearest updates"
        assert closed[tuning] == REPRODUCED and open_[tuning] == NOT_REPRODUCED
        assert closed[f"{problem}: BF16, stochastic updates: closes most of the gap at the earlier rate"] == REPRODUCED
    assert open_["MLP: a decaying rate opens the gap of nearest updates"] == NOT_REPRODUCED
    assert open_["MLP: a decaying rate cancels more updates in the late stage"] == REPRODUCED
