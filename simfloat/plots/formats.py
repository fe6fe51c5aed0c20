"""Draw the numbers of formats on a line, and histograms of exponents over the range of a format.

The numbers are ticks on a linear or logarithmic line. A range is a shade behind an axis of exponents, and a line above
the axes. A histogram shows the binades of the values of a tensor, and which of them a format can represent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.common import matches
from simfloat.environment import in_usual_environment
from simfloat.formats.catalog import FormatLike, as_format
from simfloat.formats.format import Format
from simfloat.plots.curves import log2_text, make_logarithmic, plain_label, title_or
from simfloat.plots.figure import (
    COLUMN_WIDTH,
    GREY,
    add_legend,
    foreground,
    label_axes,
    new_figure,
    project_style,
    set_title,
    style_ticks,
)
from simfloat.telemetry import Recorder
from simfloat.telemetry.ranges import Binades, Histogram, count_in_range, format_binades, histogram_of_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: Ticks of normal numbers are long, in the colour of text; ticks of subnormal numbers are short and blue.
SUBNORMAL_COLOR = "#0072b2"
NORMAL_REACH, SUBNORMAL_REACH = 0.3, 0.16

#: More ticks than this on the whole line would run together. They are replaced by a band with ticks at powers of two.
MOST_TICKS = 200

#: Formats with more bits have too many numbers to list.
LISTED_BITS = 16

#: The opacity of the grey band of numbers.
BAND_ALPHA = 0.4


@project_style()
def draw_number_line(
    axes: Axes,
    formats: Sequence[FormatLike],
    *,
    log: bool = False,
    limits: tuple[float, float] | None = None,
    title: str | None = None,
) -> None:
    """Draw the numbers of each format as ticks in one row, with the largest number next to the name::

        sf.plots.draw_number_line(axes, [sf.E2M1, sf.E4M3], limits=(-8, 8))
        sf.plots.draw_number_line(axes, [sf.E2M1, sf.E4M3, sf.FP16], log=True)

    Subnormal numbers have short ticks, and zero is a dot. Numbers that are too dense for ticks are drawn as a grey
    band, with ticks at the powers of two. A logarithmic line shows the positive numbers only.

    Parameters:
        axes: matplotlib's axes.
        formats: a list of formats or their names.
        log: True for a logarithmic line, which is labelled with exponents to base 2.
        limits: the ends of the line, as exponents to base 2 if `log` is True; by default the range of all formats.
        title: the title; by default the number of finite values of each format, if all have at most 16 bits.

    Raises:
        ValueError: if there are no formats, or an unknown one; if the limits are not in ascending order, or too far
            apart for a linear line.
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
    axes.set_xlabel("exponent, $\\log_2 x$" if log else "$x$")
    set_title(axes, title_or(title, lambda: _count_of_numbers(shown_formats)))
    style_ticks(axes)
    axes.grid(False)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _count_of_numbers(formats: Sequence[Format]) -> str:
    """Return how many finite numbers the formats have; nothing if one of them is too wide to list."""
    if any(format.bits > LISTED_BITS for format in formats):
        return ""
    counts = sorted((len(format.values()), plain_label(format.name or str(format))) for format in formats)
    if len(counts) > 3:
        counts = [counts[0], counts[-1]]
    first, *others = [f"{count:,} in {name}" for count, name in counts]
    between = " to " if len(formats) > 3 else ", "
    return between.join([first.replace(" in ", " numbers in ", 1), *others])


def _draw_row(axes: Axes, format: Format, y: float, log: bool, limits: tuple[float, float]) -> None:
    """Draw the ticks of a format at height y."""
    numbers = _visible_numbers(_numbers(format), log, limits)
    places = np.log2(numbers) if log else numbers
    ends = _band(format, places, log, limits)
    if ends is not None:
        axes.fill_between(ends, y - NORMAL_REACH, y + NORMAL_REACH, color=GREY, alpha=BAND_ALPHA, linewidth=0, zorder=1)
        is_power_of_two = np.frexp(np.abs(numbers))[0] == 0.5
        numbers, places = numbers[is_power_of_two], places[is_power_of_two]
    subnormal = (np.abs(numbers) < format.smallest_normal) & (numbers != 0)
    for chosen, reach, color in (
        (~subnormal & (numbers != 0), NORMAL_REACH, foreground()),
        (subnormal, SUBNORMAL_REACH, SUBNORMAL_COLOR),
    ):
        axes.vlines(places[chosen], y - reach, y + reach, color=color, linewidth=0.6, zorder=2)
    if (numbers == 0).any():
        axes.plot(0, y, "o", color=foreground(), markersize=3, zorder=3)


