"""Compare accumulators of random formats, modes and nesting, on operands of any size, with the definition."""

import itertools

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.format import TININESS
from simfloat.tools.selftest.checks import hard_operands
from simfloat.tools.selftest.orders import dot, matrix
from tests.accumulate.definition import MODES, check
from tests.bits import assert_bits

KNOWN = [format for format in sf.CATALOG.values() if format.precision <= 50 and format.signed and format.has_nan]
NARROW = (sf.FP16, sf.BF16, sf.E4M3, sf.E5M2, sf.E2M1, sf.E3M2)


def random_format(rng):
    if rng.random() < 0.5:
        return rng.choice(KNOWN)
    bias = int(rng.integers(-20, 60)) if rng.random() < 0.4 else None
    special = str(rng.choice(["ieee", "fn", "fnuz"]))
    widths = int(rng.integers(3, 10)), int(rng.integers(1, 16))
    subnormals, tininess = bool(rng.random() < 0.85), str(rng.choice(TININESS))
    return sf.Format(*widths, bias=bias, special=special, subnormals=subnormals, tininess=tininess)


def random_accumulator(rng, depth=0):
    kind = rng.integers(4 if depth < 2 else 3)
    if kind == 3:
        return sf.blocked(int(rng.integers(1, 14)), *(random_accumulator(rng, depth + 1) for _ in range(2)))
    order, modes = list(MODES.items())[kind]
    products = {"products": random_format(rng)} if kind == 0 and rng.random() < 0.5 else {}
    rounding = rng.choice(MODES[sf.kahan] if products else modes)
    rounding = rounding.saturating() if rng.random() < 0.2 else rounding
    format = random_format(rng) if order is sf.sequential or not rounding.is_stochastic else sf.FP16
    return order(format, rounding=rounding, **products)


def random_operands(rng, accumulator):
    """Hard sums; half of them scaled so that products lie anywhere in the first accumulator's range."""
    terms = int(rng.integers(1, 30))
    inputs = rng.choice(KNOWN)
    a, b = hard_operands(rng, inputs if inputs.has_negative_zero else sf.FP16, 2, max(terms, 11), 2)
    while hasattr(accumulator, "inner"):
        accumulator = accumulator.inner
    format = accumulator.format
    if rng.random() < 0.5:
        scale = 2.0 ** (int(rng.integers(format.emin - format.mantissa_bits - 3, format.emax + 3)) // 2)
        a, b = a * scale, b * scale
    return a[:, :terms].astype(float), b[:terms].astype(float)


@pytest.mark.parametrize("seed", range(3))
def test_random_accumulators_follow_the_definition(seed):
    rng = np.random.default_rng(seed)
    for _ in range(60):
        accumulator = random_accumulator(rng)
        check(accumulator, *random_operands(rng, accumulator))


def random_parts(rng):
    """The rounding of totals and the alignment of terms in a custom unit."""
    rounding = None if rng.random() < 0.2 else rng.choice(MODES[sf.sequential])
    return dict(rounding=rounding, align=rng.choice([sf.toward_zero, sf.nearest_even, sf.to_odd, sf.toward_negative]))


@pytest.mark.parametrize("seed", range(3))
def test_random_fused_sums_follow_the_definition(seed):
    rng = np.random.default_rng(seed)
    for _ in range(60):
        formats = rng.choice(NARROW), rng.choice(NARROW)
        terms = int(rng.integers(1, 40))
        a, b = (
            sf.round(rng.standard_normal(shape) * 2.0 ** rng.integers(-20, 12, shape), format, CLAMPED).astype(float)
            for shape, format in zip(((2, terms), (terms, 3)), formats, strict=True)
        )
        a[rng.random(a.shape) < 0.15] = 0
        zero = None if rng.random() < 0.3 else int(rng.integers(-140, 10))
        parts = int(rng.integers(1, 40)), int(rng.integers(1, 41))
        if rng.random() < 0.5:
            unit = sf.fused(*parts, rng.choice([sf.FP32, sf.FP16, sf.Format(8, 13)]), zero_exponent=zero)
        else:
            unit = sf.fused(*parts, random_format(rng), **random_parts(rng), zero_exponent=zero)
        check(unit, a, b, inputs=formats)


CLAMPED = sf.nearest_even.saturating()


@pytest.mark.parametrize("seed", range(3))
def test_operands_beyond_float32_follow_the_definition(seed):
    # Their products lie inside float32's range or not; the sums are made in float32 where nothing is lost by it.
    rng = np.random.default_rng(100 + seed)
    for _ in range(60):
        accumulator = random_accumulator(rng)
        (a, b), scale = random_operands(rng, accumulator), 2.0 ** int(rng.integers(-900, 901))
        with np.errstate(over="ignore"):
            a, b = a * scale, b / scale
        if np.isfinite(a).all() and np.isfinite(b).all():
            check(accumulator, a, b)


@pytest.mark.parametrize("seed", range(3))
def test_random_sums_of_fused_sums_follow_the_definition(seed):
    rng = np.random.default_rng(200 + seed)
    for _ in range(10):
        own = {"output": random_format(rng), **random_parts(rng)} if rng.random() < 0.5 else {}
        parts = [sf.fused(int(rng.integers(1, 9)), int(rng.integers(8, 30)), **own), random_format(rng)]
        inner, outer = parts if rng.random() < 0.5 else parts[::-1]
        unit = sf.blocked(int(rng.integers(1, 9)), inner, outer)
        if rng.random() < 0.3:
            unit = sf.blocked(int(rng.integers(1, 20)), unit, sf.fused(4, 20, sf.FP16))
        elif rng.random() < 0.3:
            unit = sf.lanes(int(rng.integers(1, 9)), inner, outer)
        a, b = sf.round(rng.standard_normal((9, 31)), sf.E4M3), sf.round(rng.standard_normal((31, 4)), sf.E4M3)
        columns = int(rng.integers(1, 5))  # few of them are computed as rows of the transposed product
        emins = sf.E4M3.emin, sf.E4M3.emin
        got = sf.matmul(a, b[:, :columns], inputs=sf.E4M3, accumulate=unit, output=sf.FP64, stream=sf.BitStream(3))
        try:
            want = matrix(
                a, b[:, :columns], lambda x, y, i, it=unit, emins=emins: dot(it, x, y, emins, element=i, seed=3)
            )
        except (OverflowError, ValueError):
            continue  # an infinite run, which the definition of a fused sum does not take
        assert_bits(got[np.isfinite(want)], want[np.isfinite(want)])


def test_a_clamped_infinity_is_a_large_part_of_the_sum():
    # Its bits lie far above those of the other terms, which alone would let the sum be carried in few bits.
    x = np.array([[np.inf, -32.0, 1.0, 1.0, -3.0, 2.0**-9, -np.inf, 4.0, 8.0]])
    modes = CLAMPED, sf.toward_zero.saturating(), sf.stochastic(8, "A").saturating()
    for format, rounding in itertools.product((sf.FP16, sf.BF16, sf.E4M3, sf.E5M2), modes):
        steps = sf.sequential(format, rounding=rounding)
        for accumulator in (
            *(steps, sf.pairwise(format, rounding=rounding), sf.blocked(2, sf.E5M2, steps)),
            *(sf.sequential(format, rounding=CLAMPED, products=sf.E5M2), sf.kahan(format, rounding=CLAMPED)),
        ):
            check(accumulator, x, np.ones((x.size, 1)))
