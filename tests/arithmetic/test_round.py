"""Rounding of arrays: every format and mode by the definition, fixed points, oracles, edge cases."""

import warnings
from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic import threads
from simfloat.arithmetic.codes import magnitudes
from simfloat.formats.definition import round_value
from tests.bits import DETERMINISTIC, FORMATS, adversarial, assert_bits, equal_bits
from tests.checks import assert_refused, with_threads
from tests.reference import draws

MODES = [mode for plain in DETERMINISTIC for mode in (plain, plain.saturating())]
RANDOM = [sf.stochastic(bits, variant) for variant in "ABC" for bits in (1, 3, 32)]


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_every_mode_follows_the_definition(format, rng):
    x = adversarial(format, rng, count=1)
    for rounding in (*MODES, *RANDOM):
        random = draws(x.size, rounding, 5) if rounding.is_stochastic else [0] * x.size
        want = [round_value(v, format, rounding, r) for v, r in zip(x.tolist(), random, strict=True)]
        assert_bits(sf.round(x, format, rounding, stream=sf.BitStream(5)), want, x)


def test_every_code_is_a_fixed_point_of_every_mode():
    for format in FORMATS:
        if format.bits <= 16:
            values = sf.decode(np.arange(2**format.bits), format)
            values = values[np.isfinite(values)]
            for rounding in (*MODES, *RANDOM):
                assert_bits(sf.round(values, format, rounding, stream=sf.BitStream(0)), values)


def test_nearest_even_agrees_with_ml_dtypes_on_random_float32_words(rng, ml_dtypes):
    # float32 only: ml_dtypes takes float64 through float32 and rounds twice.
    words = rng.integers(0, 2**32, 1 << 18, dtype=np.uint32)
    # Half of the words with exponents where the format has numbers.
    words[::2] = (words[::2] & np.uint32(0x80FFFFFF)) | (rng.integers(90, 150, words[::2].size).astype(np.uint32) << 23)
    x = words.view(np.float32)
    for name, dtype in {
        **{"FP16": "float16", "BF16": "bfloat16", "E5M2": "float8_e5m2", "E4M3": "float8_e4m3fn"},
        **{"E3M4": "float8_e3m4", "E4M3_IEEE": "float8_e4m3", "E5M2FNUZ": "float8_e5m2fnuz"},
        **{"E4M3FNUZ": "float8_e4m3fnuz", "E4M3B11FNUZ": "float8_e4m3b11fnuz"},
    }.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            want = x.astype(dtype).astype(np.float32)
        got = sf.round(x, name)
        # Both make NaN of an overflow where there is no infinity; NaN is one NaN.
        assert got.dtype == np.float32 and equal_bits(got, want).all()
        assert (got.view(np.uint32)[np.isnan(got)] == 0x7FC00000).all()


#: Formats that float32 is rounded to in its own lanes: with its exponents, and with others.
IN_FLOAT32 = [sf.BF16, *(sf.Format(8, m) for m in (1, 10, 15, 22)), sf.FP16, sf.E4M3, sf.E5M2FNUZ, sf.E2M1]
IN_FLOAT32 += [sf.p3109(8, 4), sf.Format(7, 16), sf.Format(5, 21), sf.Format(8, 7, bias=140), sf.Format(8, 3, bias=146)]
IN_FLOAT32 += [sf.Format(5, 22), sf.Format(5, 23), sf.Format(2, 23, special="fnuz"), sf.Format(8, 23, bias=130)]


@pytest.mark.parametrize("format", IN_FLOAT32, ids=repr)
def test_float32_is_rounded_like_float64_in_every_mode(format, rng):
    words = rng.integers(0, 2**32, 1 << 14, dtype=np.uint32)
    edges = np.array([0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FFFFFFF, 1, 0x00800000, 0x007FFFFF, 0], np.uint32)
    # Numbers of the format, ties, and what lies just beside both.
    numbers = rng.integers(2, 2 * format.max_code, 1 << 12)
    exact = (magnitudes(numbers >> 1, format) + magnitudes((numbers + 1) >> 1, format)) / 2
    near = exact.astype(np.float32).view(np.uint32)
    x = np.concatenate([words, edges, edges | 0x80000000, near - 1, near, near + 1, near | 0x80000000]).view(np.float32)
    x = x if format.has_nan else x[~np.isnan(x)]
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float64)
    for rounding in MODES:
        assert_bits(sf.round(x, format, rounding), sf.round(wide, format, rounding), wide)