def _numbers(format: Format) -> NDArray[np.float64]:
    """Return the numbers of a format, ascending; only the powers of two of a wide format."""
    if format.bits <= LISTED_BITS:
        return np.asarray(format.values(), np.float64)
    binades = format_binades(format)
    powers = np.ldexp(1.0, np.arange(binades.lowest, binades.highest + 1))
    return np.concatenate((-powers[::-1], powers)) if format.signed else powers


def _visible_numbers(numbers: NDArray[np.float64], log: bool, limits: tuple[float, float]) -> NDArray[np.float64]:
    """Return the numbers within the limits of the line."""
    if log:
        numbers = numbers[numbers > 0]
    places = np.log2(numbers) if log else numbers
    return numbers[(places >= limits[0]) & (places <= limits[1])]


def _band(
    format: Format, places: NDArray[np.float64], log: bool, limits: tuple[float, float]
) -> tuple[float, float] | None:
    """Return the ends of the band of numbers that are too dense for ticks; None if there is no band."""
    if format.bits > LISTED_BITS:
        first, last = _line_ends([format], log)
        first, last = max(first, limits[0]), min(last, limits[1])
        return (first, last) if first < last else None
    if len(places) < 2 or len(places) * (limits[1] - limits[0]) / np.ptp(places) <= MOST_TICKS:
        return None
    return float(places[0]), float(places[-1])


def _line_ends(formats: Sequence[Format], log: bool) -> tuple[float, float]:
    """Return the least and the greatest number of all formats."""
    if log:
        least = float(np.log2(min(format.smallest_subnormal for format in formats)))
        most = float(np.log2(max(format.max for format in formats)))
        return (least, most) if least < most else (least - 1, most + 1)  # around a single number
    return min(format.min for format in formats), max(format.max for format in formats)


def _check_limits(limits: tuple[float, float]) -> tuple[float, float]:
    """Return the limits of a line as floats; raise ValueError if they are invalid."""
    ends = np.asarray(limits)
    if ends.shape != (2,) or ends.dtype.kind not in "iuf" or not np.isfinite(ends).all() or not ends[0] < ends[1]:
        raise ValueError(f"limits must be two numbers in ascending order, got {limits!r}.")
    first, last = map(float, ends)
    if not math.isfinite(last - first):
        raise ValueError(f"A line from {first:g} to {last:g} is too long: give limits, or log=True.")
    return first, last


def _format_label(format: Format) -> str:
    """Return the name of a format above its largest number."""
    mantissa, exponent = f"{format.max:.1e}".split("e")
    largest = f"{format.max:g}" if format.max < 1e5 else f"{mantissa}\\cdot 10^{{{int(exponent)}}}"
    return f"{plain_label(format.name or str(format))}\n$\\leq {largest}$"


#: The opacity of the grey behind normal numbers and behind subnormal ones.
NORMAL_ALPHA, SUBNORMAL_ALPHA = 0.28, 0.14

#: The distance of two lines above the axes, in points.
LINE = 12


def draw_ranges(axes: Axes, format: Format, k: int, histogram: Histogram, limits: tuple[int, int]) -> None:
    """Shade the binades of a format between the limits, and write above them the share of nonzero values it keeps.

    Unless k is 0, a second line shows the values that a scale of 2^k brings into the format. Lines are thick over
    normal numbers and thin over subnormal ones.
    """
    binades = format_binades(format)
    for start, end, alpha in (
        (binades.lowest, binades.normal, SUBNORMAL_ALPHA),
        (binades.normal, binades.highest + 1, NORMAL_ALPHA),
    ):
        shown = _clip_range(start, end, limits)
        if shown[0] < shown[1]:
            axes.axvspan(*shown, color=GREY, alpha=alpha, zorder=0, linewidth=0)
    name = plain_label(format.name or str(format))
    lines = [(name, binades)] + ([(f"{name} $\\cdot$ scale $2^{{{k}}}$", binades.shift(k))] if k else [])
    for place, (text, each) in enumerate(lines):
        share = percent_text(count_in_range(histogram, each).share)
        _line_above(axes, each, f"{text}: keeps {share}", LINE * place + 4, limits)
    axes.set_title(axes.get_title(), fontsize=axes.title.get_fontsize(), pad=LINE * len(lines) + 6)


