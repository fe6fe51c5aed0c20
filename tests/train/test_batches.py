"""Batches: every row once per epoch, in an order that follows from the seed."""

import numpy as np
import pytest

import simfloat as sf

X = np.arange(14.0).reshape(7, 2)
Y = np.arange(7)


def test_every_row_comes_once_an_epoch_with_its_target():
    batches = sf.train.Batches(X, Y, 3, epochs=2)
    pairs = list(batches)
    assert len(batches) == len(pairs) == 6 and [len(x) for x, _ in pairs] == [3, 3, 1] * 2
    assert all((x[:, 0] == 2 * y).all() for x, y in pairs)
    epochs = [np.concatenate([y for _, y in part]) for part in (pairs[:3], pairs[3:])]
    assert all(sorted(rows) == list(range(7)) for rows in epochs) and list(epochs[0]) != list(epochs[1])


def test_the_order_follows_from_the_seed_alone():
    def rows(seed):
        return [y.tolist() for _, y in sf.train.Batches(X, Y, 4, seed=seed)]

    assert rows(0) == [[3, 2, 1, 6], [0, 4, 5]]
    assert rows(0) == rows(0) != rows(1)


def test_rows_may_stay_in_order_and_a_short_batch_be_left_out():
    batches = sf.train.Batches(X, Y, 3, shuffle=False, drop_last=True)
    assert [y.tolist() for _, y in batches] == [[0, 1, 2], [3, 4, 5]] and len(batches) == 2
    assert repr(batches) == "Batches(2 of 3 rows from 7, seed=0)"


@pytest.mark.parametrize("arguments, options, message", [
    ((X, Y[:3], 2), {}, r"x and y need the same number of rows, got shapes \(7, 2\) and \(3,\)"),
    ((X[:0], Y[:0], 2), {}, "the same number of rows"),
    ((1.0, 2.0), {}, "the same number of rows"),
    ((X, Y, 0), {}, "batch_size must be an integer of at least 1, got 0"),
    ((X, Y), dict(epochs=1.5), "epochs must be an integer of at least 1, got 1.5"),
    ((X, Y), dict(seed=-1), "seed must be an integer of at least 0, got -1"),
    ((X, Y), dict(shuffle="no"), "shuffle must be True or False, got 'no'"),
    ((X, Y), dict(drop_last="no"), "drop_last must be True or False, got 'no'"),
    ((X, Y, 8), dict(drop_last=True), "drop_last would leave no batch of 8 among 7 rows"),
])  # fmt: skip
def test_wrong_arguments_are_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        sf.train.Batches(*arguments, **options)
