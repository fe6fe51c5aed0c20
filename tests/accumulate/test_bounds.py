"""Bounds of operands and sums, and the proofs that use them."""

from fractions import Fraction

import numpy as np

import simfloat as sf
from simfloat.sums import operands as operand_bounds_module
from simfloat.sums.bounds import CARRIERS, Bounds, bounds_of, quickest_step, raw_bounds_of, terms_and_sums
from simfloat.sums.operands import operand_bounds, raw_bounds_in_format

SINGLE, DOUBLE = CARRIERS


def test_bounds_hold_the_finite_numbers():
    for x, bounds in (
        *(([1.0], Bounds(1, 0, 0, 1)), ([1.5, -6.0], Bounds(2, -1, 0, 3)), ([0.0, -0.0], Bounds(1, 0, 0, 1))),
        *(([np.inf, 3.0], Bounds(2, 0, 1, 2, False)), ([np.nan], Bounds(1, 0, 0, 1, False)), ([], Bounds(1, 0, 0, 1))),
        *(([2.0**-1074, 1.0], Bounds(53, -1074, -1074, 1)), ([2.0**-1074], Bounds(53, -1074, -1074, -1021))),
    ):
        assert bounds_of(np.array(x)) == bounds, x


def test_facts_of_operations_hold_for_all_numbers(rng):
    for format in (sf.FP16, sf.BF16, sf.E4M3, sf.E5M2, sf.Format(4, 3, bias=-9)):
        x = rng.standard_normal(50) * 2.0 ** rng.integers(-20, 20, 50)
        y = sf.round(rng.standard_normal(50) * 2.0 ** rng.integers(-9, 9, 50), sf.E5M2).astype(float)
        holds(bounds_of(x).after_rounding(format), sf.round(x, format))
        holds(bounds_of(x).union(bounds_of(y)), np.concatenate([x, y]))
        few = sf.round(x, sf.E5M2).astype(float)
        few = few[np.isfinite(few)]
        holds(bounds_of(few).product_bounds(bounds_of(y)), np.outer(few, y))
    # Products with powers of two have no more bits.
    powers = bounds_of(2.0 ** rng.integers(-9, 9, 20))
    assert bounds_of(x).product_bounds(powers).precision == bounds_of(x).precision == 53
    assert powers.product_bounds(powers).precision == 1


def holds(bounds, x):
    """Assert that the bounds are bounds."""
    assert bounds.finite <= np.isfinite(x).all()
    for number in map(Fraction, np.abs(x[np.isfinite(x) & (x != 0)]).ravel().tolist()):
        assert Fraction(2) ** bounds.least <= number < Fraction(2) ** bounds.high
        whole = number / Fraction(2) ** bounds.low
        assert whole.denominator == 1
        odd_part = whole.numerator // (whole.numerator & -whole.numerator)
        assert odd_part.bit_length() <= bounds.precision


def test_numbers_of_a_format_are_inside_it_and_no_other_numbers():
    for format in (sf.FP16, sf.E4M3, sf.E2M1, sf.BF16):
        for x in ([0.0, format.smallest_subnormal], [1.0, 1.0 + format.eps], [2.0**format.emax]):
            assert bounds_of(np.array(x)).are_in_format(format)
        for x in (format.smallest_subnormal / 2, 1.0 + format.eps / 2, format.max * 2):
            assert not bounds_of(np.array([x])).are_in_format(format)


def test_facts_of_an_operand_are_found_once(monkeypatch):
    calls = []
    known = operand_bounds(np.ones(3))
    monkeypatch.setattr(operand_bounds_module, "bounds_of", lambda x: calls.append(1) or bounds_of(x))
    assert known.bounds == known.bounds == Bounds(1, 0, 0, 1) and len(calls) == 1


def test_a_carrier_represents_all_values_between_its_ends():
    assert SINGLE.contains(bounds_of(np.array([2.0**127, 2.0**-149])))
    assert not SINGLE.contains(bounds_of(np.array([2.0**128])))
    assert not SINGLE.contains(bounds_of(np.array([2.0**-150])))
    assert not SINGLE.contains(bounds_of(np.array([1 + 2.0**-24])))
    assert DOUBLE.contains(bounds_of(np.array([1e308, 5e-324])))


def test_a_step_is_chosen_by_operands_products_sums_and_initial_values():
    one = Bounds(4, -6, -6, 9)
    for far in (Bounds(1, 200, 200, 201), Bounds(1, -200, -200, -199)):
        near = Bounds(1, -far.low, -far.low, -far.low + 1)
        terms, sums = terms_and_sums(far.product_bounds(near), 8, sf.FP16, sf.nearest_even, None)
        assert quickest_step((sf.FP16,), sf.nearest_even, far, near, terms, sums).carrier is np.float64
    terms, sums = terms_and_sums(one.product_bounds(one), 8, sf.BF16, sf.nearest_even, None)
    assert quickest_step((sf.BF16,), sf.nearest_even, one, one, terms, sums).carrier is np.float32
    initial = Bounds(8, 120, 127, 128)
    terms, sums = terms_and_sums(one.product_bounds(one), 8, sf.BF16, sf.nearest_even, None, initial)
    assert sums.high > 128 and terms.high < 128
    assert quickest_step((sf.BF16,), sf.nearest_even, one, one, terms, sums, initial).carrier is np.float64


def test_numbers_of_a_format_have_closer_bounds_where_some_are_subnormal(rng):
    x = sf.round(rng.standard_normal(1 << 13).astype(np.float32), sf.FP16)
    x[:2] = sf.FP16.smallest_subnormal, 1 + sf.FP16.eps
    assert not bounds_of(x).are_in_format(sf.FP16)
    assert Bounds._make(raw_bounds_in_format(sf.FP16, x)).are_in_format(sf.FP16)
    assert raw_bounds_in_format(None, x) == raw_bounds_of(x)
    x[2] = 1.5 * sf.FP16.smallest_subnormal
    assert raw_bounds_in_format(sf.FP16, x) == raw_bounds_of(x)