def _line_above(axes: Axes, binades: Binades, text: str, height: float, limits: tuple[int, int]) -> None:
    """Draw a line `height` points above the axes, over the visible part of the range, and its text."""
    from matplotlib.lines import Line2D
    from matplotlib.transforms import ScaledTranslation

    place = axes.get_xaxis_transform() + ScaledTranslation(0, height / 72, axes.figure.dpi_scale_trans)
    for start, end, width in ((binades.lowest, binades.normal, 0.8), (binades.normal, binades.highest + 1, 2.2)):
        shown = _clip_range(start, end, limits)
        if shown[0] < shown[1]:
            line = Line2D(shown, (1, 1), linewidth=width, color=foreground(), transform=place, clip_on=False)
            line.set_solid_capstyle("butt")
            axes.add_artist(line)
    # The text is centred over the line, but kept away from the sides of the figure.
    room = 0.3 * (limits[1] - limits[0])
    middle = sum(_clip_range(binades.lowest, binades.highest + 1, limits)) / 2
    middle = min(max(middle, limits[0] + room), limits[1] - room)
    above = place + ScaledTranslation(0, 2 / 72, axes.figure.dpi_scale_trans)
    axes.text(middle, 1, text, transform=above, fontsize="small", ha="center", va="bottom")


def _clip_range(start: int, end: int, limits: tuple[int, int]) -> tuple[int, int]:
    """Return the part of a range within the limits."""
    return max(start, limits[0]), min(end, limits[1])


def percent_text(share: float) -> str:
    """Return a share in percent; 0 and 100 only for none and all."""
    text = f"{100 * share:.1f}"
    if text == "100.0" and share < 1:
        return "over 99.9%"
    return "under 0.1%" if text == "0.0" and share > 0 else f"{text.removesuffix('.0')}%"


#: The height of a figure in inches.
HEIGHT = 2.7

#: By default, the first of these phases in which anything was counted is drawn.
AUTO, PREFERRED = "auto", ("backward", "forward", "update")

#: Operations that round the operands of a product: in the backward pass these are no gradients.
OPERAND_CASTS = {"cast_input", "cast_weight"}

#: The name of the values that are counted in a phase.
NAMES = {None: "result", "forward": "result", "backward": "gradient", "update": "updated value"}

#: The largest number of bars. Wider ranges have bars of two binades, or four, and so on.
MOST_BARS = 64

#: The range of a format is drawn at most this many binades beyond the values.
BEYOND = 24

#: The bars of values that a format keeps, keeps thanks to the scale, and loses. They differ in grey, too.
KEPT_STYLE = {"label": "kept", "color": "#0072b2"}
GAINED_STYLE = {"label": "kept if scaled", "facecolor": "#9ecae1", "edgecolor": "#0072b2", "linewidth": 0.5}
LOST_STYLE = {"label": "lost", "facecolor": "#fff3dc", "edgecolor": "#a05a00", "linewidth": 0.5, "hatch": "//////"}


class Bars(NamedTuple):
    """The starts of the bars, the number of binades of each, and the percentage of all values in each."""

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
    """Return a figure of the exponents of the results that a recorder counted, one column wide::

        figure = sf.plots.exponents(recorder, "*.weight", format=sf.FP16, scale=2**15)

    To see the values that a format would lose, record under a wider format: the policy ``"fp32"``.

    Parameters:
        recorder: the `Recorder`.
        path, operation: a shell pattern of paths, and the name of an operation, as in `Recorder.counts`; by default
            all results.
        phase: "forward", "backward" or "update", or None for all. By default "backward"; if nothing was counted there,
            the results of the forward pass; if there are none of these either, the updates. The backward pass is drawn
            without inputs and weights that are rounded again for its products. It contains gradients and the steps of
            their formulas; a path of parameters, such as "*.weight", selects gradients only.
        format: a format whose range is drawn; the figure then shows which values it would keep.
        scale: a power of two by which all values are multiplied before they are rounded to the format.
        log: True for a logarithmic axis of percentages.
        title: the title; by default the path and the share of values that the format keeps.

    Returns:
        A matplotlib figure.

    Raises:
        ValueError: if no finite result was counted; as in `Recorder.histogram` and `draw_exponents`.

    Source: Figures 2b and 3 of Micikevicius et al. 2018 (arXiv:1710.03740).
    """
    if not isinstance(recorder, Recorder):
        raise ValueError(f"recorder must be a simfloat.Recorder, got a {type(recorder).__name__}.")
    phase = _counted_phase(recorder, path, operation) if phase == AUTO else phase
    histogram = _histogram(recorder, path, phase, operation)
    if not any(histogram.values()):
        raise ValueError(_nothing_message(phase, recorder, path, operation))
    figure, axes = new_figure(1, 1, COLUMN_WIDTH, HEIGHT)
    _draw_exponents(
        axes, histogram, format=format, scale=scale, log=log, title=title, name=NAMES[phase],
        where=f"{path}: " if path else "",
    )  # fmt: skip
    if format is not None:
        add_legend(figure, axes, columns=3)
    return figure


