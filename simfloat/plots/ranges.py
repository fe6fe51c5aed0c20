"""The range of a format over an axis of exponents: shading, and lines above the axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simfloat.formats.format import Format
from simfloat.plots.curves import plain_label
from simfloat.plots.figure import SMALL
from simfloat.telemetry.range_fit import Binades, Histogram, count_in_range, format_binades

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Greys behind normal numbers and behind subnormal ones.
NORMAL_SHADE, SUBNORMAL_SHADE = "#dedede", "#efefef"

#: Points between two lines above the axes.
LINE = 12


def draw_ranges(axes: Axes, format: Format, k: int, histogram: Histogram, limits: tuple[int, int]) -> None:
    """Shade a format's binades between the limits, and name above them which share of the nonzero values it keeps.

    A second line above shows what a scale of 2^k would bring into the format, unless k is 0. Lines are thick over
    normal numbers and thin over subnormal ones.
    """
    binades = format_binades(format)
    for start, end, shade in (
        (binades.lowest, binades.normal, SUBNORMAL_SHADE),
        (binades.normal, binades.highest + 1, NORMAL_SHADE),
    ):
        shown = _clip_range(start, end, limits)
        if shown[0] < shown[1]:
            axes.axvspan(*shown, color=shade, zorder=0, linewidth=0)
    name = plain_label(format.name or str(format))
    lines = [(name, binades)] + ([(f"{name} $\\cdot$ scale $2^{{{k}}}$", binades.shift(k))] if k else [])
    for place, (text, each) in enumerate(lines):
        share = _percent(count_in_range(histogram, each).share)
        _line_above(axes, each, f"{text}: keeps {share}", LINE * place + 4, limits)
    axes.set_title(axes.get_title(), fontsize=axes.title.get_fontsize(), pad=LINE * len(lines) + 6)


def _line_above(axes: Axes, binades: Binades, text: str, height: float, limits: tuple[int, int]) -> None:
    """A line `height` points above the axes, over the part of the range that is shown, and its text."""
    from matplotlib.lines import Line2D
    from matplotlib.transforms import ScaledTranslation

    place = axes.get_xaxis_transform() + ScaledTranslation(0, height / 72, axes.figure.dpi_scale_trans)
    for start, end, width in ((binades.lowest, binades.normal, 0.8), (binades.normal, binades.highest + 1, 2.2)):
        shown = _clip_range(start, end, limits)
        if shown[0] < shown[1]:
            line = Line2D(shown, (1, 1), linewidth=width, color="black", transform=place, clip_on=False)
            line.set_solid_capstyle("butt")
            axes.add_artist(line)
    # The text stands over the line, and far enough from the sides of the figure.
    room = 0.3 * (limits[1] - limits[0])
    middle = sum(_clip_range(binades.lowest, binades.highest + 1, limits)) / 2
    middle = min(max(middle, limits[0] + room), limits[1] - room)
    above = place + ScaledTranslation(0, 2 / 72, axes.figure.dpi_scale_trans)
    axes.text(middle, 1, text, transform=above, fontsize=SMALL, ha="center", va="bottom")


def _clip_range(start: int, end: int, limits: tuple[int, int]) -> tuple[int, int]:
    return max(start, limits[0]), min(end, limits[1])


def _percent(share: float) -> str:
    """A share in percent; never 0 or 100 for what is not all or nothing."""
    text = f"{100 * share:.1f}"
    if text == "100.0" and share < 1:
        return "over 99.9%"
    return "under 0.1%" if text == "0.0" and share > 0 else f"{text.removesuffix('.0')}%"
