"""The stopping distance of nearest updates: shared parts of the runs, and claims on artificial results."""

import numpy as np

from experiments.update_limits import findings
from experiments.update_limits.jobs import (
    ALPHAS,
    BITS,
    FIXED,
    RUNS,
    SEARCHED,
    WIDTHS,
    Descent,
    data,
    run,
    smallest_distance,
)
from simfloat.studies.verdicts import NOT_REPRODUCED, REPRODUCED


def test_every_run_of_a_seed_has_the_same_inputs_and_its_optimum_in_its_own_size():
    (x, wide), (same, narrow) = (data(3, Descent(FIXED, width=width)) for width in (100.0, 1.0))
    assert (x == same).all() and (wide == 100 * narrow).all() and (x**2).sum(axis=1).max() <= 18
    assert data(3, Descent(FIXED, few=True))[0].shape == (20, 50)


def test_a_job_has_a_row_for_every_run_and_depends_on_its_seed_alone():
    job = {"seed": 5, "tiny": True}
    rows = run(job)["rows"]
    varied = [*(name for name, runs in RUNS.items() for _ in runs), *["search"] * SEARCHED, "mean"]
    assert rows == run(job)["rows"] and [row["varied"] for row in rows] == varied
    assert all(0 < row["distance"] < row["start"] for row in rows[: -SEARCHED - 1])


def test_a_run_reaches_the_optimum_from_outside_of_the_radius():
    assert smallest_distance(np.ones((10, 1)), np.array([1.5]), alpha=0.75) == 0
    assert 1.4921875 - 0.75 * (1.4921875 - 1.5) == 1.498046875, "the last update, which BF16 rounds to 1.5"


def made_up(power, seed):
    """Distances: step size to this power, 2 to minus the bits, and the size of weights, but in fixed point."""
    noise = 1 + 0.001 * seed
    rows = [{"varied": "alpha", "alpha": alpha, "distance": noise * alpha**power} for alpha in ALPHAS]
    rows += [{"varied": "bits", "bits": bits, "distance": noise * 2.0**-bits} for bits in BITS]
    rows += [{"varied": "floating", "width": width, "distance": noise * width} for width in WIDTHS]
    rows += [{"varied": "fixed", "width": width, "distance": noise} for width in WIDTHS]
    rows += [{"varied": "few", "bits": bits, "loss": noise / bits**4} for bits in (7, 23)]
    rows += [{"varied": "mean", "distance": noise, "single": 10.0, "nearest": 30.0}]
    return {"seed": seed, "rows": [{"radius": 1e-9, "start": 1.0, **row} for row in rows]}


def test_the_claims_hold_for_distances_as_the_theorem_has_them_and_fail_for_others():
    expected, other = ([made_up(power, seed) for seed in range(20)] for power in (-1, 1))
    assert findings.smaller_steps_end_worse(expected).verdict == REPRODUCED
    assert findings.smaller_steps_end_worse(other).verdict == NOT_REPRODUCED
    assert findings.distance_is_of_order_epsilon(expected).verdict == REPRODUCED
    assert findings.depends_on_weights(expected).verdict == REPRODUCED
    assert findings.fixed_point_does_not(expected).verdict == REPRODUCED
    assert findings.underdetermined_stops(expected).verdict == REPRODUCED
    assert findings.stochastic_mean_follows(expected).verdict == REPRODUCED
    refuted = findings.no_run_comes_nearer(expected)
    assert refuted.verdict == NOT_REPRODUCED and refuted.test.startswith("counterexamples: 1 of 81 cases")
