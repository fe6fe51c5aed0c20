"""The costs that an attribution found, as horizontal bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simfloat.attribution.result import Attribution
from simfloat.plots.curves import make_logarithmic, plain_label
from simfloat.plots.figure import SMALL, label_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COST_COLOR = "#0072b2"

#: A bar's height, and how far above its middle its name begins; bars are 1 apart.
THICKNESS, ABOVE = 0.3, 0.2

#: Bars begin so much below the smallest of them.
BELOW = 4


def draw_attribution(axes: Axes, attribution: Attribution, *, most: int = 10, title: str = "") -> None:
    """Draw the largest costs that `simfloat.attribute` found as bars on a logarithmic axis, each below its name.

    A dashed line stands at the error under the whole policy. An infinite cost reaches over all others and says so;
    costs of zero are left out. About 0.22 inches of height are needed for a bar.

    Raises ValueError for what is no attribution, one without costs, and a `most` that is below 1.
    """
    if not isinstance(attribution, Attribution):
        raise ValueError(f"draw_attribution takes what simfloat.attribute gives, got a {type(attribution).__name__}.")
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise ValueError(f"most is how many costs are drawn, 1 or more, got {most!r}.")
    costs = [cost for cost in attribution.costs if cost.error > 0][:most]
    if not costs:
        raise ValueError("No part of the policy costs the gradient anything: there is nothing to draw.")
    finite = [error for error in (attribution.total, *(cost.error for cost in costs)) if 0 < error < np.inf] or [1.0]
    least, greatest = min(finite) / BELOW, max(finite) * BELOW
    for row, cost in enumerate(costs):
        is_finite = np.isfinite(cost.error)
        width = (cost.error if is_finite else greatest) - least
        axes.barh(
            -row, width, THICKNESS, left=least, color=COST_COLOR, hatch="" if is_finite else "////", edgecolor="white"
        )
        name = " · ".join(getattr(cost, field) or "-" for field in attribution.by)
        text = plain_label(name) + ("" if is_finite else "  (infinite)")
        axes.annotate(
            text, (least, -row + ABOVE), (2, 0), textcoords="offset points", fontsize=SMALL, va="bottom", zorder=4
        )
    if 0 < attribution.total < np.inf:
        axes.axvline(attribution.total, color="black", linestyle="--", linewidth=0.8, zorder=3)
        axes.annotate(
            "whole policy", (attribution.total, 0.6 - len(costs)), (2, 0), textcoords="offset points", rotation=90,
            fontsize=SMALL, va="bottom",
        )  # fmt: skip
    axes.set(xlim=(least, greatest), ylim=(0.5 - len(costs), 0.9), yticks=[])
    make_logarithmic(axes, "x")
    label_axes(axes, xlabel="relative error of the gradient", ylabel="", title=plain_label(title))
    axes.spines["left"].set_visible(False)
