"""The numbers of formats as ticks."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.plots import COLUMN_WIDTH, draw_number_line, fit_figure, new_figure


def drawn(formats, **options):
    figure, axes = new_figure(1, 1, COLUMN_WIDTH, 2)
    draw_number_line(axes, formats, **options)
    fit_figure(figure)
    figure.canvas.draw()
    return axes


def ticks(axes):
    """Places of normal and of subnormal ticks, row by row."""
    segments = [each.get_segments() for each in axes.collections if hasattr(each, "get_segments")]
    return [[float(line[0][0]) for line in each] for each in segments]


def test_every_number_of_a_small_format_has_a_tick_and_zero_a_dot():
    normal, subnormal = ticks(drawn([sf.E2M1]))
    assert normal == [-6, -4, -3, -2, -1.5, -1, 1, 1.5, 2, 3, 4, 6] and subnormal == [-0.5, 0.5]
    (zero,) = drawn([sf.E2M1]).lines
    assert zero.get_xdata().tolist() == [0]


@pytest.mark.parametrize("format", [sf.E3M2, sf.E4M3, sf.E8M0, sf.p3109(8, 4)], ids=str)
def test_ticks_and_dot_together_are_all_numbers_of_the_format(format):
    axes = drawn([format], limits=(-20.0, 20.0))
    places = sorted(sum(ticks(axes), []) + [0.0] * len(axes.lines))
    assert places == [x for x in format.values().tolist() if -20 <= x <= 20]


def test_a_logarithmic_line_shows_positive_numbers_by_their_exponents():
    axes = drawn([sf.E2M1], log=True)
    normal, subnormal = ticks(axes)
    assert np.exp2(normal).tolist() == pytest.approx([1, 1.5, 2, 3, 4, 6]) and subnormal == [-1] and not axes.lines
    assert axes.get_xlim()[0] < -1 and axes.get_xlim()[1] > np.log2(6)
    assert ticks(drawn([sf.fixed(2)], log=True)) == [[0], []], "a number alone has room on both sides"


@pytest.mark.parametrize("format, log", [(sf.FP16, False), (sf.BF16, True), (sf.FP32, False), (sf.FP64, True)], ids=str)
def test_numbers_that_would_run_together_are_a_band_with_ticks_at_powers_of_two(format, log):
    axes = drawn([format], log=log, limits=(-8, 8))
    normal, subnormal = ticks(axes)
    powers = normal + subnormal if log else np.log2(np.abs(normal + subnormal))
    assert np.array_equal(powers, np.round(powers)) and len(axes.collections) == 3
    assert not log or sorted(normal) == list(range(-8, 9))


def test_the_band_of_a_wide_format_reaches_as_far_as_the_line_and_its_numbers():
    for options, ends in (
        ({"limits": (0.9, 1.1)}, (0.9, 1.1)),
        ({"limits": (-7, 7)}, (-7, 7)),
        ({"limits": (-200, 100), "log": True}, (-149, 100)),
    ):
        xs = drawn([sf.FP32], **options).collections[0].get_paths()[0].vertices[:, 0]
        assert (xs.min(), xs.max()) == ends


def test_names_stand_above_the_largest_numbers():
    axes = drawn([sf.E4M3, "bf16", sf.Format(3, 2, name="$mine_")], log=True)
    assert [text.get_text() for text in axes.get_yticklabels()] == [
        "E4M3\n$\\leq 448$",
        "BF16\n$\\leq 3.4\\cdot 10^{38}$",
        "\\$mine_\n$\\leq 14$",
    ]
    figure = axes.figure
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height


@pytest.mark.parametrize("limits, log", [((1e9, 1e10), False), ((0.9, 1.1), True)])
def test_a_line_on_which_a_format_has_few_numbers_or_none_is_drawn(limits, log):
    drawn([sf.E2M1, sf.FP64], limits=limits, log=log)


@pytest.mark.parametrize("formats, options, message", [
    ([], {}, r"draw_number_line takes a list of formats, got \[\]"),
    (sf.FP16, {}, "draw_number_line takes a list of formats, got Format"),
    ("fp16", {}, "draw_number_line takes a list of formats, got 'fp16'"),
    (["fp61"], {}, "Unknown format 'fp61'"),
    ([sf.FP16], {"limits": (1, 1)}, "limits must be two numbers in ascending order"),
    ([sf.FP16], {"limits": 5}, "limits must be two numbers in ascending order, got 5"),
    ([sf.FP16], {"limits": ("a", "b")}, "limits must be two numbers in ascending order"),
    ([sf.FP64], {}, r"A line from -1.79769e\+308 to 1.79769e\+308 is too long: give limits, or log=True"),
    ([sf.FP16], {"limits": (0, np.inf)}, "limits must be two numbers in ascending order"),
])  # fmt: skip
def test_an_invalid_line_is_refused(formats, options, message):
    with pytest.raises(ValueError, match=message):
        drawn(formats, **options)
