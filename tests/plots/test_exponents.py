"""Histograms of exponents: the heights of bars, the bars that a format keeps, and texts that fit the figure."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.plots import COLUMN_WIDTH, draw_exponents, exponents, new_figure, save_figure

HISTOGRAM = {-40: 10, -26: 10, -20: 30, -14: 5, 3: 5, "zero": 40}


def drawn(histogram, **options):
    figure, axes = new_figure(1, 1, COLUMN_WIDTH, 2.5)
    draw_exponents(axes, histogram, **options)
    return axes


def bars(axes):
    """Heights by label and place."""
    found = {}
    for container in axes.containers:
        for bar in container:
            if bar.get_height():
                found.setdefault(container.get_label(), {})[bar.get_x()] = bar.get_height()
    return found


def words(axes):
    return [text.get_text() for text in axes.texts]


def test_bars_are_percentages_of_all_values_zeros_included():
    found = bars(drawn(HISTOGRAM))
    assert found["kept"] == {-40: 10, -26: 10, -20: 30, -14: 5, 3: 5}
    ((place, zeros),) = next(each for label, each in found.items() if label != "kept").items()
    assert zeros == 40 and place < -41, "zeros stand apart, on the left"


def test_bars_that_a_format_keeps_differ_from_those_that_it_loses():
    axes = drawn(HISTOGRAM, format=sf.FP16)
    assert bars(axes)["lost"] == {-40: 10, -26: 10} and bars(axes)["kept"] == {-20: 30, -14: 5, 3: 5}
    assert words(axes) == ["FP16: keeps 66.7%"]


def test_a_scale_may_save_values_below_and_lose_values_above():
    axes = drawn(HISTOGRAM, format="fp16", scale=2.0**13)
    found = bars(axes)
    assert (found["kept"], found["kept if scaled"]) == ({-20: 30, -14: 5}, {-26: 10})
    assert found["lost"] == {-40: 10, 3: 5}
    assert words(axes) == ["FP16: keeps 66.7%", "FP16 $\\cdot$ scale $2^{13}$: keeps 75%"]


def test_normal_and_subnormal_numbers_of_the_format_are_shaded():
    shades = [patch for patch in drawn(HISTOGRAM, format=sf.FP16).patches if patch.get_height() == 1]
    assert [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in shades] == [(-24, -14), (-14, 16)]
    flushed = sf.Format(5, 10, subnormals=False)
    shades = [patch for patch in drawn(HISTOGRAM, format=flushed).patches if patch.get_height() == 1]
    assert [patch.get_x() for patch in shades] == [-14]


def test_zeros_that_dwarf_all_else_are_cut_off_and_written():
    axes = drawn({-3: 10, -2: 5, "zero": 985})
    assert axes.get_ylim()[1] == 1.3 and words(axes) == [" 98.5%"]
    assert not words(drawn({-3: 10, -2: 5, "zero": 985}, log=True)), "a logarithmic axis shows both"


def test_a_logarithmic_axis_begins_below_the_smallest_bar():
    axes = drawn({-3: 1, -2: 9_999, "zero": 90_000}, log=True)
    assert axes.get_yscale() == "log" and axes.get_ylim() == (1e-4, 100)


def test_over_wide_ranges_a_bar_covers_several_binades():
    histogram = {exponent: 1 for exponent in range(-100, 100)}
    found = bars(drawn(histogram))["kept"]
    assert len(found) <= 64 and sum(found.values()) == pytest.approx(100)
    assert min(found) == -100 and set(found.values()) == {2.0}


def test_all_and_nothing_are_said_of_nothing_else():
    for inside, below, text in ((99_999, 1, "over 99.9%"), (1, 99_999, "under 0.1%"), (1, 0, "100%"), (0, 1, "0%")):
        assert words(drawn({0: inside, -30: below}, format=sf.FP16)) == [f"FP16: keeps {text}"]


def test_every_histogram_has_a_figure_with_a_tick_for_zero():
    plain, narrow, wide = {}, {"format": sf.E2M1, "scale": 2.0**60, "log": True}, {"format": sf.FP64, "log": True}
    extremes, mostly_zero = {-1074: 1, 1023: 1, "zero": 0}, {5: 1, "zero": 10**9}
    for histogram, options in (
        ({"zero": 3}, wide), ({"zero": 3}, plain), ({0: 1}, narrow), (extremes, plain), (extremes, narrow),
        (mostly_zero, wide),
    ):  # fmt: skip
        axes = drawn(histogram, **options)
        axes.figure.canvas.draw()
        labels = [text.get_text() for text in axes.get_xticklabels()]
        assert labels[0] == "zero" and len(labels) <= 9


@pytest.fixture
def recorder(rng):
    recorder, model = sf.Recorder(), sf.nn.MLP([3, 4, 2], rng=0)
    with sf.simulate("fp32", observer=recorder):
        sf.nn.cross_entropy(model(rng.standard_normal((8, 3))), np.arange(8) % 2).backward()
    return recorder


def test_a_recorders_gradients_are_drawn_within_the_figure(recorder, tmp_path):
    figure = exponents(recorder, "*.weight", format=sf.E4M3, scale=2**8)
    (axes,) = figure.axes
    assert axes.get_title().startswith("*.weight: E4M3 keeps") and axes.get_ylabel() == "gradients (%)"
    assert figure.get_size_inches()[0] == COLUMN_WIDTH
    (bar,) = [bars(axes)[label] for label in ("kept",)]
    total = recorder.counts("*.weight", "backward")["total"]
    inside = [e for e in recorder.histogram("*.weight", "backward") if e != "zero" and -9 <= e <= 0]
    assert sorted(bar) == sorted(inside) and total == 20
    save_figure(figure, tmp_path / "figure.png")
    box = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
    texts = [text for text in figure.findobj(lambda artist: hasattr(artist, "get_fontsize")) if text.get_text()]
    assert min(text.get_fontsize() for text in texts) >= 7


def test_operands_of_the_backward_pass_are_not_drawn_as_gradients():
    seen, layer = sf.Recorder(), sf.nn.Linear(3, 2, rng=0)
    with sf.simulate("bf16-standard", observer=seen):
        sf.nn.mse_loss(layer(np.full((4, 3), 2.0**40)), np.zeros((4, 2))).backward()
    both, casts = seen.histogram("", "backward"), seen.histogram("", "backward", operation="cast_input")
    assert casts[40] == 12  # the input, which the product of the weight's gradient rounds again
    drawn = bars(exponents(seen, "").axes[0])["kept"]
    assert set(drawn) == {e for e, count in both.items() if e != "zero" and count > casts.get(e, 0)}


@pytest.mark.parametrize(
    "phases, name", [(["forward"], "results"), (["forward", "backward"], "gradients"), (["update"], "updated values")]
)
def test_without_a_phase_it_draws_one_that_was_counted(phases, name):
    recorder, seen = sf.Recorder(), sf.Recorder()
    sf.round(np.array([1.0, 0.25, 0.25]), "fp16", observer=seen)
    for phase in phases:
        recorder.observe(seen.entries()[0][1], "round", "", phase)
    (axes,) = exponents(recorder).axes
    assert axes.get_ylabel() == f"{name} (%)" and set(bars(axes)["kept"]) == {-2, 0}


@pytest.mark.parametrize("ask, message", [
    (lambda r: exponents({0: 1}), "recorder must be a simfloat.Recorder, got a dict"),
    (lambda r: exponents(sf.Recorder()), "There is nothing to draw: no finite result was counted."),
    (lambda r: exponents(r, phase="update"), r"no finite result was counted in phase 'update'; counted were \d+ in"),
    (lambda r: exponents(r, "haed.weight"), "path 'haed.weight' matches nothing.* Did you mean 'head.weight'"),
    (lambda r: exponents(r, phase="back"), "Unknown phase 'back'"),
    (lambda r: exponents(r, format="fp61"), "Unknown format 'fp61'"),
    (lambda r: exponents(r, format="fp16", scale=1000), r"scale must be a power of two, such as 2\*\*10, got 1000"),
    (lambda r: exponents(r, format="fp16", scale=0), "scale must be a power of two"),
    (lambda r: exponents(r, format="fp16", scale=-2), "scale must be a power of two"),
    (lambda r: exponents(r, format="fp16", scale=float("nan")), "scale must be a power of two"),
    (lambda r: exponents(r, format="fp16", scale="8"), "scale must be a power of two"),
    (lambda r: exponents(r, scale=8), "scale=8 also needs a format"),
    (lambda r: draw_exponents(None, {0: 2, 1: -1}), "The counts of a histogram must not be negative"),
    (lambda r: draw_exponents(None, {1.5: 2}), "The keys of a histogram are integers and 'zero'; got the key 1.5"),
])  # fmt: skip
def test_an_argument_that_cannot_be_drawn_is_refused(recorder, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(recorder)


def test_an_array_is_drawn_as_its_histogram(rng):
    values = np.concatenate((rng.standard_normal(500) * 2.0**-20, [0.0, -0.0, np.nan, np.inf, 5e-324, -1.7e308]))
    exponents = [e for e in np.floor(np.log2(np.abs(values[np.isfinite(values) & (values != 0)]))).astype(int).tolist()]
    histogram = {e: exponents.count(e) for e in exponents} | {"zero": 2}
    assert bars(drawn(values.reshape(2, -1))) == bars(drawn(histogram))
    with pytest.raises(ValueError, match="The histogram is empty"):
        drawn([np.nan])
