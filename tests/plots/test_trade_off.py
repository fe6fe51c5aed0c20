"""Accuracy over memory: the Pareto front, and names that cover nothing."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.text import Text

from simfloat.plots import COLUMN_WIDTH, Point, draw_trade_off, fit_figure, new_figure, save_figure
from simfloat.plots.trade_offs import COLOR, unbeaten


def drawn(points, **words):
    figure, axes = new_figure(1, 1, COLUMN_WIDTH, 2.4)
    draw_trade_off(axes, points, **words)
    figure.canvas.draw()
    return axes


def test_a_point_is_beaten_by_one_that_costs_no_more_and_is_worth_more_or_costs_less_and_is_worth_as_much(rng):
    points = [(1, 5), (2, 5), (1, 4), (2, 6), (2, 6), (3, 1)]
    assert unbeaten(*np.array(points, float).T).tolist() == [True, False, False, True, True, False]
    costs, values = rng.integers(0, 6, (2, 40)).astype(float)
    beaten = [
        any(c <= cost and v >= value and (c, v) != (cost, value) for c, v in zip(costs, values, strict=True))
        for cost, value in zip(costs, values, strict=True)
    ]
    assert unbeaten(costs, values).tolist() == [not each for each in beaten]


def test_points_that_nothing_beats_are_filled():
    points = [Point("a", 1, [0.5, 0.7]), Point("b", 2, 0.4), Point("c", 2, [0.9])]
    for better, filled in ((True, [True, False, True]), (False, [True, True, False])):
        axes = drawn(points, higher_is_better=better)
        marks = [line for line in axes.lines if line.get_marker() == "o"]
        assert [line.get_ydata()[0] for line in marks] == pytest.approx([0.6, 0.4, 0.9])
        assert [line.get_markerfacecolor() == COLOR for line in marks] == filled


def test_names_cover_neither_points_nor_one_another_and_stay_inside():
    points = [Point(f"policy {i}, a long name", 1 + i % 3, 0.9 + 0.004 * i) for i in range(9)]
    axes = drawn(points)
    boxes = [Text.get_window_extent(text) for text in axes.texts]  # without the line to the point
    assert len(boxes) == 9 and not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    places = axes.transData.transform([(point.cost, point.values) for point in points])
    assert not any(box.contains(*place) for box in boxes for place in places)
    inside = axes.get_window_extent().padded(1)
    assert all(inside.contains(box.x0, box.y0) and inside.contains(box.x1, box.y1) for box in boxes)


def test_equal_values_do_not_beat_one_another_however_their_mean_is_rounded():
    axes = drawn([Point("three seeds", 1, [0.1] * 3), Point("one", 1, 0.1)])
    assert {line.get_markerfacecolor() for line in axes.lines if line.get_marker() == "o"} == {COLOR}


def test_characters_that_the_font_lacks_are_boxes_without_a_message(tmp_path, capsys):
    figure, axes = new_figure(1, 1, COLUMN_WIDTH, 2.4)
    draw_trade_off(axes, [Point("\u6f22", 1, 1)], title="\u6f22", xlabel="$x$ \u6f22")
    fit_figure(figure)
    save_figure(figure, tmp_path / "figure.png")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("points, message", [
    ([], "draw_trade_off takes a list of points, got none"),
    (Point("a", 1, 1), "points must be a list of simfloat.plots.Point, got Point"),
    ([("a", 1, 1)], "points must be a list of simfloat.plots.Point"),
    ([Point("a", np.nan, 1)], "Costs and values must be finite numbers; those of 'a' are not"),
    ([Point("a", 1, [])], "Costs and values must be finite numbers"),
    ([Point("a", 1, [1, np.inf])], "Costs and values must be finite numbers"),
])  # fmt: skip
def test_an_invalid_point_is_refused(points, message):
    with pytest.raises(ValueError, match=message):
        drawn(points)


def test_a_cost_of_zero_is_refused_on_a_logarithmic_axis():
    points = [Point("_$a", 1, 1), Point("free", 0, 1)]
    assert drawn(points).get_xscale() == "linear"
    axes = drawn(points[:1], log=True, title="t")
    assert axes.texts[0].get_text() == " _\\$a" and axes.get_xscale() == "log"
    with pytest.raises(ValueError, match="Costs must be positive on a logarithmic axis; 'free' costs"):
        drawn(points, log=True)
