"""Reported bugs of other libraries in tensor cores and numbers with block scales."""

from fractions import Fraction

import numpy as np
import pytest

import simfloat as sf
from tests.public_cases.oracle import binade


def exponent(x, emin):
    return max(binade(x), emin)


def cut(x, last):
    """A fraction truncated toward zero to a multiple of 2^last."""
    steps = abs(x) / Fraction(2) ** last
    return (1 if x > 0 else -1) * (steps.numerator // steps.denominator) * Fraction(2) ** last


def unit(a, b, c, *, emin, fraction_bits, precision, least):
    """A chunk of products and c: cut below the largest exponent, summed, and truncated to `precision` bits."""
    a, b, c = [Fraction(float(x)) for x in a], [Fraction(float(x)) for x in b], Fraction(c)
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if x and y]
    top = max([exponent(x, emin) + exponent(y, emin) for x, y in pairs] + [exponent(c, -126) if c else least])
    total = sum([cut(x * y, top - fraction_bits) for x, y in pairs], cut(c, top - fraction_bits))
    return float(cut(total, exponent(total, -126) - precision + 1)) if total else 0.0


HOPPER = {"emin": -6, "fraction_bits": 13, "precision": 14, "least": -133}
BLACKWELL = {"emin": -6, "fraction_bits": 25, "precision": 24, "least": -133}


@pytest.mark.parametrize("small", [0.0625, 0.03125, 0.01953125, 0.015625])
def test_hopper_drops_the_bits_of_a_product_14_places_below_the_largest(small):
    """448 + 7.5 and the like show that FP8 keeps few bits. https://github.com/deepseek-ai/DeepGEMM/issues/37

    Blackwell keeps 25. https://github.com/deepseek-ai/DeepGEMM/issues/176
    """
    a, b = np.zeros(32), np.zeros(32)
    a[:3], b[:3] = (256, small, small), (1.0, 1.25, -0.5)
    for name, rule in (("hopper", HOPPER), ("blackwell", BLACKWELL)):
        assert sf.dot(a, b, accumulate=sf.tensor_core(name, sf.E4M3)) == unit(a, b, 0, **rule), name
    assert sf.dot(a, b, accumulate=sf.tensor_core("blackwell", sf.E4M3)) == 256 + small * 0.75


def test_an_accumulator_of_13_fraction_bits_cuts_what_is_added_to_it():
    """With zero operands C came back with its last ten bits cleared. https://github.com/thu-ml/SageAttention/issues/287"""
    ada, zeros = sf.tensor_core("ada", sf.E5M2), np.zeros(16)
    for c, due in ((1 + 2.0**-13, 1 + 2.0**-13), (1 + 2.0**-14, 1.0), (-(3 + 2.0**-12 + 2.0**-20), -(3 + 2.0**-12))):
        assert sf.dot(zeros, zeros, accumulate=ada, initial=c) == due


def test_products_of_subnormal_size_follow_the_rule_of_hoppers_unit():
    """A model of Hopper missed tiny BF16 products. https://github.com/north-numerical-computing/MATLAB-tensor-core/issues/2"""
    random, rule = np.random.default_rng(7), {"emin": -126, "fraction_bits": 25, "precision": 24, "least": -133}
    core = sf.tensor_core("hopper", sf.BF16)
    for _ in range(40):
        a, b = sf.round(random.standard_normal((2, 16)) * 2.0 ** random.integers(-78, -62, (2, 16)), sf.BF16)
        assert sf.dot(a, b, accumulate=core) == unit(a, b, 0, **rule)


def test_scales_that_are_rounded_up_leave_no_element_beyond_the_largest():
    """Scales to nearest clipped the largest elements of blocks. https://github.com/ml-explore/mlx/pull/4353"""
    x = np.random.default_rng(1).standard_normal((64, 32)) * 2.0 ** np.arange(64)[:, None] / 7
    largest = np.abs(x).max(1)
    up, down = (sf.block_quantize(x, sf.E4M3, rule=rule) for rule in ("rceil", "floor"))
    assert (largest / up.scales[:, 0] <= 448).all() and (largest / up.scales[:, 0] > 224).all()
    assert np.abs(up.values() - x).max(1).max() <= (largest * 2.0**-4).max()
    clipped = largest / down.scales[:, 0] > 448
    assert clipped.any() and (np.abs(down.elements).max(1)[clipped] == 448).all()
