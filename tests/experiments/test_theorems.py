"""The theorems of the update-cancellation experiment."""

import numpy as np

from experiments.update_cancellation.theorem1 import check_theorem_1, counterexample, printed_radius, safe_radius
from experiments.update_cancellation.theorem2 import bound


def test_no_weight_moves_inside_the_safe_radius_and_one_does_inside_the_printed_one():
    found = check_theorem_1(seed=0, points=20)
    assert found["tried"] == 20 and found["moved"] == 0 and counterexample()
    assert safe_radius(0.75, 1.0, 1.984375) < 0.0078125 < printed_radius(0.75, 1.0, 1.984375)


def test_the_bound_falls_geometrically_from_the_distance_at_the_start():
    limit = bound({"seed": 0, "iteration": [0, 100, 200], "start": {"distance": 2.0}})
    assert limit[0] == 4.0
    np.testing.assert_allclose(limit[1] ** 2, limit[0] * limit[2], rtol=1e-12)
    assert limit[2] < limit[1] < limit[0]
