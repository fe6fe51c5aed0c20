"""Compare operations, each rounded once, with fractions over the whole range of float64, and with oracles."""

from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic.catalog import FUNCTIONS
from simfloat.formats.definition import round_value
from simfloat.formats.exact_numbers import exact_number, exact_result
from simfloat.formats.exceptions import flags_of
from simfloat.tools.selftest.checks import operands
from simfloat.tools.selftest.operations import QUOTIENTS, SIX_BITS, by_fractions, every_pair, near_triples
from tests.bits import DETERMINISTIC, assert_bits
from tests.checks import assert_refused
from tests.reference import draws, operate

OPERATIONS = {"add": 2, "subtract": 2, "multiply": 2, "divide": 2, "fma": 3, "sqrt": 1, "reciprocal": 1}
FORMATS = [
    *(sf.FP16, sf.BF16, sf.E4M3, sf.FP32, sf.TF32, sf.E4M3FNUZ),
    *(sf.Format(11, 20), sf.Format(11, 49), sf.p3109(8, 1), sf.Format(5, 10, subnormals=False)),
]
RANDOM = [sf.stochastic(), sf.stochastic(3, "A"), sf.stochastic(32, "B")]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_exact_result_is_rounded_once(operation, rng):
    for format in FORMATS:
        numbers = operands(rng, 120)[: OPERATIONS[operation]]
        for rounding in (*DETERMINISTIC, sf.nearest_even.saturating(), *RANDOM):
            random = draws(120, rounding, seed=9) if rounding.is_stochastic else [0] * 120
            cases = zip(*numbers, random, strict=True)
            want = [operate(operation, format, rounding, *x, random=r) for *x, r in cases]
            got = getattr(sf, operation)(*numbers, format, rounding, stream=sf.BitStream(9))
            assert_bits(got, want, *numbers, of=f"{format} {rounding}")


def test_every_pair_of_numbers_of_other_8_bit_and_6_bit_formats_is_rounded_once(rng):
    # Every pair of the common 8-bit formats: tests/selftest.
    for operation, format in product(QUOTIENTS, (sf.p3109(8, 4), sf.p3109(8, 5, extended=False), *SIX_BITS)):
        for batch in every_pair(format, operation):
            assert batch.first_difference() is None
    for format in (sf.FP16, sf.BF16, sf.E5M2, sf.p3109(8, 4)):
        triples = near_triples(format, rng, 4_000)
        assert by_fractions("fma", triples, format, sf.nearest_even).first_difference() is None


def test_fp64_under_nearest_even_is_the_hardware(rng, gmpy2):
    a, b, c = operands(rng, 1000)
    with np.errstate(all="ignore"):
        for operation, want in [("add", a + b), ("multiply", a * b), ("divide", a / b), ("subtract", a - b)]:
            assert_bits(getattr(sf, operation)(a, b, sf.FP64), want)
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    a, b, c = a[finite], b[finite], c[finite]
    with gmpy2.context(precision=53, emin=-1073, emax=1024, subnormalize=True):
        want = [float(gmpy2.fma(gmpy2.mpfr(x), gmpy2.mpfr(y), gmpy2.mpfr(z))) for x, y, z in zip(a, b, c, strict=True)]
    assert_bits(sf.fma(a, b, c, sf.FP64), want, a, b, c)


def test_fp32_of_float32_is_the_hardware_and_the_kernel_alike(rng):
    x, y = rng.integers(0, 2**32, (2, 20000), dtype=np.uint32).view(np.float32)
    for operation in ("add", "subtract", "multiply", "divide"):
        with np.errstate(all="ignore"):
            want = getattr(np, operation)(x, y)
            wide = getattr(sf, operation)(x.astype(np.float64), y.astype(np.float64), sf.FP32)
        assert_bits(getattr(sf, operation)(x, y, sf.FP32), want, x, y)
        assert wide.dtype == np.float64
        assert_bits(wide, want, x, y)
    for operation, count in OPERATIONS.items():  # results in FP64 have all their bits
        operands = np.abs(rng.standard_normal((count, 500))).astype(np.float32)
        wide = getattr(sf, operation)(*operands.astype(np.float64), sf.FP64)
        got = getattr(sf, operation)(*operands, sf.FP64)
        assert got.dtype == np.float64 and (wide != wide.astype(np.float32)).any()
        assert_bits(got, wide, *operands)
    assert sf.add(np.float32(1), np.float32(2.0**-24), sf.Format(7, 24, special="fn")) == 1 + 2.0**-24


