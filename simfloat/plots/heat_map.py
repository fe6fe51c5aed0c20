"""Heat maps, one colour a cell over powers of ten; lost updates; and the figure of a diagnosis.

A heat map may show the counts of a recorder by layer and phase. Updates that leave a weight as it was are lost under
nearest rounding, and deferred under Kahan and stochastic updates. The figure of a diagnosis has its losses and the step
at which each fault began.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.analysis.diagnosis.mending import Diagnosis
from simfloat.common import as_rectangular_array
from simfloat.environment import in_usual_environment
from simfloat.plots.curves import (
    Curve,
    add_curve_legend,
    assign_styles,
    check_curves,
    draw_band,
    draw_curves,
    plain_label,
    power_text,
    smooth_values,
)
from simfloat.plots.figure import COLUMN_WIDTH, LARGEST, NORMAL, SMALL, check_drawable, label_axes, new_figure
from simfloat.telemetry import Recorder
from simfloat.telemetry.entries import COUNT_NAMES, PHASES, counts_by_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: From light to dark; readable in grey and by colour-blind readers.
COLORS = "YlGnBu"

#: Cells that are smaller than the largest by so much look alike.
DECADES = 6

#: So do all below this.
LEAST = 1e-250

#: A line of small text, in inches.
LINE = 1.2 * SMALL / 72


def draw_heat_map(
    axes: Axes,
    rows: Sequence[str],
    columns: Sequence[str],
    values: ArrayLike,
    *,
    title: str = "",
    label: str = "",
    most: float | None = None,
) -> None:
    """Draw values (rows, columns), none of them negative, in logarithmic colours, with a bar that tells them.

    Zeros and what is not finite are left blank; what lies more than six powers of ten below the largest has one colour.
    Where rows are lower than their names, only every second, third ... of them is named.
    As for an attribution: ``draw_heat_map(axes, *sf.attribute(...).grid())``. Maps that are to be compared are given
    one value, `most`: the colours of all of them reach from there six powers of ten down.

    Raises ValueError if the names do not fit the values, without any, and for a `most` that is not positive.
    """
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    numbers = as_rectangular_array(values, "values", np.float64)
    if numbers.shape != (len(rows), len(columns)):
        raise ValueError(
            f"{len(rows)} rows and {len(columns)} columns are named; the values have shape {numbers.shape}."
        )
    if not numbers.size:
        raise ValueError(f"A heat map has one row and one column at least, got values of shape {numbers.shape}.")
    check_drawable("values", numbers)
    if most is not None and not LEAST <= most <= LARGEST:
        raise ValueError(f"most must be a positive number, the largest value of all maps, got {most!r}.")
    shown = np.where(np.isfinite(numbers) & (numbers > 0), numbers, np.nan)
    if most is not None:
        least = most * 10.0**-DECADES
    elif np.isfinite(shown).any():
        most = max(np.nanmax(shown), LEAST)
        least = max(np.nanmin(shown), most * 10.0**-DECADES)
    else:
        least, most = 0.1, 1.0
    norm = LogNorm(min(least, most / 10), most, clip=True)
    image = axes.imshow(shown, norm=norm, cmap=COLORS, aspect="auto", interpolation="nearest")
    axes.set_xticks(range(len(columns)), map(plain_label, columns), rotation=45, ha="right", rotation_mode="anchor")
    named = range(0, len(rows), math.ceil(len(rows) * LINE * axes.figure.dpi / axes.get_window_extent().height))
    axes.set_yticks(named, [plain_label(rows[row]) for row in named])
    axes.tick_params(labelsize=SMALL, length=0, pad=2)
    axes.set_title(title, fontsize=NORMAL, pad=4)
    axes.spines[:].set_visible(False)
    bar = axes.figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02)
    bar.set_label(label, fontsize=SMALL)
    bar.ax.tick_params(which="both", labelsize=SMALL, width=0.6)
    # Over few powers of ten those alone are too few.
    bar.ax.yaxis.set_major_locator(LogLocator(subs=(1.0,) if most / least > 1e3 else (1.0, 2.0, 5.0)))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: power_text(value)))
    bar.ax.yaxis.set_minor_formatter(NullFormatter())
    bar.outline.set_visible(False)


KINDS = tuple(kind for kind in COUNT_NAMES if kind != "total")


def draw_events(
    axes: Axes, recorder: Recorder, kind: str = "underflow", path: str | None = None, *, title: str = ""
) -> None:
    """Draw which share of its results has such events at each path (rows) in each phase (columns) that was seen.

    kind is one of the counts of `Recorder.counts`; path, a shell pattern, selects paths. Where nothing was counted, or
    no such event, a cell is blank. `fit_figure` makes room for the names.

    Raises ValueError for what is no recorder, an unknown kind, a recorder that counted nothing, and a path that matches
    nothing.
    """
    if not isinstance(recorder, Recorder):
        raise ValueError(f"recorder must be a simfloat.Recorder, got a {type(recorder).__name__}.")
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}.")
    recorder.counts(path)  # refuses a path that matches nothing
    entries = [(key, events) for key, events in recorder.entries() if fnmatchcase(key.path, path or "*")]
    if not entries:
        raise ValueError("The recorder counted nothing.")
    paths = list(dict.fromkeys(key.path for key, _ in entries))
    phases = [phase for phase in PHASES if any(key.phase == phase for key, _ in entries)]
    events, total = np.zeros((2, len(paths), len(phases)))
    for key, vector in entries:
        cell, counts = (paths.index(key.path), phases.index(key.phase)), counts_by_name(vector)
        events[cell] += counts[kind]
        total[cell] += counts["total"]
    share = np.divide(events, total, out=np.zeros_like(events), where=total > 0)
    draw_heat_map(
        axes,
        [path or "-" for path in paths],
        phases,
        share,
        title=plain_label(title),
        label=f"{kind}, share of results",
    )


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


#: A style for each training: the reference lies below, in black.
STYLES = {"reference": 0, "policy": 2, "mended": 6}

#: How far the names of faults stand apart, one below the other, in shares of the axes' height.
LINE_HEIGHT = 0.09


def draw_diagnosis(axes: Axes, diagnosis: Diagnosis, *, most: int = 3, title: str = "") -> None:
    """Draw the loss of every step under the policy, with its verified remedies, and under the reference.

    Dashed lines stand where the first faults were met, with their names, at most so many. A loss that is not finite
    leaves a gap; the axis is logarithmic where all losses are positive.

    Raises ValueError for what is no diagnosis, for one without a loss, and for a `most` that is below 0.
    """
    from matplotlib.ticker import MaxNLocator

    if not isinstance(diagnosis, Diagnosis):
        raise ValueError(f"draw_diagnosis takes what simfloat.diagnose gives, got a {type(diagnosis).__name__}.")
    if isinstance(most, bool) or not isinstance(most, int) or most < 0:
        raise ValueError(f"most is how many faults are named, 0 or more, got {most!r}.")
    losses = {name: np.array(diagnosis.losses[name], np.float64) for name in STYLES}
    finite = np.concatenate([each[np.isfinite(each)] for each in losses.values()])
    if not finite.size:
        raise ValueError("No training of this diagnosis has a finite loss: there is nothing to draw.")
    curves = [Curve(name, np.arange(each.size), each, STYLES[name]) for name, each in losses.items() if each.size]
    draw_curves(axes, curves, xlabel="step", ylabel="loss", title=plain_label(title), log=bool((finite > 0).all()))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlim(-0.5, max(each.size for each in losses.values()) - 0.5)
    axes.legend(fontsize=SMALL, frameon=False, loc="upper right")
    for number, fault in enumerate(diagnosis.faults[:most]):
        axes.axvline(fault.step, color="black", linestyle="--", linewidth=0.8, zorder=1)
        where = f" ({fault.path})" if fault.path else ""
        place = fault.step, 0.04 + LINE_HEIGHT * number
        axes.annotate(
            plain_label(f"{fault.kind}{where}"), place, (3, 0), xycoords=("data", "axes fraction"),
            textcoords="offset points", fontsize=SMALL, va="bottom",
        )  # fmt: skip
