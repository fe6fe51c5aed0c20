"""Draw heat maps, the events of a recorder, lost updates, and a diagnosis.

Colours of a heat map are logarithmic. The events of a recorder are drawn by path and phase. An update that leaves its
weight unchanged is lost under nearest rounding, and deferred under Kahan and stochastic updates. A diagnosis has the
losses of every step, with a mark at the step of each fault.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

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
    title_or,
)
from simfloat.plots.figure import (
    COLUMN_WIDTH,
    LARGEST,
    SMALL,
    check_drawable,
    constrain,
    foreground,
    is_dark,
    label_axes,
    lay_out,
    new_figure,
    project_style,
    set_title,
    style_ticks,
)
from simfloat.telemetry import Recorder
from simfloat.telemetry.entries import COUNT_NAMES, PHASES, counts_by_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: Colours from light to dark, readable in grey and by colour-blind readers. Dark styles have them the other way round.
COLORS = "YlGnBu"

#: Colours cover this many powers of ten below the largest value.
DECADES = 6

#: All smaller values have the same colour.
LEAST = 1e-250

#: The height of a line of small text in inches.
LINE = 1.2 * SMALL / 72


@project_style()
def draw_heat_map(
    axes: Axes,
    rows: Sequence[str],
    columns: Sequence[str],
    values: ArrayLike,
    *,
    title: str | None = None,
    label: str = "",
    most: float | None = None,
) -> None:
    """Draw a matrix of values in logarithmic colours, with a colour bar.

    For an attribution: ``draw_heat_map(axes, *sf.attribute(...).grid())``. Cells with zero or a value that is not
    finite are blank. Colours cover six powers of ten below the largest value; all smaller values have the last colour.
    If the names of rows do not all fit, only every second, third ... is written.

    Parameters:
        axes: matplotlib's axes.
        rows, columns: names of the rows and of the columns.
        values: array (rows, columns) of values that are not negative.
        title: the title; by default the place of the largest value.
        label: label of the colour bar.
        most: the value of the darkest colour; give the same one to all maps that are compared. By default, the largest
            value.

    Raises:
        ValueError: if the number of names does not fit the shape of the values; if there are no values; if `most` is
            not positive.
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
    colors = f"{COLORS}_r" if is_dark(axes) else COLORS
    image = axes.imshow(shown, norm=norm, cmap=colors, aspect="auto", interpolation="nearest")
    axes.set_xticks(range(len(columns)), map(plain_label, columns), rotation=45, ha="right", rotation_mode="anchor")
    style_ticks(axes)
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    constrain(axes.figure)
    bar = axes.figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02)
    bar.set_label(label, fontsize="small")
    style_ticks(bar.ax)
    set_title(axes, title_or(title, lambda: _largest_cell(rows, columns, shown)))
    lay_out(axes.figure)
    named = range(0, len(rows), math.ceil(len(rows) * LINE * axes.figure.dpi / axes.get_window_extent().height))
    axes.set_yticks(named, [plain_label(rows[row]) for row in named])
    # A bar of few powers of ten needs more ticks than these.
    bar.ax.yaxis.set_major_locator(LogLocator(subs=(1.0,) if most / least > 1e3 else (1.0, 2.0, 5.0)))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: power_text(value)))
    bar.ax.yaxis.set_minor_formatter(NullFormatter())
    bar.outline.set_visible(False)


def _largest_cell(rows: Sequence[str], columns: Sequence[str], values: NDArray) -> str:
    """Return the row and column of the largest value, and the value."""
    if not np.isfinite(values).any():
        return ""
    row, column = np.unravel_index(np.nanargmax(values), values.shape)
    names = [plain_label(name).strip() for name in (rows[int(row)], columns[int(column)])]
    return f"Largest: {', '.join(name for name in names if name)} ({values[row, column]:.2g})"


KINDS = tuple(kind for kind in COUNT_NAMES if kind != "total")


