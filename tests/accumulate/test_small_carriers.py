"""The proofs by which loops are chosen, for all numbers of carriers of 6 to 9 bits.

Each says that a sum that a carrier rounds first is, rounded again, the exact sum rounded once. Numbers are integers
here, in units of the last bit that anything has; the condition of each proof is shown to be needed, too.
"""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.definition import _stochastic_away
from simfloat.formats.rounding import MODES
from simfloat.kernels.lanes import operations
from simfloat.kernels.lanes.operations import LaneCut
from simfloat.sums.bounds import Bounds, Carrier

PRECISIONS = (6, 7, 8, 9)

#: Whether a mode goes away from zero, by what is cut off (nothing, less than half, half, more), oddness and sign.
AWAY = {
    name: np.reshape(
        [mode.away(Fraction(i, 4), odd, negative) for i, odd, negative in product(range(4), *[(False, True)] * 2)],
        (4, 2, 2),
    )
    for name, mode in MODES.items()
}


def size(n):
    """How many bits a number has."""
    return np.frexp(np.abs(n).astype(float))[1].astype(int)


def parts(n, precision, least=0):
    """What so many bits keep of a magnitude, what they drop, and how many bits that has, which are at least `least`."""
    drop = np.maximum(size(n) - precision, least)
    return np.abs(n) >> drop, np.abs(n) & ((1 << drop) - 1), drop


def rounded(n, precision, mode, least=0):
    """Numbers rounded to so many bits, and to multiples of 2^least, by the table of modes."""
    kept, rest, drop = parts(n, precision, least)
    odd = kept & 1 if precision > 1 else (kept > 0) & drop
    kind = sum(reached.astype(int) for reached in (rest > 0, 2 * rest >= 1 << drop, 2 * rest > 1 << drop))
    return np.sign(n) * (kept + AWAY[mode][kind, odd & 1, (n < 0).astype(int)] << drop)


def drawn(n, random, precision, rounding, least=0):
    """Magnitudes rounded by draws, by the definition."""
    kept, rest, drop = parts(n, precision, least)
    most = int(drop.max())
    away = np.array(
        [[_stochastic_away(Fraction(i, 2**most), rounding, r) for r in range(2**rounding.bits)] for i in range(2**most)]
    )
    return kept + away[rest << (most - drop), random] << drop


def carrier_of(precision):
    return Carrier(np.float64, precision, -60, 60)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_sums_that_need_no_error_are_rounded_once(precision):
    # All partial sums that a format has, and all terms of so many bits: every pair that the bounds allow.
    carrier, proven, needed = carrier_of(precision), 0, 0
    for bits, term_bits, low in product((2, 3), (1, 2, 3, 4), range(-9, 3)):
        format = sf.Format(4, bits - 1, special="ieee")  # 2^-6 is its smallest normal number
        for high in range(low + term_bits, min(low + 7, 7)):
            terms, sums = Bounds(term_bits, low, low, high), Bounds(8, low, low, max(high, 5) + 1)
            claimed, wrong = carrier.needs_no_error(format, terms, sums), is_misrounded(carrier, format, terms, sums)
            assert not (claimed and wrong), (format, terms)
            proven, needed = proven + claimed, needed + wrong
    assert proven > 50 and (needed > 0 or precision > 7)


def is_misrounded(carrier, format, terms, sums):
    """Whether a sum of a partial sum and a term is rounded otherwise by way of the carrier."""
    smallest = format.emin - format.mantissa_bits
    unit = min(sums.low, smallest)
    top, step = 1 << (sums.high - 1 - unit), 1 << (max(sums.low, smallest) - unit)
    partial = np.unique(rounded(np.arange(0, top, step), format.precision, "nearest_even"))
    exponents = range(terms.low - unit, terms.high - unit)
    added = np.unique([m << e for e in exponents for m in range(1, 1 << terms.precision)])
    added = added[added < 1 << (terms.high - unit)]
    total = np.concatenate([(partial[:, None] + added).ravel(), (partial[:, None] - added).ravel()])
    total = total[np.abs(total) < 1 << (sums.high - unit)]
    infinite = int(format.max * 2.0**-unit) + 1

    def result(n):
        n = rounded(n, format.precision, "nearest_even", smallest - unit)
        return np.sign(n) * np.minimum(np.abs(n), infinite)

    return (result(rounded(total, carrier.precision, "nearest_even")) != result(total)).any()


