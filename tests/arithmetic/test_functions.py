"""Elementary functions against MPFR."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.kernels import functions as kernel
from tests.bits import assert_bits

gmpy2 = pytest.importorskip("gmpy2", reason="needs gmpy2 (MPFR) as an oracle")

ORACLES = {
    "exp": gmpy2.exp,
    "log": gmpy2.log,
    "tanh": gmpy2.tanh,
    "sigmoid": lambda x: 1 / (1 + gmpy2.exp(-x)),
}
MODES = {
    "nearest_even": gmpy2.RoundToNearest,
    "toward_zero": gmpy2.RoundToZero,
    "toward_positive": gmpy2.RoundUp,
    "toward_negative": gmpy2.RoundDown,
}
# Wide enough to tell 1 - exp(-1000) from 1.
WIDE = dict(precision=4000, emin=-(2**20), emax=2**20)


def numbers(name, rng, count=1500):
    x = rng.standard_normal(count) * 2.0 ** rng.integers(-40, 9, count)
    if name == "log":
        x = np.abs(x)
        x[::2] = 1 + x[::2] * 2.0**-12
    return x


@pytest.mark.parametrize("name", ORACLES)
def test_pairs_are_right_to_75_bits(name, rng):
    with gmpy2.context(**WIDE):
        for x in numbers(name, rng):
            high, low, exponent = getattr(kernel, f"{name}_wide")(float(x))
            got = (gmpy2.mpfr(float(high)) + gmpy2.mpfr(float(low))) * gmpy2.mpfr(2) ** int(exponent)
            want = ORACLES[name](gmpy2.mpfr(float(x)))
            assert abs(got - want) <= abs(want) * gmpy2.mpfr(2) ** -75, float(x).hex()


@pytest.mark.parametrize("format", [sf.FP16, sf.BF16, sf.FP32], ids=str)
@pytest.mark.parametrize("name", ORACLES)
def test_functions_agree_with_mpfr(name, format, rng):
    x = sf.round(numbers(name, rng, 3000), sf.FP16)
    for mode, direction in MODES.items():
        got = getattr(sf, name)(x, format, getattr(sf, mode))
        with gmpy2.context(**WIDE):
            exact = [ORACLES[name](gmpy2.mpfr(float(v))) for v in x]
        # MPFR's value with the format's precision; range is the matter of round, tested elsewhere.
        with gmpy2.context(precision=format.precision, round=direction, emin=-(2**20), emax=2**20):
            want = np.array([float(gmpy2.mpfr(v)) for v in exact])
        inside = (np.abs(want) >= format.smallest_normal) & (np.abs(want) <= format.max)
        assert inside.any()
        assert_bits(got[inside], want[inside], x[inside])


SPECIALS = [0.0, -0.0, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize(
    "name, want",
    [
        ("exp", [1, 1, np.inf, 0, np.nan]),
        ("log", [-np.inf, -np.inf, np.inf, np.nan, np.nan]),
        ("tanh", [0.0, -0.0, 1, -1, np.nan]),
        ("sigmoid", [0.5, 0.5, 1, 0, np.nan]),
    ],
)
def test_specials(name, want):
    for format in (sf.FP16, sf.FP32, sf.FP64):
        assert_bits(getattr(sf, name)(SPECIALS, format), want)


def test_directed_modes_see_what_lies_below_the_last_place():
    up, down = sf.toward_positive, sf.toward_zero
    tiny = 2.0**-130
    assert sf.exp(tiny, sf.FP16, up) == 1 + 2.0**-10 and sf.exp(-tiny, sf.FP16, down) == 1 - 2.0**-11
    assert sf.tanh(tiny, sf.BF16, down) == sf.round(tiny * (1 - 2.0**-8), sf.BF16, down)
    assert sf.tanh(50.0, sf.FP16, down) == 1 - 2.0**-11 and sf.tanh(500.0, sf.FP16, up) == 1
    assert sf.sigmoid(500.0, sf.FP16, down) == 1 - 2.0**-11 and sf.sigmoid(tiny, sf.FP16, up) == 0.5 + 2.0**-11
    assert sf.exp(1000.0, sf.FP16, down) == 65504.0 and sf.exp(-1000.0, sf.FP16, up) == 2.0**-24
    assert sf.exp(1e300, sf.Format(11, 30)) == np.inf and sf.exp(-1e300, sf.Format(11, 30), up) > 0


def test_fp64_is_within_the_last_place_even_where_it_underflows(rng):
    x = np.concatenate([rng.uniform(-745.2, 709.7, 2000), rng.uniform(-745.2, -708, 500)])
    got = sf.exp(x, sf.FP64)
    with gmpy2.context(precision=53, emin=-1073, emax=1024, subnormalize=True):
        want = [float(gmpy2.exp(gmpy2.mpfr(float(v)))) for v in x]
    assert_bits(got, want, x)


def test_float32_and_observer_and_streams_work_as_for_operations(rng):
    x = rng.standard_normal(100).astype(np.float32)
    assert sf.exp(x, sf.BF16).dtype == np.float32
    with pytest.raises(ValueError, match="pass stream="):
        sf.exp(x, sf.BF16, sf.stochastic())
    low, high = sf.exp(x, sf.FP32, sf.toward_zero), sf.exp(x, sf.FP32, sf.toward_positive)
    got = sf.exp(x, sf.FP32, sf.stochastic(), stream=sf.BitStream(0))
    assert ((got == low) | (got == high)).all() and (got == low).any() and (got == high).any()