@project_style()
def draw_events(
    axes: Axes, recorder: Recorder, kind: str = "underflow", path: str | None = None, *, title: str | None = None
) -> None:
    """Draw the share of results with a rounding event, for each path (rows) and phase (columns) of a recorder.

    A cell is blank if nothing was counted there, or no such event.

    Parameters:
        axes: matplotlib's axes.
        recorder: the `Recorder`.
        kind: the kind of event, one of the names in `Recorder.counts` except "total".
        path: a shell pattern that selects paths; by default all.
        title: the title; by default the path and phase with the largest share.

    Raises:
        ValueError: if `recorder` is not a recorder, or has counted nothing; if `kind` is unknown; if no path matches.
    """
    if not isinstance(recorder, Recorder):
        raise ValueError(f"recorder must be a simfloat.Recorder, got a {type(recorder).__name__}.")
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}.")
    recorder.counts(path)  # raises ValueError if no path matches
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
        title=title_or(title, lambda: _most_events(kind, paths, phases, share)),
        label=f"{kind}, share of results",
    )


def _most_events(kind: str, paths: Sequence[str], phases: Sequence[str], share: NDArray) -> str:
    """Return the path and phase with the largest share of events."""
    if not (share > 0).any():
        return f"{kind}: none"
    row, column = np.unravel_index(np.argmax(share), share.shape)
    return f"Most {kind}: {100 * share[row, column]:.3g} % of {paths[int(row)] or '-'}, {phases[int(column)]}"


#: The height of a figure in inches.
HEIGHT = 2.4


@in_usual_environment
def lost_updates(
    recorders: Mapping[str, Recorder],
    path: str | None = None,
    *,
    deferred: Sequence[str] = (),
    smooth: int = 1,
    title: str | None = None,
) -> Figure:
    """Return a figure of the share of updates that leave their weight unchanged, over steps, one column wide::

        sf.plots.lost_updates({"nearest": first, "Kahan": second}, "*.weight", deferred=["Kahan"])

    Parameters:
        recorders: for each label a `Recorder` that has counted steps (`Recorder.step`).
        path: a shell pattern of parameters, as in `Recorder.series`; by default all.
        deferred: the labels of runs with ``update="kahan"`` or ``"stochastic"``, which do not lose such updates.
        smooth: number of steps in a moving mean, 1 or more.
        title: the title; by default the share of updates that is lost.

    Returns:
        A matplotlib figure.

    Raises:
        ValueError: if `recorders` is not a dictionary of recorders; if one has counted no step or no update; if
            `deferred` has an unknown label; if no path matches.
    """
    if not isinstance(recorders, Mapping) or not recorders:
        got = "none" if isinstance(recorders, Mapping) else f"a {type(recorders).__name__}"
        raise ValueError(f"lost_updates takes recorders by their labels, got {got}: write {{'bf16': recorder}}.")
    unknown = [label for label in deferred if label not in recorders]
    if unknown:
        raise ValueError(f"deferred names {unknown[0]!r}, but the recorders are {', '.join(recorders)}.")
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
    with project_style():
        axes.legend(framealpha=0.8)
    return figure


