"""Compare sums over replicas with their definition in fractions: the order of additions, and each rounding."""

from fractions import Fraction
from itertools import cycle, product

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.definition import round_value
from tests.bits import assert_bits


def added(numbers, format, mode):
    """From +0 on, one after the other."""
    total = 0.0
    for x in numbers:
        total = round_value(Fraction(total) + Fraction(x), format, mode)
    return total


def in_a_tree(numbers, format, mode):
    numbers = [round_value(x, format, mode) for x in numbers]
    while len(numbers) > 1:
        pairs = [numbers[i : i + 2] for i in range(0, len(numbers), 2)]
        numbers = [added(pair, format, mode) if len(pair) == 2 else pair[0] for pair in pairs]
    return numbers[0]


def defined(parts, order, format, mode):
    replicas, size = parts.shape
    chunk = -(-size // replicas)
    found = []
    for element in range(size):
        start = element // chunk + 1 if order == "ring" else 0
        numbers = [float(parts[(start + step) % replicas, element]) for step in range(replicas)]
        found.append((in_a_tree if order == "tree" else added)(numbers, format, mode))
    return np.array(found)


def test_each_element_is_added_in_the_order_of_its_collective():
    rng = np.random.default_rng(1)
    formats = (sf.BF16, sf.nearest_even), (sf.E4M3, sf.toward_zero), (sf.FP16, sf.to_odd)
    cases = product(("ring", "tree", "sequential"), (1, 2, 3, 8), (1, 5, 19, 16))
    for (order, replicas, size), (format, mode) in zip(cases, cycle(formats), strict=False):
        parts = rng.choice([1.0, 2.0, 2.0**-5], (replicas, size)) * rng.uniform(0.5, 4, (replicas, size))
        found = sf.all_reduce(parts, order=order, accumulate=sf.sequential(format, rounding=mode))
        assert_bits(np.asarray(found, np.float64), defined(parts, order, format, mode))


def test_the_shape_is_that_of_a_part_and_chunks_follow_its_order_in_c():
    parts = np.arange(1.0, 25.0).reshape(2, 3, 4) * 2.0**7
    found = sf.all_reduce(list(np.asfortranarray(part) for part in parts), accumulate=sf.E5M2)
    assert found.shape == (3, 4)
    assert_bits(np.asarray(found.ravel(), np.float64), defined(parts.reshape(2, 12), "ring", sf.E5M2, sf.nearest_even))


def test_options_are_those_of_sums():
    parts, recorder = np.full((4, 6), 0.3), sf.Recorder()
    exact = sf.all_reduce(parts, accumulate=sf.exact, output=sf.BF16, observer=recorder)
    assert_bits(exact, sf.round(np.full(6, 1.2), sf.BF16).astype(exact.dtype))
    assert recorder.counts()["total"] == 6
    kahan = sf.all_reduce(parts, order="sequential", accumulate=sf.kahan(sf.FP16))
    assert_bits(kahan, sf.sum(parts, axis=0, accumulate=sf.kahan(sf.FP16)))
    drawing = sf.sequential(sf.E4M3, rounding=sf.stochastic())
    assert_bits(*(sf.all_reduce(parts, accumulate=drawing, stream=sf.BitStream(3)) for _ in range(2)))


def test_nonsense_is_refused():
    for parts, options, words in (
        ([], {}, "parts is a list with an array for each replica"),
        (3, {}, "parts is a list with an array for each replica"),
        ([[1.0], [1.0, 2.0]], {}, r"have one shape; got \(1,\), \(2,\)"),
        ([[1.0]], {"order": "star"}, "order is one of 'ring', 'tree', 'sequential'; got 'star'"),
        ([[1.0]], {"order": "tree", "accumulate": sf.exact}, "A tree takes a format"),
        ([[1.0]], {"accumulate": sf.tensor_core("hopper")}, r"as in tensor_core\('hopper', FP16\)"),
        ([[1.0]], {"accumulate": 7}, "accumulate must be"),
    ):
        with pytest.raises(ValueError, match=words):
            sf.all_reduce(parts, **{"accumulate": sf.BF16} | options)
