"""Operations with results that float64 represents: integers, remainders and copied signs, compared with Python's."""

import math

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic.catalog import REPRESENTABLE
from simfloat.formats.exact_numbers import exact_number, exact_result
from tests.bits import DETERMINISTIC, assert_bits
from tests.checks import assert_refused

INF, NAN = math.inf, math.nan
SPECIALS = (0.0, -0.0, INF, -INF, NAN)


def of_python(function):
    """A function of floats that is NaN where Python raises an error."""

    def value(*operands):
        try:
            return function(*operands)
        except ValueError:
            return NAN

    return value


#: Python's functions, which return integers without the sign of zero.
PYTHONS = {
    "rint": lambda x: math.copysign(round(x), x) if math.isfinite(x) else x,
    "floor": lambda x: math.copysign(math.floor(x), x) if math.isfinite(x) else x,
    "ceil": lambda x: math.copysign(math.ceil(x), x) if math.isfinite(x) else x,
    "trunc": lambda x: math.copysign(math.trunc(x), x) if math.isfinite(x) else x,
    "fmod": of_python(math.fmod),
    "remainder": of_python(math.remainder),
    "copysign": math.copysign,
}


@pytest.mark.parametrize("name", REPRESENTABLE)
def test_all_operands_have_the_results_and_flags_of_python(name, rng):
    count, function = len(REPRESENTABLE[name].operands), getattr(sf, name)
    values = sf.decode(np.arange(256), sf.E5M2).astype(np.float64)
    operands = [x.reshape(-1) for x in np.meshgrid(*[values] * count)]
    exact = np.array([PYTHONS[name](*row) for row in zip(*map(np.ndarray.tolist, operands), strict=True)])
    invalid = np.isnan(exact) & ~np.isnan(operands).any(axis=0)
    for mode in DETERMINISTIC:
        want, flags = sf.round(exact, sf.E4M3, mode, flags=True)
        got = function(*operands, sf.E4M3, mode, flags=True)
        assert_bits(got[0], want, *operands)
        assert np.array_equal(got[1], np.where(invalid, 16, flags))
    single = function(*(x.astype(np.float32) for x in operands), sf.FP32)
    assert single.dtype == np.float32
    assert_bits(single.astype(np.float64), exact, *operands)
    # Of any size.
    a = rng.integers(0, 2**64, (count, 500), np.uint64).view(np.float64)
    a[:, :40] = [np.repeat(SPECIALS, 8), np.tile([*SPECIALS, 1.5, 5e-324, 1.7e308], 5)][:count]
    exact = [exact_result(name, *map(exact_number, row)) for row in a.T.tolist()]
    assert_bits(function(*a, sf.FP64), np.array([float(x) for x in exact]), *a)
    # The same numbers as objects are computed like operands that float64 cannot represent.
    assert_bits(function(*([2**80 + 1, *x.tolist()] for x in a), sf.FP64)[1:], function(*a, sf.FP64), *a)


def test_texts_and_quotients_are_rounded_once():
    assert sf.rint(["-0.1", "5/2", 2**60 + 1], sf.FP64).tolist() == [-0.0, 2.0, 2.0**60]
    assert sf.fmod("1/3", "1/4", sf.FP16) == sf.round("1/12", sf.FP16)
    assert sf.remainder(10, "3.3", sf.FP32) == sf.round("0.1", sf.FP32)
    assert sf.fmod(10**400, 2, sf.FP16) == 0 and np.signbit(sf.remainder("-1e400", 5, sf.FP16))
    assert sf.floor("-1e-400", sf.FP64) == -1.0 and sf.ceil("1e-400", sf.FP64) == 1.0


def test_an_observer_receives_the_operation_and_the_cause_of_nan():
    recorder = sf.Recorder()
    sf.fmod([1.0, 3.0], [0.0, 2.0], sf.FP16, observer=recorder)
    assert recorder.counts()["total"] == 2 and recorder.counts()["nan"] == 1
    assert "fmod" in str(recorder.first_nan) and "domain" in str(recorder.first_nan)


def test_wrong_arguments_raise_value_error():
    assert_refused(
        (lambda: sf.fmod([1, 2], [1, 2, 3], sf.FP16), "do not broadcast"),
        (lambda: sf.fmod(1, 0, sf.E2M1), "has no NaN"),
        (lambda: sf.rint("x", sf.FP16), "is not a number"),
        (lambda: sf.rint(1, sf.FP16, sf.stochastic(4)), "needs random bits"),
        (lambda: sf.rint(1, sf.FP16, flags=3), "flags must be True or False"),
        (lambda: sf.rint([1.0], sf.FP16, out=np.empty(2)), "out"),
    )


def test_operands_of_two_types_have_the_range_of_the_wider_one():
    a, b = np.array([1e39, -1.7e168]), np.array([3e38], np.float32)
    assert_bits(sf.remainder(a, b, sf.FP64), sf.remainder(a, b.astype(np.float64), sf.FP64))