def formats_below(precision):
    """Formats of fewer bits than a carrier."""
    return [sf.Format(4, bits - 1, special="fn") for bits in range(1, precision)]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_is_rounded_to_odd_can_be_rounded_again_in_every_mode(precision):
    n = np.arange(-(2 ** (precision + 3)), 2 ** (precision + 3))
    odd = rounded(n, precision, "to_odd")
    for format in formats_below(precision):
        wrong = [
            mode
            for mode, least in product(MODES, range(4))
            if (rounded(odd, format.precision, mode, least) != rounded(n, format.precision, mode, least)).any()
        ]
        assert bool(wrong) != carrier_of(precision).allows_round_to_odd(format, None, None), (format, wrong)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_numbers_below_and_above_a_sum_tell_what_it_is_rounded_to_odd(precision):
    n = np.arange(-(2 ** (precision + 4)), 2 ** (precision + 4))
    below, above = rounded(n, precision, "toward_negative"), rounded(n, precision, "toward_positive")
    nearer_zero = np.where(np.abs(below) < np.abs(above), below, above)
    kept, _, drop = parts(nearer_zero, precision)
    assert (np.sign(n) * ((kept | (below != above)) << drop) == rounded(n, precision, "to_odd")).all()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_is_rounded_to_odd_shows_all_that_a_draw_reads(precision):
    n, sums = np.arange(2 ** (precision + 2)), Bounds(precision + 2, -9, -9, 6)
    odd = rounded(n, precision, "to_odd")
    proven, needed = 0, 0
    for format, bits, variant in product(formats_below(precision)[1:], (1, 2, 3), "ABC"):
        rounding = sf.stochastic(bits, variant)
        got, want = (drawn(x[:, None], np.arange(2**bits), format.precision, rounding) for x in (odd, n))
        claimed, wrong = carrier_of(precision).shows_draws(format, rounding, sums), (got != want).any()
        assert not (claimed and wrong), (format, rounding)
        proven, needed = proven + claimed, needed + wrong
    assert proven > 5 and needed > 5


@pytest.mark.parametrize("precision, bits", [(8, 3), (9, 3), (12, 4)])
def test_a_sum_that_is_not_far_smaller_than_the_product_that_is_added_is_rounded_once(precision, bits):
    # Operands and sums have so many bits, products twice as many, and the carrier three times, as for BF16 in float32.
    factors = np.arange(1 << (bits - 1), 1 << bits)
    shift, terms = precision + 2 * bits + 4, np.unique(np.outer(factors, factors))
    wrong = []
    for s, e in product([0, *factors], range(2 * shift)):
        total = np.concatenate([(int(s) << e) + (terms << shift), (int(s) << e) - (terms << shift)])
        again = rounded(rounded(total, precision, "nearest_even"), bits, "nearest_even")
        differs = again != rounded(total, bits, "nearest_even")
        wrong += [Fraction(int(s) << e, int(t) << shift) for t in np.tile(terms, 2)[differs]]
    assert wrong and all(0 < ratio < Fraction(1, 2 ** (precision - bits - 1)) for ratio in wrong)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_is_likely_of_a_draw_is_certain_unless_the_dropped_bits_are_all_alike(precision):
    below, length = 3, max(precision - 2, 6)  # bits below the carrier's last one, and of a word
    n, words = np.arange(1 << (precision + below - 1), 1 << (precision + below))[:, None], np.arange(1 << length)
    image = rounded(n, precision, "nearest_even") >> below
    shares = []
    for bits, draw, variant in product(range(2, precision - 1), (2, 4, 6), "ABC"):
        dropped = precision - bits
        unread = max(dropped - draw, 0)
        half = (1 << unread) >> 1 if variant != "A" else 0
        sum_of_images = image + (words >> (length - dropped) >> unread << unread | half)
        kept, told = sum_of_images >> dropped << dropped, sum_of_images & ((1 << dropped) - 1)
        certain = (told > 0) & (told < (1 << dropped) - 1)
        power = 1 << precision  # from where an image stands for twice as much
        value = kept + np.maximum(kept - power, 0)
        want = drawn(n, words >> (length - draw), bits, sf.stochastic(draw, variant))
        assert (value << below == want)[certain].all(), (bits, draw, variant)
        shares.append(certain.mean())
    assert max(shares) > 0.8


