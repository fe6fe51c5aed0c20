"""Operands that are hard to round, and the modes to round them in."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from simfloat.formats.rounding import MODES, Rounding

Array = NDArray[np.float64]

DETERMINISTIC = tuple(map(Rounding, MODES))

SPECIALS = (0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 1.7976931348623157e308, 2.0**-1022, 1.0, -1.0)


def all_values(format: sf.Format) -> Array:
    """The value of every code of a format, NaN and infinities included."""
    return sf.decode(np.arange(2**format.bits), format).astype(np.float64)


def adversarial(format: sf.Format, rng: np.random.Generator, count: int = 20) -> Array:
    """float64 numbers around `count` random numbers of the format: ties, neighbours of ties, edges, specials."""
    codes = rng.integers(0, format.max_code + 1, count)
    base = format.magnitudes(codes).tolist()
    base += [0.0, format.smallest_subnormal, format.smallest_normal, format.max]
    if format.flushes:
        base.append(format.smallest_normal * (1 - format.eps / 2))  # the last number that is tiny after rounding
    numbers: list[float] = []
    for v in base:
        spacing = 2.0 ** (max(int(np.frexp(v)[1]) - 1 if v else -2000, format.last_exponent) - format.mantissa_bits)
        for part in (0, 0.25, 0.5, 0.75, 1.0, 1e-9, 1 - 1e-9, rng.random()):
            w = v + part * spacing
            numbers += [w, math.nextafter(w, math.inf), math.nextafter(w, 0.0)]
    wide = rng.standard_normal(20) * 2.0 ** rng.integers(-1000, 1000, 20)
    positive = np.concatenate([numbers, np.abs(wide), [1e308, 5e-324, 2.0**-1022, np.inf]])
    values = np.concatenate([positive, -positive, [np.nan]])
    if format.has_nan:
        return values
    values = values[~np.isnan(values)]
    return values if format.signed else values[~np.signbit(values)]


def operands(rng: np.random.Generator, count: int, scale: int = 1000) -> tuple[Array, Array, Array]:
    """Operands of several precisions over float64's range, with cancellations, far addends and specials."""
    a, b, c = (_mixture(rng, count, scale) for _ in range(3))
    with np.errstate(all="ignore"):
        c[::7], c[1::11] = -(a * b)[::7], (a * b)[1::11] * 2.0**-60
        b[::13], b[1::13] = -a[::13], a[1::13] * 2.0**-70
    return a, b, c


def _mixture(rng: np.random.Generator, count: int, scale: int) -> Array:
    x = rng.standard_normal(count)
    wide = x * 2.0 ** rng.integers(-scale, scale, count)
    kinds = [
        x,
        x.astype(np.float32),
        x.astype(np.float16),
        wide,
        x.astype(np.float32) * 2.0 ** rng.integers(-60, 60, count),
    ]
    mixed: Array = np.choose(rng.integers(0, len(kinds), count), [np.asarray(k, np.float64) for k in kinds])
    special = rng.random(count) < 0.05
    mixed[special] = rng.choice(SPECIALS, special.sum())
    return mixed


def hard_operands(
    rng: np.random.Generator, inputs: sf.Format, m: int, k: int, n: int
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Matrices (m, k) and (k, n) of `inputs` whose sums meet ties, cancel, and differ widely in size."""
    a = rng.standard_normal((m, k)) * 2.0 ** rng.integers(-12, 6, (m, k))
    b = rng.standard_normal((k, n)) * 2.0 ** rng.integers(-6, 6, (k, n))
    # Powers of two and their neighbours make ties; a repeated column with the other sign cancels.
    short = rng.random((m, k)) < 0.4
    a[short] = rng.choice([1.0, 0.5, 1.5, -1.0, 3.0, 2.0**-8, 2.0**-11, 257.0, 0.0], short.sum())
    a[:, 1::5] = -a[:, 0:-1:5][:, : a[:, 1::5].shape[1]]
    b[1::5] = b[0:-1:5][: b[1::5].shape[0]]
    far = rng.random((k, n)) < 0.1
    b[far] *= 2.0**-20
    saturating = sf.nearest_even.saturating()
    return sf.round(a, inputs, saturating), sf.round(b, inputs, saturating)
