"""Batches are identified by their values, in any kind of container."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.train.data import BatchSource, digest

X, Y = np.arange(6.0).reshape(3, 2), np.array([0, 1, 1])


@pytest.mark.parametrize("one, other", [
    ((X, Y), [X.copy(), Y.copy()]), ((X, Y), (np.asfortranarray(X), Y)), ((X, Y), (sf.Tensor(X), Y)),
    (([1.0, 2], "a"), ((1.0, 2), "a")), ((np.array(["a", None], object), Y), (np.array(["a", None], object), Y)),
])  # fmt: skip
def test_the_same_numbers_have_the_same_digest(one, other):
    assert digest(one) == digest(other)


@pytest.mark.parametrize("other", [
    (X + 1e-9, Y), (X, Y[::-1]), (X.T, Y), (X.reshape(2, 3), Y), (X.astype(np.float32), Y), ((X, X), Y),
    (X, Y.tolist()), ({"x": X}, Y), (-X, Y), (X, None),
])  # fmt: skip
def test_other_numbers_shapes_and_types_have_another(other):
    assert digest(other) != digest((X, Y))


def test_values_without_numbers_have_the_digest_of_their_type():
    assert digest(object()) == digest(object()) != digest(BatchSource([], keeps_digests=True))


@pytest.mark.parametrize("x, rows", [(X, 3), ((X, X[:2]), 3), ([[1, 2], [3, 4]], 2), (1.0, None), (np.zeros(()), None)])
def test_the_size_of_a_batch_is_how_many_rows_its_first_input_has(x, rows):
    feed = BatchSource([(x, Y), (X[:1], Y)], keeps_digests=True)
    feed.take(2)
    assert feed.batch_size == rows


def test_the_first_batches_are_digested_where_they_are_to_be_known():
    feed = BatchSource([(X, Y)] * 9, keeps_digests=True)
    feed.skip(2)
    assert len(feed.digests(1)) == 1 and len(feed.digests(2)) == 2 and len(feed.take(5)) == 5
    assert feed.digests(7) == [digest((X, Y))] * 4
    unknown = BatchSource([(X, Y)], keeps_digests=False)
    assert len(unknown.take(3)) == 1 and unknown.digests(1) == [] and unknown.batch_size is None
