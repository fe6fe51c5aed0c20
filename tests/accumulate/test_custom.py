"""Sums by a function of the user: calls, orders of operands, composition, and results outside of the format."""

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
    """Distinguish both operands, and the place of a product in its call."""
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


def test_blocks_lanes_casts_and_policies_take_it(tmp_path):
    exact, unit = sf.exact, sf.custom(truncating, sf.FP16)
    x, y = np.random.default_rng(1).standard_normal((2, 4, 12))
    parts = [sf.dot(x[0, k : k + 4], y[0, k : k + 4], inputs=sf.BF16, accumulate=exact, output=sf.FP16,
                    rounding=sf.toward_zero) for k in (0, 4, 8)]  # fmt: skip
    total = np.float32(parts[0]) + np.float32(parts[1]) + np.float32(parts[2])
    assert sf.dot(x[0], y[0], inputs=sf.BF16, accumulate=sf.blocked(4, unit, sf.FP32)) == total
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
    with pytest.raises(ValueError, match="calls a function of yours"):
        policy.to_toml()


def test_it_is_a_value():
    unit = sf.custom(truncating, "fp16", 8)
    assert (
        str(unit) == "custom(truncating, FP16, 8)" and str(sf.custom(truncating, sf.FP16)) == "custom(truncating, FP16)"
    )
    assert unit == pickle.loads(pickle.dumps(unit)) and hash(unit) == hash(sf.custom(truncating, sf.FP16, 8))
    assert unit != sf.custom(weighted, sf.FP16, 8)


REFUSED = {
    "must return numbers of FP16, got 0.1": lambda: sf.dot(
        [1], [1], accumulate=sf.custom(lambda a, b, s: 0.1, sf.FP16)
    ),
    "must return numbers of FP16, got 0.3": lambda: sf.dot(
        [1, 1], [1, 1], accumulate=sf.custom(lambda a, b, s: s + 0.3 if s == 0 else 1.0, sf.FP16, 1)
    ),
    "must return one number, got 'x'": lambda: sf.dot([1], [1], accumulate=sf.custom(lambda a, b, s: "x", sf.FP16)),
    "function must be a function": lambda: sf.custom(3, sf.FP16),
    "terms must be an integer": lambda: sf.custom(truncating, sf.FP16, 0),
    "write simfloat.custom": lambda: sf.dot([1], [1], accumulate=truncating),
    "has no flags": lambda: sf.dot([1], [1], accumulate=sf.custom(truncating, sf.FP16), flags=True),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refusals(message):
    with pytest.raises(ValueError, match=message):
        REFUSED[message]()