def test_cases_that_peers_round_twice():
    assert sf.fma(1.0625, 1.0625, 2.0**-60, sf.BF16) == 1.1328125
    assert sf.fma(7.0, 37.0, -(2.0**-60), sf.BF16) == 258.0
    assert sf.multiply(1.51544189453125, 0.3399200439453125, sf.Format(8, 15)) == 0.5151214599609375
    assert sf.fma((1 + 2.0**-10) * 2.0**-6, (1 - 2.0**-10) * 2.0**-5, 1 + 2.0**-10, sf.FP16) == 1.0009765625


def test_specials_of_ieee_754():
    inf, nan = np.inf, np.nan
    assert_bits(sf.subtract([inf, 1.0, 0.0, -0.0], [inf, 1.0, 0.0, 0.0], sf.FP16), [nan, 0.0, 0.0, -0.0])
    assert_bits(
        sf.add([1.0, 0.0, -0.0, 0.0], [-1.0, -0.0, -0.0, 0.0], sf.FP16, sf.toward_negative), [-0.0, -0.0, -0.0, 0.0]
    )
    assert_bits(sf.multiply([0.0, -2.0], [inf, 0.0], sf.FP16), [nan, -0.0])
    assert_bits(sf.divide([0.0, 1.0, -1.0, 1.0], [0.0, 0.0, 0.0, -inf], sf.FP16), [nan, inf, -inf, -0.0])
    assert sf.divide(1.0, 0.0, sf.FP16, sf.nearest_even.saturating()) == 65504.0
    assert sf.divide(1.0, 0.0, sf.FP16, sf.toward_zero) == inf, "an exact infinity is no overflow"
    assert np.isnan(sf.divide(1.0, 0.0, sf.E4M3))
    assert_bits(sf.fma([inf, 2.0, -0.0], [0.0, inf, 1.0], [1.0, -inf, -0.0], sf.FP16), [nan, nan, -0.0])


def test_broadcast_arrays_are_operands_without_a_warning(rng):
    # NumPy warns if the flag `writeable` of such an array is read; warnings are errors here.
    for dtype in (np.float32, np.float64):
        column, row = rng.standard_normal((3, 1)).astype(dtype), rng.standard_normal((1, 4)).astype(dtype)
        x, y = np.broadcast_arrays(column, row)
        want = np.ascontiguousarray(x), np.ascontiguousarray(y)
        assert_bits(sf.add(x, y, sf.BF16), sf.add(*want, sf.BF16))
        assert_bits(sf.round(x, sf.BF16), sf.round(want[0], sf.BF16))
        for accumulate in (sf.FP16, sf.kahan(sf.FP16), sf.pairwise(sf.BF16)):
            assert_bits(sf.matmul(x, y.T, accumulate=accumulate), sf.matmul(want[0], want[1].T, accumulate=accumulate))
        assert_bits(sf.sum(x, accumulate=sf.FP16), sf.sum(want[0], accumulate=sf.FP16))
        with sf.simulate("bf16-standard"):
            assert_bits((sf.Tensor(x) * y).data, (sf.Tensor(want[0]) * want[1]).data)
            layer = sf.nn.Linear(4, 2, rng=0)
            assert_bits(layer(y).data, layer(want[1]).data)


def test_broadcasting_and_dtypes(rng):
    a, b = rng.standard_normal((4, 1, 3)).astype(np.float32), rng.standard_normal((5, 1)).astype(np.float32)
    out = sf.add(a, b, sf.BF16)
    assert out.shape == (4, 5, 3) and out.dtype == np.float32
    assert_bits(out, sf.add(*(np.ascontiguousarray(v) for v in np.broadcast_arrays(a, b)), sf.BF16))
    assert sf.add(a, 1.0, sf.BF16).dtype == np.float64, "a Python float is a float64"
    assert sf.add(a, np.float32(1), sf.FP64).dtype == np.float64
    stream = sf.BitStream(0)
    wide = sf.multiply(a, b, sf.BF16, sf.stochastic(), stream=stream)
    again = sf.multiply(*np.broadcast_arrays(a, b), sf.BF16, sf.stochastic(), stream=sf.BitStream(0))
    assert_bits(wide, again)
    assert stream.calls == 1