def test_dtypes_and_shapes():
    x = np.zeros((3, 0, 2), np.float32)
    assert sf.round(x, sf.FP16).shape == (3, 0, 2)
    assert sf.round(np.float32([1, 2]), sf.BF16).dtype == np.float32
    assert sf.round(np.float32([1, 2]), sf.FP64).dtype == np.float64
    assert sf.round(np.float32([1, 2]), sf.Format(8, 24)).dtype == np.float64, "max is not a float32 number"
    assert sf.round([1, 2], sf.BF16).dtype == np.float64
    assert sf.round(np.float16([1, 2]), sf.BF16).dtype == np.float64
    scalar = sf.round(0.1, sf.E4M3)
    assert isinstance(scalar, np.ndarray) and scalar.shape == () and scalar == 0.1015625
    assert sf.round(0.1, "e4m3") == 0.1015625
    # ml_dtypes gives 1.0 and 448: it rounds float64 to float32 first.
    assert sf.round(1 + 2.0**-8 + 2.0**-40, sf.BF16) == 1.0078125 and np.isnan(sf.round(464 + 1e-9, sf.E4M3))


def test_memory_layout_does_not_matter(rng):
    x = rng.standard_normal((50, 70))
    want = sf.round(x, sf.BF16, sf.stochastic(), stream=sf.BitStream(3))
    for same in (np.asfortranarray(x), x[::-1, ::-1][::-1, ::-1], x.astype(">f8"), np.broadcast_to(x, (1, 50, 70))[0]):
        assert_bits(sf.round(same, sf.BF16, sf.stochastic(), stream=sf.BitStream(3)), want)
    frozen = x.copy()
    frozen.flags.writeable = False
    assert_bits(sf.round(frozen, sf.BF16), sf.round(x, sf.BF16))
    big = x.astype(np.float32).astype(">f4")
    assert sf.round(big, sf.BF16).dtype == np.float32


def test_threads_and_blocks_do_not_change_bits(rng, monkeypatch):
    monkeypatch.setattr(threads, "LEAST_WORK", 1000)
    x = rng.standard_normal(200_003)
    results = []
    for _ in with_threads(1, 2, 3, 7):
        results.append(sf.round(x, sf.FP16, sf.stochastic(), stream=sf.BitStream(1)))
    head = sf.round(x[:1000], sf.FP16, sf.stochastic(), stream=sf.BitStream(1))
    for result in results:
        assert_bits(result, results[0])
        assert_bits(result[:1000], head)


def test_stochastic_rounding_is_unbiased_with_the_variance_of_theory():
    # E = x and Var = ulp^2 nu (1 - nu); bounds of six standard deviations of mean and variance.
    count, nu = 1 << 18, 0.3
    ulp = 2.0**-10
    x = np.full(count, 1 + nu * ulp)
    error = (sf.round(x, sf.FP16, sf.stochastic(), stream=sf.BitStream(8)) - x) / ulp
    variance = nu * (1 - nu)
    assert abs(error.mean()) < 6 * np.sqrt(variance / count)
    assert abs(error.var() - variance) < 6 * np.sqrt(variance * (1 - 2 * nu) ** 2 / count)


def test_bad_input_is_refused():
    assert_refused(
        (lambda: sf.round([1.0], sf.FP16, sf.stochastic()), r"pass stream=simfloat.BitStream\(seed\)"),
        (lambda: sf.round([1.0, np.nan], sf.E2M1), r"E2M1 has no NaN, but the result at index \(1,\) is NaN"),
        (lambda: sf.round([1.0], "fp17"), "Unknown format 'fp17'"),
        (lambda: sf.round([1.0], sf.FP16, "nearest"), "rounding must be a simfloat.Rounding"),
        (lambda: sf.round([1.0], sf.FP16, "to_od"), r"got 'to_od'\. .* Did you mean to_odd\?"),
        (lambda: sf.round([1.0], sf.FP16, sf.stochastic), r"Did you mean stochastic\(bits=32\)"),
        (lambda: sf.round(1j, sf.FP16), "must hold real numbers .* got dtype complex128"),
        (lambda: sf.round(["a"], sf.FP16), "must hold real numbers"),
        (lambda: sf.round([[1.0], [1.0, 2.0]], sf.FP16), "must be a rectangular array"),
        (lambda: sf.sum([2**53 + 1], accumulate=sf.FP16), "integers that float64 cannot hold exactly"),
    )


def test_float32_numbers_below_its_normal_ones_are_rounded_in_formats_that_call_them_normal(rng):
    formats = sf.Format(5, 2, bias=146), sf.Format(4, 7, bias=140, special="fnuz"), sf.Format(6, 10, bias=135)
    for format, rounding in product(formats, DETERMINISTIC):
        x = np.ldexp(rng.standard_normal(400), rng.integers(format.emin - format.mantissa_bits, -120, 400))
        x = x.astype(np.float32)
        want = [round_value(v, format, rounding) for v in x.tolist()]
        assert_bits(sf.round(x, format, rounding), np.array(want, np.float32), x)
        assert_bits(sf.add(x, x[::-1], format, rounding), sf.add(x.astype(float), x[::-1], format, rounding), x)
