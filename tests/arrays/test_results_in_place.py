"""Operators in place, and NumPy's functions with `out`, write their results into an array."""

import operator

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic.spacing import larger, smaller
from tests.bits import assert_bits

IN_PLACE = {
    operator.iadd: sf.add, operator.isub: sf.subtract, operator.imul: sf.multiply, operator.itruediv: sf.divide,
    operator.ipow: sf.power,
}  # fmt: skip


@pytest.mark.parametrize("format", [sf.BF16, sf.E4M3, sf.E2M1, sf.Format(8, 40)], ids=str)
def test_operators_write_the_bits_of_the_functions_into_the_same_memory(format, rng):
    x, y = sf.round(abs(rng.standard_normal((2, 6, 700))) + 0.5, format)
    for operation, function in IN_PLACE.items():
        for operand in (y, 2, 0.5, 0.1):
            a, other = sf.array(x, format), operand if np.ndim(operand) == 0 else sf.array(y, format)[::2, 1:]
            numbers = a.numbers
            operation(a[::2, 1:], other)
            assert a.numbers is numbers
            assert_bits(np.asarray(a)[::2, 1:], function(x, operand, format).astype(np.float64)[::2, 1:])
            assert_bits(np.asarray(a)[1::2], x.astype(np.float64)[1::2])
    a = sf.array(x[0], format)
    a += a
    assert_bits(np.asarray(a), sf.add(x[0], x[0], format).astype(np.float64))


def test_out_must_be_an_array_of_the_format():
    a, b = sf.array([1.0, 2.0], sf.BF16), sf.array([2.0**-8, 3.0], sf.BF16)
    out = sf.array([9.0, 9.0], sf.BF16)
    numbers = out.numbers
    assert np.add(a, b, out=out) is out and out.numbers is numbers and out.numbers.tolist() == [1.0, 5.0]
    assert np.multiply(2, b, out=out).numbers.tolist() == [2.0**-7, 6.0]
    assert np.exp(a, out=a).numbers.tolist() == sf.exp([1.0, 2.0], sf.BF16).tolist()
    assert np.maximum(b, 1, out=out).numbers.tolist() == [1.0, 3.0] and np.negative(b, out=out).numbers[1] == -3
    with pytest.raises(ValueError, match="Arrays of two formats do not mix"):
        np.add(b, b, out=sf.array([0.0, 0.0], sf.FP16))
    with pytest.raises(ValueError, match="cannot change the shape"):
        np.add(b, b, out=sf.array([0.0], sf.BF16))
    for options, words in (({"where": [True, False]}, "takes no where"), ({"out": np.zeros(2)}, "takes no out")):
        with pytest.raises(ValueError, match=f"{words}: .* a new one, or written into one of these arrays as out"):
            np.add(b, b, **{"out": out} | options)
    with pytest.raises(ValueError, match=r"Shapes \(2,\) and \(3,\) do not broadcast"):
        b += sf.array([1.0, 2.0, 3.0], sf.BF16)


def test_an_error_changes_nothing_and_observers_count():
    a = sf.array([6.0, 0.0], sf.E2M1)
    with pytest.raises(ValueError, match="NaN"):
        a /= sf.array([2.0, 0.0], sf.E2M1)
    assert a.numbers.tolist() == [6.0, 0.0]
    recorder = sf.Recorder()
    b = sf.array([1.0, 2.0], sf.BF16, observer=recorder)
    b += sf.array([2.0**-9, 1.0], sf.BF16)
    assert recorder.counts(operation="add")["total"] == 2
    stream = sf.BitStream(0)
    c = sf.array([1.0, 2.0], sf.BF16, rounding=sf.stochastic(), stream=stream)
    c += 0.001
    np.maximum(c, c)
    assert stream.state == advanced(3).state
    assert_bits(c.numbers, sf.add([1.0, 2.0], 0.001, sf.BF16, sf.stochastic(), stream=advanced(1)).astype(np.float32))


def advanced(calls):
    stream = sf.BitStream(0)
    for _ in range(calls):
        sf.round(0.1, sf.BF16, sf.stochastic(), stream=stream)
    return stream


def test_extremes_choose_the_sign_of_zero_and_nan():
    values = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.0**-149], np.float32)
    a, b = np.meshgrid(values, values)
    for choose, first in ((larger, operator.gt), (smaller, operator.lt)):
        want = np.where(np.isnan(a) | first(a, b) | ((a == b) & (np.signbit(a) == (choose is smaller))), a, b)
        assert_bits(choose(a, b), want)
        for i, y in enumerate(values):
            assert_bits(choose(values, np.array(y)), want[i])
