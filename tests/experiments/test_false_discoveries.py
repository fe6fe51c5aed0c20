"""Compare the false discovery rate with SciPy, and with its guarantee."""

import numpy as np
import pytest
from scipy import stats

from simfloat.studies.statistics import adjust_levels, discoveries


@pytest.mark.parametrize("n", [1, 2, 19, 200])
def test_adjusted_levels_are_benjamini_and_hochbergs(rng, n):
    p = rng.uniform(size=n) ** 3
    np.testing.assert_allclose(adjust_levels(p), stats.false_discovery_control(p), rtol=1e-14)


def test_the_rate_is_that_of_all_that_is_decided():
    # 0.04 is the third of four: 0.04 * 4 / 3. What chance has no part in is not counted.
    found = discoveries([0.001, None, 0.04, 1.0, 0.01])
    assert (found.tested, found.decided) == (4, 3) and found.rate == pytest.approx(0.16 / 3)
    assert str(found) == ("3 of 4 tested claims are decided, at a false discovery rate of 5.3 % (Benjamini-Hochberg).")


def test_without_tests_or_decisions_there_is_nothing_false():
    assert discoveries([None]) == (0, 0, None) and discoveries([1.0, 1.0]) == (2, 0, 0.0)
    assert str(discoveries([])) == "No claim was tested by statistics."


def test_the_rate_detects_claims_that_were_decided_by_chance(rng):
    p = [level if level < 0.05 else 1.0 for level in rng.uniform(size=1000)]
    assert discoveries(p).rate > 0.9
