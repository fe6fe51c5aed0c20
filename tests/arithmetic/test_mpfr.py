"""Compare operations that are hard to round with MPFR, with the precision and exponent range of the format."""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits

FORMATS = [sf.FP32, sf.TF32, sf.BF16, sf.FP16]
TINY = [0.0, -0.0, 5e-324, -5e-324, 2.0**-1000, -(2.0**-1000)]


def ties(format, rng, count=120):
    """Numbers halfway between neighbours: anywhere, among subnormals, at powers of two, and where overflow begins."""
    spacings = 2.0 ** rng.integers(format.emin - format.mantissa_bits, format.emax - format.mantissa_bits + 1, count)
    anywhere = (rng.integers(2**format.mantissa_bits, 2**format.precision, count) + 0.5) * spacings
    subnormal = (rng.integers(0, 2**format.mantissa_bits, count // 2) + 0.5) * format.smallest_subnormal
    powers = 2.0 ** np.array([format.emin, 0.0, 1.0, format.emax])
    below, above = powers * (1 - format.eps / 4), powers * (1 + format.eps / 2)
    beyond = np.array([format.max + 2.0 ** (format.emax - format.mantissa_bits - 1)])
    numbers = np.concatenate([anywhere, subnormal, below, above, beyond])
    return numbers * rng.choice([-1.0, 1.0], numbers.size)


def beside(*operands):
    """The operands, and the same with the first one place down and up: sticky bits 2^-52 below."""
    first, *others = operands
    firsts = [first, np.nextafter(first, -np.inf), np.nextafter(first, np.inf)]
    return np.concatenate(firsts), *(np.tile(x, 3) for x in others)


def joined(*cases):
    """Several tuples of operands as one."""
    return tuple(np.concatenate(column) for column in zip(*cases, strict=True))


def split_ties(tie, rng):
    """A short part of each tie and the rest, exactly: their sum is the tie."""
    part = np.ldexp(np.round(np.frexp(tie)[0] * rng.integers(2, 64, tie.size)), np.frexp(tie)[1] - 4)
    return part, tie - part


def odd_factors(format, tie, rng):
    """Pairs of odd numbers whose products have one bit too many, and powers of two that spread them over the range."""
    low = rng.integers(1, format.precision, tie.size)
    a = rng.integers(2**low // 2, 2**low) | 1
    b = rng.integers(2 ** (format.precision - low), 2 ** (format.precision + 1 - low)) | 1
    return a * 2.0 ** np.frexp(tie)[1], b * 2.0**-format.precision


def addends(format, rng):
    tie = ties(format, rng)
    far = np.repeat(tie, len(TINY)), np.tile(TINY, tie.size)
    return joined(beside(*split_ties(tie, rng)), far, (tie, -tie))


def factors(format, rng):
    tie = ties(format, rng)
    shift = 2.0 ** rng.integers(-200, 200, tie.size)
    # With 53 random bits each, what float64 takes for a tie lies a little beside it.
    wide = rng.uniform(1, 2, tie.size) * shift
    return joined(beside(tie * shift, 1 / shift), beside(*odd_factors(format, tie, rng)), (tie / wide, wide))


def quotients(format, rng):
    tie = ties(format, rng)
    divisor = rng.integers(1, 2 ** (52 - format.precision), tie.size) * 2.0 ** rng.integers(-100, 100, tie.size)
    wide = rng.uniform(1, 2, tie.size) * divisor
    return joined(beside(tie * divisor, divisor), beside(divisor, tie), (tie * wide, wide))


def fused(format, rng):
    tie = ties(format, rng)
    a, b = odd_factors(format, tie, rng)
    far = np.repeat(a, len(TINY)), np.repeat(b, len(TINY)), np.tile(TINY, tie.size)
    # The product lies far below the tie that it is added to.
    sticky = rng.standard_normal(tie.size) * 2.0**-300, rng.standard_normal(tie.size) * 2.0**-300, tie
    part, rest = split_ties(tie, rng)
    cancelling = rng.standard_normal((2, tie.size)).astype(np.float32).astype(np.float64)
    return joined(
        far, sticky, beside(part * 8, np.full(tie.size, 0.125), rest), (*cancelling, -cancelling[0] * cancelling[1])
    )


def squares(format, rng):
    # A tie has p + 1 <= 25 bits, so float64 holds its square.
    return beside(np.square(ties(format, rng)))


CASES = {"add": addends, "multiply": factors, "divide": quotients, "fma": fused, "sqrt": squares}


@pytest.mark.parametrize("format", FORMATS, ids=str)
@pytest.mark.parametrize("operation", CASES)
def test_ties_sticky_bits_and_edges_agree_with_mpfr(operation, format, rng, gmpy2):
    function = getattr(gmpy2, {"multiply": "mul", "divide": "div"}.get(operation, operation))
    numbers = CASES[operation](format, rng)
    with gmpy2.context(precision=53, emin=-2000, emax=2000):
        exact = [[gmpy2.mpfr(float(v)) for v in operands] for operands in zip(*numbers, strict=True)]
    # MPFR's significands lie in [1/2, 1): its exponents are one larger than IEEE's.
    lowest = format.emin - format.mantissa_bits + 1
    narrow = dict(precision=format.precision, emin=lowest, emax=format.emax + 1, subnormalize=True)
    for rounding, direction in (
        *((sf.nearest_even, gmpy2.RoundToNearest), (sf.toward_zero, gmpy2.RoundToZero)),
        *((sf.toward_positive, gmpy2.RoundUp), (sf.toward_negative, gmpy2.RoundDown)),
    ):
        with gmpy2.context(**narrow, round=direction):
            want = [float(function(*operands)) for operands in exact]
        assert_bits(getattr(sf, operation)(*numbers, format, rounding), want, *numbers)
    # Many cases are rounded wrongly by whoever computes in float64 and then rounds.
    plain = {"fma": lambda x, y, z: x * y + z}.get(operation) or getattr(np, operation)
    with np.errstate(all="ignore"):
        twice = sf.round(plain(*numbers), format)
    differ = ~np.equal(twice, getattr(sf, operation)(*numbers, format)) & ~np.isnan(twice)
    assert differ.sum() > 20, "the cases are not hard"
