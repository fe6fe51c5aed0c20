"""The errors of a comparison of policies as dots."""

import math

import pytest

from simfloat.analysis.attribution.policy_comparison import PolicyComparison, PolicyError
from simfloat.plots import COLUMN_WIDTH, draw_comparison, new_figure

ROWS = (
    PolicyError("b_$", 1.0, 1e-2, 1e-1), PolicyError("a", 1.0, 0.0, 1e-3),
    PolicyError("nan", math.inf, math.inf, math.inf),
    PolicyError("refused", math.nan, math.nan, math.nan, "why"),
)  # fmt: skip


def drawn(rows=ROWS):
    figure, axes = new_figure(1, 1, COLUMN_WIDTH, 2)
    draw_comparison(axes, PolicyComparison(tuple(rows), "fp64", 1.0), title="t$")
    figure.canvas.draw()
    return axes


def test_policies_stand_in_the_order_of_their_gradients_errors():
    axes = drawn()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b_\\$", "nan"]
    assert [line.get_xdata()[0] for line in axes.lines[:2]] == [1e-3, 1e-1]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["gradient", "loss"]
    assert axes.get_xscale() == "log" and axes.get_xlabel() == "error relative to fp64"


def test_zeros_stand_at_the_left_edge_and_infinities_at_the_right_one():
    axes = drawn()
    left, right = axes.get_xlim()
    assert axes.lines[3].get_xdata()[0] == left
    assert [(line.get_xdata()[0], line.get_marker()) for line in (axes.lines[2], axes.lines[5])] == [(right, ">")] * 2


def test_an_argument_that_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="takes a result of simfloat.compare, got a int"):
        draw_comparison(None, 5)
    with pytest.raises(ValueError, match="there is nothing to draw"):
        drawn([PolicyError("a", 1.0, 0.0, 0.0)])
