"""`out=`: results are written to an existing array, which may overlap with operands; on an error nothing is written."""

from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic.catalog import FUNCTIONS
from tests.bits import assert_bits
from tests.checks import assert_refused
from tests.kernels.test_single import hostile

FORMATS = (sf.BF16, sf.FP16, sf.E4M3, sf.FP32, sf.FP64)
MODES = (sf.nearest_even, sf.toward_zero, sf.stochastic())
SIZES = (1, 33, 70000)
#: Long arrays, which threads share, in two formats.
CASES = [*product(FORMATS, SIZES[:2]), (sf.BF16, SIZES[2]), (sf.FP64, SIZES[2])]


def calls(rng, size):
    """(function, operands) of round, and of operations of one, two and three operands."""
    for name in ("round", *("sqrt", "tanh", "add", "divide", "fma")):
        count = 1 if name == "round" else len(FUNCTIONS[name].operands)
        yield getattr(sf, name), [hostile(rng, size) for _ in range(count)]


def given(format, mode):
    return format, sf.nearest_even if format == sf.FP64 else mode


@pytest.mark.parametrize("format, size", CASES, ids=str)
def test_out_receives_the_results_and_may_share_memory_with_operands(format, size, rng):
    """The same elements, elements beside them, every second one, one that stands for all, all in reverse."""
    for mode in MODES if size < SIZES[-1] else MODES[:1]:
        how = given(format, mode)
        for function, (x, *others) in calls(rng, size):
            want = function(x, *others, *how, stream=sf.BitStream(0))
            out = np.full(size, 7.0, want.dtype)
            assert function(x, *others, *how, stream=sf.BitStream(0), out=out) is out
            assert_bits(out, want, x, *others)
            with np.errstate(invalid="ignore"):  # signalling NaN
                memory = np.resize(x, 2 * size + 1).astype(want.dtype)
            for view in (
                slice(size), slice(1, size + 1), slice(0, 2 * size, 2), slice(size, size + 1), slice(-1, size, -1),
            ):  # fmt: skip
                for place in (slice(size), slice(size, 2 * size)):
                    own = memory.copy()
                    first, out = own[view], own[place]
                    want = function(first.copy(), *others, *how, stream=sf.BitStream(0))
                    if want.shape == out.shape and want.dtype == out.dtype:
                        function(first, *others, *how, stream=sf.BitStream(0), out=out)
                        assert_bits(out, want)


def test_functions_that_are_looked_up_may_write_to_their_operand():
    """At the last element it turns out that not all operands are numbers of 16 bits."""
    x = np.resize((np.arange(2**16, dtype=np.uint32) << 16).view(np.float32), 2**17)
    for _ in range(2):
        sf.tanh(x, sf.BF16)
    x[-1] = np.float32(0.1)
    want = sf.tanh(x, sf.BF16)
    sf.tanh(x, sf.BF16, out=x)
    assert_bits(x, want)


def test_views_that_are_not_contiguous_receive_results(rng):
    x = rng.standard_normal((40, 30)).astype(np.float32)
    for out in (
        np.empty((30, 40), np.float32).T,
        np.empty((40, 60), np.float32)[:, ::2],
        np.empty((40, 30), np.float32),
    ):
        assert_bits(sf.round(x, sf.E4M3, out=out), sf.round(x, sf.E4M3))
        assert_bits(sf.add(x, x[0], sf.FP16, out=out), sf.add(x, x[0], sf.FP16))
        results, flags = sf.add(x, x[0], sf.FP16, out=out, flags=True)
        assert results is out and (flags == sf.add(x, x[0], sf.FP16, flags=True)[1]).all()


def test_observers_receive_the_events_of_the_operands_as_they_were(rng):
    x = hostile(rng, 5000)
    want, got = sf.Recorder(), sf.Recorder()
    for recorder, out in ((want, None), (got, x.copy())):
        own = x if out is None else out
        sf.add(own, np.float32(0.25), sf.E4M3, observer=recorder, out=out)
    assert want.counts() == got.counts() and want.histogram() == got.histogram()


def test_an_out_that_cannot_store_the_results_is_refused_and_an_error_leaves_it_as_it_was():
    x, stream, kept = np.ones(2, np.float32), sf.BitStream(0), np.full(2, 7.0)
    sealed = x[:]
    sealed.flags.writeable = False
    for out, message in (
        (np.empty(3, np.float32), r"shape and type, \(2,\) and float32; it has \(3,\) and float32"),
        (np.empty(2), "and float32; it has .* and float64"),
        (np.empty((2, 2), np.float32), r"it has \(2, 2\)"),  # a shape that operands would have to broadcast to
        ([0.0, 0.0], "out must be an array to write to, got list"),
        (sealed, "out must be writeable"),
    ):
        for call in (sf.round, lambda *how, **options: sf.add(x, *how, **options)):
            with pytest.raises(ValueError, match=message):
                call(x, sf.BF16, sf.stochastic(), stream=stream, out=out)
    assert stream.state == sf.BitStream(0).state, "a refused call takes no draw"
    assert_refused(
        (lambda: sf.round([1.0, np.nan], sf.E2M1, out=kept), "has no NaN"),
        (lambda: sf.round([1.0, 2.0], sf.E2M1, sf.stochastic(), out=kept), "needs random bits"),
    )
    assert kept.tolist() == [7.0, 7.0]


def test_results_may_replace_any_operand_of_many_elements(rng):
    for format in (sf.FP16, sf.BF16, sf.E4M3, sf.FP32):
        x, y = sf.round(rng.standard_normal((2, 5000)).astype(np.float32) * 8, format)
        for function, count in ((sf.add, 2), (sf.divide, 2), (sf.fma, 3), (sf.sqrt, 1), (sf.round, 1)):
            operands = [x, y, x[::-1]][:count]
            want = function(*operands, format)
            for place in range(count):
                copies = [operand.copy() for operand in operands]
                assert function(*copies, format, out=copies[place]) is copies[place]
                assert_bits(copies[place], want)
        square = x.copy()
        sf.multiply(square, square, format, out=square)
        assert_bits(square, sf.multiply(x, x, format))
        wide = rng.standard_normal(70000).astype(np.float32)
        want = sf.round(wide, format)
        sf.round(wide, format, out=wide)
        assert_bits(wide, want)
