"""Figures of a paper's width, drawn without a display and written as PNG, PDF or SVG.

Labels beside points are placed where they overlap least.
"""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.common import check_parent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation
    from matplotlib.transforms import Bbox


#: Text in points at the printed size; figures are as wide as they are printed.
SMALL, NORMAL = 7, 8

#: Two columns of a paper, in inches, and one.
FULL_WIDTH, COLUMN_WIDTH = 7.0, 3.3

#: What stays free at the edges of a figure, in inches.
MARGIN = 0.04

#: Larger numbers have no place on an axis: its margins and ticks would be beyond float64.
LARGEST = 1e200

#: Kinds of files that figures are written to, and what is left out of them: when they were made.
METADATA: dict[str, dict[str, None]] = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}


def new_figure(rows: int, columns: int, width: float, height: float, legend: float = 0.0) -> tuple[Figure, Any]:
    """A figure of width x height inches with a grid of axes; `legend` inches stay free at the bottom.

    Raises ImportError naming the extra if matplotlib is not installed, and ValueError for a size that is not positive.
    """
    require_matplotlib()
    if not (0 < width < np.inf and 0 < height < np.inf):
        raise ValueError(f"A figure is so many inches wide and high, both positive; got {width!r} and {height!r}.")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns)
    # Margins in inches: matplotlib's own search for them takes as long as all the drawing.
    figure.subplots_adjust(
        left=0.6 / width, right=1 - 0.08 / width, bottom=(0.4 + legend) / height, top=1 - 0.22 / height,
        wspace=0.32, hspace=0.2,
    )  # fmt: skip
    return figure, axes


def add_legend(figure: Figure, axes: Any, columns: int, caption: str = "", height: float = 0.0) -> None:
    """The legend of one of the axes for the whole figure, `height` inches above the lower edge, and a caption below."""
    handles, labels = axes.get_legend_handles_labels()
    inches = figure.get_size_inches()[1]
    figure.legend(
        handles, labels, loc="lower center", bbox_to_anchor=(0.5, height / inches), ncols=columns, frameon=False,
        fontsize=NORMAL, handlelength=3,
    )  # fmt: skip
    figure.text(0.5, 0.06 / inches, caption, ha="center", va="bottom", fontsize=SMALL)


def fit_figure(figure: Figure) -> None:
    """Move the margins so that names, titles and colour bars at the sides stay within the figure."""
    for _ in range(2):  # axes that shrink give names more room
        with boxes_for_glyphs():
            box, (width, height), now = figure.get_tightbbox(), figure.get_size_inches(), figure.subplotpars
        figure.subplots_adjust(
            left=now.left + max(0, MARGIN - box.x0) / width, right=now.right - max(0, box.x1 - width + MARGIN) / width,
            bottom=now.bottom + max(0, MARGIN - box.y0) / height,
            top=now.top - max(0, box.y1 - height + MARGIN) / height,
        )  # fmt: skip


