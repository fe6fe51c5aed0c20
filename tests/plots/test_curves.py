"""Curves: the moving mean, and that something is drawn."""

import numpy as np

from simfloat.plots import Curve, draw_curves, moving_mean, new_figure, save_figure


def test_the_moving_mean_is_centred_and_shrinks_at_the_ends():
    values = np.array([1.0, 5.0, 3.0, 9.0, 2.0])
    assert moving_mean(values, 1).tolist() == values.tolist()
    assert moving_mean(values, 3).tolist() == [1.0, 3.0, 17 / 3, 14 / 3, 2.0]
    assert moving_mean(np.arange(9.0), 5).tolist() == list(range(9)), "a straight line stays where it is"


def test_curves_have_a_line_and_a_band_each(tmp_path):
    figure, axes = new_figure(rows=1, columns=1, width=4, height=3)
    curves = [Curve(str(i), np.arange(5), np.random.default_rng(i).uniform(1, 2, (3, 5)), i) for i in range(9)]
    draw_curves(axes, curves, ylabel="loss", title="title", log=True)
    assert len(axes.lines) == len(axes.collections) == 9
    assert axes.get_yscale() == "log" and axes.get_ylabel() == "loss"
    save_figure(figure, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000
