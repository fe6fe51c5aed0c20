"""Updates that leave a weight as it was: lost under nearest rounding, deferred under Kahan and stochastic updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.checks import as_rectangular_array
from simfloat.environment import in_usual_environment
from simfloat.plots.curves import (
    Curve,
    add_curve_legend,
    assign_styles,
    check_curves,
    draw_band,
    plain_label,
    smooth_values,
)
from simfloat.plots.figure import COLUMN_WIDTH, SMALL, label_axes, new_figure
from simfloat.telemetry import Recorder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Of a figure, in inches.
HEIGHT = 2.4


@in_usual_environment
def lost_updates(
    recorders: Mapping[str, Recorder],
    path: str | None = None,
    *,
    deferred: Sequence[str] = (),
    smooth: int = 1,
    title: str = "",
) -> Figure:
    """Draw the share of updates that left their weight as it was, step by step, as one figure of a column's width::

        sf.plots.lost_updates({"nearest": first, "Kahan": second}, "*.weight", deferred=["Kahan"])

    Recorders, by their labels, have counted steps (`Recorder.step`); path selects parameters as in `Recorder.series`.
    Labels in `deferred` are those of runs whose policy has ``update="kahan"`` or ``"stochastic"``.

    Raises ValueError for what is no recorder, one that counted no step or no update, and a label that is none of them.
    """
    if not isinstance(recorders, Mapping) or not recorders:
        got = "none" if isinstance(recorders, Mapping) else f"a {type(recorders).__name__}"
        raise ValueError(f"lost_updates takes recorders by their labels, got {got}: write {{'bf16': recorder}}.")
    unknown = [label for label in deferred if label not in recorders]
    if unknown:
        raise ValueError(f"deferred names {unknown[0]!r}, which is none of {', '.join(recorders)}.")
    curves = {}
    for number, (label, recorder) in enumerate(recorders.items()):
        if not isinstance(recorder, Recorder):
            raise ValueError(f"{label} must be a simfloat.Recorder, got a {type(recorder).__name__}.")
        counts = recorder.series(path, "update", operation="update")
        share = unchanged_share(counts["unchanged"], counts["total"])
        if not np.isfinite(share).any():
            raise ValueError(
                f"{label} counted no update in any step: call Recorder.step at the end of each, as fit does."
            )
        curves[label] = Curve(label, np.arange(len(share)), share[np.newaxis], number, smooth)
    figure, axes = new_figure(1, 1, COLUMN_WIDTH, HEIGHT)
    draw_lost_updates(
        axes,
        [curve for label, curve in curves.items() if label not in deferred],
        [curve for label, curve in curves.items() if label in deferred],
        title=title,
    )
    axes.legend(frameon=False, fontsize=SMALL)
    return figure


def draw_lost_updates(
    axes: Axes, lost: Sequence[Curve], deferred: Sequence[Curve] = (), *, xlabel: str = "step", title: str = ""
) -> None:
    """Draw shares of updates that left their weight as it was, in percent: what is lost apart from what is deferred.

    Under nearest rounding such an update is gone: thick lines above a shade. Kahan summation adds it later, and
    stochastic rounding makes up for it by larger steps of others: thin lines, with their spread. Values of a curve are
    shares (seeds, steps) from 0 to 1, of which the mean is drawn; NaN, as of a step that was skipped, leaves a gap.
    Styles and the legend are those of `draw_curves`.

    Raises ValueError without curves, for values that are no shares, and where `draw_curves` does.
    """
    for curves in (lost, deferred):
        check_curves(curves)
    if not lost and not deferred:
        raise ValueError("draw_lost_updates takes lists of curves, got none.")
    for number, curve in enumerate(assign_styles([*lost, *deferred])):
        is_lost, percent = number < len(lost), 100 * smooth_values(curve, log=False)
        if ((percent < 0) | (percent > 100)).any():
            raise ValueError(f"Shares lie from 0 to 1; those of {curve.label!r} do not.")
        mean, low, high = percent.mean(axis=0), percent.min(axis=0), percent.max(axis=0)
        named = curve._replace(label=f"{curve.label}: {'lost' if is_lost else 'deferred'}")
        place = (number, len(lost) + len(deferred))
        if is_lost:
            draw_band(axes, named, mean, np.zeros_like(mean), mean, place, width=1.8)
        else:
            draw_band(axes, named, mean, low, high, place, width=1.0)
    axes.set_ylim(-2, 102)
    label_axes(axes, xlabel=xlabel, ylabel="weights left as they were (%)", title=plain_label(title))
    add_curve_legend(axes, [*lost, *deferred])


@in_usual_environment
def unchanged_share(unchanged: ArrayLike, total: ArrayLike) -> NDArray[np.float64]:
    """Counts of updates that changed nothing as shares of all; NaN where there was none.

    Raises ValueError if the two differ in shape, and for counts that are negative or more than all.
    """
    lost, counts = (
        as_rectangular_array(unchanged, "unchanged", np.float64),
        as_rectangular_array(total, "total", np.float64),
    )
    if lost.shape != counts.shape:
        raise ValueError(f"unchanged has shape {lost.shape} and total {counts.shape}: a count for each count.")
    if not ((lost >= 0) & (lost <= counts) & np.isfinite(counts)).all():
        raise ValueError("unchanged counts some of the updates in total: from 0 to as many.")
    return np.divide(lost, counts, out=np.full(counts.shape, np.nan), where=counts > 0)
