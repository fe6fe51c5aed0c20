"""The front of a search: positions of points and texts."""

import math
from dataclasses import replace

import pytest

import simfloat as sf
from simfloat.plots import COLUMN_WIDTH, draw_front, front, new_figure
from simfloat.studies import Confirmation, Search, SearchPoint

FP32 = sf.policies["fp32"]
POINTS = (
    SearchPoint("fp32", FP32, 96.0, 1.0, 1.0, 1.0, 5, "reference"),
    SearchPoint("a=E4M3, b_$=BF16", FP32, 40.0, 1.005, 1.003, 1.007, 5, "within"),
    SearchPoint("b=BF16", FP32, 80.0, 1.006, 1.005, 1.007, 2, "within"),
    SearchPoint("all", FP32, 24.0, math.inf, math.inf, math.inf, 1, "diverged"),
    SearchPoint("c", FP32, 30.0, 1.3, 0.0, math.inf, 1, "far"),
)
FOUND = Search(
    FP32, "a=E4M3, b_$=BF16", "fp32", 0.01, 40.0, 96.0, Confirmation(1.004, 1.002, 1.006, (5, 6)), POINTS, 20, 25
)  # fmt: skip


def drawn():
    figure, axes = new_figure(1, 1, COLUMN_WIDTH, 2.8)
    draw_front(axes, FOUND)
    figure.canvas.draw()
    return axes


def test_points_stand_at_their_cost_and_percent_far_ones_at_the_edge():
    axes = drawn()
    marks = {
        (line.get_marker(), *map(float, (line.get_xdata()[0], round(line.get_ydata()[0], 6)))) for line in axes.lines
    }
    assert {("o", 96.0, 0.0), ("o", 40.0, 0.5), ("o", 80.0, 0.6), ("^", 24.0, 4.0), ("^", 30.0, 4.0)} <= marks
    assert ("D", 40.0, 0.4) in marks, "the answer stands at its ratio on fresh seeds"


def test_the_answer_the_reference_and_the_share_are_named():
    texts = [text.get_text() for text in drawn().texts]
    assert texts == ["within 1 %", "a=E4M3\nb_\\$=BF16", "fp32"]


def test_an_answer_is_drawn_though_its_rounded_mean_passes_an_end_and_costs_may_be_nothing():
    ends = Confirmation(math.nextafter(1.001, 2), 1.001, 1.001, (5, 6))
    found = replace(FOUND, confirmation=ends, cost=-3.0, reference_cost=0.0)
    front(found)
    assert found.answer.startswith("a=E4M3, b_$=BF16 costs -3; loss / fp32's")


def test_a_figure_is_made_of_what_a_search_gives():
    assert front(FOUND, title="mine").axes[0].get_title() == "mine"
    with pytest.raises(ValueError, match="takes a result of simfloat.search, got a list"):
        front([])
