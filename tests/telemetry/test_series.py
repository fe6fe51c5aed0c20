"""Counts step by step, and as comma-separated values."""

import copy
import csv

import numpy as np
import pytest

import simfloat as sf

COUNTS = ["total", "overflow", "underflow", "subnormal", "nan", "unchanged"]


@pytest.fixture
def recorder():
    recorder = sf.Recorder()
    for step in range(4):
        sf.add(np.ones(step), np.full(step, 2.0**-20), sf.FP16, observer=recorder)
        if step >= 2:
            sf.multiply([1e-7, 1e5, 2.0], [1e-7, 1e5, 1.0], sf.FP16, observer=recorder)
        recorder.step()
    return recorder


def test_a_step_has_what_was_counted_since_the_last_one(recorder):
    series = recorder.series(operation="add")
    assert list(series) == COUNTS
    assert series["total"].tolist() == series["unchanged"].tolist() == [0, 1, 2, 3]


def test_a_place_that_appears_in_a_later_step_has_zeros_before(recorder):
    series = recorder.series(operation="multiply")
    assert series["total"].tolist() == [0, 0, 3, 3]
    assert series["overflow"].tolist() == series["underflow"].tolist() == [0, 0, 1, 1]


def test_steps_add_up_to_the_counts(recorder):
    for question in ({}, {"operation": "add"}, {"phase": "update"}, {"path": "", "phase": "forward"}):
        sums = {kind: int(numbers.sum()) for kind, numbers in recorder.series(**question).items()}
        assert sums == recorder.counts(**question)
    sf.add([1.0], [1.0], sf.FP16, observer=recorder)
    assert len(recorder.series()["total"]) == 4 and recorder.counts()["total"] == recorder.series()["total"].sum() + 1


def test_a_reset_forgets_the_steps_too(recorder):
    recorder.reset()
    assert {kind: numbers.tolist() for kind, numbers in recorder.series().items()} == {kind: [] for kind in COUNTS}
    sf.add([1.0, 1.0], [1.0, 1.0], sf.FP16, observer=recorder)
    recorder.step()
    assert recorder.series()["total"].tolist() == [2]


def test_series_are_the_askers_own(recorder):
    recorder.series()["total"][:] = 0
    assert recorder.series()["total"].sum() == recorder.counts()["total"]


def test_a_copy_has_steps_of_its_own(recorder):
    twin = copy.copy(recorder)
    twin.step()
    assert (len(recorder.series()["total"]), len(twin.series()["total"])) == (4, 5)


def asked(recorder):
    """All values that a recorder returns."""
    scalars = {name: str(column) for name, column in recorder.scalars().items()}  # NaN is no number to compare
    series = {kind: column.tolist() for kind, column in recorder.series().items()}
    adds = {kind: column.tolist() for kind, column in recorder.series(operation="add").items()}
    return recorder.table(), recorder.counts(), recorder.histogram(), series, adds, scalars


def go_on(recorder):
    sf.subtract(np.ones(3), 2.0**-20, sf.FP16, observer=recorder)
    sf.add([1.0], [1.0], sf.FP16, observer=recorder)
    recorder.step(loss=0.5)
    return asked(recorder)


def test_a_restored_recorder_continues_where_the_saved_one_was(recorder, tmp_path):
    recorder.step(loss=1.5, norm=np.inf)
    sf.multiply([1e5], [1e5], sf.FP16, observer=recorder)
    sf.save(tmp_path / "x", recorder=recorder)
    other = sf.Recorder()
    go_on(other)
    sf.load(tmp_path / "x", recorder=other)
    assert asked(other) == asked(recorder)
    assert go_on(other) == go_on(recorder)


@pytest.mark.parametrize("made", [dict(), dict(path="head.*"), dict(phase="update"), dict(more=True)], ids=str)
def test_a_recorder_that_saw_nothing_is_restored_too(made):
    recorder, other = sf.Recorder(**made), sf.Recorder(**made)
    sf.add([1.0], [1.0], sf.FP16, observer=other)
    other.load_state_dict(recorder.state_dict())
    assert other.entries() == [] and repr(other) == repr(recorder)