def _histogram(recorder: Recorder, path: str | None, phase: str | None, operation: str | None) -> Histogram:
    """Return the exponents of a phase; those of the backward pass without the casts of operands."""
    histogram = recorder.histogram(path, phase, operation=operation)
    if phase == "backward" and operation is None:
        operations = {key.operation for key, _ in recorder.entries() if matches(path, key.path)}
        for cast in sorted(operations & OPERAND_CASTS):
            for exponent, count in recorder.histogram(path, phase, operation=cast).items():
                histogram[exponent] -= count
    return histogram


def _counted_phase(recorder: Recorder, path: str | None, operation: str | None) -> str | None:
    """Return the default phase: the first preferred one in which a finite result was counted, or None."""
    counted = (p for p in PREFERRED if any(_histogram(recorder, path, p, operation).values()))
    return next(counted, None)


def _nothing_message(phase: str | None, recorder: Recorder, path: str | None, operation: str | None) -> str:
    """Return the message if there is nothing to draw, with the phases in which something was counted."""
    counts = {p: sum(_histogram(recorder, path, p, operation).values()) for p in PREFERRED}
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
    title: str | None = None,
    name: str = "value",
) -> None:
    """Draw the exponents of values as a histogram in percent, with a separate bar for zeros.

    The bar over [e, e + 1) counts the values from 2^e up to 2^(e + 1). Over wide ranges a bar covers two binades or
    more. With a format, its normal numbers (darker) and subnormal numbers (lighter) are shaded. A line above the axes
    shows its range and the share of nonzero values in it, which the format keeps. The other values are lost; their
    bars are hatched. The share is computed by binades: a value that rounds up to the smallest number counts as lost,
    and a value beyond the largest number in the last binade counts as kept.

    Parameters:
        axes: matplotlib's axes.
        histogram: an array of values, or the result of `Recorder.histogram`.
        format: the format or its name; by default none.
        scale: a power of two by which all values are multiplied before they are rounded to the format. Bars are
            drawn at the exponents without the scale; a second line shows the values that the scale brings into the
            format.
        log: True for a logarithmic axis of percentages.
        title: the title; by default the share of values that the format keeps, or the range of the values.
        name: the singular noun for a value in the labels, such as "gradient".

    Raises:
        ValueError: if there are no finite values; if `scale` is not a power of two, or is given without a format; if
            a histogram has invalid keys or negative counts.
    """
    _draw_exponents(axes, histogram, format=format, scale=scale, log=log, title=title, name=name)


