"""The errors of a model's loss and gradient under many policies, a line each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from simfloat.attribution.policy_comparison import PolicyComparison
from simfloat.plots.curves import make_logarithmic, plain_label
from simfloat.plots.figure import SMALL, label_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GRADIENT, LOSS = "#0072b2", "#d55e00"


def draw_comparison(axes: Axes, comparison: PolicyComparison, *, title: str = "") -> None:
    """Draw the relative errors that `simfloat.compare` found, the least error of the gradient above.

    Errors of gradients are filled dots, those of losses hollow diamonds, on a logarithmic axis; an error of zero is at
    its left edge, and one that is not finite an arrow at its right. Policies that were refused are left out. About 0.2
    inches of height are needed for a policy; `fit_figure` makes room for long names.

    Raises ValueError for what is no comparison, and for one without errors.
    """
    if not isinstance(comparison, PolicyComparison):
        raise ValueError(f"draw_comparison takes what simfloat.compare gives, got a {type(comparison).__name__}.")
    rows = sorted((row for row in comparison.rows if not row.refused), key=lambda row: row.gradient_error)
    errors = [error for row in rows for error in (row.loss_error, row.gradient_error) if 0 < error < math.inf]
    if not errors:
        raise ValueError("No policy has an error that is finite and not zero: there is nothing to draw.")
    least, greatest = min(errors) / 4, max(errors) * 4
    kinds = (("gradient", GRADIENT, "o", "gradient_error", GRADIENT), ("loss", LOSS, "D", "loss_error", "none"))
    for name, color, marker, field, face in kinds:
        for place, row in enumerate(rows):
            error = getattr(row, field)
            axes.plot(
                min(max(error, least), greatest), -place, marker=marker if error < math.inf else ">", color=color,
                markerfacecolor=face, markersize=4.5, linestyle="none", label=name if place == 0 else None,
                clip_on=False, zorder=3,
            )  # fmt: skip
    axes.set(xlim=(least, greatest), ylim=(0.6 - len(rows), 0.6))
    axes.set_yticks([-place for place in range(len(rows))], [plain_label(row.policy) for row in rows])
    make_logarithmic(axes, "x")
    label_axes(
        axes, xlabel=f"error relative to {plain_label(comparison.reference)}", ylabel="", title=plain_label(title)
    )
    axes.legend(fontsize=SMALL, frameon=False, loc="upper right")
