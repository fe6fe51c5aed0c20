"""The stopping distance of nearest updates: shared parts of the runs, and claims on artificial results."""

from experiments.update_limits import findings
from experiments.update_limits.jobs import ALPHAS, BITS, FIXED, RUNS, WIDTHS, Descent, data, run
from simfloat.studies.verdicts import EQUAL, NOT_REPRODUCED, REPRODUCED


def test_every_run_of_a_seed_has_the_same_inputs_and_its_optimum_in_its_own_size():
    (x, wide), (same, narrow) = (data(3, Descent(FIXED, width=width)) for width in (100.0, 1.0))
    assert (x == same).all() and (wide == 100 * narrow).all() and (x**2).sum(axis=1).max() <= 18
    assert data(3, Descent(FIXED, few=True))[0].shape == (20, 50)


def test_a_job_has_a_row_for_every_run_and_depends_on_its_seed_alone():
    job = {"seed": 5, "tiny": True}
    rows = run(job)["rows"]
    assert rows == run(job)["rows"] and [row["varied"] for row in rows] == [v for v, runs in RUNS.items() for _ in runs]
    assert all(0 < row["distance"] < row["start"] for row in rows)


def made_up(power, seed):
    """Distances: step size to this power, 2 to minus the bits, and the size of weights, but in fixed point."""
    noise = 1 + 0.001 * seed
    rows = [{"varied": "alpha", "alpha": alpha, "distance": noise * alpha**power} for alpha in ALPHAS]
    rows += [{"varied": "bits", "bits": bits, "distance": noise * 2.0**-bits} for bits in BITS]
    rows += [{"varied": "floating", "width": width, "distance": noise * width} for width in WIDTHS]
    rows += [{"varied": "fixed", "width": width, "distance": noise} for width in WIDTHS]
    rows += [{"varied": "few", "bits": bits, "loss": noise / bits**4} for bits in (7, 23)]
    return {"seed": seed, "rows": [{"radius": 1e-9, "start": 1.0, **row} for row in rows]}


def test_the_claims_hold_for_distances_as_the_theorem_has_them_and_fail_for_others():
    expected, other = ([made_up(power, seed) for seed in range(20)] for power in (-1, 1))
    assert findings.smaller_steps_end_worse(expected).verdict == REPRODUCED
    assert findings.smaller_steps_end_worse(other).verdict == NOT_REPRODUCED
    assert findings.distance_is_of_order_epsilon(expected).verdict == REPRODUCED
    assert findings.depends_on_weights(expected).verdict == REPRODUCED
    assert findings.fixed_point_does_not(expected).verdict == EQUAL
    assert findings.underdetermined_stops(expected).verdict == REPRODUCED
    assert findings.no_run_comes_nearer(expected).verdict == REPRODUCED
    near = [{**result, "rows": [{**row, "radius": 1e9, "start": 1e9} for row in result["rows"]]} for result in expected]
    assert findings.no_run_comes_nearer(near).verdict == NOT_REPRODUCED
