"""Rows of points: the mean and the range that a marker shows."""

import numpy as np
import pytest

from simfloat.plots import draw_points, new_figure, save_figure


def drawn(log):
    _, axes = new_figure(1, 1, 3.0, 2.0)
    draw_points(axes, ["first", "second"], {"group": [np.array([1.0, 4.0]), np.array([0.0, 2.0])]}, log=log)
    return axes.containers[0], axes


@pytest.mark.parametrize("log, means", [(False, [2.5, 1.0]), (True, [2.0, np.nan])])
def test_a_marker_is_the_mean_of_the_seeds_and_a_geometric_one_over_logarithms(log, means):
    (markers, _, (lines,)), axes = drawn(log)
    np.testing.assert_allclose(markers.get_xdata(), means)
    assert lines.get_segments()[0][:, 0].tolist() == [1.0, 4.0], "the line goes from the least to the greatest"
    assert [text.get_text() for text in axes.get_yticklabels()] == ["first", "second"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1], "the first row is above"


def test_the_mean_of_one_value_is_that_value_however_its_logarithm_is_rounded():
    values = np.linspace(0.1, 9.0, 50)
    assert (np.exp(np.log(values)) < values).any()
    _, axes = new_figure(1, 1, 3.0, 2.0)
    draw_points(axes, ["row"] * values.size, {"one seed": values[:, None]})
    assert axes.containers[0][0].get_xdata().tolist() == values.tolist()


@pytest.mark.parametrize("rows, groups, message", [
    ([], {"a": []}, "takes rows and groups, got 0 and 1"),
    (["first"], {}, "takes rows and groups, got 1 and 0"),
    (["first"], {"a": [[1.0], [2.0]]}, r"'a' needs values for each of 1 rows, got arrays of \[1, 1\]"),
    (["first"], {"a": [[]]}, r"'a' needs values .* got arrays of \[0\]"),
])  # fmt: skip
def test_empty_drawings_are_refused(rows, groups, message):
    _, axes = new_figure(1, 1, 3.0, 2.0)
    with pytest.raises(ValueError, match=message):
        draw_points(axes, rows, groups)


def test_rows_without_a_positive_number_are_drawn_empty_on_a_logarithmic_axis(tmp_path):
    figure, axes = new_figure(1, 1, 3.0, 2.0)
    draw_points(axes, ["all seeds diverged", "zero"], {"group": [[np.inf, np.nan], [0.0]]})
    save_figure(figure, tmp_path / "figure.png")
    assert np.isnan(axes.containers[0][0].get_xdata()).all() and axes.get_xscale() == "log"
