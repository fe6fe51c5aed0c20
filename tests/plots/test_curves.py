"""Curves: the moving mean, the drawing, and literal labels."""

import math
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.cbook import is_math_text

from simfloat.formats import FP16
from simfloat.plots import (
    COLUMN_WIDTH,
    FULL_WIDTH,
    Curve,
    Point,
    add_legend,
    draw_curves,
    draw_heat_map,
    draw_loss_scale,
    draw_points,
    draw_trade_off,
    moving_mean,
    new_figure,
    save_figure,
)
from simfloat.plots.curves import STYLES, power_text


def test_the_moving_mean_is_centred_and_shrinks_at_the_ends():
    values = np.array([1.0, 5.0, 3.0, 9.0, 2.0])
    assert moving_mean(values, 1).tolist() == values.tolist()
    assert moving_mean(values, 3).tolist() == [1.0, 3.0, 17 / 3, 14 / 3, 2.0]
    assert moving_mean(np.arange(9.0), 5).tolist() == list(range(9)), "a straight line stays where it is"


def test_a_value_that_is_not_finite_leaves_a_gap_only_and_a_mean_of_no_points_is_refused():
    values = np.array([1.0, np.nan, 3.0, 4.0, 5.0, 6.0])
    assert np.isnan(moving_mean(values, 3)).tolist() == [False, True, True, False, False, False]
    for points in (0, -3):
        with pytest.raises(ValueError, match="A mean takes one point or more, got"):
            moving_mean(np.ones(5), points)


def curves(values):
    return [Curve(str(i), np.arange(5), values[i], i) for i in range(len(values))]