@project_style()
def _draw_exponents(
    axes: Axes,
    histogram: Histogram | ArrayLike,
    *,
    format: FormatLike | None,
    scale: float,
    log: bool,
    title: str | None,
    name: str,
    where: str = "",
) -> None:
    """Draw exponents as `draw_exponents` does; the default title begins with `where`."""
    counts = histogram if isinstance(histogram, Mapping) else histogram_of_values(histogram)
    k, shown_format = _power_of_two(scale), None if format is None else as_format(format)
    if shown_format is None and k:
        raise ValueError(f"scale={scale!r} also needs a format, such as format=simfloat.FP16.")
    total = sum(counts.values())
    if strange := [key for key in counts if key != "zero" and not isinstance(key, int | np.integer)]:
        raise ValueError(f"The keys of a histogram are integers and 'zero'; got the key {strange[0]!r}.")
    if any(number < 0 for number in counts.values()):
        raise ValueError(f"The counts of a histogram must not be negative, got {dict(counts)!r}.")
    if not total:
        raise ValueError("The histogram is empty: it has no finite values.")
    bars, binades = _bars(counts, total), None if shown_format is None else format_binades(shown_format)
    first, last = _limits(bars, binades, k)
    zero_width = max(1.0, (last - first) / 28)
    zero = first - 2 * zero_width
    _draw_bars(axes, bars, binades, k)
    zeros = 100 * counts.get("zero", 0) / total
    axes.bar(zero, zeros, zero_width, color=GREY)
    axes.set_xlim(zero - zero_width, last)
    if log:
        axes.set_ylim(_axis_floor([*bars.percent, zeros]), 100)
        make_logarithmic(axes)
    else:
        _cut_zeros(axes, bars, zero + zero_width / 2, zeros)
    _name_exponents(axes, zero, first, last)
    label_axes(
        axes, xlabel=f"$\\log_2$|{plain_label(name)}|", ylabel=f"{plain_label(name)}s (%)",
        title=title_or(title, lambda: plain_label(where) + exponents_finding(counts, shown_format, scale, name)),
    )  # fmt: skip
    if shown_format is not None:
        draw_ranges(axes, shown_format, k, counts, (first, last))


def exponents_finding(histogram: Histogram, format: Format | None, scale: float, name: str) -> str:
    """Return the share of values that the format keeps, with and without the scale; without a format, their range."""
    values, exponents = f"{plain_label(name)}s", [e for e, count in histogram.items() if e != "zero" and count]
    if not exponents:
        return f"All {values} are zero" if histogram.get("zero") else ""
    if format is None:
        low, high = math.ldexp(1.0, int(min(exponents))), int(max(exponents)) + 1
        return f"{values.capitalize()} from {log2_text(low)} to below $2^{{{high}}}$"
    binades, k = format_binades(format), _power_of_two(scale)
    share = percent_text(count_in_range(histogram, binades).share)
    shown = plain_label(format.name or str(format))
    if not k:
        return f"{shown} keeps {share} of the nonzero {values}"
    scaled = percent_text(count_in_range(histogram, binades.shift(k)).share)
    without = "as without it" if scaled == share else f"{share} without"
    return f"{shown} keeps {scaled} of the nonzero {values} with a scale of $2^{{{k}}}$, {without}"


def _power_of_two(scale: float) -> int:
    """Return the exponent of a scale; raise ValueError if it is not a power of two."""
    mantissa, exponent = math.frexp(scale) if isinstance(scale, int | float) and math.isfinite(scale) else (0.0, 0)
    if mantissa != 0.5:
        raise ValueError(f"scale must be a power of two, such as 2**10, got {scale!r}.")
    return exponent - 1


def _bars(histogram: Histogram, total: int) -> Bars:
    """Return the bars of the nonzero values."""
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
    """Return the first and last exponent of the axis: all values, and the part of the format near them."""
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
    """Draw the bars of values that the format keeps anyway, that the scale adds, and that are lost."""
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
    """Return True for each bar that overlaps the binades."""
    if binades is None:
        return np.ones(len(bars.starts), bool)
    return (bars.starts + bars.width > binades.lowest) & (bars.starts <= binades.highest)


def _name_exponents(axes: Axes, zero: float, first: int, last: int) -> None:
    """Set a tick for zero, and at most seven for exponents."""
    step = next(step for step in (1, 2, 4, 5, 10, 20, 50, 100, 200, 500) if (last - first) / step <= 7)
    ticks = [tick for tick in range(-(-first // step) * step, last + 1, step) if tick - zero > (last - first) / 9]
    axes.set_xticks([zero, *ticks], ["zero", *(str(tick).replace("-", "\N{MINUS SIGN}") for tick in ticks)])


def _cut_zeros(axes: Axes, bars: Bars, right: float, zeros: float) -> None:
    """End the axis above the other bars if zeros would dwarf them, and write the percentage of zeros."""
    highest = max(bars.percent, default=0.0)
    if zeros > 2 * highest > 0:
        axes.set_ylim(0, 1.3 * highest)
        axes.text(right, 1.29 * highest, f" {zeros:.3g}%", fontsize="small", ha="left", va="top")


def _axis_floor(percent: list[float]) -> float:
    """Return the lower limit of a logarithmic axis of percentages: a power of ten below the smallest."""
    return 10.0 ** math.floor(math.log10(min(each for each in percent if each)) - 0.3)
