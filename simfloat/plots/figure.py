"""Create, lay out and save figures of a paper's width in the style of `simfloat.mplstyle`, without a display.

Labels of points are placed where they overlap least.
"""

from __future__ import annotations

import importlib
import logging
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.common import check_parent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation
    from matplotlib.transforms import Bbox


#: The size of small text in points. A figure is printed as wide as it is drawn, so this is also the size on paper.
SMALL = 7

#: The widths of two columns of a paper and of one, in inches.
FULL_WIDTH, COLUMN_WIDTH = 7.0, 3.3

#: The settings of all figures. A user's own settings take precedence.
STYLE_FILE = Path(__file__).with_name("simfloat.mplstyle")

#: A grey that is visible on white and on black.
GREY = "#808080"

#: Larger values cannot be drawn: the margins and ticks of the axis would be beyond the range of float64.
LARGEST = 1e200

#: The kinds of files, each with the metadata that is left out: the date, so that equal figures give equal bytes.
METADATA: dict[str, dict[str, None]] = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}


@contextmanager
def project_style() -> Iterator[None]:
    """Apply the settings of `simfloat.mplstyle` within a block, except for those that the user has changed."""
    require_matplotlib()
    from matplotlib import rc_context, rcParamsDefault

    defaults = cast(Any, rcParamsDefault)
    unchanged: Any = {key: value for key, value in _settings().items() if _setting(key) == defaults[key]}
    with rc_context(unchanged):
        yield


@cache
def _settings() -> dict[str, Any]:
    """Read the style file."""
    from matplotlib import rc_params_from_file

    return dict(cast(Any, rc_params_from_file(STYLE_FILE, use_default_template=False)))


@contextmanager
def boxes_for_glyphs() -> Iterator[None]:
    """Draw characters that the font lacks as boxes within a block, without a warning for each."""
    log = logging.getLogger("matplotlib.mathtext")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            yield
    finally:
        log.setLevel(level)


def foreground() -> str:
    """Return the colour of text: black, or the light colour of a dark style."""
    return _setting("text.color")


def _setting(name: str) -> Any:
    """Return a setting of matplotlib."""
    from matplotlib import rcParams

    return cast(Any, rcParams)[name]


def background(axes: Axes) -> Any:
    """Return the colour behind the data, with which hollow markers are filled."""
    return axes.get_facecolor()


def is_dark(axes: Axes) -> bool:
    """Return True if the colour behind the data is darker than a medium grey."""
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(axes.get_facecolor())
    return bool(0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.5)


@project_style()
def new_figure(rows: int, columns: int, width: float, height: float, legend: float = 0.0) -> tuple[Figure, Any]:
    """Create a figure with a grid of axes, in the style of simfloat and without a display.

    The layout is matplotlib's constrained layout: titles, labels and legends get the space that they need. The
    settings that you have changed, for example by `plt.style.use("dark_background")`, stay in force.

    Parameters:
        rows, columns: the size of the grid of axes.
        width, height: the size of the figure in inches, both positive.
        legend: height of a strip at the bottom that stays empty, in inches.

    Returns:
        The figure and its axes: one `Axes`, or an array of them as `matplotlib.pyplot.subplots` returns it.

    Raises:
        ImportError: if matplotlib is not installed; the message names the extra.
        ValueError: if the width or the height is not positive.
    """
    if not (0 < width < np.inf and 0 < height < np.inf):
        raise ValueError(f"width and height must be positive numbers of inches; got {width!r} and {height!r}.")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    if legend and (engine := figure.get_layout_engine()) is not None:
        engine.set(rect=(0, legend / height, 1, 1 - legend / height))  # type: ignore[call-arg]
    return figure, figure.subplots(rows, columns)


@boxes_for_glyphs()
def _width(artist: Any) -> float:
    """Return the width of a text or a legend in pixels."""
    return artist.get_window_extent(artist.figure.canvas.get_renderer()).width


