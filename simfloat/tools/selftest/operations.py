"""Check encoding, decoding, rounding, elementwise operations, square root and elementary functions.

The exact result of an elementwise operation is rounded once. Functions are compared with the decimal module of Python's
standard library. Its `exp`, `ln` and `sqrt` are correct in the last of as many digits as asked for. 120 digits are
enough: no value of these functions at a 16-bit operand, nor a root of a float64, comes that near to a tie without being
one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import product

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from simfloat.arithmetic import catalog
from simfloat.arithmetic.catalog import FUNCTIONS
from simfloat.formats.definition import round_value
from simfloat.tools.selftest import definitions
from simfloat.tools.selftest.checks import DETERMINISTIC, Array, Batch, adversarial, all_values, call, operands
from simfloat.tools.selftest.definitions import draws, operate, operate_on_arrays

FORMATS = (
    *sf.CATALOG.values(),
    *(sf.p3109(8, 3), sf.p3109(8, 1), sf.p3109(8, 4, signed=False), sf.p3109(8, 4, extended=False)),
    *(sf.Format(5, 3, subnormals=False), sf.Format(5, 3, subnormals=False, tininess="before_rounding")),
    *(sf.Format(6, 9, bias=-900), sf.Format(11, 49)),
)
SMALL = tuple(format for format in FORMATS if format.bits <= 16)
MODES = [mode for plain in DETERMINISTIC for mode in (plain, plain.saturating())]
RANDOM = [sf.stochastic(bits, variant) for variant in "ABC" for bits in (1, 3, 32)]


def golden_vectors(quick: bool) -> Iterator[Batch]:
    """Check published ties, edges and overflows; a rational number is passed as a quotient."""
    for name, x, codes in definitions.ROUNDED:
        format = sf.CATALOG[name]
        for rounding, code in zip(definitions.ROUNDED_MODES, codes.split(), strict=True):
            quotient = (float(x.numerator), float(x.denominator))
            got = sf.encode(sf.divide(*quotient, format, rounding), format)
            yield Batch("code of divide", quotient, (format, rounding), got, int(code, 16))


def codes_round_trip(quick: bool) -> Iterator[Batch]:
    """Check that every code of every format of at most 16 bits decodes to its number, and back."""
    for format in SMALL:
        codes, numbers = numbers_by_code(format)
        yield Batch("decode", (codes,), (format,), sf.decode(codes, format).astype(np.float64), numbers)
        has_own_code = format.subnormals | (np.abs(numbers) >= format.smallest_normal) | np.isnan(numbers)
        got = sf.encode(numbers[has_own_code], format).astype(np.int64)
        yield Batch("encode", (numbers[has_own_code],), (format,), got, codes[has_own_code])


def numbers_by_code(format: sf.Format) -> tuple[NDArray[np.int64], Array]:
    """Return all codes of numbers and one code of NaN, with their values by the formula."""
    table = dict(enumerate(format.magnitudes(np.arange(format.max_code + 1)).tolist()))
    if format.infinity_code is not None:
        table[format.infinity_code] = np.inf
    if format.signed:
        sign = 1 << (format.bits - 1)
        table |= {code + sign: -x for code, x in table.items() if x or format.has_negative_zero}
    if format.nan_code is not None:
        table[format.nan_code] = np.nan
    return np.array(list(table)), np.array(list(table.values()))


def fixed_points(quick: bool) -> Iterator[Batch]:
    """Check that every number of every format of at most 16 bits is rounded to itself, in every mode."""
    for format in SMALL:
        values = all_values(format)
        values = values[np.isfinite(values)]
        for rounding in MODES[::4] if quick else [*MODES, *RANDOM]:
            yield call("round", (values,), format, rounding, values)


def ties_and_edges(quick: bool) -> Iterator[Batch]:
    """Compare roundings of values at, near and between ties and at the ends of the range with the definition."""
    rng = np.random.default_rng(1)
    for format in FORMATS:
        x = adversarial(format, rng, count=2)[:: 9 if quick else 2]
        for rounding in MODES:
            yield call("round", (x,), format, rounding, [round_value(float(v), format, rounding) for v in x])


def stochastic_variants(quick: bool) -> Iterator[Batch]:
    """Check stochastic rounding with few and many random bits against the definition."""
    rng = np.random.default_rng(2)
    for format in FORMATS:
        x = adversarial(format, rng, count=2)[:: 25 if quick else 7]
        for rounding in RANDOM:
            random = draws(x.size, rounding, seed=5)
            want = [round_value(float(v), format, rounding, r) for v, r in zip(x, random, strict=True)]
            yield call("round", (x,), format, rounding, want, seed=5)


#: Operations of two numbers whose exact results are quotients, and all operations of two numbers that are correctly
#: rounded.
QUOTIENTS = ("add", "subtract", "multiply", "divide")
PAIRS = tuple(row.name for row in FUNCTIONS.values() if row.accuracy == "exact" and len(row.operands) == 2)
EIGHT_BITS = (sf.E4M3, sf.E5M2, sf.E3M4, sf.E4M3_IEEE, sf.E4M3FNUZ, sf.E5M2FNUZ, sf.E4M3B11FNUZ, sf.p3109(8, 3))
SIX_BITS = (sf.E3M2, sf.E2M3, sf.E2M1)
WIDE = (sf.FP16, sf.BF16, sf.TF32, sf.FP32, sf.E4M3, sf.Format(11, 20), sf.Format(11, 49))


def all_pairs(quick: bool) -> Iterator[Batch]:
    """Check every pair of 8-bit numbers: add, subtract, multiply, divide, in every deterministic mode."""
    for format, operation in product(EIGHT_BITS[:2] if quick else EIGHT_BITS, QUOTIENTS):
        yield from every_pair(format, operation)


def every_pair(format: sf.Format, operation: str) -> Iterator[Batch]:
    """Return every pair of numbers of a format under one operation; without 0 / 0 if the format has no NaN."""
    a, b = (x.ravel() for x in np.meshgrid(all_values(format), all_values(format)))
    if not format.has_nan and operation == "divide":
        a, b = a[(a != 0) | (b != 0)], b[(a != 0) | (b != 0)]
    for rounding in DETERMINISTIC:
        yield call(operation, (a, b), format, rounding, operate_on_arrays(operation, (a, b), format, rounding))


def all_triples(quick: bool) -> Iterator[Batch]:
    """Check every a * b + c of 4-bit and 6-bit numbers in every deterministic mode, of E4M3 numbers to nearest even."""
    for format in SIX_BITS[2:] if quick else SIX_BITS:
        yield from every_triple(format, DETERMINISTIC)
    if not quick:
        yield from every_triple(sf.E4M3, (sf.nearest_even,))


def every_triple(format: sf.Format, roundings: tuple[sf.Rounding, ...]) -> Iterator[Batch]:
    """Yield every triple of numbers of a format under fma, one batch for each a; a * b + c must be exact in float64."""
    values = all_values(format)
    b, c = (x.ravel() for x in np.meshgrid(values, values))
    for a, rounding in product(values, roundings):
        triple = (np.full_like(b, a), b, c)
        yield call("fma", triple, format, rounding, operate_on_arrays("fma", triple, format, rounding))


def in_fp16(quick: bool) -> Iterator[Batch]:
    """Check float32 operands of the whole range, rounded to FP16, by the hardware if it converts."""
    a, b, c = _in_float32(300 if quick else 3000)
    for operation in (*PAIRS, "fma"):
        operands = (a, b, c)[: len(FUNCTIONS[operation].operands)]
        want = [operate(operation, sf.FP16, sf.nearest_even, *map(float, x)) for x in zip(*operands, strict=True)]
        yield call(operation, operands, sf.FP16, sf.nearest_even, want)
    for operation in ("sqrt", "reciprocal"):
        wide = getattr(sf, operation)(a.astype(np.float64), sf.FP16)
        yield call(operation, (a,), sf.FP16, sf.nearest_even, wide)


def on_float32(quick: bool) -> Iterator[Batch]:
    """Check float32 operands rounded to nearest even in formats other than FP16, which need no exact result."""
    a, b, _ = _in_float32(100 if quick else 1000)
    for format, operation in product((sf.BF16, sf.E4M3, sf.Format(11, 20)), PAIRS):
        want = [operate(operation, format, sf.nearest_even, *map(float, x)) for x in zip(a, b, strict=True)]
        yield call(operation, (a, b), format, sf.nearest_even, want)


def _in_float32(count: int) -> list[NDArray[np.float32]]:
    """Return operands of the whole range of float32; some have quotients near the ends of the range of FP16."""
    rng = np.random.default_rng(15)
    with np.errstate(over="ignore"):
        a, b, c = (x.astype(np.float32) for x in operands(rng, count, scale=150))
        b[::5] = a[::5] * 2.0 ** rng.integers(-18, 26, b[::5].size)
    a[1::5] = rng.integers(1, 99, a[1::5].size)
    return [a, b, c]


def whole_range(quick: bool) -> Iterator[Batch]:
    """Compare operands of the whole range of float64, with cancellations, far addends and specials, with fractions."""
    rng = np.random.default_rng(3)
    count = 20 if quick else 90
    for format, operation in product(WIDE, (*PAIRS, "fma")):
        arrays = operands(rng, count)[: 3 if operation == "fma" else 2]
        for rounding in (*DETERMINISTIC, sf.stochastic(), sf.stochastic(3, "A")):
            yield by_fractions(operation, arrays, format, rounding)


def fma_of_narrow_numbers(quick: bool) -> Iterator[Batch]:
    """Compare a * b + c of random numbers of one format, with cancellations and near ties, with fractions."""
    rng = np.random.default_rng(4)
    for format in (sf.FP16, sf.BF16, sf.E4M3, sf.E5M2):
        numbers = near_triples(format, rng, 300 if quick else 2500)
        for rounding in (sf.nearest_even, sf.toward_negative):
            yield by_fractions("fma", numbers, format, rounding)


def near_triples(format: sf.Format, rng: np.random.Generator, count: int) -> tuple[Array, Array, Array]:
    """Return numbers a, b, c of the format; c is close to a * b in size, except in an eighth of the cases."""
    a, b, c = rng.choice(all_values(format), (3, count))
    a[::2] = rng.choice(all_values(format)[np.abs(all_values(format)) <= 1], a[::2].size)
    with np.errstate(all="ignore"):
        near = a * b * rng.choice([-1.0, 1.0, 1.5], count) * 2.0 ** rng.integers(-format.precision - 2, 3, count)
    rounded = sf.round(near, format)
    keep = (np.arange(count) % 8 == 0) | ~np.isfinite(rounded)
    return a, b, np.where(keep, c, rounded)


def by_fractions(operation: str, operands: tuple[Array, ...], format: sf.Format, rounding: sf.Rounding) -> Batch:
    """Return an operation on these numbers, compared with the definition."""
    random = draws(operands[0].size, rounding, seed=9) if rounding.is_stochastic else np.zeros(operands[0].size, int)
    want = [
        operate(operation, format, rounding, *map(float, x), random=r) for *x, r in zip(*operands, random, strict=True)
    ]
    return call(operation, operands, format, rounding, want, seed=9)


DIGITS = 120

_MANY_DIGITS = Context(prec=DIGITS, Emin=-999_999, Emax=999_999)


#: Special operands.
SPECIALS = (0.0, -0.0, math.inf, -math.inf, math.nan)

#: Every function of one operand, with its values at special operands and the other operands to try.
UNARY_FUNCTIONS = {name: row for name, row in catalog.FUNCTIONS.items() if len(row.operands) == 1}


def square_roots(quick: bool) -> Iterator[Batch]:
    """Check square roots of float64 numbers, of squares of ties, and of their neighbours."""
    rng = np.random.default_rng(5)
    count = 15 if quick else 80
    for format in (sf.FP16, sf.BF16, sf.FP32, sf.E4M3):
        # The square of a tie has 2p + 2 bits, and its root is a tie; roots of its neighbours are close to the tie.
        ties = rng.integers(2**format.precision, 2 ** (format.precision + 1), count) | 1
        squares = (ties * 2.0**-format.precision) ** 2 * 4.0 ** rng.integers(format.emin // 2, format.emax // 2, count)
        wide = np.abs(rng.standard_normal(count)) * 2.0 ** rng.integers(-1000, 1000, count)
        x = np.concatenate([squares, np.nextafter(squares, 0), np.nextafter(squares, np.inf), wide])
        yield from _by_decimals("sqrt", x, format)


def elementary_functions(quick: bool) -> Iterator[Batch]:
    """Check functions of 16-bit numbers, rounded to 16 bits in every deterministic mode."""
    rng = np.random.default_rng(6)
    for name, row in UNARY_FUNCTIONS.items():
        for format in (sf.FP16, sf.BF16):
            x = rng.standard_normal(30 if quick else 150) * 2.0 ** rng.integers(-30, 6, 30 if quick else 150)
            x = sf.round(np.abs(x) if row.positive else x, format)
            yield from _by_decimals(name, x[(x != 0) & (np.abs(x) < row.below) & (x > row.above)], format)


def powers(quick: bool) -> Iterator[Batch]:
    """Compare powers of 16-bit numbers with fractions for integer exponents, and with decimals for others."""
    rng = np.random.default_rng(7)
    count = 30 if quick else 150
    for format in (sf.FP16, sf.BF16):
        a = sf.round(rng.uniform(0.25, 4, count), format).astype(np.float64)
        b = rng.integers(-8, 12, count).astype(np.float64)
        yield from _batches_in_every_mode(
            "power", (a, b), [Fraction(x) ** int(y) for x, y in zip(a, b, strict=True)], format
        )
        # Three times a power of two, raised to an exponent that is not an integer, is irrational: no result is a tie.
        a, b = 3 / 2.0 ** rng.integers(-6, 6, count), (2 * rng.integers(-40, 40, count) + 1) / 16
        with localcontext(_MANY_DIGITS):
            exact = [Fraction(Decimal(x) ** Decimal(y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        yield from _batches_in_every_mode("power", (a, b), exact, format)


def angles(quick: bool) -> Iterator[Batch]:
    """Check angles of points with 16-bit coordinates, by the angle of the quotient."""
    rng = np.random.default_rng(8)
    count = 30 if quick else 150
    for format in (sf.FP16, sf.BF16):
        a, b = (sf.round(x, format).astype(np.float64) for x in rng.standard_normal((2, count)))
        with localcontext(_MANY_DIGITS):
            exact = [_value("atan2", y, x) for y, x in zip(a.tolist(), b.tolist(), strict=True)]
        yield from _batches_in_every_mode("atan2", (a, b), exact, format)


def zetas(quick: bool) -> Iterator[Batch]:
    """Check sums of powers of 16-bit numbers."""
    rng = np.random.default_rng(9)
    count = 8 if quick else 40
    for format in (sf.FP16, sf.BF16):
        s = sf.round(1.125 + 6 * rng.random(count), format).astype(np.float64)
        q = sf.round(2.0 ** rng.uniform(-5, 9, count), format).astype(np.float64)
        with localcontext(_MANY_DIGITS):
            exact = [_value("zeta", x, y) for x, y in zip(s.tolist(), q.tolist(), strict=True)]
        yield from _batches_in_every_mode("zeta", (s, q), exact, format)


def special_operands(quick: bool) -> Iterator[Batch]:
    """Check functions at zeros, infinities and NaN."""
    for name, row in UNARY_FUNCTIONS.items():
        for format in (sf.FP16, sf.FP32) if quick else (sf.FP16, sf.BF16, sf.FP32, sf.FP64):
            yield call(name, (np.array(SPECIALS),), format, sf.nearest_even, sf.round(row.specials, format))


def _by_decimals(name: str, x: Array, format: sf.Format) -> Iterator[Batch]:
    with localcontext(_MANY_DIGITS):
        exact = [_value(name, float(v)) for v in x]
    yield from _batches_in_every_mode(name, (x,), exact, format)


def _batches_in_every_mode(
    name: str, operands: tuple[Array, ...], exact: list[Fraction], format: sf.Format
) -> Iterator[Batch]:
    """Yield a function, compared with its exact results rounded by the definition, in every deterministic mode."""
    for rounding in DETERMINISTIC:
        yield call(name, operands, format, rounding, [round_value(v, format, rounding) for v in exact])


def _value(name: str, *operands: float) -> Fraction:
    """Return a function of numbers with the digits of the context of decimals."""
    value = catalog.FUNCTIONS[name].value
    assert value is not None, f"{name} has no value by decimals."
    return Fraction(value(*map(Decimal, operands)))