def test_bad_input_is_refused():
    assert_refused(
        (lambda: sf.add(1.0, 1.0, sf.Format(11, 51)), "precision 52, and the mode is nearest_even"),
        (lambda: sf.exp(1.0, sf.FP64, sf.toward_zero), "FP64 has precision 53, and the mode is toward_zero"),
        (lambda: sf.add([1.0, 2.0], [1.0, 2.0, 3.0], sf.FP16), r"Shapes \(2,\) and \(3,\) do not broadcast"),
        (lambda: sf.multiply(1.0, 1.0, sf.FP16, sf.stochastic()), "pass stream="),
        (lambda: sf.divide(0.0, 0.0, sf.E3M2), "E3M2 has no NaN"),
        (lambda: sf.fma(1.0, "x", 1.0, sf.FP16), "b must hold real numbers"),
    )


@pytest.mark.parametrize("operation", ["add", "subtract", "multiply", "divide"])
def test_float32_operands_give_the_bits_of_the_same_numbers_in_float64(operation, rng):
    specials = np.float32([0, -0.0, np.inf, -np.inf, np.nan, 2.0**-149, -(2.0**-149), 3.4e38, -3.4e38, 1])
    function, modes = getattr(sf, operation), (sf.nearest_even, sf.nearest_even.saturating())
    for format, rounding in product((*FORMATS, sf.Format(8, 20)), modes):
        a, b = (rng.standard_normal((2, 2000)) * 2.0 ** rng.integers(-148, 121, (2, 2000))).astype(np.float32)
        b[::3] = a[::3] * (1 + rng.integers(-3, 4, 667) * 2.0 ** -rng.integers(1, 25, 667))
        if format.has_nan:
            a, b = (np.append(x, special) for x, special in zip((a, b), np.meshgrid(specials, specials), strict=True))
        wide = a.astype(np.float64), b.astype(np.float64)
        assert_bits(function(a, b, format, rounding), function(*wide, format, rounding), a, b)
        for scalar in np.float32([0.3, -0.0, 2.0**-149]):
            want = function(float(scalar), (b + 1) * 1.0, format, rounding)
            assert_bits(function(scalar, b + 1, format, rounding), want)
            if scalar or operation != "divide":
                assert_bits(function(a, scalar, format, rounding), function(wide[0], float(scalar), format, rounding))


def test_a_refusal_names_the_format_as_this_call_does_and_not_as_an_earlier_one():
    for function, name in product((sf.round, sf.sqrt), ("first", "second")):
        with pytest.raises(ValueError, match=name):
            function(np.nan, sf.Format(4, 2, special="finite", name=name))


@pytest.mark.parametrize(
    "name", ["add", "subtract", "multiply", "divide", "sqrt", "fma", "reciprocal", "rsqrt", "cbrt"]
)
def test_fp64_is_rounded_once_in_every_deterministic_mode_with_flags(name, rng):
    count = len(FUNCTIONS[name].operands)
    edges = [0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 5e-324, 1.7976931348623157e308, 2.0**-1022, -(2.0**970)]
    operands = np.concatenate(
        [
            rng.integers(0, 2**64, (count, 40), np.uint64).view(np.float64),
            rng.standard_normal((count, 40)) * 2.0 ** rng.integers(-4, 4, (count, 40)),
            rng.integers(-40, 40, (count, 20)) * 5e-324,
            rng.standard_normal((count, 40)) * 2.0 ** rng.integers(-560, -480, (count, 40)),
            rng.integers(2**26, 2**27, (count, 20)) | 1,
            rng.choice(edges, (count, 40)),
        ],
        axis=1,
    )
    rows = operands.T.tolist()
    for mode in DETERMINISTIC[1:]:
        options = {"negative_zero_sums": mode.zero_sum < 0} if name in ("add", "subtract", "fma") else {}
        exact = [exact_result(name, *map(exact_number, row), **options) for row in rows]
        want = np.array([round_value(x, sf.FP64, mode) for x in exact])
        assert_bits(getattr(sf, name)(*operands, sf.FP64, mode), want, *operands)
        results, flags = getattr(sf, name)(*operands, sf.FP64, mode, flags=True)
        assert_bits(results, want, *operands)
        pairs = zip(exact, rows, strict=True)
        assert flags.tolist() == [flags_of(x, row, sf.FP64, mode, 0, name == "fma") for x, row in pairs]


def test_events_in_fp64_are_counted_in_every_deterministic_mode():
    recorder = sf.Recorder()
    sf.add([1e308, 1.0, np.inf], [1e308, 2.0**-80, -np.inf], sf.FP64, sf.toward_zero, observer=recorder)
    counts = recorder.counts()
    assert (counts["overflow"], counts["unchanged"], counts["nan"]) == (1, 1, 1)
