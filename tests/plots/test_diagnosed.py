"""The losses of a diagnosis, drawn."""

import pytest

import simfloat as sf
from simfloat.analysis.diagnosis.mending import Diagnosis, Fault
from simfloat.plots import COLUMN_WIDTH, draw_diagnosis, new_figure

LOSSES = {"policy": [1.0, float("nan")], "mended": [1.0, 0.5, 0.25], "reference": [1.0, 0.5, 0.2]}
FAULTS = tuple(Fault("NaN", step, "update", f"layer_{step}", "divide", "0 / 0") for step in range(4))


def diagnosis(faults=FAULTS, losses=LOSSES):
    return Diagnosis(faults, sf.policies["fp32"], losses)


def drawn(found, **options):
    figure, axes = new_figure(1, 1, COLUMN_WIDTH, 2)
    draw_diagnosis(axes, found, **options)
    figure.canvas.draw()
    return axes


def test_there_is_a_line_for_each_training_and_one_for_each_of_the_first_faults():
    axes = drawn(diagnosis(), most=2, title="found")
    curves, marks = axes.lines[:3], axes.lines[3:]
    assert [line.get_label() for line in curves] == ["reference", "policy", "mended"]
    assert [list(line.get_xdata()) for line in marks] == [[0, 0], [1, 1]]
    assert [text.get_text() for text in axes.texts] == ["NaN (layer_0)", "NaN (layer_1)"]
    assert axes.get_yscale() == "log" and axes.get_title() == "found"


def test_losses_below_zero_have_a_plain_axis():
    assert drawn(diagnosis(losses={**LOSSES, "mended": [-1.0]})).get_yscale() == "linear"


@pytest.mark.parametrize("given, options, words", [
    (3, {}, "draw_diagnosis takes a result of simfloat.diagnose, got a int"),
    (diagnosis(), {"most": -1}, "most, the number of faults to name"),
    (diagnosis(losses=dict.fromkeys(LOSSES, [])), {}, "nothing to draw"),
])  # fmt: skip
def test_nonsense_is_refused(given, options, words):
    with pytest.raises(ValueError, match=words):
        drawn(given, **options)
