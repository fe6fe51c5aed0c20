"""The share of updates that leave a weight unchanged: lost, or deferred."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.plots import COLUMN_WIDTH, Curve, draw_lost_updates, lost_updates, new_figure, unchanged_share


def drawn(lost, deferred=(), **words):
    figure, axes = new_figure(1, 1, COLUMN_WIDTH, 2.4)
    draw_lost_updates(axes, lost, deferred, **words)
    figure.canvas.draw()
    return axes


def curve(label, *rows):
    return Curve(label, np.arange(len(rows[0])), np.array(rows))


def test_a_step_without_updates_has_no_share():
    assert unchanged_share([1, 0, 3], [2, 0, 3])[[0, 2]].tolist() == [0.5, 1.0]
    assert np.isnan(unchanged_share([1, 0, 3], [2, 0, 3])[1])


@pytest.mark.parametrize("unchanged, total, message", [
    ([1, 2], [3], r"unchanged and total must have the same shape, got \(2,\) and \(1,\)"),
    ([3], [2], "Every count in unchanged must be from 0"),
    ([-1], [2], "Every count in unchanged must be from 0"),
])  # fmt: skip
def test_more_updates_than_there_were_cannot_be_lost(unchanged, total, message):
    with pytest.raises(ValueError, match=message):
        unchanged_share(unchanged, total)


def test_lost_updates_stand_over_a_shade_and_deferred_ones_do_not():
    axes = drawn([curve("nearest", [0.0, 0.5], [0.5, 1.0])], [curve("_kahan$", [0.25, np.nan])], title="t$")
    lost, deferred = axes.lines
    assert lost.get_ydata().tolist() == [25, 75] and deferred.get_ydata().tolist()[0] == 25
    assert [line.get_label() for line in axes.lines] == ["nearest: lost", " _kahan\\$: deferred"]
    assert lost.get_linewidth() > deferred.get_linewidth()
    lowest = [shade.get_paths()[0].vertices[:, 1].min() for shade in axes.collections]
    assert lowest == [0, 25], "the other band is the spread over seeds"
    assert axes.get_title() == "t\\$"


@pytest.fixture(scope="module")
def recorders():
    def recorded(policy, steps=4):
        recorder, model = sf.Recorder(), sf.nn.MLP([3, 4, 2], rng=0)
        optimizer = sf.optim.SGD(model.parameters(), lr=1e-4)
        x = np.random.default_rng(0).standard_normal((8, 3))
        with sf.simulate(policy, observer=recorder):
            for _ in range(steps):
                optimizer.zero_grad()
                sf.nn.cross_entropy(model(x), np.arange(8) % 2).backward()
                optimizer.step()
                recorder.step()
        return recorder

    return {"nearest": recorded("bf16-standard"), "Kahan": recorded("bf16-kahan")}


def test_what_recorders_counted_is_drawn_step_by_step(recorders):
    figure = lost_updates(recorders, "*.weight", deferred=["Kahan"], title="BF16")
    (axes,) = figure.axes
    assert [line.get_label() for line in axes.lines] == ["nearest: lost", "Kahan: deferred"]
    counts = recorders["nearest"].series("*.weight", "update")
    assert np.allclose(axes.lines[0].get_ydata(), 100 * counts["unchanged"] / counts["total"])
    assert max(axes.lines[0].get_ydata()) > 50 and figure.get_size_inches()[0] == COLUMN_WIDTH


@pytest.mark.parametrize("ask, message", [
    (lambda r: drawn([]), "draw_lost_updates takes lists of curves, got none"),
    (lambda r: drawn([curve("a", [0.5, 1.5])]), "Shares lie from 0 to 1; those of 'a' do not"),
    (lambda r: lost_updates({}), "lost_updates takes recorders by their labels, got none"),
    (
        lambda r: lost_updates(r["Kahan"]),
        "lost_updates takes recorders by their labels, got a Recorder: write {'bf16': rec",
    ),
    (lambda r: lost_updates({"a": {}}), "a must be a simfloat.Recorder, got a dict"),
    (lambda r: lost_updates(r, deferred=["Kahn"]), "deferred names 'Kahn', but the recorders are nearest, Kahan"),
    (lambda r: lost_updates({"a": sf.Recorder()}), "a counted no update in any step: call Recorder.step"),
    (lambda r: lost_updates(r, "haed.*"), r"path 'haed\.\*' matches nothing"),
])  # fmt: skip
def test_a_recorder_without_updates_is_refused(recorders, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(recorders)
