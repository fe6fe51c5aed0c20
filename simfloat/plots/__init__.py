"""Arrays in, matplotlib figures out."""

from simfloat.plots.curves import Curve, draw_curves, moving_mean
from simfloat.plots.exponents import draw_exponents, exponents
from simfloat.plots.figure import COLUMN_WIDTH, FULL_WIDTH, SMALL, add_legend, new_figure, save_figure
from simfloat.plots.heat_map import draw_heat_map
from simfloat.plots.loss_scale import draw_loss_scale

__all__ = [
    "COLUMN_WIDTH",
    "FULL_WIDTH",
    "SMALL",
    "Curve",
    "add_legend",
    "draw_curves",
    "draw_exponents",
    "draw_heat_map",
    "draw_loss_scale",
    "exponents",
    "moving_mean",
    "new_figure",
    "save_figure",
]
