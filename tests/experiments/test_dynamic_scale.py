"""The experiment on the dynamic loss scale: its counts."""

import numpy as np
import pytest

from experiments.dynamic_scale.statements import (
    FAR_TOO_LARGE,
    FAR_TOO_SMALL,
    count_numbers,
    count_skipped,
    count_step,
    digits,
    unguarded_losses,
)


def test_gradients_are_counted_by_their_result_in_fp16():
    found = count_step(np.array([0.0, 2.0**-25, 3 * 2.0**-26, -(2.0**-12), 0.3]))
    assert (found["gradients"], found["below"], found["below-lost"], found["lost"]) == (4, 3, 1, 1)
    assert (found["normal"], found["normal-changed"]) == (2, 0)
    assert (found["subnormal"], found["subnormal-better"]) == (2, 2)
    assert (found["alarms"], found["false-alarms"], found["negative-minimum"]) == (1, 0, 1)
    assert count_step(np.array([2.0**-12]))["false-alarms"] == 1


def test_small_powers_of_two_are_exact_and_scaled_losses_overflow_in_fp16_only():
    assert count_numbers() == {
        "powers": 10,
        "powers-lost": 0,
        "losses": 100,
        "losses-overflow": 100,
        "losses-overflow-fp32": 0,
    }


@pytest.mark.parametrize("scale, first", [(FAR_TOO_SMALL, None), (FAR_TOO_LARGE, 1)])
def test_nan_comes_from_overflow_and_underflow_leaves_the_loss_finite(scale, first):
    is_nan = np.isnan(unguarded_losses(digits(0, True), 0, scale, steps=4))
    assert is_nan.any() == (first is not None) and not is_nan[:first].any() and (first is None or is_nan[first:].all())


def test_a_skipped_step_changes_nothing_and_is_not_repeated():
    found = count_skipped(digits(0, True), 0, steps=8)
    assert found["skipped"] > 0 and found["skipped-changed"] == found["skipped-repeated"] == 0