def label_axes(axes: Axes, *, xlabel: str, ylabel: str, title: str) -> None:
    """Labels and ticks in the sizes above, and no more ink than they need."""
    axes.set_title(title, fontsize=NORMAL, pad=4)
    axes.set_xlabel(xlabel, fontsize=NORMAL, labelpad=2)
    axes.set_ylabel(ylabel, fontsize=NORMAL, labelpad=2)
    axes.tick_params(which="both", labelsize=SMALL, width=0.6, pad=2)
    axes.grid(alpha=0.25, linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["bottom", "left"]].set_linewidth(0.6)


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write the figure as its suffix says: .png, or as vectors .pdf, with TrueType fonts as publishers ask, or .svg.

    Equal figures give equal bytes. Characters that the font lacks are drawn as boxes.

    Raises ValueError for another suffix, and OSError where the file cannot be written.
    """
    from matplotlib import rc_context

    file = Path(path)
    if file.suffix not in METADATA:
        raise ValueError(f"Figures are written as {', '.join(METADATA)}; got {file.name!r}.")
    check_parent(file)
    with boxes_for_glyphs(), rc_context({"pdf.fonttype": 42, "svg.hashsalt": "simfloat"}):
        figure.savefig(file, format=file.suffix[1:], dpi=250, metadata=METADATA[file.suffix])


def check_drawable(label: str, *numbers: ArrayLike) -> None:
    """Raise ValueError for a finite number that is too large for an axis."""
    for each in numbers:
        values = np.abs(np.asarray(each, np.float64))
        if (np.isfinite(values) & (values > LARGEST)).any():
            raise ValueError(
                f"An axis has numbers up to {LARGEST:g}; {label!r} has larger ones: draw their logarithms, or NaN in "
                "their place, which leaves a gap."
            )


@contextmanager
def boxes_for_glyphs() -> Iterator[None]:
    """A block in which characters that the font lacks are drawn as boxes, without a message for each."""
    log = logging.getLogger("matplotlib.mathtext")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            yield
    finally:
        log.setLevel(level)


def require_matplotlib() -> None:
    """ImportError that names the extra, if matplotlib is missing."""
    try:
        importlib.import_module("matplotlib")
    except ImportError:
        raise ImportError("Figures are drawn by matplotlib: pip install 'simfloat[plots]'.") from None


#: Points of distance between a name and its point; a line joins those that are farther apart than the first.
DISTANCES = (5, 13, 22)

#: Where a name may stand, across and up: of places that cover as little, the first is taken.
PLACES = [
    (distance, direction)
    for distance in DISTANCES
    for direction in [(1, 0), (-1, 0), (0, 1), (0, -1), *product((1, -1), (1, -1))]
]

#: How a name is aligned that stands on this side of its point.
HORIZONTAL, VERTICAL = {1: "left", 0: "center", -1: "right"}, {1: "bottom", 0: "center", -1: "top"}

#: From a point to its name.
LINE = {"arrowstyle": "-", "linewidth": 0.5, "color": "#777777", "shrinkA": 0, "shrinkB": 3}

#: The ends of a line, level or upright, that labels are to leave free.
Line = tuple[tuple[float, float], tuple[float, float]]

#: What stands outside of the axes counts as so many times as much as what covers something.
OUTSIDE = 10


@boxes_for_glyphs()
def draw_labels(axes: Axes, x: NDArray, y: NDArray, labels: Sequence[str], lines: Sequence[Line] = ()) -> None:
    """Write each label beside its point, where it covers least of the points, of lines and of other labels.

    Limits of the axes stay where they are from here on.
    """
    from matplotlib.transforms import Bbox

    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
    inside, reach = axes.get_window_extent(), 0.6 * DISTANCES[0] * axes.figure.dpi / 72
    points = [*zip(x, y, strict=True)]
    boxes = [Bbox([place - reach, place + reach]) for place in axes.transData.transform(points)]
    for ends in lines:
        low, high = np.sort(axes.transData.transform(ends), axis=0)
        boxes.append(Bbox([low - 0.4 * reach, high + 0.4 * reach]))
    # Long names have fewest places.
    for point, label in sorted(zip(points, labels, strict=True), key=lambda pair: -len(pair[1])):
        text = _write(axes, label, point)
        covered = []
        for number in range(len(PLACES)):
            box = _place_text(text, number)
            outside = box.width * box.height - _common_area(box, inside)
            covered.append((OUTSIDE * outside + sum(_common_area(box, other) for other in boxes), number))
        best = min(covered)[1]
        boxes.append(_place_text(text, best))
        if PLACES[best][0] > DISTANCES[0]:
            text.remove()
            _place_text(_write(axes, label, point, arrowprops=LINE), best)


def _write(axes: Axes, label: str, point: tuple[float, float], **options: Any) -> Annotation:
    return axes.annotate(
        label, point, (0, 0), textcoords="offset points", fontsize=SMALL, annotation_clip=False, **options
    )


def _place_text(text: Annotation, number: int) -> Bbox:
    """Move a text to one of the places; what it covers there."""
    distance, (across, up) = PLACES[number]
    reach = distance * (0.6 if across and up else 1.0)
    text.set(position=(across * reach, up * reach), ha=HORIZONTAL[across], va=VERTICAL[up])
    return text.get_window_extent()


def _common_area(first: Bbox, second: Bbox) -> float:
    """The area that both cover."""
    width = min(first.x1, second.x1) - max(first.x0, second.x0)
    height = min(first.y1, second.y1) - max(first.y0, second.y0)
    return float(max(width, 0) * max(height, 0))
