"""Figures of formats: their numbers on a line, their range, and histograms of exponents.

The numbers are ticks, linear or logarithmic. A range is shading over an axis of exponents, and lines above the axes. A
histogram shows in which binades the values of a tensor lie, and which of them a format has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.environment import in_usual_environment
from simfloat.formats.catalog import FormatLike, as_format
from simfloat.formats.format import Format
from simfloat.plots.curves import make_logarithmic, plain_label
from simfloat.plots.figure import COLUMN_WIDTH, NORMAL, SMALL, add_legend, label_axes, new_figure
from simfloat.telemetry import Recorder
from simfloat.telemetry.advice import Binades, Histogram, count_in_range, format_binades, histogram_of_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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


#: Of a figure, in inches.
HEIGHT = 2.6

#: The phase that is drawn is the first of these in which anything was counted.
AUTO, PREFERRED = "auto", ("backward", "forward", "update")

#: What is counted in a phase.
NAMES = {None: "result", "forward": "result", "backward": "gradient", "update": "updated value"}

#: More bars than these are drawn together: two binades a bar, or four, and so on.
MOST_BARS = 64

#: A format's range is shown no farther than so many binades from the values.
BEYOND = 24

#: Bars of what a format keeps, of what it keeps thanks to the scale, and of what it loses; told apart in grey too.
KEPT_STYLE = {"label": "kept", "color": "#0072b2"}
GAINED_STYLE = {"label": "kept if scaled", "facecolor": "#9ecae1", "edgecolor": "#0072b2", "linewidth": 0.5}
LOST_STYLE = {"label": "lost", "facecolor": "#fff3dc", "edgecolor": "#a05a00", "linewidth": 0.5, "hatch": "//////"}


class Bars(NamedTuple):
    """The starts of the bars, the binades that each covers, and the percentages of all values in them."""

    starts: NDArray[np.int64]
    width: int
    percent: NDArray[np.float64]


@in_usual_environment
def exponents(
    recorder: Recorder,
    path: str | None = None,
    *,
    phase: str | None = AUTO,
    operation: str | None = None,
    format: FormatLike | None = None,
    scale: float = 1.0,
    log: bool = False,
    title: str | None = None,
) -> Figure:
    """Draw which exponents the results had that a recorder counted, as one figure of a column's width::

        figure = sf.plots.exponents(recorder, "*.weight", format=sf.FP16, scale=2**15)

    path, phase and operation select results as in `Recorder.counts`. By default they are gradients (phase
    ``"backward"``); where none were counted, results of the forward pass, and where there are none of these either,
    those of updates. All else is as in `draw_exponents`. What a format would lose is seen where results were rounded
    to a wider one: record under ``"fp32"``.

    After Figures 2b and 3 of Micikevicius et al. 2018 (arXiv:1710.03740).

    Raises ValueError where `Recorder.histogram` does, and if no finite result was counted there.
    """
    if not isinstance(recorder, Recorder):
        raise ValueError(f"recorder must be a simfloat.Recorder, got a {type(recorder).__name__}.")
    phase = _counted_phase(recorder, path, operation) if phase == AUTO else phase
    histogram = recorder.histogram(path, phase, operation=operation)
    if not any(histogram.values()):
        raise ValueError(_nothing_message(phase, recorder, path, operation))
    figure, axes = new_figure(1, 1, COLUMN_WIDTH, HEIGHT, legend=0 if format is None else 0.2)
    figure.subplots_adjust(top=1 - (0.22 if format is None else 0.6) / HEIGHT)  # a format's range stands above the axes
    shown = title if title is not None else path or ""
    draw_exponents(axes, histogram, format=format, scale=scale, log=log, title=shown, name=NAMES[phase])
    if format is not None:
        add_legend(figure, axes, columns=3)
    return figure


def _counted_phase(recorder: Recorder, path: str | None, operation: str | None) -> str | None:
    """The phase that is drawn where none is asked for; None if nothing finite was counted in any."""
    counted = (p for p in PREFERRED if any(recorder.histogram(path, p, operation=operation).values()))
    return next(counted, None)


def _nothing_message(phase: str | None, recorder: Recorder, path: str | None, operation: str | None) -> str:
    """The message where there is nothing to draw: what was counted instead."""
    counts = {p: sum(recorder.histogram(path, p, operation=operation).values()) for p in PREFERRED}
    there = [f"{number} in phase {p!r}" for p, number in counts.items() if number]
    where, besides = f" in phase {phase!r}" if phase else "", f"; counted were {', '.join(there)}" if there else ""
    return f"There is nothing to draw: no finite result was counted{where}{besides}."


def draw_exponents(
    axes: Axes,
    histogram: Histogram | ArrayLike,
    *,
    format: FormatLike | None = None,
    scale: float = 1.0,
    log: bool = False,
    title: str = "",
    name: str = "value",
) -> None:
    """Draw the exponents of an array, or a histogram as `Recorder.histogram` gives it, in percent, zeros apart.

    A bar over [e, e + 1) holds the values from 2^e up to 2^(e + 1); over wide ranges it holds two such binades or more.

    * format: the format whose normal (darker) and subnormal (lighter) numbers are shaded. Above them stands its range,
      and which share of the nonzero values lies in its binades, which it keeps; bars of what it loses are light and
      hatched. What a rounding takes up to the smallest number, or beyond the largest in its own binade, is not told.
    * scale: a power of two, by which all values are multiplied before they are rounded to the format. Bars stay where
      they are: a second range, that of the values that the scale brings into the format, stands above the first.
    * log: whether percentages have a logarithmic axis.

    Raises ValueError for an empty histogram, a scale that is no power of two, and a scale without a format.
    """
    counts = histogram if isinstance(histogram, Mapping) else histogram_of_values(histogram)
    k, shown_format = _power_of_two(scale), None if format is None else as_format(format)
    if shown_format is None and k:
        raise ValueError(f"A scale of {scale!r} needs a format that it serves, such as format=simfloat.FP16.")
    total = sum(counts.values())
    if strange := [key for key in counts if key != "zero" and not isinstance(key, int | np.integer)]:
        raise ValueError(f"A histogram counts whole exponents and 'zero'; got the key {strange[0]!r}.")
    if any(number < 0 for number in counts.values()):
        raise ValueError(f"A histogram counts: none of its numbers is negative, got {dict(counts)!r}.")
    if not total:
        raise ValueError("The histogram is empty: it has no finite values.")
    bars, binades = _bars(counts, total), None if shown_format is None else format_binades(shown_format)
    first, last = _limits(bars, binades, k)
    zero_width = max(1.0, (last - first) / 28)
    zero = first - 2 * zero_width
    _draw_bars(axes, bars, binades, k)
    zeros = 100 * counts.get("zero", 0) / total
    axes.bar(zero, zeros, zero_width, color="#444444")
    axes.set_xlim(zero - zero_width, last)
    if log:
        axes.set_ylim(_axis_floor([*bars.percent, zeros]), 100)
        make_logarithmic(axes)
    else:
        _cut_zeros(axes, bars, zero + zero_width / 2, zeros)
    label_axes(
        axes, xlabel=f"$\\log_2$|{plain_label(name)}|", ylabel=f"{plain_label(name)}s (%)", title=plain_label(title)
    )
    _name_exponents(axes, zero, first, last)
    if shown_format is not None:
        draw_ranges(axes, shown_format, k, counts, (first, last))


def _power_of_two(scale: float) -> int:
    """The exponent of a scale."""
    mantissa, exponent = math.frexp(scale) if isinstance(scale, int | float) and math.isfinite(scale) else (0.0, 0)
    if mantissa != 0.5:
        raise ValueError(f"scale must be a power of two, such as 2**10, got {scale!r}.")
    return exponent - 1


def _bars(histogram: Histogram, total: int) -> Bars:
    """The bars of the nonzero values; none if there are none."""
    numbers = {int(exponent): number for exponent, number in histogram.items() if exponent != "zero" and number}
    if not numbers:
        return Bars(np.zeros(0, np.int64), 1, np.zeros(0))
    least, most = min(numbers), max(numbers)
    width = 1
    while most // width - least // width >= MOST_BARS:
        width *= 2
    percent = np.zeros(most // width - least // width + 1)
    for exponent, number in numbers.items():
        percent[exponent // width - least // width] += 100 * number / total
    return Bars((np.arange(len(percent)) + least // width) * width, width, percent)


def _limits(bars: Bars, binades: Binades | None, k: int) -> tuple[int, int]:
    """From which exponent to which is drawn: all values, and as much of the format as stands near them."""
    ranges = [binades, binades.shift(k)] if binades else []
    edges = [(each.lowest, each.highest + 1) for each in ranges]
    if not len(bars.starts):
        return min((low for low, _ in edges), default=-1), max((high for _, high in edges), default=1)
    first, last = int(bars.starts[0]), int(bars.starts[-1]) + bars.width
    return (
        max(first - BEYOND, min([first, *(low for low, _ in edges)])) - 1,
        min(last + BEYOND, max([last, *(high for _, high in edges)])) + 1,
    )


def _draw_bars(axes: Axes, bars: Bars, binades: Binades | None, k: int) -> None:
    """Bars of what the format keeps anyway, of what the scale adds to that, and of what is lost."""
    kept_anyway = _bars_in_range(bars, binades)
    kept_scaled = _bars_in_range(bars, binades and binades.shift(k))
    for chosen, style in (
        (kept_anyway & kept_scaled, KEPT_STYLE),
        (~kept_anyway & kept_scaled, GAINED_STYLE),
        (~kept_scaled, LOST_STYLE),
    ):
        if not chosen.any():
            continue
        axes.bar(bars.starts[chosen], bars.percent[chosen], 0.8 * bars.width, align="edge", zorder=2, **style)


def _bars_in_range(bars: Bars, binades: Binades | None) -> NDArray[np.bool_]:
    """Tell for each bar whether it overlaps the binades."""
    if binades is None:
        return np.ones(len(bars.starts), bool)
    return (bars.starts + bars.width > binades.lowest) & (bars.starts <= binades.highest)


def _name_exponents(axes: Axes, zero: float, first: int, last: int) -> None:
    """A tick for zero, and at most seven for exponents."""
    step = next(step for step in (1, 2, 4, 5, 10, 20, 50, 100, 200, 500) if (last - first) / step <= 7)
    ticks = [tick for tick in range(-(-first // step) * step, last + 1, step) if tick - zero > (last - first) / 9]
    axes.set_xticks([zero, *ticks], ["zero", *(str(tick).replace("-", "\N{MINUS SIGN}") for tick in ticks)])


def _cut_zeros(axes: Axes, bars: Bars, right: float, zeros: float) -> None:
    """End the axis above the other bars where zeros would dwarf them, and write the percentage of zeros."""
    highest = max(bars.percent, default=0.0)
    if zeros > 2 * highest > 0:
        axes.set_ylim(0, 1.3 * highest)
        axes.text(right, 1.29 * highest, f" {zeros:.3g}%", fontsize=SMALL, ha="left", va="top")


def _axis_floor(percent: list[float]) -> float:
    """Return the lower end of a logarithmic axis of percentages, below the least of them."""
    return 10.0 ** math.floor(math.log10(min(each for each in percent if each)) - 0.3)