@project_style()
def add_legend(figure: Figure, axes: Any, columns: int, caption: str = "", height: float = 0.0) -> None:
    """Add one legend for the whole figure, below its axes.

    Parameters:
        figure: the figure.
        axes: the axes whose lines the legend names; all axes of the figure should use the same styles.
        columns: the largest number of columns of the legend; it has fewer if they do not fit into the figure.
        caption: a text above the entries.
        height: distance from the lower edge of the figure in inches; by default the legend has its own margin.
    """
    handles, labels = axes.get_legend_handles_labels()
    constrain(figure)
    place: dict[str, Any] = {"loc": "outside lower center"}
    if height:
        place = {"loc": "lower center", "bbox_to_anchor": (0.5, height / figure.get_size_inches()[1])}
    options: dict[str, Any] = {"frameon": False, "fontsize": "medium", "title": caption or None, **place}
    legend = figure.legend(handles, labels, ncols=columns, **options)
    while columns > 1 and _width(legend) > figure.bbox.width:
        legend.remove()
        columns -= 1
        legend = figure.legend(handles, labels, ncols=columns, **options)


@project_style()
def add_title(figure: Figure, title: str) -> None:
    """Write a title over all axes of a figure, in as many lines as it needs."""
    figure.suptitle(title, wrap=True)


def fit_figure(figure: Figure) -> None:
    """Move the axes so that names, titles and colour bars stay within the figure.

    Figures of `new_figure` do so whenever they are drawn; other figures get matplotlib's constrained layout.

    Parameters:
        figure: any figure.
    """
    constrain(figure)
    lay_out(figure)


def constrain(figure: Any) -> None:
    """Use constrained layout for a figure without a layout engine; with a colour bar, only tight layout is possible."""
    if figure.get_layout_engine() is not None:
        return
    if any(hasattr(axes, "_colorbar") for axes in figure.axes):
        figure.set_layout_engine("tight")
    else:
        figure.set_layout_engine("constrained")


def lay_out(figure: Any) -> None:
    """Move the axes to the places that they will have in the picture, so that lengths can be measured."""
    engine = figure.get_layout_engine()
    if engine is not None:
        with boxes_for_glyphs():
            engine.execute(figure)


def label_axes(axes: Axes, *, xlabel: str, ylabel: str, title: str) -> None:
    """Set labels and title, and apply the style to axes that were created without it."""
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    style_ticks(axes)
    axes.grid(alpha=_setting("grid.alpha"), linewidth=_setting("grid.linewidth"))
    for side, spine in axes.spines.items():
        spine.set_visible(_setting(f"axes.spines.{side}"))
        spine.set_linewidth(_setting("axes.linewidth"))
    set_title(axes, title)


def style_ticks(axes: Axes) -> None:
    """Apply the sizes of the style to ticks and their labels."""
    for name in ("x", "y"):
        width, pad = _setting(f"{name}tick.major.width"), _setting(f"{name}tick.major.pad")
        axes.tick_params(name, which="both", labelsize=_setting(f"{name}tick.labelsize"), width=width, pad=pad)


#: The widest title of a panel among several columns, relative to its axes; that of a single column, to the figure.
PANEL_WIDTH, TITLE_WIDTH = 1.1, 0.95

#: A title of this share of the width of a panel fits, wherever its axes are.
SURELY = 0.55


def set_title(axes: Axes, title: str) -> None:
    """Write a title in as many lines as it needs: within its panel, or within the figure if that has one column."""
    axes.set_title(title)
    figure, spec = cast(Any, axes.figure), axes.get_subplotspec()
    columns = 1 if spec is None else spec.get_gridspec().ncols
    # Laying out takes a fifth of the time of a figure, and a short title fits in any case.
    if not title or _width(axes.title) < SURELY * figure.bbox.width / columns:
        return
    # matplotlib's own wrapping fails for a title that is above the figure before it is laid out.
    lay_out(figure)
    box = axes.get_window_extent()
    middle = (box.x0 + box.x1) / 2
    room = PANEL_WIDTH * box.width
    if columns == 1:
        room = TITLE_WIDTH * 2 * min(middle, figure.bbox.width - middle)
    words = re.sub(r"\$[^$]*\$", lambda formula: formula[0].replace(" ", "\0"), title)
    characters = len(title)
    while (excess := _width(axes.title) / room) > 1 and characters > 1:
        characters = min(characters - 1, int(characters / excess)) or 1
        axes.set_title(textwrap.fill(words, characters, break_long_words=False).replace("\0", " "))


