"""Losses relative to a reference: pair by pair, and on one scale."""

import numpy as np
import pytest

from experiments.curves import WIDE, beside, one_scale
from simfloat.plots import new_figure


def test_losses_are_compared_seed_by_seed_in_percent():
    rows = [
        {"variant": variant, "label": variant, "seed": seed, "iteration": [1, 2], "loss": [factor * (seed + 1)] * 2}
        for variant, factor in (("fp32", 1.0), ("bf16", 1.5))
        for seed in range(3)
    ]
    (line,) = beside(rows, "fp32", {"bf16": 2})
    assert line.label == "bf16" and line.style == 2 and (line.values == 50).all() and line.values.shape == (3, 2)


@pytest.mark.parametrize("most, scale", [(WIDE / 2, "linear"), (10 * WIDE, "symlog")])
def test_columns_share_limits_and_large_differences_are_drawn_by_their_logarithms(most, scale):
    _, axes = new_figure(1, 2, 4, 2)
    for column, height in zip(axes, (most, 1.0), strict=True):
        column.plot([0, 1], [-0.5, height])
    one_scale(axes)
    assert axes[0].get_ylim() == axes[1].get_ylim() and axes[0].get_ylim()[1] >= most
    assert {column.get_yscale() for column in axes} == {scale}
    assert np.isclose([line.get_ydata()[0] for line in (axes[0].lines[-1], axes[1].lines[-1])], 0).all()
