"""The style of figures: the user's settings stay in force, and dark styles have a light reference."""

import importlib.resources
from itertools import product

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgb

from simfloat.plots import (
    COLUMN_WIDTH,
    Curve,
    add_legend,
    draw_curves,
    draw_heat_map,
    draw_loss_scale,
    draw_lost_updates,
    fit_figure,
    new_figure,
)
from simfloat.plots.curves import STYLES

#: Contrast to the background below which a line is hard to see (WCAG 2.1, graphical objects, has 3).
VISIBLE = 2.2


def reference(*styles):
    with plt.style.context(styles):
        figure, axes = new_figure(1, 1, COLUMN_WIDTH, 2)
        draw_curves(axes, [Curve("reference", [1, 2], [1, 2], 0)], title="title")
    return axes


def test_the_reference_is_dark_on_white_and_light_on_black():
    assert to_rgb(reference().lines[0].get_color()) == (0, 0, 0)
    axes = reference("dark_background")
    assert to_rgb(axes.lines[0].get_color()) == (1, 1, 1) and to_rgb(axes.get_facecolor()) == (0, 0, 0)


def luminance(color):
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in to_rgb(color)]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def test_all_other_lines_are_visible_on_white_and_on_black():
    for style, background in product(STYLES[1:], ("white", "black")):
        lower, upper = sorted([luminance(style.color), luminance(background)])
        assert (upper + 0.05) / (lower + 0.05) > VISIBLE, style.color


def test_a_users_settings_stay_and_those_of_matplotlib_are_untouched():
    before = dict(plt.rcParams)
    with plt.rc_context({"font.size": 14, "axes.spines.top": True, "axes.grid": False}):
        assert reference().title.get_fontsize() == 14
    assert reference().title.get_fontsize() == 8.5 and dict(plt.rcParams) == before


def test_the_style_is_shipped_and_has_a_name_for_matplotlib():
    assert importlib.resources.files("simfloat.plots").joinpath("simfloat.mplstyle").is_file()
    with plt.style.context("simfloat.plots.simfloat"):
        assert plt.rcParams["figure.constrained_layout.use"] and plt.rcParams["font.size"] == 8.5


def test_a_heat_map_is_lightest_at_its_largest_value_on_black():
    found = {}
    for style in ("default", "dark_background"):
        with plt.style.context(style):
            figure, axes = new_figure(1, 1, COLUMN_WIDTH, 2)
            draw_heat_map(axes, ["a"], ["x", "y"], [[1e-3, 1.0]])
            found[style] = luminance(axes.get_images()[0].cmap(1.0)[:3])
    assert found["default"] < 0.1 < 0.8 < found["dark_background"]


def test_titles_state_the_finding_unless_there_is_another_title():
    curve = Curve("BF16", [0, 1], [[0.6, 0.64]])
    for title, shown in ((None, "BF16 loses 62 % of the updates"), ("", ""), ("mine", "mine")):
        _, axes = new_figure(1, 1, COLUMN_WIDTH, 2)
        draw_lost_updates(axes, [curve], title=title)
        assert axes.get_title() == shown
    _, axes = new_figure(1, 1, COLUMN_WIDTH, 2)
    draw_loss_scale(axes, [8.0, 4.0], [True, False])
    assert axes.get_title() == "1 of 2 steps skipped; last scale $2^{2}$"


def test_a_long_title_and_a_wide_legend_stay_within_the_figure():
    figure, axes = new_figure(1, 1, COLUMN_WIDTH, 3)
    curves = [Curve(f"a policy with a long name, {number}", [1, 2], [1, 2], number) for number in range(4)]
    draw_curves(axes, curves, title="so many words that they do not fit into a line " * 3)
    add_legend(figure, axes, columns=4, caption="caption")
    figure.canvas.draw()
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert "\n" in axes.get_title() and box.x0 >= 0 and box.x1 <= width and box.y0 >= 0 and box.y1 <= height


def test_figures_of_pyplot_are_laid_out_too_with_and_without_a_colour_bar():
    for has_bar in (False, True):
        figure, axes = plt.subplots()
        if has_bar:
            figure.colorbar(axes.imshow(np.eye(2)), ax=axes, fraction=0.05)
        else:
            draw_heat_map(axes, ["a" * 40], ["x"], [[1.0]])
        fit_figure(figure)
        figure.canvas.draw()
        assert figure.get_tightbbox().x0 >= 0
        plt.close(figure)