@pytest.mark.parametrize("state, message", [
    (None, "takes a result of Recorder.state_dict, got None"),
    ({"keys": []}, "takes a result of Recorder.state_dict, got {'keys': ..}"),
    (sf.Recorder(path="").state_dict(), r"The state belongs to Recorder\(path=''\), but this is Recorder\(\)"),
    (sf.Recorder(more=True).state_dict(), r"The state belongs to Recorder\(more=True\), but this is Recorder\(\)"),
    (sf.Recorder().state_dict() | {"counts": 3}, "takes a result of Recorder.state_dict, got {'counts': 3"),
    *(
        (sf.Recorder().state_dict() | {part: 3}, "takes a result of Recorder.state_dict, and this one is damaged: ")
        for part in ("keys", "places", "series", "scalars", "first_nan")
    ),
])  # fmt: skip
def test_an_invalid_state_is_refused_and_changes_nothing(recorder, state, message):
    before = asked(recorder)
    with pytest.raises(ValueError, match=message):
        recorder.load_state_dict(state)
    assert asked(recorder) == before


def test_a_training_shows_updates_that_are_lost_more_and_more():
    recorder = sf.Recorder(phase="update")
    w = sf.Parameter(np.float32([1.0, 1.0]))
    w.name = "w"
    with sf.simulate("bf16-standard", observer=recorder):
        for lr in (1.0, 2.0**-6, 2.0**-12):
            w.data, w.grad = np.ones(2), np.array([-1.0, -(2.0**-6)])
            sf.optim.SGD([w], lr=lr).step()
            recorder.step()
    assert recorder.series("w", operation="update")["unchanged"].tolist() == [0, 1, 2]


def read(file):
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_comma_separated_values_are_the_counts(recorder, tmp_path):
    recorder.observe(np.zeros_like(recorder.entries()[0][1]), "add", 'größe, "a"')
    recorder.to_csv(tmp_path / "counts.csv")
    rows = read(tmp_path / "counts.csv")
    assert list(rows[0]) == ["path", "operation", "phase", *COUNTS, "zero"]
    for row, (key, _) in zip(rows, recorder.entries(), strict=True):
        assert (row["path"], row["operation"], row["phase"]) == key
    assert {kind: sum(int(row[kind]) for row in rows) for kind in COUNTS} == recorder.counts()
    assert sum(int(row["zero"]) for row in rows) == recorder.histogram()["zero"]


def test_comma_separated_values_of_steps_leave_out_where_nothing_was_counted(recorder, tmp_path):
    recorder.to_csv(tmp_path / "steps.csv", by_step=True)
    rows = read(tmp_path / "steps.csv")
    assert list(rows[0]) == ["step", "path", "operation", "phase", *COUNTS]
    assert [(row["step"], row["operation"], row["total"]) for row in rows] == [
        ("1", "add", "1"),
        ("2", "add", "2"),
        ("2", "multiply", "3"),
        ("3", "add", "3"),
        ("3", "multiply", "3"),
    ]


def test_nothing_counted_is_a_head_alone(tmp_path):
    for by_step in (False, True):
        sf.Recorder().to_csv(str(tmp_path / "counts.csv"), by_step=by_step)
        assert read(tmp_path / "counts.csv") == []


@pytest.mark.parametrize("ask, message", [
    (lambda r: r.series(phase="updates"), "Unknown phase 'updates'.*Did you mean 'update'"),
    (lambda r: r.series("head"), "path 'head' matches nothing that was seen"),
    (lambda r: r.series(operation="ad"), "operation 'ad' .* Did you mean 'add'"),
    (lambda r: r.to_csv(3), "to_csv takes a path, text or a pathlib.Path, got 3"),
])  # fmt: skip
def test_questions_about_steps_that_match_nothing_are_refused(recorder, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(recorder)


def test_numbers_of_steps_are_kept_by_name_and_missing_ones_are_nan():
    recorder = sf.Recorder()
    recorder.step(loss=2.0, skipped=False)
    recorder.step()
    recorder.step(loss=np.float32(0.5), skipped=True, self=sf.Tensor([3.0]))
    scalars = recorder.scalars()
    assert scalars["loss"][[0, 2]].tolist() == [2.0, 0.5] and np.isnan(scalars["loss"][1])
    assert scalars["self"][2] == 3 and np.isnan(scalars["self"][:2]).all()
    assert recorder.success_rate == pytest.approx(2 / 3)
    twin = copy.deepcopy(recorder)
    twin.step(loss=1.0)
    assert (len(twin.scalars()["loss"]), len(recorder.scalars()["loss"])) == (4, 3)
    recorder.reset()
    assert recorder.scalars() == {} and recorder.success_rate == 1


def test_an_invalid_value_of_a_step_is_refused_and_ends_no_step(recorder):
    with pytest.raises(ValueError, match="loss must be a number, got 'low'"):
        recorder.step(loss="low")
    assert len(recorder.series()["total"]) == 4
