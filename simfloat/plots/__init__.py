"""Draw results with matplotlib, one or two columns of a paper wide, readable in grey and by colour-blind readers."""

from simfloat.plots.curves import Curve, draw_curves, draw_loss_scale, draw_points, moving_mean
from simfloat.plots.errors import (
    deterministic_bound,
    draw_attribution,
    draw_bound,
    draw_comparison,
    draw_errors,
    probabilistic_bound,
)
from simfloat.plots.figure import COLUMN_WIDTH, FULL_WIDTH, SMALL, add_legend, fit_figure, new_figure, save_figure
from simfloat.plots.formats import draw_exponents, draw_number_line, exponents
from simfloat.plots.heat_map import (
    draw_diagnosis,
    draw_events,
    draw_heat_map,
    draw_lost_updates,
    lost_updates,
    unchanged_share,
)
from simfloat.plots.trade_offs import Point, draw_front, draw_trade_off, front

__all__ = [
    "COLUMN_WIDTH",
    "FULL_WIDTH",
    "SMALL",
    "Curve",
    "Point",
    "add_legend",
    "deterministic_bound",
    "draw_attribution",
    "draw_bound",
    "draw_comparison",
    "draw_curves",
    "draw_diagnosis",
    "draw_errors",
    "draw_events",
    "draw_exponents",
    "draw_front",
    "draw_heat_map",
    "draw_loss_scale",
    "draw_lost_updates",
    "draw_number_line",
    "draw_points",
    "draw_trade_off",
    "exponents",
    "fit_figure",
    "front",
    "lost_updates",
    "moving_mean",
    "new_figure",
    "probabilistic_bound",
    "save_figure",
    "unchanged_share",
]
