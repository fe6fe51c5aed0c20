"""The numbers of formats as ticks on a line, linear or logarithmic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simfloat.formats import Format
from simfloat.formats.format_names import FormatLike, as_format
from simfloat.plots.curves import plain_label
from simfloat.plots.figure import NORMAL, SMALL
from simfloat.telemetry.range_fit import format_binades

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Ticks of normal numbers are black and long, those of subnormal ones blue and short; zero is a dot.
NORMAL_COLOR, SUBNORMAL_COLOR = "#000000", "#0072b2"
NORMAL_REACH, SUBNORMAL_REACH = 0.3, 0.16

#: More ticks than these, over the whole line, would run together: a band stands for them, with ticks at powers of two.
MOST_TICKS = 200

#: Codes of wider formats are not listed.
LISTED_BITS = 16

BAND = "#c8c8c8"


def draw_number_line(
    axes: Axes,
    formats: Sequence[FormatLike],
    *,
    log: bool = False,
    limits: tuple[float, float] | None = None,
    title: str = "",
) -> None:
    """Draw the numbers of each format as ticks in a row of its own, with its largest number beside it::

        sf.plots.draw_number_line(axes, [sf.E2M1, sf.E4M3], limits=(-8, 8))
        sf.plots.draw_number_line(axes, [sf.E2M1, sf.E4M3, sf.FP16], log=True)

    Subnormal numbers have short ticks. Numbers too dense to be told apart are a grey band, with ticks at the powers of
    two. A logarithmic line shows the positive numbers by their exponents to base 2, so it has no zero.

    limits are the ends of the line, in exponents to base 2 if `log`; by default those of all formats. `fit_figure`
    makes room for long names.

    Raises ValueError for no formats, one that is unknown, and limits that are not in ascending order or too far apart.
    """
    if isinstance(formats, str | Format) or not formats:
        raise ValueError(f"draw_number_line takes a list of formats, got {formats!r}.")
    shown_formats = [as_format(format) for format in formats]
    first, last = _check_limits(_line_ends(shown_formats, log) if limits is None else limits)
    room = 0.02 * (last - first)
    for row, format in enumerate(shown_formats):
        _draw_row(axes, format, -row, log, (first, last))
    axes.set(xlim=(first - room, last + room), ylim=(0.45 - len(shown_formats), 0.45))
    axes.set_yticks([-row for row in range(len(shown_formats))], [_format_label(format) for format in shown_formats])
    axes.set_xlabel("exponent, $\\log_2 x$" if log else "$x$", fontsize=NORMAL, labelpad=2)
    axes.set_title(plain_label(title), fontsize=NORMAL, pad=4)
    axes.tick_params(labelsize=SMALL, width=0.6, pad=2)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _draw_row(axes: Axes, format: Format, y: float, log: bool, limits: tuple[float, float]) -> None:
    """The ticks of a format at height y."""
    numbers = _visible_numbers(_numbers(format), log, limits)
    places = np.log2(numbers) if log else numbers
    ends = _band(format, places, log, limits)
    if ends is not None:
        axes.fill_between(ends, y - NORMAL_REACH, y + NORMAL_REACH, color=BAND, linewidth=0, zorder=1)
        is_power_of_two = np.frexp(np.abs(numbers))[0] == 0.5
        numbers, places = numbers[is_power_of_two], places[is_power_of_two]
    subnormal = (np.abs(numbers) < format.smallest_normal) & (numbers != 0)
    for chosen, reach, color in (
        (~subnormal & (numbers != 0), NORMAL_REACH, NORMAL_COLOR),
        (subnormal, SUBNORMAL_REACH, SUBNORMAL_COLOR),
    ):
        axes.vlines(places[chosen], y - reach, y + reach, color=color, linewidth=0.6, zorder=2)
    if (numbers == 0).any():
        axes.plot(0, y, "o", color=NORMAL_COLOR, markersize=3, zorder=3)


def _numbers(format: Format) -> NDArray[np.float64]:
    """The numbers of a format, ascending; of a wide one the powers of two."""
    if format.bits <= LISTED_BITS:
        return np.asarray(format.values(), np.float64)
    binades = format_binades(format)
    powers = np.ldexp(1.0, np.arange(binades.lowest, binades.highest + 1))
    return np.concatenate((-powers[::-1], powers)) if format.signed else powers


def _visible_numbers(numbers: NDArray[np.float64], log: bool, limits: tuple[float, float]) -> NDArray[np.float64]:
    """Return the numbers that lie on the line."""
    if log:
        numbers = numbers[numbers > 0]
    places = np.log2(numbers) if log else numbers
    return numbers[(places >= limits[0]) & (places <= limits[1])]


def _band(
    format: Format, places: NDArray[np.float64], log: bool, limits: tuple[float, float]
) -> tuple[float, float] | None:
    """From where to where numbers run together; None if they do not."""
    if format.bits > LISTED_BITS:
        first, last = _line_ends([format], log)
        first, last = max(first, limits[0]), min(last, limits[1])
        return (first, last) if first < last else None
    if len(places) < 2 or len(places) * (limits[1] - limits[0]) / np.ptp(places) <= MOST_TICKS:
        return None
    return float(places[0]), float(places[-1])


def _line_ends(formats: Sequence[Format], log: bool) -> tuple[float, float]:
    """From the least number of all formats to the greatest."""
    if log:
        least = float(np.log2(min(format.smallest_subnormal for format in formats)))
        most = float(np.log2(max(format.max for format in formats)))
        return (least, most) if least < most else (least - 1, most + 1)  # around a number alone
    return min(format.min for format in formats), max(format.max for format in formats)


def _check_limits(limits: tuple[float, float]) -> tuple[float, float]:
    ends = np.asarray(limits)
    if ends.shape != (2,) or ends.dtype.kind not in "iuf" or not np.isfinite(ends).all() or not ends[0] < ends[1]:
        raise ValueError(f"limits must be two numbers in ascending order, got {limits!r}.")
    first, last = map(float, ends)
    if not math.isfinite(last - first):
        raise ValueError(f"A line from {first:g} to {last:g} is too long: give limits, or log=True.")
    return first, last


def _format_label(format: Format) -> str:
    """A format's name above its largest number."""
    mantissa, exponent = f"{format.max:.1e}".split("e")
    largest = f"{format.max:g}" if format.max < 1e5 else f"{mantissa}\\cdot 10^{{{int(exponent)}}}"
    return f"{plain_label(format.name or str(format))}\n$\\leq {largest}$"
