"""Sums by a Python function of the user: its calls, the order of operands, composition, and invalid results."""

import pickle
from fractions import Fraction

import numpy as np
import pytest

import simfloat as sf


def truncating(a, b, start):
    """Add exactly, and truncate to FP16: a chunk of a fused sum that keeps all bits."""
    total = sum((Fraction(x) * Fraction(y) for x, y in zip(a, b, strict=True)), Fraction(start))
    return float(sf.round(total, sf.FP16, sf.toward_zero))


def weighted(a, b, start):
    """Return a sum that depends on which operand is the left one, and on the place of each product in a call."""
    return start + sum((k + 1) * (2 * x + y) for k, (x, y) in enumerate(zip(a, b, strict=True)))


SHAPES = ((1, 1, 1), (3, 20, 5), (40, 9, 2), (2, 0, 3))


@pytest.mark.parametrize("terms", [None, 1, 8])
def test_a_sum_has_the_bits_of_its_function(terms):
    unit = sf.custom(truncating, sf.FP16, terms)
    rng = np.random.default_rng(0)
    for m, k, n in SHAPES:
        a, b = sf.round(rng.standard_normal((m, k)), sf.FP16), sf.round(rng.standard_normal((k, n)), sf.FP16)
        start = sf.round(rng.standard_normal((m, n)), sf.FP16)
        size = terms or max(k, 1)
        expected = start.copy()
        for i, j in np.ndindex(m, n):
            for first in range(0, k, size):
                part = slice(first, first + size)
                expected[i, j] = truncating(a[i, part], b[part, j], expected[i, j])
        assert np.array_equal(sf.matmul(a, b, accumulate=unit, initial=start), expected)


def test_the_left_operand_is_the_first_argument():
    unit = sf.custom(weighted, sf.FP64)
    for m, k, n in SHAPES:
        a, b = np.arange(float(m * k)).reshape(m, k), 100.0 + np.arange(float(k * n)).reshape(k, n)
        expected = [[weighted(row, column, 0.0) for column in b.T] for row in a]
        assert sf.matmul(a, b, accumulate=unit).tolist() == expected
        assert sf.matmul(a[np.newaxis], b, accumulate=unit)[0].tolist() == expected


def test_blocks_lanes_casts_policies_and_vectors_accept_a_custom_sum(tmp_path):
    exact, unit = sf.exact, sf.custom(truncating, sf.FP16)
    x, y = np.random.default_rng(1).standard_normal((2, 4, 12))
    parts = [sf.dot(x[0, k : k + 4], y[0, k : k + 4], inputs=sf.BF16, accumulate=exact, output=sf.FP16,
                    rounding=sf.toward_zero) for k in (0, 4, 8)]  # fmt: skip
    total = np.float32(parts[0]) + np.float32(parts[1]) + np.float32(parts[2])
    assert sf.dot(x[0], y[0], inputs=sf.BF16, accumulate=sf.blocked(4, unit, sf.FP32)) == total
    halves = [sf.dot(x[0, k::2], y[0, k::2], inputs=sf.BF16, accumulate=unit) for k in (0, 1)]
    two_lanes = sf.lanes(2, unit, sf.FP32)
    assert sf.dot(x[0], y[0], inputs=sf.BF16, accumulate=two_lanes) == np.float32(halves[0]) + np.float32(halves[1])
    model, policy = sf.nn.Linear(12, 3, rng=0), sf.Policy(compute=sf.BF16, accumulate=unit)
    with sf.simulate(policy):
        result = model(x)
        result.sum().backward()
    with sf.simulate(sf.Policy(compute=sf.BF16, accumulate=exact, activations=sf.FP16)):
        assert np.abs(result.data - model(x).data).max() < 2**-9 and model.weight.grad is not None
    a, b = sf.round(x, sf.BF16), sf.round(y, sf.BF16)
    sf.write_vectors(tmp_path / "v.txt", "dot", a, b, np.zeros(4), sf.BF16, accumulate=unit)
    codes = [line.split()[-1] for line in (tmp_path / "v.txt").read_text().splitlines()]
    assert codes == [f"{sf.encode(truncating(p, q, 0.0), sf.FP16):04X}" for p, q in zip(a, b, strict=True)]
    with pytest.raises(ValueError, match="calls your own function"):
        policy.to_toml()


def test_a_custom_sum_is_a_value_with_a_text():
    unit = sf.custom(truncating, "fp16", 8)
    assert str(unit) == "custom(truncating, FP16, 8)"
    assert str(sf.custom(truncating, sf.FP16)) == "custom(truncating, FP16)"
    assert unit == pickle.loads(pickle.dumps(unit)) and hash(unit) == hash(sf.custom(truncating, sf.FP16, 8))
    assert unit != sf.custom(weighted, sf.FP16, 8)


#: Invalid calls by a part of their message.
def dot_by(function, terms=None):
    return sf.dot([1, 1], [1, 1], accumulate=sf.custom(function, sf.FP16, terms))


REFUSED = {
    "must return numbers of FP16, got 0.1": lambda: dot_by(lambda a, b, s: 0.1),
    "must return numbers of FP16, got 0.3": lambda: dot_by(lambda a, b, s: s + 0.3 if s == 0 else 1.0, 1),
    "must return one number of float64, got 'x'": lambda: dot_by(lambda a, b, s: "x"),
    "must return one number of float64, got '1'": lambda: dot_by(lambda a, b, s: "1"),
    "must return one number of float64, got 1/3 of Fraction": lambda: dot_by(lambda a, b, s: Fraction(1, 3)),
    "function must be a function": lambda: sf.custom(3, sf.FP16),
    "terms must be an integer": lambda: sf.custom(truncating, sf.FP16, 0),
    "write simfloat.custom": lambda: sf.dot([1], [1], accumulate=truncating),
    "Text cannot contain the function": lambda: sf.Policy.from_toml('compute = "fp16"\naccumulate = "custom(f, FP16)"'),
    "has no flags": lambda: sf.dot([1], [1], accumulate=sf.custom(truncating, sf.FP16), flags=True),
}


@pytest.mark.parametrize("message", REFUSED)
def test_invalid_functions_and_results_raise_errors(message):
    with pytest.raises(ValueError, match=message):
        REFUSED[message]()
