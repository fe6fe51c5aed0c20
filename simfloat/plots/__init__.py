"""Arrays in, matplotlib figures out."""

from simfloat.plots.curves import Curve, draw_curves, moving_mean, new_figure, save_figure

__all__ = ["Curve", "draw_curves", "moving_mean", "new_figure", "save_figure"]
