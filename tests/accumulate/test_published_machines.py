"""Three matrix units from papers, built from public parts: sums by hand, and a few steps of training with each.

* A unit that aligns to 20 bits below the leading one, fewer than the significand of FP32, with a sticky bit: Fasi,
  Higham, Mikaitis and Pranesh (PeerJ CS 7:e330, 2021) vary these properties.
* FP8 products in chunks of 32 with 14 bits, as on Hopper; sums of 128 are promoted to FP32 (DeepSeek-V3, arXiv
  2412.19437, section 3.3).
* A systolic array of 128 rows: BF16 operands, a sum that moves from row to row in FP32, and tiles of k that are added
  in FP32 (Jouppi et al., CACM 63(7), 2020).
"""

from fractions import Fraction

import pytest

import simfloat as sf
from simfloat.formats.definition import floor_log2, round_value
from tests.bits import assert_bits
from tests.reference import matrix_product


def aligned(terms, window, cut):
    """The exact sum of terms as multiples of 2^(top - window + 1): so many bits, the leading one among them."""
    top = max((floor_log2(abs(x)) for x in terms if x), default=0)
    unit = Fraction(2) ** (top - window + 1)
    return sum((cut(x / unit) * unit for x in terms), Fraction(0))


def toward_zero(units):
    return Fraction(int(units))


def sticky(units):
    """Cut off, but odd where something was."""
    whole = int(abs(units))
    return (whole + (whole % 2 == 0 and whole != abs(units))) * (1 if units > 0 else -1)


def in_windows(a, b, terms, window, output, mode, cut):
    """Chunks of products of powers of two, whose exponents are those of their operands together."""
    total = 0.0
    for first in range(0, len(a), terms):
        pairs = zip(a[first : first + terms], b[first : first + terms], strict=True)
        products = [Fraction(x) * Fraction(y) for x, y in pairs]
        total = round_value(aligned([Fraction(total), *products], window, cut) or 0.0, output, mode) + 0.0
    return total


def alignment_unit(a, b):
    return in_windows(a, b, 4, 21, sf.FP32, sf.nearest_even, sticky)


def fp8_chunks(a, b):
    total = 0.0
    for first in range(0, len(a), 128):
        part = in_windows(
            a[first : first + 128], b[first : first + 128], 32, 14, sf.Format(8, 13), sf.toward_zero, toward_zero
        )
        total = round_value(Fraction(total) + Fraction(part), sf.FP32, sf.nearest_even) + 0.0
    return total


def systolic(a, b):
    total = 0.0
    for first in range(0, len(a), 128):
        column = 0.0
        for x, y in zip(a[first : first + 128], b[first : first + 128], strict=True):
            column = round_value(Fraction(x) * Fraction(y) + Fraction(column), sf.FP32, sf.nearest_even) + 0.0
        total = round_value(Fraction(total) + Fraction(column), sf.FP32, sf.nearest_even) + 0.0
    return total


MACHINES = {
    "alignment unit of 20 bits": (
        sf.fused(4, 20, sf.FP32, rounding=sf.nearest_even, align=sf.to_odd),
        sf.BF16,
        alignment_unit,
    ),
    "FP8 chunks of 14 bits": (sf.blocked(128, sf.fused(32, 13, sf.Format(8, 13)), sf.FP32), sf.E4M3, fp8_chunks),
    "systolic array": (sf.systolic(128, 128), sf.BF16, systolic),
}


@pytest.mark.parametrize("name", MACHINES)
def test_sums_of_published_machines_are_those_by_hand(name, rng):
    accumulate, inputs, by_hand = MACHINES[name]
    signs = rng.choice([-1.0, 1.0], (2, 300))
    a, b = signs[:1] * 2.0 ** rng.integers(-5, 6, (2, 300)), 2.0 ** rng.integers(-4, 5, (300, 3))
    got = sf.matmul(a, b, inputs=inputs, accumulate=accumulate)
    assert_bits(got.astype(float), matrix_product(a, b, lambda x, y, _: by_hand(x, y)))


def test_the_columns_of_a_systolic_array_change_no_bit():
    assert (
        sf.systolic(4, 1, sf.BF16, total=sf.FP32)
        == sf.systolic(4, 99, sf.BF16, sf.FP32)
        == sf.blocked(4, sf.BF16, sf.FP32)
        == sf.Policy.from_dict({"compute": "bf16", "accumulate": "systolic(4, 9, BF16, FP32)"}).accumulate
    )
    for rows, columns, name in ((0, 1, "rows"), (1, 1.5, "columns")):
        with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1"):
            sf.systolic(rows, columns)
