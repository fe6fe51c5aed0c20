"""Checks of encoding, decoding and rounding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from simfloat.formats.definition import round_value
from simfloat.selftest import golden
from simfloat.selftest.comparison import Batch, call
from simfloat.selftest.hard_numbers import DETERMINISTIC, Array, adversarial, all_values
from simfloat.selftest.reference import draws

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
    """Published ties, edges and overflows; a rational number enters as the quotient that it is."""
    for name, x, codes in golden.ROUNDED:
        format = sf.CATALOG[name]
        for rounding, code in zip(DETERMINISTIC, codes.split(), strict=True):
            quotient = (float(x.numerator), float(x.denominator))
            got = sf.encode(sf.divide(*quotient, format, rounding), format)
            yield Batch("code of divide", quotient, (format, rounding), got, int(code, 16))


def codes_round_trip(quick: bool) -> Iterator[Batch]:
    """Every code of every format of at most 16 bits decodes to its number, and that encodes to the code."""
    for format in SMALL:
        codes, numbers = numbers_by_code(format)
        yield Batch("decode", (codes,), (format,), sf.decode(codes, format).astype(np.float64), numbers)
        has_own_code = format.subnormals | (np.abs(numbers) >= format.smallest_normal) | np.isnan(numbers)
        got = sf.encode(numbers[has_own_code], format).astype(np.int64)
        yield Batch("encode", (numbers[has_own_code],), (format,), got, codes[has_own_code])


def numbers_by_code(format: sf.Format) -> tuple[NDArray[np.int64], Array]:
    """All codes with a number, and one of NaN, by the formula of a code's value."""
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
    """Every number of every format of at most 16 bits is rounded to itself, in every mode."""
    for format in SMALL:
        values = all_values(format)
        values = values[np.isfinite(values)]
        for rounding in MODES[::4] if quick else [*MODES, *RANDOM]:
            yield call("round", (values,), format, rounding, values)


def ties_and_edges(quick: bool) -> Iterator[Batch]:
    """Numbers on, beside and between ties and at the ends of the range, against the definition."""
    rng = np.random.default_rng(1)
    for format in FORMATS:
        x = adversarial(format, rng, count=2)[:: 9 if quick else 2]
        for rounding in MODES:
            yield call("round", (x,), format, rounding, [round_value(float(v), format, rounding) for v in x])


def stochastic_variants(quick: bool) -> Iterator[Batch]:
    """Stochastic rounding with few and many random bits: the draws by the counter, the decision by the definition."""
    rng = np.random.default_rng(2)
    for format in FORMATS:
        x = adversarial(format, rng, count=2)[:: 25 if quick else 7]
        for rounding in RANDOM:
            random = draws(x.size, rounding, seed=5)
            want = [round_value(float(v), format, rounding, r) for v, r in zip(x, random, strict=True)]
            yield call("round", (x,), format, rounding, want, seed=5)
