"""The events of a recorder by path and phase."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.plots import COLUMN_WIDTH, draw_events, fit_figure, new_figure


def drawn(recorder, *arguments, **options):
    figure, axes = new_figure(1, 1, COLUMN_WIDTH, 2.4)
    draw_events(axes, recorder, *arguments, **options)
    fit_figure(figure)
    figure.canvas.draw()
    return figure, axes


@pytest.fixture
def recorder():
    """A layer of which half the results of one operation underflow, and none of another."""
    recorder = sf.Recorder()
    vector = sf.kernels.events.no_events()
    for path, operation, phase, underflow in (
        ("_a$", "linear", "backward", 2),
        ("_a$", "add", "backward", 0),
        ("b.weight", "update", "update", 1),
        ("b", "linear", "forward", 0),
    ):
        vector[[sf.kernels.events.TOTAL, sf.kernels.events.UNDERFLOW]] = 4, underflow
        recorder.observe(vector, operation, path, phase)
    return recorder


def names(labels):
    return [text.get_text() for text in labels]


def test_a_cell_is_the_share_of_all_results_of_a_path_in_a_phase(recorder):
    figure, axes = drawn(recorder, title="t")
    assert names(axes.get_yticklabels()) == [" _a\\$", "b.weight", "b"]
    assert names(axes.get_xticklabels()) == ["forward", "backward", "update"]
    shares = np.ma.filled(np.ma.masked_invalid(axes.get_images()[0].get_array()), 0)
    assert shares.tolist() == [[0, 0.25, 0], [0, 0, 0.25], [0, 0, 0]]
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
    assert figure.axes[1].get_ylabel() == "underflow, share of results" and axes.get_title() == "t"


def test_a_pattern_selects_paths(recorder):
    _, axes = drawn(recorder, "underflow", "b*")
    assert names(axes.get_yticklabels()) == ["b.weight", "b"] and names(axes.get_xticklabels()) == ["forward", "update"]


@pytest.mark.parametrize("ask, message", [
    (lambda r: drawn({}), "recorder must be a simfloat.Recorder, got a dict"),
    (lambda r: drawn(r, "total"), "kind must be one of overflow, underflow, .* got 'total'"),
    (lambda r: drawn(sf.Recorder()), "The recorder counted nothing"),
    (lambda r: drawn(r, "nan", "c.*"), r"path 'c\.\*' matches nothing that was seen"),
])  # fmt: skip
def test_a_recorder_without_events_is_refused(recorder, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(recorder)