@project_style()
def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure to a file of the kind that its suffix names.

    The kinds are .png (250 dots per inch), and .pdf and .svg as vectors. Equal figures give equal bytes. Characters
    that the font lacks are drawn as boxes.

    Parameters:
        figure: any figure.
        path: the file, in an existing folder.

    Raises:
        ValueError: if the suffix is not one of the three.
        OSError: if the file cannot be written.
    """
    file = Path(path)
    if file.suffix not in METADATA:
        raise ValueError(f"Figures are written as {', '.join(METADATA)}; got {file.name!r}.")
    check_parent(file)
    with boxes_for_glyphs():
        figure.savefig(file, format=file.suffix[1:], metadata=METADATA[file.suffix])


def check_drawable(label: str, *numbers: ArrayLike) -> None:
    """Raise ValueError if a finite value is too large for an axis."""
    for each in numbers:
        values = np.abs(np.asarray(each, np.float64))
        if (np.isfinite(values) & (values > LARGEST)).any():
            raise ValueError(
                f"An axis has numbers up to {LARGEST:g}; {label!r} has larger ones: draw their logarithms, or NaN in "
                "their place, which leaves a gap."
            )


def require_matplotlib() -> None:
    """Raise ImportError that names the extra if matplotlib is missing."""
    try:
        importlib.import_module("matplotlib")
    except ImportError:
        raise ImportError("Figures are drawn by matplotlib: pip install 'simfloat[plots]'.") from None


#: The distances in points between a label and its point. A line joins the two at all but the first distance.
DISTANCES = (5, 13, 22)

#: The candidate positions of a label: distance, and direction across and up. Of equally good ones the first is taken.
PLACES = [
    (distance, direction)
    for distance in DISTANCES
    for direction in [(1, 0), (-1, 0), (0, 1), (0, -1), *product((1, -1), (1, -1))]
]

#: The alignment of a label on each side of its point.
HORIZONTAL, VERTICAL = {1: "left", 0: "center", -1: "right"}, {1: "bottom", 0: "center", -1: "top"}

#: The line from a point to its label.
LINE = {"arrowstyle": "-", "linewidth": 0.5, "color": GREY, "shrinkA": 0, "shrinkB": 3}

#: The ends of a horizontal or vertical line that labels should not cover.
Line = tuple[tuple[float, float], tuple[float, float]]

#: The weight of an area of a label outside the axes, relative to an area that covers something.
OUTSIDE = 10


@boxes_for_glyphs()
def draw_labels(axes: Axes, x: NDArray, y: NDArray, labels: Sequence[str], lines: Sequence[Line] = ()) -> None:
    """Write each label next to its point, where it covers the least of points, lines and other labels.

    The limits of the axes are fixed by this.
    """
    from matplotlib.transforms import Bbox

    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
    lay_out(axes.figure)
    inside, reach = axes.get_window_extent(), 0.6 * DISTANCES[0] * axes.figure.dpi / 72
    points = [*zip(x, y, strict=True)]
    boxes = [Bbox([place - reach, place + reach]) for place in axes.transData.transform(points)]
    for ends in lines:
        low, high = np.sort(axes.transData.transform(ends), axis=0)
        boxes.append(Bbox([low - 0.4 * reach, high + 0.4 * reach]))
    # Long labels first: they fit in the fewest places.
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
    """Write a label at its point, in small text."""
    return axes.annotate(
        label, point, (0, 0), textcoords="offset points", fontsize="small", annotation_clip=False, **options
    )


def _place_text(text: Annotation, number: int) -> Bbox:
    """Move a text to one of the candidate positions and return the box that it then covers."""
    distance, (across, up) = PLACES[number]
    reach = distance * (0.6 if across and up else 1.0)
    text.set(position=(across * reach, up * reach), ha=HORIZONTAL[across], va=VERTICAL[up])
    return text.get_window_extent()


def _common_area(first: Bbox, second: Bbox) -> float:
    """Return the area of the overlap of two boxes."""
    width = min(first.x1, second.x1) - max(first.x0, second.x0)
    height = min(first.y1, second.y1) - max(first.y0, second.y0)
    return float(max(width, 0) * max(height, 0))
