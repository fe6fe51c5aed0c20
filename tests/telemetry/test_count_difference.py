"""The comparison of two recorders."""

import pytest

import simfloat as sf


def recorded(*values):
    recorder = sf.Recorder()
    for each in values:
        sf.round(each, sf.FP16, observer=recorder)
    return recorder


def test_shares_that_differ_have_a_row_the_largest_first():
    this, other = recorded([1e5, 1.0, 1.0, 1e-9]), recorded([1.0, 1.0, 1e-9, 1e-9])
    assert this.diff(other).rows[1:] == (
        ("-", "round", "forward", "overflow", "1", "0", "25 %", "0 %"),
        ("-", "round", "forward", "underflow", "1", "2", "25 %", "50 %"),
    )


def test_longer_runs_with_the_same_shares_do_not_differ():
    assert len(recorded([1e5, 1.0]).diff(recorded([1e5, 1.0, 1e6, 2.0])).rows) == 1


def test_places_that_one_did_not_see_are_named():
    this = recorded([1.0])
    sf.add([1.0], [1.0], sf.FP16, observer=this)
    assert this.diff(recorded([1.0])).rows[1:] == (("-", "add", "forward", "total", "1", "0", "100 %", "0 %"),)


def test_other_things_are_refused():
    with pytest.raises(ValueError, match="diff takes another Recorder, got a dict"):
        sf.Recorder().diff({})
