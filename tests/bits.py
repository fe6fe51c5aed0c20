"""Comparing results bit for bit, and numbers that are hard to round."""

import math

import numpy as np

import simfloat as sf

DETERMINISTIC = (
    sf.nearest_even,
    sf.nearest_away,
    sf.toward_zero,
    sf.toward_positive,
    sf.toward_negative,
    sf.to_odd,
)

#: Beyond the catalog: P3109, one significand bit, no sign, no subnormals, exponents up to float64's ends.
CUSTOM = (
    *(sf.p3109(8, p, s, e) for p in (1, 3, 4) for s in (True, False) for e in (True, False)),
    sf.Format(4, 0, special="finite"),
    sf.Format(5, 0, special="fn"),
    sf.Format(5, 3, subnormals=False),
    sf.Format(5, 2, signed=False),
    sf.Format(3, 2, special="finite", signed=False),
    sf.Format(4, 2, special="fn", signed=False, subnormals=False),
    sf.Format(8, 7, bias=100),
    sf.Format(6, 9, bias=-900),
    sf.Format(6, 9, bias=1000),
    sf.Format(11, 20),
    sf.Format(11, 49),
    sf.Format(10, 51),
    sf.Format(10, 52),
)

FORMATS = (*sf.CATALOG.values(), *CUSTOM)


def equal_bits(a, b):
    """Elementwise: the same number, zeros of the same sign, or both NaN."""
    a, b = np.asarray(a), np.asarray(b)
    return (np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))


def assert_bits(got, want, *inputs):
    """Fail with the first differing element and its inputs, as hexadecimal floats."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, (got.shape, want.shape)
    wrong = ~equal_bits(got, want)
    if wrong.any():
        place = tuple(np.argwhere(wrong)[0])
        operands = [float(np.broadcast_to(x, got.shape)[place]).hex() for x in inputs]
        raise AssertionError(
            f"{wrong.sum()} of {wrong.size} differ, first at {place}: got {float(got[place]).hex()}, "
            f"want {float(want[place]).hex()}, inputs {operands}"
        )


def adversarial(format, rng, count=20):
    """float64 numbers around `count` random numbers of the format: ties, neighbours of ties, edges, specials."""
    codes = rng.integers(0, format.max_code + 1, count)
    base = [format.magnitude(int(code)) for code in codes]
    base += [0.0, format.smallest_subnormal, format.smallest_normal, format.max]
    numbers = []
    for v in base:
        spacing = 2.0 ** (max(int(np.frexp(v)[1]) - 1 if v else -2000, format.emin) - format.mantissa_bits)
        for part in (0, 0.25, 0.5, 0.75, 1.0, 1e-9, 1 - 1e-9, rng.random()):
            w = v + part * spacing
            numbers += [w, math.nextafter(w, math.inf), math.nextafter(w, 0.0)]
    wide = rng.standard_normal(20) * 2.0 ** rng.integers(-1000, 1000, 20)
    numbers = np.concatenate([numbers, np.abs(wide), [1e308, 5e-324, 2.0**-1022, np.inf]])
    both = np.concatenate([numbers, -numbers, [np.nan]])
    if format.has_nan:
        return both
    both = both[~np.isnan(both)]
    return both if format.signed else both[~np.signbit(both)]
