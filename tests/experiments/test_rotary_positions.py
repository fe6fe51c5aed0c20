"""Rotary positions: each step is rounded where the variant says, and rotations without rounding are exact."""

import numpy as np

import simfloat as sf
from experiments.rotary_positions.findings import findings
from experiments.rotary_positions.jobs import FAR, FP64_ANGLES, NEAR, PARTS, frequencies, rotate, run, scores, turned
from simfloat.studies.verdicts import NOT_REPRODUCED, REPRODUCED


def test_scores_of_exact_rotations_depend_on_the_distance_only():
    x, y = np.random.default_rng(0).standard_normal((2, 3, 64))
    near, far = (
        scores(turned(x, (place + 5) * frequencies() + np.zeros((3, 1))), turned(y, place * frequencies()))
        for place in (0, 100_000)
    )
    np.testing.assert_allclose(near, far, rtol=1e-9)


def test_positions_up_to_256_are_exact_in_bf16_and_larger_neighbours_are_equal():
    x = np.float64(sf.round(np.random.default_rng(1).standard_normal((1, 64)), sf.BF16))
    for place, stored in ((255, 255), (256, 256), (1023, 1024)):
        narrow = rotate(x, np.array([place]), ("positions",), False)
        assert (narrow == rotate(x, np.array([stored]), (), False)).all()
    assert (rotate(x, np.array([1023]), (), False) != rotate(x, np.array([1024]), (), False)).any()


def test_a_narrow_table_has_numbers_of_bf16():
    ones = np.concatenate([np.ones((1, 32)), np.zeros((1, 32))], axis=1)
    rotated = rotate(ones, np.array([7]), ("tables",), False)
    wanted = np.concatenate([np.cos(7 * frequencies()), np.sin(7 * frequencies())])
    assert (rotated[0] == np.float64(sf.round(wanted, sf.BF16))).mean() > 0.9, "angles have one rounding in FP32"


def test_a_job_depends_on_its_seed_and_has_a_row_for_each_variant():
    result = run({"seed": 3, "tiny": True})
    assert result == run({"seed": 3, "tiny": True})
    assert len(result["rows"]) == 2 * 2 * (len(PARTS) + 1)


def artificial(growth):
    """Results in which angles fail and the error of tables grows with this exponent."""
    sizes = {"positions": 0.5, "angles": 0.5, "everything": 0.5, "nothing": 1e-3, FP64_ANGLES: 1e-3}
    return [
        {
            "seed": seed,
            "rows": [
                {"position": position, "keys": keys, "part": part}
                | {"error": (1 + seed % 3 / 100) * sizes.get(part, 1.5e-3 * (position / 1024) ** growth)}
                | ({"error": 0.9 + seed % 3 / 100} if (part, keys) == ("frequencies", FAR) else {})
                for position in (256, 1024, 4096)
                for keys in (NEAR, FAR)
                for part in (*PARTS, FP64_ANGLES)
            ],
        }
        for seed in range(5)
    ]


def test_an_error_that_grows_is_told_from_one_that_does_not():
    flat, grows = ([found.verdict for found in findings(artificial(growth))] for growth in (0.0, 0.5))
    assert flat[:5] == [REPRODUCED] * 5
    assert flat[8] == NOT_REPRODUCED and grows[8] == REPRODUCED
    assert flat[5:8] == [REPRODUCED] * 3 and grows[5:8] == [NOT_REPRODUCED] * 3
