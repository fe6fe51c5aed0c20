"""The points of a sweep: their set, their order, and invalid ones."""

import pytest

from experiments.grid import Axis, Level, points, read_levels, split
from simfloat.studies.sweeping import MOST_POINTS

AXES = (Axis("size", "a whole number", int, ("1", "2")), Axis("seed", "a whole number", int), Axis("word", "text", str))


def combinations(*assignments):
    return [tuple(level.label for level in point.values()) for point in points(read_levels(AXES, assignments))]


def test_points_are_all_combinations_the_last_axis_fastest_whatever_the_order_given():
    want = [(4, 0, "a"), (4, 0, "b"), (4, 1, "a"), (4, 1, "b"), (3, 0, "a"), (3, 0, "b"), (3, 1, "a"), (3, 1, "b")]
    assert combinations("size=4,3", "seed=0,1", "word=a,b") == want
    assert combinations("word=a,b", "seed=0,1", "size=4,3") == want


def test_an_axis_that_is_not_named_has_its_standard_values_or_is_left_out():
    assert combinations("seed=7") == [(1, 7), (2, 7)]
    assert list(read_levels(AXES, ["seed=7"])) == ["size", "seed"]


def test_numbers_are_labels_themselves_and_other_values_the_text_that_was_written():
    assert Level("007", 7).label == 7 and Level("my.toml", object()).label == "my.toml"
    assert Level("bf16", "BF16").label == "bf16"


@pytest.mark.parametrize("text, parts", [
    ("a", ["a"]),
    ("a, b ,c", ["a", "b", "c"]),
    ("blocked(32, inner=FP16, outer=f(1, 2)),FP32", ["blocked(32, inner=FP16, outer=f(1, 2))", "FP32"]),
    ("cast(E4M3, scale=block([1, 128])),b", ["cast(E4M3, scale=block([1, 128]))", "b"]),
    ("a),b", ["a)", "b"]),
    (",", ["", ""]),
])  # fmt: skip
def test_commas_inside_of_brackets_separate_nothing(text, parts):
    assert split(text) == parts


@pytest.mark.parametrize("assignments, message", [
    (["sed=1"], r"Unknown axis 'sed'\. Did you mean 'seed'\? Axes:\n  size: a whole number\n  seed: a whole number"),
    (["=1"], "Unknown axis ''"),
    (["seed"], "'seed' is not of the form AXIS=a,b,c"),
    (["seed=1,2,01"], "The axis seed has the value '01' twice"),
    (["seed=1", "seed=2"], "The axis seed is given twice; give all its values at once: seed=a,b"),
    (["seed="], "The axis seed has an empty value in 'seed='"),
    (["word=a,,b"], "empty value"),
    (["word=a,"], "empty value"),
    (["seed=1,two"], "The axis seed does not take 'two': "),
    ([f"seed={','.join(map(str, range(MOST_POINTS)))}"], f"{2 * MOST_POINTS} points, more than {MOST_POINTS}"),
])  # fmt: skip
def test_an_invalid_axis_or_value_is_refused(assignments, message):
    with pytest.raises(ValueError, match=message):
        read_levels(AXES, assignments)
