"""Labels beside points, placed where they overlap least."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simfloat.plots.figure import SMALL, boxes_for_glyphs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation
    from matplotlib.transforms import Bbox

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
