"""The rounding of a stochastic sum is found from the distribution of its results."""

from fractions import Fraction

import numpy as np
import pytest

import simfloat as sf
from simfloat.analysis.reveal.stochastic import larger_share
from simfloat.formats.definition import is_away


def box(format, rounding, seed=3):
    """The sum of two products by the definition, with all draws computed at once."""
    draws = iter(np.random.default_rng(seed).integers(0, 2**rounding.bits, 100_000).tolist())

    def add(a, b):
        x = Fraction(a[0] * b[0] + a[1] * b[1])
        scaled = x / Fraction(format.eps)
        low = scaled.numerator // scaled.denominator
        up = bool(scaled - low) and is_away(scaled - low, low, 0, False, format, rounding, next(draws))
        return float((low + up) * Fraction(format.eps))

    return add


@pytest.mark.parametrize("variant", "ABC")
@pytest.mark.parametrize("bits", [1, 3])
def test_the_variant_and_the_number_of_random_bits_are_found(variant, bits):
    found = sf.reveal_rounding(box(sf.BF16, sf.stochastic(bits, variant)), runs=2048)
    assert found.precision == 8 and found.roundings[0] == sf.stochastic(bits, variant)
    assert len(found.roundings) == 1 and "1 of 13 roundings" in found.reason


def test_many_random_bits_look_alike():
    found = sf.reveal_rounding(box(sf.FP16, sf.stochastic()), runs=1024)
    assert found.precision == 11 and found.roundings == (sf.stochastic(),)
    assert "All roundings with more than 3 random bits look like stochastic(bits=32, variant='C') in 1024" in repr(
        found
    )


def test_probabilities_are_counts_of_the_definition():
    for rounding in (sf.stochastic(bits, variant) for bits in (1, 2, 3) for variant in "ABC"):
        for nu in (Fraction(k, 32) for k in range(1, 32)):
            away = sum(is_away(nu, 0, 0, False, sf.BF16, rounding, draw) for draw in range(2**rounding.bits))
            assert larger_share(rounding, nu) == Fraction(away, 2**rounding.bits)


def test_other_functions_are_distinguished():
    found = sf.reveal_rounding(lambda a, b: sf.dot(a, b, accumulate=sf.BF16), runs=256)
    assert found.roundings == () and found.precision == 8 and "use reveal" in found.reason
    assert "No sum was rounded" in sf.reveal_rounding(lambda a, b: a @ b, runs=256).reason
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="f must return one number"):
        sf.reveal_rounding(lambda a, b: a)
    with pytest.raises(ValueError, match=r"two float64 vectors of length 2; it raised TypeError: .* lambda a, b: f\("):
        sf.reveal_rounding(lambda a: a)
    noisy = lambda a, b: 1 + a[1] if a[1] >= 0.25 else 1 + rng.integers(0, 3) / 4  # noqa: E731
    with pytest.raises(ValueError, match="which is neither 1 nor 1.25: f is not such a sum"):
        sf.reveal_rounding(noisy)
    with pytest.raises(ValueError, match="runs must be an integer of at least 256"):
        sf.reveal_rounding(noisy, runs=10)
