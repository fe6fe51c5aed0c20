"""Error against length, and the bounds of theory."""

from fractions import Fraction

import numpy as np
import pytest

import simfloat as sf
from simfloat.plots import COLUMN_WIDTH, Curve, deterministic_bound, draw_errors, new_figure, probabilistic_bound


def drawn(*curves, **words):
    figure, axes = new_figure(1, 1, COLUMN_WIDTH, 2.4)
    draw_errors(axes, list(curves), **words)
    figure.canvas.draw()
    return axes


def drawn_bound(order, **words):
    figure, axes = new_figure(1, 1, COLUMN_WIDTH, 2.4)
    errors = sf.plots.draw_bound(axes, order, **words)
    figure.canvas.draw()
    return axes, errors


@pytest.mark.parametrize("format", [sf.E4M3, sf.BF16, sf.FP16, sf.FP32], ids=str)
def test_the_deterministic_bound_is_gamma_n(format):
    lengths, u = np.array([0, 1, 2, 7, 15, 100, 255]), Fraction(format.unit_roundoff)
    exact = [n * u / (1 - n * u) if n * u < 1 else np.inf for n in lengths.tolist()]
    assert np.allclose(deterministic_bound(lengths, format.unit_roundoff), [float(x) for x in exact], rtol=1e-15)


def test_the_deterministic_bound_ends_where_nu_is_one():
    assert deterministic_bound([2047, 2048, 5000], sf.FP16.unit_roundoff).tolist() == [2047.0, np.inf, np.inf]


def test_the_likely_bound_is_about_the_root_of_n_times_u():
    n, u = np.array([1.0, 100.0, 1e4]), sf.FP32.unit_roundoff
    assert np.allclose(probabilistic_bound(n, u, factor=3.0), 3 * np.sqrt(n) * u, rtol=1e-4)
    assert probabilistic_bound([1e300], u).tolist() == [np.inf]


def test_no_sum_is_off_by_more_than_the_deterministic_bound(rng):
    for n in (3, 50, 700):
        a, b = sf.round(rng.standard_normal((2, n)), sf.FP16)
        exact = sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a, b, strict=True))
        error = abs(Fraction(float(sf.dot(a, b, accumulate=sf.FP16))) - exact)
        assert error <= deterministic_bound(n, sf.FP16.unit_roundoff) * float((np.abs(a) * np.abs(b)).sum())


def test_errors_have_a_mean_and_a_band_and_bounds_as_far_as_they_say_something():
    lengths = np.array([10, 100, 1000, 10_000])
    errors = np.array([[0.0, 1e-3, 1e-2, 1e-1], [1e-4, 3e-3, 3e-2, 3e-1]])
    axes = drawn(Curve("a", lengths, errors), unit_roundoff=2.0**-11, factor=2.0)
    measured, nu, likely = axes.lines
    assert measured.get_ydata().tolist() == [5e-5, 2e-3, 2e-2, 2e-1] and len(axes.collections) == 1
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    last = nu.get_xdata()[np.isfinite(nu.get_ydata())].max()
    assert 1000 < last < 1024, "n u / (1 - n u) is 1 where n u is 1/2"
    assert np.isfinite(likely.get_ydata()).all() and likely.get_label() == "likely bound $2\\sqrt{n}u$"


def test_the_title_names_the_mean_error_if_there_are_several_samples():
    lengths, errors = np.array([10, 100]), np.array([[1e-3, 1e-2], [1e-3, 3e-2]])
    curves = [Curve("a", lengths, errors), Curve("b", lengths, errors / 2)]
    assert drawn(curves[0]).get_title() == "Largest mean error: 0.02 (length 100)"
    assert drawn(*curves).get_title().replace("\n", " ") == "a has the largest mean error: 0.02 (length 100)"
    assert drawn(Curve("a", lengths, errors[1])).get_title() == "Largest error: 0.03 (length 100)"


def test_a_legend_covers_no_line_and_no_band():
    """A wide band, and one that begins and ends in every corner."""
    lengths = np.array([10, 1000])
    for curve in (
        Curve("a name that is wide", lengths, np.array([[1e-6, 1e-2], [1.0, 1e-1]])),
        Curve("a", lengths, np.array([[1.0, 1e-3], [1e-3, 1.0]])),
    ):
        axes = drawn(curve, unit_roundoff=2.0**-11)
        box = axes.get_legend().get_window_extent()
        low, high = np.asarray(curve.values).min(0), np.asarray(curve.values).max(0)
        for share in np.linspace(0, 1, 41):
            x = 10.0 ** (1 + 2 * share)
            for ends in (low, high):
                y = ends[0] ** (1 - share) * ends[1] ** share
                assert not box.contains(*axes.transData.transform((x, y)))
        for line in axes.lines:
            points = line.get_xydata()
            assert not any(box.contains(*axes.transData.transform(p)) for p in points[np.isfinite(points[:, 1])])


def test_one_curve_and_its_bounds_have_a_legend():
    curve = Curve("a", np.array([10, 100]), np.array([1e-3, 1e-2]))
    texts = drawn(curve, unit_roundoff=np.float32(2.0**-11)).get_legend().get_texts()
    assert [text.get_text() for text in texts] == ["a", "bound $\\gamma_n$", "likely bound $\\sqrt{n}u$"]
    assert drawn(curve).get_legend() is None and drawn(curve._replace(style=0), unit_roundoff=0.5).get_legend() is None


@pytest.mark.parametrize("errors", [[[0.0, 0.0]], [[np.nan, np.nan]], [[1e-300, np.inf]], [0.1, 0.2]], ids=str)
def test_errors_of_every_kind_are_drawn(errors):
    drawn(
        Curve("a", np.array([1, 2]), np.array(errors)), **({} if errors == [0.1, 0.2] else {"unit_roundoff": 2.0**-4})
    )


@pytest.mark.parametrize("ask, message", [
    (lambda: drawn(), "draw_errors takes a list of curves, got none"),
    (lambda: drawn(Curve("a", [0, 1], np.ones((1, 2)))), "Lengths are positive and errors not negative; those"),
    (lambda: drawn(Curve("a", [1, 2], -np.ones((1, 2)))), "errors not negative"),
    (lambda: drawn(Curve("a", [1, 2], np.ones((1, 3)))), r"'a' has x of shape \(2,\) and values of shape \(1, 3\)"),
    (lambda: deterministic_bound([1], "fp16"), "unit_roundoff must be a number between 0 and 1"),
    (lambda: probabilistic_bound([1], 2.0), "unit_roundoff must be a number between 0 and 1"),
    (lambda: deterministic_bound([-1], 0.5), "Lengths must be zero or more"),
    (lambda: probabilistic_bound([1], 0.5, factor=-1), "factor must be a positive number, got -1"),
])  # fmt: skip
def test_what_has_no_error_against_length_is_refused(ask, message):
    with pytest.raises(ValueError, match=message):
        ask()


def test_the_name_of_an_accumulator_fits_into_the_figure_and_a_bound_at_one_length_is_visible():
    order = sf.sequential(sf.BF16, rounding=sf.stochastic())
    axes, _ = drawn_bound(order, lengths=(10, 200), samples=2)
    legend = axes.get_legend()
    assert legend.get_texts()[0].get_text().replace("\n", " ") == str(order)
    assert legend.get_window_extent().x1 <= axes.figure.bbox.x1
    _, bound, _ = axes.lines
    assert np.isfinite(bound.get_ydata()).tolist() == [True, False] and bound.get_marker() == "."
