"""The course of a loss scale."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.plots import COLUMN_WIDTH, draw_loss_scale, new_figure


def drawn(*arrays, **words):
    figure, axes = new_figure(1, 1, COLUMN_WIDTH, 2)
    draw_loss_scale(axes, *arrays, **words)
    figure.canvas.draw()
    return axes


def test_steps_that_were_skipped_are_marked_at_their_scale():
    axes = drawn([8.0, 4.0, 4.0, 8.0], [True, False, False, True], title="a_b$")
    line, marks = axes.lines
    assert line.get_ydata().tolist() == [8, 4, 4, 8] and line.get_drawstyle() == "steps-post"
    assert (marks.get_xdata().tolist(), marks.get_ydata().tolist()) == ([0, 3], [8, 8])
    assert marks.get_label() == "skipped (2 of 4)" and axes.get_title() == "a_b\\$"
    assert all("." not in text.get_text() for text in axes.get_xticklabels()), "steps are whole numbers"


def test_the_history_of_a_training_is_drawn(rng):
    model = sf.nn.MLP([3, 4, 2], rng=0)
    optimizer = sf.optim.SGD(model.parameters(), lr=0.1)
    batches = [(rng.standard_normal((4, 3)), np.arange(4) % 2)] * 6
    scaler = sf.optim.DynamicLossScale(init_scale=2.0**40, growth_interval=2)
    with sf.simulate(sf.Policy(compute=sf.FP16)):
        history = sf.train.fit(model, sf.nn.cross_entropy, batches, optimizer, scaler=scaler, progress=False)
    line, marks = drawn(history["scale"], history["skipped"]).lines
    assert line.get_ydata().tolist() == history["scale"] and len(marks.get_xdata()) == sum(history["skipped"]) > 0


def test_without_skipped_steps_there_are_no_marks():
    assert len(drawn([2.0, 4.0]).lines) == len(drawn([2.0, 4.0], [False, False]).lines) == 1


@pytest.mark.parametrize("arrays, message", [
    (({"scale": [1.0]},), r"scale must have one value per step, as history\['scale'\], got a dict"),
    (([1.0, 0.0],), "Scales must be positive, finite and one for each step"),
    (([1.0, np.inf],), "Scales must be positive"),
    (([[1.0], [2.0]],), "one for each step"),
    (([1.0, 2.0], [True]), r"2 scales need as many values of skipped, got an array of \(1,\)"),
])  # fmt: skip
def test_an_invalid_course_of_a_scale_is_refused(arrays, message):
    with pytest.raises(ValueError, match=message):
        drawn(*arrays)
