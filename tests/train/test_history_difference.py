"""The comparison of two histories."""

import math

import pytest

import simfloat as sf
from simfloat.train import History


def history(losses, evaluations=(), **more):
    made = History()
    for step, loss in enumerate(losses):
        made.add({"loss": loss, "lr": 0.1, **{name: values[step] for name, values in more.items()}})
    for accuracy in evaluations:
        made.add_evaluation({"accuracy": accuracy})
    return made


def rows(found):
    return [row for row in found.rows[1:]]


def test_a_row_says_where_first_where_most_and_how_they_end():
    found = history([1.0, 2.0, 4.0, 1.0]).diff(history([1.0, 2.5, 1.0, 1.5, 7.0]))
    assert rows(found) == [("loss", "1", "2", "2.5", "75 %", "2", "4", "1", "3", "1", "1.5"),
                           ("lr", *[""] * 7, "steps", "4", "5")]  # fmt: skip


def test_columns_with_equal_bits_have_no_row():
    assert rows(history([1.0, math.nan]).diff(history([1.0, math.nan]))) == []
    assert len(rows(history([1.0]).diff(history([math.nextafter(1.0, 2)])))) == 1


def test_evaluations_and_columns_that_one_lacks_are_named():
    found = rows(history([1.0], [0.5], norm2=[1.0]).diff(history([1.0], [0.25])))
    assert found[0][:5] == ("evaluate: accuracy", "0", "0.5", "0.25", "50 %")
    assert found[1][0] == "norm2" and found[1][-3:] == ("only in", "this", "")


def test_a_value_that_is_not_finite_is_the_largest_difference():
    found = rows(history([1.0, 2.0, 3.0]).diff(history([1.5, math.nan, 3.0])))
    assert found[0][4:8] == ("not finite", "1", "2", "nan")


def test_other_things_are_refused():
    with pytest.raises(ValueError, match="diff takes another History, got a list"):
        history([1.0]).diff([1.0])
    assert isinstance(history([1.0]).diff(history([2.0])), str) and sf.train.History is History


def test_a_column_that_a_history_lacks_is_refused_with_the_nearest():
    history = History()
    with pytest.raises(KeyError, match="A history has no 'losses'. It has loss, .* Did you mean 'loss'"):
        history["losses"]
    assert "losses" not in history and history.get("losses") is None
