"""Heat maps."""

from itertools import pairwise

import numpy as np
import pytest

from simfloat.plots import draw_heat_map, new_figure


def drawn(values, rows=("a", "b"), columns=("x", "_y$", "z"), **words):
    figure, axes = new_figure(1, 1, 3, 2)
    draw_heat_map(axes, rows, columns, values, **words)
    figure.canvas.draw()
    return figure, axes


def test_rows_and_columns_are_named_and_the_bar_shows_the_values():
    figure, axes = drawn([[1e-3, 2e-3, 5e-3], [1e-2, 0.0, np.inf]], title="t", label="error")
    assert [text.get_text() for text in axes.get_yticklabels()] == ["a", "b"]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["x", " _y\\$", "z"]
    (image,) = axes.get_images()
    assert np.ma.getmaskarray(np.ma.masked_invalid(image.get_array())).tolist() == [[False] * 3, [False, True, True]]
    assert (image.norm.vmin, image.norm.vmax) == (1e-3, 1e-2)
    bar = figure.axes[1]
    assert bar.get_ylabel() == "error" and axes.get_title() == "t"
    labels = [text.get_text() for text in bar.get_yticklabels()]
    assert any("10^{-2}" in text for text in labels) and any("5" in text for text in labels)


def test_of_rows_that_are_lower_than_their_names_only_some_are_named():
    rows = [f"layer {row}" for row in range(50)]
    figure, axes = drawn(np.outer(np.arange(50), [1, 0, 1]), rows=rows)
    named = axes.get_yticklabels()
    assert [text.get_text() for text in named] == rows[:: round(50 / len(named))] and len(named) > 5
    boxes = [text.get_window_extent() for text in named]
    assert all(below.y1 < above.y0 for above, below in pairwise(boxes))


def test_cells_have_one_colour_up_to_their_edges():
    figure, axes = drawn(np.outer(np.arange(50), [1, 0, 1]), rows=[""] * 50)
    colours = np.asarray(figure.canvas.buffer_rgba())
    x, y = (int(end) for end in axes.transAxes.transform([0.3, 0.5]))
    assert (colours[-y, x - 5 : x + 5] == colours[-y, x]).all()


@pytest.mark.parametrize(
    "values", [np.zeros((2, 3)), np.full((2, 3), np.nan), np.full((2, 3), 0.25), np.full((2, 3), 5e-324)]
)
def test_values_that_are_all_alike_are_drawn_too(values):
    drawn(values)


def test_values_far_below_the_largest_have_one_colour():
    _, axes = drawn([[1e-30, 1e-9, 1.0], [1e-3, 1e-4, 1e-5]])
    assert axes.get_images()[0].norm.vmin == 1e-6


def test_maps_that_are_compared_have_one_scale():
    norms = [drawn(values, most=10.0)[1].get_images()[0].norm for values in ([[1, 2, 3]] * 2, [[1e-3, 1e-9, 0]] * 2)]
    assert [(norm.vmin, norm.vmax) for norm in norms] == [(10.0 * 10.0**-6, 10.0)] * 2
    with pytest.raises(ValueError, match="most must be a positive number, .*, got 0"):
        drawn([[1, 2, 3]] * 2, most=0)


def test_names_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"2 rows and 3 columns are named; the values have shape \(3, 2\)"):
        drawn(np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"one row and one column at least, got values of shape \(0, 3\)"):
        drawn(np.ones((0, 3)), rows=())
