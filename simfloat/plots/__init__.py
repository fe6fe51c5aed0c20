"""Arrays or a recorder in, matplotlib figures out: a column wide, readable in grey and by colour-blind readers."""

from simfloat.plots.costs import draw_attribution
from simfloat.plots.curves import Curve, draw_curves, draw_loss_scale, moving_mean
from simfloat.plots.diagnosed import draw_diagnosis
from simfloat.plots.errors import deterministic_bound, draw_errors, probabilistic_bound
from simfloat.plots.exponents import draw_exponents, exponents
from simfloat.plots.figure import COLUMN_WIDTH, FULL_WIDTH, SMALL, add_legend, fit_figure, new_figure, save_figure
from simfloat.plots.front import draw_front, front
from simfloat.plots.heat_map import draw_events, draw_heat_map
from simfloat.plots.lost_updates import draw_lost_updates, lost_updates, unchanged_share
from simfloat.plots.number_line import draw_number_line
from simfloat.plots.points import draw_points
from simfloat.plots.policy_errors import draw_comparison
from simfloat.plots.trade_off import Point, draw_trade_off

__all__ = [
    "COLUMN_WIDTH",
    "FULL_WIDTH",
    "SMALL",
    "Curve",
    "Point",
    "add_legend",
    "deterministic_bound",
    "draw_attribution",
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
