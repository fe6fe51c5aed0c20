"""The stopping distance of nearest updates: shared parts of the runs."""

import numpy as np

from experiments.update_limits.jobs import (
    FIXED,
    RUNS,
    SEARCHED,
    Descent,
    data,
    run,
    smallest_distance,
)


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