def test_curves_have_a_line_and_a_band_each(rng, tmp_path):
    figure, axes = new_figure(rows=1, columns=1, width=4, height=3)
    draw_curves(axes, curves(rng.uniform(1, 2, (9, 3, 5))), ylabel="loss", title="title", log=True)
    assert len(axes.lines) == len(axes.collections) == 9
    assert axes.get_yscale() == "log" and axes.get_ylabel() == "loss"
    save_figure(figure, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000


def test_runs_that_diverge_are_drawn_as_far_as_they_go(tmp_path):
    for log in (False, True):
        figure, axes = new_figure(rows=1, columns=1, width=4, height=3)
        values = np.array([[[1.0, 2.0, np.inf, np.nan, 0.0]], [[np.nan] * 5]])
        draw_curves(axes, curves(values), log=log)
        save_figure(figure, tmp_path / "figure.png")


def test_text_is_at_least_seven_points_at_the_printed_width(rng):
    figure, axes = new_figure(rows=2, columns=3, width=FULL_WIDTH, height=4)
    for one in axes.flat:
        draw_curves(one, curves(rng.uniform(1, 2, (2, 3, 5))), xlabel="x", ylabel="y", title="t", log=True)
    add_legend(figure, axes[0][0], columns=2, caption="what is shown")
    figure.canvas.draw()
    texts = [text for text in figure.findobj(lambda artist: hasattr(artist, "get_fontsize")) if text.get_text()]
    assert len(texts) > 30 and min(text.get_fontsize() for text in texts) >= 7


@pytest.mark.parametrize("low, high", [(0.1, 2e4), (0.23, 2.3), (1500, 12000), (1e-9, 1e-3), (1.0, 1.05)])
def test_ticks_of_a_logarithmic_axis_are_short(low, high):
    figure, axes = new_figure(rows=1, columns=1, width=3, height=2)
    draw_curves(axes, [Curve("a", np.arange(2), np.array([[low, high]]))], log=True)
    figure.canvas.draw()
    labels = [label.get_text() for label in axes.get_yticklabels() if label.get_text()]
    assert labels and not any("times" in label or "cdot" in label for label in labels)


def test_powers_of_ten_are_written_as_such():
    assert (power_text(1e-9), power_text(1e6), power_text(2e6)) == ("$10^{-9}$", "$10^{6}$", "$2\\cdot 10^{6}$")
    assert (power_text(5e-324), power_text(9.999999e-5), power_text(1.7e308)) == (
        "$4.94066\\cdot 10^{-324}$", "$10^{-4}$", "$1.7\\cdot 10^{308}$",
    )  # fmt: skip


def test_numbers_far_out_or_side_by_side_are_drawn(tmp_path):
    extremes = [(-1e200, 1e200), (1e200, 1e200), (5e-324, 1e200), (5e-324, 1e-323), (1e-5, math.nextafter(1e-5, 1))]
    figure, axes = new_figure(rows=2, columns=len(extremes), width=12, height=6)
    for row, log in zip(axes, (False, True), strict=True):
        for each, ends in zip(row, extremes, strict=True):
            draw_curves(each, [Curve("a", ends, ends)], log=log)
    save_figure(figure, tmp_path / "figure.png")


@pytest.mark.parametrize("draw", [
    lambda axes, x: draw_curves(axes, [Curve("loss", [0, 1], [1.0, x])]),
    lambda axes, x: draw_curves(axes, [Curve("loss", [0, x], [1.0, 1.0])]),
    lambda axes, x: draw_loss_scale(axes, [1.0, x]),
    lambda axes, x: draw_points(axes, ["row"], {"loss": [[1.0, x]]}),
    lambda axes, x: draw_trade_off(axes, [Point("loss", 1.0, x)]),
    lambda axes, x: draw_trade_off(axes, [Point("loss", x, 1.0)]),
    lambda axes, x: draw_heat_map(axes, ["row"], ["column"], [[x]]),
])  # fmt: skip
def test_numbers_that_no_axis_has_are_refused(draw):
    _, axes = new_figure(rows=1, columns=1, width=4, height=3)
    with pytest.raises(ValueError, match=r"numbers up to 1e\+200; .* has larger ones: draw their logarithms"):
        draw(axes, 1.7e308)


def test_labels_are_drawn_literally(tmp_path):
    labels = ["$x$", "_hidden", "a_b", "$", "\\frac", "[/red]x", "\U0001f600", "a\\$b$"]
    figure, axes = new_figure(rows=1, columns=1, width=4, height=3)
    draw_curves(axes, [Curve(label, np.arange(2), np.ones((1, 2))) for label in labels])
    add_legend(figure, axes, columns=1)
    save_figure(figure, tmp_path / "figure.png")
    (legend,) = figure.legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert not any(map(is_math_text, texts)) and [text.replace("\\$", "$").strip() for text in texts] == labels


def test_labels_may_be_numbers_and_formats():
    _, axes = new_figure(rows=1, columns=1, width=4, height=3)
    draw_curves(axes, [Curve(label, [1, 2], [3, 4]) for label in (8, FP16)])
    draw_trade_off(axes, [Point(8, 1, 1)])
    assert [line.get_label() for line in axes.lines[:2]] == ["8", "FP16"] and axes.texts[0].get_text() == "8"


def test_a_figure_without_a_size_is_refused():
    with pytest.raises(ValueError, match="width and height must be positive numbers of inches; got 0 and 2"):
        new_figure(1, 1, 0, 2)


def test_without_matplotlib_the_extra_is_named():
    code = "import sys; sys.modules['matplotlib'] = None\nimport simfloat as sf\nsf.plots.new_figure(1, 1, 3, 2)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.stderr.endswith("ImportError: Figures are drawn by matplotlib: pip install 'simfloat[plots]'.\n")


@pytest.mark.parametrize("suffix, begins", [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")])
def test_a_figure_is_written_as_its_suffix_says_and_always_with_the_same_bytes(suffix, begins, tmp_path):
    for name in ("a", "b"):
        figure, axes = new_figure(rows=1, columns=1, width=COLUMN_WIDTH, height=2)
        draw_curves(axes, [Curve("a", np.arange(2), np.ones((1, 2)))], xlabel="$x$")
        save_figure(figure, str(tmp_path / f"{name}{suffix}"))
    first, second = ((tmp_path / f"{name}{suffix}").read_bytes() for name in ("a", "b"))
    assert first == second and first.startswith(begins)


def test_a_suffix_that_no_figure_has_is_refused(tmp_path):
    figure, _ = new_figure(rows=1, columns=1, width=4, height=3)
    with pytest.raises(ValueError, match=r"Figures are written as \.png, \.pdf, \.svg; got 'figure\.jpg'"):
        save_figure(figure, tmp_path / "figure.jpg")


@pytest.mark.parametrize("curves, message", [
    (Curve("a", [1], [1]), r"curves must be a list of simfloat\.plots\.Curve, got a Curve"),
    (None, r"curves must be a list of simfloat\.plots\.Curve, got a NoneType"),
    ([([1], [1])], r"curves must be a list of simfloat\.plots\.Curve, got one of tuple"),
    ([Curve("a", [1, 2], [[1, 2, 3]])], r"'a' has x of shape \(2,\) and values of shape \(1, 3\)"),
    ([Curve("a", 1, 2)], r"'a' has x of shape \(\) and values of shape \(\)"),
    ([Curve("a", [1, 2], np.zeros((0, 2)))], "'a' has no values: a curve has one for each x"),
    ([Curve("a", [], [])], "'a' has no values"),
    ([Curve("a", [1], [1], style="-")], "style of 'a' must be an integer of at least 0, got '-'"),
    ([Curve("a", [1], [1], smooth=0)], "smooth of 'a' must be an integer of at least 1, got 0"),
])  # fmt: skip
def test_an_invalid_list_of_curves_is_refused(curves, message):
    _, axes = new_figure(rows=1, columns=1, width=4, height=3)
    with pytest.raises(ValueError, match=message):
        draw_curves(axes, curves)


def test_curves_without_styles_take_those_that_are_left_and_have_a_legend():
    _, axes = new_figure(rows=1, columns=1, width=4, height=3)
    draw_curves(
        axes, [Curve(label, [1, 2], [3, 4], style) for label, style in zip("abc", (None, 0, None), strict=True)]
    )
    assert [line.get_color() for line in axes.lines] == [STYLES[number].color for number in (1, 0, 2)]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b", "c"]


def test_curves_with_styles_and_a_single_one_have_no_legend_of_their_own(rng):
    for drawn in (curves(rng.uniform(1, 2, (3, 5))), [Curve("a", [1, 2], [3, 4])]):
        _, axes = new_figure(rows=1, columns=1, width=4, height=3)
        draw_curves(axes, drawn)
        assert axes.get_legend() is None and axes.lines[0].get_color() == STYLES[0].color
    assert axes.lines[0].get_ydata().tolist() == [3, 4], "one seed may have its values in one row"
