"""Operations in float32 lanes have the bits of float64 operations, which tests/arithmetic verifies."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic.machines import CPU
from simfloat.arithmetic.sources import InFloat32Lanes, route_of
from simfloat.kernels.elementwise.float32 import SINGLE
from tests.bits import DETERMINISTIC, assert_bits

FORMATS = (sf.BF16, sf.TF32, sf.FP16, sf.E4M3, sf.Format(8, 21), sf.Format(8, 1), sf.Format(5, 21), sf.p3109(8, 4))
MODES = [*DETERMINISTIC, *(mode.saturating() for mode in DETERMINISTIC)]
COUNTS = {"fma": 3, "sqrt": 1, "reciprocal": 1}

#: Zeros, infinities, NaN, both ends of the range and of the normal numbers, and powers around the scaled ones.
EDGES = np.array([0, 0x7F800000, 0x7FC00000, 1, 0x7F7FFFFF, 0x7F7FFFFE, 0x00800000, 0x007FFFFF, 0x3F800000], np.uint32)


def hostile(rng, count):
    """float32 numbers of any bits, of few bits, and near both ends of the range."""
    words = rng.integers(0, 2**32, count, dtype=np.uint32)
    few, low = words & 0xFFFF8000, (words & 0x807FFFFF) | (rng.integers(0, 30, count, dtype=np.uint32) << 23)
    middle = (words & 0x80FF0000) | (rng.integers(50, 140, count, dtype=np.uint32) << 23)
    edges = rng.choice(np.concatenate([EDGES, EDGES | 0x80000000]), count)
    return np.choose(rng.integers(0, 5, count), [words, few, low, middle, edges]).view(np.float32)


def operands(rng, count):
    """Three vectors with cancellations, and results close to numbers of few bits."""
    a, b, c = hostile(rng, count), hostile(rng, count), hostile(rng, count)
    with np.errstate(all="ignore"):
        b[::9], b[1::9], b[2::9] = -a[::9], a[1::9] * np.float32(2.0**-23), -np.nextafter(a[2::9], np.float32(0))
        c[::7], c[1::7] = -(a * b)[::7], (a * b)[1::7] * np.float32(2.0**-30)
    return a, b, c


@pytest.mark.parametrize("name", SINGLE)
def test_results_of_float32_numbers_are_those_of_float64(name, rng):
    for format in FORMATS:
        given = operands(rng, 4000)[: COUNTS.get(name, 2)]
        with np.errstate(invalid="ignore"):
            wide = [x.astype(np.float64) for x in given]
        for mode in MODES:
            is_hardware = format == sf.FP16 and mode == sf.nearest_even
            assert is_hardware or route_of(name, format, mode, True, CPU).source is InFloat32Lanes
            assert_bits(getattr(sf, name)(*given, format, mode), getattr(sf, name)(*wide, format, mode), *given)


def test_a_scalar_operand_is_a_vector_of_it(rng):
    x, y = rng.standard_normal((2, 5000)).astype(np.float32)
    for a, b, c in ((x, y[0], y[1]), (x[0], y, x), (x[0], y[0], x)):
        vectors = [np.broadcast_to(v, x.shape).copy() for v in (a, b, c)]
        assert_bits(sf.fma(a, b, c, sf.BF16), sf.fma(*vectors, sf.BF16))
    assert_bits(sf.add(x[0], y[0], sf.BF16), sf.add(x, y, sf.BF16)[0])


def test_formats_that_need_more_bits_than_float32_has_are_computed_in_float64():
    for format in (sf.Format(8, 22), sf.Format(8, 20, bias=129), sf.Format(8, 7, subnormals=False), sf.E8M0):
        assert route_of("add", format, sf.toward_zero, True, CPU).source is not InFloat32Lanes
    assert route_of("add", sf.BF16, sf.stochastic(), True, CPU).source is not InFloat32Lanes
    assert route_of("add", sf.BF16, sf.toward_zero, False, CPU).source is not InFloat32Lanes