@project_style()
def draw_lost_updates(
    axes: Axes,
    lost: Sequence[Curve],
    deferred: Sequence[Curve] = (),
    *,
    xlabel: str = "step",
    title: str | None = None,
) -> None:
    """Draw the share of updates that leave their weight unchanged, in percent over steps.

    Under rounding to nearest such an update is lost. These curves are thick lines above a shaded area. Kahan summation
    adds the update later, and stochastic rounding compensates for it by larger changes of other weights. These curves
    are thin lines, with the range over seeds. The axes have a legend under the same conditions as in `draw_curves`.

    Parameters:
        axes: matplotlib's axes.
        lost: curves of runs that lose these updates. Values are shares (seeds, steps) from 0 to 1, of which the mean
            is drawn; NaN, for a skipped step, leaves a gap.
        deferred: curves of runs with Kahan or stochastic updates.
        xlabel: label of the x axis.
        title: the title; by default the mean share that is lost.

    Raises:
        ValueError: if there are no curves; if a value is not between 0 and 1; as in `draw_curves`.
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
    label_axes(
        axes,
        xlabel=xlabel,
        ylabel="weights left unchanged (%)",
        title=title_or(title, lambda: _lost_share(lost, deferred)),
    )
    add_curve_legend(axes, [*lost, *deferred])


def _lost_share(lost: Sequence[Curve], deferred: Sequence[Curve]) -> str:
    """Return the largest mean share of lost updates, or of deferred ones if none are lost."""
    curves, verb = (lost, "loses") if lost else (deferred, "defers")
    shares = [(np.asarray(curve.values, np.float64), curve.label) for curve in curves]
    means = [(float(np.nanmean(values)), label) for values, label in shares if np.isfinite(values).any()]
    if not means:
        return ""
    share, label = max(means, key=lambda each: each[0])
    return f"{plain_label(label).strip()} {verb} {100 * share:.0f} % of the updates"


@in_usual_environment
def unchanged_share(unchanged: ArrayLike, total: ArrayLike) -> NDArray[np.float64]:
    """Return the share of updates that left their weight unchanged.

    Parameters:
        unchanged: counts of updates that left their weight unchanged, such as ``recorder.series(...)["unchanged"]``.
        total: counts of all updates, an array of the same shape.

    Returns:
        A float64 array of that shape, from 0 to 1; NaN if there was no update.

    Raises:
        ValueError: if the shapes differ; if a count is negative, or larger than that of all updates.
    """
    lost, counts = (
        as_rectangular_array(unchanged, "unchanged", np.float64),
        as_rectangular_array(total, "total", np.float64),
    )
    if lost.shape != counts.shape:
        raise ValueError(f"unchanged and total must have the same shape, got {lost.shape} and {counts.shape}.")
    if not ((lost >= 0) & (lost <= counts) & np.isfinite(counts)).all():
        raise ValueError("Every count in unchanged must be from 0 to the count in total.")
    return np.divide(lost, counts, out=np.full(counts.shape, np.nan), where=counts > 0)


#: The style of each training; the reference is drawn first, below the others.
STYLES = {"reference": 0, "policy": 2, "mended": 6}

#: The distance of two names of faults, as a share of the height of the axes.
LINE_HEIGHT = 0.09


@project_style()
def draw_diagnosis(axes: Axes, diagnosis: Diagnosis, *, most: int = 3, title: str | None = None) -> None:
    """Draw the losses of a diagnosis: under the policy, with its verified remedies, and under the reference.

    A dashed line marks the step of each of the first faults, with its name. A loss that is not finite leaves a gap.
    The axis of losses is logarithmic if all losses are positive.

    Parameters:
        axes: matplotlib's axes.
        diagnosis: the result of `simfloat.diagnose`.
        most: the largest number of faults that are marked, 0 or more.
        title: the title; by default the first fault.

    Raises:
        ValueError: if `diagnosis` is not such a result, or has no finite loss; if `most` is below 0.
    """
    from matplotlib.ticker import MaxNLocator

    if not isinstance(diagnosis, Diagnosis):
        raise ValueError(f"draw_diagnosis takes a result of simfloat.diagnose, got a {type(diagnosis).__name__}.")
    if isinstance(most, bool) or not isinstance(most, int) or most < 0:
        raise ValueError(f"most, the number of faults to name, must be at least 0, got {most!r}.")
    losses = {name: np.array(diagnosis.losses[name], np.float64) for name in STYLES}
    finite = np.concatenate([each[np.isfinite(each)] for each in losses.values()])
    if not finite.size:
        raise ValueError("No training of this diagnosis has a finite loss: there is nothing to draw.")
    curves = [Curve(name, np.arange(each.size), each, STYLES[name]) for name, each in losses.items() if each.size]
    shown = title_or(title, lambda: _first_fault(diagnosis))
    draw_curves(axes, curves, xlabel="step", ylabel="loss", title=shown, log=bool((finite > 0).all()))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlim(-0.5, max(each.size for each in losses.values()) - 0.5)
    axes.legend(frameon=False, loc="upper right")
    for number, fault in enumerate(diagnosis.faults[:most]):
        axes.axvline(fault.step, color=foreground(), linestyle="--", linewidth=0.8, zorder=1)
        place = fault.step, 0.04 + LINE_HEIGHT * number
        axes.annotate(
            _fault_name(fault), place, (3, 0), xycoords=("data", "axes fraction"), textcoords="offset points",
            fontsize="small", va="bottom",
        )  # fmt: skip


def _fault_name(fault: Any) -> str:
    """Return the kind and the path of a fault."""
    return plain_label(f"{fault.kind} ({fault.path})" if fault.path else fault.kind)


def _first_fault(diagnosis: Diagnosis) -> str:
    """Return the first fault and its step."""
    if not diagnosis.faults:
        return "No fault found"
    return f"First fault: {_fault_name(diagnosis.faults[0])} in step {diagnosis.faults[0].step}"