#: The image of one: the next ones are those of the next numbers.
ONE = 0x3F800000


@pytest.mark.parametrize("dropped", [1, 2, 3, 4])
def test_the_numbers_below_and_above_a_result_tell_its_rounding_to_fewer_bits_in_every_mode(dropped, monkeypatch):
    for name in ("_power_of", "_signed", "_near_by_anchor", "_up_by_anchor", "_to_zero_by_anchor"):
        monkeypatch.setattr(operations, name, getattr(operations, name).py_func)
    # Results are so many quarters of a last bit of float32: exact ones, ties of both precisions, and beside them.
    quarters = np.arange(1 << (dropped + 5))
    sign, exact = np.repeat([0, 1], quarters.size), np.tile(quarters, 2)
    smaller, larger = exact >> 2, (exact + 3) >> 2
    lower, upper = (np.where(sign, *pair) for pair in ((larger, smaller), (smaller, larger)))
    unit = 1 << dropped
    images = map(np.uint32, (unit - 1, 2**32 - unit, unit >> 1, unit, 0, 0))
    cut = LaneCut(*images, np.float32(1.5 * unit), np.float32(unit / 2**24), np.uint32(1 << 31), 1.0, 1.0)

    def number(steps):
        return (ONE + (sign << 31) + steps).astype(np.uint32).view(np.float32)

    rules = {
        "toward_zero": operations._cut_off.py_func(number(smaller), cut),
        "nearest_away": operations._away.py_func(number(smaller), cut),
        "toward_positive": operations._upward.py_func(number(upper), cut),
        "nearest_even": operations._nearest.py_func(number(lower), number(upper), cut),
        "to_odd": operations._to_odd.py_func(number(lower), number(upper), cut),
    }
    if dropped > 1:  # else the anchor of a larger number has no place for the last bit
        rules_by_anchor = {
            "toward_zero": operations._cut_off_by_anchor.py_func(number(smaller), cut),
            "nearest_away": operations._away_by_anchor.py_func(number(smaller), cut),
            "toward_positive": operations._upward_by_anchor.py_func(number(upper), cut),
            "to_odd": operations._to_odd_by_anchor.py_func(number(lower), number(upper), cut),
        }
        for mode, got in rules_by_anchor.items():
            assert (got.view(np.uint32) == rules[mode].view(np.uint32)).all(), mode
    for mode, got in rules.items():
        kept, rest = exact >> (dropped + 2), exact & (4 * unit - 1)
        kind = sum((reached).astype(int) for reached in (rest > 0, rest >= 2 * unit, rest > 2 * unit))
        want = (kept + AWAY[mode][kind, kept & 1, sign]) << dropped
        assert (got.view(np.uint32) == number(want).view(np.uint32)).all(), mode
    # Of float32's nearest number the same is told, unless the result is a tie or lies within half a bit of one.
    near = (exact + 1 + ((exact >> 2) & 1)) >> 2
    again = operations._nearest_again.py_func(number(near), cut)
    harmless = (exact & 3 == 0) | (rest % (2 * unit) != 0) & (np.abs(rest - 2 * unit) > 2)
    assert (again.view(np.uint32) == rules["nearest_even"].view(np.uint32))[harmless].all()
    if dropped > 1:
        by_anchor = operations._nearest_by_anchor.py_func(number(near), cut)
        assert (by_anchor.view(np.uint32) == again.view(np.uint32)).all()
