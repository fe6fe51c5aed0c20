"""The costs of an attribution as bars."""

import numpy as np
import pytest

from simfloat.analysis.attribution.measure import Attribution, Cost
from simfloat.plots import COLUMN_WIDTH, draw_attribution, new_figure

COSTS = [("linear", "a", "compute", 1e-2), ("add", "_b$", "activations", 1e-4), ("exp", "c", "reduce", 0.0)]


def found(costs=COSTS, total=2e-2, by=("operation", "layer", "role")):
    return Attribution(tuple(Cost(*cost) for cost in costs), total, by)


def drawn(attribution, **options):
    figure, axes = new_figure(1, 1, COLUMN_WIDTH, 2)
    draw_attribution(axes, attribution, **options)
    figure.canvas.draw()
    return axes


def test_bars_end_at_the_costs_largest_first_and_zeros_have_none():
    axes = drawn(found(COSTS[::-1]), title="t$")
    bars = sorted(axes.patches, key=lambda bar: -bar.get_y())
    assert [bar.get_x() + bar.get_width() for bar in bars] == pytest.approx([1e-2, 1e-4])
    assert [text.get_text() for text in axes.texts] == [
        "linear · a · compute",
        "add · _b\\$ · activations",
        "whole policy",
    ]
    assert axes.lines[0].get_xdata() == [2e-2, 2e-2] and axes.get_xscale() == "log" and axes.get_title() == "t\\$"


def test_infinite_costs_reach_over_all_others_and_say_so():
    axes = drawn(found([("linear", "a", "compute", np.inf), *COSTS], total=np.inf))
    assert axes.texts[0].get_text() == "linear · a · compute  (infinite)" and not axes.lines
    infinite, largest = axes.patches[0], axes.patches[1]
    assert infinite.get_hatch() and infinite.get_x() + infinite.get_width() == axes.get_xlim()[1]
    assert largest.get_x() + largest.get_width() == pytest.approx(1e-2)
    drawn(found([("linear", "a", "compute", np.inf)], total=np.inf))


def test_as_many_costs_are_drawn_as_asked_for_by_the_fields_that_were_asked_for():
    axes = drawn(found([("linear", "", "", 0.1), ("add", "", "", 0.2)], by=("operation",)), most=1)
    assert len(axes.patches) == 1 and axes.texts[0].get_text() == "add"


@pytest.mark.parametrize("attribution, options, message", [
    ([1], {}, "draw_attribution takes a result of simfloat.attribute, got a list"),
    (found(COSTS[2:]), {}, "No part of the policy costs the gradient anything"),
    (found(), {"most": 0}, "most, the number of costs to draw, must be at least 1, got 0"),
    (found(), {"most": True}, "most, the number of costs to draw"),
])  # fmt: skip
def test_an_attribution_without_costs_is_refused(attribution, options, message):
    with pytest.raises(ValueError, match=message):
        drawn(attribution, **options)
